"""Hashes and exact numbers of equal values, to find duplicates without a table of all rows.

Equal values have equal hashes. So if all hashes of the rows differ, no row has a duplicate. If hashes are equal, the
values of these rows are compared.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations.compiled.columns import Column, Flags, Kind, Positions, Rows

Hashes = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BASE = np.uint64(0x100000001B3)
_NULL = np.uint64(0xD6E8FEB86659FD93)


def row_hashes(rows: Rows, names: tuple[str, ...]) -> Hashes:
    """Return a hash of slice number and values for each row. Null is equal to null, and -0.0 to 0.0."""
    total = _mixed(rows.slices.astype(np.uint64))
    for name in names:
        column = rows.column(name)
        hashed = np.where(column.null, _NULL, _column_hashes(column))
        total = _mixed(total * _ODD + hashed)
    return total


def numbered(arrays: list[pa.Array]) -> Positions:
    """Return a number for each row, equal for rows with equal values. Null is equal to null, and -0.0 to 0.0."""
    numbers: Positions | None = None
    for array in arrays:
        own = _numbers(Column(array))
        if numbers is None:
            numbers = own
            continue
        # Both factors are at most the number of rows, so the product is below 2^63.
        combined = numbers * (int(own.max(initial=0)) + 1) + own
        numbers = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return numbers if numbers is not None else np.zeros(0, dtype=np.int64)


def repeated(values: npt.NDArray[np.generic]) -> Flags:
    """Return which values occur more than once."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse] > 1)


def _mixed(value: Hashes) -> Hashes:
    """Return the finalizer of SplitMix64, which spreads every bit. Source: Steele et al., OOPSLA 2014."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


def _column_hashes(column: Column) -> Hashes:
    if column.kind is Kind.TEXT:
        return _text_hashes(column.array)
    if column.kind is Kind.REAL:
        return _mixed((column.values + 0.0).view(np.uint64))
    return _mixed(column.values.astype(np.int64).view(np.uint64))


def _text_hashes(texts: pa.Array) -> Hashes:
    """Return a polynomial of the bytes of each text. Each distinct text of the batch is read once."""
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.large_string())
    codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not len(distinct):
        return np.zeros(len(texts), dtype=np.uint64)
    _, offsets_buffer, data = distinct.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[distinct.offset : distinct.offset + len(distinct) + 1]
    lengths = np.diff(offsets)
    raw = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    starts = offsets[:-1] - offsets[0]
    powers = np.cumprod(np.full(int(lengths.max()) + 1, _BASE, dtype=np.uint64), dtype=np.uint64)
    inside = np.arange(len(raw)) - np.repeat(starts, lengths)
    terms = (raw.astype(np.uint64) + np.uint64(1)) * powers[inside]
    # reduceat needs a position inside the array, and gives the next text's first byte for an empty text.
    sums = np.add.reduceat(np.append(terms, np.uint64(0)), np.minimum(starts, len(terms)))
    hashed = _mixed(np.where(lengths > 0, sums, np.uint64(0)) + lengths.astype(np.uint64))
    return np.asarray(hashed[codes])


def _numbers(column: Column) -> Positions:
    """Return a number for each value of a column: 0 for null, then 1 and so on."""
    if column.kind is Kind.TEXT:
        codes = pc.fill_null(column.array.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
        return np.asarray(codes, dtype=np.int64) + 1
    values = column.values + 0.0 if column.kind is Kind.REAL else column.values
    inverse = np.unique(values, return_inverse=True)[1].astype(np.int64) + 1
    return np.where(column.null, 0, inverse)
