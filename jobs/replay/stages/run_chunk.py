"""Runs a chunk: intake, scan, time, windows, encode. Spark schedules tasks; the driver holds counts and steps."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from jobs.engine.fingerprints import run_id
from jobs.replay.chunk.bucket_plan import plan_buckets
from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.chunk.tallies import STATE, Sums
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.intake import scan_by_spark, take_in
from jobs.replay.intake.layout import Layout
from jobs.replay.pinned import Pinned
from jobs.replay.stage_times import stage
from jobs.replay.stages.bloom_filter import bits_for
from jobs.replay.stages.chunk_output import ChunkOutput, ChunkRun
from jobs.replay.stages.counted import block_groups, chunk_time, found_duplicates, scan_plan, slice_inputs
from jobs.replay.stages.judging import ScanPlan
from jobs.replay.stages.parquet_writer import KnownRun
from jobs.replay.stages.partial_aggregation import are_right, partial_plan, with_time_bounds
from jobs.replay.stages.scan import Scanned, scan_again, scan_all
from jobs.replay.stages.shuffle_files import by_bucket
from jobs.replay.stages.state import DividedState, divide_plan, divided_state
from jobs.replay.stages.touched_keys import touched_by
from jobs.replay.stages.windows import BucketRows, BucketTask, WindowsPlan, run_bucket, save_steps
from jobs.replay.tasks import Tasks, tasks_of
from jobs.spark.lazy_session import LazySession
from jobs.spark.private_dir import private_directory
from jobs.storage import make_directory, remove_directory
from windowlib.columnar.restored import BEFORE, DAMAGED, RESTORED
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

log = logging.getLogger(__name__)

SECOND_SCAN: Final = 0.3
"""The time of a scan for the audit, by that of the first one."""


def run_chunk(session: LazySession, pinned: Pinned) -> ChunkRun:
    """Read the log in tasks, and run the windows of a chunk. A chunk with little work starts no session.

    Raises:
        LogError: a file of the log is damaged, cannot be read, or holds other records than its statistics say.
        CheckpointError: a task found a damaged row of the checkpoint.
        SpecError: a user's function failed.
        AuditError: a file that tasks exchange is damaged; the attempt is void.
    """
    # A cluster is there to do the work: the driver's machine may be small.
    threads = pinned.threads(cores=session.cores) if session.is_local else 0
    if pinned.direct.why_spark is not None:
        log.info("Spark reads and sorts the log: %s", pinned.direct.why_spark)
        session.start(pinned.log.records, reads=pinned.places)
    tasks = tasks_of(session, threads=threads, may_read=pinned.places)
    directory = _directory(tasks, pinned)
    make_directory(directory)
    try:
        return _run(tasks, pinned, directory)
    except BaseException:
        remove_directory(directory)
        raise


def _directory(tasks: Tasks, pinned: Pinned) -> str:
    """Return where the tasks leave shuffle files: on one machine a directory of this process, else below the lake."""
    if tasks.shares_files:
        return str(private_directory() / "shuffled" / pinned.order.attempt_id)
    return pinned.order.lake.scratch(pinned.order.pipeline.name, pinned.order.attempt_id)


def _run(tasks: Tasks, pinned: Pinned, directory: str) -> ChunkRun:
    with stage("bytes of the log"):
        file_digests = check_log_bytes(tasks, pinned.log)
    chunk = pinned.chunk_log
    size = pinned.sizes.task_records(pinned.log.records, cores=tasks.cores)
    with stage("order"):
        intake = take_in(tasks, chunk, directory=directory, records_per_block=size)
    layout = intake.layout
    duplicates = found_duplicates(tasks, chunk, layout, directory=directory)
    plan = replace(
        scan_plan(chunk, layout, directory, duplicates=duplicates),
        key_bits=bits_for(layout.records) if pinned.lets_rows_stay() else None,
        partials=partial_plan(pinned),
        buckets=pinned.buckets(layout.records, cores=tasks.cores),
        feeds=True,
    )
    if plan.partials is not None:
        layout = replace(layout, blocks=with_time_bounds(layout.blocks, pinned, plan.reading.event_time))
    groups, again = (block_groups(blocks, records=size) for blocks in (layout.blocks, intake.originals or ()))
    early = _scans_beside(groups, again, cores=tasks.cores)
    with stage("scan"):
        scanned, read = _scanned(tasks, groups, plan, beside=again[:early])
    with stage("time"):
        time = chunk_time(chunk, layout, scanned, before=pinned.time_before)
    inputs = slice_inputs(scanned, len(pinned.order.slices))
    known = _known_run(pinned, inputs[0])
    windows = _windows_plan(pinned, layout, directory=directory, buckets=plan.buckets, time=time, known=known)
    try:
        with stage("windows and second scan"):
            touched = touched_by(scanned, time, key_bits=plan.key_bits)
            state = divided_state(tasks, divide_plan(pinned, directory, plan.buckets, touched=touched))
            # The scans are short, so they fill the cores that wait for the last bucket.
            asked: list[BucketTask | tuple[Block, ...]] = [*_bucket_tasks(scanned, plan.buckets, state), *again[early:]]
            done = tasks.run(lambda task: _windows_or_scan(task, windows, plan), asked)
        buckets = [output for output in done if isinstance(output, BucketRows)]
        counted = _counted(pinned, buckets, state)
        read += [output for output in done if not isinstance(output, BucketRows)]
        seen = scan_by_spark(tasks, chunk) if intake.originals is None else _merged(read)
    except BaseException:
        known.remove()
        raise
    return ChunkRun(
        file_digests=file_digests,
        slices=inputs,
        time=time,
        counted=counted,
        scanned=seen,
        rows=ChunkOutput(
            tasks=tasks,
            pinned=pinned,
            layout=layout,
            columns=plan.log,
            buckets=buckets,
            scanned=scanned,
            known=known,
            directory=directory,
        ),
    )


def _windows_or_scan(
    task: BucketTask | tuple[Block, ...], windows: WindowsPlan, plan: ScanPlan
) -> BucketRows | dict[int, IdSum]:
    return run_bucket(task, windows) if isinstance(task, BucketTask) else scan_again(task, plan)


def _scans_beside(groups: Sequence[tuple[Block, ...]], again: Sequence[tuple[Block, ...]], *, cores: int) -> int:
    """Return how many of the audit's scans take no longer than the cores that wait for the last task of the scan."""
    loads = [0.0] * cores
    for group in groups:
        loads[loads.index(min(loads))] += sum(block.records for block in group)
    idle = sum(max(loads) - load for load in loads)
    costs = accumulate(SECOND_SCAN * sum(block.records for block in group) for group in again)
    return sum(cost <= idle for cost in costs)


