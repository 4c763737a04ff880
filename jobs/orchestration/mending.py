"""Makes damaged rows of a run again: replays its slice from the state before, and proves that the rows are equal.

The rows of a run depend on its input, its spec and the state before only (law L1). So another attempt must have the
same run id and digests. One commit of the ledger then lets the new attempt count, and records that the old rows are
removed. Publications stay as they are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from jobs.lake.leftover_files import LakeFiles
from jobs.lake.log_match import Match, match_input
from jobs.ledger.events import LedgerEvent, checked_event, mended_event, staged_event
from jobs.ledger.removals import Why, removed_event
from jobs.ledger.run_projection import attempts_at
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.orchestration.attempts import AttemptCondemned
from jobs.orchestration.stored_warm_up import restart_of
from jobs.pipeline.look_back import look_back
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import RunsByState, fresh_beginning
from jobs.planning.published_spec import going_on, why_uncomputable
from jobs.planning.request_context import RequestContext, context_of, from_the_beginning
from jobs.planning.stored_spec import at_read_log, stored_pipeline
from jobs.publishing.cleaning import delete_removed
from jobs.reading.quality_ids import quality_digest
from jobs.reading.stored_rows import Finding, digest_of, run_attempt
from jobs.reading.stored_tables import spec_of
from jobs.reading.verify import Span, verify
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.runs import EMPTY_STATE, SHOWN_DIGITS, CheckpointRef, RunResult, Slice, WarmUp
from windowlib.errors import HindcastError, InvariantBroken, LogError, RequestError, SpecError
from windowlib.records import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A run whose stored rows differ from the ledger, and the differences."""

    run: StagedRun
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What became of the damaged runs of a slice.

    By run id, `damaged` is what was found, `attempts` are those that count now (empty in a dry run), and `refused`
    tells why a run cannot be made again, if another one of the slice can. `left` is what `verify` still finds at the
    slice afterwards.
    """

    pipeline: str
    slice_id: str
    damaged: dict[str, tuple[Finding, ...]]
    attempts: dict[str, str]
    refused: dict[str, str] = field(default_factory=dict)
    left: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "slice_id": self.slice_id,
            "damaged": {run_id: [str(finding) for finding in findings] for run_id, findings in self.damaged.items()},
            "attempts": dict(self.attempts),
            "refused": dict(self.refused),
            "left": [str(finding) for finding in self.left],
        }


def mend(
    work: RequestContext, slice_: Slice, replayer: Replayer, *, who: str, reason: str = "", dry_run: bool = False,
    master: str | None = None,
) -> Mended:  # fmt: skip
    """Make the damaged runs of a slice again, published or staged.

    In a dry run, nothing is replayed or written. The ledger stores who and the reason; by default, the reason is what
    was found.

    Raises:
        RequestError: no run of them can be made again: its records, spec or state before are not there any more, or the
            log of a table is damaged. The message tells what to do.
        LogError, SpecError: the log cannot be read.
    """
    view = work.ledger.view()
    damages = _damages(work, view, slice_)
    refusals: dict[str, HindcastError] = {}
    orders: list[tuple[Damage, ReplayOrder]] = []
    for damage in damages:  # before the replayer starts Spark
        with _refused(damage.run, refusals):
            orders.append((damage, mend_order(work, view, damage.run, master=master)))
    attempts: dict[str, str] = {}
    for damage, order in () if dry_run else orders:
        with _refused(damage.run, refusals):
            run_id = damage.run.result.run_id
            attempts[run_id] = _make_again(work, damage, order, replayer=replayer, who=who, reason=reason)
    if refusals and not (orders if dry_run else attempts):
        raise next(iter(refusals.values()))
    return Mended(
        pipeline=work.pipeline.name,
        slice_id=slice_.slice_id,
        damaged={damage.run.result.run_id: damage.findings for damage in damages},
        attempts=attempts,
        refused={run_id: str(error) for run_id, error in refusals.items()},
        left=findings_of(work, work.ledger.view(), slice_.slice_id) if attempts else (),
    )


@contextmanager
def _refused(run: StagedRun, refusals: dict[str, HindcastError]) -> Iterator[None]:
    """Keep the reason why one run cannot be made again, so that the other runs of the slice are."""
    try:
        yield
    except (RequestError, LogError, SpecError) as error:
        refusals[run.result.run_id] = error


def _damages(work: RequestContext, view: LedgerView, slice_: Slice) -> list[Damage]:
    """Return the runs of a slice whose stored rows are damaged, those of the published chain first."""
    runs = [run for run in view.runs.values() if run.result.slice.slice_id == slice_.slice_id]
    if not runs:
        raise RequestError(f"slice {slice_.slice_id} of pipeline {work.pipeline.name} has no run in the ledger")
    findings = findings_of(work, view, slice_.slice_id)
    damages = []
    for run in sorted(runs, key=lambda run: not view.is_in_chain(run.result.run_id)):
        others = {run_attempt(other) for other in attempts_at(view, run.result.run_id)}  # parts of later states
        places = {run_attempt(run), run_attempt(run, tables.QUALITY_RESULTS), *others}
        own = tuple(finding for finding in findings if (finding.slice_id, finding.attempt_id) in places)
        if own:
            damages.append(Damage(run=run, findings=own))
    lost = next((finding for finding in findings if finding.attempt_id is None), None)
    if lost is not None and (lost.slice_id is None or not damages):
        raise RequestError(f"{lost}. This is no damage of the rows of one run, so no run can mend it")
    return damages


def _make_again(
    work: RequestContext, damage: Damage, order: ReplayOrder, *, replayer: Replayer, who: str, reason: str
) -> str:
    """Replay one run, compare it with the ledger, and let the new attempt count. Return its id."""
    old = damage.run
    warmed = _warmed_up(order, old, replayer=replayer)
    if warmed:
        order = replace(order, slices=order.slices[-1:], before=warmed[-1].stored_state, warm_up=None)
    [made] = replayer(order)
    _compare(work, old, made)
    digest = quality_digest(made.checks, made.extras.get("checks_fingerprint"))
    owns_checks = digest == digest_of(old, tables.QUALITY_RESULTS)
    staged = staged_event(old.request_id, made, is_chain_start=old.is_chain_start)
    why = reason or f"hindcast mend: {damage.findings[0]}"
    places = {run_attempt(old), *((old.result.slice.slice_id, finding.attempt_id or "") for finding in damage.findings)}
    if not owns_checks:
        places -= {run_attempt(old, tables.QUALITY_RESULTS)}

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        _refuse_lost_rows(view, [*warmed, made])
        if view.run(old.result.run_id).result.attempt_id != old.result.attempt_id:
            raise RequestError(f"run {old.result.run_id[:SHOWN_DIGITS]} was mended by another process meanwhile")
        before = [event for result in warmed for event in _warm_up_events(view, old.request_id, result)]
        events = [*before, mended_event(staged, who=who, reason=why, owns_checks=owns_checks)]
        return [*events, *([removed_event(dict.fromkeys(places, Why.MENDED), who=who, reason=why)] if places else [])]

    work.ledger.write(decide)
    delete_removed(work, LakeFiles(lake=work.lake, pipeline=work.pipeline.name))
    return order.attempt_id


def _refuse_lost_rows(view: LedgerView, results: Sequence[RunResult]) -> None:
    """Refuse results if rows of them, or of the states that they have parts of, are not there any more."""
    for part in (part for result in results for part in result.stored_state.parts):
        place = part.slice_id, part.attempt_id
        is_condemned = part.attempt_id in view.condemned_attempts
        if is_condemned or f"{part.run_id}/{part.attempt_id}" in view.condemned:
            what = "condemned"
        elif place in view.removed or place in view.removed_checkpoints:
            what = "removed by a clean-up"
        else:
            continue
        raise AttemptCondemned(
            f"attempt {part.attempt_id} at slice {part.slice_id} was {what} while `hindcast mend` ran, so nothing was "
            "changed; run the same command again"
        )


def _warmed_up(order: ReplayOrder, run: StagedRun, *, replayer: Replayer) -> list[RunResult]:
    """Replay the slices before that of a run, of which no state is stored any more."""
    *earlier, slice_ = order.slices
    warmed = (
        replayer(replace(order, slices=tuple(earlier), attempt_id=f"{order.attempt_id}-warm-up")) if earlier else []
    )
    state = warmed[-1].state_after if warmed else order.state_before
    if state != run.result.state_before:
        name, slice_id = order.pipeline.name, slice_.slice_id
        raise RequestError(
            f"slice {slice_id} of pipeline {name} cannot be made again: a clean-up has removed the state before it, "
            "and the log leaves another one now. Replay it, and the slices after it: "
            f"hindcast run {name} --from {slice_id} --to .. --warm-up"
        )
    return warmed


def _warm_up_events(view: LedgerView, request_id: str, result: RunResult) -> list[LedgerEvent]:
    """Return the events of a slice of a warm-up. Its state is a part of the state after the slice that is mended."""
    staged = staged_event(request_id, result, is_chain_start=False, warms_up=True)
    return [staged] if result.run_id in view.runs else [staged, checked_event(request_id, result)]


def _compare(work: RequestContext, old: StagedRun, made: RunResult) -> None:
    """Refuse an attempt that is not equal to the run in the ledger."""
    then, name = old.result, work.pipeline.name
    if made.input_fingerprint != then.input_fingerprint:
        raise other_records(name, work.ledger.view(), old)
    if made.run_id != then.run_id:
        raise RequestError(
            f"slice {then.slice.slice_id} of pipeline {name} was made again as run {made.run_id[:SHOWN_DIGITS]}, and "
            f"the ledger has run {then.run_id[:SHOWN_DIGITS]}: another version of Hindcast or of your functions made "
            "it. Restore that version, or replay the slice"
        )
    other = {table for table in {*made.digests, *then.digests} if made.digests.get(table) != then.digests.get(table)}
    if other or (made.state_after, made.counts, made.watermark_ms) != (
        then.state_after,
        then.counts,
        then.watermark_ms,
    ):
        raise InvariantBroken(
            f"run {then.run_id[:SHOWN_DIGITS]} of slice {then.slice.slice_id} was made again from equal inputs with "
            f"other rows ({', '.join(sorted(other)) or 'counts or state'}), so nothing was changed; please report this"
        )


def findings_of(work: RequestContext, view: LedgerView, slice_id: str) -> tuple[Finding, ...]:
    """Return what `verify` finds at a slice. The runs of one slice id may have different bounds."""
    return tuple(verify(work.lake, work.pipeline.name, view, span=Span(slice_id=slice_id)).findings)


def mend_order(work: RequestContext, view: LedgerView, run: StagedRun, *, master: str | None) -> ReplayOrder:
    """Return the order that makes a run again: its slice, after those of a warm-up if the state before is not stored.

    Raises:
        RequestError: its spec, its records or the state before are not there any more.
        LogError, SpecError: the log cannot be read.
    """
    result = run.result
    work = replace(work, pipeline=at_read_log(work.pipeline, work.lake, run, stored=spec_of(view, run)))
    _check_code(work, view, run)
    own, request = context_of(work, run.request_id)
    if request.spec_fingerprint != result.spec_fingerprint:
        raise RequestError(
            f"run {result.run_id[:SHOWN_DIGITS]} of slice {result.slice.slice_id} has another spec than its request "
            f"{request.request_id}, so it cannot be made again"
        )
    now = own.log_state(view, (result.slice,)).coordinates[result.slice.slice_id]
    match match_input(run.sightings, now):
        case Match.SAME | Match.UNKNOWN:  # if unknown, the run id tells
            pass
        case Match.CHANGED | Match.DIFFERENT:
            raise other_records(work.pipeline.name, view, run)
        case other:
            assert_never(other)
    slices: Sequence[Slice] = (result.slice,)
    start = _stored_start(request, run, RunsByState.of(view).before(run))
    if start is None:
        own = from_the_beginning(own)
        start = None, _warm_up(own, view, run, request=request, master=master)
        slices = slices_between(own.pipeline, start[1].first.start_ms, result.slice.end_ms)
    else:
        _check_state(own, view, run, before=start[0])
    return ReplayOrder(
        pipeline=own.pipeline,
        lake=own.lake,
        slices=tuple(slices),
        before=start[0],
        warm_up=start[1],
        request_id=run.request_id,
        attempt_id=own.new_id(),
        known_log=known_log(view, look_back(own.pipeline, slices).every),
        ledger=own.ledger.newest(),
    )


def _check_code(work: RequestContext, view: LedgerView, run: StagedRun) -> None:
    """Refuse a run whose spec cannot be computed any more."""
    result, request = run.result, view.requests[run.request_id]
    stored = replace(work, pipeline=stored_pipeline(work.pipeline, request))
    if why := why_uncomputable(stored, request.spec_fingerprint):
        replay = going_on(work.pipeline, why, first=result.slice.slice_id)
        raise RequestError(
            f"slice {result.slice.slice_id} of pipeline {work.pipeline.name} cannot be made again: run "
            f"{result.run_id[:SHOWN_DIGITS]} has spec {request.spec_fingerprint[:SHOWN_DIGITS]}, and {why}. Restore "
            f"that version, {_without(view, run, name=work.pipeline.name, replay=replay)}"
        )


def _stored_start(
    request: Request, run: StagedRun, before: StagedRun | None
) -> tuple[CheckpointRef | None, WarmUp | None] | None:
    """Return what a run started from: a checkpoint, or the time of a warm-up, or nothing. `before` left its state.

    None if no run has stored that state, or a clean-up has removed it.
    """
    state, warm_up = run.result.state_before, request.warm_up
    if state == EMPTY_STATE:
        return None, None
    if warm_up is not None and warm_up.fingerprint == state:
        return None, warm_up
    if before is None or before.checkpoint_removal is not None:
        return None
    return before.checkpoint, None


def _warm_up(work: RequestContext, view: LedgerView, run: StagedRun, *, request: Request, master: str | None) -> WarmUp:
    """Return the warm-up that leaves the state before a run; if there is none, one that leaves another state.

    A slice of a warm-up starts from a state that lacks records: from the time alone, or from what the slices since the
    beginning of its request's warm-up leave.
    """
    slice_, state = run.result.slice, run.result.state_before
    beginning = fresh_beginning(view, work.log_state(view, ()), slice_)
    restart = restart_of(work, (slice_,), beginning=beginning, master=master, state=state)
    is_of_warm_up = request.warm_up is not None and slice_.start_ms < (request.from_ms or 0)
    if request.warm_up is not None and (restart is None or (is_of_warm_up and restart.fingerprint != state)):
        return request.warm_up
    return WarmUp(first=slice_) if restart is None else restart


def _check_state(work: RequestContext, view: LedgerView, run: StagedRun, *, before: CheckpointRef | None) -> None:
    checked = (*tables.STATE_TABLES, tables.WATERMARKS)
    for part in () if before is None else before.parts:
        findings = findings_of(work, view, part.slice_id)
        own = (finding for finding in findings if finding.attempt_id == part.attempt_id and finding.table in checked)
        if (finding := next(own, None)) is not None:
            raise RequestError(
                f"slice {run.result.slice.slice_id} cannot be made again, because the state before it is damaged: "
                f"{finding}. Mend that first: hindcast mend {work.pipeline.name} {part.slice_id}"
            )


def other_records(name: str, view: LedgerView, run: StagedRun) -> RequestError:
    """Return the refusal to make a run again whose records the log does not have any more."""
    slice_id = run.result.slice.slice_id
    replay = f"replay the slice with the records that it has now: hindcast run {name} --from {slice_id} --to .."
    return RequestError(
        f"slice {slice_id} of pipeline {name} has other records in the log now than run "
        f"{run.result.run_id[:SHOWN_DIGITS]} read, so the run cannot be made again. Restore the log, "
        f"{_without(view, run, name=name, replay=replay)}"
    )


def _without(view: LedgerView, run: StagedRun, *, name: str, replay: str) -> str:
    """Return what ends a finding of a run that is not made again, as the end of a sentence."""
    if view.is_in_chain(run.result.run_id):
        return f"or {replay}. Then the clean-up removes the damaged rows, if `retention` is set"
    asked = next((asked for asked in view.open_requests() if run.result.run_id in asked.runs.values()), None)
    if asked is not None:
        return f"or cancel the request: hindcast cancel {name} --request {asked.request_id[:SHOWN_DIGITS]} --reason .."
    return f"or remove these rows, which readers do not see: set `retention`, and hindcast clean {name} --remove"
