"""Hashes of values and rows by column, for numpy and Arrow. docs/reference/checkpoints.md defines them.

`windowlib.records.row_ids` computes the same for one row of plain values.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from windowlib.columnar.hash_input import int_words, is_constant, short_decimals, spans_of, validity
from windowlib.columnar.xxhash import Numbers, Words, hash_short, hash_spans, hash_words, is_compiled
from windowlib.errors import SpecError
from windowlib.records.xxh64 import SEED, name_seed

BLOCK: Final = 32_768
"""numpy hashes so many rows together, so that the hashes of a block fit the cache of a core."""

COMPILED_BLOCK: Final = 131_072
"""Compiled loops hash so many rows together: they read each word once, and each call costs 5 us."""

PROBE: Final = 256
"""If so many rows have one value, all are compared, and a column with one value is hashed once.

A column of texts is hashed by its dictionary if this many rows from each end have few different values.
"""
_REPEATED: Final = 8
"""Few: each value comes this many times, on average over the rows of one end."""

Special = Callable[[pa.Array, int], Words]
"""(values, seed) -> the hash of each value, 0 for a null."""

Fold = Callable[[int, Words], None]
"""(first row, words): XORs the hashes of the values of the rows from there on to the words. A null changes no word."""


def row_hashes(
    rows: pa.Table | pa.RecordBatch,
    seed: int | Words,
    *,
    block: int | None = None,
    probe: int = PROBE,
    special: Mapping[str, Special] = MappingProxyType({}),
    constant: Collection[str] = (),
) -> Numbers:
    """Return the signed 64-bit hash of each row over its non-null columns.

    The columns have any types that `value_hashes` accepts, in any order. `seed` is that of all rows, usually of the
    name of their table, or one per row. `block` rows are hashed together; the default depends on what hashes (`BLOCK`).
    `probe` rows tell whether a column may have one value, or a column of texts few different ones. `special` has the
    columns that `value_hashes` does not hash, and their function. `constant` columns have the same value in all rows.
    """
    hashes = np.empty(rows.num_rows, np.uint64)
    if block is None:
        block = COMPILED_BLOCK if is_compiled() else BLOCK
    words = np.empty(min(block, rows.num_rows), np.uint64)
    at = 0
    for batch in [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches():
        word, varying = _folds(batch, special, constant=constant, probe=probe)
        for start in range(0, batch.num_rows, block):
            part = words[: min(block, batch.num_rows - start)]
            part[:] = word
            for fold in varying:
                fold(start, part)
            place = slice(at + start, at + start + len(part))
            hash_words(part, seed if isinstance(seed, int) else seed[place], out=hashes[place])
        at += batch.num_rows
    return hashes.view(np.int64)


def _folds(
    batch: pa.RecordBatch, special: Mapping[str, Special], *, constant: Collection[str], probe: int
) -> tuple[int, list[Fold]]:
    """Return what the hashes of a batch's rows are made of: a word for all constant columns, and the other columns."""
    word, varying = 0, list[Fold]()
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        seed, hash_values = name_seed(name), special.get(name, value_hashes)
        is_long = len(array) > 4 * probe and name not in special
        if name in constant or (is_long and is_constant(array, probe=probe)):
            if len(array):
                word ^= int(hash_values(array.slice(0, 1), seed)[0])
        elif name in special:
            varying.append(_fold_of(array, seed, hash_values))
        else:
            varying.append(_fold_of_any(array, seed, probe=probe))
    return word, varying


