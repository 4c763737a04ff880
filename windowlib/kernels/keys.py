"""Keys as dense integers: a table that numbers the keys of a bucket, and the key group of each number."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.columnar.arrow import arrow_type, plain_values
from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.keyed.key_groups import stable_hash
from windowlib.records.column_types import parse_type

DIRECT_MAX: Final = 1 << 22
"""The default of `direct_max`: integers in a range of so many values are numbered by a table with one entry each."""
_NAN: Final = float("nan")
_UNKNOWN: Final = -1
Words = npt.NDArray[np.uint32]


class KeyTable:
    """Numbers the keys of a bucket from 0, in no fixed order. A key is a row of the key columns.

    Equal keys have equal numbers: all NaN are one key, and -0.0 is 0.0.
    """

    def __init__(self, types: Sequence[pa.DataType], max_parallelism: int, *, direct_max: int = DIRECT_MAX) -> None:
        """Create an empty table.

        `types` are those of the key columns in the feed: times are integers. Without columns all records have one key.
        `direct_max` is the greatest range of integers that a table of the range numbers. It changes the speed only.
        """
        self._max_parallelism = max_parallelism
        self._columns = [_ColumnCodes(kind, direct_max) for kind in types]
        # A pair of columns becomes one column of integers: the number of the pair.
        self._pairs = [_ColumnCodes(pa.int64(), direct_max) for _ in types[1:]]
        self._groups = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        """Return how many keys have a number."""
        if not self._columns:
            return 1
        return len((self._pairs or self._columns)[-1])

    def encode(self, columns: Sequence[pa.Array], count: int) -> Int64s:
        """Return the number of each row's key; new keys get new numbers.

        The key columns are as the feed or the checkpoint has them.
        """
        if not self._columns:
            return np.zeros(count, dtype=np.int64)
        first, *others = (codes.encode(column) for codes, column in zip(self._columns, columns, strict=True))
        for pairs, other in zip(self._pairs, others, strict=True):
            first = pairs.encode(pa.array((first << 32) | other))
        return first

    def columns(self, codes: Int64s, types: Sequence[pa.DataType]) -> list[pa.Array]:
        places: list[Int64s] = []
        for pairs in reversed(self._pairs):
            pair = pairs.values(codes).to_numpy()
            codes, place = pair >> 32, pair & 0xFFFF_FFFF
            places.append(place)
        places.append(codes)
        key_parts = zip(self._columns, reversed(places), types, strict=True) if self._columns else ()
        return [_cast(column.values(place), kind) for column, place, kind in key_parts]

    def feed_columns(self, codes: Int64s) -> list[pa.Array]:
        return self.columns(codes, [column.kind for column in self._columns])

    def groups(self, codes: Int64s) -> Int64s:
        """Return the key group of each key (windowlib.keyed.key_groups.key_group)."""
        known = len(self._groups)
        if known < len(self):
            new = np.arange(known, len(self), dtype=np.int64)
            self._groups = np.concatenate([self._groups, self._groups_of(new)])
        return self._groups[codes]

    def key(self, code: int) -> tuple[Any, ...]:
        """Return one key as the operator has it, for messages."""
        return tuple(column[0].as_py() for column in self.feed_columns(np.array([code])))

    def _groups_of(self, codes: Int64s) -> Int64s:
        columns = self.feed_columns(codes)
        hashes = [_hashes(column) for column in columns]
        combined = np.zeros(len(codes), dtype=np.uint32)
        if len(hashes) == 1:
            combined = hashes[0]
        elif hashes:
            combined = np.ones(len(codes), dtype=np.uint32)
            for hashes_of_column in hashes:
                combined = combined * np.uint32(31) + hashes_of_column
        return _murmur(combined) % self._max_parallelism


def feed_type(kind: str) -> pa.DataType:
    """Return the Arrow type in the feed of a column of a Spark type: times are integers."""
    arrow = arrow_type(parse_type(kind))
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(arrow) else arrow


class TouchedKeys:
    """The numbers of the keys whose state may have changed."""

    def __init__(self) -> None:
        self._is_touched = np.zeros(0, dtype=np.bool_)

    def add(self, codes: Int64s) -> None:
        """Add the keys with these numbers, in any order and number."""
        if not len(codes):
            return
        highest = int(codes.max())
        if highest >= len(self._is_touched):
            more = np.zeros(highest + 1, dtype=np.bool_)  # room for the keys of the next blocks
            self._is_touched = np.concatenate([self._is_touched, more])
        self._is_touched[codes] = True

    def take(self) -> Int64s:
        """Return the numbers, ascending, and begin anew."""
        touched = np.flatnonzero(self._is_touched)
        self._is_touched[:] = False
        return touched


class _ColumnCodes:
    """Numbers the values of one column from 0."""

    def __init__(self, kind: pa.DataType, direct_max: int) -> None:
        self.kind = kind
        self._direct_max = direct_max if pa.types.is_integer(kind) else 0
        self._parts: list[pa.Array] = []
        self._count = 0
        self._codes: dict[Any, int] = {}
        self._low = 0
        self._direct = np.zeros(0, dtype=np.int64)
        """The number of each integer from `_low`; `_UNKNOWN` if it has none. Used while `_codes` is empty."""

    def __len__(self) -> int:
        return self._count

    def encode(self, column: pa.Array) -> Int64s:
        column = _cast(column, self.kind)
        if not len(column):
            return np.zeros(0, dtype=np.int64)
        if self._direct_max and not self._codes and not column.null_count:
            plain = column.to_numpy()
            if self._reach(int(plain.min()), int(plain.max())):
                return self._encode_directly(plain)
        return self._encode_by_dictionary(column)

    def values(self, codes: Int64s) -> pa.Array:
        if len(self._parts) != 1:
            self._parts = [pa.concat_arrays([pa.array([], self.kind), *self._parts])]
        values = self._parts[0]
        if pa.types.is_integer(self.kind) and not values.null_count:
            return pa.array(values.to_numpy().take(codes))  # twice as fast as Arrow's take
        return values.take(pa.array(codes))

    def _reach(self, low: int, high: int) -> bool:
        """Widen the direct table to this range of values. Return False if it becomes too large."""
        if len(self._direct):
            if self._low <= low and high < self._low + len(self._direct):
                return True
            low, high = min(low, self._low), max(high, self._low + len(self._direct) - 1)
        if high - low >= self._direct_max:
            self._leave_direct()
            return False
        size = min(2 * (high - low + 1), self._direct_max)  # room for the keys of the next blocks
        wider = np.full(size, _UNKNOWN, dtype=np.int64)
        if len(self._direct):
            start = self._low - low
            wider[start : start + len(self._direct)] = self._direct[: size - start]
        self._low, self._direct = low, wider
        return True

    def _leave_direct(self) -> None:
        """Move the numbers of the direct table to the dictionary."""
        known = self.values(np.arange(self._count, dtype=np.int64))
        self._codes = {value: code for code, value in enumerate(known.to_pylist())}
        self._direct, self._direct_max = np.zeros(0, dtype=np.int64), 0

    def _encode_directly(self, plain: Int64s) -> Int64s:
        places = plain.astype(np.int64) - self._low
        codes = self._direct.take(places)
        if codes.min() == _UNKNOWN:
            new = places[codes == _UNKNOWN]
            is_new = np.zeros(len(self._direct), dtype=np.bool_)
            is_new[new] = True
            distinct = np.flatnonzero(is_new)
            self._direct[distinct] = np.arange(self._count, self._count + len(distinct))
            self._append(pa.array(distinct + self._low).cast(self.kind))
            codes = self._direct[places]
        return codes

    def _encode_by_dictionary(self, column: pa.Array) -> Int64s:
        if len(self._direct):
            self._leave_direct()
        encoded = column.dictionary_encode(null_encoding="encode")
        codes, new = self._codes, list[int]()
        code_of_place = np.empty(len(encoded.dictionary), dtype=np.int64)
        for place, value in enumerate(encoded.dictionary.to_pylist()):
            plain = _NAN if value != value else value  # noqa: PLR0124 - NaN: one object is one key
            code = codes.get(plain)
            if code is None:
                code = codes[plain] = self._count + len(new)
                new.append(place)
            code_of_place[place] = code
        if new:
            self._append(encoded.dictionary.take(pa.array(new)))
        numbers: Int64s = code_of_place[encoded.indices.to_numpy()]
        return numbers

    def _append(self, values: pa.Array) -> None:
        self._parts.append(values)
        self._count += len(values)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a key column in another type: times from or to integers. A negative zero becomes zero."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_floating(kind) and column.type == kind:
        return pc.add(column, pa.scalar(0.0, kind))
    return column if column.type == kind else column.cast(kind)


def _hashes(column: pa.Array) -> Words:
    """Return the stable hash of each value as an unsigned word."""
    if pa.types.is_integer(column.type) and not column.null_count:
        plain = column.to_numpy().astype(np.int64)
        word = plain.view(np.uint64)
        folded = ((word >> np.uint64(32)) ^ word).astype(np.uint32)
        is_short = (plain >= -(1 << 31)) & (plain < 1 << 31)
        hashes: Words = np.where(is_short, word.astype(np.uint32), folded)
        return hashes
    return np.array([stable_hash(value) & 0xFFFF_FFFF for value in plain_values(column)], dtype=np.uint32)


def _murmur(codes: Words) -> Int64s:
    """Return the same as `windowlib.keyed.key_groups` for each hash."""

    def rotated(word: Words, bits: int) -> Any:  # noqa: ANN401 - an array
        return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))

    code = rotated(codes * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    code = rotated(code, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    code ^= np.uint32(4)
    code ^= code >> np.uint32(16)
    code *= np.uint32(0x85EBCA6B)
    code ^= code >> np.uint32(13)
    code *= np.uint32(0xC2B2AE35)
    code ^= code >> np.uint32(16)
    signed = np.abs(code.view(np.int32).astype(np.int64))
    words: Int64s = np.where(signed == 1 << 31, 0, signed)
    return words
