"""The plan of a request: for each slice, whether its run is still valid, and if not, why not. No Spark.

`make_plan` is pure. `RequestContext.plan` reads the log for it.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.run_projection import briefs_of
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, next_slice, previous_slice, show_instant, show_ms, slice_grid
from jobs.plain_text import counted, shortened
from jobs.planning.chains import ChainStart, chain_before, warmed_up
from jobs.planning.estimate import estimator
from jobs.planning.log_state import LogState
from jobs.planning.steps import Ask, Reason, Step, StepJudge
from jobs.runs import Slice
from windowlib.errors import RequestError, SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """All that the steps of a plan follow from. `own` are the runs of the request that is continued."""

    pipeline: Pipeline
    log: LogState
    ask: Ask
    runs: Mapping[str, StagedRun]
    published: Mapping[str, str]
    own: Mapping[str, str]

    @classmethod
    def of(cls, pipeline: Pipeline, view: LedgerView, log: LogState, *, ask: Ask) -> "Basis":
        """Return the basis of a plan for a view of the ledger."""
        request = view.requests.get(ask.request_id or "")
        return cls(
            pipeline=pipeline,
            log=log,
            ask=ask if ask.request_id is None else replace(ask, request_id=None),
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
    """Steps in slice order, and their basis. `start` is what the first slice starts from.

    The steps of a warm-up come first. They are before `from_text`.
    """

    pipeline: str
    from_text: str
    to_text: str
    spec_fingerprint: str
    ledger_version: int
    start: ChainStart
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    basis: Basis = field(compare=False, repr=False)

    @property
    def range(self) -> tuple[Step, ...]:
        """The steps of the range, without those of a warm-up."""
        return tuple(step for step in self.steps if not step.is_warm_up)

    @property
    def stale(self) -> tuple[Step, ...]:
        """The steps that replay a slice for certain or possibly."""
        return tuple(step for step in self.steps if step.reason is not Reason.CURRENT)

    @property
    def certain(self) -> tuple[Step, ...]:
        """The steps that replay a slice for certain."""
        return tuple(step for step in self.stale if step.is_certain)

    @property
    def at_most(self) -> tuple[Step, ...]:
        """The steps that replay a slice for certain, or possibly and within the reach of a change."""
        return tuple(step for step in self.stale if not step.is_beyond)

    @property
    def cautions(self) -> tuple[str, ...]:
        """The warnings for a person who is about to run the plan: also on slices that have perhaps not arrived."""
        log = self.basis.log
        # If the log is a table of a pipeline (`missing`), each of its published slices has arrived.
        late = () if log.missing is not None else log.after_data(step.slice for step in self._unseen)
        if not late:
            return self.warnings
        which = late[0].slice_id if len(late) == 1 else f"{late[0].slice_id} to {late[-1].slice_id}"
        has = "no record" if log.last_data is None else f"no record after {log.last_data.slice_id}"
        return (
            *self.warnings,
            f"the log has {has}, so {which} may not have arrived. If you publish now, readers see the slices without "
            "records, and the schedule goes on after them: records that arrive later change published slices",
        )

    @property
    def _unseen(self) -> tuple[Step, ...]:
        return tuple(step for step in self.range if not step.is_published)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, as `hindcast plan --json` prints it.

        `run_id`, `verdict` and `waived` are those of the valid run, and null for a slice that is replayed. The verdict
        of a waived run stays `fail`; `waived` is then true. `certain` slices are replayed, and `at_most` so many.
        """
        return {
            "pipeline": self.pipeline,
            "from": self.from_text,
            "to": self.to_text,
            "half_open": True,
            "spec_fingerprint": self.spec_fingerprint,
            "ledger_version": self.ledger_version,
            "log_version": self.basis.log.version,
            "chain": self.start.note,
            "state_before": self.start.state,
            "warnings": list(self.cautions),
            "certain": len(self.certain),
            "at_most": len(self.at_most),
            "steps": [
                {
                    "slice_id": step.slice.slice_id,
                    "start_ms": step.slice.start_ms,
                    "end_ms": step.slice.end_ms,
                    "reason": step.reason.value,
                    "because": step.because,
                    "certain": step.is_certain,
                    "beyond": step.is_beyond,
                    "records": step.records,
                    "bytes": step.bytes,
                    "expected_seconds": step.expected_seconds,
                    "expected_seconds_range": None if step.expected is None else [*step.expected[1:]],
                    "run_id": None if step.valid_run is None else step.valid_run.result.run_id,
                    "verdict": None if step.valid_run is None else step.valid_run.verdict.value,
                    "waived": None if step.valid_run is None else step.valid_run.waiver is not None,
                    "published": step.is_published,
                    "warm_up": step.is_warm_up,
                }
                for step in self.steps
            ],
        }


