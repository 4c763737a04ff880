"""The commands that read stored rows: show and report."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from jobs.cli import options
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant, slice_of_id
from jobs.plain_text import counted, escaped_json
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from jobs.reading.plain_values import plain, rows_of, shown_instant
from jobs.reading.published import read_published
from jobs.reading.stored_tables import spec_of
from jobs.storage import is_remote
from windowlib.libraries import pa, pc

ROWS_AT_ONCE = 1_000
"""So many rows are printed as JSON, and then the next ones."""
_SIX_DIGITS_FROM = 10_000
"""Two decimals of a number from this one on are at least six digits."""
_TOO_LONG_FROM = 1e15


@click.command(
    "show",
    short_help="Print the published windows.",
    epilog="Examples: hindcast show flights --limit 5; hindcast show flights --slice 2013-02-08 --json",
)
@click.option(
    "--slice",
    "slice_ids",
    multiple=True,
    metavar="SLICE",
    help="Print only the rows of this slice. The option can be given several times.",
)
@click.option("--all-panes", is_flag=True, help="Print every firing of every window, not only the final result.")
@options.at_option("Print what was published at this ledger version.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=None,
    help="The greatest number of rows.  [default: 20, or all with --json]",
)
@options.json_option
@options.published_options
def show_command(
    *, slice_ids: Sequence[str], all_panes: bool, at_version: int | None, limit: int | None,
    as_json: bool, work: RequestContext,
) -> int:  # fmt: skip
    """Print the published windows of a pipeline, sorted by window and key. With --json, each row is a line of JSON.

    Numbers are rounded to two decimals, or to six digits if that is more exact. --json prints all digits.
    """
    work, _ = on_published_spec(work)
    pipeline, view = work.pipeline, work.ledger.view(at_version)
    seen = {slice_id: view.slices[slice_id] for slice_id in view.published}
    wanted = [slice_of_id(pipeline, slice_id, known=seen).slice_id for slice_id in slice_ids]
    rows = _of_slices(read_published(work.lake, pipeline.name, view, all_panes=all_panes), wanted)
    # A slice of a table without columns has as many rows as are asked.
    chosen = rows.slice(0, min(rows.num_rows, limit if limit is not None else rows.num_rows if as_json else 20))
    if as_json:
        for batch in chosen.to_batches(max_chunksize=ROWS_AT_ONCE):
            for row in rows_of(batch):
                options.print_json(plain(row))
        return options.OK
    shown = rows_of(chosen)
    if not rows.num_rows:
        panes = rows if all_panes else read_published(work.lake, pipeline.name, view, all_panes=True)
        options.say(_why_no_windows(pipeline, view, wanted, has_panes=bool(_of_slices(panes, wanted).num_rows)))
        return options.OK
    keys, outputs = _columns(pipeline, view, chosen)
    firing = ("kind", "pane_index", "timing") if all_panes else ()
    bounds = "(start, end]" if pipeline.front_end == "storm" else "[start, end)"
    title = f"{pipeline.name}: {len(shown):,} of {counted(rows.num_rows, 'row')}, windows are {bounds}, times are UTC"
    cells = (
        [
            *(cell(row[key]) for key in keys),
            _window(row),
            *(cell(row[name]) for name in (*outputs, *firing, "slice_id")),
        ]
        for row in shown
    )
    names = [*keys, "window", *outputs, *firing, "slice"]
    documents = [name for name in outputs if any(isinstance(row[name], list | dict) for row in shown)]
    numbers = [name for name in (*outputs, "pane_index") if name not in documents]
    title += "; use --json for long values" if documents else ""
    options.print_table(title, names, cells, right=numbers, whole=["window", "slice"], cut=documents)
    return options.OK


@click.command(
    "report",
    short_help="Write an HTML page about a pipeline.",
    epilog="Example: hindcast report flights --output flights.html",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The file to write.  [default: reports/PIPELINE.html in the lake]",
)
@options.published_options
def report_command(*, output: Path | None, work: RequestContext) -> int:
    """Write a self-contained HTML page: calendar of slices, checks with history, counts, commands to reproduce it."""
    from jobs.review.report.page import write_report

    work, _ = on_published_spec(work)
    place = write_report(work.lake, work.pipeline, output)
    options.say(f"report: {place if is_remote(place) else Path(place).resolve()}")
    return options.OK


def _why_no_windows(pipeline: Pipeline, view: LedgerView, slice_ids: Sequence[str], *, has_panes: bool) -> str:
    status = f"`hindcast status {pipeline.name}` shows why"
    if not view.published:
        return f"{pipeline.name} has no published windows at ledger version {view.version}; {status}"
    absent = [slice_id for slice_id in slice_ids if slice_id not in view.published]
    if absent:
        return f"{pipeline.name} has no published run of {', '.join(absent)}; {status}"
    if has_panes:
        runs = f"runs of {', '.join(slice_ids)}" if slice_ids else "slices"
        return (
            f"{pipeline.name}: all panes that the published {runs} have fired were withdrawn or replaced by later "
            "ones; --all-panes shows them"
        )
    if slice_ids:
        return f"{pipeline.name}: the published run of {', '.join(slice_ids)} fired no window"
    head = view.head
    watermark_ms = None if head is None else head.result.watermark_ms
    at = "there is none yet" if watermark_ms is None else f"it is {show_instant(watermark_ms)}"
    return (
        f"{pipeline.name}: the published slices have fired no window. A window fires when the watermark has passed its "
        f"end; {at}. Later slices fire the windows that are open"
    )


def _columns(pipeline: Pipeline, view: LedgerView, rows: "pa.Table") -> tuple[list[str], list[str]]:
    """Return the key columns and the outputs of the rows, the newest spec's first.

    Rows of an earlier spec may have others. They are among the columns if a row has a value in them.
    """
    runs = [view.published_run(slice_id) for slice_id in dict.fromkeys(rows["slice_id"].to_pylist())]
    specs = {id(spec): spec for spec in (pipeline, *(spec_of(view, run) for run in runs if run is not None))}
    own = {*pipeline.log.key_columns, *pipeline.output_columns}
    with_values = [name for name in rows.column_names if name in own or rows[name].null_count < rows.num_rows]
    keys = dict.fromkeys(name for spec in specs.values() for name in spec.log.key_columns if name in with_values)
    outputs = dict.fromkeys(name for spec in specs.values() for name in spec.output_columns if name in with_values)
    return [*keys], [name for name in outputs if name not in keys]


def _of_slices(rows: "pa.Table", slice_ids: Sequence[str]) -> "pa.Table":
    if not slice_ids or not rows.num_rows:
        return rows
    return rows.filter(pc.is_in(rows["slice_id"], value_set=pa.array(slice_ids, rows["slice_id"].type)))


def _window(row: Mapping[str, Any]) -> str:
    """The bounds of a row's window: `2013-02-08 05:00 - 06:00`. The end has a date only if the date differs."""
    start, end = row["window_start"], row["window_end"]
    if start is None or end is None:
        return "all time"
    first, last = cell(start), cell(end)
    return f"{first} - {last.removeprefix(first.partition(' ')[0] + ' ')}"


def cell(value: object) -> str:
    """Return a value as the cell of a table; empty for null."""
    if value is None:
        return ""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, datetime):
        return shown_instant(value)
    if isinstance(value, list | dict | bytes):
        return escaped_json(plain(value))
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """Return a number with two decimals, or with six digits if these tell more or there are too many of them."""
    digits = f"{value:,.6g}"
    is_exacter = abs(value) < _SIX_DIGITS_FROM and float(digits.replace(",", "")) != round(value, 2)
    return digits if is_exacter or abs(value) >= _TOO_LONG_FROM else f"{value:,.2f}"
