"""Sums of ids over the committed rows of a chunk, by slice. Another engine than the writer reads the rows: DuckDB.

The rows of a small table are read once and kept. The files of a larger table are shared among tasks, which read them
batch by batch. So the driver holds sums only, and the memory of no process grows with the table.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.lake.arrow_sql import ArrowSql, plain_rows
from jobs.lake.store import attempt_batches, read_attempts
from jobs.lake.table_files import Attempt
from jobs.replay.groups import groups_of
from jobs.replay.tasks import LocalTasks, Tasks
from windowlib.libraries import pa
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

ROWS_PER_TASK = 2_500_000
"""A task reads about this many rows of a table that is not kept."""
ROWS_PER_BATCH = 1_000_000
"""The number of rows in one query of such a task."""

Key = tuple[str, ...]
"""The values of the group columns of a query, the slice first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumQuery:
    """Which ids of a table to sum up: (count, XOR, sum) by the columns `groups`, of the rows where `where` is true.

    `sums` are the three SQL expressions. `columns` are all columns that the query needs.
    """

    table: str
    columns: tuple[str, ...]
    sums: str
    groups: tuple[str, ...] = ("slice_id",)
    where: str = "true"

    @property
    def sql(self) -> str:
        """The query over the relation `committed`. It returns no row for a group without rows."""
        source = f"FROM committed WHERE {self.where}"
        if not self.groups:
            return f"SELECT {self.sums} {source} HAVING count(*) > 0"
        groups = ", ".join(self.groups)
        return f"SELECT {groups}, {self.sums} {source} GROUP BY {groups}"

    def of_all_slices(self) -> "SumQuery":
        """Return the query of one sum over all rows, which takes half the time."""
        return replace(self, columns=tuple(name for name in self.columns if name not in self.groups), groups=())


def ids_query(table: str, column: str) -> SumQuery:
    """Return the query for one column of ids. A record has the fate `late` only if it missed all its windows."""
    is_fate_of_late = (table, column) == (tables.LATE_RECORDS, "record_hash")
    return SumQuery(
        table=table,
        columns=("slice_id", column, *(("missed_all",) if is_fate_of_late else ())),
        sums=f'count(*), bit_xor("{column}"), sum("{column}")',
        where="missed_all" if is_fate_of_late else "true",
    )


# DuckDB's sum of 64-bit integers has 128 bits.
_EDGE_SUMS = "sum(edge_count), bit_xor(edge_xor), sum(edge_sum)"
EDGES = SumQuery(
    table=tables.WINDOW_STATE,
    columns=("slice_id", *tables.EDGE_COLUMNS, "is_orphan"),
    sums=_EDGE_SUMS,
    where="is_orphan IS NOT TRUE",
)
"""The edges of open windows. Edges of lost contents (F1) count as closed, with that reason."""
REMOVED_EDGES = SumQuery(
    table=tables.STATE_REMOVALS,
    columns=("slice_id", *tables.EDGE_COLUMNS),
    sums=_EDGE_SUMS,
    where="edge_count IS NOT NULL",
)
"""The edges of the windows that incremental checkpoints removed."""
REMOVED_IDS = SumQuery(
    table=tables.STATE_REMOVALS,
    columns=("slice_id", "table_name", "removed_id"),
    sums="count(*), bit_xor(removed_id), sum(removed_id)",
    groups=("slice_id", "table_name"),
)
"""The ids of the rows that incremental checkpoints removed, by slice and table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The work of one task: every `parts`-th file of some attempts, from `number` on."""

    uri: str
    query: SumQuery
    attempts: tuple[Attempt, ...]
    number: int
    parts: int
    rows_per_batch: int


def _sums_of_part(part: _Part) -> dict[Key, IdSum]:
    sums: dict[Key, IdSum] = {}
    share = (part.number, part.parts)
    batches = attempt_batches(part.uri, part.attempts, part.query.columns, rows=part.rows_per_batch, share=share)
    with ArrowSql() as sql:
        # A query over a few rows takes 5 ms, so batches are put together.
        for group in groups_of(batches, lambda batch: batch.num_rows, part.rows_per_batch):
            rows = pa.Table.from_batches(group)
            _add(sums, part.query, sql.query({"committed": rows}, part.query.sql))
    return sums


def _add(sums: dict[Key, IdSum], query: SumQuery, rows: "pa.Table") -> None:
    for *key, count, xor, total in plain_rows(rows):
        assert len(key) == len(query.groups)
        sums.setdefault((*key,), IdSum()).merge(IdSum(int(count), xor, int(total)))


