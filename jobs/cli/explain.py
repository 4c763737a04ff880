"""The command explain: the fate of one record, or why a window has its numbers."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click
from typing_extensions import override

from jobs.cli import options
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, read_in_zone, show_instant
from jobs.plain_text import counted
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from jobs.planning.stored_spec import at_read_log, spec_of_request, stored_pipeline
from jobs.reading.stored_tables import spec_of
from jobs.review.explain import Locator, explain
from jobs.runs import SHOWN_DIGITS

if TYPE_CHECKING:
    from jobs.review.window.told_window import WindowExplanation

MOST_RECORDS: Final = 10
"""Without --all, so many of the first and of the last records of a window are printed."""
_BEGINS_WITH_MINUS = re.compile(r"-[^-]")


class _WithRecordId(click.Command):
    """A command without short options: an argument that begins with one `-` is the id of a record."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ids = [text for text in args if _BEGINS_WITH_MINUS.match(text) and text not in ctx.help_option_names]
        if ids and not {"--", "--window"} & {*args}:
            args = [*(text for text in args if text not in ids), "--", *ids]
        return super().parse_args(ctx, args)


@click.command(
    "explain",
    cls=_WithRecordId,
    short_help="Print the fate of one record, or why a window has its numbers.",
    epilog="Examples: hindcast explain flights RECORD_ID; hindcast explain flights --window JFK 2013-02-04T13:45. "
    "Write -- before an id that begins with two minus signs.",
)
@click.option(
    "--window",
    nargs=2,
    default=None,
    metavar="KEY START",
    help="Explain the window of this key that starts there. KEY is the value of the key column. Of several columns, it "
    'is their values in the order of log.key, such as "JFK,HA". With log.over: all, it is the word all.',
)
@click.option(
    "--end", "end_text", default=None, metavar="END", help="The end of the window, if its start is not enough."
)
@click.option(
    "--request",
    "request_text",
    default=None,
    metavar="ID",
    help="Explain the window with the staged runs of this open request. The id, or its first letters.",
)
@click.option(
    "--all", "prints_all", is_flag=True, help="Print all records of the window, not only the first and last 10."
)
@click.option(
    "--position",
    "with_position",
    is_flag=True,
    help="For a record in windows, also print its position in the log and the watermark at that position, which are "
    "found by reading its slice.",
)
@options.json_option
@options.master_option
@options.pipeline_options
@click.argument("record_id", metavar="[RECORD_ID]", required=False)
def explain_command(  # noqa: PLR0913  (its options)
    *, record_id: str | None, window: tuple[str, str] | None, end_text: str | None, request_text: str | None,
    prints_all: bool, with_position: bool, as_json: bool, master: str | None, work: RequestContext,
) -> int:  # fmt: skip
    """Print the fate of one record and why: its windows, or why it is late, unassigned or invalid.

    RECORD_ID is a value of the column that the pipeline file names in log.record_id. Without log.record_id, it is the
    record_id of a late, unassigned or invalid record: the hash of the record, 16 hexadecimal digits.

    With --window, print the records of a window in log order, each with the watermark that it met, and its panes, with
    those that readers see. The operator computes the panes again, and the command tells if the stored rows differ.
    """
    if (record_id is None) == (window is None):
        raise click.UsageError("Give RECORD_ID for a record, or --window KEY START for a window.")
    work, _ = on_published_spec(work)
    if window is not None:
        if with_position:
            raise click.UsageError("--position is for RECORD_ID; --window prints the position of each record.")
        most = None if prints_all or as_json else MOST_RECORDS
        if told := read_in_zone(work.pipeline, window[1]):
            options.complain(told)
        explained = _explained(work, window, end_text=end_text, request_text=request_text, most=most, master=master)
        if as_json:
            options.print_json(explained.to_json())
        else:
            _show(work.pipeline, explained)
        return options.OK
    if end_text is not None or request_text is not None or prints_all:
        raise click.UsageError("--end, --request and --all are for --window.")
    assert record_id is not None, "one of the two is given"
    view = work.ledger.view()
    locate = _locator(work, view=view, master=master) if with_position else None
    explanation = explain(work.lake, work.pipeline, record_id, view=view, locate=locate)
    return options.answer(as_json, explanation.to_json(), *explanation.lines)


