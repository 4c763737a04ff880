"""The differences of a column."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.comparing.column_changes import ColumnChanges
from jobs.comparing.differences import ColumnDifference
from tests.support.fuzzing import chances


def difference(directory: Path, kind: pa.DataType, before: Any, after: Any) -> ColumnDifference:  # noqa: ANN401
    changes = ColumnChanges("x", kind, is_value=True, files=directory / "x", kept_numbers=9)
    sides = [pa.array([value], pa.int64() if pa.types.is_temporal(kind) else kind) for value in (before, after)]
    changes.add(*(side.cast(kind) for side in sides))
    return changes.result()


def test_differences_of_decimals_are_exact_and_rounded_once(tmp_path: Path) -> None:
    """Defect: 1673.79 and 5662703.85 differed by 5661030.0600000005, because the cast of Arrow is not exact."""
    for rng in chances(30):
        scale = rng.choice([2, 3, 9, 18])
        kind = pa.decimal128(38, scale)
        before, after = (Decimal(rng.randrange(1, 10 ** rng.randrange(2, 20))).scaleb(-scale) for _ in range(2))
        changes = difference(tmp_path, kind, before, after)
        assert changes.largest == (float(abs(after - before)) if before != after else None)
        if before != after:
            assert changes.largest_relative == pytest.approx(float(abs(after - before) / before), rel=1e-15)


@pytest.mark.parametrize(
    ("kind", "before", "after", "largest"),
    [
        (pa.timestamp("us"), 0, 1001, 1.001),
        (pa.timestamp("us", tz="UTC"), -(2**63), 2**63 - 1, (2**64 - 1) / 1000),
        (pa.timestamp("s"), 0, 7, 7000.0),
        (pa.int64(), -(2**63), 2**63 - 1, 2**64 - 1),
        (pa.decimal128(38, 0), Decimal(-(10**37)), Decimal(10**37), 2e37),
    ],
)
def test_the_largest_difference(tmp_path: Path, kind: pa.DataType, before: Any, after: Any, largest: float) -> None:  # noqa: ANN401
    assert difference(tmp_path, kind, before, after).largest == largest


def test_a_relative_difference_that_is_infinite_is_left_out(tmp_path: Path) -> None:
    assert difference(tmp_path, pa.float64(), 5e-324, 1.0).largest_relative is None