@dataclass(slots=True, kw_only=True)
class CommittedRows:
    """Reads sums of ids from the committed tables. A slice without rows has no entry.

    `own` are the audited attempts, and `counts` about how many rows they have in each table. Tables with at most
    `kept_rows` of them are kept. `tasks` share the files of other tables, about `rows_per_task` rows for each.
    """

    sql: ArrowSql
    table_uri: Callable[[str], str]
    own: Sequence[Attempt]
    counts: Mapping[str, int]
    kept_rows: int
    tasks: Tasks = field(default_factory=LocalTasks)
    rows_per_task: int = ROWS_PER_TASK
    rows_per_batch: int = ROWS_PER_BATCH
    _kept: "dict[str, pa.Table]" = field(default_factory=dict)
    _sums: dict[SumQuery, dict[Key, IdSum]] = field(default_factory=dict)

    def keep(self) -> None:
        """Read the audited rows of small tables, and sum up all their ids in one query."""
        kept = []
        for name in (table for table, count in self.counts.items() if count <= self.kept_rows):
            self._kept[name] = read_attempts(self.table_uri(name), self.own)
            for column in (tables.ROW_ID, *(("record_hash",) if name in tables.RECORD_TABLES else ())):
                query = ids_query(name, column)
                self._sums[query] = {}
                rows = self._kept_columns(name, query.columns)
                if rows.num_rows and "missed_all" in rows.column_names:
                    rows = rows.filter(rows["missed_all"])
                if rows.num_rows:
                    place = {"t": pa.array([name] * rows.num_rows), "c": pa.array([column] * rows.num_rows)}
                    ids = rows[column].cast(pa.int64())
                    kept.append(pa.table({**place, "slice_id": rows["slice_id"].cast(pa.string()), "id": ids}))
        if kept:
            sql = "SELECT t, c, slice_id, count(*), bit_xor(id), sum(id) FROM kept GROUP BY ALL"
            for name, column, slice_id, count, xor, total in plain_rows(
                self.sql.query({"kept": pa.concat_tables(kept)}, sql)
            ):
                self._sums[ids_query(name, column)][slice_id,] = IdSum(int(count), xor, int(total))

    def rows(self, table: str) -> "pa.Table":
        return self._kept[table] if table in self._kept else read_attempts(self.table_uri(table), self.own)

    def count(self, table: str) -> int:
        """Return how many audited rows a table has."""
        return sum(ids.count for ids in self.ids(table, tables.ROW_ID).values())

    def ids(self, table: str, column: str) -> dict[str, IdSum]:
        """Return the sums of one column of ids of the audited rows, by slice."""
        return self.by_slice(ids_query(table, column))

    def by_slice(self, query: SumQuery) -> dict[str, IdSum]:
        """Return the sums of a query by slice, over the audited rows."""
        return {slice_id: ids for (slice_id,), ids in self.sums(query).items()}

    def sums(self, query: SumQuery, attempts: Sequence[Attempt] | None = None) -> dict[Key, IdSum]:
        """Return the sums of a query by its group columns, over the audited rows or those of other attempts."""
        if attempts is not None:
            return self._read(query, attempts, parts=1)
        if query not in self._sums:
            parts = -(-self.counts.get(query.table, 0) // self.rows_per_task)
            self._sums[query] = self._read(query, self.own, parts=max(parts, 1))
        return self._sums[query]

    def _read(self, query: SumQuery, attempts: Sequence[Attempt], *, parts: int) -> dict[Key, IdSum]:
        by_key: dict[Key, IdSum] = {}
        if query.table in self._kept and attempts is self.own:
            rows = self._kept_columns(query.table, query.columns)
            if rows.num_rows:
                _add(by_key, query, self.sql.query({"committed": rows}, query.sql))
            return by_key
        asked = [
            _Part(
                uri=self.table_uri(query.table),
                query=query,
                attempts=tuple(attempts),
                number=number,
                parts=parts,
                rows_per_batch=self.rows_per_batch,
            )
            for number in range(parts)
        ]
        for sums in (self.tasks if parts > 1 else LocalTasks()).run(_sums_of_part, asked):
            for key, ids in sums.items():
                by_key.setdefault(key, IdSum()).merge(ids)
        return by_key

    def _kept_columns(self, table: str, columns: Iterable[str]) -> Any:  # noqa: ANN401 - a pa.Table
        kept = self._kept[table]
        return kept.select(list(columns)) if kept.column_names else kept
