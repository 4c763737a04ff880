"""Pages of stored rows: the rows of one run in one table, filtered, sorted and cut, compared with the ledger.

Only the needed rows are read. Of a table with few rows, the content of every row is compared with its id; of a table
with many rows, the sum of the ids is compared with the run's digest, and only the rows of the page are read whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jobs.lake.arrow_sql import query
from jobs.lake.damage import reading
from jobs.lake.store import attempt_batches, table_columns
from jobs.ledger.view import StagedRun
from jobs.reading.published import quote_duckdb
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, run_attempt
from jobs.review.pages.row_filters import Filter, filtered
from jobs.runs import Counts
from windowlib.columnar.undecodable import readable
from windowlib.errors import RequestError
from windowlib.libraries import np, pa, pc
from windowlib.records.tables import (
    DUPLICATE_RECORDS,
    INVALID_RECORDS,
    LATE_RECORDS,
    RECORD_TABLES,
    ROW_CHECK,
    ROW_ID,
    SLICE_COLUMNS,
    UNASSIGNED_RECORDS,
    WINDOW_OUTPUTS,
)

PAGE_ROWS = 50
BATCH_ROWS = 65_536
CSV_ROWS = 1_000_000
"""A CSV file has at most this many rows."""
_HIDDEN = frozenset({ROW_ID, ROW_CHECK, "record_hash", *SLICE_COLUMNS})
_POSITION = "__position"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsk:
    """What a page shows: rows of a filter, sorted by a column (None: as stored), and the number of the page from 1."""

    filter: Filter | None = None
    sort: str | None = None
    is_descending: bool = False
    page: int = 1
    size: int = PAGE_ROWS

    @property
    def names(self) -> list[str]:
        """The columns of the order and of the filter, each once."""
        names = (self.sort, None if self.filter is None else self.filter.column)
        return list(dict.fromkeys(name for name in names if name is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPage:
    """The rows of one page, and all columns that can be shown, filtered and sorted.

    `is_compared`: the content of the rows was compared with their ids. Otherwise only the sum of all ids was compared.
    """

    rows: "pa.Table"
    columns: tuple[str, ...]
    ask: RowsAsk
    total: int
    matching: int
    is_compared: bool

    @property
    def first(self) -> int:
        """The number of the first row of the page, from 1; 0 without rows."""
        return 0 if not self.rows.num_rows else (self.ask.page - 1) * self.ask.size + 1

    @property
    def last(self) -> int:
        """The number of the last row of the page."""
        return self.first + self.rows.num_rows - 1 if self.rows.num_rows else 0

    @property
    def pages(self) -> int:
        """The number of pages, at least 1."""
        return max(1, -(-self.matching // self.ask.size))


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of one run in one table."""

    stored: StoredRuns
    run: StagedRun
    table: str

    @property
    def uri(self) -> str:
        return self.stored.lake.table(self.stored.pipeline, self.table)

    def columns(self) -> tuple[str, ...]:
        """Return the columns that pages show, with the fields of the record as `record.name`; empty without a table.

        Raises StoreError: the table cannot be read.
        """
        columns: list[str] = []
        for name, node in table_columns(self.uri).items():
            if name in _HIDDEN:
                continue
            if name == "record" and not isinstance(node, str):
                columns += [f"record.{field['name']}" for field in node["fields"]]
            else:
                columns.append(name)
        if self.table in RECORD_TABLES:  # what the record was, before where it was
            columns.sort(key=lambda name: (name != "record_id", name.startswith("record."), name == "rank"))
        return tuple(columns)

    def page(self, ask: RowsAsk) -> RowsPage:
        """Return one page. A page after the last one is the last one.

        Raises:
            RequestError: a column does not exist, or the value of the filter is not of the column's type.
            StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        columns = self.columns()
        _check_columns(ask, columns, self.table)
        rows, total, is_compared = self._narrow(ask)
        chosen = _choose(rows, ask)
        matching = total if chosen is None else len(chosen)
        pages = max(1, -(-matching // ask.size))
        start = (min(ask.page, pages) - 1) * ask.size
        end = min(start + ask.size, matching)
        positions = range(start, end) if chosen is None else chosen[start:end]
        shown = self._whole(rows, list(positions), is_compared=is_compared)
        return RowsPage(
            rows=_flat(shown, columns),
            columns=columns,
            ask=replace(ask, page=min(ask.page, pages)),
            total=total,
            matching=matching,
            is_compared=is_compared,
        )

    def at(self, positions: Sequence[int]) -> "pa.Table":
        """Return the rows at ascending positions, in stored order, without comparing them with the ledger.

        Raises StoreError: a file cannot be read.
        """
        return _flat(self._whole(None, list(positions), is_compared=False), self.columns())

    def batches(self, ask: RowsAsk) -> "Iterator[pa.Table]":
        """Yield all rows of a filter in parts, at most `CSV_ROWS`. Tables with many rows are in stored order.

        Raises RequestError, StoreError: as for `page`, before the first part.
        """
        columns = self.columns()
        _check_columns(ask, columns, self.table)
        rows, total, is_compared = self._narrow(ask)
        chosen = _choose(rows, ask)
        wanted: Sequence[int] = range(min(total, CSV_ROWS)) if chosen is None else chosen[:CSV_ROWS]
        return self._parts(rows, wanted, columns, is_compared=is_compared)

    def _parts(
        self, rows: "pa.Table", wanted: Sequence[int], columns: Sequence[str], *, is_compared: bool
    ) -> "Iterator[pa.Table]":
        if is_compared:
            for start in range(0, len(wanted), BATCH_ROWS):
                yield _flat(_taken(rows, wanted[start : start + BATCH_ROWS]), columns)
            return
        for part in self._scan(sorted(wanted)):
            yield _flat(part, columns)

    def _narrow(self, ask: RowsAsk) -> "tuple[pa.Table, int, bool]":
        """Return the checked rows, their number, and whether they are whole; else they have the columns of the query.

        Raises StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        few = self.stored.content_rows
        if few is None or self._expected() <= few:
            rows = self.stored.read(self.table, [self.run])
            return rows, rows.num_rows, True
        top = dict.fromkeys(name.partition(".")[0] if name.startswith("record.") else name for name in ask.names)
        rows = self.stored.read(self.table, [self.run], (*top, ROW_ID))
        return rows, rows.num_rows, False

    def _expected(self) -> int:
        """Return about how many rows the run has in the table; tables without a count are taken as large."""
        if self.table == LATE_RECORDS:  # a record that missed only some windows is not counted as late
            return self.run.result.counts.read
        return counts_by_table(self.run.result.counts).get(self.table, CONTENT_ROWS + 1)

    def _whole(self, rows: "pa.Table | None", positions: list[int], *, is_compared: bool) -> "pa.Table":
        """Return whole rows by their positions, in the order of `positions`."""
        if is_compared and rows is not None:
            return _taken(rows, positions)
        batches = list(self._scan(sorted(positions)))
        if not batches:
            return pa.table({})
        order = {position: place for place, position in enumerate(sorted(positions))}
        return _taken(pa.concat_tables(batches), [order[position] for position in positions])

    def _scan(self, positions: Sequence[int]) -> "Iterator[pa.Table]":
        """Yield the whole rows at ascending positions. The scan ends after the last one."""
        names = tuple(table_columns(self.uri))
        start, done = 0, 0
        with reading(self.uri):
            for batch in attempt_batches(self.uri, [run_attempt(self.run, self.table)], names, rows=BATCH_ROWS):
                if done >= len(positions):
                    return
                end = start + batch.num_rows
                here = []
                while done < len(positions) and positions[done] < end:
                    here.append(positions[done] - start)
                    done += 1
                if here:
                    yield readable(_taken(pa.Table.from_batches([batch]), here))
                start = end


