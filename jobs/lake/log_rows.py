"""Finds records of the event log by the value of one column, or a part of it. No Spark.

Arrow reads the files one by one, because deltalake has no dataset for a table with mapped columns, deletion vectors,
widened types, or files outside the table (a shallow clone).
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from jobs.expressions.derived_columns import Derivation
from jobs.lake.arrow_types import without_views
from jobs.lake.conforming import stored_names
from jobs.lake.covered_files import CoveredFile, check_file
from jobs.lake.damage import log_errors
from jobs.lake.known_log import REWRITE
from jobs.lake.log_files import place_of
from jobs.lake.log_version import DataFile, DeletedRows, LogVersion
from jobs.lake.parquet_files import parquet_format
from jobs.storage import file_system
from windowlib.columnar.arrow import arrow_type
from windowlib.libraries import np, pa, pads, pafs, pc
from windowlib.records.change_feed import CHANGE_TYPE, INSERT

READERS = 8
MOST_OF_FILE = 100
"""So many records with one value are taken from a file at most."""
NOTHING = Derivation()
_PARTITION_TYPES = {"date": "date32", "integer": "int32", "long": "int64", "short": "int16", "byte": "int8"}


Search = Callable[[DataFile, str, Mapping[str, Any]], CoveredFile | None]
"""(data file, place, values of the partition columns) -> a file to search; None if it is not searched."""


class _SearchedFile(NamedTuple):
    """A file to search, the values of its partition columns, and its deleted rows."""

    covered: CoveredFile
    partition: Mapping[str, Any]
    deleted: DeletedRows | None


def find_records(
    log: LogVersion, column: str, value: str, *, search: Search | None = None, derivation: Derivation = NOTHING
) -> Iterator[dict[str, Any]]:
    """Yield the records whose `column`, as text, equals `value`: at most `MOST_OF_FILE` of each file.

    `search` chooses the files, and tells with which digest each is compared. None: all files, without a digest. The
    column may be one of the log or of the derivation.

    Yields:
        A record's values by logical column name, as plain Python values.

    Raises:
        LogError: a data file is lost, damaged, or not as an earlier reading has found it.
    """
    system, root = file_system(log.uri)
    search = search or partial(_without_digest, log)
    with ThreadPoolExecutor(max_workers=READERS) as readers:
        files = _searched(log, root, search)
        records = readers.map(
            lambda file: _in_file(log, system, file, wanted=(column, value), derivation=derivation), files
        )
        for own in records:
            yield from own


def values_with(
    log: LogVersion, column: str, part: str, *, search: Search, most: int, derivation: Derivation = NOTHING
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return different values of `column`, as texts, that have `part` in them, in upper or lower case.

    Only this column of the files is read. At most `most` values of one file are returned, `part` itself first. The
    other arguments are those of `find_records`. Each value comes with the values of the partition columns of its file.
    Raises LogError: as for `find_records`.
    """
    system, root = file_system(log.uri)
    with ThreadPoolExecutor(max_workers=READERS) as readers:
        files = _searched(log, root, search)
        lists = readers.map(
            lambda file: _values_in_file(log, system, file, wanted=(column, part, most), derivation=derivation), files
        )
        return [(value, file.partition) for values, file in zip(lists, files, strict=True) for value in values]


def _values_in_file(
    log: LogVersion,
    system: "pafs.FileSystem",
    file: _SearchedFile,
    *,
    wanted: tuple[str, str, int],
    derivation: Derivation,
) -> list[str]:
    from windowlib.columnar.undecodable import escaped, without_undecodable

    (covered, partition, _), (column, part, most) = file, wanted
    if column in partition:
        value = str(partition[column])
        return [value] if part.lower() in value.lower() else []
    with log_errors(log.uri, f"reading the data file {covered.place}"):
        check_file(system, covered, footer_only=True)
        dataset = _dataset(log, system, file)
        if column in derivation.nodes:
            batches = _derived_texts(log, dataset, partition, column=column, derivation=derivation)
            parts = (texts.filter(pc.match_substring(texts, part, ignore_case=True)) for _, texts in batches)
            matching = list(dict.fromkeys(str(value) for texts in parts for value in texts.unique().to_pylist()))
        elif (stored := _stored(log, dataset)[column]) is not None:
            text = pads.field(stored).cast("string")
            rows = dataset.to_table(columns={"value": text}, filter=pc.match_substring(text, part, ignore_case=True))
            values = without_undecodable(rows["value"].combine_chunks(), escaped)
            matching = [str(value) for value in values.unique().to_pylist()]
        else:
            return []
    return sorted(matching, key=lambda value: value != part)[:most]


