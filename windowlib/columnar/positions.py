"""The positions inside the states of `window_state`, replaced by their order within the state of one key.

The aggregates first, last and collect_list and whole contents keep positions in the log. Two lakes with the same
records, cut into other slices, have different positions and the same state, so a row's id covers only their order.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from windowlib.columnar.arrow import one_array
from windowlib.columnar.hashing import row_hashes
from windowlib.columnar.xxhash import Numbers
from windowlib.records.column_types import Node
from windowlib.records.xxh64 import SEED

_POSITION: Final = ("slice_start_ms", "rank")
_POSITION_LISTS: Final = ("slice_starts_ms", "ranks")


class _Positions(NamedTuple):
    """The positions of one column: the row of each, its slice, its rank, and whether both are not null."""

    rows: Numbers
    starts: Numbers
    ranks: Numbers
    valid: NDArray[np.bool_]


def holds_positions(node: Node) -> bool:
    """Return whether a column of `window_state` has positions: states of first, last and collect_list, and contents."""
    if isinstance(node, str):
        return False
    struct = node["elementType"] if node["type"] == "array" else node
    if isinstance(struct, str) or struct["type"] != "struct":
        return False
    return tuple(field["name"] for field in struct["fields"])[:2] in (_POSITION, _POSITION_LISTS)


def ordered_positions(columns: Mapping[str, pa.Array | pa.ChunkedArray], keys: pa.Table) -> dict[str, pa.Array]:
    """Return columns with each position (slice, rank) replaced by (place among all positions of its key, 0).

    `columns` have types for which `holds_positions` is true. Without columns in `keys`, all rows have one key.
    Raises ValueError: a list of ranks has another length than its list of slices.
    """
    arrays = {name: one_array(array) for name, array in columns.items()}
    positions = {name: _positions(array) for name, array in arrays.items()}
    of_row = row_hashes(keys, SEED) if keys.num_columns else np.zeros(len(next(iter(arrays.values()))), np.int64)
    places = iter(_places(list(positions.values()), of_row))
    return {name: _replaced(arrays[name], column, next(places)) for name, column in positions.items()}


def _places(columns: list[_Positions], of_row: Numbers) -> Iterator[Numbers]:
    """Yield for each column the place of each position among the different positions of its key, from 0."""
    keys = np.concatenate([of_row[column.rows][column.valid] for column in columns])
    starts = np.concatenate([column.starts[column.valid] for column in columns])
    ranks = np.concatenate([column.ranks[column.valid] for column in columns])
    order = np.lexsort((ranks, starts, keys))
    keys, starts, ranks = keys[order], starts[order], ranks[order]
    is_first = np.diff(keys, prepend=keys[:1] - 1) != 0
    is_new = is_first | (np.diff(starts, prepend=starts[:1]) != 0) | (np.diff(ranks, prepend=ranks[:1]) != 0)
    numbers = np.cumsum(is_new)
    firsts = np.maximum.accumulate(np.where(is_first, numbers, 0))
    places = np.empty(len(order), np.int64)
    places[order] = numbers - firsts
    ends = np.cumsum([int(column.valid.sum()) for column in columns])
    for column, part in zip(columns, np.split(places, ends[:-1]), strict=True):
        placed = column.starts.copy()
        placed[column.valid] = part
        yield placed


def _positions(array: pa.Array) -> _Positions:
    rows = np.arange(len(array))
    if pa.types.is_list(array.type):
        return _of_structs(array.flatten(), np.repeat(rows, _lengths(array)))
    if array.type[0].name == _POSITION[0]:
        return _of_structs(array, rows)
    starts, ranks = array.flatten()[:2]
    lengths = _lengths(starts)
    if not np.array_equal(lengths, _lengths(ranks)):
        raise ValueError("a state has lists of slices and ranks of different lengths")
    return _of_fields(starts.flatten(), ranks.flatten(), np.repeat(rows, lengths))


def _of_structs(structs: pa.StructArray, rows: Numbers) -> _Positions:
    starts, ranks = structs.flatten()[:2]
    return _of_fields(starts, ranks, rows)


def _of_fields(starts: pa.Array, ranks: pa.Array, rows: Numbers) -> _Positions:
    valid = pc.and_(starts.is_valid(), ranks.is_valid()).to_numpy(zero_copy_only=False)
    return _Positions(rows, starts.fill_null(0).to_numpy(), ranks.fill_null(0).to_numpy(), valid)


def _replaced(array: pa.Array, positions: _Positions, places: Numbers) -> pa.Array:
    if pa.types.is_list(array.type):
        structs = _with_fields(array.flatten(), positions, places)
        return pa.ListArray.from_arrays(_offsets(array), structs, mask=array.is_null())
    if array.type[0].name == _POSITION[0]:
        return _with_fields(array, positions, places)
    starts, ranks, *others = array.flatten()
    lists = [
        pa.ListArray.from_arrays(_offsets(old), pa.array(new), mask=old.is_null())
        for old, new in ((starts, places), (ranks, np.zeros_like(places)))
    ]
    return _struct([*lists, *others], array)


def _with_fields(structs: pa.StructArray, positions: _Positions, places: Numbers) -> pa.StructArray:
    starts, ranks, *others = structs.flatten()
    new = pa.array(places, mask=starts.is_null().to_numpy(zero_copy_only=False))
    zeros = pa.array(np.where(positions.valid, 0, positions.ranks), mask=ranks.is_null().to_numpy(zero_copy_only=False))
    return _struct([new, zeros, *others], structs)


def _struct(arrays: list[pa.Array], like: pa.StructArray) -> pa.StructArray:
    return pa.StructArray.from_arrays(arrays, [field.name for field in like.type], mask=like.is_null())


def _lengths(array: pa.ListArray) -> Numbers:
    lengths: Numbers = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _offsets(array: pa.ListArray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(_lengths(array))]).astype(np.int32))
