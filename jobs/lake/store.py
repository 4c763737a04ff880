"""Creates, appends to and reads the Delta tables of a pipeline, without Spark.

Readers, the audit and the next slice see rows only by attempt (laws L4 and L5). So every read here names the
(slice_id, attempt_id) pairs whose rows it returns.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jobs.lake.damage import reading
from jobs.lake.delta_tables import MAX_ATTEMPTS, OpenedTable, checkpoint_interval, forget_table, open_table
from jobs.lake.durable_commits import commit_hooks, renew_properties, until_committed
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import parquet_format
from jobs.lake.stored_columns import is_stored, refuse_lost_columns, replace_columns
from jobs.lake.table_files import Attempt, TableFile
from jobs.storage import delta_options, file_system
from windowlib.errors import SpecError
from windowlib.libraries import pa, pads, pc
from windowlib.records.column_types import Node, field_node, spell_type, struct_fields
from windowlib.records.tables import (
    CHECKPOINT_TABLES,
    DUPLICATE_RECORDS,
    INVALID_RECORDS,
    LATE_RECORDS,
    PARTITION_COLUMNS,
    QUALITY_RESULTS,
    STATE_REMOVALS,
    TALLIES,
    UNASSIGNED_RECORDS,
    Table,
)

Share = tuple[int, int]
"""(i, n): every n-th file, from the i-th on, in the order of their paths. The n shares have each file once."""
WHOLE: Share = (0, 1)
"""All files."""

_UNREADABLE_FEATURES = frozenset({"columnMapping", "deletionVectors"})
"""Features of Delta that our tables do not have. Their files alone would give wrong rows."""
_ROLE = "hindcast.role"
"""Metadata key of a column's role, `key` or `value`. `ensure_table` uses it to refuse a change of role."""

_PROPERTIES = {
    # A rollback reads files of earlier publications, so files are kept longer than Delta's default of seven days.
    "delta.deletedFileRetentionDuration": "interval 60 days",
    # Each commit file that stays makes the next commit slower. Nothing reads older versions of these tables.
    "delta.logRetentionDuration": "interval 30 days",
}
_FORMER = {"delta.logRetentionDuration": "interval 365 days"}
"""What earlier versions of Hindcast have set. Tables with it get the present value."""

_BOUNDED_NAMES = "delta.dataSkippingStatsColumns"
_BOUNDED_COUNT = "delta.dataSkippingNumIndexedCols"
"""Delta's properties of the columns that have bounds in the statistics of a file: their names, or how many."""
_UNBOUNDED = (*CHECKPOINT_TABLES, STATE_REMOVALS, TALLIES, QUALITY_RESULTS, INVALID_RECORDS, DUPLICATE_RECORDS)
_BOUNDED: Mapping[str, Mapping[str, str]] = {
    **{name: {_BOUNDED_COUNT: "0"} for name in _UNBOUNDED},
    **{name: {_BOUNDED_NAMES: "event_time_ms"} for name in (LATE_RECORDS, UNASSIGNED_RECORDS)},
}
"""Bounds of all columns would double the time of a commit. Most of these tables are read by slice and attempt only."""


def ensure_table(uri: str, table: Table, *, attempts: int = MAX_ATTEMPTS) -> None:
    """Create the table if it does not exist, and add the columns that it lacks, nullable.

    Several processes may call this at once. A process whose commit fails because another one was first reads the table
    again and tries again. New fields of a struct (`record`, after the log got a new column) are not added here: the
    first rows that have them add them.

    Raises:
        SpecError: a column that a file has exists with another type, or changes from key to value or back.
        StoreError: the table cannot be read, or another process committed first at every try.
    """
    until_committed(uri, lambda: _ensure(uri, table), attempts=attempts)


def check_columns(uri: str, table: Table) -> None:
    """Refuse columns that the stored table, if there is one, does not take; raises as `ensure_table` does."""
    with reading(uri):
        stored = open_table(uri)
    if stored is not None:
        _new_columns(uri, stored, table)


