"""Filters of rows take a value as a page shows it, and as the table stores it."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.review.pages import row_filters
from jobs.review.pages.cells import cell, cells_of
from jobs.review.pages.failing import tally
from jobs.review.pages.row_filters import Comparison, Filter, filtered
from windowlib.errors import RangeError

MAX_DECIMAL = Decimal("12345678901234567890.01")
WINDOW = {"window_start": datetime(2026, 1, 1, tzinfo=UTC), "window_end": datetime(2026, 1, 2, tzinfo=UTC)}
VALUES: list[tuple[str, list[Any], pa.DataType]] = [
    ("n", [1234, 12345, -1234, 2**63 - 1], pa.int64()),
    ("flag", [True, False], pa.bool_()),
    ("event_time_ms", [1_767_225_600_000, 1_767_225_600_123, 0, 2**62], pa.int64()),
    ("latency_ms", [250, 1_250, 1_767_225_600_000], pa.int64()),
    ("late_by_ms", [0, 1, 1_500, 61_000, 3_600_000, 259_205_000, 2 * 10**11, -5], pa.int64()),
    ("at", [datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 1, 5, 0, 0, 7, UTC)], pa.timestamp("us", tz="UTC")),
    ("local", [datetime(2026, 1, 1, 5), datetime(2026, 1, 1, 5, 1)], pa.timestamp("us")),  # noqa: DTZ001
    ("day", [date(2026, 1, 1), date(2026, 1, 2)], pa.date32()),
    ("rate", [1.0, 0.1 + 0.2, 123_456_789_012_345.0, -2.5, float("nan"), float("inf"), 1 / 3, 2e6 / 3], pa.float64()),
    ("total", [MAX_DECIMAL, MAX_DECIMAL + Decimal("0.01"), Decimal("-0.50"), Decimal(0)], pa.decimal128(38, 2)),
    ("name", ["a", "1,234", "yes"], pa.string()),
    ("raw", [b"-a", b"b"], pa.binary()),
    ("list", [[1234], [1]], pa.list_(pa.int64())),
    ("missed", [[WINDOW], []], pa.list_(pa.struct(dict.fromkeys(WINDOW, pa.timestamp("us", tz="UTC"))))),
]


def kept(name: str, values: list[Any], kind: pa.DataType, comparison: Comparison, text: str) -> list[int]:
    rows = pa.table({name: pa.array([*values, None], kind), "place": range(len(values) + 1)})
    places: list[int] = filtered(rows, Filter(column=name, comparison=comparison, value=text))["place"].to_pylist()
    return places


def is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and not pa.types.is_boolean(kind))


@pytest.mark.parametrize(("name", "values", "kind"), VALUES)
def test_a_filter_keeps_the_row_whose_cell_it_is(name: str, values: list[Any], kind: pa.DataType) -> None:
    """Defect: the text of the page was compared with another one of DuckDB, so no row was shown."""
    stored = pa.array(values, kind).to_pylist()
    for place, value in enumerate(stored):
        text = cell(value, name)
        assert kept(name, values, kind, Comparison.EQUALS, text) == [place]
        assert place in kept(name, values, kind, Comparison.CONTAINS, text)
        for comparison in (Comparison.AT_LEAST, Comparison.AT_MOST) if is_ordered(kind) else ():
            assert place in kept(name, values, kind, comparison, text)
        for comparison in (Comparison.EQUALS, Comparison.CONTAINS):
            none = pa.table({name: pa.chunked_array([], kind)})
            assert not filtered(none, Filter(column=name, comparison=comparison, value=text)).num_rows


def test_a_duration_of_many_days_keeps_all_that_a_page_shows_alike() -> None:
    day_ms = 86_400_000
    for days in (1_000, 2_315, 10_000):
        near = [days * day_ms + offset for offset in (1 - day_ms // 2, -1 - day_ms // 2, 0, day_ms // 2 - 1)]
        shown = [place for place, value in enumerate(near) if cell(value, "late_by_ms") == f"{days:,} d"]
        assert kept("late_by_ms", near, pa.int64(), Comparison.EQUALS, f"{days:,} d") == shown


@pytest.mark.parametrize(
    ("name", "comparison", "text", "expected"),
    [
        ("n", Comparison.EQUALS, "1234", [0]), ("n", Comparison.CONTAINS, "1234", [0, 1, 2]),
        ("n", Comparison.EQUALS, "1234.5", []), ("n", Comparison.AT_LEAST, "1234.5", [1, 3]),
        ("n", Comparison.AT_LEAST, "1,234", [0, 1, 3]), ("n", Comparison.AT_MOST, "-1e99", []),
        ("flag", Comparison.EQUALS, "true", [0]), ("flag", Comparison.CONTAINS, "fals", [1]),
        ("event_time_ms", Comparison.AT_LEAST, "2026-01-01 00:00:00.1", [1, 3]),
        ("event_time_ms", Comparison.EQUALS, "1767225600000", [0]), ("latency_ms", Comparison.AT_MOST, "1000", [0]),
        ("at", Comparison.EQUALS, "2026-01-01 06:00+01", [0]), ("at", Comparison.AT_MOST, "infinity", [0, 1]),
        ("rate", Comparison.EQUALS, "0.3", [1]), ("rate", Comparison.AT_MOST, "0.3", [1, 3]),
        ("late_by_ms", Comparison.AT_LEAST, "1.02 min", [3, 4, 5, 6]),
        ("late_by_ms", Comparison.AT_MOST, "1 s", [0, 1, 7]), ("late_by_ms", Comparison.EQUALS, "1,500 ms", [2]),
        ("late_by_ms", Comparison.EQUALS, "1500", [2]), ("late_by_ms", Comparison.EQUALS, "60.999 s", []),
        ("total", Comparison.AT_LEAST, str(MAX_DECIMAL + Decimal("0.01")), [1]),
        ("total", Comparison.AT_MOST, "-0.505", []), ("total", Comparison.AT_LEAST, "-0.505", [0, 1, 2, 3]),
        ("total", Comparison.AT_MOST, "1e300", [0, 1, 2, 3]), ("list", Comparison.CONTAINS, "234", [0]),
    ],
)  # fmt: skip
def test_values_are_compared_by_the_type_of_their_column(
    name: str, comparison: Comparison, text: str, expected: list[int]
) -> None:
    (given,) = (case for case in VALUES if case[0] == name)
    assert kept(*given, comparison, text) == expected


@pytest.mark.parametrize(
    ("name", "comparison", "text", "words"),
    [
        ("n", Comparison.EQUALS, "ten", "a number"), ("n", Comparison.AT_LEAST, "nan", "a number"),
        ("event_time_ms", Comparison.EQUALS, "noon", "a number or a time"), ("flag", Comparison.EQUALS, "maybe", "yes"),
        ("flag", Comparison.AT_LEAST, "yes", "no order"), ("at", Comparison.EQUALS, "noon", "a time, such as"),
        ("day", Comparison.EQUALS, "1", "a date"), ("rate", Comparison.EQUALS, "x", "a number"),
        ("list", Comparison.AT_MOST, "1", "no order"), ("rate", Comparison.EQUALS, "sNaN", "a number"),
        ("late_by_ms", Comparison.EQUALS, "an hour", "a duration, such as 1.5 s"),
    ],
)  # fmt: skip
def test_a_value_that_no_row_can_have_is_refused(name: str, comparison: Comparison, text: str, words: str) -> None:
    (given,) = (case for case in VALUES if case[0] == name)
    with pytest.raises(RangeError, match=words):
        kept(*given, comparison, text)


def test_a_time_that_python_does_not_have_is_shown_and_kept_by_its_text() -> None:
    """Defect: one time after the year 9999 in any column ended the page of the rows in status 500."""
    far = pa.array([253_402_318_799_000_000, 0], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    rows = pa.table({"until": far})
    text = "10000-01-01T04:59:59Z"
    assert cells_of(rows) == [[(text, False)], [("1970-01-01 00:00", False)]]
    assert tally(rows, "late_records", "until").values == ((text, 1), ("1970-01-01 00:00", 1))
    for comparison in (Comparison.EQUALS, Comparison.CONTAINS):
        assert filtered(rows, Filter(column="until", comparison=comparison, value=text)) == rows.slice(0, 1)


def test_texts_of_too_many_different_values_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with a filter waits for them. Equal values count once."""
    monkeypatch.setattr(row_filters, "MAX_TEXTS", 3)
    assert kept("n", [10, 20, None, 10, 20, 10], pa.int64(), Comparison.CONTAINS, "2") == [1, 4]
    with pytest.raises(RangeError, match=r"column n has 4 values here; the texts of at most 3 .*'at least'"):
        kept("n", [10, 20, 30, 40], pa.int64(), Comparison.CONTAINS, "2")
    with pytest.raises(RangeError, match="5 values"):
        kept("list", [[1], [1], [1], [1]], pa.list_(pa.int64()), Comparison.CONTAINS, "1")
