"""Which attempt counts for a run, during the fold of a ledger: the first one that was staged and not condemned.

If a run was mended, its newest mended attempt counts instead, also as a part of states that name an attempt from before
the mending. Attempts whose rows a clean-up has removed do not count. If only the state of the attempt was removed, the
next one that has stored it again counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.ledger.events import LedgerEvent, changed, run_result, text_of
from jobs.ledger.later import Later
from jobs.ledger.removals import Removal, StoredAttempt, Why, removals_of
from jobs.ledger.view import StagedRun
from jobs.runs import CheckpointPart, RunResult


@dataclass(slots=True)
class AttemptChoice:
    """The attempts at the runs of a ledger.

    `condemned` are "run_id/attempt_id" of condemned attempts at one run, and `condemned_attempts` the ids of those that
    were condemned as a whole. `mended` maps a run to the attempt that mended it, and `replaced` are "run_id/attempt_id"
    of those that were staged before. `removed` are the attempts at slices whose rows were removed, and
    `removed_checkpoints` those of which only the rows of the state were.
    """

    staged_attempts: set[str] = field(default_factory=set)
    condemned: set[str] = field(default_factory=set)
    condemned_attempts: set[str] = field(default_factory=set)
    mended: dict[str, StagedRun] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    removed: Later[StoredAttempt, Removal] = field(default_factory=Later)
    removed_checkpoints: Later[StoredAttempt, Removal] = field(default_factory=Later)

    def copy(self) -> "AttemptChoice":
        """Return the same attempts, to which further ones can be added."""
        return AttemptChoice(
            self.staged_attempts.copy(),
            self.condemned.copy(),
            self.condemned_attempts.copy(),
            self.mended.copy(),
            self.replaced.copy(),
            self.removed.copy(),
            self.removed_checkpoints.copy(),
        )

    def stage(self, event: LedgerEvent) -> StagedRun:
        result = run_result(event)
        self.staged_attempts.add(result.attempt_id)
        return StagedRun(
            result=result,
            request_id=text_of(event, "request_id"),
            seq=event.seq,
            at_ms=event.at_ms,
            is_chain_start=bool(event.details.get("chain_start", False)),
            checks_attempt_id=result.attempt_id,
        )

    def mend(self, staged: Sequence[StagedRun], event: LedgerEvent) -> StagedRun:
        """Take in the attempt that replaces all earlier ones at a run, and return it."""
        run = self.stage(event)
        self.replaced |= {f"{each.result.run_id}/{each.result.attempt_id}" for each in staged}
        self.mended[run.result.run_id] = run
        return run

    def condemn(self, event: LedgerEvent) -> None:
        if event.run_id is None:
            self.condemned_attempts.add(text_of(event, "attempt_id"))
        else:
            self.condemned.add(f"{event.run_id}/{event.attempt_id}")

    def remove(self, event: LedgerEvent) -> None:
        """Take in what a clean-up has removed."""
        for stored, removal in removals_of(event):
            (self.removed_checkpoints if removal.why is Why.CHECKPOINTS else self.removed)[stored] = removal

    def chosen(self, staged: Sequence[StagedRun]) -> StagedRun | None:
        """Return the attempt that counts, of the attempts at a run; None if all were condemned or removed."""
        attempts = self._valid(staged)
        stored = [run for run in attempts if _place(run.result) not in self.removed] if self.removed else attempts
        if not stored:
            return None
        first = chosen = stored[0]
        if len(attempts) == 1 and not (self.removed or self.removed_checkpoints):
            return first  # fast path: most runs have one attempt
        if (mended := self.mended.get(first.result.run_id)) is not None:
            chosen = next((run for run in stored if run.result.attempt_id == mended.result.attempt_id), first)
        if self._checkpoint_removal(chosen.result) is not None:
            later = stored[stored.index(chosen) + 1 :]
            chosen = next((run for run in later if self._checkpoint_removal(run.result) is None), chosen)
        return changed(
            first,
            result=chosen.result,
            checks_attempt_id=chosen.checks_attempt_id,
            is_contradicted=any(content_of(run.result) != content_of(attempts[0].result) for run in attempts[1:]),
            checkpoint_removal=self._checkpoint_removal(chosen.result),
        )

    def gone(self, staged: Sequence[StagedRun]) -> StagedRun | None:
        """Return the first attempt at a run, if no attempt counts because clean-ups have removed the rows of all."""
        attempts = self._valid(staged)
        is_gone = attempts and all(_place(run.result) in self.removed for run in attempts)
        return attempts[0] if is_gone else None

    def _valid(self, staged: Sequence[StagedRun]) -> list[StagedRun]:
        attempts = [changed(run, result=self._present(run.result)) for run in staged] if self.mended else staged
        if not (self.condemned or self.condemned_attempts):
            return [*attempts]
        return [run for run in attempts if not self._is_condemned(run.result)]

    def _is_condemned(self, result: RunResult) -> bool:
        """Return whether an attempt is condemned, or an attempt that stored an earlier part of its checkpoint."""
        parts = ((part.run_id, part.attempt_id) for part in result.checkpoint.earlier)
        return any(
            attempt_id in self.condemned_attempts or f"{run_id}/{attempt_id}" in self.condemned
            for run_id, attempt_id in ((result.run_id, result.attempt_id), *parts)
        )

    def _present(self, result: RunResult) -> RunResult:
        """Return a result whose checkpoint has the mended attempts in place of those that they replace."""
        earlier = self._parts(result.checkpoint.earlier)
        if earlier == result.checkpoint.earlier:
            return result
        return changed(result, checkpoint=changed(result.checkpoint, earlier=earlier))

    def _parts(self, earlier: tuple[CheckpointPart, ...]) -> tuple[CheckpointPart, ...]:
        """Return parts of a checkpoint. The state after a run is the same, in whatever parts an attempt stored it.

        An attempt after the mending has stored its own parts, which stay while the state of the mended one may go.
        """
        parts: tuple[CheckpointPart, ...] = ()
        for part in earlier:
            if f"{part.run_id}/{part.attempt_id}" in self.replaced:
                mended = self.mended[part.run_id].result
                parts = (*self._parts(mended.checkpoint.earlier), changed(part, attempt_id=mended.attempt_id))
            else:
                parts = (*parts, part)
        return parts

    def _checkpoint_removal(self, result: RunResult) -> Removal | None:
        """Return the clean-up that has removed rows of the state after a run; None if all are there."""
        if not (self.removed or self.removed_checkpoints):
            return None
        parts = ((part.slice_id, part.attempt_id) for part in result.checkpoint.earlier)
        removals = (self.removed.get(part) or self.removed_checkpoints.get(part) for part in (_place(result), *parts))
        return next((removal for removal in removals if removal is not None), None)


def _place(result: RunResult) -> StoredAttempt:
    return result.slice.slice_id, result.attempt_id


def content_of(result: RunResult) -> tuple[object, ...]:
    """Return the fields that must be equal in all attempts at one run (law L1)."""
    return dict(result.digests), result.state_after, result.counts, result.watermark_ms