def counts_by_table(counts: Counts) -> dict[str, int]:
    """Return table -> the number of its rows that a run has, for the tables that the counts tell of."""
    return {
        WINDOW_OUTPUTS: counts.panes,
        LATE_RECORDS: counts.late,
        UNASSIGNED_RECORDS: counts.unassigned,
        INVALID_RECORDS: counts.invalid,
        DUPLICATE_RECORDS: counts.duplicate,
    }


def shown_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that pages show: without ids, run and attempt."""
    return [name for name in names if name not in _HIDDEN]


def _taken(rows: "pa.Table", positions: Sequence[int]) -> "pa.Table":
    """Return the rows at these positions, in their order."""
    return rows.take(pa.array(positions, pa.int64())) if rows.column_names else rows


def _check_columns(ask: RowsAsk, columns: Sequence[str], table: str) -> None:
    for name in ask.names:
        if name not in columns:
            raise RequestError(f"table {table} has no column {name!r}; its columns are {', '.join(columns) or 'none'}")


def _choose(rows: "pa.Table", ask: RowsAsk) -> list[int] | None:
    """Return the positions of the rows that the filter keeps, in the order of the sort; None without both."""
    if not ask.names:
        return None
    narrow = _flat(rows, ask.names).append_column(_POSITION, [np.arange(rows.num_rows)])
    if ask.filter is not None:
        narrow = filtered(narrow, ask.filter)
    order = "" if ask.sort is None else f"{quote_duckdb(ask.sort)} {'DESC' if ask.is_descending else ''} NULLS LAST, "
    # Names of columns are compared with those of the table, and quoted.
    sorted_rows = query({"rows": narrow}, f"SELECT {_POSITION} FROM rows ORDER BY {order}{_POSITION}")  # noqa: S608
    positions: list[int] = sorted_rows[_POSITION].to_pylist()
    return positions


def _flat(rows: "pa.Table", columns: Sequence[str]) -> "pa.Table":
    """Return the columns, the fields of the record as `record.name`. A column that the rows lack is left out."""
    flat = {}
    for name in columns:
        top, _, field = name.partition(".")
        if name in rows.column_names:
            flat[name] = rows[name]
        elif top == "record" and top in rows.column_names:
            kind = rows[top].type
            if pa.types.is_struct(kind) and kind.get_field_index(field) >= 0:
                flat[name] = pc.struct_field(rows[top], field)
    return pa.table(flat)
