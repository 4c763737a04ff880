"""The outputs of a slice's windows over time, in few points, for small drawings."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from jobs.lake.arrow_sql import ArrowSql, plain_rows, query
from jobs.ledger.view import StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.stored_tables import spec_of
from jobs.review.pages.failing import MAX_SEARCHED
from windowlib.libraries import pa
from windowlib.records.tables import WINDOW_OUTPUTS

MAX_POINTS = 120
MAX_PLOTS = 12
_PANE = ("slice_id", "window_start", "window_end", "kind", "mode", "pane_index", "fired_rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotPoint:
    """The windows that start in one interval: the mean, least and greatest value, and how many values."""

    at_ms: int
    mean: float
    least: float
    most: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One output over the starts of the windows. No window starts between points more than `step_ms` apart."""

    name: str
    points: tuple[PlotPoint, ...]
    step_ms: float


def output_plots(stored: StoredRuns, run: StagedRun) -> tuple[Plot, ...]:
    """Return a plot for each numeric output of a run's windows; none of windows without bounds in time.

    A window has the values of the panes that readers see: of its newest firing, or of each firing if panes have only
    the records since the firing before. A withdrawn window has none.
    There is none either if the run has more than `MAX_SEARCHED` panes.
    Raises StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    if not 0 < run.result.counts.panes <= MAX_SEARCHED:
        return ()
    spec = spec_of(stored.view, run)
    wanted = spec.output_columns
    keys = spec.log.key_columns
    rows = shown_panes(stored.read(WINDOW_OUTPUTS, [run], tuple(dict.fromkeys((*_PANE, *keys, *wanted)))), keys)
    names = [name for name in wanted if name in rows.column_names and _is_numeric(rows.schema.field(name).type)]
    if not rows.num_rows or not names or rows["window_start"].null_count == rows.num_rows:
        return ()
    return plots_of(rows, names[:MAX_PLOTS], every_ms=_every_ms(spec), most=MAX_POINTS)


def shown_panes(rows: "pa.Table", keys: Sequence[str]) -> "pa.Table":
    """Return the panes of a run that readers see if it is published: none that another one replaces or withdraws."""
    shown = PublishedView(keys=keys, columns=rows.column_names)
    return query({"rows": rows}, published_sql(shown, relation="rows", quote=quote_duckdb))


def plots_of(rows: "pa.Table", names: Sequence[str], *, every_ms: int | None, most: int) -> tuple[Plot, ...]:
    """Return the plots of some outputs, each with at most `most` points.

    `rows` are panes, with `window_start`, `kind` and the outputs `names`, which are numeric. `every_ms` is the time
    between the starts of two windows; None if that is not regular.
    """
    with ArrowSql() as opened:
        return tuple(_plot(opened, rows, name=name, every_ms=every_ms, most=most) for name in names)


def _every_ms(spec: Pipeline) -> int | None:
    """Return the time between the starts of two windows; None if the windows do not start at regular times."""
    windows = spec.windows
    if windows is None or (windows.tumbling is not None and windows.tumbling.stagger.by != "aligned"):
        return None
    if windows.tumbling is not None:
        return windows.tumbling.size_ms
    return None if windows.sliding is None else windows.sliding.slide_ms


def _plot(opened: ArrowSql, rows: "pa.Table", *, name: str, every_ms: int | None, most: int) -> Plot:
    column = f"CAST({quote_duckdb(name)} AS DOUBLE)"
    every = every_ms or 1
    # The name is a column of the table and quoted; the other parts are fixed. An interval has whole steps of windows.
    sql = (
        f"WITH panes AS (SELECT epoch_ms(window_start) AS at_ms, {column} AS value FROM rows "  # noqa: S608
        f"WHERE kind = 'result' AND window_start IS NOT NULL AND isfinite({column})), "
        "bounds AS (SELECT min(at_ms) AS first_ms, "
        "? * greatest(1, ceil(((max(at_ms) - min(at_ms)) / ? + 1) / ?)) AS width FROM panes) "
        "SELECT CAST(first_ms + floor((at_ms - first_ms) / width) * width AS BIGINT) AS shown_ms, "
        "avg(value), min(value), max(value), count(*), any_value(width) FROM panes, bounds "
        "GROUP BY shown_ms ORDER BY shown_ms"
    )
    needed = rows.select(["window_start", "kind", name])
    bins = plain_rows(opened.query({"rows": needed}, sql, [every, every, most]))
    points = tuple(
        PlotPoint(at_ms=at_ms, mean=mean, least=least, most=greatest, count=count)
        for at_ms, mean, least, greatest, count, _ in bins
    )
    width = float(bins[0][5]) if bins else 0.0
    return Plot(name=name, points=points, step_ms=_step_ms(points, width, is_regular=every_ms is not None))


def _step_ms(points: Sequence[PlotPoint], width: float, *, is_regular: bool) -> float:
    """Return the greatest time between the points of neighbouring windows.

    Windows that start at irregular times, such as sessions, are neighbours if they are at most three times as far
    apart as usual.
    """
    if is_regular or len(points) < 2:  # noqa: PLR2004 -- two points have a distance
        return width
    return max(width, 3 * median(after.at_ms - before.at_ms for before, after in pairwise(points)))


def _is_numeric(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
