"""Finds a record's rank in its slice and the watermark before it: the slice is read as in a replay."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.lake import Lake
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.chains import RunsByState
from jobs.planning.log_pin import pin_input
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.chunk.time_steps import time_before
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.stages.counted import chunk_time, counted_log, reading_tasks
from jobs.replay.stages.judging import ScanPlan, judged_batches
from jobs.replay.stages.side_records import hash_texts
from jobs.spark.lazy_session import LazySession
from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import RequestError


def locate(
    session: LazySession, pipeline: Pipeline, lake: Lake, *, view: LedgerView, run: StagedRun, record_id: str
) -> tuple[int, int | None]:
    """Return the rank of a record in the slice of a run, from 0, and the watermark before it, after ordering the slice.

    The slice is ordered as a replay does. The watermark is None if there was none yet.

    Raises:
        RequestError: the slice has no such record.
        LogError: the log cannot be pinned or read, as in a replay.
    """
    slice_, by_state = run.result.slice, RunsByState.of(view)
    pinned = pin_input(pipeline, lake, [slice_], known=known_log(view, [slice_]))
    chunk = ChunkLog.of(pipeline, pinned, [slice_])
    tasks = reading_tasks(session, chunk)
    check_log_bytes(tasks, pinned)
    with counted_log(tasks, chunk, lake) as counted:
        places = tasks.run(lambda blocks: _find(blocks, counted.plan, record_id), counted.groups)
        place = min((place for place in places if place is not None), default=None)
        if place is None:
            raise RequestError(f"slice {slice_.slice_id} of the log {pinned.uri} has no record {record_id!r}")
        warm_up = by_state.warm_up_before(run)
        before = time_before(lake, pipeline, by_state.checkpoint_before(run), warm_up=warm_up)
        time = chunk_time(chunk, counted.layout, counted.scanned, before=before)
    sequence, rank = place
    step = int(np.searchsorted(time.steps.sequence, sequence, side="left"))
    met_ms = int(time.steps.watermark_ms[step - 1]) if step else time.beginning.watermark_ms
    return rank, None if met_ms == MIN_TIME_MS else met_ms


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
