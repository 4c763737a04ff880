"""Finds the log order of the records of a chunk: which files are in order as they are, and which slices tasks sort."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.lake.pinned_files import PinnedFile
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.intake.groups import groups_of
from jobs.replay.intake.layout import Layout, joined_groups, layout_of, parts_of
from jobs.replay.intake.probe import Probed, in_order, probe
from jobs.replay.intake.sort import SortedFile, SortPlan, sort_slice
from jobs.replay.intake.source_files import OrderReading, SourceFile
from jobs.replay.tasks import SparkTasks, Tasks
from jobs.storage import file_system
from windowlib.errors import InvariantBroken, LogError
from windowlib.records.row_ids import IdSum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """The records of a chunk in log order.

    `originals` are the files of the log that Arrow reads, in any order, for the audit's own reading of them; None if
    only Spark reads them. `sorted_slices` is the number of slices that tasks have sorted, and `equal` the number of
    their records that are equal to another one at the same place.
    """

    layout: Layout
    originals: tuple[Block, ...] | None
    sorted_slices: int = 0
    equal: int = 0


def take_in(tasks: Tasks, chunk: ChunkLog, *, directory: str, records_per_block: int) -> Intake:
    """Return the records of a chunk in log order.

    Args:
        tasks: reads and sorts. They are in a session of Spark if only Spark reads the log.
        chunk: the log.
        directory: where tasks write sorted records.
        records_per_block: about the number of records of a block.

    Raises:
        LogError: a file cannot be read, or the order of the pipeline is not total.
    """
    if chunk.direct.why_spark is not None:
        _refuse_for_spark(chunk, chunk.direct.why_spark)
        return _by_spark(_spark_of(tasks), chunk, directory=directory, records_per_block=records_per_block)
    files = _source_files(chunk)
    doubtful = {number: own for number, own in files.items() if _is_doubtful(chunk, own)}
    reading = order_reading(chunk)
    found: dict[int, list[SourceFile] | None] = dict.fromkeys(doubtful)
    if not (chunk.order is None and chunk.needs_commits):  # a compacted file may have records of several commits
        found = _probed(tasks, doubtful, reading, records_per_task=records_per_block)
    unsorted = [number for number, own in found.items() if own is None and _has_records(doubtful[number])]
    plan = sort_plan(chunk, directory, threads=max(tasks.sharers // max(len(unsorted), 1), 1))
    made = tasks.run(lambda own: sort_slice(own, plan), [doubtful[number] for number in unsorted])
    ordered = {
        number: [
            part
            for file in found.get(number) or own
            for part in parts_of(file.block, uri=chunk.log.uri, records_per_block=records_per_block)
        ]
        for number, own in files.items()
    }
    originals = [block for number in files for block in ordered[number]]
    sorted_blocks = _sorted_blocks(made, records_per_block=records_per_block)
    if made:
        log.info("tasks have sorted %d of %d slices", len(made), len(files))
    return Intake(
        layout=layout_of(ordered | sorted_blocks, chunk.slices),
        originals=tuple(originals),
        sorted_slices=len(made),
        equal=sum(one.equal for one in made),
    )


def _has_records(files: Sequence[SourceFile]) -> bool:
    return any(file.block.records for file in files)


def order_reading(chunk: ChunkLog) -> OrderReading:
    """Return how tasks read the order of the records."""
    layout = chunk.log.layout
    hidden = tuple(name for name in (layout.version_column, layout.row_id_column) if name is not None)
    return OrderReading(log=chunk.columns, columns=chunk.order, hidden=hidden if chunk.order is None else ())


def sort_plan(chunk: ChunkLog, directory: str, *, threads: int) -> SortPlan:
    """Return how tasks sort."""
    return SortPlan(
        reading=order_reading(chunk),
        widened=dict(chunk.log.widened),
        directory=directory,
        rows_per_group=chunk.sizes.sorted_rows,
        needs_commits=chunk.needs_commits,
        memory_bytes=chunk.sizes.sort_bytes,
        threads=threads,
        bounded=tuple({chunk.reading.event_time.name} & {*chunk.log.nodes}),
    )


def _sorted_blocks(made: Sequence[SortedFile], *, records_per_block: int) -> dict[int, list[Block]]:
    """Return slice number -> the blocks of its sorted files, which are given in log order."""
    blocks: dict[int, list[Block]] = {}
    for one in made:
        name = one.path.rpartition("/")[2]
        whole = Block(one.path, name, {}, one.slice_no, commit=0, sequence=0, rank=0, row=0, records=0, is_sorted=True)
        blocks.setdefault(one.slice_no, []).extend(
            joined_groups(whole, one.groups, records_per_block=records_per_block)
        )
    return {number: _numbered(own) for number, own in blocks.items()}


def _numbered(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of a slice with their commits numbered from 0."""
    numbers = {commit: number for number, commit in enumerate(sorted({block.commit for block in blocks}))}
    return [block._replace(commit=numbers[block.commit]) for block in blocks]