def _new_columns(
    uri: str, stored: OpenedTable, table: Table
) -> tuple[list[Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """Return the columns that a stored table lacks, and those that take the place of one that no file has, by its name.

    Raises as `check_columns` does.
    """
    existing = {field["name"].lower(): field for field in json.loads(stored.delta.schema().to_json())["fields"]}
    wanted = {field["name"].lower(): field for field in _fields(table)}
    replaced = {}
    for name, field in wanted.items():
        problem = _problem(uri, existing[name], field) if name in existing else None
        if problem is None:
            continue
        former = existing[name]["name"]
        if is_stored(stored, {former, field["name"]}):
            raise problem
        replaced[former] = field
    return [field for name, field in wanted.items() if name not in existing], replaced


def _ensure(uri: str, table: Table) -> None:
    from deltalake import DeltaTable, Field, Schema

    table_ = open_table(uri)
    if table_ is None:
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": _fields(table)}))
        DeltaTable.create(
            uri,
            schema,
            mode="ignore",
            partition_by=list(PARTITION_COLUMNS),
            configuration={**_PROPERTIES, **checkpoint_interval(uri), **_BOUNDED.get(table.name, {})},
            storage_options=delta_options(uri),
        )
        forget_table(uri)
        return
    new, replaced = _new_columns(uri, table_, table)
    added = [Field.from_json(json.dumps(field)) for field in new]
    if replaced:
        replace_columns(table_, replaced)
    if renew_properties(uri, table_.delta, _PROPERTIES, former=_FORMER) or replaced:
        forget_table(uri)
    if added:
        refuse_lost_columns(table_, {field.name for field in added})
        table_.delta.alter.add_columns(added, post_commithook_properties=commit_hooks(uri))
        forget_table(uri)


def _fields(table: Table) -> list[Mapping[str, Any]]:
    roles = {name: {_ROLE: "key" if name in table.keys else "value"} for name in table.content}
    return [
        {**field_node(name, node), "metadata": roles.get(name, {})} for name, node in table.stored_columns().items()
    ]


def _problem(uri: str, existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> SpecError | None:
    """Return why a stored column does not take the values of a column of the spec; None if it does."""
    name, role, former = wanted["name"], wanted["metadata"].get(_ROLE), existing["metadata"].get(_ROLE)
    if name != existing["name"]:
        return SpecError(
            f"column {name!r} differs in case only from column {existing['name']!r} of table {uri}; use that name, or "
            "another one"
        )
    if not column_takes(existing["type"], wanted["type"]):
        if role == "key":
            return SpecError(
                f"key column {name!r} of table {uri} is a {spell_type(existing['type'])}, but the log makes it a "
                f"{spell_type(wanted['type'])}. A key column keeps its type as long as a row has it: give the pipeline "
                "a new name, or name as key a column of `log.columns` that has the former type, under another name "
                f"(such as cast({name} as {spell_type(existing['type'])}))"
            )
        kinds = f"is a {spell_type(existing['type'])}, but a replay now makes it a {spell_type(wanted['type'])}"
        return SpecError(
            f"column {name!r} of table {uri} {kinds}. It keeps its type as long as a row has it: rename it (acc_NAME: "
            "output NAME) in the pipeline file, or give the pipeline a new name. If only candidates and cancelled "
            "requests have it, `hindcast clean PIPELINE --remove` frees it, with `retention: {unpublished: 1d}`"
        )
    if role and former and role != former:
        return SpecError(
            f"column {name!r} of table {uri} was a {former} column, and the spec now makes it a {role} column. A row "
            "does not show which of the two it is. Give the output another name, or give the pipeline a new name"
        )
    return None


def table_columns(uri: str) -> dict[str, Node]:
    """Return a table's columns as they are stored, name -> type; empty if the table does not exist.

    Raises StoreError: the table's log cannot be read.
    """
    with reading(uri):
        table = open_table(uri)
        if table is None:
            return {}
        schema = json.loads(table.delta.schema().to_json())
    return {field["name"]: field["type"] for field in schema["fields"]}


def bounded_columns(uri: str) -> frozenset[str] | None:
    """Return the columns whose bounds are stored with each file of a table, so that readers skip files; None for all.

    Raises StoreError: the table's log cannot be read.
    """
    with reading(uri):
        table = open_table(uri)
        configuration = {} if table is None else table.delta.metadata().configuration
    if configuration.get(_BOUNDED_COUNT) == "0":
        return frozenset()
    names = configuration.get(_BOUNDED_NAMES)
    return None if names is None else frozenset(names.split(","))


def column_takes(existing: Node, wanted: Node) -> bool:
    """Return whether a column can store values of a type: the same type, or a struct whose common fields can."""
    if isinstance(existing, str) or isinstance(wanted, str):
        return existing == wanted
    if existing["type"] != "struct" or wanted["type"] != "struct":
        return spell_type(existing) == spell_type(wanted)
    fields = struct_fields(wanted)
    return all(column_takes(field["type"], fields.get(field["name"], field["type"])) for field in existing["fields"])


def dataset_of(table: OpenedTable, attempts: Iterable[Attempt], *, share: Share = WHOLE) -> "pads.FileSystemDataset":
    """Return the files of some attempts as an Arrow dataset. It has no row of another attempt.

    `DeltaTable.to_pyarrow_dataset` would make an expression of the statistics of each file, and Arrow would compare a
    filter with each of them, which takes the square of the number of slices. Its file system is written in Python, so a
    short process may exit while a thread of Arrow still calls the interpreter.
    """
    return files_dataset(table.uri, _shared(table.listing().of({*attempts}), share), table_schema(table))


def table_schema(table: OpenedTable) -> "pa.Schema":
    """Return the columns of a table as Arrow reads them.

    Raises DeltaError: the table has a feature that its files alone do not show.
    """
    if _UNREADABLE_FEATURES & {*(table.delta.protocol().reader_features or ())}:
        table.delta.to_pyarrow_dataset()  # raises an error that names the feature
    return pa.schema(table.delta.schema().to_arrow())


def files_dataset(
    uri: str, listed: Sequence[TableFile], schema: "pa.Schema", *, repeated: Collection[str] = ()
) -> "pads.FileSystemDataset":
    """Return files of a table as an Arrow dataset. A task can read them so without opening the table.

    `schema` are the columns of the table (`table_schema`). Texts of the columns `repeated` are read as dictionaries,
    which takes a fifth of the time if values repeat.
    """
    system, root = file_system(uri)
    files = parquet_format(dictionaries=repeated)
    texts = pa.dictionary(pa.int32(), pa.string())
    columns = [field.with_type(texts) if field.name in repeated else field for field in schema]
    fragments = [
        files.make_fragment(
            place_of(root, file.path),
            filesystem=system,
            file_size=file.bytes,  # without it, an object store is asked
            partition_expression=(pc.field("slice_id") == file.attempt[0])
            & (pc.field("attempt_id") == file.attempt[1]),
        )
        for file in listed
    ]
    return pads.FileSystemDataset(fragments, pa.schema(columns), files, system)


def _shared(files: list[TableFile], share: Share) -> list[TableFile]:
    number, parts = share
    return files if parts == 1 else sorted(files, key=lambda file: file.path)[number::parts]


def add_fields(uri: str, table: Table) -> None:
    """Add the struct fields that a table lacks, nullable: those of `record`, after the log got a new column.

    Raises StoreError: the table cannot be read, or another process committed first at every try.
    """
    existing = table_columns(uri)
    if all(node == existing.get(name) for name, node in table.stored_columns().items() if not isinstance(node, str)):
        return
    from deltalake import write_deltalake

    from windowlib.columnar.arrow import arrow_type

    schema = pa.schema([pa.field(name, arrow_type(node)) for name, node in table.stored_columns().items()])

    def commit() -> None:  # without rows, it changes the columns of the table and writes no file
        table = open_table(uri)
        if table is not None:
            write_deltalake(
                table.delta,
                schema.empty_table(),
                mode="append",
                schema_mode="merge",
                post_commithook_properties=commit_hooks(uri),
            )

    until_committed(uri, commit)
    forget_table(uri)


@contextmanager
def attempts_dataset(
    uri: str, attempts: Iterable[Attempt], *, share: Share = WHOLE
) -> "Iterator[pads.FileSystemDataset | None]":
    """Give the files of some attempts as an Arrow dataset; None if there are no attempts, or no table.

    Raises StoreError: the table cannot be read, inside the context as well; the message names the damaged file.
    """
    pairs = {*attempts}
    with reading(uri, pairs):
        table = open_table(uri) if pairs else None
        yield None if table is None else dataset_of(table, pairs, share=share)


def read_attempts(uri: str, attempts: Iterable[Attempt], columns: Sequence[str] | None = None) -> "pa.Table":
    """Return the rows of the given attempts.

    The columns have the order of `columns`; None: all. The table has no rows and columns if there are no attempts or
    the Delta table does not exist.
    Raises StoreError: the table cannot be read; the message names the damaged file.
    """
    with attempts_dataset(uri, attempts) as dataset:
        if dataset is None:
            return pa.table({})
        return dataset.to_table(columns=None if columns is None else list(columns))


def count_rows(uri: str, attempts: Iterable[Attempt]) -> int:
    """Return the number of rows of the given attempts, from the footers of their files.

    Raises StoreError: the table cannot be read; the message names the damaged file.
    """
    with attempts_dataset(uri, attempts) as dataset:
        return 0 if dataset is None else int(dataset.count_rows())


def read_each_attempt(uri: str, attempts: Sequence[Attempt], columns: Sequence[str]) -> "list[pa.Table]":
    """Return the rows of each of the given attempts. Columns that the table does not have are missing.

    Raises StoreError: the table cannot be read; the message names the damaged file.
    """
    with reading(uri, attempts):
        table = open_table(uri) if attempts else None
        if table is None:
            return [pa.table({}) for _ in attempts]
        datasets = [dataset_of(table, [attempt]) for attempt in attempts]
        return [files.to_table(columns=[name for name in columns if name in files.schema.names]) for files in datasets]


def attempt_batches(
    uri: str, attempts: Iterable[Attempt], columns: Sequence[str], *, rows: int, share: Share = WHOLE
) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of attempts in batches of at most `rows` rows, with the memory of a few batches.

    Columns that the table does not have are missing. Only the files of `share` are read.
    Raises StoreError: the table cannot be read; the message names the damaged file.
    """
    with attempts_dataset(uri, attempts, share=share) as dataset:
        if dataset is None:
            return
        known = [name for name in columns if name in dataset.schema.names]
        scanned = dataset.to_batches(columns=known, batch_size=rows, batch_readahead=2, fragment_readahead=1)
        yield from (batch for batch in scanned if batch.num_rows)