def make_plan(pipeline: Pipeline, view: LedgerView, log: LogState, *, ask: Ask, earlier: Plan | None = None) -> Plan:
    """Return the plan for a view of the ledger and a state of the log. This function is pure.

    The steps of an `earlier` plan are taken over if its basis is equal: new events of the ledger changed no run.

    Raises:
        LogError: the log was changed inside the range.
        RequestError: the slice before the range has no run, and the request does not start a new chain; or a slice
            would be replayed from a state that a clean-up has removed.
    """
    basis = Basis.of(pipeline, view, log, ask=ask)
    if earlier is not None and earlier.basis.is_of(basis):
        return replace(earlier, ledger_version=view.version)
    spec = spec_fingerprint(pipeline)
    if view.head is not None:
        shown = [slice_ for slice_ in ask.slices if ask.from_ms is None or slice_.start_ms >= ask.from_ms]
        _refuse_other_cut(pipeline, view, shown, spec=spec)
    start = _start(pipeline, view, log, ask=ask)
    estimate, own = estimator(view), basis.own
    state: str | None = start.state
    steps: list[Step] = []
    runs = _runs_by_slice(view, ask.slices)
    for slice_ in ask.slices:
        judge = StepJudge(
            ask=ask,
            spec=spec,
            estimate=estimate,
            slice=slice_,
            input=log.coordinates[slice_.slice_id],
            runs=runs[slice_.slice_id],
            own=own.get(slice_.slice_id),
            published=view.published.get(slice_.slice_id),
            view=view,
        )
        step, state = judge.step(state)
        steps.append(step)
    _refuse_missing(pipeline, log, steps)
    _check_states(view, log, steps, start=start, spec=spec)
    grid = slice_grid(pipeline)
    return Plan(
        pipeline=pipeline.name,
        from_text=show_ms(grid, ask.slices[0].start_ms if ask.from_ms is None else ask.from_ms),
        to_text=show_ms(grid, ask.slices[-1].end_ms),
        spec_fingerprint=spec,
        ledger_version=view.version,
        start=start,
        steps=tuple(steps),
        warnings=log.warnings,
        basis=basis,
    )


def of_other_cut_between(
    view: LedgerView, grid: SliceGrid, *, first_ms: int, last_ms: int, names: Container[str]
) -> list[Slice]:
    """Return the published slices with an instant of a range that do not fit those of these names, oldest first.

    A slice that is shorter than a day is named by its start, so a longer one has the same name.
    """
    published = (view.slices[name] for name in view.published)
    near = (shown for shown in published if shown.start_ms < last_ms and first_ms < shown.end_ms)
    return [shown for shown in near if shown.slice_id not in names or (shown.end_ms > last_ms and not grid.is_daily)]


