"""Chooses how an event log is opened, by `log.format` of the pipeline. The only place that knows all formats."""

from collections.abc import Mapping
from typing import assert_never

from jobs.lake.delta_source import DeltaSource
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogSource
from jobs.pipeline.models.log import LogFormat, PartitionType
from jobs.pipeline.models.pipeline import Pipeline


def log_source(lake: Lake, pipeline: Pipeline) -> LogSource:
    """Return the event log of a pipeline.

    Raises:
        SpecError: as for `Lake.event_log`.
    """
    return source_at(lake.event_log(pipeline), pipeline.log.format, partitions=pipeline.log.partitions)


def source_at(uri: str, log_format: LogFormat, *, partitions: Mapping[str, PartitionType] | None = None) -> LogSource:
    """Return the event log at a place.

    Args:
        uri: the place.
        log_format: what is there.
        partitions: the types of partition columns of Parquet files.
    """
    match log_format:
        case "delta":
            return DeltaSource(uri=uri)
        case "parquet":
            from jobs.lake.parquet_source import ParquetSource  # few pipelines need it

            return ParquetSource(uri=uri, partitions=partitions or {})
        case _:
            assert_never(log_format)
