"""The hashes of a log's records and of rows of `invalid_records` and `duplicate_records`."""

from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.hash_input import validity
from windowlib.columnar.hashing import Special, row_hashes, value_hashes
from windowlib.columnar.xxhash import Numbers, Words
from windowlib.records import tables
from windowlib.records.column_types import parse_type
from windowlib.records.row_ids import INPUT, RECORD
from windowlib.records.xxh64 import name_seed

_MICROS_PER_DAY: Final = 86_400_000_000


def record_hashes(
    records: pa.Table | pa.RecordBatch,
    widened: Mapping[str, str] = MappingProxyType({}),
    *,
    constant: Collection[str] = (),
    block: int | None = None,
) -> Numbers:
    """Return the `record_hash` of each record of a log.

    `records` have all columns of the log, in any order, with the log's types at the pinned version. A column that is
    null in all records may be missing. Columns of a file with older types must be cast first. A VARIANT is its JSON
    text. `widened` has the first type of columns in Spark's spelling (`PinnedLog.widened`): a value that fits it is
    hashed as that type. The other arguments are those of `row_hashes`.
    Raises SpecError: a column has a type that has no hash.
    """
    special: dict[str, Special] = {
        name: partial(_first_hashes, first=arrow_type(parse_type(kind))) for name, kind in widened.items()
    }
    return row_hashes(records, name_seed(RECORD), block=block, special=special, constant=constant)


def invalid_ids(record_hash: pa.Array, reason: pa.Array) -> Numbers:
    """Return the ids of rows of `invalid_records`."""
    rows = pa.table({"record_hash": record_hash, "reason": reason})
    return row_hashes(rows, name_seed(tables.INVALID_RECORDS))


def duplicate_ids(record_hash: pa.Array) -> Numbers:
    """Return the ids of rows of `duplicate_records`."""
    return row_hashes(pa.table({"record_hash": record_hash}), name_seed(tables.DUPLICATE_RECORDS))


def content_ids(rank: Numbers, record_hash: Numbers, commit: int | None = None) -> Numbers:
    """Return the ids of records at their ranks, which the fingerprint of a slice's input sums up.

    `commit` is the number of the records' commit, if it is content.
    """
    columns = {"rank": pa.array(rank), "record_hash": pa.array(record_hash)}
    if commit is not None:
        columns["commit"] = pa.repeat(pa.scalar(commit, pa.int64()), len(rank))
    return row_hashes(pa.table(columns), name_seed(INPUT))


def _first_hashes(array: pa.Array, seed: int, *, first: pa.DataType) -> Words:
    """Return the hashes of values of a widened column: a value that fits the first type is hashed as that type."""
    if _is_hashed_alike(first, array.type):
        return value_hashes(array, seed)
    before = _as_first(array, first)
    fits = validity(before)
    narrow = value_hashes(before, seed)
    return narrow if fits is None else np.where(fits, narrow, value_hashes(array, seed))


def _is_hashed_alike(first: pa.DataType, kind: pa.DataType) -> bool:
    return bool(
        first == kind
        or (pa.types.is_integer(first) and pa.types.is_integer(kind))
        or (pa.types.is_floating(first) and pa.types.is_floating(kind))
    )


def _as_first(array: pa.Array, first: pa.DataType) -> pa.Array:
    """Return the values as the first type, null where a value does not fit it."""
    if pa.types.is_floating(array.type):
        return _integers(array, first)
    if pa.types.is_timestamp(array.type):
        return _days(array)
    try:
        return array.cast(first)  # it checks each value
    except pa.ArrowInvalid:
        return pa.array([_fitting(value, first) for value in array], first)


def _integers(array: pa.Array, first: pa.DataType) -> pa.Array:
    numbers = array.cast(pa.float64()).fill_null(np.nan).to_numpy()
    bits = first.bit_width - 1
    fits = (np.trunc(numbers) == numbers) & (numbers >= -(2.0**bits)) & (numbers < 2.0**bits)
    return pa.array(np.where(fits, numbers, 0).astype(np.int64), mask=~fits).cast(first)


def _days(array: pa.Array) -> pa.Array:
    days, rest = np.divmod(array.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(1).to_numpy(), _MICROS_PER_DAY)
    return pa.array(days.astype(np.int32), mask=rest != 0).cast(pa.date32())


def _fitting(value: pa.Scalar, first: pa.DataType) -> pa.Scalar | None:
    try:
        return value.cast(first)
    except pa.ArrowInvalid:
        return None
