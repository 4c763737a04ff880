"""The checksum of a result: equal results have equal checksums in every engine, in any order of rows."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.samples import Checksum
from bench.workloads import CLOSING_KEY

UInt64s: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"

COLUMNS: Final = ("key", "start_ms", "end_ms", "records", "total", "low", "high")
"""The columns of a result. A window that has no bounds, such as a count window, has 0 in both."""
ZERO: Final = Checksum(rows=0, records=0, total=0, mix=0)


class UnequalResults(AssertionError):  # noqa: N818 - it says what happened
    """Two contestants of one bench computed different results, so there is no ratio."""


def checksum(batches: Iterable[Any]) -> Checksum:
    """Return the checksum of rows, given as Arrow tables or record batches with the columns of COLUMNS."""
    rows = records = total = mix = 0
    for batch in batches:
        found = pa.table({name: batch[name] for name in COLUMNS})
        found = found.filter(pc.not_equal(found["key"], CLOSING_KEY))
        columns = [found[name].combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False) for name in COLUMNS]
        rows += found.num_rows
        records += int(columns[3].sum())
        total += int(columns[4].sum())
        mix = (mix + int(_mixed(columns).sum(dtype=np.uint64))) % 2**64
    return Checksum(rows=rows, records=records, total=total, mix=mix)


def require_equal(bench: str, found: dict[str, Checksum]) -> None:
    """Refuse results that differ.

    Raises:
        UnequalResults: names the bench, the first contestant, one with another result, and both checksums.
    """
    if not found:
        return
    (first, expected), *others = found.items()
    for name, one in others:
        if one != expected:
            raise UnequalResults(f"bench {bench}: {first} computed {expected}, but {name} computed {one}")


def _mixed(columns: list[Any]) -> UInt64s:
    """Return a hash of each row: splitmix64 over its columns, one after the other."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mixed = _splitmix(mixed + column.astype(np.int64).view(np.uint64))
    return mixed


def _splitmix(values: UInt64s) -> UInt64s:
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