def _is_doubtful(chunk: ChunkLog, files: Sequence[SourceFile]) -> bool:
    """Return whether the Delta log does not tell the order of the records of a slice."""
    return chunk.order is not None or any(file.block.named in chunk.direct.compacted for file in files)


def _probed(
    tasks: Tasks, doubtful: Mapping[int, Sequence[SourceFile]], reading: OrderReading, *, records_per_task: int
) -> dict[int, list[SourceFile] | None]:
    """Return slice number -> its files in log order; None if tasks must sort it."""
    files = [file for own in doubtful.values() for file in own]
    groups = groups_of(files, [file.block.records for file in files], records=records_per_task)
    done = [one for found in tasks.share(lambda own: [probe(file, reading) for file in own], groups) for one in found]
    by_slice: dict[int, list[tuple[SourceFile, Probed]]] = {number: [] for number in doubtful}
    for file, probed in zip(files, done, strict=True):
        by_slice[file.block.slice_no].append((file, probed))
    return {number: in_order(own) for number, own in by_slice.items()}


def _source_files(chunk: ChunkLog) -> dict[int, list[SourceFile]]:
    """Return slice number -> its files, in the order of appending if that is the order of the log."""
    numbers = {one.slice_id: number for number, one in enumerate(chunk.slices)}
    found: dict[int, list[SourceFile]] = {}
    for file in chunk.log.files:
        number = numbers[file.slice_id]
        commit, first = (0, 0) if chunk.order is not None else _appended(file)
        block = Block(
            path=chunk.log.place(file),
            named=file.path,
            partition=file.values,
            slice_no=number,
            commit=0,
            sequence=0,
            rank=0,
            row=0,
            records=_records(chunk, file),
            part=file.part,
        )
        found.setdefault(number, []).append(SourceFile(block, commit, first))
    return {number: _with_commit_numbers(own) for number, own in sorted(found.items())}


def _with_commit_numbers(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the files of a slice in the order of appending. The commits of a slice are numbered from 0."""
    ordered = sorted(files, key=lambda file: (file.commit, file.first))
    blocks = _numbered([file.block._replace(commit=file.commit) for file in ordered])
    return [file._replace(block=block) for file, block in zip(ordered, blocks, strict=True)]


def _appended(file: PinnedFile) -> tuple[int, int]:
    if file.appended is None:
        raise InvariantBroken(f"file {file.path} has no row ids, and was to be read in their order; please report this")
    return file.appended


def _records(chunk: ChunkLog, file: PinnedFile) -> int:
    if file.records is not None:
        return file.records
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(chunk.log.place(file), filesystem=file_system(chunk.log.uri)[0]).num_rows)
    except (OSError, ValueError) as error:
        raise LogError(
            f"file {file.path} (slice {file.slice_id}) of version {chunk.log.version} of event log {chunk.log.uri} "
            "cannot be read: it is damaged. Restore it from a backup, or replay a range that does not need it"
        ) from error


def _refuse_for_spark(chunk: ChunkLog, why: str) -> None:
    """Refuse a log whose slices or order only the Delta log has, if Spark must read it."""
    log = chunk.log
    if not log.is_partitioned:
        raise LogError(
            f"event log {log.uri} is read by Spark, because {why}. Spark cannot read slices that are no partitions. "
            "Name partition columns in `log.slice.by` (docs/LOGS.md)"
        )
    if chunk.order is None and any(file.row_ids is None for file in log.files):
        raise LogError(
            f"event log {log.uri} is read by Spark, because {why}. Spark cannot read the order in which files were "
            "appended (`order: appended`). Name in `log.order` the columns that order the records, or append them to a "
            "table with delta.enableRowTracking = true from its creation (docs/LOGS.md)"
        )


def _spark_of(tasks: Tasks) -> "SparkSession":
    if not isinstance(tasks, SparkTasks):
        raise InvariantBroken("only Spark reads this log, and no session was started; please report this")
    return tasks.spark


def _by_spark(spark: "SparkSession", chunk: ChunkLog, *, directory: str, records_per_block: int) -> Intake:
    from jobs.replay.intake.spark_sort import sort_by_spark  # imports Spark

    made = sort_by_spark(spark, chunk, sort_plan(chunk, directory, threads=1))
    ordered = _sorted_blocks(made, records_per_block=records_per_block)
    return Intake(
        layout=layout_of(ordered, chunk.slices),
        originals=None,
        sorted_slices=len(ordered),
        equal=sum(one.equal for one in made),
    )


def scan_by_spark(tasks: Tasks, chunk: ChunkLog) -> Mapping[int, IdSum]:
    """Read a log that only Spark reads a second time, for the audit. Return slice number -> ids of its records.

    Raises:
        LogError: a file cannot be read.
    """
    from jobs.replay.intake.spark_sort import record_ids  # imports Spark

    return record_ids(_spark_of(tasks), chunk)
