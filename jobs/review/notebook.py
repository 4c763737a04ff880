"""Plans, differences and published rows as HTML fragments, for notebooks. Every value is escaped."""

from jobs.comparing.differences import Differences
from jobs.folding import FOLD_FROM
from jobs.plain_text import counted, shortened
from jobs.planning.plan import Plan
from jobs.planning.plan_total import PLAN_COLUMNS, PLAN_NUMBERS, plan_end, plan_rows, plan_title
from jobs.reading.plain_values import rows_of
from jobs.review.compared import Compared
from jobs.review.report.page import difference_values, section
from windowlib.libraries import pa

SHOWN_ROWS = 20
SHOWN_TEXT = 120
_STYLE = (
    "<style>.hindcast .before { text-decoration: line-through } .hindcast .after { font-weight: bold } "
    ".hindcast dl { display: flex; gap: 2em } .hindcast .soft { opacity: .7 } .hindcast .num { text-align: right }"
    "</style>"
)


def plan_html(planned: Plan) -> str:
    """Return a plan: a row for each slice, or for a stretch of slices that are replayed for the same reason."""
    return _listing(
        title=plan_title(planned),
        columns=PLAN_COLUMNS,
        rows=plan_rows(planned, at_least=FOLD_FROM),
        numbers=PLAN_NUMBERS,
        notes=[plan_end(planned), *(f"warning: {warning}" for warning in planned.warnings)],
    )


def rows_html(title: str, rows: "pa.Table") -> str:
    """Return the first rows of an Arrow table, and how many there are."""
    from pyarrow import types

    numbers = [column.name for column in rows.schema if types.is_integer(column.type) or types.is_floating(column.type)]
    shown = [[_text(row[name]) for name in rows.column_names] for row in rows_of(rows.slice(0, SHOWN_ROWS))]
    left = rows.num_rows - len(shown)
    notes = [f"{counted(left, 'more row')}"] if left else []
    title = f"{title}: {counted(rows.num_rows, 'row')}"
    return _listing(title=title, columns=rows.column_names, rows=shown, numbers=numbers, notes=notes)


def differences_html(differences: Differences) -> str:
    """Return a difference as the report and the review pages show it."""
    compared = Compared(
        before=differences.before,
        after=differences.after,
        slices=differences.slices,
        rows=differences.rows,
        found=differences,
    )
    return f'{_STYLE}<div class="hindcast">{section("differences", difference_values(compared))}</div>'


def _listing(**values: object) -> str:
    return f'{_STYLE}<div class="hindcast">{section("listing", values)}</div>'


def _text(value: object) -> str:
    return shortened("null" if value is None else str(value), SHOWN_TEXT)