def _dataset(log: LogVersion, system: "pafs.FileSystem", file: _SearchedFile) -> "pads.Dataset":
    """Return the rows of a file that belong to the log.

    Rows that a deletion vector marks as deleted do not, and of a file of the change data feed only those that were
    inserted do.
    """
    place = file.covered.place
    stored = pads.dataset(place, format=parquet_format(), filesystem=system)
    schema = without_views(stored.schema)
    if schema != stored.schema:
        stored = pads.dataset(place, schema=schema, format=parquet_format(), filesystem=system)
    if file.deleted is not None:
        rows = stored.to_table()
        kept = np.flatnonzero(file.deleted.is_kept(0, rows.num_rows))
        return pads.dataset(rows.take(pa.array(kept)))
    if CHANGE_TYPE in schema.names and CHANGE_TYPE not in log.nodes:
        rows = stored.to_table()
        return pads.dataset(rows.filter(pc.equal(rows[CHANGE_TYPE], INSERT)))
    return stored


def _stored(log: LogVersion, dataset: "pads.Dataset") -> dict[str, str | None]:
    """Return column -> its name in a file; None if the file does not have it."""
    return dict(zip(log.nodes, stored_names(log.fields, dataset.schema), strict=True))


def _derived_texts(
    log: LogVersion, dataset: "pads.Dataset", partition: Mapping[str, Any], *, column: str, derivation: Derivation
) -> "Iterator[tuple[pa.RecordBatch, pa.Array]]":
    """Yield the batches of a file, each with the values of a derived column as texts."""
    from jobs.expressions.evaluation import derive
    from windowlib.columnar.instants import decodable

    names = _stored(log, dataset)
    for batch in dataset.to_batches():
        if batch.num_rows:
            stored = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns = {name: stored[own] for name, own in names.items() if own is not None}
            values = {**columns, **partition}
            derived = derive(decodable(leaf_columns(log, derivation, values))[0], derivation.unfiltered())
            yield batch, derived.rows.column(column).cast("string")


def leaf_columns(log: LogVersion, derivation: Derivation, values: Mapping[str, Any]) -> "pa.RecordBatch":
    """Return the columns that a derivation reads.

    `values` has an array for each column of a file, and one value for a partition column. A column without a value is
    null.
    """
    count = max((len(array) for array in values.values() if isinstance(array, pa.Array)), default=1)
    columns: dict[str, pa.Array] = {}
    for name in sorted({leaf.column for leaf in derivation.leaves.values()}):
        kind, value = arrow_type(log.nodes[name]), values.get(name)
        array = (
            value if isinstance(value, pa.Array) else pa.array([value] * count, None if type(value) is str else kind)
        )
        columns[name] = array.cast(kind)
    return pa.RecordBatch.from_pydict(columns or {"nothing": pa.nulls(count)})


def _without_digest(log: LogVersion, data: DataFile, place: str, _values: Mapping[str, Any]) -> CoveredFile:
    return CoveredFile(uri=log.uri, path=data.path, place=place, owner="a data file", way_on=REWRITE)


def _searched(log: LogVersion, root: str, search: Search) -> list[_SearchedFile]:
    """Return the files that a search chooses, without those that a clean-up of the table has removed."""
    searched = []
    for file in log.files():
        partition = {name: _partition_value(log, name, text) for name, text in file.partition.items()}
        covered = search(file, place_of(root, file.path), partition)
        if covered is not None:
            searched.append(_SearchedFile(covered, partition, file.deleted))
    removed = log.removed(file.covered.path for file in searched)
    return [file for file in searched if file.covered.path not in removed]


def _partition_value(log: LogVersion, name: str, text: str | None) -> object:
    kind = log.nodes[name]
    if text is None or not isinstance(kind, str) or kind not in _PARTITION_TYPES:
        return text
    return pa.scalar(text).cast(_PARTITION_TYPES[kind]).as_py()


def _in_file(
    log: LogVersion, system: "pafs.FileSystem", file: _SearchedFile, *, wanted: tuple[str, str], derivation: Derivation
) -> list[dict[str, Any]]:
    from windowlib.columnar.python_values import python_values
    from windowlib.columnar.undecodable import escaped, without_undecodable

    (covered, partition, _), (column, value) = file, wanted
    if column in partition and str(partition[column]) != value:
        return []
    with log_errors(log.uri, f"reading the data file {covered.place}"):
        check_file(system, covered, footer_only=True)
        dataset = _dataset(log, system, file)
        if column in derivation.nodes:
            pairs = _derived_texts(log, dataset, partition, column=column, derivation=derivation)
            matching = (batch.filter(pc.equal(texts, value)) for batch, texts in pairs)
            rows = pa.Table.from_batches([batch for batch in matching if batch.num_rows], dataset.schema)
        else:
            stored = _stored(log, dataset).get(column)  # an earlier version may lack it
            if column not in partition and stored is None:
                return []
            condition = None if column in partition else pads.field(stored).cast("string") == value
            rows = dataset.to_table(filter=condition)
    first = rows.slice(0, MOST_OF_FILE)
    values = {
        name: python_values(without_undecodable(column.combine_chunks(), escaped))
        for name, column in zip(first.column_names, first.columns, strict=True)
    }
    absent = [None] * first.num_rows
    columns = [
        [partition[name]] * first.num_rows if name in partition else absent if own is None else values[own]
        for name, own in _stored(log, dataset).items()
    ]
    return [dict(zip(log.nodes, row, strict=True)) for row in zip(*columns, strict=True)]
