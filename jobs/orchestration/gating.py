"""The gate of a DAG run: do the checks let its slices pass, and if not, which slices are held and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.ledger.tally import Standing, in_words, standing_of, tally
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.plain_text import counted
from jobs.planning.chains import judged_runs
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Opened, RequestContext, request_in
from jobs.publishing.judging import judge_request
from jobs.publishing.stop_reasons import listed
from jobs.publishing.suite_rule import of_other_suite
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The result of a gate over `runs`. `held` are those that stop them.

    `settled` tells which publication has settled the request, if another one was published in its place.
    """

    runs: tuple[StagedRun, ...] = ()
    held: tuple[StagedRun, ...] = ()
    settled: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether no slice stops the request."""
        return not self.held

    @property
    def why(self) -> str:
        """The result in a few words."""
        if self.settled:
            return self.settled
        slices = counted(len(self.runs), "slice")
        if self.is_passed:
            standings = tally(map(standing_of, self.runs))
            return (
                f"{slices}: {in_words(standings)}" if standings.keys() - {Standing.PASSED.value} else f"{slices} passed"
            )
        which = listed([run.result.slice.slice_id for run in self.held])
        return f"{len(self.held)} of {slices} held: {which}"


def settled_elsewhere(view: LedgerView, request: Request) -> str | None:
    """Return which publication has settled a request that was closed without one of its own; None if none has."""
    publication = view.settling(request)
    if publication is None or publication.request_id == request.request_id:
        return None
    return f"request {request.request_id} is settled by publication {publication.seq} of {publication.who}"


def gate(work: RequestContext, *, opened: Opened, slices: Sequence[str] | None = None) -> Gate:
    """Return whether the checks let a request pass. If they do not, release the lease: the request waits for a person.

    With `slices`, a DAG run that shares its request with others judges only these. Otherwise all runs are judged that
    decide on the publication, also those of the chain outside of the slices where a repair ends.
    Raises RequestError: there is no such request, a DAG run that shares it has not staged a slice, or another suite
    than the one in force has checked one.
    """
    view = judge_request(work, opened.request_id)
    request = request_in(work, view, opened.request_id)
    settled = settled_elsewhere(view, request)
    if settled is not None:
        return Gate(settled=settled)
    own = slices if request.kind is RequestKind.AIRFLOW_BACKFILL else None
    judged = judged_runs(view, request)
    runs = tuple(view.run(run_id) for slice_id, run_id in judged.items() if own is None or slice_id in own)
    stopping = sorted((run for run in runs if not run.is_publishable), key=lambda run: run.result.slice.start_ms)
    unstaged = [slice_id for slice_id in slices or () if slice_id not in request.runs.keys() | view.published.keys()]
    other, edited = of_other_suite(work, view, request)
    is_edited = any(slices is None or slice_id in slices for slice_id in other)
    if not stopping and not is_edited and not (unstaged and request.kind is RequestKind.AIRFLOW_BACKFILL):
        return Gate(runs=runs)
    release(work, opened)
    if not stopping:  # the publication of a shared request does not tell which slices it lacks
        lack = f"request {request.request_id} has no run of {listed(unstaged)}; clear the replay task"
        raise RequestError(edited if is_edited else lack)
    return Gate(runs=runs, held=tuple(stopping))
