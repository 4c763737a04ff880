"""Compares the columns of a table with those of its files.

A column that no file has may become another one: that of a cancelled candidate whose rows were removed. A column that
a file has and the table has not was lost.
"""

import json
from collections.abc import Mapping, Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import ADVICE
from jobs.lake.delta_tables import OpenedTable
from jobs.lake.durable_commits import commit_hooks, declare_features
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system
from windowlib.errors import StoreError
from windowlib.libraries import pc
from windowlib.records.tables import PARTITION_COLUMNS

READERS: Final = 8
NEWEST_FILES: Final = 8
"""In so many files of a table, a column is looked for before it is added to the table."""
_NO_ATTEMPT: Final = [("slice_id", "=", "")]


def is_stored(table: OpenedTable, columns: AbstractSet[str]) -> bool:
    """Return whether a file of a table has one of some columns. The footers of the files are read until one has.

    Raises OSError: a file cannot be read.
    """
    system, root = file_system(table.uri)

    def has_one(path: str) -> bool:
        with system.open_input_file(place_of(root, path)) as data:
            return not columns.isdisjoint(open_parquet(data).schema_arrow.names)

    paths = arrow_table(table.delta.get_add_actions())["path"].to_pylist()
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        return not columns.isdisjoint(PARTITION_COLUMNS) or any(pool.map(has_one, paths))


def replace_columns(table: OpenedTable, replaced: Mapping[str, Mapping[str, Any]]) -> None:
    """Put other columns in the places of columns that no file has, in one commit: former name -> the new column.

    The opened table moves to its newest version.
    Raises CommitFailedError: another process has committed since the table was opened, or `declare_features` has.
    """
    from deltalake import CommitProperties, Schema

    former = json.loads(table.delta.schema().to_json())["fields"]
    fields = [replaced.get(field["name"], field) for field in former]
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    declare_features(table.uri, table.delta, schema)
    table.delta.create_write_transaction(
        [],
        "overwrite",  # an append keeps the columns; of no attempt, it removes no file
        schema,
        list(PARTITION_COLUMNS),
        _NO_ATTEMPT,
        commit_properties=CommitProperties(max_commit_retries=0),
        post_commithook_properties=commit_hooks(table.uri),
    )
    table.delta.update_incremental()


def refuse_lost_columns(table: OpenedTable, added: AbstractSet[str]) -> None:
    """Raise if one of the newest files has a column that is to be added to its table.

    A table gets its columns before its files do. So the schema in Delta's log is damaged, and the column would be added
    beside the one with the damaged name.
    """
    actions = arrow_table(table.delta.get_add_actions(flatten=True))
    newest = actions.take(pc.sort_indices(actions, [("modification_time", "descending")])[:NEWEST_FILES])
    system, root = file_system(table.uri)
    for path in newest["path"].to_pylist():
        with system.open_input_file(place_of(root, path)) as data:
            lost = sorted(added & {*open_parquet(data).schema_arrow.names})
        if lost:
            raise StoreError(
                f"table {table.uri} has no column {', '.join(lost)}, but its file {path} has: the schema in its "
                f"_delta_log is damaged. {ADVICE}"
            )
