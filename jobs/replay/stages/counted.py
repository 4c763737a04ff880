"""What the scan of a chunk finds: the input of each slice, and how time moves. Replays and explanations use it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np

from jobs.lake.lake import Lake
from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.chunk.time_steps import ChunkTime, bounded_time, combined, driven_time, needs_pass
from jobs.replay.groups import groups_of
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.intake.intake import take_in
from jobs.replay.intake.layout import Layout
from jobs.replay.stage_times import stage
from jobs.replay.stages.distinct import Part, search
from jobs.replay.stages.duplicates import Duplicates
from jobs.replay.stages.judging import ScanPlan
from jobs.replay.stages.scan import Scanned, scan_all
from jobs.replay.stages.shuffle_files import read_shuffled
from jobs.replay.tasks import LocalTasks, SparkTasks, Tasks
from jobs.spark.lazy_session import LazySession
from jobs.spark.private_dir import private_directory
from jobs.storage import make_directory, remove_directory
from windowlib.columnar.log_reading import Rises
from windowlib.libraries import pa
from windowlib.watermarks.timeline import SourceRow

if TYPE_CHECKING:
    from windowlib.columnar.watermark_steps import Int64s

SHORT_RANKS: Final = 1 << 31
"""The records of a chunk with at most so many records have ranks of 32 bits."""


def scan_plan(chunk: ChunkLog, layout: Layout, directory: str, *, duplicates: Duplicates | None = None) -> ScanPlan:
    """Return the plan of a scan that only counts. A replay asks for more with `dataclasses.replace`."""
    engine = chunk.tables.engine
    return ScanPlan(
        log=chunk.columns,
        reading=chunk.reading,
        derivation=chunk.tables.derivation,
        inputs=engine.layout.read(),
        source=engine.time.source,
        asked=engine.time.columns if needs_pass(engine) else None,
        slice_starts_ms=tuple(slice_.start_ms for slice_ in chunk.slices),
        needs_commits=chunk.needs_commits,
        has_short_ranks=layout.records <= SHORT_RANKS,
        directory=directory,
        duplicates=duplicates,
    )


def found_duplicates(tasks: Tasks, chunk: ChunkLog, layout: Layout, *, directory: str) -> Duplicates | None:
    """Return the duplicates of a chunk in log order; None if the pipeline keeps all records.

    Raises LogError: as for `take_in`, for the slices before, too.
    """
    distinct, before = chunk.pipeline.log.distinct, chunk.before
    if distinct is None:
        return None
    parts = [Part(plan=scan_plan(chunk, layout, directory), slices=chunk.slices, blocks=layout.blocks)]
    with stage("duplicates"):
        if before.log.files:
            place = f"{directory}/before"
            make_directory(place)
            size = chunk.sizes.task_records(before.log.records, cores=tasks.cores)
            taken = take_in(tasks, before, directory=place, records_per_block=size).layout
            parts.append(Part(plan=scan_plan(before, taken, directory), slices=before.slices, blocks=taken.blocks))
        return search(tasks, parts, distinct=distinct, sizes=chunk.sizes)


def block_groups(blocks: Sequence[Block], *, records: int) -> list[tuple[Block, ...]]:
    """Cut blocks into contiguous groups of about this many records, one per task."""
    return [*groups_of(blocks, lambda block: block.records, records)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLog:
    """A part of a log whose records were counted, without windows. `plan` reads the blocks of `layout` again."""

    layout: Layout
    plan: ScanPlan
    scanned: Sequence[Scanned]
    groups: Sequence[tuple[Block, ...]]


def reading_tasks(session: LazySession, chunk: ChunkLog) -> Tasks:
    """Return tasks that read a part of a log. A session starts only for much work, or if only Spark reads the log."""
    needs_spark = chunk.direct.why_spark is not None
    if session.is_local and chunk.log.whole.records <= chunk.sizes.local_records and not needs_spark:
        return LocalTasks(min(session.cores, chunk.sizes.threads))
    return SparkTasks(session.start(chunk.log.records, reads=(chunk.log.uri,) if needs_spark else ()))


@contextmanager
def counted_log(
    tasks: Tasks, chunk: ChunkLog, lake: Lake, *, refine: Callable[[ScanPlan], ScanPlan] = lambda plan: plan
) -> Iterator[CountedLog]:
    """Read a part of a log in log order. What tasks leave on the disk is removed at the end of the context.

    Tasks leave their files in `lake` if they are on several machines. `refine` changes the plan of the scan, which
    counts.
    Raises LogError: as for `take_in` and `scan`.
    """
    name = f"read-{uuid4().hex}"
    here = str(private_directory() / name)
    directory = here if tasks.shares_files else lake.scratch(chunk.pipeline.name, name)
    make_directory(directory)
    try:
        size = chunk.sizes.task_records(chunk.log.records, cores=tasks.cores)
        layout = take_in(tasks, chunk, directory=directory, records_per_block=size).layout
        duplicates = found_duplicates(tasks, chunk, layout, directory=directory)
        plan = refine(scan_plan(chunk, layout, directory, duplicates=duplicates))
        groups = block_groups(layout.blocks, records=size)
        scanned, _ = scan_all(tasks, groups, plan)
        yield CountedLog(layout=layout, plan=plan, scanned=scanned, groups=groups)
    finally:
        remove_directory(directory)


def chunk_time(
    chunk: ChunkLog, layout: Layout, scanned: Sequence[Scanned], *, before: Sequence[SourceRow]
) -> ChunkTime:
    """Return how clock and watermark move along a chunk; `before` has the rows of `time_before`."""
    engine = chunk.tables.engine
    if not needs_pass(engine):
        return bounded_time(engine, _rises(scanned, combined(before).max_event_time_ms), layout.ranges, before=before)
    return driven_time(engine, _passed(scanned), layout.ranges, before=before)


def _passed(scanned: Sequence[Scanned]) -> "Iterator[pa.RecordBatch]":
    for block in scanned:
        for _, batch in read_shuffled(block.records_of_time):
            yield batch


def _rises(scanned: Sequence[Scanned], before_ms: int | None) -> Rises:
    """Join the rises of the blocks: of each block, those above the maximum of all blocks before it."""
    sequences: list[Int64s] = []
    times: list[Int64s] = []
    highest = before_ms
    for block in scanned:
        rises_to = block.rises_to.numbers()
        start = 0 if highest is None else int(np.searchsorted(rises_to, highest, side="right"))
        if start < len(rises_to):
            sequences.append(block.rises_at.numbers()[start:])
            times.append(rises_to[start:])
            highest = int(rises_to[-1])
    nothing = np.empty(0, dtype=np.int64)
    return Rises(sequence=np.concatenate([nothing, *sequences]), max_event_time_ms=np.concatenate([nothing, *times]))


def slice_inputs(scanned: Sequence[Scanned], slices: int) -> tuple[InputSums, ...]:
    """Return the input of each slice of a chunk."""
    inputs = tuple(InputSums() for _ in range(slices))
    for block in scanned:
        inputs[block.block.slice_no].merge(block.sums)
    return inputs
