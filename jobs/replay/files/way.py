"""Runs a chunk through files: scan, time, windows, encode. Spark schedules tasks; the driver holds counts and steps."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from jobs.planning.fingerprints import run_id
from jobs.replay.chunk.bucket_plan import plan_buckets
from jobs.replay.chunk.chunk_run import ChunkRun, SliceInput, input_fingerprint
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.chunk.reading import log_reading
from jobs.replay.chunk.tallies import STATE, Sums
from jobs.replay.chunk.time_steps import ChunkTime, Places, bounded_time, combined, driven_time, needs_pass
from jobs.replay.files.blocks import Block
from jobs.replay.files.changeable import changeable_by
from jobs.replay.files.file_rows import FileRows
from jobs.replay.files.fragments import by_bucket, read_fragments
from jobs.replay.files.key_sets import bits_for
from jobs.replay.files.layout import Layout, layout_of
from jobs.replay.files.log_blocks import LogColumns
from jobs.replay.files.partial_aggregation import are_right, partial_plan, with_time_bounds
from jobs.replay.files.row_files import KnownRun
from jobs.replay.files.scan import Scanned, ScanPlan, scan, scan_again
from jobs.replay.files.state import DividedState, divide_plan, divided_state
from jobs.replay.files.windows import BucketRows, BucketTask, WindowsPlan, run_bucket, save_steps
from jobs.replay.pinned import Pinned
from jobs.replay.stages import stage
from jobs.replay.tasks import Tasks, tasks_of
from jobs.runs import EMPTY_STATE
from jobs.spark.lazy_session import LazySession
from jobs.spark.private_dir import private_directory
from jobs.storage import make_directory, remove_directory
from windowlib.columnar.log_reading import Rises
from windowlib.columnar.restored import BEFORE, DAMAGED, RESTORED
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

if TYPE_CHECKING:
    import pyarrow as pa

    from windowlib.columnar.steps import Int64s

log = logging.getLogger(__name__)

SHORT_RANKS: Final = 1 << 31
"""The records of a chunk with at most so many records have ranks of 32 bits."""


def run_files(session: LazySession, pinned: Pinned) -> ChunkRun:
    """Read the log's files in tasks, and run the windows of a chunk. A chunk with little work starts no session.

    Raises:
        LogError: a file of the log is damaged, cannot be read, or holds other records than its statistics say.
        CheckpointError: a task found a damaged row of the checkpoint.
        SpecError: a user's function failed.
        AuditError: a file that tasks exchange is damaged; the attempt is void.
    """
    # A cluster is there to do the work: the driver's machine may be small.
    runs_here = session.is_local and pinned.runs_here(has_session=session.is_running)
    tasks = tasks_of(session, runs_here=runs_here, may_read=pinned.places)
    directory = _directory(tasks, pinned)
    make_directory(directory)
    try:
        return _run(tasks, pinned, directory)
    except BaseException:
        remove_directory(directory)
        raise


def _directory(tasks: Tasks, pinned: Pinned) -> str:
    """Return where the tasks leave fragments: on one machine a directory of this process, else below the lake."""
    if tasks.shares_files:
        return str(private_directory() / "fragments" / pinned.order.attempt_id)
    return pinned.order.lake.scratch(pinned.order.pipeline.name, pinned.order.attempt_id)


def _run(tasks: Tasks, pinned: Pinned, directory: str) -> ChunkRun:
    with stage("bytes of the log"):
        file_digests = check_log_bytes(tasks, pinned.log)
    size = pinned.sizes.task_records(pinned.log.records, cores=tasks.cores)
    layout = layout_of(pinned.log, pinned.order.slices, records_per_block=size)
    plan = _scan_plan(pinned, layout, directory, buckets=pinned.buckets(layout.records, cores=tasks.cores))
    if plan.partials is not None:
        layout = replace(layout, blocks=with_time_bounds(layout.blocks, pinned, plan.reading.event_time))
    groups = _groups(layout.blocks, records=size)
    with stage("scan"):
        scanned = _scanned(tasks, groups, plan)
    with stage("time"):
        time = _time(pinned, layout, scanned)
    inputs = _slice_inputs(scanned, len(pinned.order.slices))
    known = _known_run(pinned, inputs[0])
    windows = _windows_plan(pinned, layout, directory=directory, buckets=plan.buckets, time=time, known=known)
    try:
        with stage("windows and second scan"), pinned.checkpoint.restoring() if pinned.checkpoint else nullcontext():
            changeable = changeable_by(scanned, time, key_bits=plan.key_bits)
            state = divided_state(tasks, divide_plan(pinned, directory, plan.buckets, changeable=changeable))
            # The scans are short, so they fill the cores that wait for the last bucket.
            asked: list[BucketTask | tuple[Block, ...]] = [*_bucket_tasks(scanned, plan.buckets, state), *groups]
            done = tasks.run(lambda task: _windows_or_scan(task, windows, plan), asked)
        found = [one for one in done if isinstance(one, BucketRows)]
        counted = _counted(pinned, found, state)
    except BaseException:
        known.remove()
        raise
    return ChunkRun(
        file_digests=file_digests,
        slices=inputs,
        time=time,
        counted=counted,
        scanned=_merged(one for one in done if not isinstance(one, BucketRows)),
        rows=FileRows(
            tasks=tasks,
            pinned=pinned,
            layout=layout,
            columns=plan.log,
            found=found,
            scanned=scanned,
            known=known,
            directory=directory,
        ),
    )


def _windows_or_scan(
    task: BucketTask | tuple[Block, ...], windows: WindowsPlan, plan: ScanPlan
) -> BucketRows | dict[int, IdSum]:
    return run_bucket(task, windows) if isinstance(task, BucketTask) else scan_again(task, plan)


def _scanned(tasks: Tasks, groups: Sequence[tuple[Block, ...]], plan: ScanPlan) -> list[Scanned]:
    scanned = [one for found in tasks.run(lambda blocks: scan(blocks, plan), groups) for one in found]
    if plan.partials is None or are_right(scanned):
        return scanned
    log.warning("statistics of event log %s are wrong: a file has later event times than its bound", plan.log.uri)
    return _scanned(tasks, groups, replace(plan, partials=None))


def _known_run(pinned: Pinned, first: SliceInput) -> KnownRun:
    """Return the run of the chunk's first slice. Those of later slices depend on the state that the windows leave."""
    order = pinned.order
    one = order.slices[0]
    name = run_id(
        pipeline=order.pipeline.name,
        one=one,
        spec=pinned.spec_fingerprint,
        input=first.fingerprint,
        state_before=order.before.fingerprint if order.before else EMPTY_STATE,
    )
    return KnownRun(
        slice_no=0,
        columns={"slice_id": one.slice_id, "attempt_id": order.attempt_id, "run_id": name},
        roots={
            table.name: pinned.uri(table.name)
            for table in pinned.tables.stored
            if table.name not in tables.RECORD_TABLES
        },
        rows_from=pinned.sizes.rows_from,
        rows_per_file=pinned.sizes.rows_per_file,
    )


