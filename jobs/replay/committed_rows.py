"""Sums of ids over the committed rows of a chunk, by slice. Another engine than the writer sums them up: DuckDB.

A few rows are summed up by Python, because the start of DuckDB takes a twelfth of a small run.

The rows of a small table are read once and kept. The files of a larger table are shared among tasks, which read them
batch by batch. So the driver holds sums only, and the memory of no process grows with the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final

from jobs.lake.arrow_sql import plain_rows, query
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
FEW_ROWS: Final = 5_000
"""So many rows are summed up in the time of one query."""
_HOLDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "": lambda _value: True,
    "IS TRUE": lambda value: value is True,
    "IS NOT TRUE": lambda value: value is not True,
    "IS NOT NULL": lambda value: value is not None,
}

_SLICE: Final = ("slice_id",)
Key = tuple[str, ...]
"""The values of the group columns of a query, the slice first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumQuery:
    """Which ids of a table to sum up: (count, XOR, sum) by the columns `groups`, of the rows where `where` holds.

    `ids` are the columns of the three; None counts rows. `where` is a column and its condition, as in SQL.
    """

    table: str
    ids: tuple[str | None, str, str]
    groups: tuple[str, ...] = _SLICE
    where: tuple[str, str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the query needs."""
        return (*dict.fromkeys(filter(None, (*self.groups, *self.ids, *(self.where or ())[:1]))),)

    @property
    def sql(self) -> str:
        """The query over the relation `committed`. It returns no row for a group without rows."""
        count, xor, total = self.ids
        counted = "count(*)" if count is None else f'sum("{count}")'  # of 64-bit integers, it has 128 bits
        columns = ", ".join([*self.groups, counted, f'bit_xor("{xor}")', f'sum("{total}")'])
        source = f"FROM committed WHERE {' '.join(self.where or ('true',))}"
        return f"SELECT {columns} {source} {'GROUP BY ALL' if self.groups else 'HAVING count(*) > 0'}"

    def parts(self, rows: "pa.Table") -> Iterator[tuple[Any, ...]]:
        """Yield (*groups, count, XOR, sum) of parts of some rows: of each group, or of each row if they are few."""
        if rows.num_rows > FEW_ROWS:
            yield from plain_rows(query({"committed": rows.select(self.columns)}, self.sql))
            return
        names = (*self.groups, *self.ids)
        values = [[1] * rows.num_rows if name is None else rows[name].to_pylist() for name in names]
        column, condition = self.where or (self.ids[1], "")
        yield from compress(zip(*values, strict=True), map(_HOLDS[condition], rows[column].to_pylist()))

    def of_all_slices(self) -> "SumQuery":
        """Return the query of one sum over all rows, which takes half the time."""
        return replace(self, groups=())


def ids_query(table: str, column: str) -> SumQuery:
    """Return the query for one column of ids. A record has the fate `late` only if it missed all its windows."""
    is_fate_of_late = (table, column) == (tables.LATE_RECORDS, "record_hash")
    return SumQuery(
        table=table, ids=(None, column, column), where=("missed_all", "IS TRUE") if is_fate_of_late else None
    )


EDGES = SumQuery(table=tables.WINDOW_STATE, ids=tables.EDGE_COLUMNS, where=("is_orphan", "IS NOT TRUE"))
"""The edges of open windows. Edges of lost contents (F1) count as closed, with that reason."""
REMOVED_EDGES = SumQuery(table=tables.STATE_REMOVALS, ids=tables.EDGE_COLUMNS, where=("edge_count", "IS NOT NULL"))
"""The edges of the windows that incremental checkpoints removed."""
REMOVED_IDS = SumQuery(
    table=tables.STATE_REMOVALS, ids=(None, "removed_id", "removed_id"), groups=("slice_id", "table_name")
)
"""The ids of the rows that incremental checkpoints removed, by slice and table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The work of one task: every `parts`-th file of some attempts, from `number` on.

    All rows of one attempt are of one slice, so they are not grouped by it: that takes three times as long.
    """

    uri: str
    query: SumQuery
    attempts: tuple[Attempt, ...]
    number: int
    parts: int
    rows_per_batch: int


def _sums_of_part(part: _Part) -> dict[Key, IdSum]:
    sums: dict[Key, IdSum] = {}
    share, query = (part.number, part.parts), part.query
    slice_key: Key = ()
    if len(part.attempts) == 1 and query.groups[:1] == _SLICE:
        query, slice_key = replace(query, groups=query.groups[1:]), part.attempts[0][:1]
    batches = attempt_batches(part.uri, part.attempts, query.columns, rows=part.rows_per_batch, share=share)
    # A query over a few rows takes 5 ms, so batches are put together.
    for group in groups_of(batches, lambda batch: batch.num_rows, part.rows_per_batch):
        _add(sums, query, pa.Table.from_batches(group))
    return {(*slice_key, *key): ids for key, ids in sums.items()}


def _add(sums: dict[Key, IdSum], query: SumQuery, rows: "pa.Table") -> None:
    for *key, count, xor, total in query.parts(rows) if rows.num_rows else ():
        assert len(key) == len(query.groups)
        sums.setdefault((*key,), IdSum()).merge(IdSum(int(count or 0), xor or 0, int(total or 0)))


@dataclass(slots=True, kw_only=True)
class CommittedRows:
    """Reads sums of ids from the committed tables. A slice without rows has no entry.

    `own` are the audited attempts, and `counts` about how many rows they have in each table. Tables with at most
    `kept_rows` of them are kept. `tasks` share the files of other tables, about `rows_per_task` rows for each.
    """

    table_uri: Callable[[str], str]
    own: Sequence[Attempt]
    counts: Mapping[str, int]
    kept_rows: int
    tasks: Tasks = field(default_factory=LocalTasks)
    rows_per_task: int = ROWS_PER_TASK
    rows_per_batch: int = ROWS_PER_BATCH
    _kept: "dict[str, pa.Table]" = field(default_factory=dict)
    _sums: dict[SumQuery, dict[Key, IdSum]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, count in self.counts.items():
            if count <= self.kept_rows:
                self._kept[name] = read_attempts(self.table_uri(name), self.own)

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
            _add(by_key, query, self._kept[query.table])
            return by_key
        shares = [(attempt,) for attempt in attempts] if parts >= len(attempts) else [tuple(attempts)]
        parts = -(-parts // max(len(shares), 1))
        asked = [
            _Part(
                uri=self.table_uri(query.table),
                query=query,
                attempts=share,
                number=number,
                parts=parts,
                rows_per_batch=self.rows_per_batch,
            )
            for share in shares
            for number in range(parts)
        ]
        for sums in (self.tasks if len(asked) > 1 else LocalTasks()).run(_sums_of_part, asked):
            for key, ids in sums.items():
                by_key.setdefault(key, IdSum()).merge(ids)
        return by_key
