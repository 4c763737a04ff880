"""The commands for a person's decisions: publish, waive, cancel, rollback, resume."""

import sys

import click

from jobs.cli import options
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.slices import show_instant
from jobs.planning.request_context import RequestContext
from jobs.publishing.decisions import cancel, resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.publishing.rules import PublicationAttempt
from jobs.publishing.stop_reasons import describe_run, listed, stop_reasons
from jobs.publishing.waivers import SliceWaiver, refusal_after, request_to_publish, runs_to_examine, waive, waive_events
from jobs.runs import SHOWN_DIGITS, optional_fates
from windowlib.errors import RequestError


@click.command(
    "publish", short_help="Publish all slices of a staged request.", epilog="Example: hindcast publish flights"
)
@click.option(
    "--request",
    "request_id",
    default=None,
    metavar="ID",
    help="The request to publish: its id, or its first letters. A candidate is published only if it is named.  "
    "[default: the only open request that can be published]",
)
@options.json_option
@options.pipeline_options
def publish_command(*, request_id: str | None, as_json: bool, work: RequestContext) -> int:
    """Publish all slices of a staged request in one ledger commit. After it, readers see the new results.

    If several open requests can be published, --request has to name one.

    The command publishes nothing and has exit status 1 if a check failed for one of the slices, or if published slices
    after the request were computed from a state that the request changes. The message has the slices.

    A candidate (`hindcast run --as-candidate`) is also refused if readers see other runs of its slices than when it
    was planned, or published slices after it. After its publication, the schedule goes on with its spec.

    If a DAG run of Airflow has made the request, the command tells what to clear there. With HINDCAST_AIRFLOW_URL and
    HINDCAST_AIRFLOW_TOKEN (or HINDCAST_AIRFLOW_USER and HINDCAST_AIRFLOW_PASSWORD), it clears it and waits.
    """
    from jobs.orchestration.decisions import settled_runs
    from jobs.orchestration.outside_airflow import advice, airflow_of_environment, clear_gates
    from jobs.publishing.staged_changes import changed_since_published

    airflow = airflow_of_environment()
    chosen = None if request_id is None else options.request_of(work, request_id)
    done = publish(work, who=options.who(), request_id=chosen)
    status = _tell(done, as_json=as_json)
    view = work.ledger.view()
    if done.is_published and (changed := changed_since_published(work, view, view.requests[done.request_id])):
        options.complain(changed)
    runs = settled_runs(view, done.request_id) if done.is_published else ()
    if airflow is None:
        for line in advice(runs):
            options.complain(line)
        return status
    is_right = True
    for gate in clear_gates(airflow, runs) if runs else ():
        is_right = is_right and gate.is_right
        options.complain(f"{gate.run.dag_id} {gate.run.run_id}: {gate.why}")
    return status if is_right else options.REFUSED


@click.command(
    "waive",
    short_help="Accept a failed slice, with a reason.",
    epilog='Example: hindcast waive flights 2013-02-08 --run 8c1f --reason "a blizzard; the cancellations are real"',
)
@click.option("--reason", required=True, help="Why the slice is accepted. The ledger stores it with your name.")
@click.option(
    "--run",
    "run_id",
    default=None,
    metavar="ID",
    help="The id of the run that you have examined, or its first digits; `hindcast status` prints it. "
    "Without this option, the command shows the run and asks on a terminal, and is refused elsewhere.",
)
@options.json_option
@options.pipeline_options
@click.argument("slice_id", metavar="SLICE")
def waive_command(*, slice_id: str, reason: str, run_id: str | None, as_json: bool, work: RequestContext) -> int:
    """Accept one failed slice, with a reason, so that it can be published. SLICE is its id, such as 2013-02-08.

    Then publish its request, which the command names. A published run that fails an edited suite can be accepted, too.

    The waiver is valid for this run only: other records or another spec make a new run, which is checked again. It ends
    when the request is cancelled, or its publication rolled back. A check that itself failed to run (verdict error)
    cannot be waived.
    """
    pipeline = work.pipeline
    seen = None
    if run_id is None:
        seen = work.ledger.view()
        examined = _confirmed_run(work, seen, slice_id, reason=reason, may_ask=not as_json)
        if examined is None:
            options.complain("nothing was waived")
            return options.REFUSED
        run_id = examined.result.run_id
    by = By(who=options.who(), decision_id=work.new_id(), seen=seen)
    run = waive(work, slice_id, run_id=run_id, reason=reason, by=by)
    waiver = {"pipeline": pipeline.name, "slice_id": run.result.slice.slice_id, "run_id": run.result.run_id}
    view = work.ledger.view()
    request = request_to_publish(view, run)
    after = "readers see this run already; there is nothing to publish"
    if request is not None and (why := refusal_after(work, view, request, waived=())):
        after = f"request {request.request_id[:SHOWN_DIGITS]} cannot be published yet: {why}"
    elif request is not None:
        after = f"next: hindcast publish {pipeline.name} --request {request.request_id[:SHOWN_DIGITS]}"
    return options.answer(
        as_json,
        waiver
        | {"who": by.who, "reason": reason.strip(), "failed": [*stop_reasons(run)]}
        | {"request_id": None if request is None else request.request_id},
        f"waived: slice {waiver['slice_id']} of {pipeline.name} (run {waiver['run_id'][:SHOWN_DIGITS]}), by {by.who}: "
        f"{reason.strip()}",
        *(f"  failed: {why}" for why in stop_reasons(run)),
        after,
    )