def _scan_plan(pinned: Pinned, layout: Layout, directory: str, *, buckets: int) -> ScanPlan:
    order, engine, sizes = pinned.order, pinned.tables.engine, pinned.sizes
    reading = log_reading(order.pipeline, pinned.log, order.slices, needs_clock=engine.needs_clock)
    return ScanPlan(
        log=LogColumns(
            uri=pinned.log.uri,
            version=pinned.log.version,
            nodes=pinned.log.nodes,
            rows_per_batch=sizes.rows_per_read,
        ),
        reading=reading,
        derivation=pinned.tables.derivation,
        inputs=engine.layout.read(),
        source=engine.time.source,
        asked=engine.time.columns if needs_pass(engine) else None,
        slice_starts_ms=tuple(one.start_ms for one in order.slices),
        needs_commits=engine.time.needs_commits,
        has_short_ranks=layout.records <= SHORT_RANKS,
        key_bits=bits_for(layout.records) if pinned.lets_rows_stay() else None,
        partials=partial_plan(pinned, layout.records),
        buckets=buckets,
        directory=directory,
    )


def _groups(blocks: Sequence[Block], *, records: int) -> list[tuple[Block, ...]]:
    """Cut the blocks into contiguous groups of about this many records, one per task."""
    groups: list[tuple[Block, ...]] = []
    group: list[Block] = []
    count = 0
    for block in blocks:
        if group and count + block.records > records:
            groups.append(tuple(group))
            group, count = [], 0
        group.append(block)
        count += block.records
    return [*groups, tuple(group)] if group else groups


