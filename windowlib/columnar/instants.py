"""Instants and problems of records over whole columns.

`windowlib.records.instants` defines the results. Integers, timestamps and dates are read by arithmetic over columns.
Doubles, decimals and texts are read once per different value. A problem is a small number, an index into `PROBLEMS`;
0 is none.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from windowlib.bounds import MAX_DURATION_MS, MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from windowlib.columnar.arrow import int64s
from windowlib.columnar.undecodable import undecodable_rows, without_undecodable
from windowlib.columnar.watermark_steps import Int64s
from windowlib.errors import SpecError
from windowlib.records.instants import (
    INFINITE_TIME,
    NAN_TIME,
    NOT_UTF8,
    NULL_TIME,
    OUT_OF_RANGE,
    UNITS_PER_MS,
    WRONG_TYPE,
    read_instant,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Codes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int8]]"

_TIMES: Final = (NULL_TIME, NAN_TIME, INFINITE_TIME, WRONG_TYPE)
EXPRESSION_FAILED: Final = "expression_failed"
FILTERED: Final = -1
"""The code of a record that the pipeline's filter does not keep. It is neither valid nor invalid."""
DUPLICATE: Final = -2
"""The code of a duplicate of an earlier record. It is neither valid nor invalid."""
PROBLEMS: Final = (
    None, NOT_UTF8, EXPRESSION_FAILED, "null_key", *_TIMES,
    *(f"arrival_{name}" for name in (*_TIMES, OUT_OF_RANGE)),
    "null_gap", "gap_not_positive", "gap_too_long", OUT_OF_RANGE,
)  # fmt: skip
"""The reasons why a record is invalid. If a record has several, the first in this order is its reason."""
_CODES: Final = {name: code for code, name in enumerate(PROBLEMS)}
_TO_ARRIVAL: Final = _CODES[f"arrival_{NULL_TIME}"] - _CODES[NULL_TIME]
_WORD: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Instants:
    """Floored epoch ms of each row, and the problem of its value: null, NaN, infinite, or a text that is no instant.

    `is_lost`: the ms are outside the range of the type's reader. `ms` is 0 where there are none.
    """

    ms: Int64s
    problems: Codes
    is_lost: "np.ndarray[tuple[int], np.dtype[np.bool_]]"


def can_read_instants(kind: pa.DataType) -> bool:
    """Return whether `read_instants` reads columns of a type."""
    types = pa.types
    return bool(
        types.is_timestamp(kind)
        or types.is_date32(kind)
        or types.is_signed_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
    )


def read_instants(values: pa.Array, unit: str | None) -> Instants:
    """Return the instants of a column.

    With a unit (`s`, `ms`, `us` or `ns`), the values are integers, doubles, decimals or texts of numbers; without,
    timestamps in microseconds, dates or ISO texts.
    Raises SpecError: the column has another type.
    """
    kind = values.type
    if not can_read_instants(kind):
        raise SpecError(f"a time column of Arrow type {kind} holds no time; allowed: numbers, texts, timestamps, dates")
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_signed_integer(kind)):
        return _read_each(values, unit)
    problems = _of_nulls(values, NULL_TIME)
    if pa.types.is_date32(kind):
        days = int64s(values.cast(pa.int32()))
        return Instants(days * 86_400_000, problems, np.zeros(len(days), dtype=bool))
    numbers = int64s(values.cast(pa.int64()))
    per_ms = UNITS_PER_MS["us" if pa.types.is_timestamp(kind) else unit or "ms"]
    if per_ms >= 1:
        divisor = int(per_ms)
        ms = numbers if divisor == 1 else numbers // divisor
        return Instants(ms, problems, np.zeros(len(ms), dtype=bool))
    factor = int(1 / per_ms)
    is_lost = (numbers > (_WORD - 1) // factor) | (numbers < -(_WORD // factor))
    return Instants(np.where(is_lost, 0, numbers) * factor, problems, is_lost)


def _read_each(values: pa.Array, unit: str | None) -> Instants:
    encoded = values.dictionary_encode()
    kind = values.type
    single = pa.types.is_float32(kind) or pa.types.is_float16(kind)
    known: list[Any] = (encoded.dictionary.cast(pa.float64()) if single else encoded.dictionary).to_pylist()
    read = [read_instant(value, unit) for value in [*known, None]]
    ms = np.array([instant.ms or 0 for instant in read], dtype=np.int64)
    codes = [0 if instant.problem == OUT_OF_RANGE else _CODES[instant.problem] for instant in read]
    is_lost = np.array([instant.problem == OUT_OF_RANGE for instant in read], dtype=bool)
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return Instants(ms[places], np.array(codes, dtype=np.int8)[places], is_lost[places])


def decodable(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Codes]]:
    """Return records whose texts can be read, null in place of those that are not UTF-8, and the problems of records.

    There are no problems if all texts are UTF-8.
    """
    bad = undecodable_rows(rows)
    if bad is None:
        return rows, []
    columns = [without_undecodable(column) for column in rows.columns]
    problems = np.where(bad, _CODES[NOT_UTF8], 0).astype(np.int8)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names), [problems]


