"""Which chunks can run through files, and why the others cannot."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.engine.engine import Engine
from jobs.lake.direct_reading import direct_reading
from jobs.lake.event_log import PinnedLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.reading import log_reading
from jobs.replay.chunk.time_steps import needs_pass
from jobs.runs import Slice
from jobs.storage import is_remote, is_s3
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.instants import can_read_instants
from windowlib.kernels.coverage import why_not_combined
from windowlib.records.column_types import spell_type

if TYPE_CHECKING:
    from jobs.replay.chunk.bucket_plan import ChunkTables
    from jobs.replay.sizes import Way

_SOURCES = ("string", "long", "integer", "short", "byte")
"""The types of a source column whose texts Arrow and Spark spell alike."""


def why_not_files(
    pipeline: Pipeline,
    lake: Lake,
    log: PinnedLog,
    *,
    written: "ChunkTables",
    slices: Sequence[Slice],
    way: "Way" = "auto",
) -> str | None:
    """Return None if a chunk can run through files, else the reason as one sentence.

    Args:
        pipeline: the pipeline.
        lake: where its tables are.
        log: the log, pinned with row ids.
        written: the engine and the tables of the pipeline over this log.
        slices: the slices of the chunk.
        way: `frames` if the replay must use DataFrames.

    Raises:
        LogError: a file of the log is damaged.
    """
    if way == "frames":
        return "the sizes of the replay ask for DataFrames"
    if is_remote(lake.root) and not is_s3(lake.root):
        return f"the lake is neither a directory nor in an S3 object store ({lake.root})"
    reason = next(_of_columns(pipeline, log, written=written, slices=slices), None)
    return reason or direct_reading(log, order=pipeline.log.order_columns)


def _of_columns(
    pipeline: Pipeline, log: PinnedLog, *, written: "ChunkTables", slices: Sequence[Slice]
) -> Iterator[str]:
    """Yield the columns whose values only Spark reads as the definition asks."""
    nodes, engine = log.nodes, written.engine
    reading = log_reading(pipeline, log, slices, needs_clock=engine.needs_clock)
    for time in (reading.event_time, reading.arrival_time, reading.gap):
        if time is not None and not can_read_instants(arrow_type(nodes[time.name])):
            yield f"column {time.name!r} holds times of type {spell_type(nodes[time.name])}"
    if reading.arrival_time is not None and nodes[reading.arrival_time.name] == "string":
        yield f"column {reading.arrival_time.name!r} holds arrival times as texts"
    if reading.record_id and not _can_name_records(arrow_type(nodes[reading.record_id])):
        yield f"column {reading.record_id!r} holds record ids of type {spell_type(nodes[reading.record_id])}"
    source = engine.time.source
    if source is not None and nodes[source] not in _SOURCES:
        yield f"column {source!r} holds sources of type {spell_type(nodes[source])}"


def _can_name_records(kind: pa.DataType) -> bool:
    """Return whether Arrow and Spark spell the values of a record id of this type alike."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind))


def why_not_partials(engine: Engine) -> str | None:
    """Return why tasks exchange single records, as one sentence; None if they combine them first."""
    if needs_pass(engine):
        return "the watermark depends on more than the greatest event time so far"
    return why_not_combined(engine.operator, engine.layout)
