"""Counts how often and by how much a column differs between matched rows."""

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from expectations.compiled.columns import doubles
from jobs.comparing.differences import ColumnDifference
from jobs.comparing.medians import Doubles, Magnitudes
from windowlib.columnar.hashing import value_hashes
from windowlib.columnar.watermark_steps import Bools
from windowlib.columnar.xxhash import Words
from windowlib.records.xxh64 import SEED

_NO_AMOUNT: Final = frozenset({"record_hash"})
"""Columns of numbers whose difference means nothing."""
_DECIMAL_DIGITS: Final = 76
_MS: Final = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
"""So many milliseconds are so many units of a timestamp."""


class ColumnChanges:
    """The differences of one column over any number of pairs of rows."""

    def __init__(self, name: str, kind: pa.DataType, *, is_value: bool, files: Path, kept_numbers: int) -> None:
        """Prepare.

        A difference is a change of the row if `is_value` (`Shape.values`). So many `kept_numbers` are in memory; more
        are in temporary files, whose names begin with `files`.
        """
        self.name, self.kind, self.is_value = name, kind, is_value
        self.mismatch = self.missing = self.extra = 0
        is_integer = bool(pa.types.is_integer(kind))
        self._by = Magnitudes(Path(f"{files}.by"), are_integers=is_integer, kept_words=kept_numbers)
        self._relative = Magnitudes(Path(f"{files}.relative"), are_integers=False, kept_words=kept_numbers)

    def add(self, before: pa.Array, after: pa.Array) -> tuple[Bools, Doubles]:
        """Take pairs in; return which of them differ, and how much, to choose samples.

        That is the relative difference if there is one, else 1, and 0 for equal values.
        """
        had, has = _valid(before), _valid(after)
        mismatch = had & has & (value_hashes(before, SEED) != value_hashes(after, SEED))
        self.mismatch += int(mismatch.sum())
        self.missing += int((had & ~has).sum())
        self.extra += int((~had & has).sum())
        differs = np.asarray(mismatch | (had != has))
        scores = differs.astype(np.float64)
        if mismatch.any() and self.has_amounts:
            chosen = pa.array(mismatch)
            relative = self._add_amounts(before.filter(chosen), after.filter(chosen))
            scores[mismatch] = np.where(np.isfinite(relative), relative, 1.0)
        return differs, scores

    @property
    def has_amounts(self) -> bool:
        """Whether the values of the column can be subtracted."""
        return self.name not in _NO_AMOUNT and _has_amounts(self.kind)

    def result(self) -> ColumnDifference:
        """Return the counts and amounts of all pairs."""
        return ColumnDifference(
            column=self.name,
            type=str(self.kind),
            is_value=self.is_value,
            mismatch=self.mismatch,
            missing=self.missing,
            extra=self.extra,
            largest=self._by.largest,
            median=self._by.median(),
            largest_relative=self._relative.largest,
            median_relative=self._relative.median(),
            unit=_unit(self.kind),
        )

    def _add_amounts(self, before: pa.Array, after: pa.Array) -> Doubles:
        """Add the differences of pairs; return them relative to the values before, not finite if there is no such."""
        base, by = amounts(before, after)
        finite = np.isfinite(by)
        self._by.add(by[finite])
        if pa.types.is_temporal(self.kind):
            return np.full(len(by), np.nan)
        with np.errstate(all="ignore"):
            relative = np.asarray(by.astype(np.float64) / np.abs(base))
        self._relative.add(relative[finite & np.isfinite(relative)])
        return relative


def amounts(before: pa.Array, after: pa.Array) -> tuple[Doubles, Words | Doubles]:
    """Return the values before as doubles, and the absolute differences.

    The differences of integers are exact, as uint64. Those of DECIMAL are exact, then rounded to doubles. Times are in
    milliseconds, dates in days. A difference with a NaN or infinity is not finite.
    """
    kind = before.type
    if pa.types.is_integer(kind):
        return _words(before).astype(np.float64), _apart(before, after)
    if pa.types.is_decimal(kind):
        wide = pa.decimal256(_DECIMAL_DIGITS - 1, kind.scale)
        difference = pc.abs(pc.subtract(after.cast(wide), before.cast(wide)))
        return np.asarray(doubles(before)), np.asarray(doubles(difference))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        ms, units = _MS[kind.unit] if pa.types.is_timestamp(kind) else (1, 1)
        return _words(before).astype(np.float64), _apart(before, after).astype(np.float64) * ms / units
    old, new = (np.asarray(side.cast(pa.float64())) for side in (before, after))
    with np.errstate(invalid="ignore", over="ignore"):
        return old, np.abs(new - old)


def _apart(before: pa.Array, after: pa.Array) -> Words:
    """Return the exact absolute differences of integers or times."""
    old, new = _words(before), _words(after)
    with np.errstate(over="ignore"):
        return np.where(
            new >= old, new.view(np.uint64) - old.view(np.uint64), old.view(np.uint64) - new.view(np.uint64)
        )


def _words(column: pa.Array) -> NDArray[np.int64]:
    word = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    return np.asarray(column.cast(word)).astype(np.int64)


def _valid(column: pa.Array) -> Bools:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _has_amounts(kind: pa.DataType) -> bool:
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(is_number or types.is_timestamp(kind) or types.is_date(kind))


def _unit(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        return "ms"
    return "days" if pa.types.is_date(kind) else None
