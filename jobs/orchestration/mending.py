"""Makes damaged rows of a run again: replays its slice from the state before, and proves that the rows are equal.

The rows of a run depend on its input, its spec and the state before only (law L1). So another attempt must have the
same run id and digests. One commit of the ledger then lets the new attempt count, and records that the old rows are
removed. Publications stay as they are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.lake.leftover_files import LakeFiles
from jobs.ledger.events import LedgerEvent, checked_event, mended_event, staged_event
from jobs.ledger.removals import Why, removed_event
from jobs.ledger.run_projection import attempts_at
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration.attempts import AttemptCondemned
from jobs.orchestration.mend_orders import findings_of, mend_order, other_records
from jobs.planning.request_context import RequestContext
from jobs.publishing.cleaning import delete_removed
from jobs.reading.quality_ids import quality_digest
from jobs.reading.stored_rows import Finding, digest_of, run_attempt
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.runs import SHOWN_DIGITS, RunResult, Slice
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

    Attributes:
        pipeline: the name of the pipeline.
        slice_id: the slice.
        damaged: run id -> what was found.
        attempts: run id -> the attempt that counts now; empty in a dry run.
        refused: run id -> why the run cannot be made again, if another one of the slice can.
        left: what `verify` still finds at the slice afterwards.
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
    """Return the runs of a slice whose stored rows are damaged, those of the published chain first.

    Raises:
        RequestError: the slice has no run, or a finding belongs to no attempt.
    """
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
    """Refuse results if rows of them, or of the states that they have parts of, are not there any more.

    Raises:
        AttemptCondemned: a clean-up has condemned or removed them while the slice was replayed.
    """
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
    """Replay the slices before that of a run, of which no state is stored any more.

    Raises:
        RequestError: they leave another state than the run started from.
    """
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
    """Refuse an attempt that is not equal to the run in the ledger.

    Raises:
        RequestError: its records or its state before are others.
        InvariantBroken: equal inputs gave other rows.
    """
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
