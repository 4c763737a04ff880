"""The command run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final

import click

from jobs.cli import options
from jobs.cli.arrow_start import keep_pandas_out
from jobs.cli.plan import READING_TIMES, GivenRange, chosen_restart
from jobs.cli.progress import progress_option, told_progress
from jobs.cli.slice_lines import all_option, show_outcome
from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.view import LedgerView, RequestKind
from jobs.orchestration.open_ranges import RangeTaken, in_the_way
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import RECORDS_PER_CHUNK, Staging, run_request
from jobs.pipeline.slices import check_range
from jobs.planning.published_spec import of_other_spec_since
from jobs.planning.request_context import Asked, IfOpen, RequestContext
from jobs.planning.restating import request_to_continue
from jobs.planning.suites import with_checks
from jobs.publishing.stop_reasons import failed_in_sight, held_by, listed, stopping_runs
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.runs import SHOWN_DIGITS, RunResult
from windowlib.errors import RequestError

if TYPE_CHECKING:
    from jobs.planning.plan_file import PlanFile

WAIT_POLL_S: Final = 5.0
_DECIDE: Final = "Decide it (`hindcast publish`, `waive` or `cancel`)"
_OR_REPLACE: Final = (
    ", or run again with --replace, which closes it and uses its valid runs again, or with --wait, which starts when "
    "it has ended"
)


@click.command(
    "run",
    short_help="Replay, check and publish a range.",
    epilog="Example: hindcast run flights --from 2013-02-01 --to 2013-02-08 --chunk 3",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@options.range_options
@options.event_time_option
@click.option(
    "--request",
    "request_text",
    default=None,
    metavar="ID",
    help="Continue an open request with its own range: a proposed restatement, or one that has stopped. The id, or its "
    "first letters.",
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Do what a plan says that `hindcast plan --out FILE` has stored. The command is refused if the spec, the "
    "checks, the published head or the log inside its slices has changed since; with a warm-up, also if the log before "
    "them has. The message names what moved.",
)
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=None,
    help="The largest number of slices that are replayed together.  [default: no limit]",
)
@click.option(
    "--chunk-records",
    type=click.IntRange(min=1),
    default=RECORDS_PER_CHUNK,
    show_default=True,
    help="The largest number of their records. A slice with more has a job of its own. More records need more memory.",
)
@click.option(
    "--as-candidate",
    "is_candidate",
    is_flag=True,
    help="Try the pipeline file beside what is published. The runs are staged and compared, and stop no other request. "
    "Only `hindcast publish --request` publishes them. The chain then goes on from them.",
)
@click.option("--no-publish", is_flag=True, help="Stage the results without publishing. Then `hindcast publish`.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Begin a new chain at --from without a state from before, and replay current slices, too. The ledger stores "
    "it.",
)
@options.warm_up_option
@click.option("--reason", default="", help="Why. The ledger stores it.")
@click.option(
    "--replace", "replaces", is_flag=True, help="Close the open requests that have slices of the "
    "range. Their runs are used again where they are valid.",
)  # fmt: skip
@click.option(
    "--wait", "waits", is_flag=True, help="Start when the open requests that have slices of the "
    "range have ended.",
)  # fmt: skip
@progress_option
@options.master_option
@all_option
@options.json_option
@options.place_options
def run_command(  # noqa: PLR0913  (its options)
    *, pipeline_name: str, from_text: str | None, to_text: str | None, event_time_text: str | None,
    request_text: str | None, plan_file: Path | None, chunk: int | None, chunk_records: int, is_candidate: bool,
    no_publish: bool, fresh: bool, warms_up: bool, reason: str, replaces: bool, waits: bool, progress: str,
    master: str | None, fold_from: int, as_json: bool, places: options.Places,
) -> int:  # fmt: skip
    """Replay the missing and stale slices of [from, to), check them, and publish all of them or none.

    With --as-candidate, nothing is published. The same command with the same pipeline file continues the candidate.

    With --request, the range is that of an open request. A proposed restatement reaches to the published head.

    Nothing is published before every slice has passed its checks or was waived. If the command was interrupted or
    killed, run it again: it continues where it stopped. If another open request has slices of the range, the command
    is refused and names it; --replace and --wait tell what to do instead. The exit status is 1 if a check failed, also
    one of a slice that readers see already, or if the publication was refused; the message has the reason.
    """
    if replaces and waits:
        raise click.UsageError("--replace closes the open requests, and --wait lets them end; give one of them")
    pipeline = places.pipeline(pipeline_name)
    if not pipeline.functions():  # users' functions may return values of pandas
        keep_pandas_out()
    given = _Given(
        from_text=from_text, to_text=to_text, event_time_text=event_time_text, request_text=request_text,
        plan_file=plan_file, is_fresh=fresh, warms_up=warms_up,
        if_open=IfOpen.REPLACE if replaces else IfOpen.WAIT if waits else IfOpen.REFUSE,
        reason=reason, master=master, is_candidate=is_candidate, others="--event-time or --request",
    )  # fmt: skip
    work, asked, accepted = given.asked(with_checks(places.request_context(pipeline)))
    staging = Staging(chunk=chunk, chunk_records=chunk_records)
    shown = Shown(as_json=as_json, fold_from=fold_from, progress=progress, has_replace=True)
    publishes = not no_publish and asked.kind is not RequestKind.CANDIDATE
    return run_asked(work, asked, staging=staging, publishes=publishes, accepted=accepted, master=master, shown=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How a command prints the progress (`--progress`) and the outcome of a request, and whether it has --replace."""

    as_json: bool
    fold_from: int
    progress: str
    has_replace: bool = False


