"""The steps of a plan: for one slice, whether a run of it is still valid, and if not, why not. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from jobs.lake.log_match import Match, match_input, other_log
from jobs.ledger.acceptances import AcceptedRewrite, told_together
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.plain_text import counted
from jobs.planning.estimate import Estimate
from jobs.runs import LogCoordinates, Slice, Verdict, WarmUp, told_records


class Reason(Enum):
    """Why a slice is replayed; CURRENT if it is not."""

    MISSING = "missing"
    INPUT_CHANGED = "input changed"
    INPUT_UNVERIFIED = "input unverified"  # its files changed, and commits that would tell how are gone
    SPEC_CHANGED = "spec changed"
    WARM_UP = "warm-up"  # before the range; its windows reach into it
    STATE_CHANGED = "state before changed"
    CHECKS_CHANGED = "checks changed"
    FRESH = "fresh"
    CURRENT = "current"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One slice of a plan.

    `is_certain` is false if the slice need not be replayed when the slices before leave the same state again. `run` is
    the valid run (CURRENT), or the run that a replay replaces. `records` and `bytes` are those of the slice in the log.
    `rewrites` are the accepted commits that removed or changed records since that run. `is_warm_up`: the slice is
    before the range, and a run of it is never published. `is_beyond`: it is not certain, and a change in the slices
    before does not reach it by the statistics of the log (jobs.planning.change_reach).
    """

    slice: Slice
    reason: Reason
    because: str
    is_certain: bool
    records: int
    bytes: int
    expected: Estimate | None
    run: StagedRun | None
    is_published: bool
    rewrites: tuple[AcceptedRewrite, ...] = ()
    is_warm_up: bool = False
    is_beyond: bool = False

    @property
    def shown(self) -> str:
        """Why the slice is replayed, in words, with how sure that is."""
        if self.is_certain:
            return self.reason.value
        return "not reached" if self.is_beyond else f"perhaps: {self.reason.value}"

    @property
    def is_for_state(self) -> bool:
        """Whether the slice is replayed only because the state before it has changed, or may have changed."""
        return not self.is_certain or self.reason is Reason.STATE_CHANGED

    @property
    def expected_seconds(self) -> float | None:
        """The expected seconds of the replay; None without past runs."""
        return None if self.expected is None else self.expected.seconds

    @property
    def valid_run(self) -> StagedRun | None:
        """The run of the slice if it is valid; None if the slice is replayed."""
        return self.run if self.reason is Reason.CURRENT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The input of a plan. `slices` begin with those of the `warm_up`, if there is one; `from_ms` is then the range's.

    `request_id` is the request that is continued. `checks` is the suite's fingerprint. `trusted` are slices that this
    process has just replayed: their runs are valid even if the log has changed since. `is_candidate`: the runs of the
    published chain are valid with the checks that they had.
    """

    slices: tuple[Slice, ...]
    request_id: str | None = None
    is_fresh: bool = False
    checks: str | None = None
    trusted: frozenset[str] = frozenset()
    warm_up: WarmUp | None = None
    from_ms: int | None = None
    is_candidate: bool = False

    @classmethod
    def of_range(cls, slices: Sequence[Slice], *, pipeline: Pipeline, warm_up: WarmUp | None) -> "Ask":
        """Return what asks for the slices of a range, after those of its warm-up."""
        if warm_up is None:
            return cls(slices=tuple(slices))
        from_ms = slices[0].start_ms
        has_earlier = warm_up.first.start_ms < from_ms
        earlier = slices_between(pipeline, warm_up.first.start_ms, from_ms) if has_earlier else ()
        return cls(slices=(*earlier, *slices), warm_up=warm_up, from_ms=from_ms)

    def is_warm_up(self, slice_: Slice) -> bool:
        """Return whether a slice is before the range."""
        return self.from_ms is not None and slice_.start_ms < self.from_ms


@dataclass(slots=True, kw_only=True)
class StepJudge:
    """The decision on one slice. `runs` are all runs of the slice, `input` its coordinates in the log now.

    `own` is the id of the run of the slice in the request that is continued, `published` of the one that readers see.
    """

    ask: Ask
    spec: str
    estimate: Callable[[int], Estimate | None]
    slice: Slice
    input: LogCoordinates
    runs: Sequence[StagedRun]
    own: str | None
    published: str | None
    view: LedgerView

    def step(self, state: str | None) -> tuple[Step, str | None]:
        """Return the step and the state after the slice; `state` is that before. None: not known before the replay."""
        candidates = self._candidates()
        holding = next((run for run in candidates if self._holds(run, state)), None)
        if holding is not None:
            seen = self._seen(holding)
            reason, because = self._still_good(seen)
            return self._step(reason, because, run=seen), holding.result.state_after
        reference = candidates[0] if candidates else None
        reason, because, is_certain = self._stale(reference, state)
        if self.ask.is_warm_up(self.slice):
            reason, because = Reason.WARM_UP, "its records are in windows of the range; its rows are not published"
        return self._step(reason, because, run=reference, is_certain=is_certain), None

    def _candidates(self) -> list[StagedRun]:
        """Return the runs of the slice: the request's own first, then the published one, then others, newest first.

        Of a repair, the run of the chain counts, in whose place readers see it.
        """
        published = self.view.chain_run_id(self.published or "")
        runs = [run for run in self.runs if self.spec == run.result.spec_fingerprint or not self._is_repair(run)]

        def order(run: StagedRun) -> tuple[bool, bool, int]:
            return run.result.run_id != self.own, run.result.run_id != published, -run.seq

        return sorted(runs, key=order) if len(runs) > 1 else runs

    def _is_repair(self, run: StagedRun) -> bool:
        return run.result.run_id in self.view.repairs

    def _seen(self, run: StagedRun) -> StagedRun:
        """Return the run itself, or the run of a repair that readers see in its place."""
        is_repaired = self.published is not None and self.view.repairs.get(self.published) == run.result.run_id
        return self.view.run(self.published) if is_repaired and self.published is not None else run

    def _holds(self, run: StagedRun, state: str | None) -> bool:
        result = run.result
        is_own = result.run_id == self.own
        return (
            state is not None
            and result.state_before == state
            and result.spec_fingerprint == self.spec
            and result.slice == self.slice
            and (not self.ask.is_fresh or is_own)
            and (not self.ask.is_warm_up(self.slice) or run.checkpoint_removal is None)
            and (
                (is_own and self.slice.slice_id in self.ask.trusted)
                or match_input(run.sightings, self.input) is Match.SAME
            )
        )

    def _still_good(self, run: StagedRun) -> tuple[Reason, str]:
        is_trusted = self.slice.slice_id in self.ask.trusted
        is_kept = is_trusted or (self.ask.is_candidate and self.view.is_in_chain(run.result.run_id))
        if run.verdict is Verdict.ERROR and not is_kept:
            return Reason.CHECKS_CHANGED, "its checks broke in the last run"
        if self.ask.checks is not None and run.checks_fingerprint not in {None, self.ask.checks} and not is_kept:
            return Reason.CHECKS_CHANGED, "the suite has changed since the run was checked"
        where = "published" if self._is_published(run) else "staged"
        return Reason.CURRENT, f"{where} as run {run.result.run_id[:12]}"

    def _stale(self, reference: StagedRun | None, state: str | None) -> tuple[Reason, str, bool]:
        if reference is None:
            return Reason.MISSING, _no_run(self.input), True
        then = reference.result
        is_other_spec = then.spec_fingerprint != self.spec
        changed = _input_reason(reference, self.input, self.view)
        if changed is not None and not (is_other_spec and changed[0] is Reason.INPUT_UNVERIFIED):
            return *changed, True
        if is_other_spec or then.slice != self.slice:
            specs = f"was spec {then.spec_fingerprint[:12]}, is {self.spec[:12]}"
            return Reason.SPEC_CHANGED, specs if is_other_spec else "the rules of its time zone moved its bounds", True
        if self.ask.is_fresh:
            return Reason.FRESH, "--fresh replays valid runs, too", True
        if state is None:
            return Reason.STATE_CHANGED, "unless the slices before leave the same state again", False
        return Reason.STATE_CHANGED, f"was {then.state_before[:12]}, is {state[:12]}", True

    def _is_published(self, run: StagedRun | None) -> bool:
        """Return whether readers see a run as the spec of the plan wants it: in the chain, or in place of its run."""
        if run is None or run.result.run_id != self.published:
            return False
        return self.view.chain_run(self.published).result.spec_fingerprint == self.spec or not self._is_repair(run)

    def _step(self, reason: Reason, because: str, *, run: StagedRun | None, is_certain: bool = True) -> Step:
        return Step(
            slice=self.slice,
            reason=reason,
            because=because,
            is_certain=is_certain,
            records=self.input.records,
            bytes=self.input.bytes,
            expected=Estimate(0.0, 0.0, 0.0) if reason is Reason.CURRENT else self.estimate(self.input.records),
            run=run,
            is_published=self._is_published(run),
            is_warm_up=self.ask.is_warm_up(self.slice),
            rewrites=self.view.rewrites_since(run) if run is not None and reason is Reason.INPUT_CHANGED else (),
        )


def _no_run(now: LogCoordinates) -> str:
    if not now.files or now.since <= 0:
        return "no run yet"
    return f"no run yet; commits before log version {now.since} are gone: a DELETE or MERGE there cannot be seen"


def _input_reason(run: StagedRun, now: LogCoordinates, view: LedgerView) -> tuple[Reason, str] | None:
    """Return why the input of a run is not valid any more, with a description; None if it is valid."""
    then, read = run.result.log, counted(run.result.counts.read, "record")
    told = told_together([(run.result.slice.slice_id, view.rewrites_since(run))])
    erased = "".join(f"{sentence}; " for sentence in told)
    match match_input(run.sightings, now):
        case Match.SAME:
            return None
        case Match.DIFFERENT:
            return Reason.INPUT_CHANGED, "its records differ from those that the run read (plan --verify)"
        case Match.UNKNOWN:
            return Reason.INPUT_UNVERIFIED, (
                f"{erased}its files differ from those at log version {then.version}, and commits since then are gone: "
                f"perhaps an OPTIMIZE, perhaps a DELETE or MERGE ({read} then, "
                f"{told_records([now])} now); plan --verify compares the records"
            )
        case Match.CHANGED if why := other_log(run.sightings, now):
            return Reason.INPUT_CHANGED, why
        case Match.CHANGED if then.records == now.records and then.earlier_records != now.earlier_records:
            return Reason.INPUT_CHANGED, (
                f"{counted(then.earlier_records, 'record')} then, {now.earlier_records:,} now, in the slices before, "
                f"which log.distinct reads{_versions(then, now)}"
            )
        case Match.CHANGED:
            is_count_equal = now.is_listed and then.records == now.records
            where = ", in other files" if is_count_equal else _versions(then, now)
            return Reason.INPUT_CHANGED, f"{erased}{read} then, {told_records([now])} now{where}"


def _versions(then: LogCoordinates, now: LogCoordinates) -> str:
    """Return the versions of the log for people; nothing if these are digests of listings."""
    return "" if now.is_listed else f" (log version {then.version} then, {now.version} now)"
