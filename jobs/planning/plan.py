"""The plan of a request: for each slice, whether its run is still valid, and if not, why not. No Spark.

`make_plan` is pure. `plan` reads the Delta log for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.lake.log_match import Match, match_input
from jobs.ledger.acceptances import AcceptedRewrite, told_together
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import check_range, show_ms, slice_grid
from jobs.plain_text import counted
from jobs.planning.chains import chain_before
from jobs.planning.estimate import Estimate, estimator
from jobs.planning.fingerprints import spec_fingerprint
from jobs.planning.log_state import LogState, read_log_state
from jobs.runs import EMPTY_STATE, CheckpointRef, LogCoordinates, Slice, Verdict


class Reason(Enum):
    """Why a slice is replayed; CURRENT if it is not."""

    MISSING = "missing"
    INPUT_CHANGED = "input changed"
    INPUT_UNVERIFIED = "input unverified"  # its files changed, and commits that would tell how are gone
    SPEC_CHANGED = "spec changed"
    STATE_CHANGED = "state before changed"
    CHECKS_CHANGED = "checks changed"
    FRESH = "fresh"
    CURRENT = "current"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One slice of a plan.

    `is_certain` is false if the slice need not be replayed when the slices before leave the same state again. `run` is
    the valid run (CURRENT), or the run that a replay replaces. `records` and `bytes` are those of the slice in the log.
    `rewrites` are the accepted commits that removed or changed records since that run.
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

    @property
    def expected_seconds(self) -> float | None:
        """The expected seconds of the replay; None without past runs."""
        return None if self.expected is None else self.expected.seconds

    @property
    def valid_run(self) -> StagedRun | None:
        """The run of the slice if it is valid; None if the slice is replayed."""
        return self.run if self.reason is Reason.CURRENT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """All that the steps of a plan follow from. `own` are the runs of the request that is continued."""

    pipeline: Pipeline
    log: LogState
    ask: "Ask"
    runs: Mapping[str, StagedRun]
    published: Mapping[str, str]
    own: Mapping[str, str]

    @classmethod
    def of(cls, pipeline: Pipeline, view: LedgerView, log: LogState, *, ask: "Ask") -> "Basis":
        """Return the basis of a plan for a view of the ledger."""
        request = view.requests.get(ask.request_id or "")
        return cls(
            pipeline=pipeline,
            log=log,
            ask=replace(ask, request_id=None),
            runs=view.runs,
            published=view.published,
            own={} if request is None else request.runs,
        )

    def is_of(self, other: "Basis") -> bool:
        """Return whether plans of both have the same steps. Runs that are the same objects are not compared."""
        is_same_work = self.log is other.log and self.pipeline is other.pipeline and self.ask == other.ask
        return is_same_work and (self.published, self.own, self.runs) == (other.published, other.own, other.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in slice order, and their basis. `before` is the checkpoint that the first slice starts from."""

    pipeline: str
    from_text: str
    to_text: str
    spec_fingerprint: str
    ledger_version: int
    log_version: int
    before: CheckpointRef | None
    chain_note: str
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    known: KnownLog = field(default_factory=KnownLog)
    basis: Basis | None = field(default=None, compare=False, repr=False)

    @property
    def stale(self) -> tuple[Step, ...]:
        """The steps that replay a slice for certain or possibly."""
        return tuple(step for step in self.steps if step.reason is not Reason.CURRENT)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, as `hindcast plan --json` prints it.

        `run_id`, `verdict` and `waived` are those of the valid run, and null for a slice that is replayed. The verdict
        of a waived run stays `fail`; `waived` is then true.
        """
        return {
            "pipeline": self.pipeline,
            "from": self.from_text,
            "to": self.to_text,
            "half_open": True,
            "spec_fingerprint": self.spec_fingerprint,
            "ledger_version": self.ledger_version,
            "log_version": self.log_version,
            "chain": self.chain_note,
            "state_before": self.before.fingerprint if self.before else EMPTY_STATE,
            "warnings": list(self.warnings),
            "steps": [
                {
                    "slice_id": step.slice.slice_id,
                    "start_ms": step.slice.start_ms,
                    "end_ms": step.slice.end_ms,
                    "reason": step.reason.value,
                    "because": step.because,
                    "certain": step.is_certain,
                    "records": step.records,
                    "bytes": step.bytes,
                    "expected_seconds": step.expected_seconds,
                    "expected_seconds_range": None if step.expected is None else [*step.expected[1:]],
                    "run_id": None if step.valid_run is None else step.valid_run.result.run_id,
                    "verdict": None if step.valid_run is None else step.valid_run.verdict.value,
                    "waived": None if step.valid_run is None else step.valid_run.waiver is not None,
                    "published": step.is_published,
                }
                for step in self.steps
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The input of a plan.

    `request_id` is the request that is continued. `checks` is the suite's fingerprint. `trusted` are slices that this
    process has just replayed: their runs are valid even if the log has changed since.
    """

    slices: tuple[Slice, ...]
    request_id: str | None = None
    is_fresh: bool = False
    checks: str | None = None
    trusted: frozenset[str] = frozenset()


