"""Finds a single record of the event log by the value of one column. No Spark.

Arrow reads the files one by one, because deltalake has no dataset for a table with mapped columns, deletion vectors,
widened types, or files outside the table (a shallow clone).
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from jobs.lake.delta_log import LogTable, log_errors, place_of
from jobs.storage import file_system

if TYPE_CHECKING:
    import pyarrow.fs as pafs

READERS = 8
_PARTITION_TYPES = {"date": "date32", "integer": "int32", "long": "int64", "short": "int16", "byte": "int8"}


Keep = Callable[[Mapping[str, Any]], bool]
"""Returns whether the files with these values of the partition columns are searched."""


def find_record(log: LogTable, column: str, value: str, *, keep: Keep | None = None) -> dict[str, Any] | None:
    """Return a record whose `column`, as text, equals `value`; None if there is no such record.

    Args:
        log: the log.
        column: the logical name of a column.
        value: the text to find.
        keep: restricts the search to some files; all when None.

    Returns:
        The record's values by logical column name, as plain Python values.

    Raises:
        LogError: a data file is lost or damaged.
    """
    system, root = file_system(log.uri)
    with ThreadPoolExecutor(max_workers=READERS) as readers:
        files = [file for file in _files(log, root) if keep is None or keep(file[1])]
        found = readers.map(lambda file: _in_file(log, system, file, wanted=(column, value)), files)
        return next((one for one in found if one is not None), None)


def _files(log: LogTable, root: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the path of each data file, and the values of its partition columns."""
    columns = {name: log.files(name) for name in log.partition_columns}
    if not columns:
        return []
    values: Iterator[dict[str, Any]] = (
        {name: _partition_value(log, name, files[index].value) for name, files in columns.items()}
        for index in range(len(next(iter(columns.values()))))
    )
    paths = [place_of(root, file.path) for file in next(iter(columns.values()))]
    return list(zip(paths, values, strict=True))


def _partition_value(log: LogTable, name: str, text: str | None) -> object:
    import pyarrow as pa

    kind = log.nodes[name]
    if text is None or not isinstance(kind, str) or kind not in _PARTITION_TYPES:
        return text
    return pa.scalar(text).cast(_PARTITION_TYPES[kind]).as_py()


def _in_file(
    log: LogTable, system: "pafs.FileSystem", file: tuple[str, Mapping[str, Any]], *, wanted: tuple[str, str]
) -> dict[str, Any] | None:
    import pyarrow.dataset as ds

    (place, partition), (column, value) = file, wanted
    if column in partition and str(partition[column]) != value:
        return None
    with log_errors(log.uri, f"reading the data file {place}"):
        dataset = ds.dataset(place, format="parquet", filesystem=system)
        stored = log.physical[column]
        if column not in partition and stored not in dataset.schema.names:
            return None
        condition = None if column in partition else ds.field(stored).cast("string") == value
        rows = dataset.to_table(filter=condition)
    if not rows.num_rows:
        return None
    first = {name: rows[name][0].as_py() for name in rows.column_names}
    return {name: partition[name] if name in partition else first.get(log.physical[name]) for name in log.nodes}