def _time(pinned: Pinned, layout: Layout, scanned: Sequence[Scanned]) -> ChunkTime:
    places = Places(ranges=layout.ranges, locate=layout.locate)
    engine, before = pinned.tables.engine, pinned.time_before
    if not needs_pass(engine):
        return bounded_time(engine, _rises(scanned, combined(before).max_event_time_ms), places, before=before)
    return driven_time(engine, _passed(scanned), places, before=before)


def _passed(scanned: Sequence[Scanned]) -> "Iterator[pa.RecordBatch]":
    for one in scanned:
        for _, batch in read_fragments(one.records_of_time):
            yield batch


def _rises(scanned: Sequence[Scanned], before_ms: int | None) -> Rises:
    """Join the rises of the blocks: of each block, those above the maximum of all blocks before it."""
    sequences: list[Int64s] = []
    times: list[Int64s] = []
    highest = before_ms
    for one in scanned:
        rises_to = one.rises_to.numbers()
        start = 0 if highest is None else int(np.searchsorted(rises_to, highest, side="right"))
        if start < len(rises_to):
            sequences.append(one.rises_at.numbers()[start:])
            times.append(rises_to[start:])
            highest = int(rises_to[-1])
    nothing = np.empty(0, dtype=np.int64)
    return Rises(sequence=np.concatenate([nothing, *sequences]), max_event_time_ms=np.concatenate([nothing, *times]))


def _windows_plan(
    pinned: Pinned, layout: Layout, *, directory: str, buckets: int, time: ChunkTime, known: KnownRun
) -> WindowsPlan:
    plan = plan_buckets(
        pinned.order.pipeline,
        pinned.tables,
        layout.ranges,
        buckets=buckets,
        time=time,
        sizes=pinned.sizes,
        checkpoints=replace(pinned.checkpoint_rules(), changes_only=pinned.lets_rows_stay()),
    )
    without_arrays, steps = save_steps(time.steps, directory)
    return WindowsPlan(
        bucket_plan=replace(plan, steps=without_arrays),
        steps=steps,
        directory=directory,
        known=known,
    )


def _bucket_tasks(scanned: Sequence[Scanned], buckets: int, state: DividedState) -> list[BucketTask]:
    partials = by_bucket(fragment for one in scanned for fragment in one.partials_of_buckets)
    records = by_bucket(fragment for one in scanned for fragment in one.records_of_buckets)
    return [
        BucketTask(
            bucket=bucket,
            partials=partials.get(bucket, ()),
            fragments=records.get(bucket, ()),
            state=state.of_bucket.get(bucket, ()),
        )
        for bucket in range(buckets)
    ]


def _counted(pinned: Pinned, found: Iterable[BucketRows], state: DividedState) -> Sums:
    """Return what the tasks counted. The rows that stay are in the state after each slice."""
    counted: Sums = {(BEFORE, DAMAGED, damage): IdSum(1) for damage in state.damages}
    for name, ids in state.staying.items():
        for place in ((BEFORE, RESTORED, name), *((number, STATE, name) for number in range(len(pinned.order.slices)))):
            counted.setdefault(place, IdSum()).merge(ids)
    for one in found:
        for key, ids in one.tallies.items():
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


def _slice_inputs(scanned: Sequence[Scanned], slices: int) -> tuple[SliceInput, ...]:
    sums = [
        {name: IdSum() for name in ("content", "records", "invalid", "invalid_rows", "filtered")} for _ in range(slices)
    ]
    for one in scanned:
        for name, ids in sums[one.block.slice_no].items():
            ids.merge(getattr(one, name))
    return tuple(
        SliceInput(
            fingerprint=input_fingerprint(found["content"]),
            records=found["records"],
            invalid=found["invalid"],
            invalid_rows=found["invalid_rows"],
            filtered=found["filtered"],
        )
        for found in sums
    )