def plan(pipeline: Pipeline, lake: Lake, view: LedgerView, *, ask: Ask) -> Plan:
    """Plan contiguous slices from the Delta log and a view of the ledger.

    Raises:
        LogError: the log is missing, is not a Delta table, or was changed inside the range.
        SpecError: the pipeline names columns that the log does not have.
        RequestError: the slice before the range has no run, and the request does not start a new chain.
    """
    return make_plan(pipeline, view, read_log_state(pipeline, lake, ask.slices, view=view), ask=ask)


def plan_range(
    pipeline: Pipeline,
    lake: Lake,
    view: LedgerView,
    *,
    from_ms: int,
    to_ms: int,
    now_ms: int,
    is_fresh: bool = False,
    checks: str | None = None,
) -> Plan:
    """Plan the slices of the half-open range `[from_ms, to_ms)`.

    Raises:
        RequestError: as for `jobs.pipeline.slices.check_range` and `plan`.
        LogError, SpecError: as for `plan`.
    """
    slices = check_range(pipeline, from_ms, to_ms, now_ms=now_ms)
    return plan(pipeline, lake, view, ask=Ask(slices=slices, is_fresh=is_fresh, checks=checks))


def make_plan(pipeline: Pipeline, view: LedgerView, log: LogState, *, ask: Ask, earlier: Plan | None = None) -> Plan:
    """Return the plan for a view of the ledger and a state of the log. This function is pure.

    The steps of an `earlier` plan are taken over if its basis is equal: new events of the ledger changed no run.

    Raises:
        RequestError: as for `plan`.
    """
    basis = Basis.of(pipeline, view, log, ask=ask)
    if earlier is not None and earlier.basis is not None and earlier.basis.is_of(basis):
        return replace(earlier, ledger_version=view.version)
    spec = spec_fingerprint(pipeline)
    before, note = chain_before(
        pipeline, view, log, first=ask.slices[0], is_fresh=ask.is_fresh, request_id=ask.request_id
    )
    estimate, own = estimator(view), basis.own
    state: str | None = before.fingerprint if before else EMPTY_STATE
    steps: list[Step] = []
    runs = _runs_by_slice(view, ask.slices)
    for one in ask.slices:
        judge = _Judge(
            ask=ask,
            spec=spec,
            estimate=estimate,
            slice=one,
            input=log.coordinates[one.slice_id],
            runs=runs[one.slice_id],
            own=own.get(one.slice_id),
            published=view.published.get(one.slice_id),
            view=view,
        )
        step, state = judge.step(state)
        steps.append(step)
    grid = slice_grid(pipeline)
    return Plan(
        pipeline=pipeline.name,
        from_text=show_ms(grid, ask.slices[0].start_ms),
        to_text=show_ms(grid, ask.slices[-1].end_ms),
        spec_fingerprint=spec,
        ledger_version=view.version,
        log_version=log.version,
        before=before,
        chain_note=note,
        steps=tuple(steps),
        warnings=log.warnings,
        known=log.known,
        basis=basis,
    )


