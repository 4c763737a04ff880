"""Finds the log order of the records of a chunk: which files are in order as they are, and what tasks order."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from jobs.lake.pinned_files import PinnedFile
from jobs.plain_text import counted
from jobs.replay.groups import groups_of
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.intake.layout import Layout, joined_groups, layout_of, parts_of
from jobs.replay.intake.probe import Cluster, ProbeSizes, clusters, probe, probed_file, whole_cluster
from jobs.replay.intake.ranges import divided
from jobs.replay.intake.runs import with_runs
from jobs.replay.intake.sorted_files import OrderPlan, SortedFile
from jobs.replay.intake.source_files import OrderReading
from jobs.replay.tasks import SparkTasks, Tasks
from jobs.spark.session import session_of
from jobs.storage import file_system
from windowlib.errors import InvariantBroken, LogError
from windowlib.libraries import pq
from windowlib.records.row_ids import IdSum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """The records of a chunk in log order.

    `originals` are the files of the log that Arrow reads, in any order, for the audit's own reading of them; None if
    only Spark reads them.
    """

    layout: Layout
    originals: tuple[Block, ...] | None


def take_in(tasks: Tasks, chunk: ChunkLog, *, directory: str, records_per_block: int) -> Intake:
    """Return the records of a chunk in log order.

    The tasks are in a session of Spark if only Spark reads the log. They write sorted records into `directory`. A block
    has about `records_per_block`.
    Raises LogError: a file cannot be read, or the order of the pipeline is not total.
    """
    if chunk.direct.why_spark is not None:
        _refuse_for_spark(chunk, chunk.direct.why_spark)
        return _by_spark(_spark_of(tasks), chunk, directory=directory, records_per_block=records_per_block)
    files = _source_files(chunk)
    uri = chunk.log.uri
    parts = {
        (file.path, file.slice_no): parts_of(file, uri=uri, records_per_block=records_per_block)
        for file in chain.from_iterable(files.values())
    }
    arranged = _arranged(tasks, chunk, files, parts=parts, records_per_task=records_per_block)
    made = iter(_divided(tasks, chunk, arranged, directory=directory))
    ordered: dict[int, list[Block]] = {}
    for number, own in arranged.items():
        blocks: list[Block] = []
        for cluster in own:
            if cluster.runs:
                of_cluster = [part for file in cluster.files for part in parts[file.path, number]]
                blocks += with_runs(of_cluster, cluster.runs, rank=sum(block.records for block in blocks))
            elif cluster.is_ordered:
                whole = cluster.files[0]
                blocks += [whole] if whole.reorder_by else parts[whole.path, number]
            else:
                blocks += _blocks_of(next(made), records_per_block=records_per_block)
        ordered[number] = _numbered(blocks)
    return Intake(layout=layout_of(ordered, chunk.slices), originals=tuple(chain.from_iterable(parts.values())))


def _divided(
    tasks: Tasks, chunk: ChunkLog, arranged: Mapping[int, Sequence[Cluster]], *, directory: str
) -> list[list[Block] | SortedFile]:
    """Divide the clusters that no task reads in order. Return what is made of each, in their order."""
    unordered = [cluster for own in arranged.values() for cluster in own if not (cluster.is_ordered or cluster.runs)]
    if not unordered:
        return []
    log.info(
        "tasks divide the records of %s into ranges", counted(sum(len(cluster.files) for cluster in unordered), "file")
    )
    groups = [*groups_of(unordered, lambda cluster: cluster.records, chunk.sizes.records_per_task)]
    plan = order_plan(chunk, directory, threads=max(tasks.sharers // len(groups), 1))
    done = tasks.run(lambda own: [divided(cluster, plan) for cluster in own], groups)
    return [*chain.from_iterable(done)]


def order_reading(chunk: ChunkLog) -> OrderReading:
    """Return how tasks read the order of the records."""
    layout = chunk.log.layout
    hidden = tuple(name for name in (layout.version_column, layout.row_id_column) if name is not None)
    time = chunk.reading.event_time
    return OrderReading(
        log=chunk.columns,
        columns=chunk.order,
        hidden=hidden if chunk.order is None else (),
        time=time if chunk.combines and time.name in chunk.log.nodes else None,
    )


def order_plan(chunk: ChunkLog, directory: str, *, threads: int) -> OrderPlan:
    """Return how tasks sort."""
    return OrderPlan(
        reading=order_reading(chunk),
        directory=directory,
        rows_per_group=chunk.sizes.sorted_rows,
        needs_commits=chunk.needs_commits,
        memory_bytes=chunk.sizes.ordered_bytes,
        threads=threads,
        bounded=tuple({chunk.reading.event_time.name} & {*chunk.log.nodes}),
    )


def _blocks_of(made: list[Block] | SortedFile, *, records_per_block: int) -> list[Block]:
    if not isinstance(made, SortedFile):
        return made
    name = made.path.rpartition("/")[2]
    whole = Block(made.path, name, {}, made.slice_no, is_copied=True)
    return joined_groups(whole, made.groups, records_per_block=records_per_block)


def _numbered(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of a slice with their commits numbered from 0."""
    commits = {part.commit for block in blocks for part in block.runs or (block,)}
    numbers = {commit: number for number, commit in enumerate(sorted(commits))}
    return [
        block._replace(runs=tuple(run._replace(commit=numbers[run.commit]) for run in block.runs))
        if block.runs
        else block._replace(commit=numbers[block.commit])
        for block in blocks
    ]


