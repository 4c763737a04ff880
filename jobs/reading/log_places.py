"""Chooses how an event log is opened, by `log.format` of the pipeline. The only place that knows all formats."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, assert_never

from cachetools import LRUCache

from jobs.lake.damage import log_errors
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.lake import Lake
from jobs.lake.log_version import LogPlace, LogTip, LogVersion
from jobs.lake.store import table_columns
from jobs.pipeline.models.log import LogFormat, PartitionType
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.upstream import is_log_table
from jobs.storage import file_system, is_remote, is_s3, names_in
from windowlib.errors import SpecError
from windowlib.libraries import pafs
from windowlib.records.tables import LEDGER, QUALITY_RESULTS, STATE_TABLES, TALLIES, WATERMARKS

_MOST_OPENED: Final = 2
"""A thread keeps so many opened logs: the list of the files of a log may be long."""


class _Opened(threading.local):
    """The newest versions that this thread has opened, by their places; None: each reader opens the log."""

    logs: LRUCache[str, LogVersion] | None = None


_OPENED: Final = _Opened()


@contextmanager
def opening_logs_once() -> Iterator[None]:
    """Let readers of this thread, one after the other, open the newest version of a log once."""
    before, _OPENED.logs = _OPENED.logs, LRUCache(_MOST_OPENED)
    try:
        yield
    finally:
        _OPENED.logs = before


@dataclass(frozen=True, slots=True)
class _OpenedOnce:
    """A log whose newest version is opened once (`LogPlace`)."""

    place: LogPlace
    logs: LRUCache[str, LogVersion] = field(repr=False, compare=False)

    @property
    def uri(self) -> str:
        return self.place.uri

    def open(self, version: int | None = None) -> LogVersion:
        if version is not None:
            return self.place.open(version)
        key = repr(self.place)
        if key not in self.logs:
            self.logs[key] = self.place.open()
        return self.logs[key]

    def is_newest(self, version: int) -> bool:
        return self.place.is_newest(version)

    def tip(self) -> LogTip | None:
        return self.place.tip()


def log_place(lake: Lake, pipeline: Pipeline) -> LogPlace:
    """Return the event log of a pipeline. In `opening_logs_once`, its newest version is opened once.

    Raises SpecError: as for `Lake.event_log` and `refuse_own_table`, or the tables of the pipeline would be among the
    files of the log.
    """
    place = _place_of(lake, pipeline)
    return place if _OPENED.logs is None else _OpenedOnce(place, _OPENED.logs)


def _place_of(lake: Lake, pipeline: Pipeline) -> LogPlace:
    log = pipeline.log
    if log.pipeline is not None:
        from jobs.reading.upstream_place import UpstreamPlace  # few pipelines need it

        return UpstreamPlace(lake=lake, pipeline=pipeline)
    uri = lake.event_log(pipeline)
    refuse_own_table(uri, f"{pipeline.source}: log.table")
    problem = tables_in_log(lake, pipeline)
    if log.format != "delta" and problem is not None:
        raise SpecError(problem)
    place = place_at(uri, log.format, partitions=log.partitions)
    if log.changes is not None:
        from jobs.lake.inserts_place import InsertsPlace  # few pipelines need it

        place = InsertsPlace(uri=uri)
    if log.history is not None:
        from jobs.lake.restored_place import RestoredPlace  # few pipelines need it

        place = RestoredPlace(place=place, history=log.history)
    return place


def tables_in_log(lake: Lake, pipeline: Pipeline) -> str | None:
    """Return the message that the tables of a pipeline are among the files of its log; None if they are elsewhere.

    Of a Delta log, that is only told once the pipeline has tables: no read takes them as records.
    """
    uri, log = lake.event_log(pipeline), pipeline.log
    if log.pipeline is not None or not holds_ledger(lake, pipeline.name, uri):
        return None
    why = {
        "delta": "where a full VACUUM of the log removes them, because the log does not name them",
        "parquet": "and all files there would belong to the log (format: parquet)",
        "iceberg": "where a removal of orphan files of the Iceberg table would remove them",
    }[log.format]
    return (
        f"{pipeline.source}: log.table: the pipeline {pipeline.name} writes its tables below {uri}, {why}; move the "
        "log to another directory, or rename the pipeline"
    )


def holds_ledger(lake: Lake, name: str, uri: str) -> bool:
    """Return whether a pipeline of this name would write its tables below a log."""
    directory, _, table = lake.ledger(name).rpartition("/")  # the table itself may be a link to another disk
    return f"{_real(directory)}/{table}/".startswith(f"{_real(uri)}/")


def _real(uri: str) -> str:
    """Return the place to which a path leads: that of a lake can be relative, and have links."""
    return uri.rstrip("/") if is_remote(uri) else os.path.realpath(uri)


def refuse_own_table(uri: str, what: str) -> None:
    """Refuse a table of a pipeline of Hindcast: it has rows that readers do not see, such as those of candidates.

    Raises SpecError: the place is such a table. The message begins with `what`.
    """
    parent, _, table = uri.rstrip("/").rpartition("/")
    is_own = table in {LEDGER, TALLIES, QUALITY_RESULTS, WATERMARKS, *STATE_TABLES} or is_log_table(table)
    if is_own and _is_ledger(f"{parent}/{LEDGER}"):
        pipeline = parent.rpartition("/")[2]
        raise SpecError(
            f"{what}: {uri} is a table of the pipeline {pipeline}, with rows of all its runs, also of those that "
            f"readers do not see; write `log: {{pipeline: {pipeline}}}`, whose records are what it has published "
            "(docs/how-to/chain.md)"
        )


def _is_ledger(uri: str) -> bool:
    """Return whether a table is a ledger of Hindcast, by its columns. The log of a bank may have the same name."""
    from jobs.ledger.events import ledger_schema  # only a log of such a name needs it

    if not names_in(f"{uri}/_delta_log"):
        return False
    return {*ledger_schema().names} <= table_columns(uri).keys()


def place_at(uri: str, log_format: LogFormat, *, partitions: Mapping[str, PartitionType] | None = None) -> LogPlace:
    """Return the event log at a place.

    `partitions` are the types of partition columns of Parquet files.
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


def found_format(uri: str) -> LogFormat:
    """Return the format of the log at a place: by its metadata, or by a Parquet file. `delta` if nothing tells it.

    Raises LogError: the place cannot be listed.
    """
    if is_remote(uri) and not is_s3(uri):
        return "delta"
    if uri.endswith(".metadata.json"):
        return "iceberg"
    with log_errors(uri, "listing its files"):
        system, root = file_system(uri)

        def names(directory: str, *, recursive: bool = False) -> list[str]:
            chosen = pafs.FileSelector(directory, recursive=recursive, allow_not_found=True)
            return [info.base_name for info in system.get_file_info(chosen)]

        if system.get_file_info(root).type == pafs.FileType.File or names(f"{root}/_delta_log"):
            return "delta"
        if any(name.endswith(".metadata.json") for name in names(f"{root}/metadata")):
            return "iceberg"
        return "parquet" if any(name.endswith(".parquet") for name in names(root, recursive=True)) else "delta"