def _locator(work: RequestContext, *, view: LedgerView, master: str | None) -> Locator:
    def find(run: StagedRun, record_id: str) -> tuple[int, int | None]:
        from jobs.engine.user_errors import explained
        from jobs.review.position import locate
        from jobs.spark.lazy_session import LazySession

        spec = stored_pipeline(work.pipeline, view.requests[run.request_id])
        spec = at_read_log(spec, work.lake, run, stored=spec_of(view, run))
        named = {"record_id": work.pipeline.log.record_id}
        spec = spec.model_copy(update={"log": spec.log.model_copy(update=named)})
        session = LazySession.named("hindcast explain", master)
        with explained(spec):
            return locate(session, spec, work.lake, view=view, run=run, record_id=record_id)

    return find


def _explained(
    work: RequestContext, window: tuple[str, str], *, end_text: str | None, request_text: str | None,
    most: int | None, master: str | None,
) -> "WindowExplanation":  # fmt: skip
    from jobs.engine.user_errors import explained
    from jobs.replay.stages.counted import reading_tasks
    from jobs.review.window.explanation import AskedWindow, explain_window, key_columns_of
    from jobs.review.window.wanted import key_of_text
    from jobs.spark.lazy_session import LazySession

    lake, view = work.lake, work.ledger.view()
    request_id = None if request_text is None else options.request_of(work, request_text)
    pipeline = spec_of_request(work.pipeline, view, request_id)
    key_text, start_text = window
    asked = AskedWindow(
        key=key_of_text(pipeline, key_text, key_columns_of(lake, pipeline)),
        start_ms=parse_bound(pipeline, start_text),
        end_ms=None if end_text is None else parse_bound(pipeline, end_text),
        request=request_id,
        most=most,
    )
    with closing(LazySession.named("hindcast explain", master)) as session, explained(pipeline):
        return explain_window(lake, pipeline, asked, view=view, reading=lambda chunk: reading_tasks(session, chunk))


def _show(pipeline: Pipeline, explained: "WindowExplanation") -> None:
    options.say(explained.sentence)
    if explained.records:
        _show_records(explained)
    if explained.panes:
        _show_panes(explained)
    if pipeline.functions():
        options.say("The functions of the pipeline ran again, in this process.")
    for sentence in explained.differences or ("The stored rows are those that the operator gives.",):
        options.say(sentence, style="red" if explained.differences else None)


def _show_records(explained: "WindowExplanation") -> None:
    from jobs.cli.inspect import cell

    records = explained.records
    inputs = [*dict.fromkeys(name for record in records for name in record.values)]
    changes = ["change"] if any(record.change for record in records) else []
    names = ["slice", "place", "record", "event time", "watermark met", "fate", *changes, *inputs]

    def rows() -> Iterator[list[object]]:
        for number, record in enumerate(records):
            if explained.left_out and number == MOST_RECORDS:
                yield ["…", *[""] * (len(names) - 1)]
            fate = record.fate if record.reason is None else f"{record.fate} {record.reason}"
            yield [
                record.slice_id,
                f"{record.rank + 1:,}",
                record.record_id,
                show_instant(record.event_time_ms).removesuffix(" UTC"),
                "none" if record.watermark_ms is None else show_instant(record.watermark_ms).removesuffix(" UTC"),
                fate,
                *([record.change or ""] if changes else []),
                *(cell(record.values.get(name)) for name in inputs),
            ]

    total = counted(explained.left_out + len(records), "record")
    cut = f", {explained.left_out:,} in the middle left out (--all prints all)" if explained.left_out else ""
    title = f"{total} in log order{cut}; times are UTC"
    options.print_table(title, names, rows(), right=["place"], whole=["slice", "record"])


def _show_panes(explained: "WindowExplanation") -> None:
    from jobs.cli.inspect import cell

    places = ("slice", "after place", "pane", "timing", "kind")
    names = [*places, *explained.outputs, "record_count", "final", "watermark", "run", "readers"]

    def rows() -> Iterator[list[object]]:
        for pane in explained.panes:
            row, rank = pane.row, pane.row["fired_rank"]
            wrong = " (not what the operator gives)" if pane.is_computed is False else ""
            yield [
                pane.slice_id,
                "start" if rank is None or rank < 0 else f"{rank + 1:,}",
                row["pane_index"],
                row["timing"],
                row["kind"],
                *(cell(row.get(name)) for name in explained.outputs),
                row["record_count"],
                "yes" if row["is_last"] else "no",
                "none" if row["watermark_ms"] is None else show_instant(row["watermark_ms"]).removesuffix(" UTC"),
                pane.run_id[:SHOWN_DIGITS],
                pane.readers + wrong,
            ]

    title = f"{counted(len(explained.panes), 'pane')} in the order of firing"
    right = ["after place", "pane", "record_count", *explained.outputs]
    options.print_table(title, names, rows(), right=right, whole=["slice", "run"])
