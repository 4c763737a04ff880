"""Commits Parquet files to a Delta table with the statistics of their footers, and appends rows as such files."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from uuid import uuid4

from jobs.lake.arrow_types import is_stored_as
from jobs.lake.damage import reading
from jobs.lake.delta_tables import OpenedTable, expect_commits, open_table
from jobs.lake.durable_commits import commit_hooks, until_committed
from jobs.lake.parquet_files import write_parquet
from jobs.lake.store import bounded_columns
from jobs.lake.table_files import Attempt, TableFile
from jobs.storage import file_system
from windowlib.errors import InvariantBroken, StoreError
from windowlib.libraries import pa, pafs, pq
from windowlib.records.tables import PARTITION_COLUMNS

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

READERS = 4
WRITERS = 4
"""So many threads read and write files. An object store answers them in parallel."""
MAX_TEXT: Final = 32
"""How many characters of a text are stored, as in Delta on Spark."""
_LAST: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ONE: Final = date(1970, 1, 1)
Bound = int | str


def new_path(attempt: Attempt, name: str) -> str:
    """Return the path of a new file of an attempt, relative to the root of its table, in the usual directories.

    `name` ends with `.parquet`, and is new in this directory.
    """
    parts = [f"{column}={quote(value, safe='')}" for column, value in zip(PARTITION_COLUMNS, attempt, strict=True)]
    return "/".join([*parts, name])


def append_rows(uri: str, rows: "pa.Table", *, metadata: Mapping[str, str] = MappingProxyType({})) -> None:
    """Append rows to an existing table in one commit, as one file for each attempt.

    The rows have the columns of the partition, and may lack others. The commit stores `metadata` (name -> text)
    besides.
    Raises StoreError: as for `commit_files`.
    """
    if not rows.num_rows:
        return
    (system, root), bounded = file_system(uri), bounded_columns(uri)

    def write(part: tuple[Attempt, "pa.Table"]) -> _Footer:
        attempt, own = part
        file = TableFile(path=new_path(attempt, f"part-{uuid4()}.parquet"), attempt=attempt)
        write_parquet(f"{uri}/{file.path}", own, bounded=bounded)
        return _read_footer(system, root, file, bounded=bounded)

    with reading(uri), ThreadPoolExecutor(max_workers=WRITERS) as pool:
        footers = [*pool.map(write, _by_attempt(rows))]
    until_committed(uri, lambda: _commit(uri, footers, metadata))


def _by_attempt(rows: "pa.Table") -> "Iterator[tuple[Attempt, pa.Table]]":
    """Yield each attempt of some rows, and its rows without the columns of the partition."""
    columns = rows.drop_columns(list(PARTITION_COLUMNS))
    places: dict[Attempt, list[int]] = {}
    for place, attempt in enumerate(zip(*(rows[name].to_pylist() for name in PARTITION_COLUMNS), strict=True)):
        places.setdefault(attempt, []).append(place)
    for attempt in sorted(places):
        yield attempt, columns.take(places[attempt])


def commit_files(uri: str, files: Sequence[TableFile]) -> list[TableFile]:
    """Add files to an existing table in one commit, with the statistics from their footers. No row is read.

    A file without rows is not added. Nothing is committed if no file has rows. The paths of the files are relative to
    the root of the table and not encoded (`new_path`). The files are complete. Returns the files that were added, in
    the given order, with their records and bytes.
    Raises StoreError: the table cannot be read, a file cannot be read or has a column that the table does not have or
    that has another type, or another process committed first at every try.
    """
    (system, root), bounded = file_system(uri), bounded_columns(uri)

    with reading(uri), ThreadPoolExecutor(max_workers=READERS) as pool:
        footers = pool.map(lambda file: _read_footer(system, root, file, bounded=bounded), files)
        filled = [footer for footer in footers if footer.file.records]
    if filled:
        until_committed(uri, lambda: _commit(uri, filled, {}))
    return [footer.file for footer in filled]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footer:
    """A file that was read: its columns, and the action that adds it to its table."""

    file: TableFile
    schema: "pa.Schema"
    action: "AddAction"


def _read_footer(system: "pafs.FileSystem", root: str, file: TableFile, *, bounded: AbstractSet[str] | None) -> _Footer:
    # Spark reads a relative path with a colon in its first segment as a URI with a scheme.
    if ":" in file.path or file.path.startswith("/"):
        raise InvariantBroken(f"the path of a new file must be relative and without a colon, found {file.path!r}")
    place, partition = f"{root}/{file.path}", dict(zip(PARTITION_COLUMNS, file.attempt, strict=True))
    try:
        footer, action = add_action(system, place, path=file.path, partition=partition, bounded=bounded)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"the new file {place} cannot be read ({error}); run the slice again") from error
    file = replace(file, records=footer.num_rows, bytes=action.size)
    return _Footer(file=file, schema=footer.schema.to_arrow_schema(), action=action)


def add_action(
    system: "pafs.FileSystem",
    place: str,
    *,
    path: str,
    partition: Mapping[str, str],
    bounded: AbstractSet[str] | None = None,
) -> "tuple[pq.FileMetaData, AddAction]":
    """Return the footer of a complete file, and the action that adds it to a table with the statistics of the footer.

    `path` is its path in the table, which is not encoded. Only the columns `bounded` get bounds; None: all columns.
    """
    from deltalake.transaction import AddAction

    info = system.get_file_info(place)
    with system.open_input_file(place) as data:
        footer = pq.read_metadata(data)
    action = AddAction(  # it encodes the path
        path=path,
        size=info.size,
        partition_values=dict(partition),
        modification_time=(info.mtime_ns or 0) // 1_000_000,
        data_change=True,
        # deltalake 1.6.6 reads a pair of escaped surrogates as another character, so nothing is escaped.
        stats=json.dumps(file_statistics(footer, columns=bounded), ensure_ascii=False),
    )
    return footer, action


def _commit(uri: str, footers: Sequence[_Footer], metadata: Mapping[str, str]) -> None:
    from deltalake import CommitProperties

    table = open_table(uri)
    if table is None:
        raise StoreError(f"table {uri} does not exist, so no file can be added to it")
    schema = table.delta.schema()
    columns: Mapping[str, pa.DataType] = _columns(table)
    for footer in footers:
        for problem in _problems(footer, columns):
            raise StoreError(f"the new file {uri}/{footer.file.path} does not fit table {uri}: {problem}")
    table.delta.create_write_transaction(
        [footer.action for footer in footers],
        mode="append",
        schema=schema,
        partition_by=list(PARTITION_COLUMNS),
        commit_properties=CommitProperties(custom_metadata=dict(metadata)),
        post_commithook_properties=commit_hooks(uri),
    )
    expect_commits(uri)  # the transaction leaves the opened table as it was


def _columns(table: OpenedTable) -> dict[str, "pa.DataType"]:
    schema = pa.schema(table.delta.schema().to_arrow())
    return {field.name: field.type for field in schema if field.name not in PARTITION_COLUMNS}


def _problems(footer: _Footer, columns: Mapping[str, "pa.DataType"]) -> Iterator[str]:
    for field in footer.schema:
        if field.name not in columns:
            yield f"the table has no column {field.name!r}"
        elif not is_stored_as(field.type, columns[field.name]):
            yield f"column {field.name!r} is {field.type}, and {columns[field.name]} in the table"


def file_statistics(
    footer: "pq.FileMetaData", *, columns: AbstractSet[str] | None = None, max_text: int = MAX_TEXT
) -> dict[str, object]:
    """Return `numRecords`, and `minValues`, `maxValues` and `nullCount` of the columns that have them.

    If `columns` is given, no other columns get them. A bound of a text keeps `max_text` characters; a shortened upper
    bound is rounded up.
    """
    if columns is not None and not columns:
        return {"numRecords": footer.num_rows}
    schema = footer.schema.to_arrow_schema()
    statistics: dict[str, dict[str, Bound]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if column.max_definition_level > 1 or column.path != column.name or column.name not in schema.names:
            continue
        if columns is not None and column.name not in columns:
            continue
        nulls, bounds = _column(footer, index)
        if nulls is not None:
            statistics["nullCount"][column.name] = nulls
        if bounds is not None:
            low = _bound(bounds[0], schema.field(column.name).type, is_upper=False, max_text=max_text)
            high = _bound(bounds[1], schema.field(column.name).type, is_upper=True, max_text=max_text)
            if low is not None and high is not None:
                statistics["minValues"][column.name], statistics["maxValues"][column.name] = low, high
    return {"numRecords": footer.num_rows, **statistics}


def _column(footer: "pq.FileMetaData", index: int) -> tuple[int | None, tuple[object, object] | None]:
    """Return the number of nulls and the stored least and greatest value of a column; None for unknown."""
    nulls: int | None = 0
    low: object = None
    high: object = None
    is_bounded = True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        stats = chunk.statistics if chunk.is_stats_set else None
        nulls = nulls + stats.null_count if nulls is not None and stats is not None and stats.has_null_count else None
        if stats is None or not stats.has_min_max:
            # A group that has only nulls has no bounds, and needs none.
            is_empty = stats is not None and stats.has_null_count and stats.null_count == chunk.num_values
            is_bounded = is_bounded and is_empty
        else:
            low = stats.min_raw if low is None else min(low, stats.min_raw)
            high = stats.max_raw if high is None else max(high, stats.max_raw)
    return nulls, (low, high) if is_bounded and low is not None else None


def _bound(raw: object, kind: "pa.DataType", *, is_upper: bool, max_text: int) -> Bound | None:
    """Return a bound as Delta writes it, never inside of the true bound; None if it cannot be written."""
    if isinstance(raw, bytes):
        return _text(raw, is_upper=is_upper, max_text=max_text) if is_stored_as(kind, pa.string()) else None
    if not isinstance(raw, int) or isinstance(raw, bool):
        return None
    if pa.types.is_signed_integer(kind):
        return raw
    return _time(raw, kind, is_upper=is_upper)


def _time(raw: int, kind: "pa.DataType", *, is_upper: bool) -> str | None:
    try:
        if pa.types.is_date32(kind):
            return (_DAY_ONE + timedelta(days=raw)).isoformat()
        if not pa.types.is_timestamp(kind) or kind.unit != "us":
            return None
        at_ms = -(-raw // 1_000) if is_upper else raw // 1_000  # Delta keeps milliseconds
        text = (_EPOCH + timedelta(milliseconds=at_ms)).replace(tzinfo=None).isoformat(timespec="milliseconds")
    except OverflowError:  # a year outside 1 to 9999
        return None
    return text if kind.tz is None else f"{text}Z"


def _text(raw: bytes, *, is_upper: bool, max_text: int) -> str | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if len(text) <= max_text:
        return text
    if not is_upper:
        return text[:max_text]
    # Readers compare texts by code points. The greatest one makes the shortened text greater than the whole text.
    return text if _LAST in text[max_text:] else text[:max_text] + _LAST