def _confirmed_run(
    work: RequestContext, view: LedgerView, slice_id: str, *, reason: str, may_ask: bool
) -> StagedRun | None:
    """Show the failed run of a slice on a terminal, and return it if the person confirms the waiver, otherwise None.

    Raises RequestError: the waiver would be refused; or several runs could be meant, or there is no terminal. Then the
    message has the runs and their failed checks.
    """
    runs = runs_to_examine(work, view, slice_id)
    if len(runs) > 1 or not (may_ask and sys.stdin.isatty() and sys.stdout.isatty()):
        run_id = runs[-1].result.run_id[:SHOWN_DIGITS]
        command = f"hindcast waive {work.pipeline.name} {slice_id} --run {run_id} --reason …"
        raise RequestError(
            f"the waiver of slice {slice_id} of pipeline {work.pipeline.name} names no run, so nothing was waived. "
            f"Staged is {'; '.join(describe_run(run) for run in runs)}. Look at it (`hindcast report "
            f"{work.pipeline.name}`), and name it if it may pass: `{command}`"
        )
    [run] = runs
    counts, run_id = run.result.counts, run.result.run_id
    waiver = SliceWaiver(slice_id=slice_id, run_id=run_id, reason=reason)
    waive_events(work, view, waivers=[waiver], by=By(who=options.who(), decision_id="", seen=view))
    options.say(
        f"slice {run.result.slice.slice_id} of {work.pipeline.name}, run {run_id[:SHOWN_DIGITS]} of request "
        f"{run.request_id[:SHOWN_DIGITS]}, staged at {show_instant(run.at_ms)}",
        f"  records {counts.read:,}, late {counts.late:,}, invalid {counts.invalid:,}, panes {counts.panes:,}"
        + "".join(f", {fate} {count:,}" for fate, count in optional_fates(counts).items()),
        *(f"  failed: {why}" for why in stop_reasons(run)),
    )
    return run if click.confirm("Waive this run?", default=False) else None


@click.command(
    "cancel",
    short_help="Close an open request without publishing it.",
    epilog='Example: hindcast cancel flights --request 5f0c --reason "the wrong range"',
)
@click.option(
    "--request", "request_id", required=True, metavar="ID", help="The request, or the first letters of its id."
)
@click.option("--reason", required=True, help="Why. The ledger stores it with your name.")
@options.json_option
@options.pipeline_options
def cancel_command(*, request_id: str, reason: str, as_json: bool, work: RequestContext) -> int:
    """Close an open request, so that nobody publishes it or continues it. Its runs stay in the ledger.

    The command is refused, with the holder and how to stop it, while a process or a DAG run works on the request. With
    HINDCAST_AIRFLOW_URL and HINDCAST_AIRFLOW_TOKEN (or HINDCAST_AIRFLOW_USER and HINDCAST_AIRFLOW_PASSWORD), it asks
    Airflow whether that DAG run has ended or was deleted.
    """
    from jobs.orchestration.outside_airflow import airflow_of_environment, free_ended

    airflow = airflow_of_environment()
    pipeline = work.pipeline
    chosen = options.request_of(work, request_id)
    for line in () if airflow is None else free_ended(airflow, work):
        options.complain(line)
    request = cancel(work, chosen, reason=reason, by=By(who=options.who(), decision_id=work.new_id()))
    facts = {"pipeline": pipeline.name, "request_id": chosen, "why": request.failure}
    return options.answer(as_json, facts, f"{pipeline.name}: request {chosen} is {request.failure}")


@click.command(
    "rollback",
    short_help="Take the newest publication back.",
    epilog='Example: hindcast rollback flights --publication 12 --reason "published too early"',
)
@click.option(
    "--publication",
    type=click.IntRange(min=1),
    required=True,
    metavar="NUMBER",
    help="The number of the publication in `hindcast status`. It must be the newest.",
)
@click.option("--reason", required=True, help="Why. The ledger stores it with your name.")
@options.json_option
@options.published_options
def rollback_command(*, publication: int, reason: str, as_json: bool, work: RequestContext) -> int:
    """Take the newest publication back, so that readers see the results from before it. Nothing is deleted.

    After a rollback the pipeline is held: its schedule replays nothing until a person publishes (`hindcast run`,
    `hindcast publish --request`) or ends the hold (`hindcast resume`).
    """
    done = rollback(work, publication, reason=reason, who=options.who())
    return _tell(done, as_json=as_json, what="rolled back")


@click.command(
    "resume",
    short_help="End the hold after a rollback.",
    epilog='Example: hindcast resume flights --reason "the feed was repaired"',
)
@click.option("--reason", required=True, help="Why. The ledger stores it with your name.")
@options.json_option
@options.pipeline_options
def resume_command(*, reason: str, as_json: bool, work: RequestContext) -> int:
    """End the hold after a rollback. The schedule replays and publishes the slices after the last published one."""
    pipeline = work.pipeline
    ended = resume(work, reason=reason, who=options.who())
    return options.answer(
        as_json,
        {"pipeline": pipeline.name, "rolled_back": ended.undoes, "by": ended.who},
        f"resumed: {pipeline.name}; it was held because {ended.who} rolled back publication {ended.undoes}",
    )


def _tell(publication: PublicationAttempt, *, as_json: bool, what: str = "published") -> int:
    if as_json:
        options.print_json(publication.to_json())
    elif publication.is_published:
        request = f"request {publication.request_id[:SHOWN_DIGITS]}" if publication.request_id else ""
        of = ", ".join(filter(None, (request, listed(publication.slices))))
        options.say(f"{what}: {publication.why} ({of}; ledger version {publication.ledger_version})")
    else:
        options.complain(f"not published: {publication.why}")
    return options.OK if publication.is_published else options.REFUSED
