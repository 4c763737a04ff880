"""The commands that read stored rows: show, explain, report."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from jobs.cli import options
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_of_id
from jobs.plain_text import counted, escaped_json
from jobs.planning.log_state import known_log
from jobs.planning.request_context import on_published_spec
from jobs.reading.plain_values import plain
from jobs.reading.published import read_published
from jobs.review.explain import Locator, explain
from jobs.runs import CheckpointRef, Slice
from jobs.storage import is_remote

_BEGINS_WITH_MINUS = re.compile(r"-[^-]")


@click.command(
    "show",
    short_help="Print the published windows.",
    epilog="Examples: hindcast show flights --limit 5; hindcast show flights --slice 2013-02-08 --json",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option(
    "--slice",
    "slice_ids",
    multiple=True,
    metavar="SLICE",
    help="Print only the rows of this slice. The option can be given several times.",
)
@click.option("--all-panes", is_flag=True, help="Print every firing of every window, not only the final result.")
@click.option(
    "--at",
    "at_version",
    type=click.IntRange(min=0),
    default=None,
    metavar="VERSION",
    help="Print what was published at this ledger version.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=None,
    help="The greatest number of rows.  [default: 20, or all with --json]",
)
@options.json_option
@options.existing_place_options
def show_command(
    *, pipeline_name: str, slice_ids: Sequence[str], all_panes: bool, at_version: int | None, limit: int | None,
    as_json: bool, places: options.Places,
) -> int:  # fmt: skip
    """Print the published windows of a pipeline, sorted by window and key. With --json, each row is a line of JSON."""
    work, _ = on_published_spec(places.request_context(places.pipeline(pipeline_name)))
    pipeline, view = work.pipeline, work.ledger.view(at_version)
    wanted = {slice_of_id(pipeline, slice_id).slice_id for slice_id in slice_ids}
    rows = read_published(places.lake, pipeline.name, view, all_panes=all_panes)
    chosen = [row for row in rows.to_pylist() if not wanted or row["slice_id"] in wanted] if rows.num_rows else []
    if as_json:
        for row in chosen[:limit]:
            options.print_json(plain(row))
        return options.OK
    shown = chosen[: 20 if limit is None else limit]
    if not shown:
        options.say(f"{pipeline.name} has no published windows; `hindcast status {pipeline.name}` shows why")
        return options.OK
    keys, outputs = pipeline.log.key_columns, [name for name in pipeline.output_columns if name in rows.column_names]
    firing = ("kind", "pane_index", "timing") if all_panes else ()
    bounds = "(start, end]" if pipeline.front_end == "storm" else "[start, end)"
    title = f"{pipeline.name}: {len(shown):,} of {counted(len(chosen), 'row')}, windows are {bounds}, times are UTC"
    cells = (
        [
            *(_cell(row[key]) for key in keys),
            _window(row),
            *(_cell(row[name]) for name in (*outputs, *firing, "slice_id")),
        ]
        for row in shown
    )
    names = [*keys, "window", *outputs, *firing, "slice"]
    documents = [name for name in outputs if any(isinstance(row[name], list | dict) for row in shown)]
    numbers = [name for name in (*outputs, "pane_index") if name not in documents]
    title += "; use --json for long values" if documents else ""
    options.print_table(title, names, cells, right=numbers, whole=["window", "slice"], cut=documents)
    return options.OK


class _WithRecordId(click.Command):
    """A command without short options: an argument that begins with one `-` is the id of a record."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ids = [text for text in args if _BEGINS_WITH_MINUS.match(text) and text not in ctx.help_option_names]
        if ids and "--" not in args:
            args = [*(text for text in args if text not in ids), "--", *ids]
        return super().parse_args(ctx, args)


@click.command(
    "explain",
    cls=_WithRecordId,
    short_help="Print the fate of one record, and why.",
    epilog="Example: hindcast explain flights RECORD_ID. Write -- before an id that begins with two minus signs.",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.argument("record_id", metavar="RECORD_ID")
@click.option(
    "--position",
    "with_position",
    is_flag=True,
    help="For a record in windows, also print its position in the log and the watermark at that position. Starts Spark "
    "(15 s).",
)
@options.json_option
@options.master_option
@options.existing_place_options
def explain_command(
    *,
    pipeline_name: str,
    record_id: str,
    with_position: bool,
    as_json: bool,
    master: str | None,
    places: options.Places,
) -> int:
    """Print the fate of one record and why: its windows, or why it is late, unassigned or invalid.

    RECORD_ID is a value of the column that the pipeline file names in log.record_id. Without log.record_id, it is the
    record_id of a late, unassigned or invalid record: the hash of the record, 16 hexadecimal digits.
    """
    work, _ = on_published_spec(places.request_context(places.pipeline(pipeline_name)))
    view = work.ledger.view()
    locate = _locator(work.pipeline, places, view=view, master=master) if with_position else None
    explanation = explain(places.lake, work.pipeline, record_id, view=view, locate=locate)
    if as_json:
        options.print_json(explanation.to_json())
    else:
        options.say(explanation.sentence)
    return options.OK


@click.command(
    "report",
    short_help="Write an HTML page about a pipeline.",
    epilog="Example: hindcast report flights --output flights.html",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The file to write.  [default: reports/PIPELINE.html in the lake]",
)
@options.existing_place_options
def report_command(*, pipeline_name: str, output: Path | None, places: options.Places) -> int:
    """Write a self-contained HTML page: calendar of slices, checks with history, counts, commands to reproduce it."""
    from jobs.review.report.page import write_report

    work, _ = on_published_spec(places.request_context(places.pipeline(pipeline_name)))
    place = write_report(places.lake, work.pipeline, output)
    options.say(f"report: {place if is_remote(place) else Path(place).resolve()}")
    return options.OK


def _locator(pipeline: Pipeline, places: options.Places, *, view: LedgerView, master: str | None) -> Locator:
    def find(one: Slice, record_id: str, before: CheckpointRef | None) -> tuple[int, int | None]:
        from jobs.engine.user_errors import explained
        from jobs.review.position import Wanted, locate
        from jobs.spark.lazy_session import LazySession

        wanted = Wanted(one=one, record_id=record_id, before=before, known=known_log(view, [one]))
        with explained(pipeline):
            found = locate(LazySession.named("hindcast explain", master), pipeline, places.lake, wanted=wanted)
        return found.rank, found.watermark_ms

    return find


def _window(row: Mapping[str, Any]) -> str:
    """The bounds of a row's window: `2013-02-08 05:00 - 06:00`. The end has a date only if the date differs."""
    start, end = row["window_start"], row["window_end"]
    if start is None or end is None:
        return "all time"
    same_day = start.date() == end.date()
    return f"{_cell(start)} - {_cell(end).removeprefix(f'{end:%Y-%m-%d} ') if same_day else _cell(end)}"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if hasattr(value, "strftime"):
        return f"{value:%Y-%m-%d %H:%M:%S}".removesuffix(":00")
    if isinstance(value, list | dict | bytes):
        return escaped_json(plain(value))
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