def expression_problems(failed: "Sequence[np.ndarray[Any, np.dtype[np.bool_]]]", count: int) -> Codes:
    """Return `expression_failed` for each of `count` records for which an expression failed."""
    problems = np.zeros(count, dtype=np.int8)
    for rows in failed:
        problems[rows] = _CODES[EXPRESSION_FAILED]
    return problems


def key_problems(values: pa.Array) -> Codes:
    """Return `null_key` for the values of a key column."""
    return _of_nulls(values, "null_key")


def range_problems(time: Instants) -> Codes:
    """Return `time_out_of_range` for event times outside 64 bits or the years 1 to 9999."""
    ms = time.ms
    if len(ms) and ms.min() >= MIN_TIMESTAMP_MS and ms.max() <= MAX_TIMESTAMP_MS and not time.is_lost.any():
        return np.zeros(len(ms), dtype=np.int8)
    is_inside = (ms >= MIN_TIMESTAMP_MS) & (ms <= MAX_TIMESTAMP_MS) & ~time.is_lost
    return np.where(is_inside, 0, _CODES[OUT_OF_RANGE]).astype(np.int8)


def arrival_problems(arrival: Instants) -> Codes:
    """Return the problems of arrival times, whose names have the prefix `arrival_`."""
    problems = np.where(arrival.problems == 0, 0, arrival.problems + _TO_ARRIVAL).astype(np.int8)
    problems[arrival.is_lost] = _CODES[f"arrival_{OUT_OF_RANGE}"]
    return problems


def gap_problems(gap: Instants) -> Codes:
    """Return the problems of session gaps: null, less than 1 ms, or longer than 9,999 years."""
    is_bad = (gap.ms <= 0) | (gap.problems != 0)
    problems = np.where(is_bad, _CODES["gap_not_positive"], 0).astype(np.int8)
    problems[gap.is_lost | (gap.ms > MAX_DURATION_MS)] = _CODES["gap_too_long"]
    problems[gap.problems == _CODES[NULL_TIME]] = _CODES["null_gap"]
    return problems


def first_problems(*problems: Codes) -> Codes:
    """Return the first problem of each row."""
    whole = problems[0].copy()
    for codes in problems[1:]:
        np.copyto(whole, codes, where=whole == 0)
    return whole


def problem_names(codes: Codes) -> pa.Array:
    """Return problems as texts, null where there is none."""
    return pa.array(PROBLEMS, pa.string()).take(pa.array(codes.astype(np.int32)))


def _of_nulls(values: pa.Array, problem: str) -> Codes:
    if not values.null_count:
        return np.zeros(len(values), dtype=np.int8)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _CODES[problem], 0).astype(np.int8)
