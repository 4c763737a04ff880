"""The command repair."""

import click

from jobs.cli import options
from jobs.cli.plan import restart_of
from jobs.cli.progress import progress_option
from jobs.cli.run import Shown, run_asked
from jobs.cli.slice_lines import all_option
from jobs.durations import human_duration
from jobs.folding import fold, folded_line
from jobs.orchestration.late_repair import asked_for, check_current, refusal_of, repairing
from jobs.orchestration.repair_proposals import propose
from jobs.orchestration.repair_range import LateRepair, repair_of
from jobs.orchestration.requests import Staging
from jobs.pipeline.slices import parse_bound
from jobs.plain_text import counted
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import RequestContext
from jobs.planning.suites import with_checks
from jobs.runs import WarmUp


@click.command(
    "repair",
    short_help="Put late records into their windows.",
    epilog="Example: hindcast repair flights --from 2013-02-01 --to 2013-03-01 --run --no-publish",
)
@options.range_options
@click.option(
    "--at-most",
    "at_most_text",
    default=None,
    metavar="DURATION",
    help="Leave out records that are later than this, such as 30d.",
)
@click.option("--run", "runs", is_flag=True, help="Replay the slices, check and publish them.")
@click.option(
    "--propose",
    "proposes",
    is_flag=True,
    help="Open a request that a person starts, on its page or with `run --request`.",
)
@click.option("--no-publish", is_flag=True, help="With --run: only stage them, and print the difference.")
@click.option("--reason", default="", help="Why. The ledger stores it.")
@progress_option
@options.master_option
@all_option
@options.json_option
@options.pipeline_options
def repair_command(  # noqa: PLR0913 - one parameter per option
    *, from_text: str | None, to_text: str | None, at_most_text: str | None, runs: bool, proposes: bool,
    no_publish: bool, reason: str, progress: str, master: str | None, fold_from: int, as_json: bool,
    work: RequestContext,
) -> int:  # fmt: skip
    """Show which late records of published slices could be in their windows; with --run, put them in.

    The range is that of slices, as for `run`; by default it is all that is published. The slices with late records are
    replayed with a greater allowed lateness, from a restart point. Where their rows differ, readers see the new runs.
    All other slices stay as they are, and later slices still start from the states of the chain. The request is
    checked, compared and published as any other.
    """
    if runs and proposes:
        raise click.UsageError("--run replays now, --propose leaves that to somebody; give one of them")
    pipeline = work.pipeline
    work, warnings = on_published_spec(work)
    work = with_checks(work)
    for warning in warnings:
        options.complain(f"warning: {warning}")
    from_ms, to_ms = (None if text is None else parse_bound(pipeline, text) for text in (from_text, to_text))
    at_most_ms = None if at_most_text is None else options.duration_ms(at_most_text, "--at-most")
    repair = repair_of(work, from_ms=from_ms, to_ms=to_ms, at_most_ms=at_most_ms)
    is_report = not (repair.late and (runs or proposes))
    refusal = refusal_of(work, repair) if is_report and repair.late else ""
    if as_json and is_report:
        options.print_json({**repair.to_json(), "refusal": refusal})
        return options.OK
    if not repair.late:
        left = f"; later than --at-most: {counted(repair.left, 'record')}" if repair.left else ""
        options.say(f"{pipeline.name}: no published slice of the range has a late record to repair{left}.")
        options.say(*filter(None, [repair.stays_late]))
        return options.OK
    if not (runs or proposes):
        _show(repair, refusal, at_least=fold_from)
        return options.OK
    repaired = repairing(work, repair)
    warm_up = restart_of(repaired, repair.slices, beginning=repair.beginning, master=master)
    if proposes:
        return _propose(work, repair, warm_up, reason=reason, as_json=as_json)
    check_current(work, repair, warm_up)
    asked = asked_for(repair, who=options.who(), warm_up=warm_up, reason=reason)
    shown = Shown(as_json=as_json, fold_from=fold_from, progress=progress)
    return run_asked(repaired, asked, staging=Staging(), publishes=not no_publish, master=master, shown=shown)


def _propose(work: RequestContext, repair: LateRepair, warm_up: WarmUp | None, *, reason: str, as_json: bool) -> int:
    request = propose(work, repair, warm_up=warm_up, who=options.who(), reason=reason)
    return options.answer(
        as_json,
        {"request_id": request.request_id, **repair.to_json()},
        f"proposed as request {request.request_id}. Start it on its page, or with "
        f"`hindcast run {work.pipeline.name} --request {request.request_id[:12]}`",
    )


def _show(repair: LateRepair, refusal: str, *, at_least: int) -> None:
    for stretch in fold(repair.late, lambda _: None, at_least=at_least):
        names = [late.slice.slice_id for late in stretch.items]
        records, windows = (sum(getattr(late, name) for late in stretch.items) for name in ("records", "windows"))
        options.say(folded_line(names, f"{counted(records, 'late record')}, {counted(windows, 'window')} missed"))
    left = f" {counted(repair.left, 'later record', 'stay')} late." if repair.left else ""
    options.say(
        f"{counted(repair.records, 'late record')} could be in {'its' if repair.records == 1 else 'their'} windows "
        f"with allowed lateness {human_duration(repair.lateness_ms)} in place of {human_duration(repair.own_ms)}: "
        f"{counted(len(repair.slices), 'slice')} to replay, besides a warm-up.{left} "
        + (
            f"A repair is refused now: {refusal}"
            if refusal
            else f"`hindcast repair {repair.pipeline} --run --no-publish` computes the difference."
        ),
        *filter(None, [repair.stays_late]),
    )
