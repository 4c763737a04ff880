"""How far changed records can reach: after which slice the state must be equal again, so no later slice is replayed.

A late record changes windows that it is in, and it may raise the watermark for the records after it, so that windows
with earlier records change as well. All these windows have a record that is not after the latest added one. When the
watermark of the old run has reached that event time plus the reach of the windows, they are deleted in both chains, and
the greatest event time is that of the old run again.

A log without commits, such as what another pipeline has published, does not tell which records of a slice are others.
Then they are at most as late as the latest record that the slice has now, or that the old run had met.

This is for persons who read a plan. A run never trusts it: it stops where the state is equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from jobs.lake.log_match import Match, match_input
from jobs.lake.log_version import NO_COMMITS
from jobs.ledger.view import StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.event_times import SliceTimes, TimeRules, event_times, log_engine, time_rules
from jobs.planning.plan import Plan
from jobs.planning.steps import Reason, Step
from windowlib.errors import SpecError

NOT_REACHED: Final = "the state before is equal again, by the event times in the statistics of the log"
UNBOUNDED: Final = float("inf")
_SAME_STATE: Final = (Reason.CURRENT, Reason.CHECKS_CHANGED)
"""The state after these steps is known: it is that of their run."""


def with_reach(pipeline: Pipeline, planned: Plan) -> Plan:
    """Return a plan whose steps that a change cannot reach are marked so; the plan itself if nothing tells it.

    Reads the statistics of the log. The users' functions are imported.

    Raises:
        LogError: the log is damaged.
        SpecError: the pipeline does not fit the log, or its parts do not fit together, so that `run` refuses it.
    """
    log = planned.basis.log.known.opened
    if log is None or not planned.stale:
        return planned
    engine = log_engine(pipeline, log)
    if all(step.is_certain for step in planned.steps):
        return planned
    try:
        rules = time_rules(engine)
    except SpecError:
        return planned  # nothing bounds how long a record matters
    if rules.bound_ms is None or rules.reach.is_on_clock:
        return planned  # the watermark may differ for ever
    times = event_times(pipeline, log, [step.slice for step in planned.steps])
    return bounded(planned, rules, {slice_times.slice.slice_id: slice_times for slice_times in times})


def bounded(planned: Plan, rules: TimeRules, times: Mapping[str, SliceTimes]) -> Plan:
    """Return a plan whose steps that a change cannot reach are marked so. `times` has the slices with records. Pure.

    A request replays one slice for its state before, then two, four and so on (`orchestration.requests.next_chunk`). So
    the slices that complete the last of these chunks are not marked, although their state is equal again.
    """
    change, steps = _Change(planned=planned, rules=rules, times=times), list[Step]()
    followers, is_beyond = 0, False
    for step in planned.steps:
        is_over = change.is_over(step)
        completes_chunks = followers & (followers + 1) == 0  # 0, 1, 1 + 2, 1 + 2 + 4 and so on
        is_beyond = is_over and (is_beyond or completes_chunks)
        followers = followers + 1 if step.is_for_state else 0
        steps.append(replace(step, is_beyond=True, because=NOT_REACHED) if is_beyond else step)
    return replace(planned, steps=tuple(steps))


@dataclass(slots=True, kw_only=True)
class _Change:
    """The change that the slices before leave behind, while a plan is read.

    `latest_ms` is the latest event time of a record that the change may be in; None if the state is that of the old
    run. `state` is the state after the old run of the slice before.
    """

    planned: Plan
    rules: TimeRules
    times: Mapping[str, SliceTimes]
    latest_ms: float | None = None
    state: str | None = None

    def __post_init__(self) -> None:
        self.state = self.planned.start.state

    def is_over(self, step: Step) -> bool:
        """Read the next step. Return whether the old run of its slice is valid again if the slices before are run."""
        run = step.run
        if run is None or run.result.spec_fingerprint != self.planned.spec_fingerprint:
            self.latest_ms, self.state = UNBOUNDED, None
            return False
        if step.reason in _SAME_STATE:
            self.latest_ms, self.state = None, run.result.state_after
            return False
        if run.result.state_before != self.state:
            self.latest_ms = UNBOUNDED  # the old run is of another chain
        self.state = run.result.state_after
        is_over = self.latest_ms is None and not step.is_certain
        if not is_over:
            self._goes_on(step, run)
        return is_over

    def _goes_on(self, step: Step, run: StagedRun) -> None:
        """Follow the change to the end of a slice that may be replayed."""
        times, watermark_ms = self.times.get(step.slice.slice_id), run.result.watermark_ms
        reach, bound_ms = self.rules.reach, self.rules.bound_ms
        assert bound_ms is not None, "the watermark follows from the greatest event time"
        if step.is_certain:
            other_ms = self._latest_other_ms(step, run, times)
            self.latest_ms = other_ms if self.latest_ms is None else max(self.latest_ms, other_ms)
            if reach.gap_ms is not None and watermark_ms is not None:  # sessions may reach to the greatest event time
                self.latest_ms = max(self.latest_ms, watermark_ms + bound_ms)
        if self.latest_ms is not None and reach.gap_ms is not None and times is not None:
            self.latest_ms = _chained_ms(times, self.latest_ms, gap_ms=reach.gap_ms)
        if self.latest_ms is not None and watermark_ms is not None:
            is_deleted = watermark_ms >= self.latest_ms + reach.after_ms
            self.latest_ms = None if is_deleted else self.latest_ms

    def _latest_other_ms(self, step: Step, run: StagedRun, times: SliceTimes | None) -> float:
        """Return the latest event time of the records that are not those that the old run has read, or a later one."""
        now = self.planned.basis.log.coordinates[step.slice.slice_id]
        if step.reason is Reason.INPUT_CHANGED and now.since == NO_COMMITS:
            latest_ms = -UNBOUNDED if times is None else times.latest_ms
            bound_ms, watermark_ms = self.rules.bound_ms, run.result.watermark_ms
            if latest_ms is None or bound_ms is None or now.table_id != run.result.log.table_id:
                return UNBOUNDED
            return latest_ms if watermark_ms is None else max(latest_ms, watermark_ms + bound_ms)
        only_added = (
            step.reason is Reason.INPUT_CHANGED
            and not step.rewrites
            and now.table_id == run.result.log.table_id
            and not run.result.log.has_other_column(now)
            and match_input(run.sightings, now) is Match.CHANGED
        )
        if not only_added or times is None or times.latest_ms is None:
            return UNBOUNDED
        return times.latest_ms


def _chained_ms(times: SliceTimes, latest_ms: float, *, gap_ms: int) -> float:
    """Return the latest event time of sessions that may go on in a slice."""
    if not times.is_known:
        return UNBOUNDED
    for first_ms, last_ms in sorted(times.spans):
        if first_ms <= latest_ms + gap_ms:
            latest_ms = max(latest_ms, last_ms)
    return latest_ms