def is_repetitive(array: pa.Array, *, probe: int) -> bool:
    """Return whether a column of texts seems to have few different values, by `probe` rows from each end.

    Hashing the dictionary of such a column takes a tenth of the time.
    """
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if not is_text or len(array) <= 4 * probe:
        return False
    ends = pa.concat_arrays([array.slice(0, probe), array.slice(len(array) - probe)])
    return len(ends.unique()) <= max(probe // _REPEATED, 1)


def _fold_of(array: pa.Array, seed: int, hash_values: Special) -> Fold:
    def fold(start: int, words: Words) -> None:
        words ^= hash_values(array.slice(start, len(words)), seed)

    return fold


def _fold_of_any(array: pa.Array, seed: int, *, probe: int) -> Fold:
    """Return the fold of a column. The dictionary of a column is hashed once."""
    if not pa.types.is_dictionary(array.type) and is_repetitive(array, probe=probe):
        array = array.dictionary_encode()
    if not pa.types.is_dictionary(array.type):
        return _fold_of(array, seed, value_hashes)
    if len(array.dictionary) > len(array):
        return _fold_of(array.dictionary_decode(), seed, value_hashes)
    known = value_hashes(array.dictionary, seed)

    def fold(start: int, words: Words) -> None:
        words ^= _of_indices(array.indices.slice(start, len(words)), known)

    return fold


def value_hashes(array: pa.Array, seed: int) -> Words:
    """Return the hash of each value with a seed, and 0 for each null.

    Raises SpecError: the values have a type that has no hash (intervals, times of day).
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return value_hashes(array.storage, seed)
    if not len(array) or pa.types.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if pa.types.is_dictionary(kind):
        if len(array.dictionary) > len(array):
            return value_hashes(array.dictionary_decode(), seed)
        return _of_indices(array.indices, value_hashes(array.dictionary, seed))
    words = _nested_words(array) if pa.types.is_nested(kind) else int_words(array)
    if words is not None:
        return _without_nulls(hash_words(words, seed), array)
    hashes = _byte_hashes(array, seed)
    if hashes is None:
        raise SpecError(f"values of type {kind} have no hash; remove the column, or cast it to another type")
    return _without_nulls(hashes, array)


def _byte_hashes(array: pa.Array, seed: int) -> Words | None:
    """Return the hashes of values that are hashed as bytes: texts and long decimals. None for other types."""
    short = short_decimals(array) if pa.types.is_decimal128(array.type) else None
    if short is not None:
        return _short_hashes(*short, seed)
    spans = spans_of(array)
    return None if spans is None else hash_spans(spans, seed)


def _short_hashes(numbers: Numbers, lengths: NDArray[np.int8], seed: int) -> Words:
    """Return the hash of each number as big-endian bytes. Most decimals are short, and texts take ten times as long."""
    hashes = np.empty(len(numbers), np.uint64)
    for length in range(int(lengths.min(initial=1)), int(lengths.max(initial=0)) + 1):
        rows = np.flatnonzero(lengths == length)
        own = slice(None) if len(rows) == len(numbers) else rows
        words = (numbers[own].view(np.uint64) << np.uint64(64 - 8 * length)).byteswap()
        hashes[own] = hash_short(words, length, seed)
    return hashes


def _nested_words(array: pa.Array) -> Words | None:
    """Return the word that is hashed for each struct, list or map; None for other types."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        return _items(array, _entry_hashes)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _items(array, _item_hashes)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _items(array.cast(pa.large_list(kind.value_type)), _item_hashes)
    return None


def _of_indices(indices: pa.Array, known: Words) -> Words:
    valid = validity(indices)
    if not len(known):
        return np.zeros(len(indices), np.uint64)
    words = int_words(indices)
    assert words is not None, "indices are integers"
    if valid is None:
        return known[words.view(np.int64)]
    return known[np.where(valid, words.view(np.int64), 0)] * valid


def _without_nulls(hashes: Words, array: pa.Array) -> Words:
    valid = validity(array)
    if valid is not None:
        hashes *= valid
    return hashes


def _structs(array: pa.StructArray) -> Words:
    """Return the fold of each struct: XOR of the hashes of its fields."""
    hashes = np.zeros(len(array), np.uint64)
    for member, values in zip(array.type, array.flatten(), strict=True):
        hashes ^= value_hashes(values, name_seed(member.name))
    return hashes


def _items(array: Any, hashes_of: Callable[[Any, slice, Numbers], Words]) -> Words:  # noqa: ANN401 - a list or map
    """Return the fold of each list or map: its length XOR the hashes of its items."""
    offsets = array.offsets.to_numpy().astype(np.int64, copy=False)
    lengths = np.diff(offsets)
    hashes_of_rows: Words = lengths.astype(np.uint64)
    filled = np.flatnonzero(lengths)
    if len(filled):
        hashes = hashes_of(array, slice(int(offsets[0]), int(offsets[-1])), lengths)
        hashes_of_rows[filled] ^= np.bitwise_xor.reduceat(hashes, offsets[filled] - offsets[0])
    return hashes_of_rows


def _item_hashes(array: pa.ListArray, used: slice, lengths: Numbers) -> Words:
    """Return the hash of each item, seeded by its place in its list."""
    places = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    seeds = hash_words(np.arange(int(lengths.max()), dtype=np.uint64), SEED)
    return hash_words(value_hashes(array.values[used], SEED), seeds[places])


def _entry_hashes(array: pa.MapArray, used: slice, _lengths: Numbers) -> Words:
    """Return the hash of each entry: of its value's hash, seeded by its key's hash."""
    keys = hash_words(value_hashes(array.keys[used], SEED), SEED)
    return hash_words(value_hashes(array.items[used], SEED), keys)
