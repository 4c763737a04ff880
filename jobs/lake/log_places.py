"""Chooses how an event log is opened, by `log.format` of the pipeline. The only place that knows all formats."""

from collections.abc import Mapping
from typing import assert_never

from jobs.lake.delta_place import DeltaPlace
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogPlace
from jobs.pipeline.models.log import LogFormat, PartitionType
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.errors import SpecError


def log_place(lake: Lake, pipeline: Pipeline) -> LogPlace:
    """Return the event log of a pipeline.

    Raises:
        SpecError: as for `Lake.event_log`, or the tables of the pipeline would be among the files of the log.
    """
    uri, log = lake.event_log(pipeline), pipeline.log
    if log.format == "parquet" and f"{lake.ledger(pipeline.name)}/".startswith(f"{uri.rstrip('/')}/"):
        raise SpecError(
            f"{pipeline.source}: log.table: the pipeline {pipeline.name} writes its tables below {uri}, and all files "
            f"there would belong to the log (format: {log.format}); move the log to another directory, or rename the "
            "pipeline"
        )
    if log.changes is not None:
        from jobs.lake.inserts_place import InsertsPlace  # few pipelines need it

        return InsertsPlace(uri=uri)
    return place_at(uri, log.format, partitions=log.partitions)


def place_at(uri: str, log_format: LogFormat, *, partitions: Mapping[str, PartitionType] | None = None) -> LogPlace:
    """Return the event log at a place.

    Args:
        uri: the place.
        log_format: what is there.
        partitions: the types of partition columns of Parquet files.
    """
    match log_format:
        case "delta":
            return DeltaPlace(uri=uri)
        case "parquet":
            from jobs.lake.parquet_place import ParquetPlace  # few pipelines need it

            return ParquetPlace(uri=uri, partitions=partitions or {})
        case "iceberg":
            from jobs.lake.iceberg_place import IcebergPlace  # pyiceberg takes 0.5 s to import

            return IcebergPlace(uri=uri)
        case _:
            assert_never(log_format)
