"""The runs during the fold of a ledger: what its events tell of each, and the attempt that counts.

A view holds a copy of a `RunsProjection`. Later events replace values in the other copy and change none.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from jobs.ledger.attempt_choice import AttemptChoice, content_of
from jobs.ledger.events import (
    EventKind,
    LedgerEvent,
    changed,
    checks_fingerprint_of,
    judged_checks,
    later_checks,
    run_result,
    text_of,
    with_checks,
)
from jobs.ledger.later import Later
from jobs.ledger.run_slots import RunBrief, RunSlot
from jobs.ledger.tally import Standing
from jobs.ledger.view import Judgement, LedgerView, StagedRun, Waiver
from jobs.runs import Sighting, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenState:
    """What a run had when readers saw it last."""

    judgement: Judgement | None
    waiver: Waiver | None
    ended_waiver: Waiver | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvents:
    """What the ledger tells of a run: its attempts and sightings in ledger order, its newest check and judgement.

    `ended_waiver` is a waiver that a person has ended by a cancellation or a rollback. `seen` is set when a request
    with the run is judged, until a publication shows the run. A rollback may show it instead, without that request.
    """

    staged: tuple[StagedRun, ...] = ()
    checked: LedgerEvent | None = None
    judgement: Judgement | None = None
    waiver: Waiver | None = None
    ended_waiver: Waiver | None = None
    sightings: tuple[Sighting, ...] = ()
    seen: SeenState | None = None


NO_EVENTS = RunEvents()


@dataclass(slots=True)
class RunsProjection:
    """The runs of the events so far. `slots` are of the runs that were staged, in ledger order."""

    attempts: AttemptChoice = field(default_factory=AttemptChoice)
    events: Later[str, RunEvents] = field(default_factory=Later)
    slots: dict[str, RunSlot] = field(default_factory=dict)

    def copy(self) -> "RunsProjection":
        """Return the same runs, which take further events of their own."""
        return RunsProjection(self.attempts.copy(), self.events.copy(), self.slots.copy())

    def of(self, run_id: str) -> RunEvents:
        events: RunEvents = self.events.get(run_id, NO_EVENTS)
        return events

    def change(self, run_id: str, **changes: Any) -> None:  # noqa: ANN401 - the fields of RunEvents
        events = self.events[run_id] = changed(self.of(run_id), **changes)
        if events.staged:
            self.slots[run_id] = RunSlot()

    def check(self, event: LedgerEvent) -> None:
        Verdict(event.verdict)  # a view reads both values, and does not know the ledger's place
        checks_fingerprint_of(event)
        self.change(text_of(event, "run_id"), checked=event)

    def judge(self, event: LedgerEvent) -> None:
        for run_id, checks in judged_checks(event).items():
            basis, own = str(event.details.get("basis")), self.of(run_id)
            judgement = Judgement(basis=basis, checks=checks, request_id=event.request_id or "")
            if own.seen is None:
                seen = SeenState(judgement=own.judgement, waiver=own.waiver, ended_waiver=own.ended_waiver)
                self.change(run_id, seen=seen)
            self.change(run_id, judgement=judgement)

    def waive(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        checked, judgement = self.of(run_id).checked, self.of(run_id).judgement
        failed = _failed_checks(checked) if checked is not None else frozenset()
        if not event.details.get("by_arguments", False):  # an earlier version wrote it
            failed = frozenset((*check[:3], None) for check in failed)
        waiver = Waiver(
            slice_id=text_of(event, "slice_id"),
            run_id=run_id,
            request_id=event.request_id or "",
            who=event.who or "",
            reason=event.reason or "",
            at_ms=event.at_ms,
            failed=failed | judgement.failed if judgement is not None else failed,
        )
        self.change(run_id, waiver=waiver, ended_waiver=None)

    def end_waiver(self, run_id: str) -> None:
        """Let the waiver of a run not count any more."""
        self.change(run_id, waiver=None, ended_waiver=self.of(run_id).waiver)

    def show_again(self, run_id: str) -> None:
        """Take in that a rollback shows a run: a judgement of a request that would have shown it does not count."""
        if (seen := self.of(run_id).seen) is not None:
            own = {"judgement": seen.judgement, "waiver": seen.waiver, "ended_waiver": seen.ended_waiver}
            self.change(run_id, **own, seen=None)
        self._renew_waiver(run_id)

    def publish(self, run_id: str) -> None:
        """Take in that a publication shows a run: its newest judgement was for that."""
        if self.of(run_id).seen is not None:
            self.change(run_id, seen=None)
        self._renew_waiver(run_id)

    def _renew_waiver(self, run_id: str) -> None:
        """Let the ended waiver of a failed run that readers see count again.

        A rollback shows the run again, or an earlier version has published it, which ended no waivers.
        """
        ended = self.of(run_id).ended_waiver
        run = self.run(run_id) if ended is not None and run_id in self.slots else None
        if run is not None and not run.is_publishable:
            self.change(run_id, waiver=ended, ended_waiver=None)

    def stage(self, event: LedgerEvent) -> StagedRun:
        """Take an attempt at a run in, and return it. It has seen the log."""
        run = self.attempts.stage(event)
        sighting = Sighting(log=run.result.log, is_equal=True, seq=run.seq)
        self._add(run, sightings=(*self.of(run.result.run_id).sightings, sighting))
        return run

    def mend(self, event: LedgerEvent) -> None:
        """Take the attempt in that counts for a run from now on. A view of an earlier version may not have the run."""
        staged = self.of(text_of(event, "run_id")).staged
        if staged:
            self._add(self.attempts.mend(staged, event))

    def store_again(self, event: LedgerEvent, run: StagedRun) -> None:
        """Take in an attempt after the version of the view, if it counts for the run now and stored equal rows."""
        if event.kind is EventKind.STAGED and event.attempt_id == run.result.attempt_id:
            self._stage_again(event)
        elif event.kind is EventKind.CHECKED and event.attempt_id == run.checks_attempt_id:
            self._check_again(event)

    def _stage_again(self, event: LedgerEvent) -> None:
        first = next(iter(self.of(text_of(event, "run_id")).staged), None)
        if first is not None and content_of(result := run_result(event)) == content_of(first.result):
            self._add(changed(first, result=result, checks_attempt_id=result.attempt_id))

    def _check_again(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        checked = self.of(run_id).checked
        if checked is not None and _content(event) == _content(checked):
            self.change(run_id, checked=changed(checked, attempt_id=event.attempt_id))

    def _add(self, run: StagedRun, **changes: Any) -> None:  # noqa: ANN401 - the fields of RunEvents
        """Add an attempt at a run. If any attempt was staged as the beginning of a chain, the run is one."""
        run_id = run.result.run_id
        staged = (*self.of(run_id).staged, run)
        self.change(run_id, staged=staged, **changes)
        if len(staged) > 1 and any(attempt.is_chain_start for attempt in staged):
            self.let_begin(run_id)

    def let_begin(self, run_id: str) -> None:
        """Let a run begin a chain, although a request has staged it inside its own."""
        self.change(run_id, staged=tuple(changed(run, is_chain_start=True) for run in self.of(run_id).staged))

    def renew_all(self) -> None:
        """Take in that for any run another attempt may count now."""
        self.slots = {run_id: RunSlot() for run_id in self.slots}

    @property
    def unsettled(self) -> int:
        """The number of runs of which nothing was made of their newest events."""
        return sum(slot.brief is None for slot in self.slots.values())

    def settle(self) -> None:
        for run_id in self.slots:
            self.brief(run_id)

    def brief(self, run_id: str) -> RunBrief:
        slot = self.slots[run_id]
        if slot.brief is None:
            run, is_gone = self._resolved(run_id)
            slot.run = run
            first = run or self.of(run_id).staged[0]
            brief = RunBrief.of(first)
            slot.brief = brief if run is not None and not is_gone else brief._replace(standing=None, is_gone=is_gone)
        return slot.brief

    def run(self, run_id: str) -> StagedRun | None:
        """Return a staged run by the attempt that counts, or the first one if all were removed; None if none counts."""
        slot, brief = self.slots[run_id], self.brief(run_id)
        if slot.run is None and (brief.standing is not None or brief.is_gone):
            slot.run, _ = self._resolved(run_id)
        return slot.run

    def _resolved(self, run_id: str) -> tuple[StagedRun | None, bool]:
        """Return the attempt that counts for a run, with its verdict and waiver, or the first one that was removed."""
        events = self.of(run_id)
        chosen = self.attempts.chosen(events.staged)
        if chosen is None:
            gone = self.attempts.gone(events.staged)
            return gone and changed(gone, sightings=events.sightings), gone is not None
        checked, judgement = events.checked, events.judgement
        checks: dict[str, Any] = {}
        if checked is not None:
            checks = {
                "result": with_checks(chosen.result, checked),
                "checks_attempt_id": checked.attempt_id or chosen.checks_attempt_id,
                "checks_fingerprint": checks_fingerprint_of(checked),
            }
        if judgement is not None:
            checks["result"] = judgement.added_to(checks.get("result", chosen.result))
        waiver = events.waiver and _covering(events.waiver, checked, judgement)
        return changed(chosen, **checks, judgement=judgement, waiver=waiver, sightings=events.sightings), False


def _covering(waiver: Waiver, checked: LedgerEvent | None, judgement: Judgement | None) -> Waiver | None:
    """Return a waiver if it covers each failed check."""
    failed = _failed_checks(checked) if checked is not None else frozenset[tuple[str | None, ...]]()
    failed |= judgement.failed if judgement is not None else failed
    return waiver if all({check, (*check[:3], None)} & waiver.failed for check in failed) else None


def _content(checked: LedgerEvent) -> tuple[object, ...]:
    return checks_fingerprint_of(checked), later_checks(checked)


def _failed_checks(event: LedgerEvent) -> frozenset[tuple[str | None, ...]]:
    stopping = {Verdict.FAIL.value, Verdict.ERROR.value}
    checks = (row for row in event.details.get("checks", ()) if row["verdict"] in stopping)
    return frozenset((row["table"], row["check"], row["column"], row["arguments"]) for row in checks)


class Runs(Mapping[str, StagedRun]):
    """The runs of a view that count, or those whose rows were removed (`are_gone`), in ledger order."""

    __slots__ = ("_are_gone", "_briefs", "_runs")

    def __init__(self, runs: RunsProjection, *, are_gone: bool = False) -> None:
        self._runs = runs
        self._are_gone = are_gone
        self._briefs: dict[str, RunBrief] | None = None

    @property
    def briefs(self) -> Mapping[str, RunBrief]:
        """The briefs of these runs, by their ids."""
        if self._briefs is None:
            every = ((run_id, slot.brief or self._runs.brief(run_id)) for run_id, slot in self._runs.slots.items())
            self._briefs = {run_id: brief for run_id, brief in every if self._has(brief)}
        return self._briefs

    def _has(self, brief: RunBrief) -> bool:
        return brief.is_gone if self._are_gone else brief.standing is not None

    def __getitem__(self, run_id: str) -> StagedRun:
        run: StagedRun | None = self.get(run_id)
        if run is None:
            raise KeyError(run_id)
        return run

    @override
    def get(self, run_id: str, default: Any = None) -> Any:
        slot = self._runs.slots.get(run_id)
        if slot is None:
            return default
        brief = slot.brief or self._runs.brief(run_id)
        is_there = brief.is_gone if self._are_gone else brief.standing is not None
        return (slot.run or self._runs.run(run_id) or default) if is_there else default

    def attempts_at(self, run_id: str) -> tuple[StagedRun, ...]:
        """Return all attempts at a run, as they were staged."""
        return self._runs.of(run_id).staged

    @override
    def __contains__(self, run_id: object) -> bool:
        slot = self._runs.slots.get(run_id) if isinstance(run_id, str) else None
        return slot is not None and self._has(slot.brief or self._runs.brief(str(run_id)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.briefs)

    @override
    def __eq__(self, other: object) -> bool:
        """Compare the runs. Those without another event between two views of a ledger are not decoded."""
        if not isinstance(other, Runs) or self._are_gone != other._are_gone:
            return super().__eq__(other)
        own, others = self._runs.slots, other._runs.slots
        changed = {run_id for run_id in own.keys() | others.keys() if own.get(run_id) is not others.get(run_id)}
        return all(self.get(run_id) == other.get(run_id) for run_id in changed)

    __hash__ = Mapping.__hash__

    def __len__(self) -> int:
        return len(self.briefs)

    def __repr__(self) -> str:
        return repr(dict(self))


def fields_of_view(runs: RunsProjection) -> dict[str, Any]:
    """Return the fields of a view that tell of runs. Nobody changes `runs` afterwards."""
    attempts = runs.attempts
    return {
        "runs": Runs(runs),
        "condemned": frozenset(attempts.condemned),
        "staged_attempts": frozenset(attempts.staged_attempts),
        "condemned_attempts": frozenset(attempts.condemned_attempts),
        "removed": attempts.removed,
        "removed_checkpoints": attempts.removed_checkpoints,
        "removed_runs": Runs(runs, are_gone=True),
    }


def briefs_of(view: LedgerView) -> Mapping[str, RunBrief]:
    """Return the briefs of all runs of a view that count, by their ids, in ledger order."""
    runs = view.runs
    return runs.briefs if isinstance(runs, Runs) else {run_id: RunBrief.of(run) for run_id, run in runs.items()}


def briefs_among(view: LedgerView, run_ids: Iterable[str]) -> list[RunBrief]:
    """Return the briefs of those runs that count, in the order of the ids."""
    briefs = briefs_of(view)
    return [briefs[run_id] for run_id in run_ids if run_id in briefs]


def failing_in_sight(view: LedgerView) -> list[StagedRun]:
    """Return the runs that readers see in spite of an error, or of a failed check without a waiver, in slice order."""
    briefs, stopped = briefs_of(view), {Standing.FAILED, Standing.BROKEN}
    ids = [run_id for run_id in view.published.values() if run_id in briefs and briefs[run_id].standing in stopped]
    return [view.run(run_id) for run_id in ids]


def attempts_at(view: LedgerView, run_id: str) -> tuple[StagedRun, ...]:
    """Return all attempts at a run that counts, as they were staged; those that do not count, too."""
    runs = view.runs
    return runs.attempts_at(run_id) if isinstance(runs, Runs) else (runs[run_id],)