def _arranged(
    tasks: Tasks,
    chunk: ChunkLog,
    files: Mapping[int, Sequence[Block]],
    *,
    parts: Mapping[tuple[str, int], Sequence[Block]],
    records_per_task: int,
) -> dict[int, list[Cluster]]:
    """Return slice number -> its files as clusters, in log order. Tasks read the order of the parts of files."""
    doubtful = {number: own for number, own in files.items() if _is_doubtful(chunk, own)}
    reading, most = order_reading(chunk), chunk.sizes.ordered_bytes
    sizes = ProbeSizes(most, chunk.sizes.run_steps, chunk.sizes.run_records)
    every = [*chain.from_iterable(doubtful.values())]
    of_files = [parts[file.path, file.slice_no] for file in every]
    groups = [*groups_of(chain.from_iterable(of_files), lambda file: file.records, records_per_task)]
    done = tasks.share(lambda own: [probe(file, reading, sizes) for file in own], groups)
    of_parts = chain.from_iterable(done)
    probed = iter([probed_file([*islice(of_parts, len(own))]) for own in of_files])
    # A compacted file may have records of several commits.
    gathered = whole_cluster if chunk.order is None and chunk.needs_commits else clusters
    in_order = {number: [Cluster((file,), is_ordered=True) for file in own] for number, own in files.items()}
    return in_order | {
        number: gathered([(file, next(probed)) for file in own], memory_bytes=most) for number, own in doubtful.items()
    }


def _is_doubtful(chunk: ChunkLog, files: Sequence[Block]) -> bool:
    """Return whether the Delta log does not tell the order of the records of a slice."""
    return chunk.order is not None or any(file.named in chunk.direct.compacted for file in files)


def _source_files(chunk: ChunkLog) -> dict[int, list[Block]]:
    """Return slice number -> its files, in the order of appending if that is the order of the log."""
    numbers = {span.slice_id: number for number, span in enumerate(chunk.slices)}
    files: dict[int, list[Block]] = {}
    is_by_times = chunk.columns.slice_column is not None and not chunk.log.is_partitioned
    for file in chunk.log.files:
        number = numbers[file.slice_id]
        span = chunk.slices[number]
        commit, base_row_id = (0, 0) if chunk.order is not None else _appended(file)
        block = Block(
            path=chunk.log.place(file),
            named=file.path,
            partition=file.partition,
            slice_no=number,
            commit=commit,
            records=file.records or 0,
            base_row_id=base_row_id,
            part=file.part,
            within=(span.start_ms, span.end_ms) if is_by_times and file.part is None else None,
            deleted=file.deleted,
            only_inserts=file.only_inserts,
        )
        files.setdefault(number, []).append(block if file.records is not None else _counted(chunk, block))
    return {
        number: sorted(own, key=lambda file: (file.commit, file.base_row_id)) for number, own in sorted(files.items())
    }


def _appended(file: PinnedFile) -> tuple[int, int]:
    if file.appended is None:
        raise InvariantBroken(f"file {file.path} has no row ids, and was to be read in their order; please report this")
    return file.appended


def _counted(chunk: ChunkLog, block: Block) -> Block:
    """Return the block of a whole file with the number of its records, which its statistics do not tell."""
    with chunk.columns.reading(block):
        rows = int(pq.read_metadata(block.path, filesystem=file_system(chunk.log.uri)[0]).num_rows)
    return block._replace(records=rows - (0 if block.deleted is None else block.deleted.count))


def _refuse_for_spark(chunk: ChunkLog, why: str) -> None:
    """Refuse a log whose slices or order only the Delta log has, if Spark must read it."""
    log = chunk.log
    if not log.is_partitioned:
        raise LogError(
            f"event log {log.uri} is read by Spark, because {why}. Spark cannot read slices that are no partitions. "
            "Name partition columns in `log.slice.by` (docs/reference/logs.md)"
        )
    if chunk.order is None and any(file.row_ids is None for file in log.files):
        raise LogError(
            f"event log {log.uri} is read by Spark, because {why}. Spark cannot read the order in which files were "
            "appended (`order: appended`). Name in `log.order` the columns that order the records, or append them to a "
            "table with delta.enableRowTracking = true from its creation (docs/reference/logs.md)"
        )


def _spark_of(tasks: Tasks) -> "SparkSession":
    if not isinstance(tasks, SparkTasks):
        raise InvariantBroken("only Spark reads this log, and no session was started; please report this")
    return session_of(tasks.context)


def _by_spark(spark: "SparkSession", chunk: ChunkLog, *, directory: str, records_per_block: int) -> Intake:
    from jobs.replay.intake.spark_sort import sort_by_spark  # imports Spark

    made = sort_by_spark(spark, chunk, order_plan(chunk, directory, threads=1))
    blocks: dict[int, list[Block]] = {}
    for file in made:
        blocks.setdefault(file.slice_no, []).extend(_blocks_of(file, records_per_block=records_per_block))
    ordered = {number: _numbered(own) for number, own in blocks.items()}
    return Intake(layout=layout_of(ordered, chunk.slices), originals=None)


def scan_by_spark(tasks: Tasks, chunk: ChunkLog) -> Mapping[int, IdSum]:
    """Read a log that only Spark reads a second time, for the audit. Return slice number -> ids of its records.

    Raises LogError: a file cannot be read.
    """
    from jobs.replay.intake.spark_sort import record_ids  # imports Spark

    return record_ids(_spark_of(tasks), chunk)
