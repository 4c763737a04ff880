"""A few of the rows that did not keep a check of a run, found again in the stored rows, and counts of their values."""

from collections.abc import Iterable
from dataclasses import dataclass

from expectations.compiled.failing import check_of, failing_rows
from expectations.suites import LATE_RECORDS, WINDOW_OUTPUTS
from jobs.ledger.view import StagedRun
from jobs.plain_text import shortened
from jobs.reading.plain_values import column_values
from jobs.reading.stored_rows import StoredRuns
from jobs.review.pages.cells import cell
from jobs.review.pages.row_pages import RunRows
from jobs.runs import CheckResult
from windowlib.libraries import pa, pc
from windowlib.records.tables import INVALID_RECORDS

MAX_EXAMPLES = 20
MAX_SEARCHED = 2_000_000
"""A table of a run with more rows than this is not searched, counted or drawn."""
MAX_VALUES = 10
"""So many of the most frequent values of a column are counted."""
MAX_TEXT = 80
REASON = "reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The most frequent values of a column in some rows, as (value, count). `others` rows have one of other values."""

    table: str
    column: str
    values: tuple[tuple[str, int], ...]
    others: int

    @property
    def count(self) -> int:
        """How many rows were counted."""
        return sum(count for _, count in self.values) + self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Rows that did not keep a check: at most 20 of `count`. `tallies` count the values of all of them."""

    rows: "pa.Table"
    columns: tuple[str, ...]
    count: int
    tallies: tuple[Tally, ...]


def find_examples(stored: StoredRuns, run: StagedRun, result: CheckResult) -> Examples | None:
    """Return rows that did not keep a check; None if the check is not about single rows.

    Raises StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    if result.table not in {WINDOW_OUTPUTS, LATE_RECORDS}:
        return None
    check = check_of(result.check, result.column, result.arguments)
    if check is None or not check.read_columns or stored.count(result.table, [run]) > MAX_SEARCHED:
        return None
    own = RunRows(stored, run, result.table)
    columns = own.columns()
    if not check.read_columns <= set(columns):
        return None
    counted = [*check.columns, *([REASON] if result.table == LATE_RECORDS and REASON not in check.columns else [])]
    narrow = stored.read(result.table, [run], sorted({*check.read_columns, *counted}))
    positions = failing_rows(check, narrow)
    if not positions:
        return None
    first = (*check.columns, *(name for name in columns if name not in check.columns))
    failing = narrow.take(positions)
    return Examples(
        rows=own.at(positions[:MAX_EXAMPLES]).select(list(first)),
        columns=first,
        count=len(positions),
        tallies=tuple(
            tally(failing, result.table, name)
            for name in counted
            if name in failing.column_names and not pa.types.is_nested(failing.schema.field(name).type)
        ),
    )


def reason_tallies(
    stored: StoredRuns, run: StagedRun, tables: Iterable[str] = (LATE_RECORDS, INVALID_RECORDS)
) -> tuple[Tally, ...]:
    """Return the reasons of a run's late and invalid records, counted. Other tables have no reason.

    A record that missed only some of its windows is among the late ones: it has a row, but its fate is *assigned*.
    Raises StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    counts = {LATE_RECORDS: run.result.counts.late, INVALID_RECORDS: run.result.counts.invalid}
    tallies = []
    for table in tables:
        stored_rows = stored.count(table, [run]) if table in counts else 0
        if (stored_rows or counts.get(table)) and stored_rows <= MAX_SEARCHED:
            rows = stored.read(table, [run], (REASON,))
            if REASON in rows.column_names:  # a table that an earlier version made may lack it
                tallies.append(tally(rows, table, REASON))
    return tuple(tallies)


def tally(rows: "pa.Table", table: str, column: str) -> Tally:
    """Return the most frequent values of a column of some rows of a table."""
    values = rows[column].combine_chunks()
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    value_counts = plain.value_counts()
    names, counts = value_counts.field("values"), value_counts.field("counts")
    order = pc.sort_indices(counts, sort_keys=[("", "descending")])[:MAX_VALUES]
    shown = [
        (shortened(cell(value, column), MAX_TEXT), count)
        for value, count in zip(column_values(names.take(order)), counts.take(order).to_pylist(), strict=True)
    ]
    others = len(rows) - sum(count for _, count in shown)
    return Tally(table=table, column=column, values=tuple(shown), others=others)
