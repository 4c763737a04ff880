"""Tells whether Arrow can read the Parquet files of a pinned log. If not, Spark reads them.

The check reads the footer of each file of the range (about 50 microseconds each), never a record.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jobs.lake.conforming import refusals, stored_names, without_id
from jobs.lake.damage import log_errors
from jobs.lake.event_log import PinnedLog
from jobs.lake.parquet_files import OLD_CALENDAR, open_parquet
from jobs.lake.pinned_files import PinnedFile
from jobs.storage import file_system, is_remote, is_s3
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import LogError, SpecError
from windowlib.libraries import pa
from windowlib.records.column_types import Node, spell_type

READERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectReading:
    """What the footers of the files of a range say.

    `why_spark` is the reason, in one sentence, why only Spark reads the files; None if Arrow reads them. Then every
    file of `log.files` is at `log.place(file)` in the file system of the log, and `conformed` gives its columns the
    types `arrow_type(log.nodes[..])`. A column that a file does not have is null there. The value of a partition column
    is in `file.partition`, as text.

    `compacted` are the paths of the files that have the ids and commits of their rows in columns, because OPTIMIZE or
    another commit that moves records wrote them.
    """

    why_spark: str | None
    compacted: frozenset[str] = frozenset()


def direct_reading(log: PinnedLog) -> DirectReading:
    """Read the footers of the range.

    Raises LogError: a file is damaged, it lacks field ids that the log needs, it has a column twice, or only Spark
    reads it and the log is no table of Spark.
    """
    reason = next(_of_table(log), None)
    if reason is not None:
        return _by_spark(log, reason)
    system, _root = file_system(log.uri)

    def read(file: PinnedFile) -> tuple[str | None, bool]:
        doing = f"reading the footer of {file.path} (slice {file.slice_id})"
        with log_errors(log.uri, doing), system.open_input_file(log.place(file)) as data:
            footer = open_parquet(data, coerce_int96_timestamp_unit="us")
            schema, keys = footer.schema_arrow, frozenset(footer.metadata.metadata or ())
        _refuse_without_ids(log, file, schema)
        old = None if keys.isdisjoint(OLD_CALENDAR) else f"the file {file.path} has dates in the Julian calendar"
        reason = old or next(_of_columns(log, file, schema), None)
        return reason, log.layout.row_id_column in schema.names

    with ThreadPoolExecutor(max_workers=READERS) as pool:
        footers = list(pool.map(read, log.files))
    why_spark = next((reason for reason, _ in footers if reason is not None), None)
    if why_spark is not None:
        return _by_spark(log, why_spark)
    return DirectReading(
        why_spark=None,
        compacted=frozenset(
            file.path for file, (_, is_compacted) in zip(log.files, footers, strict=True) if is_compacted
        ),
    )


def _by_spark(log: PinnedLog, why: str) -> DirectReading:
    if not log.table.is_read_by_spark:
        raise LogError(
            f"event log {log.uri} cannot be read: {why}. Only Spark reads that, and only in a Delta table without "
            "`log.changes`; write the records into such a table (docs/reference/logs.md)"
        )
    return DirectReading(why_spark=why)


def _refuse_without_ids(log: PinnedLog, file: PinnedFile, schema: "pa.Schema") -> None:
    """Refuse a file with a column that has the name of a column of the log, and no id that tells whether it is that."""
    if log.layout.needs_ids:
        for name in without_id(pa.struct([*schema]), {"type": "struct", "fields": log.layout.stored_fields}):
            raise LogError(
                f"event log {log.uri} cannot be read: column {name!r} of the file {file.path} (slice {file.slice_id}) "
                "has no field id, and the columns of this table are found by their ids and not by their names. Write "
                "the file again with the ids of the table, or replay a copy of the table"
            )


def _of_table(log: PinnedLog) -> Iterator[str]:
    """Yield the reasons that the metadata of the table gives."""
    layout = log.layout
    if is_remote(log.uri) and not is_s3(log.uri):
        yield f"the log is neither a directory nor in an S3 object store ({log.uri})"
    for name, node in layout.nodes.items():
        if (name in layout.partition_columns and node == "binary") or not _is_supported(node):
            yield f"column {name!r} has the type {spell_type(node)}"
    for file in log.files:
        if is_remote(log.place(file)):
            yield f"the file {file.path} is not in the file system of the log"


def _is_supported(node: Node) -> bool:
    try:
        arrow_type(node)
    except SpecError:
        return False
    return True


def _of_columns(log: PinnedLog, file: PinnedFile, schema: "pa.Schema") -> Iterator[str]:
    """Yield the reasons that the columns of a file give."""
    fields, counts = log.layout.stored_fields, Counter(schema.names)
    for field, stored in zip(fields, stored_names(fields, schema), strict=True):
        if counts[stored] > 1:
            raise LogError(
                f"event log {log.uri} cannot be read: the file {file.path} (slice {file.slice_id}) has {counts[stored]}"
                f" columns of the name {stored!r}; write the file again with different names"
            )
        if stored is not None:
            for reason in refusals(schema.field(stored).type, field["type"], name=str(field["name"])):
                yield f"{reason} ({file.path})"
