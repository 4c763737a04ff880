"""Times that Python does not have are texts, in columns of any type."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from windowlib.columnar.python_values import arrow_value, python_rows, python_values

US = pa.timestamp("us", tz="UTC")
FAR = pa.array([253_402_318_799_000_000, None, 0], pa.int64()).cast(US)
TEXTS = ["10000-01-01T04:59:59Z", None, datetime(1970, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (FAR, TEXTS),
        (pa.chunked_array([FAR, FAR]), TEXTS * 2),
        (FAR.cast(pa.timestamp("us")), ["10000-01-01T04:59:59", None, datetime(1970, 1, 1)]),  # noqa: DTZ001
        (pa.array([-62_135_600_008_000_000], pa.int64()).cast(US), ["0000-12-31T23:06:32Z"]),
        (pa.array([253_402_300_800_000_001], pa.int64()).cast(US), ["10000-01-01T00:00:00.000001Z"]),
        (pa.array([253_402_300_800], pa.int64()).cast(pa.timestamp("s")), ["10000-01-01T00:00:00"]),
        (pa.array([2_932_897, 0], pa.int32()).cast(pa.date32()), ["10000-01-01", date(1970, 1, 1)]),
        (pa.StructArray.from_arrays([FAR, FAR.is_null()], ["a", "b"]),
         [{"a": text, "b": text is None} for text in TEXTS]),
        (pa.ListArray.from_arrays(pa.array([0, 1, 1, 3]), FAR), [TEXTS[:1], [], TEXTS[1:]]),
        (pa.MapArray.from_arrays(pa.array([0, 3]), pa.array([*"xyz"]), FAR), [[*zip("xyz", TEXTS, strict=True)]]),
    ],
)  # fmt: skip
def test_a_time_that_python_does_not_have_is_a_text(column: pa.Array, values: list[object]) -> None:
    assert python_values(column) == values


@pytest.mark.parametrize("kind", [US, pa.timestamp("us"), pa.timestamp("s"), pa.date32()])
def test_each_value_is_a_scalar_again(kind: pa.DataType) -> None:
    instants = pa.array([253_402_318_799_000_000, -62_135_600_008_000_000, 0, None], pa.int64())
    column = instants.cast(US).cast(kind, safe=False)
    assert [arrow_value(value, kind) for value in python_values(column)] == [*column]
    with pytest.raises(pa.ArrowInvalid):
        arrow_value("10000-13-01", kind)


def test_rows_have_the_same_values() -> None:
    rows = pa.table({"a": FAR, "b": [1, 2, 3]})
    assert python_rows(rows) == [{"a": text, "b": number} for text, number in zip(TEXTS, (1, 2, 3), strict=True)]
    assert python_rows(rows.slice(0, 0)) == []
