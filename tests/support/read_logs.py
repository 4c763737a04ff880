"""The records of a pinned log as a replay reads them: in log order, with ids, times and problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.lake.event_log import PinnedLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.stages.counted import counted_log, reading_tasks, slice_inputs
from jobs.replay.stages.judging import judged_batches
from jobs.runs import Slice
from jobs.spark.lazy_session import LazySession
from tests.support.spark_session import SparkSession
from windowlib.columnar.instants import problem_names


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """One record: its values by column (a text that is not UTF-8 is null), and what was read from it."""

    slice_no: int
    rank: int
    record_hash: int
    event_time_ms: int
    problem: str | None
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """The records in log order, the input of each slice, and the digests of the files."""

    records: tuple[ReadRecord, ...]
    slices: tuple[InputSums, ...]
    file_digests: Mapping[str, str]


def read_log(spark: SparkSession, pipeline: Pipeline, pinned: PinnedLog, slices: Sequence[Slice]) -> ReadLog:
    """Read the log as `plan --verify` and `explain` do."""
    chunk = ChunkLog.of(pipeline, pinned, slices)
    tasks = reading_tasks(LazySession.of(spark), chunk)
    digests = check_log_bytes(tasks, pinned)
    records: list[ReadRecord] = []
    with counted_log(tasks, chunk, Lake(root=pinned.uri)) as counted:
        for block in counted.layout.blocks:
            for judged in judged_batches(block, counted.plan):
                problems = problem_names(judged.problems).to_pylist()
                for place, values in enumerate(_plain(judged.rows)):
                    records.append(
                        ReadRecord(
                            slice_no=block.slice_no,
                            rank=int(judged.rank[place]),
                            record_hash=int(judged.hashes[place]),
                            event_time_ms=int(judged.event_time_ms[place]),
                            problem=problems[place],
                            record=values,
                        )
                    )
        inputs = slice_inputs(counted.scanned, len(slices))
    return ReadLog(records=tuple(records), slices=inputs, file_digests=digests)


def _plain(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the values of records. Times are integers, because Python's have fewer years."""
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
