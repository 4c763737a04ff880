"""Searches the duplicates of a chunk: tasks read the ids of its records and of the slices before, and compare them.

A record that the filter does not keep, an invalid one and one with a null in its id neither are duplicates nor make
others duplicates. Tasks pass the ids on by their hashes, so each task that compares has all records of an id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from jobs.pipeline.models.distinct import DistinctGrammar
from jobs.replay.groups import groups_of
from jobs.replay.intake.blocks import Block
from jobs.replay.sizes import Sizes
from jobs.replay.stages.bloom_filter import key_words
from jobs.replay.stages.duplicates import RANK_BITS, Duplicates, MatchPlan, matches
from jobs.replay.stages.judging import Judged, ScanPlan, deciding_columns, judged_batches
from jobs.replay.stages.scan import feed_form
from jobs.replay.stages.shuffle_files import ShuffleBatch, ShuffleWriter, by_bucket, shuffle_writers
from jobs.replay.tasks import Tasks
from jobs.runs import Slice
from windowlib.columnar.watermark_steps import Int64s

WORD_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Slices whose ids are read: those of the chunk, or those before. `slices` and `blocks` are in log order."""

    plan: ScanPlan
    slices: tuple[Slice, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsPlan:
    """How tasks read the ids of a part.

    `numbers` are the numbers of its slices among all slices. `by` are the columns of the id. Records are passed on in
    so many buckets, by a hash of so many bits.
    """

    part: Part
    numbers: tuple[int, ...]
    by: tuple[str, ...]
    buckets: int
    bits: int


def search(tasks: Tasks, parts: Sequence[Part], *, distinct: DistinctGrammar, sizes: Sizes) -> Duplicates:
    """Return the duplicates of a chunk.

    `parts` are the slices of the chunk, and then those before that are read as well, if they have records.

    Raises:
        LogError: a file cannot be read.
        AuditError: a shuffle file is damaged; the attempt is void.
    """
    own = parts[0]
    every = sorted((slice_ for part in parts for slice_ in part.slices), key=lambda slice_: slice_.start_ms)
    numbers = {slice_.slice_id: number for number, slice_ in enumerate(every)}
    records = sum(block.records for part in parts for block in part.blocks)
    buckets = max(-(-records // sizes.distinct_records), 1)
    plans = [
        IdsPlan(
            part=part,
            numbers=tuple(numbers[slice_.slice_id] for slice_ in part.slices),
            by=distinct.by,
            buckets=buckets,
            bits=sizes.distinct_bits,
        )
        for part in parts
    ]
    size = sizes.task_records(records, cores=tasks.cores)
    asked = [
        (number, group)
        for number, part in enumerate(parts)
        for group in groups_of(part.blocks, lambda block: block.records, size)
    ]
    read = tasks.run(lambda task: read_ids(task[1], plans[task[0]]), asked)
    plan = MatchPlan(
        within_ms=distinct.within_ms,
        columns=tuple(_id_columns(distinct.by)),
        numbers={numbers[slice_.slice_id]: number for number, slice_ in enumerate(own.slices)},
        directory=own.plan.directory,
    )
    shares = [*by_bucket(chain.from_iterable(read)).values()]
    batches = chain.from_iterable(tasks.run(lambda shuffled: matches(shuffled, plan), shares))
    of_slice: dict[int, list[ShuffleBatch]] = {}
    for batch in batches:
        of_slice.setdefault(batch.slice_no, []).append(batch)
    return Duplicates(
        of_slice={number: tuple(shuffled) for number, shuffled in of_slice.items()},
        slice_ids=tuple(slice_.slice_id for slice_ in every),
    )


def read_ids(blocks: Sequence[Block], plan: IdsPlan) -> list[ShuffleBatch]:
    """Pass the ids of valid records on, with their places and arrivals, by buckets of their hashes.

    Raises LogError: a file cannot be read.
    """
    writer = ShuffleWriter(plan.part.plan.directory, "ids")
    columns = deciding_columns(plan.part.plan, plan.by)
    with shuffle_writers(writer):
        for block in blocks:
            for judged in judged_batches(block, plan.part.plan, columns=columns):
                _write(writer, judged, plan, slice_no=block.slice_no)
    return writer.shuffled


def _id_columns(by: Sequence[str]) -> dict[str, str]:
    """Return the columns of an id in the shuffle files -> their names in the pipeline."""
    return {f"i{place}": name for place, name in enumerate(by)}


def _write(writer: ShuffleWriter, judged: Judged, plan: IdsPlan, *, slice_no: int) -> None:
    is_compared = judged.problems == 0
    for name in plan.by:
        is_compared &= judged.rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(is_compared)
    if not len(chosen):
        return
    own = judged.rows.select([*plan.by]).take(pa.array(chosen))
    ids = {place: feed_form(own.column(name)) for place, name in _id_columns(plan.by).items()}
    hashes = key_words(ids) >> np.uint64(WORD_BITS - plan.bits)
    first_ms, last_ms = _arrivals(judged, plan.part.slices[slice_no], chosen)
    rows = pa.RecordBatch.from_pydict(
        {
            "hash": pa.array(hashes.view(np.int64)),
            "place": pa.array((plan.numbers[slice_no] << RANK_BITS) + judged.rank[chosen]),
            "first_ms": pa.array(first_ms),
            "last_ms": pa.array(last_ms),
            **ids,
        }
    )
    owners = hashes % np.uint64(plan.buckets)
    for bucket in np.unique(owners).tolist():
        part = rows if plan.buckets == 1 else rows.take(pa.array(np.flatnonzero(owners == bucket)))
        writer.write(part, slice_no=slice_no, bucket=bucket)


def _arrivals(judged: Judged, own: Slice, chosen: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> tuple[Int64s, Int64s]:
    """Return the first and the last instant at which records may have arrived: the bounds of the slice, if unknown."""
    if judged.arrival_ms is not None:
        inside = np.clip(judged.arrival_ms[chosen], own.start_ms, own.end_ms - 1)
        return inside, inside
    return np.full(len(chosen), own.start_ms), np.full(len(chosen), own.end_ms - 1)
