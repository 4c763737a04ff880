"""Tells whether Python tasks can read the Parquet files of a pinned log in log order, without Spark's reader.

The check reads the footer of each file of the range (about 50 microseconds each), never a record.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.lake.arrow_types import is_same_type
from jobs.lake.delta_log import log_errors
from jobs.lake.event_log import PinnedLog
from jobs.lake.pinned_files import PinnedFile
from jobs.storage import file_system, is_remote, is_s3
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import SpecError
from windowlib.records.column_types import Node, spell_type

if TYPE_CHECKING:
    import pyarrow as pa

READERS = 4
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys in the footers of files whose dates are in the Julian calendar. Spark converts them while it reads."""


def direct_reading(log: PinnedLog, *, order: Sequence[str] | None = None, readers: int = READERS) -> str | None:
    """Return None if Python tasks can read the files of the range in log order, else the reason in one sentence.

    If the result is None:
    - Every file of `log.files` is a Parquet file at `log.place(file)` in the file system of the log, and
      all its rows belong to the log.
    - The log order inside a slice is `log.in_log_order()`, and inside a file the order of its rows (`file.appended`).
    - A file has each column of the log under its own name, with the Arrow type `arrow_type(node)` (strings and lists
      may be the large variants or dictionaries), or does not have it; its values are then null. The value of a
      partition column is `file.partition`, as text.

    Args:
        log: the log, pinned with its row ids if they give the order.
        order: the columns of the pipeline's `log.order`; None for the order of commits.
        readers: how many threads read footers.

    Raises:
        LogError: a file is damaged.
    """
    reason = next(_of_table(log, order), None)
    if reason is not None:
        return reason
    system, _root = file_system(log.uri)
    wanted = _wanted(log)

    def judge(file: PinnedFile) -> str | None:
        import pyarrow.parquet as pq

        with log_errors(log.uri, f"reading the footer of {file.path}"), system.open_input_file(log.place(file)) as data:
            footer = pq.read_metadata(data)
            found = _Footer(schema=footer.schema.to_arrow_schema(), keys=frozenset(footer.metadata or ()))
        return next(_of_file(log, file, found, wanted=wanted), None)

    with ThreadPoolExecutor(max_workers=readers) as pool:
        return next((one for one in pool.map(judge, log.files) if one is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footer:
    schema: "pa.Schema"
    keys: frozenset[bytes]


def _of_table(log: PinnedLog, order: Sequence[str] | None) -> Iterator[str]:
    """Yield the reasons that the metadata of the table gives."""
    layout = log.layout
    if order is not None:
        yield f"the pipeline orders records by columns ({', '.join(order)})"
    if is_remote(log.uri) and not is_s3(log.uri):
        yield f"the log is neither a directory nor in an S3 object store ({log.uri})"
    if layout.is_mapped:
        yield "the log maps column names (delta.columnMapping.mode)"
    for name in log.widened:
        yield f"the type of column {name!r} was widened"
    for name, node in layout.nodes.items():
        if (name in layout.partition_columns and node == "binary") or not _is_supported(node):
            yield f"column {name!r} has the type {spell_type(node)}"


def _is_supported(node: Node) -> bool:
    try:
        arrow_type(node)
    except SpecError:
        return False
    return True


def _wanted(log: PinnedLog) -> dict[str, "pa.DataType"]:
    """Return the Arrow type of each column that is in the files."""
    layout = log.layout
    return {name: arrow_type(node) for name, node in layout.nodes.items() if name not in layout.partition_columns}


def _of_file(
    log: PinnedLog, file: PinnedFile, footer: _Footer, *, wanted: Mapping[str, "pa.DataType"]
) -> Iterator[str]:
    """Yield the reasons that a file gives."""
    if file.part is not None:
        yield f"the file {file.path} has records of several slices"
    if file.appended is None:
        yield f"the Delta log gives no row ids of the file {file.path}"
    if is_remote(log.place(file)):
        yield f"the file {file.path} is not in the file system of the log"
    if log.layout.row_id_column in footer.schema.names:
        yield f"the file {file.path} was rewritten (such as by OPTIMIZE) and has its row ids in a column"
    if not footer.keys.isdisjoint(_OLD_CALENDAR):
        yield f"the file {file.path} has dates in the Julian calendar"
    yield from _of_columns(file, footer.schema, wanted)


def _of_columns(file: PinnedFile, schema: "pa.Schema", wanted: Mapping[str, "pa.DataType"]) -> Iterator[str]:
    names = set(schema.names)
    folded = {name.casefold() for name in names}
    for name, kind in wanted.items():
        if name not in names:
            if name.casefold() in folded:
                yield f"column {name!r} has other upper and lower case in the file {file.path}"
        elif not is_same_type(schema.field(name).type, kind):
            yield f"column {name!r} is {schema.field(name).type} in the file {file.path}, and {kind} in the log"
