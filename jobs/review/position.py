"""Finds a record's rank in its slice and the watermark before it: the slice is read as in a replay."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_pin import pin_input
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.chunk.time_steps import time_before
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.stages.counted import chunk_time, counted_log, reading_tasks
from jobs.replay.stages.judging import ScanPlan, judged_batches
from jobs.replay.stages.side_records import hash_texts
from jobs.runs import CheckpointRef, Slice, WarmUp
from jobs.spark.lazy_session import LazySession
from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A record's rank in its slice, from 0, and the watermark before it; None if there was no watermark yet."""

    rank: int
    watermark_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The record to find. `before` is the checkpoint before its slice; None at the beginning of a chain.

    `warm_up` has the time before the slice if the chain began there with a warm-up. `known` is what the ledger has of
    the slice's part of the log.
    """

    one: Slice
    record_id: str
    before: CheckpointRef | None
    warm_up: WarmUp | None = None
    known: KnownLog = field(default_factory=KnownLog)


def locate(session: LazySession, pipeline: Pipeline, lake: Lake, *, wanted: Wanted) -> Located:
    """Return the rank of a record and the watermark before it, after ordering its slice as a replay does.

    Raises:
        RequestError: the slice has no such record.
        LogError: the log cannot be pinned or read, as in a replay.
    """
    pinned = pin_input(pipeline, lake, [wanted.one], known=wanted.known)
    chunk = ChunkLog.of(pipeline, pinned, [wanted.one])
    tasks = reading_tasks(session, chunk)
    check_log_bytes(tasks, pinned)
    with counted_log(tasks, chunk, lake) as counted:
        places = tasks.run(lambda blocks: _find(blocks, counted.plan, wanted.record_id), counted.groups)
        place = min((place for place in places if place is not None), default=None)
        if place is None:
            raise RequestError(
                f"slice {wanted.one.slice_id} of the log {pinned.uri} has no record {wanted.record_id!r}"
            )
        before = time_before(lake, pipeline, wanted.before, warm_up=wanted.warm_up)
        time = chunk_time(chunk, counted.layout, counted.scanned, before=before)
    sequence, rank = place
    step = int(np.searchsorted(time.steps.sequence, sequence, side="left"))
    met_ms = int(time.steps.watermark_ms[step - 1]) if step else time.beginning.watermark_ms
    return Located(rank=rank, watermark_ms=None if met_ms == MIN_TIME_MS else met_ms)


def _find(blocks: Sequence[Block], plan: ScanPlan, record_id: str) -> tuple[int, int] | None:
    """Return (sequence, rank) of the first record with an id; None if no block has it."""
    places: list[tuple[int, int]] = []
    for block in blocks:
        for judged in judged_batches(block, plan):
            name = plan.reading.record_id
            ids = hash_texts(judged.hashes) if name is None else judged.rows.column(name).cast(pa.string())
            place = pc.index(ids, record_id).as_py()
            if place >= 0:
                places.append((int(judged.sequence[place]), int(judged.rank[place])))
        if places and not block.runs:
            break
    return min(places, default=None)
