"""Finds records of the event log by the value of one column, or a part of it. No Spark.

Arrow reads the files one by one, because deltalake has no dataset for a table with mapped columns, deletion vectors,
widened types, or files outside the table (a shallow clone).
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.lake.covered_files import CoveredFile, check_file
from jobs.lake.delta_log import LogTable, log_errors, place_of
from jobs.lake.known_log import REWRITE
from jobs.lake.parquet_files import parquet_format
from jobs.storage import file_system

if TYPE_CHECKING:
    import pyarrow.fs as pafs

READERS = 8
_PARTITION_TYPES = {"date": "date32", "integer": "int32", "long": "int64", "short": "int16", "byte": "int8"}


Search = Callable[[str, str, Mapping[str, Any]], CoveredFile | None]
"""(path in the Delta log, place, values of the partition columns) -> a file to search; None if it is not searched."""


def find_record(log: LogTable, column: str, value: str, *, search: Search | None = None) -> dict[str, Any] | None:
    """Return a record whose `column`, as text, equals `value`; None if there is no such record.

    Args:
        log: the log.
        column: the logical name of a column.
        value: the text to find.
        search: chooses the files, and tells with which digest each is compared. None: all files, without a digest.

    Returns:
        The record's values by logical column name, as plain Python values.

    Raises:
        LogError: a data file is lost, damaged, or not as an earlier reading has found it.
    """
    system, root = file_system(log.uri)
    search = search or partial(_without_digest, log)
    with ThreadPoolExecutor(max_workers=READERS) as readers:
        files = [(file, values) for path, place, values in _files(log, root) if (file := search(path, place, values))]
        found = readers.map(lambda file: _in_file(log, system, file, wanted=(column, value)), files)
        return next((one for one in found if one is not None), None)


def values_with(
    log: LogTable, column: str, part: str, *, search: Search, most: int
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return different values of `column`, as texts, that have `part` in them, in upper or lower case.

    Only this column of the files is read.

    Args:
        log: the log.
        column: the logical name of a column.
        part: the text to find.
        search: chooses the files, and tells with which digest each is compared.
        most: how many values of one file to return. `part` itself is returned first.

    Returns:
        The values, each with the values of the partition columns of its file.

    Raises:
        LogError: as for `find_record`.
    """
    system, root = file_system(log.uri)
    with ThreadPoolExecutor(max_workers=READERS) as readers:
        files = [(file, values) for path, place, values in _files(log, root) if (file := search(path, place, values))]
        found = readers.map(lambda file: _values_in_file(log, system, file, wanted=(column, part, most)), files)
        return [(value, partition) for values, (_, partition) in zip(found, files, strict=True) for value in values]


def _values_in_file(
    log: LogTable,
    system: "pafs.FileSystem",
    file: tuple[CoveredFile, Mapping[str, Any]],
    *,
    wanted: tuple[str, str, int],
) -> list[str]:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from windowlib.columnar.undecodable import escaped, without_undecodable

    (covered, partition), (column, part, most) = file, wanted
    if column in partition:
        value = str(partition[column])
        return [value] if part.lower() in value.lower() else []
    with log_errors(log.uri, f"reading the data file {covered.place}"):
        check_file(system, covered, footer_only=True)
        dataset = ds.dataset(covered.place, format=parquet_format(), filesystem=system)
        stored = log.physical[column]
        if stored not in dataset.schema.names:
            return []
        text = ds.field(stored).cast("string")
        rows = dataset.to_table(columns={"value": text}, filter=pc.match_substring(text, part, ignore_case=True))
        values = without_undecodable(rows["value"].combine_chunks(), escaped)
        found = [str(value) for value in values.unique().to_pylist()]
    return [*(value for value in found if value == part), *(value for value in found if value != part)][:most]


def _without_digest(log: LogTable, path: str, place: str, _values: Mapping[str, Any]) -> CoveredFile:
    return CoveredFile(uri=log.uri, path=path, place=place, owner="a data file", way_on=REWRITE)


def _files(log: LogTable, root: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the path and the place of each data file, and the values of its partition columns."""
    return [
        (
            file.path,
            place_of(root, file.path),
            {name: _partition_value(log, name, text) for name, text in file.partition.items()},
        )
        for file in log.files()
    ]


def _partition_value(log: LogTable, name: str, text: str | None) -> object:
    import pyarrow as pa

    kind = log.nodes[name]
    if text is None or not isinstance(kind, str) or kind not in _PARTITION_TYPES:
        return text
    return pa.scalar(text).cast(_PARTITION_TYPES[kind]).as_py()


def _in_file(
    log: LogTable, system: "pafs.FileSystem", file: tuple[CoveredFile, Mapping[str, Any]], *, wanted: tuple[str, str]
) -> dict[str, Any] | None:
    import pyarrow.dataset as ds

    from windowlib.columnar.undecodable import escaped, without_undecodable

    (covered, partition), (column, value) = file, wanted
    if column in partition and str(partition[column]) != value:
        return None
    with log_errors(log.uri, f"reading the data file {covered.place}"):
        check_file(system, covered, footer_only=True)
        dataset = ds.dataset(covered.place, format=parquet_format(), filesystem=system)
        stored = log.physical[column]
        if column not in partition and stored not in dataset.schema.names:
            return None
        condition = None if column in partition else ds.field(stored).cast("string") == value
        rows = dataset.to_table(filter=condition)
    if not rows.num_rows:
        return None
    first = {
        name: without_undecodable(column.slice(0, 1).combine_chunks(), escaped)[0].as_py()
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    return {name: partition[name] if name in partition else first.get(log.physical[name]) for name in log.nodes}
