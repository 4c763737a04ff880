"""A few of the rows that did not keep a check of a run, found again in the stored rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expectations.compiled.failing import check_of, failing_rows
from expectations.suites import LATE_RECORDS, WINDOW_OUTPUTS
from jobs.ledger.view import StagedRun
from jobs.reading.stored_rows import StoredRuns
from jobs.review.pages.row_pages import RunRows
from jobs.runs import CheckResult

if TYPE_CHECKING:
    import pyarrow as pa

MAX_EXAMPLES = 20
MAX_SEARCHED = 2_000_000
"""Rows are not searched in a table of a run with more rows than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Rows that did not keep a check: at most 20 of `count`."""

    rows: "pa.Table"
    columns: tuple[str, ...]
    count: int


def find_examples(stored: StoredRuns, run: StagedRun, checks: Sequence[CheckResult]) -> list[Examples | None]:
    """Return, for each check, rows that did not keep it; None if a check is not about single rows.

    Raises:
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    return [_examples(stored, run, check) for check in checks]


def _examples(stored: StoredRuns, run: StagedRun, result: CheckResult) -> Examples | None:
    if result.table not in {WINDOW_OUTPUTS, LATE_RECORDS} or run.result.counts.panes > MAX_SEARCHED:
        return None
    check = check_of(result.check, result.column, result.arguments)
    if check is None or not check.read_columns:
        return None
    own = RunRows(stored, run, result.table)
    columns = own.columns()
    if not check.read_columns <= set(columns):
        return None
    found = failing_rows(check, stored.read(result.table, [run], sorted(check.read_columns)))
    if not found:
        return None
    first = (*check.columns, *(name for name in columns if name not in check.columns))
    return Examples(rows=own.at(found[:MAX_EXAMPLES]).select(list(first)), columns=first, count=len(found))
