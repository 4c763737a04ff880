"""Reads the published rows of a pipeline at one ledger version, without Spark.

The ledger gives the (slice, attempt) pairs of the published runs. `published_sql` is the query that selects the last
pane of each window; DuckDB runs it here, and Spark runs it in `jobs.readers`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.ledger.view import LedgerView, StagedRun
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, of_attempts, run_attempt
from jobs.reading.stored_tables import keys_by_run, reader_columns
from windowlib.libraries import pa
from windowlib.records.tables import ROW_CHECK, ROW_ID, WINDOW_OUTPUTS

Quote = Callable[[str], str]
HIDDEN = (ROW_ID, ROW_CHECK, "fired_rank")
"""Columns of window_outputs that the published view does not show."""
BOUNDS = ("window_start", "window_end")
_OF_PANES = ("kind", "mode", "fired_rank", "attempt_id")
"""What tells which pane of a window is shown, besides its place."""


def quote_duckdb(identifier: str) -> str:
    """Return the identifier in the quotes of DuckDB and the SQL standard."""
    return '"' + identifier.replace('"', '""') + '"'


def quote_spark(identifier: str) -> str:
    """Return the identifier in Spark's quotes."""
    return "`" + identifier.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedView:
    """The parameters of `published_sql`: key columns, columns to return, and whether to return every pane."""

    keys: Sequence[str]
    columns: Sequence[str]
    all_panes: bool = False


def published_sql(view: PublishedView, *, relation: str, quote: Quote) -> str:
    """Return the query that selects the published panes of each window from rows of window_outputs.

    A row replaces the row of its window before it if it repeats that row (mode 'accumulating') or withdraws it (kind
    'superseded' or 'retraction'). A row of mode 'discarding' adds to the rows before it. The rows of a window are
    ordered by slice, then by pane_index (which never restarts within a slice), then by position. With `all_panes` the
    query returns every row. `relation` is the quoted name of a relation with exactly the rows of the published
    attempts, and `quote` the quoting function of the SQL dialect.
    """
    columns = ", ".join(quote(column) for column in view.columns)
    if view.all_panes:
        return f"SELECT {columns} FROM {relation}"  # noqa: S608  (identifiers are quoted; there are no values)
    window = ", ".join(quote(column) for column in (*view.keys, "window_start", "window_end"))
    # The rows of one firing share its pane_index and rank equally. A row that withdraws another one sorts after it.
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
    """The published runs whose specs have the same key columns."""

    keys: tuple[str, ...]
    runs: tuple[StagedRun, ...]


def published_runs(view: LedgerView) -> tuple[StagedRun, ...]:
    """Return the published runs, in slice order."""
    return tuple(view.run(run_id) for run_id in view.published.values())


def runs_by_keys(view: LedgerView, runs: Iterable[StagedRun] | None = None) -> tuple[KeyedRuns, ...]:
    """Return runs (the published ones) grouped by the key columns of their specs; a new spec may change the keys."""
    by_keys: dict[tuple[str, ...], list[StagedRun]] = {}
    chosen = published_runs(view) if runs is None else [*runs]
    keys = keys_by_run(view, chosen)
    for run in chosen:
        by_keys.setdefault(keys[run.result.run_id], []).append(run)
    return tuple(KeyedRuns(own, tuple(of_keys)) for own, of_keys in by_keys.items())


def read_published(
    lake: Lake, pipeline: str, view: LedgerView, *, all_panes: bool = False, content_rows: int | None = CONTENT_ROWS,
    chosen: RowFilter | None = None, columns: Sequence[str] | None = None,
) -> "pa.Table":  # fmt: skip
    """Return the published windows of a pipeline.

    A window is identified by its bounds and by the key columns of its run's spec. `view` decides which runs are
    published. With `all_panes`, every pane of every window is returned, also superseded ones. The content of each row
    is compared with its id if there are at most `content_rows`; None: always. `chosen` chooses windows by key columns
    and `window_start` only, because a pane must not be chosen without the panes that replace it. `columns` are in this
    order; None: all of window_outputs without those of `HIDDEN`. The rows are ordered by window and key. Without a
    publication, the table has no rows and columns.
    Raises StoreError: a file cannot be read, or the rows differ from those that were written. `StoredRuns.filtered`
    tells what is compared for chosen windows.
    """
    groups = runs_by_keys(view)
    keys = dict.fromkeys(key for group in groups for key in group.keys)
    order = [*BOUNDS, *keys, "slice_id", "pane_index"]
    needed = None if columns is None else [*dict.fromkeys((*columns, *order, *_OF_PANES))]
    stored = StoredRuns(lake, pipeline, view, content_rows)
    if chosen is None:
        rows = stored.read(WINDOW_OUTPUTS, published_runs(view), needed)
    else:
        rows = stored.filtered(published_runs(view), chosen, columns=needed)
    if not rows.column_names:
        return rows
    seen = reader_columns(lake, pipeline, WINDOW_OUTPUTS, view=view)
    shown = [name for name in rows.column_names if name in seen and name not in HIDDEN]
    parts, relations = [], {}
    for number, group in enumerate(groups):
        relation = f"panes_{number}"
        attempts = {run_attempt(run) for run in group.runs}
        relations[relation] = rows if len(groups) == 1 else of_attempts(rows, attempts)
        panes = PublishedView(keys=group.keys, columns=shown, all_panes=all_panes)
        parts.append(published_sql(panes, relation=relation, quote=quote_duckdb))
    result = query(relations, f"{' UNION ALL '.join(parts)} ORDER BY {', '.join(map(quote_duckdb, order))}")
    return result if columns is None else result.select(list(columns))


def read_published_table(
    lake: Lake, pipeline: str, table: str, *, view: LedgerView, columns: Sequence[str] | None = None
) -> "pa.Table":
    """Return the published rows of any table of a pipeline, except the ledger.

    Raises StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    if columns is None:
        columns = tuple(reader_columns(lake, pipeline, table, view=view))
    return StoredRuns(lake, pipeline, view, CONTENT_ROWS).read(table, published_runs(view), columns)
