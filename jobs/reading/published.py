"""What readers see: one ledger version resolved into (slice, attempt) pairs, then tables read through them. No Spark.

The rule of the published view is SQL that DuckDB and Spark both run; `published_sql` is its one place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.lake.lake import Lake
from jobs.lake.store import query
from jobs.ledger.view import LedgerView, StagedRun
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, of_attempts, run_attempt
from jobs.reading.stored_tables import spec_of
from windowlib.records.tables import QUALITY_RESULTS, ROW_CHECK, ROW_ID, TALLIES, WINDOW_OUTPUTS

if TYPE_CHECKING:
    import pyarrow as pa

Quote = Callable[[str], str]
HIDDEN = (ROW_ID, ROW_CHECK, "fired_rank")
"""Columns of window_outputs that the published view does not show."""


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


@dataclass(frozen=True, slots=True)
class KeyedRuns:
    """Published runs whose specs have the same key columns."""

    keys: tuple[str, ...]
    runs: tuple[StagedRun, ...]


def published_runs(view: LedgerView) -> tuple[StagedRun, ...]:
    """The runs that readers see, in slice order."""
    return tuple(view.run(run_id) for run_id in view.published.values())


def runs_by_keys(view: LedgerView) -> tuple[KeyedRuns, ...]:
    """The published runs, by the key columns of their own specs: a chain may change its keys with a new spec."""
    found: dict[tuple[str, ...], list[StagedRun]] = {}
    for run in published_runs(view):
        found.setdefault(spec_of(view, run).log.key_columns, []).append(run)
    return tuple(KeyedRuns(keys, tuple(runs)) for keys, runs in found.items())


def read_published(
    lake: Lake, pipeline: str, view: LedgerView, *, all_panes: bool = False, content_rows: int | None = CONTENT_ROWS
) -> "pa.Table":
    """The published windows of a pipeline, by window and key; without a publication, no rows and no columns.

    A window is told from others by the key columns of the spec of its run.

    Args:
        lake: where.
        pipeline: its name.
        view: one ledger version; everything is read as it says.
        all_panes: every pane of every window, superseded ones too.
        content_rows: up to so many rows are compared with their ids, cell by cell; None: however many there are.

    Returns:
        All columns of window_outputs but those of `HIDDEN`.

    Raises:
        StoreError: a file cannot be read, or its rows are not those that were written.
    """
    rows = StoredRuns(lake, pipeline, view, content_rows).read(WINDOW_OUTPUTS, published_runs(view))
    if not rows.column_names:
        return rows
    columns = [name for name in rows.column_names if name not in HIDDEN]
    groups = runs_by_keys(view)
    parts, relations = [], {}
    for number, group in enumerate(groups):
        relation = f"panes_{number}"
        attempts = {run_attempt(run) for run in group.runs}
        relations[relation] = rows if len(groups) == 1 else of_attempts(rows, attempts)
        shown = PublishedView(keys=group.keys, columns=columns, all_panes=all_panes)
        parts.append(published_sql(shown, relation=relation, quote=quote_duckdb))
    keys = dict.fromkeys(key for group in groups for key in group.keys)
    order = ", ".join(
        quote_duckdb(column) for column in ("window_start", "window_end", *keys, "slice_id", "pane_index")
    )
    return query(relations, f"{' UNION ALL '.join(parts)} ORDER BY {order}")


def read_published_table(
    lake: Lake, pipeline: str, table: str, *, view: LedgerView, columns: Sequence[str] | None = None,
    content_rows: int | None = CONTENT_ROWS,
) -> "pa.Table":  # fmt: skip
    """The published rows of any table of a pipeline but the ledger.

    Raises:
        StoreError: a file cannot be read, or its rows are not those that were written.
    """
    return StoredRuns(lake, pipeline, view, content_rows).read(table, published_runs(view), columns)


def read_quality_results(
    lake: Lake, pipeline: str, runs: Iterable[StagedRun], *, view: LedgerView
) -> list[dict[str, Any]]:
    """The rows of quality_results of some runs, in slice order; where one was checked again, of the newest time.

    Raises:
        StoreError: they are not the checks that the ledger has.
    """
    return _dicts(StoredRuns(lake, pipeline, view), QUALITY_RESULTS, runs)


def read_tallies(lake: Lake, pipeline: str, runs: Iterable[StagedRun], *, view: LedgerView) -> list[dict[str, Any]]:
    """The rows of tallies, the terms of the audit's equations, of some runs, in slice order.

    Raises:
        StoreError: they are not those that were written.
    """
    return _dicts(StoredRuns(lake, pipeline, view), TALLIES, runs)


def _dicts(stored: StoredRuns, table: str, runs: Iterable[StagedRun]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stored.read(table, runs).to_pylist()
    return sorted(rows, key=lambda row: str(row["slice_id"]))