def run_asked(
    work: RequestContext, asked: Asked, *, staging: Staging, publishes: bool, master: str | None, shown: Shown,
    accepted: "PlanFile | None" = None,
) -> int:  # fmt: skip
    """Run a request, and print its progress and its outcome. Return the exit status."""
    told = told_progress(work.pipeline.name, shown.progress, at_least=shown.fold_from)
    with _lazy_replayer(master) as replayer, told as on_progress:
        staging = replace(staging, on_progress=on_progress)
        run = partial(run_request, work, replayer=replayer, staging=staging, accepted=accepted)
        ways = f"{_DECIDE}{_OR_REPLACE if shown.has_replace else ', and run this command again'}"
        outcome = _in_its_turn(work, asked, run, publishes=publishes, ways=ways)
    publication = outcome.publication
    problem = None if publication is None or publication.is_published else publication.why
    if shown.as_json:
        options.print_json(outcome.to_json())
    else:
        show_outcome(outcome, at_least=shown.fold_from)
        if publication is not None and {*publication.slices} - {run.result.slice.slice_id for run in outcome.runs}:
            options.say(f"{publication.why}.")  # also slices outside of the range: a repair has ended
    failed = [run for run in outcome.runs if not run.is_publishable]
    if publication is None and outcome.request_id:  # also runs that the end of a repair would show again
        view = work.ledger.view()
        failed = stopping_runs(view, view.requests[outcome.request_id])
    if problem:
        options.complain(f"not published: {problem}")
    elif failed:
        options.complain(failed_in_sight(failed) if outcome.is_published else held_by(failed))
    if not publishes and not shown.as_json:
        from jobs.cli.diff import say_differences
        from jobs.comparing.views import differing_request

        say_differences(work, outcome.request_id)
        if outcome.request_id and not failed and differing_request(work.ledger.view(), outcome.request_id):
            options.say(f"next: hindcast publish {work.pipeline.name} --request {outcome.request_id[:SHOWN_DIGITS]}")
    return options.REFUSED if failed or problem else options.OK


def _in_its_turn(
    work: RequestContext, asked: Asked, run: Callable[..., RequestOutcome], *, publishes: bool, ways: str
) -> RequestOutcome:
    """Run a request. If it is to wait, and others have slices of its range, it is tried again until they have ended.

    `ways` tells what a person can do about the others.
    Raises RequestError: others have slices of the range. The message has the words of the command line. Or somebody has
    rolled back during the wait, or adopted another spec. It could publish what is rolled back, also after the chain was
    resumed, or the former spec.
    """
    told, begun = "", work.ledger.view().version
    while True:
        view = work.ledger.view()
        if publishes and (why := _undone(work, view, asked, since=begun)):
            raise RequestError(
                f"{why} since this command began to wait, so it replays nothing. Run it again if the range is still to "
                "be published"
            )
        seen = frozenset(open_request.request_id for open_request in in_the_way(work, view, asked))
        try:
            return run(replace(asked, replaces=seen if asked.replaces is None else asked.replaces), publish=publishes)
        except RangeTaken as error:
            if asked.if_open is not IfOpen.WAIT:
                raise RequestError(f"{error.facts}. {ways}" if error.can_replace else error.facts) from None
            if error.facts != told:
                options.complain(f"waiting for their end: {error.facts}")
            told = error.facts
        sleep(WAIT_POLL_S)


