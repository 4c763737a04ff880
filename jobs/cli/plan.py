"""The command plan."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from jobs.cli import options
from jobs.cli.slice_lines import all_option, show_plan
from jobs.ledger.view import LedgerView
from jobs.pipeline.files import load_all
from jobs.pipeline.slices import check_range, parse_bound
from jobs.planning.plan import Plan
from jobs.planning.request_context import RequestContext
from jobs.planning.steps import Ask
from jobs.planning.suites import with_checks
from jobs.runs import Slice, WarmUp
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from jobs.review.execution import Execution
    from jobs.review.verify_input import Verification

READING_TIMES: Final = "reading the times of the records before the range"
PLAN_HELP = """List the slices of [from, to) that `run` would replay, and why. Reads only the ledger and the Delta log.

\b
The reasons to replay a slice:
  missing               it has no run yet
  input changed         its run read other records than the log has now
  spec changed          the pipeline file would give other rows now
  state before changed  the slice before it would end with another state
  input unverified      the log has other files for it, and commits that
                        would explain them are gone (OPTIMIZE, or DELETE or
                        MERGE); --verify compares its records; `run` replays
                        it, and holds other records for a person

All other slices are current. A slice is *not reached* if a change in the slices before has ended there, by the event
times in the statistics of the log: `run` replays it only if they are wrong. With --verify, the exit status is 1 if
records differ.

