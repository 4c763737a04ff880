"""Finds the duplicates among records of several slices by their ids, and tells a scan which they are.

Records with equal hashes of their ids are candidates. The ids themselves decide, so no hash drops a record.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.replay.intake.blocks import Block
from jobs.replay.stages.shuffle_files import ShuffleBatch, ShuffleWriter, read_shuffled, shuffle_writers
from windowlib.columnar.watermark_steps import Int64s

RANK_BITS: Final = 40
"""A place is (number of the slice, rank) in one integer. A slice has at most two to the power of so many records."""
KEPT_SLICES: Final = 4
"""A process keeps the duplicates of at most so many slices in memory, 16 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchPlan:
    """What every task gets that compares ids.

    `within_ms` is the bound. `columns` are the columns of the ids in the shuffle files. `numbers` maps the number of a
    slice among all that are compared to that in the chunk, for the slices of the chunk.
    """

    within_ms: int
    columns: tuple[str, ...]
    numbers: Mapping[int, int]
    directory: str


class Placed(NamedTuple):
    """Duplicates of a block in log order: their ranks, and for each the place of the earlier record."""

    rank: Int64s
    earlier_slice_id: pa.Array
    earlier_rank: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """The duplicates of a chunk: slice number -> shuffled rows. `slice_ids` are those of the earlier records.

    The rows of the newest slices that were asked for are kept in memory, because a slice has many blocks.
    """

    of_slice: Mapping[int, tuple[ShuffleBatch, ...]]
    slice_ids: tuple[str, ...]
    _kept: dict[int, tuple[Int64s, Int64s]] = field(default_factory=dict, compare=False)

    def of_block(self, block: Block) -> Placed:
        """Return the duplicates of a block. Raises AuditError: a shuffle file is damaged; the attempt is void."""
        kept = self._kept.get(block.slice_no)
        if kept is None:
            kept = self._in_order(block.slice_no)
            if len(self._kept) >= KEPT_SLICES:
                self._kept.clear()
            self._kept[block.slice_no] = kept
        rank, earlier = kept
        parts = block.in_log_order()
        ranks = min(part.rank for part in parts), max(part.rank + part.records for part in parts)
        start, end = np.searchsorted(rank, ranks)
        slices = pa.DictionaryArray.from_arrays(
            pa.array(earlier[start:end] >> RANK_BITS), pa.array(self.slice_ids, pa.string())
        )
        return Placed(rank[start:end], slices.cast(pa.string()), earlier[start:end] & ((1 << RANK_BITS) - 1))

    def _in_order(self, slice_no: int) -> tuple[Int64s, Int64s]:
        """Return the ranks of the duplicates of a slice, ascending, and the place of the earlier record of each."""
        batches = [batch for _, batch in read_shuffled(self.of_slice.get(slice_no, ()))]
        rank, earlier = (
            np.concatenate([np.empty(0, dtype=np.int64), *(batch.column(name).to_numpy() for batch in batches)])
            for name in ("rank", "earlier")
        )
        order = np.argsort(rank)
        return rank[order], earlier[order]


def matches(shuffled: Sequence[ShuffleBatch], plan: MatchPlan) -> list[ShuffleBatch]:
    """Compare the ids of records. The slice number of each shuffle file returned is that of its duplicates.

    Raises AuditError: a shuffle file is damaged; the attempt is void.
    """
    rows = _candidates(pa.Table.from_batches([batch for _, batch in read_shuffled(shuffled)]))
    codes = [rows[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in plan.columns]
    rows_in_order = np.lexsort((rows["place"].to_numpy(), *codes))
    place, first_ms, last_ms = (rows[name].to_numpy()[rows_in_order] for name in ("place", "first_ms", "last_ms"))
    later, earlier = pairs([code[rows_in_order] for code in codes], first_ms, last_ms, within_ms=plan.within_ms)
    writer = ShuffleWriter(plan.directory, "duplicates")
    slices = place[later] >> RANK_BITS
    with shuffle_writers(writer):
        for number in np.unique(slices).tolist():
            if number in plan.numbers:
                own = slices == number
                columns = {"rank": place[later[own]] & ((1 << RANK_BITS) - 1), "earlier": place[earlier[own]]}
                writer.write(pa.RecordBatch.from_pydict(columns), slice_no=plan.numbers[number])
    return writer.shuffled


def _candidates(rows: pa.Table) -> pa.Table:
    """Return the rows whose hash another row has as well."""
    hashes = rows["hash"].to_numpy()
    order = np.argsort(hashes, kind="stable")
    is_shared = hashes[order][1:] == hashes[order][:-1]
    with_other = np.zeros(len(hashes), dtype=np.bool_)
    with_other[1:] |= is_shared
    with_other[:-1] |= is_shared
    return rows.take(pa.array(order[with_other]))


def pairs(
    ids: Iterable[Int64s], first_ms: Int64s, last_ms: Int64s, *, within_ms: int
) -> tuple["np.ndarray[tuple[int], np.dtype[np.intp]]", "np.ndarray[tuple[int], np.dtype[np.intp]]"]:
    """Return the indexes of the duplicates, and for each that of the earlier record.

    Of the earlier records with the same id, it is the one that arrived last, and of these the last in log order. `ids`
    are the columns of the ids as codes. Equal ids are neighbours, in log order. Each record may have arrived from
    `first_ms` to `last_ms`. `within_ms` is the bound of the arrivals.
    """
    count = len(first_ms)
    is_same = np.ones(max(count - 1, 0), dtype=np.bool_)
    for codes in ids:
        is_same &= codes[1:] == codes[:-1]
    group = np.concatenate([np.zeros(min(count, 1), dtype=np.int64), np.cumsum(~is_same)])
    arrivals = np.unique(last_ms, return_inverse=True)[1].reshape(-1)
    place = group * count + arrivals
    newest = np.maximum.accumulate(np.where(place == np.maximum.accumulate(place), np.arange(count), 0))
    later = np.flatnonzero(is_same) + 1
    earlier = newest[later - 1]
    is_near = first_ms[later] - last_ms[earlier] <= within_ms
    return later[is_near], earlier[is_near]