def _scanned(
    tasks: Tasks, groups: Sequence[tuple[Block, ...]], plan: ScanPlan, *, beside: Sequence[tuple[Block, ...]] = ()
) -> tuple[list[Scanned], list[dict[int, IdSum]]]:
    """Return what the scan counts in log order, and the ids of blocks that the audit reads `beside` it."""
    scanned, read = scan_all(tasks, groups, plan, beside=beside)
    if plan.partials is None or are_right(scanned):
        return scanned, read
    log.warning("statistics of event log %s are wrong: a file has later event times than its bound", plan.log.uri)
    return scan_all(tasks, groups, replace(plan, partials=None))[0], read


def _known_run(pinned: Pinned, first: InputSums) -> KnownRun:
    """Return the run of the chunk's first slice. Those of later slices depend on the state that the windows leave."""
    order = pinned.order
    slice_ = order.slices[0]
    name = run_id(
        pipeline=order.pipeline.name,
        slice_=slice_,
        spec=pinned.spec_fingerprint,
        input=first.fingerprint,
        state_before=order.state_before,
    )
    return KnownRun(
        columns={"slice_id": slice_.slice_id, "attempt_id": order.attempt_id, "run_id": name},
        roots={
            table.name: pinned.uri(table.name)
            for table in pinned.tables.stored
            if table.name not in tables.RECORD_TABLES
        },
        rows_from=pinned.sizes.rows_from,
        rows_per_file=pinned.sizes.rows_per_file,
    )


def _windows_plan(
    pinned: Pinned, layout: Layout, *, directory: str, buckets: int, time: ChunkTime, known: KnownRun
) -> WindowsPlan:
    plan = plan_buckets(
        pinned.order.pipeline,
        pinned.tables,
        layout.ranges,
        buckets=buckets,
        time=time,
        checkpoints=replace(pinned.checkpoint_rules(), changes_only=pinned.lets_rows_stay()),
        were_dates=pinned.were_dates,
    )
    without_arrays, steps = save_steps(time.steps, directory)
    return WindowsPlan(bucket_plan=replace(plan, steps=without_arrays), steps=steps, directory=directory, known=known)


def _bucket_tasks(scanned: Sequence[Scanned], buckets: int, state: DividedState) -> list[BucketTask]:
    partials = by_bucket(entry for block in scanned for entry in block.partials_of_buckets)
    records = by_bucket(entry for block in scanned for entry in block.records_of_buckets)
    return [
        BucketTask(
            bucket=bucket,
            partials=partials.get(bucket, ()),
            shuffled=records.get(bucket, ()),
            state=state.of_bucket.get(bucket, ()),
        )
        for bucket in range(buckets)
    ]


def _counted(pinned: Pinned, buckets: Iterable[BucketRows], state: DividedState) -> Sums:
    """Return what the tasks counted. The rows that stay are in the state after each slice."""
    counted: Sums = {(BEFORE, DAMAGED, damage): IdSum(1) for damage in state.damages}
    for name, ids in state.staying.items():
        for place in ((BEFORE, RESTORED, name), *((number, STATE, name) for number in range(len(pinned.order.slices)))):
            counted.setdefault(place, IdSum()).merge(ids)
    for bucket in buckets:
        for key, ids in bucket.tallies.items():
            counted.setdefault(key, IdSum()).merge(ids)
    if pinned.checkpoint:
        pinned.checkpoint.check_restored(counted, pinned.state_before.ids)
    return {key: ids for key, ids in counted.items() if key[0] != BEFORE}


def _merged(parts: Iterable[Mapping[int, IdSum]]) -> dict[int, IdSum]:
    whole: dict[int, IdSum] = {}
    for part in parts:
        for number, ids in part.items():
            whole.setdefault(number, IdSum()).merge(ids)
    return whole