def _refuse_other_cut(pipeline: Pipeline, view: LedgerView, slices: Sequence[Slice], *, spec: str) -> None:
    """Refuse slices that do not fit the published ones, which stay visible.

    `log.slice` may have been edited, also before an adoption of the spec. Without an edit, an update of the time zone
    rules may have moved the edge to the slice before or after.
    """
    grid, first, last = slice_grid(pipeline), slices[0], slices[-1]
    before, after = previous_slice(grid, first) or first, next_slice(grid, last) or last
    names = {slice_.slice_id for slice_ in slices}
    stay = [view.slices[slice_id] for slice_id in view.published if slice_id not in names]
    misfits = of_other_cut_between(view, grid, first_ms=first.start_ms, last_ms=last.end_ms, names=names)
    earlier = [shown for shown in stay if shown.end_ms <= first.start_ms][-1:]
    later = [shown for shown in stay if last.end_ms <= shown.start_ms][:1]
    misfits += [shown for shown in earlier if before.start_ms < shown.end_ms < first.start_ms]
    misfits += [shown for shown in later if last.end_ms < shown.start_ms < after.end_ms]
    if misfits:
        shown = misfits[0]
        is_edited = view.chain_run(view.published[shown.slice_id]).result.spec_fingerprint != spec
        cut = pipeline.source if is_edited else f"The time zone rules of {grid.zone} that are installed here"
        to_do = (
            "Restore `log.slice`, or make a pipeline with another name. If only the time zone has changed, one "
            "request for all published slices can replace them"
            if is_edited
            else f"An update of tzdata has moved the edge: replay {shown.slice_id} in the same request, or restore the "
            "version of tzdata with which it was published"
        )
        raise RequestError(
            f"{cut} cuts the log of pipeline {pipeline.name} into other slices than readers see: "
            f"{first.slice_id} to {last.slice_id} would be [{show_instant(first.start_ms)}, "
            f"{show_instant(last.end_ms)}), and {shown.slice_id} is published as [{show_instant(shown.start_ms)}, "
            f"{show_instant(shown.end_ms)}). Readers would see records twice, or never. {to_do}"
        )


def _refuse_missing(pipeline: Pipeline, log: LogState, steps: Sequence[Step]) -> None:
    """Refuse a plan that would replay slices whose records the log does not have."""
    missing = log.missing or {}
    replayed = [step.slice.slice_id for step in steps if step.reason is not Reason.CURRENT and not step.is_beyond]
    lacking = [slice_id for slice_id in replayed if slice_id in missing]
    if lacking:
        raise RequestError(
            f"pipeline {pipeline.name} cannot read {counted(len(lacking), 'slice')} of its log {pipeline.log.shown}, "
            f"{shortened(', '.join(lacking))}: {missing[lacking[0]]}. Publish that there first, or ask for other slices"
        )


def _start(pipeline: Pipeline, view: LedgerView, log: LogState, *, ask: Ask) -> ChainStart:
    if ask.warm_up is not None:
        at = next(slice_ for slice_ in ask.slices if not ask.is_warm_up(slice_))
        return warmed_up(ask.warm_up, at=at)
    return chain_before(pipeline, view, log, first=ask.slices[0], is_fresh=ask.is_fresh, request_id=ask.request_id)


def _check_states(view: LedgerView, log: LogState, steps: Sequence[Step], *, start: ChainStart, spec: str) -> None:
    """Refuse a plan that would replay a slice from a state that a clean-up has removed, or that cannot go on."""
    runs = [view.run(start.before.run_id)] if start.before is not None and steps[0].valid_run is None else []
    runs += [
        continued_run(view, before.valid_run, spec=spec)
        for before, after in pairwise(steps)
        if before.valid_run is not None and after.valid_run is None and not after.is_beyond
    ]
    for run in runs:
        if log.gate is not None:
            try:
                log.gate.were_dates(run.checkpoint)
            except SpecError as error:  # the log has changed, and not the pipeline file
                raise RequestError(str(error)) from error


def continued_run(view: LedgerView, run: StagedRun, *, spec: str) -> StagedRun:
    """Return the run whose state follows in a plan of a spec: of a repair that readers see, the run of the chain."""
    is_own = run.result.spec_fingerprint == spec
    return view.run(run.result.run_id) if is_own else view.chain_run(run.result.run_id)


def _runs_by_slice(view: LedgerView, slices: Sequence[Slice]) -> dict[str, list[StagedRun]]:
    by_slice: dict[str, list[StagedRun]] = {slice_.slice_id: [] for slice_ in slices}
    for run_id, brief in briefs_of(view).items():
        if brief.slice_id in by_slice:
            by_slice[brief.slice_id].append(view.runs[run_id])
    return by_slice
