"""What readers see: one ledger version resolved into (slice, attempt) pairs, then tables read through them. No Spark.

The rule of the published view is SQL that DuckDB and Spark both run; `published_sql` is its one place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.lake import Lake
from jobs.ledger_view import LedgerView, StagedRun
from jobs.store import Attempt, query, read_attempts
from windowlib.tables import QUALITY_RESULTS, TALLIES, WINDOW_OUTPUTS

if TYPE_CHECKING:
    import pyarrow as pa

Quote = Callable[[str], str]


def quote_duckdb(identifier: str) -> str:
    """An identifier as DuckDB and the SQL standard quote it."""
    return '"' + identifier.replace('"', '""') + '"'


def quote_spark(identifier: str) -> str:
    """An identifier as Spark quotes it."""
    return "`" + identifier.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedView:
    """What the SQL of a view depends on: the pipeline's key columns, the columns to show, every pane or not."""

    keys: Sequence[str]
    columns: Sequence[str]
    all_panes: bool = False


def published_sql(view: PublishedView, *, relation: str, quote: Quote) -> str:
    """The query over the published rows of window_outputs.

    A row of a window replaces the row before it if it repeats it (mode 'accumulating') or withdraws it (superseded,
    retraction), and stands beside it if not (mode 'discarding'). The order of a window's rows is by slice, then by
    pane_index, which within a slice never restarts; a position counts last. With `all_panes` it gives every row.

    Args:
        view: keys, columns, all panes or not.
        relation: the quoted name of a relation that holds exactly the rows of published attempts.
        quote: of the dialect, `quote_duckdb` or `quote_spark`.
    """
    columns = ", ".join(quote(column) for column in view.columns)
    if view.all_panes:
        return f"SELECT {columns} FROM {relation}"  # noqa: S608  (identifiers are quoted, and there are no values)
    window = ", ".join(quote(column) for column in (*view.keys, "window_start", "window_end"))
    # One firing may emit several rows: they share its pane_index, and are peers here. What takes a row back follows it.
    taken_back, is_anew = "CASE kind WHEN 'result' THEN 0 ELSE 1 END", "kind = 'result' AND mode = 'discarding'"
    chained = (
        f"SELECT *, sum(CASE WHEN {is_anew} THEN 1 ELSE 0 END) OVER "  # noqa: S608
        f"(PARTITION BY {window} ORDER BY slice_id, pane_index, {taken_back}, fired_rank) AS __chain FROM {relation}"
    )
    aged = (
        f"SELECT *, rank() OVER (PARTITION BY {window}, __chain "  # noqa: S608
        f"ORDER BY slice_id DESC, pane_index DESC, {taken_back} DESC, fired_rank DESC) AS __age "
        f"FROM ({chained}) AS __chained"
    )
    return f"SELECT {columns} FROM ({aged}) AS __aged WHERE __age = 1 AND kind = 'result'"  # noqa: S608


def read_published(
    lake: Lake, pipeline: str, view: LedgerView, *, keys: Sequence[str], all_panes: bool = False
) -> "pa.Table":
    """The published windows of a pipeline, by window and key; without a publication, no rows and no columns.

    Args:
        lake: where.
        pipeline: its name.
        view: one ledger version; everything is read as it says.
        keys: the key columns of the published spec.
        all_panes: every pane of every window, superseded ones too.

    Returns:
        All columns of window_outputs but `row_id` and `fired_rank`.
    """
    rows = read_attempts(lake.table(pipeline, WINDOW_OUTPUTS), view.published_pairs())
    if not rows.column_names:
        return rows
    columns = [name for name in rows.column_names if name not in {"row_id", "fired_rank"}]
    sql = published_sql(
        PublishedView(keys=keys, columns=columns, all_panes=all_panes), relation="panes", quote=quote_duckdb
    )
    order = ", ".join(
        quote_duckdb(column) for column in ("window_start", "window_end", *keys, "slice_id", "pane_index")
    )
    return query({"panes": rows}, f"{sql} ORDER BY {order}")


def read_published_table(
    lake: Lake, pipeline: str, table: str, *, view: LedgerView, columns: Sequence[str] | None = None
) -> "pa.Table":
    """The published rows of any table of a pipeline but the ledger."""
    return read_attempts(lake.table(pipeline, table), view.published_pairs(), columns)


def read_quality_results(lake: Lake, pipeline: str, runs: Iterable[StagedRun]) -> list[dict[str, Any]]:
    """The rows of quality_results of some runs, in slice order; where one was checked again, of the newest time."""
    pairs = [(run.result.slice.slice_id, run.checks_attempt_id) for run in runs]
    return _dicts(lake, pipeline, QUALITY_RESULTS, pairs=pairs)


def read_tallies(lake: Lake, pipeline: str, runs: Iterable[StagedRun]) -> list[dict[str, Any]]:
    """The rows of tallies, the terms of the audit's equations, of some runs, in slice order."""
    pairs = [(run.result.slice.slice_id, run.result.attempt_id) for run in runs]
    return _dicts(lake, pipeline, TALLIES, pairs=pairs)


def _dicts(lake: Lake, pipeline: str, table: str, *, pairs: Sequence[Attempt]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_attempts(lake.table(pipeline, table), pairs).to_pylist()
    return sorted(rows, key=lambda row: str(row["slice_id"]))