With --json, a current slice has the id and the verdict of its run. If a person has waived the run, the verdict stays
`fail` and `waived` is true.
"""


@click.command(
    "plan",
    help=PLAN_HELP,
    short_help="List the slices that `run` would replay, and why.",
    epilog="Example: hindcast plan flights --from 2013-02-01 --to 2013-02-08",
)
@click.argument("pipeline_name", metavar="PIPELINE")
@options.range_options
@options.event_time_option
@click.option("--fresh", is_flag=True, help="Plan a new chain that begins at --from without a state from before.")
@options.warm_up_option
@click.option(
    "--verify",
    is_flag=True,
    help="Read the records of the log again and compare them with those that the runs read. The ledger stores the "
    "result.",
)
@click.option(
    "--explain",
    "explains",
    is_flag=True,
    help="Say which executor computes the windows, how tasks read the log, and why.",
)
@click.option(
    "--out",
    "plan_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Store the plan. `hindcast run PIPELINE --plan FILE` does what it says, or nothing.",
)
@click.option(
    "--with-downstream",
    "tells_downstream",
    is_flag=True,
    help="Print as well what `hindcast follow PIPELINE` would replay in the pipelines that read this one. It can "
    "change when slices of this plan are published.",
)
@options.master_option
@all_option
@options.json_option
@options.place_options
def plan_command(  # noqa: PLR0913 - one parameter per option
    *, pipeline_name: str, from_text: str | None, to_text: str | None, event_time_text: str | None, fresh: bool,
    warms_up: bool, verify: bool, explains: bool, plan_file: Path | None, tells_downstream: bool, master: str | None,
    fold_from: int, as_json: bool, places: options.Places,
) -> int:  # fmt: skip
    """Print the plan of a range; its help is PLAN_HELP."""
    from jobs.planning.change_reach import with_reach  # `run` imports this module, too
    from jobs.publishing.publication_warnings import publication_warnings

    pipeline = places.pipeline(pipeline_name)
    work = with_checks(places.request_context(pipeline))
    given = GivenRange(from_text=from_text, to_text=to_text, event_time_text=event_time_text, is_fresh=fresh)
    slices = check_range(pipeline, *given.bounds(work), now_ms=work.ledger.now_ms())
    warm_up = chosen_restart(work, slices, is_fresh=fresh, warms_up=warms_up, master=master)
    ask = replace(Ask.of_range(slices, pipeline=pipeline, warm_up=warm_up), is_fresh=fresh)

    def planned_now() -> tuple[LedgerView, Plan]:
        view = work.ledger.view()
        planned = with_reach(pipeline, work.plan(view, ask))
        return view, replace(planned, warnings=(*planned.warnings, *publication_warnings(work.lake, view, planned)))

    view, planned = planned_now()
    verification = _verify(work, planned, master=master) if verify else None
    if verification is not None:
        view, planned = planned_now()
    if plan_file is not None:
        from jobs.planning.plan_file import PlanFile

        PlanFile.of(planned, view).store(plan_file)
    how = _execution(work, planned, slices) if explains else None
    further = downstream_plans(places, pipeline.name) if tells_downstream else None
    if as_json:
        parts = {
            "verified": None if verification is None else asdict(verification),
            "execution": None if how is None else asdict(how),
            "downstream": None if further is None else [each.to_json() for each in further],
        }
        options.print_json(planned.to_json() | {key: part for key, part in parts.items() if part is not None})
    else:
        show_plan(planned, at_least=fold_from)
        for sentence in () if how is None else how.sentences:
            options.say(sentence)
        if verification is not None:
            options.say(verification.summary)
        if plan_file is not None:
            options.say(f"stored in {plan_file}; run it with `hindcast run {pipeline_name} --plan {plan_file}`")
        show_downstream(pipeline.name, further, fold_from=fold_from)
    return options.REFUSED if verification is not None and verification.different else options.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlanYet:
    """Why a pipeline that reads another one has no plan, such as that the other one has published nothing."""

    pipeline: str
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline, "why": self.why}


def downstream_plans(places: options.Places, name: str) -> list[Plan | NoPlanYet]:
    """Return the plans of the pipelines that read a pipeline, directly or not, for what is published now.

    Raises SpecError: pipelines read each other.
    """
    from jobs.orchestration.following import following, readers_of, slices_to_follow
    from jobs.planning.change_reach import with_reach

    plans: list[Plan | NoPlanYet] = []
    for reader in readers_of(load_all(places.pipelines).good, name):
        try:
            work, warnings = following(places.request_context(reader))
            slices, left_out = slices_to_follow(work)
            planned = with_reach(work.pipeline, work.plan(work.ledger.view(), Ask(slices=slices)))
        except HindcastError as error:
            plans.append(NoPlanYet(pipeline=reader.name, why=str(error)))
        else:
            plans.append(replace(planned, warnings=(*warnings, *left_out, *planned.warnings)))
    return plans


def show_downstream(name: str, plans: Sequence[Plan | NoPlanYet] | None, *, fold_from: int) -> None:
    """Print the plans of the pipelines that read a pipeline; nothing if they are None."""
    for planned in plans or ():
        if isinstance(planned, NoPlanYet):
            options.say(f"{planned.pipeline}: {planned.why}")
        else:
            show_plan(planned, at_least=fold_from)
    if plans is not None and not plans:
        options.say(f"no pipeline reads {name}")


def _execution(work: RequestContext, planned: Plan, slices: Sequence[Slice]) -> "Execution":
    from jobs.review.execution import execution

    return execution(work.pipeline, work.lake, slices, known=planned.basis.log.known)


def _verify(work: RequestContext, planned: Plan, *, master: str | None) -> "Verification":
    from jobs.review.verify_input import verify_inputs
    from jobs.spark.lazy_session import LazySession

    with closing(LazySession.named("hindcast plan --verify", master)) as session:
        return verify_inputs(session, work, planned, who=options.who())


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRange:
    """The range that a person gives: two edges of slices, or a range of event time. `others` are options for ranges."""

    from_text: str | None
    to_text: str | None
    event_time_text: str | None
    is_fresh: bool
    others: str = "--event-time"

    def bounds(self, work: RequestContext) -> tuple[int, int]:
        """Return the edges of the slices. A range of event time is resolved, and told on standard error.

        Raises:
            UsageError: the person gives both, or a part.
            RangeError, RequestError, LogError, SpecError: as for `parse_bound` and `event_time_slices`.
        """
        texts = {"--from": self.from_text, "--to": self.to_text}
        if self.event_time_text is not None:
            given = [name for name, text in texts.items() if text is not None]
            if given:
                raise click.UsageError(f"--event-time has its own range; leave out {' and '.join(given)}")
            from jobs.planning.event_range import event_time_slices

            needed = event_time_slices(work, self.event_time_text, is_fresh=self.is_fresh)
            options.complain(f"{needed.sentence}.")
            return needed.from_ms, needed.to_ms
        if self.from_text is None or self.to_text is None:
            missing = next(name for name, text in texts.items() if text is None)
            raise click.UsageError(f"Missing option '{missing}'. Give --from and --to, or {self.others}.")
        return parse_bound(work.pipeline, self.from_text), parse_bound(work.pipeline, self.to_text)


def chosen_restart(
    work: RequestContext, slices: Sequence[Slice], *, is_fresh: bool, warms_up: bool, master: str | None
) -> WarmUp | None:
    """Return the warm-up of a chain that begins with these slices; reads a few columns of the log before them.

    Raises:
        UsageError: the chain is to begin without earlier records, too.
        RequestError, LogError: as for `restart_of`.
    """
    if not warms_up:
        return None
    if is_fresh:
        raise click.UsageError("--fresh begins without earlier records, --warm-up with them; give one of them")
    return restart_of(work, slices, master=master)


def restart_of(
    work: RequestContext, slices: Sequence[Slice], *, beginning: Slice | None = None, master: str | None
) -> WarmUp | None:
    """Return the warm-up of a chain that begins with these slices, and tell that the log is read; None without one.

    Raises RequestError, LogError: as for `jobs.orchestration.stored_warm_up.restart_of`.
    """
    from jobs.orchestration import stored_warm_up

    with options.err().status(READING_TIMES):
        return stored_warm_up.restart_of(work, slices, beginning=beginning, master=master)
