"""Instants and problems of records over whole columns: the twin of `windowlib.spark.columns` for integers and times.

`windowlib.records.instants` defines the results. A problem is a small number, an index into `PROBLEMS`; 0 is none.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from windowlib.columnar.steps import Int64s
from windowlib.errors import SpecError
from windowlib.records.instants import NULL_TIME, OUT_OF_RANGE, UNITS_PER_MS

Codes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int8]]"

PROBLEMS: Final = (
    None, "null_key", "nan_key", NULL_TIME, f"arrival_{NULL_TIME}", f"arrival_{OUT_OF_RANGE}", "null_gap",
    "gap_not_positive", OUT_OF_RANGE,
)  # fmt: skip
"""The reasons why a record is invalid. If a record has several, the first in this order is its reason."""
_CODES: Final = {name: code for code, name in enumerate(PROBLEMS)}
_WORD: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Instants:
    """Floored epoch ms of each row. `is_null`: the value is null. `is_lost`: its ms are outside 64 bits."""

    ms: Int64s
    is_null: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
    is_lost: "np.ndarray[tuple[int], np.dtype[np.bool_]]"


def can_read_instants(kind: pa.DataType) -> bool:
    """Return whether `read_instants` reads columns of a type."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_signed_integer(kind))


def read_instants(values: pa.Array, unit: str | None) -> Instants:
    """Return the instants of a column of integers (with a unit), timestamps in microseconds, or dates.

    Raises:
        SpecError: the column has another type.
    """
    kind = values.type
    if not can_read_instants(kind):
        raise SpecError(f"a time column of Arrow type {kind} is not read here; allowed: integers, timestamps, dates")
    is_null = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        days = _integers(values.cast(pa.int32()))
        return Instants(days * 86_400_000, is_null, np.zeros(len(days), dtype=bool))
    numbers = _integers(values.cast(pa.int64()))
    per_ms = UNITS_PER_MS["us" if pa.types.is_timestamp(kind) else unit or "ms"]
    if per_ms >= 1:
        divisor = int(per_ms)
        ms = numbers if divisor == 1 else numbers // divisor
        return Instants(ms, is_null, np.zeros(len(ms), dtype=bool))
    factor = int(1 / per_ms)
    is_lost = (numbers > (_WORD - 1) // factor) | (numbers < -(_WORD // factor))
    return Instants(np.where(is_lost, 0, numbers) * factor, is_null, is_lost)


def key_problems(values: pa.Array) -> Codes:
    """Return `null_key` and `nan_key` for the values of a key column."""
    found = np.where(values.is_null().to_numpy(zero_copy_only=False), _CODES["null_key"], 0).astype(np.int8)
    if pa.types.is_floating(values.type):
        is_nan = pc.is_nan(values).fill_null(value=False).to_numpy(zero_copy_only=False)
        found[is_nan] = _CODES["nan_key"]
    return found


def time_problems(time: Instants) -> Codes:
    """Return `null_time` for the event times."""
    return np.where(time.is_null, _CODES[NULL_TIME], 0).astype(np.int8)


def range_problems(time: Instants) -> Codes:
    """Return `time_out_of_range` for event times outside 64 bits or the years 1 to 9999."""
    is_inside = (time.ms >= MIN_TIMESTAMP_MS) & (time.ms <= MAX_TIMESTAMP_MS) & ~time.is_lost
    return np.where(is_inside, 0, _CODES[OUT_OF_RANGE]).astype(np.int8)


def arrival_problems(arrival: Instants) -> Codes:
    """Return the problems of arrival times: null, or outside 64 bits."""
    found = np.where(arrival.is_lost, _CODES[f"arrival_{OUT_OF_RANGE}"], 0).astype(np.int8)
    found[arrival.is_null] = _CODES[f"arrival_{NULL_TIME}"]
    return found


def gap_problems(gap: Instants) -> Codes:
    """Return the problems of session gaps: null, or less than 1 ms."""
    found = np.where(gap.is_lost | (gap.ms <= 0), _CODES["gap_not_positive"], 0).astype(np.int8)
    found[gap.is_null] = _CODES["null_gap"]
    return found


def first_problems(*found: Codes) -> Codes:
    """Return the first problem of each row."""
    whole = found[0].copy()
    for codes in found[1:]:
        np.copyto(whole, codes, where=whole == 0)
    return whole


def problem_names(codes: Codes) -> pa.Array:
    """Return problems as texts, null where there is none."""
    return pa.array(PROBLEMS, pa.string()).take(pa.array(codes.astype(np.int32)))


def _integers(values: pa.Array) -> Int64s:
    return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