def _undone(work: RequestContext, view: LedgerView, asked: Asked, *, since: int) -> str:
    """Return what somebody has done since a ledger version that a request would undo; empty if nothing."""
    decided = (made for made in view.decisions.values() if made.seq > since)
    if (back := next((made for made in decided if made.action == "roll_back"), None)) is not None:
        return f"{back.who} rolled a publication back ({back.reason})"
    inside = (
        name for name in view.published if (asked.from_ms or 0) <= view.slices[name].start_ms < (asked.to_ms or 0)
    )
    other = of_other_spec_since(view, since, inside, spec=spec_fingerprint(work.pipeline))
    return f"readers got runs of another spec of {listed(other)}" if other else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given(GivenRange):
    """What the person asks for: a range, an open request, or a stored plan."""

    request_text: str | None
    plan_file: Path | None
    warms_up: bool
    if_open: IfOpen
    reason: str
    master: str | None
    is_candidate: bool

    def asked(self, work: RequestContext) -> "tuple[RequestContext, Asked, PlanFile | None]":
        """Return the context, the request, and the plan that the person has accepted; the request's spec is used."""
        if self.is_candidate and (self.request_text is not None or self.if_open is not IfOpen.REFUSE):
            other = "--request" if self.request_text is not None else "--replace and --wait"
            raise click.UsageError(
                f"--as-candidate begins or continues a candidate, which is in the way of no request; leave out {other}"
            )
        if self.plan_file is not None:
            return work, *self._accepted(work, self.plan_file)
        if self.request_text is not None:
            return *self._continued(work, self.request_text), None
        return work, self._range(work, self.bounds(work), is_fresh=self.is_fresh, warms_up=self.warms_up), None

    def _refuse(self, option: str, *names: str) -> None:
        given = {
            "--from": self.from_text, "--to": self.to_text, "--event-time": self.event_time_text,
            "--request": self.request_text, "--fresh": self.is_fresh, "--warm-up": self.warms_up,
            "--replace or --wait": self.if_open is not IfOpen.REFUSE,
        }  # fmt: skip
        wrong = [name for name in names if given[name]]
        if wrong:
            raise click.UsageError(f"{option} has its own range; leave out {' and '.join(wrong)}")

    def _range(self, work: RequestContext, bounds_ms: tuple[int, int], *, is_fresh: bool, warms_up: bool) -> Asked:
        slices = check_range(work.pipeline, *bounds_ms, now_ms=work.ledger.now_ms())
        return Asked(
            from_ms=bounds_ms[0],
            to_ms=bounds_ms[1],
            who=options.who(),
            reason=self.reason,
            kind=RequestKind.CANDIDATE if self.is_candidate else RequestKind.RANGE,
            is_fresh=is_fresh,
            if_open=self.if_open,
            warm_up=chosen_restart(work, slices, is_fresh=is_fresh, warms_up=warms_up, master=self.master),
        )

    def _accepted(self, work: RequestContext, path: Path) -> "tuple[Asked, PlanFile]":
        """Return the request for the range of a stored plan, and the plan."""
        self._refuse("--plan", "--from", "--to", "--event-time", "--request", "--fresh", "--warm-up")
        from jobs.planning.plan_file import PlanFile

        stored = PlanFile.load(path)
        if stored.pipeline != work.pipeline.name:
            raise RequestError(f"the plan {path} is of pipeline {stored.pipeline}, not of {work.pipeline.name}")
        bounds_ms, warms_up = (stored.from_ms, stored.to_ms), stored.warm_up is not None
        return self._range(work, bounds_ms, is_fresh=stored.fresh, warms_up=warms_up), stored

    def _continued(self, work: RequestContext, request_text: str) -> tuple[RequestContext, Asked]:
        """Return the context with the spec of an open request, and what continues it."""
        self._refuse("--request", "--from", "--to", "--event-time", "--fresh", "--warm-up", "--replace or --wait")
        work, request = request_to_continue(work, options.request_of(work, request_text))
        if request.warm_up is not None:
            from jobs.orchestration.stored_warm_up import check_warm_up

            with options.err().status(READING_TIMES):
                check_warm_up(work, request, master=self.master)
        asked = Asked(
            from_ms=request.from_ms,
            to_ms=request.to_ms,
            who=options.who(),
            reason=self.reason or request.reason,
            kind=request.kind,
            is_fresh=request.is_fresh,
            request_id=request.request_id,
            warm_up=request.warm_up,
        )
        return with_checks(work), asked


@contextmanager
def _lazy_replayer(master: str | None) -> Iterator[Replayer]:
    """Give a replayer that is imported for the first chunk, and whose Spark stops at the end."""
    replay: Replayer | None = None

    def lazily(order: ReplayOrder) -> list[RunResult]:
        from jobs.replay.replayer import spark_replayer

        nonlocal replay
        replay = replay or stack.enter_context(spark_replayer(master))
        return replay(order)

    with ExitStack() as stack:
        yield lazily
