"""`hindcast init`: write a first pipeline file for an event log, and print its plan."""

import os
import sys
from dataclasses import replace

import click

from jobs.cli import options
from jobs.cli.doctor import column_options, request_of, sample_option, show_examination
from jobs.cli.slice_lines import show_plan
from jobs.doctor.column_roles import ALL, TimeRole, Wishes
from jobs.doctor.examination import Examination, Request, examine
from jobs.doctor.finding import Severity
from jobs.doctor.trial import Accepted
from jobs.durations import format_duration
from jobs.new_file import write_new
from jobs.pipeline.files import twin_of
from jobs.pipeline.slices import check_range, show_instant, slice_at, slice_grid
from jobs.plain_text import escaped
from jobs.planning.steps import Ask
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError


@click.command(
    "init",
    short_help="Write a first pipeline file for an event log, and print its plan.",
    epilog="Example: hindcast init event_logs/clicks --key user_id --yes",
)
@click.argument("table")
@click.option("--name", help="The name of the pipeline and of its file.  [default: from the table]")
@column_options
@sample_option
@click.option("--yes", "takes_all", is_flag=True, help="Ask nothing: take the options, and the proposals for the rest.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@options.place_options
def init_command(
    *, table: str, name: str | None, wishes: Wishes, sample: int, takes_all: bool, force: bool, places: options.Places
) -> int:
    """Examine an event log as `hindcast doctor` does, and write PIPELINES/NAME.yaml, which runs.

    On a terminal, the command asks for the columns and shows what it has found as the default. Without a terminal, or
    with --yes, it takes the options and its proposals. If no file can be written that is accepted for the table,
    nothing is written, and the findings tell what mends it.
    """
    request = request_of(table, places, wishes=wishes, sample=sample, name=name)
    _refuse_existing(request, force=force)
    examination = examine(request, now_ms=now_ms())
    if not takes_all and sys.stdin.isatty():
        request = _asked(request, examination)
        _refuse_existing(request, force=force)
        examination = examine(request, now_ms=now_ms())
    if examination.fit is None:
        show_examination(examination, window_ms=request.wishes.window_ms)
        options.complain(
            f"error: no pipeline file can be proposed for {request.uri}, and nothing was written: mend the errors above"
        )
        return options.REFUSED
    try:
        request.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--pipelines: {request.path.parent} is not a directory: {error.strerror}") from error
    write_new(request.path, examination.fit.text, replaces=force, way_on="use --force or another --name")
    options.say(*examination.fit.text.splitlines())
    for finding in examination.findings:
        if finding.severity is Severity.WARNING:
            options.say(f"{finding.severity.value}: {finding.subject}: {finding.text}")
    options.say(f"wrote {request.path}")
    _show_plan(examination.fit, request, places)
    return options.OK


def _refuse_existing(request: Request, *, force: bool) -> None:
    """Refuse early what would be refused when the file is written."""
    if (twin := twin_of(request.path)) is not None:
        raise RequestError(f"{twin} exists, and is the same pipeline; use another --name, or remove it")
    if os.path.lexists(request.path) and not force:
        raise RequestError(f"{request.path} exists and is not overwritten; use --force or another --name")


def _asked(request: Request, examination: Examination) -> Request:
    """Ask for the name and the columns. The defaults are what was found."""
    roles, proposal = examination.roles, examination.proposal
    wishes = request.wishes
    slices = () if proposal is None else proposal.slices.columns or ("commits",)
    order = () if proposal is None else proposal.order.columns or (proposal.order.text or "commits",)
    name = _ask("Name of the pipeline", request.pipeline)
    key = _ask(
        "Key columns (commas between them; all: one set of windows for all records)", ", ".join(roles.key or ALL)
    )
    event_time = _ask("Event time (COLUMN or COLUMN:UNIT)", _time_text(roles.event_time))
    slice_by = _ask("Slice by (partition columns, a time of arrival, or commits)", ", ".join(slices))
    order_by = _ask("Order of the records in a slice (columns, commits or appended)", ", ".join(order))
    window = _ask("Size of the tumbling windows", format_duration(wishes.window_ms))
    is_same_order = _listed(order_by) == tuple(order) and not wishes.order
    return replace(
        request,
        name=name,
        wishes=replace(
            wishes,
            key=_listed(key),
            event_time=event_time or None,
            slice_by=_listed(slice_by),
            order=() if is_same_order else _listed(order_by),
            window_ms=options.duration_ms(window, "--window"),
        ),
    )


def _ask(question: str, default: str) -> str:
    answer: str = click.prompt(escaped(question), default=escaped(default), show_default=True)
    return answer.strip()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _time_text(role: TimeRole | None) -> str:
    return "" if role is None else role.column + (f":{role.unit}" if role.unit else "")


def _show_plan(accepted: Accepted, request: Request, places: options.Places) -> None:
    """Print the plan of the slices that are over."""
    pipeline = places.pipeline(str(request.path))
    if accepted.range_ms is None:
        options.say("The table has no records, so there is nothing to plan.")
        return
    start_ms, end_ms = accepted.range_ms
    now = now_ms()
    over_ms = min(end_ms, slice_at(slice_grid(pipeline), now).start_ms)
    if start_ms >= over_ms:
        first_ms = slice_at(slice_grid(pipeline), start_ms).end_ms
        options.say(
            f"No slice is over yet, so there is nothing to plan: the first one ends at {show_instant(first_ms)}."
        )
        return
    work = places.request_context(pipeline)
    ask = Ask(slices=check_range(pipeline, start_ms, over_ms, now_ms=now))
    planned = work.plan(work.ledger.view(), ask)
    show_plan(planned)
    options.say(f"Next: hindcast run {pipeline.name} --from {planned.from_text} --to {planned.to_text}")
