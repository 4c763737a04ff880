"""Reads the newest records of a table, at most a given number, with the columns that matter and their places."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from jobs.doctor.slice_candidates import SliceCandidate
from jobs.doctor.table_facts import FileFacts, TableFacts
from jobs.lake.conforming import stored_names
from jobs.lake.damage import log_errors
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.lake.row_tracking import ROW_ID_COLUMN, VERSION_COLUMN
from jobs.storage import file_system
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.instants import Codes, decodable, read_instants
from windowlib.columnar.watermark_steps import Int64s
from windowlib.errors import SpecError

HEAD_RECORDS: Final = 10_000
BATCH_RECORDS: Final = 65_536
_SLICE: Final = pa.field("slice_ms", pa.int64())
_PLACE: Final = (
    pa.field("commit", pa.int64()), pa.field("place", pa.int64()), pa.field("undecodable", pa.int8())
)  # fmt: skip
"""What a record has before its columns; see `Sample`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Records with their places in the log.

    `slice_ms` is the start of each record's slice (0 if nothing tells it), `commit` the version that appended it, and
    `place` its place in that commit. `undecodable` is not 0 where a text is not UTF-8. `is_whole`: all records were
    read. `has_order`: the commits tell the order of all these records.
    """

    rows: pa.Table
    slice_ms: Int64s
    commit: Int64s
    place: Int64s
    undecodable: Codes
    is_whole: bool
    has_order: bool

    @property
    def records(self) -> int:
        return int(self.rows.num_rows)


def readable_columns(facts: TableFacts) -> list[str]:
    """Return the columns with plain types that Arrow can read."""
    return [name for name, node in facts.log.nodes.items() if isinstance(node, str) and _type_of(facts, name)]


def read_head(facts: TableFacts) -> pa.Table:
    """Return the first records of the newest file that has some, with all readable columns.

    Raises LogError: the file is damaged or missing.
    """
    columns = readable_columns(facts)
    for file in sorted(facts.files, key=lambda newest: (newest.commit, newest.modified_ms, newest.path), reverse=True):
        if file.records != 0:
            return _read_file(facts, file, columns, most=HEAD_RECORDS).select(
                range(len(_PLACE), len(_PLACE) + len(columns))
            )
    return pa.table({name: pa.array([], _type_of(facts, name)) for name in columns})


def read_sample(facts: TableFacts, columns: Sequence[str], slices: SliceCandidate | None, *, most: int) -> Sample:
    """Return the newest records of a table.

    The files are chosen from the newest slice backwards, or from the newest commit if no partition tells the slice.
    Raises LogError: a file is damaged or missing.
    """

    def slice_of(file: FileFacts) -> int:
        at_ms = None if slices is None or slices.kind != "partition" else slices.of_partition(file.partition)
        return 0 if at_ms is None else at_ms

    asked = [name for name in columns if _type_of(facts, name) is not None]
    files = [file for file in facts.files if file.records != 0]
    files.sort(key=lambda file: (slice_of(file), file.commit, file.modified_ms, file.place, file.path), reverse=True)
    tables: list[pa.Table] = []
    left = most
    for file in files:
        if left <= 0:
            break
        own = _read_file(facts, file, asked, most=left)
        left -= own.num_rows
        tables.append(own.add_column(0, _SLICE, [np.full(own.num_rows, slice_of(file), dtype=np.int64)]))
    read = files[: len(tables)]
    whole = pa.concat_tables([*tables, _schema(facts, asked).insert(0, _SLICE).empty_table()]).combine_chunks()
    slice_ms, commit, place, undecodable = (column.to_numpy() for column in whole.columns[: 1 + len(_PLACE)])
    rows = whole.select(range(1 + len(_PLACE), whole.num_columns))
    if slices is not None and slices.kind == "time" and slices.columns[0] in rows.column_names:
        slice_ms = _floored(read_instants(rows[slices.columns[0]].combine_chunks(), None).ms, slices.every_ms)
    if slices is not None and slices.kind == "commits":
        slice_ms = _floored(_times_of(facts, commit), slices.every_ms)
    is_cut = any(
        file.records is not None and own.num_rows < file.records for file, own in zip(read, tables, strict=True)
    )
    return Sample(
        rows=rows,
        slice_ms=slice_ms,
        commit=commit,
        place=place,
        undecodable=undecodable,
        is_whole=len(read) == len(files) and left >= 0 and not is_cut,
        has_order=facts.is_tracked or not any(file.is_rewritten or file.commit < 0 for file in read),
    )


def _floored(ms: Int64s, every_ms: int) -> Int64s:
    return ms - ms % every_ms


def _times_of(facts: TableFacts, commit: Int64s) -> Int64s:
    """Return the time of the commit of each record; 0 if it is not known."""
    times = {own.version: own.at_ms for own in facts.commits if own.at_ms is not None}
    versions, places = np.unique(commit, return_inverse=True)
    return np.array([times.get(version, 0) for version in versions.tolist()], dtype=np.int64)[places]


def _type_of(facts: TableFacts, name: str) -> "pa.DataType | None":
    try:
        node = facts.log.nodes[name]
        return arrow_type(node) if isinstance(node, str) else None
    except (KeyError, SpecError):
        return None


def _schema(facts: TableFacts, columns: Sequence[str]) -> pa.Schema:
    """Return `_PLACE` and some columns. A column may have the name of another one, so they are taken by position."""
    return pa.schema([*_PLACE, *(pa.field(name, _type_of(facts, name)) for name in columns)])


def _read_file(facts: TableFacts, file: FileFacts, columns: Sequence[str], *, most: int) -> pa.Table:
    """Return the first records of a file, as `_schema` tells. Rows that a deletion vector marks as deleted are none."""
    system, _root = file_system(facts.uri)
    hidden = [facts.setting(name) for name in (VERSION_COLUMN, ROW_ID_COLUMN)]
    fields = [own for own in facts.log.fields if own["name"] in {*columns}.difference(facts.log.partition_columns)]
    batches: list[pa.RecordBatch] = []
    done = 0
    with log_errors(facts.uri, f"reading {file.path}"), system.open_input_file(place_of(facts.root, file.path)) as data:
        opened = open_parquet(data)
        names = zip(fields, stored_names(fields, opened.schema_arrow), strict=True)
        physical = {str(own["name"]): name for own, name in names if name is not None}
        wanted = [*physical.values(), *filter(None, hidden)]
        for stored in opened.iter_batches(batch_size=BATCH_RECORDS, columns=wanted):
            stored = stored.slice(0, most - done)  # noqa: PLW2901
            batch, problems = decodable(_typed(facts, file, stored, columns=columns, physical=physical))
            code = problems[0] if problems else np.zeros(stored.num_rows, dtype=np.int8)
            places = map(pa.array, (*_places(file, stored, hidden, first=done), code))
            rows = pa.RecordBatch.from_arrays([*places, *batch.columns], schema=_schema(facts, columns))
            if file.deleted is not None:
                rows = rows.filter(pa.array(file.deleted.is_kept(done, stored.num_rows)))
            batches.append(rows)
            done += stored.num_rows
            if done >= most:
                break
    return pa.Table.from_batches(batches, _schema(facts, columns))


def _typed(
    facts: TableFacts, file: FileFacts, stored: pa.RecordBatch, *, columns: Sequence[str], physical: dict[str, str]
) -> pa.RecordBatch:
    """Return a batch with the columns and types of the table. A column that the file does not have is null."""
    count = stored.num_rows
    arrays: list[Any] = []
    for name in columns:
        kind = _type_of(facts, name)
        if name in facts.log.partition_columns:
            text = pa.scalar(file.partition.get(name), pa.string())
            arrays.append(pa.repeat(text, count).cast(kind))
        elif name in physical:
            values = stored.column(physical[name])
            arrays.append(values if values.type.equals(kind) else values.cast(kind, safe=False))
        else:
            arrays.append(pa.nulls(count, kind))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _places(
    file: FileFacts, stored: pa.RecordBatch, hidden: Sequence[str | None], *, first: int
) -> tuple[Int64s, Int64s]:
    """Return the commit and place of each row. OPTIMIZE stores those of rewritten rows in hidden columns."""
    count = stored.num_rows
    usual = (np.full(count, file.commit, dtype=np.int64), file.place + first + np.arange(count, dtype=np.int64))
    places: list[Int64s] = []
    for name, own in zip(hidden, usual, strict=True):
        if name is not None and name in stored.schema.names:
            values = stored.column(name).cast(pa.int64())
            own = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False))  # noqa: PLW2901
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            own = np.where(is_null, usual[len(places)], own)  # noqa: PLW2901
        places.append(own)
    return places[0], places[1]
