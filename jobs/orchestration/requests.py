"""The execution of a request: replay the stale slices of its plan chunk by chunk, and record the runs in the ledger.

The caller passes the `Replayer` that runs Spark. `jobs.publishing.publishing` publishes.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from jobs.lake.log_match import Match, match_input
from jobs.lake.pinned_files import BYTES_PER_RECORD
from jobs.ledger.events import EventKind, LedgerEvent, closed_event, slice_columns
from jobs.ledger.looks import verified_event
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.orchestration.attempts import check_left_out, may_stage, replay_until_closed
from jobs.orchestration.open_ranges import check_range_is_free, close_replaced, open_range
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import continues_chain
from jobs.planning.estimate import Estimate
from jobs.planning.event_time_progress import EventTimeProgress
from jobs.planning.lease_keeping import leased
from jobs.planning.log_state import LogState
from jobs.planning.plan import Plan, continued_run, make_plan
from jobs.planning.request_context import Asked, RequestContext, context_of
from jobs.planning.steps import Ask, Reason, Step
from jobs.publishing.chain_rules import is_older
from jobs.publishing.current_tables import move_current_tables
from jobs.publishing.judging import judge_request
from jobs.publishing.publishing import publish_staged
from jobs.publishing.rules import PublicationAttempt
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.runs import RunResult, Sighting, Slice
from windowlib.errors import InvariantBroken, RequestError

if TYPE_CHECKING:
    from jobs.planning.plan_file import PlanFile

log = logging.getLogger(__name__)

RECORDS_PER_CHUNK: Final = 150_000_000
"""A chunk with more records would have larger buckets (`jobs.replay.sizes`), and its tasks would need more memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of staging: that of the request, and the chunk.

    `results` is empty before the chunk is replayed, and has its results afterwards.
    """

    now: EventTimeProgress
    chunk: tuple[Slice, ...]
    results: tuple[RunResult, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the progress as plain JSON data. `staged` maps the slices of the chunk to their verdicts."""
        return {
            "replaying": [self.chunk[0].slice_id, self.chunk[-1].slice_id],
            "staged": {result.slice.slice_id: result.verdict.value for result in self.results},
            **self.now.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Options of staging.

    At most `chunk` slices are ordered together (None: no limit), with at most `chunk_records`; a slice with more is
    ordered alone. `stops_on_fail`: a failed check ends the staging, also one of an earlier try. `on_progress` is called
    before and after each chunk.
    """

    chunk: int | None = None
    chunk_records: int = RECORDS_PER_CHUNK
    stops_on_fail: bool = False
    on_progress: Callable[[Progress], None] = field(default=lambda _progress: None)


def run_request(
    work: RequestContext,
    asked: Asked,
    replayer: Replayer,
    *,
    staging: Staging | None = None,
    publish: bool = True,
    accepted: "PlanFile | None" = None,
) -> RequestOutcome:
    """Open or resume a request for a range, replay stale slices, and publish all of it if every verdict allows.

    A candidate is never published by this call. With a plan that a person has `accepted`, nothing else is done.

    Raises:
        RangeTaken: other open requests have slices of the range. Nothing was written.
        RequestError, SpecError, LogError: the request is not valid, or the plan that was accepted. Nothing was written.
        HindcastError: the replayer failed. The attempt is marked as failed; the same call continues after the last
            staged slice.
    """
    if asked.from_ms is None or asked.to_ms is None:
        raise RequestError("the request to run has no range; give it from and to")
    slices = slices_between(work.pipeline, asked.from_ms, asked.to_ms)
    view = work.ledger.view()
    resumed = check_range_is_free(work, view, asked)
    ask = replace(
        Ask.of_range(slices, pipeline=work.pipeline, warm_up=asked.warm_up),
        is_fresh=asked.is_fresh,
        request_id=resumed,
        checks=work.checks,
        is_candidate=asked.kind is RequestKind.CANDIDATE,
    )
    log_state = work.log_state(view, ask.slices)
    planned = make_plan(work.pipeline, view, log_state, ask=ask)
    if accepted is not None:
        accepted.check(view, planned)
    if all(step.is_published and step.reason is Reason.CURRENT for step in planned.range):
        close_replaced(work, asked)
        move_current_tables(work)  # a process may have been killed after its publication
        return _nothing_to_do(work, view, planned)
    for warning in (*planned.cautions, *_of_publication(work, view, planned=planned, asked=asked)):
        log.warning("%s", warning)
    opened = open_range(work, asked)
    with leased(work, opened):
        outcome = stage(
            work,
            opened.request_id,
            slices,
            replayer=replayer,
            staging=staging or Staging(),
            planned=(log_state, planned),
        )
        view = judge_request(work, opened.request_id)
        outcome = replace(outcome, runs=tuple(view.runs.get(run.result.run_id, run) for run in outcome.runs))
        if not publish or asked.kind is RequestKind.CANDIDATE:
            return outcome
        return replace(outcome, publication=publish_staged(work, opened, who=asked.who))


def _of_publication(work: RequestContext, view: LedgerView, *, planned: Plan, asked: Asked) -> tuple[str, ...]:
    if asked.kind is RequestKind.REPAIR:
        return ()
    from jobs.publishing.publication_warnings import publication_warnings  # most commands read no state

    return publication_warnings(work.lake, view, planned)


def _nothing_to_do(work: RequestContext, view: LedgerView, planned: Plan) -> RequestOutcome:
    runs = tuple(step.run for step in planned.range if step.run is not None)
    seen = PublicationAttempt(
        request_id="", is_published=True, why="every slice is current and published", ledger_version=view.version
    )
    return RequestOutcome(pipeline=work.pipeline.name, request_id="", runs=runs, replayed=0, publication=seen)


def stage(
    work: RequestContext,
    request_id: str,
    slices: Sequence[Slice],
    *,
    replayer: Replayer,
    staging: Staging,
    planned: tuple[LogState, Plan] | None = None,
) -> RequestOutcome:
    """Replay the stale ones of contiguous slices, chunk by chunk, and record the runs. Readers do not see them yet.

    After a crash, the same call in any process continues: runs in the ledger are not computed again. If another process
    has published the request meanwhile, the published runs are returned. `planned` is the state of the log for the
    slices and the plan, if the caller has made them with the pipeline of the request.

    Raises:
        RequestError: the request is unknown, closed, or published without one of the slices; or the slice before has no
            run.
        HindcastError: the replayer failed.
    """
    work, request = context_of(work, request_id)
    ask = replace(
        Ask.of_range(slices, pipeline=work.pipeline, warm_up=request.warm_up),
        request_id=request_id,
        is_fresh=request.is_fresh,
        checks=work.checks,
        is_candidate=request.is_candidate,
    )
    replayed: set[str] = set()
    log_state, current = (None, None) if planned is None else planned
    first, growing = current, 1
    while True:
        view = work.ledger.view()
        if not may_stage(view, view.requests[request_id]):
            check_left_out(work, view, ask)
            return _outcome(work, request_id, slices, replayed=len(replayed))
        if len(replayed) == len(ask.slices):  # no plan can order more
            _complete(work, request_id, first)
            return _outcome(work, request_id, slices, replayed=len(replayed))
        # Records of another pipeline's table move between slices, so all chunks read one version (ReplayOrder).
        if log_state is None or work.pipeline.log.pipeline is None:
            log_state = work.log_state(view, ask.slices, before=log_state)
        asked = replace(ask, trusted=frozenset(replayed))
        current = make_plan(work.pipeline, view, log_state, ask=asked, earlier=current)
        first = first or current
        _adopt(work, request_id, current)
        chunk = next_chunk(current, staging, growing=growing, skip=frozenset(replayed))
        if not chunk or (staging.stops_on_fail and _has_failed(current)):
            if not chunk:
                _complete(work, request_id, first)
            return _outcome(work, request_id, slices, replayed=len(replayed))
        growing = growing * 2 if chunk[0].is_for_state else 1
        order = _order(work, request_id, current, chunk=chunk)
        staging.on_progress(Progress(now=_progress(current, replayed), chunk=order.slices))
        results = replay_until_closed(work, order, replayer=replayer)
        replayed.update(result.slice.slice_id for result in results)
        now = _progress(current, replayed, results)
        staging.on_progress(Progress(now=now, chunk=order.slices, results=tuple(results)))


def _progress(current: Plan, replayed: Collection[str], results: Sequence[RunResult] = ()) -> EventTimeProgress:
    """Return the progress by a plan, and the results since it was made. Slices of a warm-up take time only."""
    in_range = {step.slice.slice_id for step in current.range}
    staged = [step.run.result for step in current.range if step.reason is Reason.CURRENT and step.run is not None]
    new = [result for result in results if result.slice.slice_id in in_range]
    left = Estimate.together(step.expected for step in current.stale if step.slice.slice_id not in replayed)
    return EventTimeProgress.of([*staged, *new], total=len(in_range), left=left)


def next_chunk(current: Plan, staging: Staging, *, growing: int, skip: frozenset[str]) -> tuple[Step, ...]:
    """Return the slices to replay next: contiguous, within the limits of `staging`, none of `skip`.

    Slices that are stale for another reason than the state before are replayed together. If only that state has
    changed, `growing` limits the chunk to one slice, then two, four and so on (early cut-off): if a slice leaves the
    same state as before, the slices after it are current again and are not replayed.
    """
    steps = [step for step in current.steps if step.slice.slice_id not in skip]
    start = next((index for index, step in enumerate(steps) if step.reason is not Reason.CURRENT), None)
    if start is None:
        return ()
    first = steps[start]
    most = staging.chunk if staging.chunk is not None else len(steps)
    chunk, records = [first], _likely_records(first)
    for step in steps[start + 1 :]:
        is_next = step.slice.start_ms == chunk[-1].slice.end_ms and step.reason is not Reason.CURRENT
        if not is_next or len(chunk) >= most or step.is_for_state != first.is_for_state:
            break
        if first.is_for_state and len(chunk) >= growing:
            break
        records += _likely_records(step)
        if records > staging.chunk_records:
            break
        chunk.append(step)
    return tuple(chunk)


def _likely_records(step: Step) -> int:
    """Return the number of records of a slice. The log may have no statistics of it."""
    return step.records or step.bytes // BYTES_PER_RECORD


def _has_failed(current: Plan) -> bool:
    return any(
        step.reason is Reason.CURRENT and step.run is not None and not step.run.is_publishable for step in current.range
    )


def _adopt(work: RequestContext, request_id: str, current: Plan) -> None:
    """Record in the request the current runs that it does not have.

    A run that readers see is recorded only if the request has another run of the same slice. If the chain of the
    request begins with a run that another request has staged inside its own chain, the event tells it. An own run that
    is older than the published one, and current again (the newer records were erased), is recorded as seen now.
    A complete repair has left out its runs with the rows of the chain, so it takes none.
    """

    def is_start(view: LedgerView, run: StagedRun) -> bool:
        request, first = view.requests[request_id], current.steps[0].slice
        if request.warm_up is None:
            return current.start.begins_chain and run.result.slice == first and not run.is_chain_start
        is_first = run.result.slice.start_ms == request.from_ms
        return is_first and not run.is_chain_start and not continues_chain(view, run.result)

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        request = view.requests[request_id]
        runs = request.runs
        if not request.is_open or (request.is_repair and request.is_complete):
            return []
        return [*_seen_again(view, request, current)] + [
            LedgerEvent(
                kind=EventKind.ADOPTED,
                request_id=request_id,
                **slice_columns(step.slice),
                run_id=step.run.result.run_id,
                attempt_id=step.run.result.attempt_id,
                details={"chain_start": True} if is_start(view, step.run) else {},
            )
            for step in current.range
            if step.reason is Reason.CURRENT
            and step.run is not None
            and runs.get(step.slice.slice_id) != step.run.result.run_id
            and (
                not step.is_published
                or view.published.get(step.slice.slice_id) != step.run.result.run_id
                or step.slice.slice_id in runs
            )
        ]

    if any(step.reason is Reason.CURRENT for step in current.range):
        work.ledger.write(decide)


def _seen_again(view: LedgerView, request: Request, current: Plan) -> Iterator[LedgerEvent]:
    """Yield the sightings of the request's own runs that are current, and were older than the published ones.

    A run that this process has just staged is current even if the log has changed since. It is not seen again.
    """
    for step in current.range:
        run = step.run
        is_own = run is not None and request.runs.get(step.slice.slice_id) == run.result.run_id
        if run is None or not is_own or step.reason is not Reason.CURRENT:
            continue
        now = current.basis.log.coordinates[step.slice.slice_id]
        if match_input(run.sightings, now) is Match.SAME and is_older(view, step.slice.slice_id, run.result.run_id):
            seen = Sighting(log=now, is_equal=True)
            yield verified_event(run.result, seen, fingerprint=run.result.input_fingerprint, who=request.who)


def _complete(work: RequestContext, request_id: str, first: Plan | None) -> None:
    """Record that no slice of the request's range is left to replay. A repair that is refused is closed.

    Of a candidate, the ledger stores what readers saw of the range when the `first` plan of this call was made.
    """
    refused: RequestError | None = None

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal refused
        refused, request = None, view.requests[request_id]
        if not request.is_open or request.from_ms is None:
            return []
        compared_with = _seen_by(first) if request.is_candidate else {}
        if request.is_complete and request.compared_with == compared_with:
            return []
        details: dict[str, object] = {"compared_with": compared_with} if request.is_candidate else {}
        if request.is_repair:
            from jobs.orchestration.late_repair import repairs_of

            try:
                details["repairs"] = repairs_of(work, view, request)
            except RequestError as error:  # the same runs would be refused again
                refused = error
                return [closed_event(request_id, str(error))]
        return [LedgerEvent(kind=EventKind.COMPLETED, request_id=request_id, details=details)]

    work.ledger.write(decide)
    if refused is not None:
        raise refused


def _seen_by(planned: Plan | None) -> dict[str, str | None]:
    """Return the run that readers saw of each slice of a plan's range when the plan was made; None: no run."""
    if planned is None:
        raise InvariantBroken("a candidate is complete, and no plan was made; please report this")
    return {step.slice.slice_id: planned.basis.published.get(step.slice.slice_id) for step in planned.range}


def _order(work: RequestContext, request_id: str, current: Plan, *, chunk: Sequence[Step]) -> ReplayOrder:
    """Return the order for a chunk of a plan as a new attempt; the ledger gives the checkpoint of the run before it."""
    start, index = current.start, current.steps.index(chunk[0])
    before, predecessor = start.before, current.steps[index - 1] if index else None
    if predecessor is not None:
        if predecessor.run is None:
            raise InvariantBroken(
                f"request {request_id}: a chunk follows slice {predecessor.slice.slice_id}, which has no run; please "
                "report this"
            )
        before = continued_run(work.ledger.view(), predecessor.run, spec=current.spec_fingerprint).checkpoint
    return ReplayOrder(
        pipeline=work.pipeline,
        lake=work.lake,
        slices=tuple(step.slice for step in chunk),
        before=before,
        warm_up=start.warm_up if predecessor is None else None,
        begins_chain=predecessor is None and start.begins_chain,
        request_id=request_id,
        attempt_id=work.new_id(),
        known_log=current.basis.log.known,
        ledger=work.ledger.newest(),
        may_be_divided=True,
        log_version=None if work.pipeline.log.pipeline is None else current.basis.log.version,
    )


def _outcome(work: RequestContext, request_id: str, slices: Sequence[Slice], *, replayed: int) -> RequestOutcome:
    view = work.ledger.view()
    request = view.requests[request_id]
    ids = [request.runs.get(slice_.slice_id) or view.published.get(slice_.slice_id) for slice_ in slices]
    runs = tuple(view.run(run_id) for run_id in ids if run_id is not None)
    return RequestOutcome(
        pipeline=work.pipeline.name, request_id=request_id, runs=runs, replayed=replayed, publication=None
    )