def _runs_by_slice(view: LedgerView, slices: Sequence[Slice]) -> dict[str, list[StagedRun]]:
    found: dict[str, list[StagedRun]] = {one.slice_id: [] for one in slices}
    for run in view.runs.values():
        own = found.get(run.result.slice.slice_id)
        if own is not None:
            own.append(run)
    return found


@dataclass(slots=True, kw_only=True)
class _Judge:
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
            reason, because = self._still_good(holding)
            return self._step(reason, because, run=holding), holding.result.state_after
        reference = candidates[0] if candidates else None
        reason, because, is_certain = self._stale(reference, state)
        return self._step(reason, because, run=reference, is_certain=is_certain), None

    def _candidates(self) -> list[StagedRun]:
        """Return the runs of the slice: the request's own first, then the published one, then others, newest first."""

        def order(run: StagedRun) -> tuple[bool, bool, int]:
            return run.result.run_id != self.own, run.result.run_id != self.published, -run.seq

        return sorted(self.runs, key=order) if len(self.runs) > 1 else [*self.runs]

    def _holds(self, run: StagedRun, state: str | None) -> bool:
        result = run.result
        is_own = result.run_id == self.own
        return (
            state is not None
            and result.state_before == state
            and result.spec_fingerprint == self.spec
            and (not self.ask.is_fresh or is_own)
            and (
                (is_own and self.slice.slice_id in self.ask.trusted)
                or match_input(run.sightings, self.input) is Match.SAME
            )
        )

    def _still_good(self, run: StagedRun) -> tuple[Reason, str]:
        is_trusted = self.slice.slice_id in self.ask.trusted
        if run.verdict is Verdict.ERROR and not is_trusted:
            return Reason.CHECKS_CHANGED, "its checks broke in the last run"
        if self.ask.checks is not None and run.checks_fingerprint not in {None, self.ask.checks} and not is_trusted:
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
        if is_other_spec:
            return Reason.SPEC_CHANGED, f"was spec {then.spec_fingerprint[:12]}, is {self.spec[:12]}", True
        if self.ask.is_fresh:
            return Reason.FRESH, "--fresh replays valid runs, too", True
        if state is None:
            return Reason.STATE_CHANGED, "unless the slices before leave the same state again", False
        return Reason.STATE_CHANGED, f"was {then.state_before[:12]}, is {state[:12]}", True

    def _is_published(self, run: StagedRun | None) -> bool:
        return run is not None and run.result.run_id == self.published

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
            rewrites=self.view.rewrites_since(run) if run is not None and reason is Reason.INPUT_CHANGED else (),
        )


def _no_run(now: LogCoordinates) -> str:
    if not now.files or now.since <= 0:
        return "no run yet"
    return f"no run yet; commits before log version {now.since} are gone: a DELETE or MERGE there cannot be seen"


def _input_reason(run: StagedRun, now: LogCoordinates, view: LedgerView) -> tuple[Reason, str] | None:
    """Return why the input of a run is not valid any more, with a description; None if it is valid."""
    then = run.result.log
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
                f"perhaps an OPTIMIZE, perhaps a DELETE or MERGE ({counted(then.records, 'record')} then, "
                f"{now.records:,} now); plan --verify compares the records"
            )
        case Match.CHANGED if then.table_id != now.table_id:
            return Reason.INPUT_CHANGED, "the log is another table now"
        case Match.CHANGED if then.records == now.records and then.earlier_records != now.earlier_records:
            return Reason.INPUT_CHANGED, (
                f"{counted(then.earlier_records, 'record')} then, {now.earlier_records:,} now, in the slices before, "
                f"which log.distinct reads (log version {now.version}, then {then.version})"
            )
        case Match.CHANGED:
            return Reason.INPUT_CHANGED, (
                f"{erased}{counted(then.records, 'record')} then, {now.records:,} now (log version {then.version}, "
                f"then {now.version})"
            )
