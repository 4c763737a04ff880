"""WindowSpec, the specification of a window computation. It checks itself at creation and builds the operator."""

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from windowlib.beam import Default
from windowlib.bounds import MAX_TIME_MS
from windowlib.errors import SpecError
from windowlib.functions.aggregates import Aggregate
from windowlib.functions.window_functions import (
    Aggregates,
    ProcessFunction,
    Reduce,
    Whole,
    WindowFunction,
    aggregates_of,
    can_merge,
    process_function,
)
from windowlib.keyed.state_rules import StateRules
from windowlib.keyed.timers import STALE_MAX, KeyGroupRange
from windowlib.profiles import STRICT, Profile
from windowlib.triggers.flink import ContinuousEventTime, CountReached, EventTime, Never, ProcessingTime
from windowlib.triggers.protocol import Trigger
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.assigners import Assigner, Global, Session, Sliding, Stagger, Tumbling
from windowlib.windows.evictors import Evictor, KeepCount
from windowlib.windows.fast.fast_operator import FastOperator
from windowlib.windows.output_times import COMBINERS, Holding, TimestampCombiner
from windowlib.windows.trigger_states import trigger_problem
from windowlib.windows.window_operator import WindowOperator
from windowlib.windows.windowing import PENDING_MAX, WAITING_MAX, Leftovers, Windowing

Accumulation = Literal["accumulating", "discarding", "retracting"]
MODES: Final = ("accumulating", "discarding", "retracting")
LEFTOVERS: Final = ("refuse", "report", "fire")
_CHOICES: Final = {"accumulation": MODES, "timestamp_combiner": COMBINERS, "leftovers": LEFTOVERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """The windows of a computation, when they fire, and what they compute.

    Args:
        assigner: which windows a record belongs to.
        function: what a pane holds: `Aggregates`, `Whole` or a `ProcessFunction`. A tuple of aggregates is short for
            `Aggregates`.
        trigger: when a window fires. The default is at its end, or never for the global window.
        evictor: which records to drop before or after the function.
        allowed_lateness_ms: how long after its end an event-time window accepts records.
        accumulation: an 'accumulating' pane holds all records of a window, a 'discarding' pane those that are new since
            the last pane. 'retracting' is accumulating, and a row before each pane retracts the last pane.
        timestamp_combiner: the event time of a pane: the 'end_of_window', or the time of the 'earliest' or 'latest'
            record that was not behind the watermark (windowlib.windows.output_times). 'earliest_transformed' is
            'earliest' over times that the assigner computes.
        leftovers: what to do at a window's end with records that no pane has shown. 'report' counts them in the audit,
            'fire' emits a last pane, 'refuse' (not in flink) raises a SpecError if the trigger can leave any. A trigger
            that can finish and lose later records is allowed with 'report' only.
        profile: the engine profile whose semantics apply.
        stands_alone: every firing is a window of its own that later firings do not replace, as for sliding count
            windows. The panes are marked as discarding, and the trigger does not purge.
        stale_max: how many instants without timers may stay in memory. It has no effect on results.
        pending_max: how many records of a window may wait to enter its contents together. It has no effect on results.
        waiting_max: how many records may wait for the end of their windows (windowlib.windows.fast). It has no
            effect on results.

    Raises:
        SpecError: the parts do not fit together.
    """

    assigner: Assigner
    function: WindowFunction | tuple[Aggregate, ...]
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    accumulation: Accumulation = "accumulating"
    timestamp_combiner: TimestampCombiner = "end_of_window"
    leftovers: Leftovers = "refuse"
    profile: Profile = STRICT
    stands_alone: bool = False
    stale_max: int = STALE_MAX
    pending_max: int = PENDING_MAX
    waiting_max: int = WAITING_MAX

    def __post_init__(self) -> None:
        self._check_values()
        if self.assigner.is_merging:
            self._check_merging()
        if self.accumulation == "retracting":
            self._check_retracting()
        if self.profile.has_composite_triggers:
            self._check_beam()
        if self.profile.refuses_leftovers:
            self._check_losses()

    def _check_values(self) -> None:
        if not isinstance(self.function, (Aggregates, Whole, ProcessFunction, tuple)):
            raise SpecError(
                "a window's function must be Aggregates, Whole, a ProcessFunction or a tuple of aggregates, got "
                f"{self.function!r:.100}; write Whole(...) around a reduce, a fold or a user's aggregate"
            )
        if not 0 <= self.allowed_lateness_ms <= MAX_TIME_MS:
            raise SpecError(f"allowed lateness must be from 0 to {MAX_TIME_MS} ms, got {self.allowed_lateness_ms}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SpecError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def _check_merging(self) -> None:
        trigger, function = self.effective_trigger(), self.effective_function()
        if not trigger.can_merge:
            raise SpecError(
                f"{_name(self.assigner)} merges windows, and the trigger {_name(self.trigger or trigger)} does not "
                "support merging; choose another trigger, or windows that do not merge"
            )
        then = process_function(function)
        if then is not None and then.window_state:
            names = ", ".join(state.name for state in then.window_state)
            raise SpecError(
                f"{_name(self.assigner)} merges windows, and {_name(then)} keeps per-window state ({names}), which "
                "cannot be merged; keep it per key (`state`), or in the aggregate"
            )
        if self.evictor is None and not all(map(can_merge, aggregates_of(function))):
            raise SpecError(
                f"{_name(self.assigner)} merges windows, and the aggregate (a fold) cannot be merged; give it "
                "merge_accumulators, or use a reduce"
            )

    def _check_retracting(self) -> None:
        trigger = self.trigger
        while isinstance(trigger, ProcessingTimeout):
            trigger = trigger.inner
        if isinstance(trigger, Purging):
            raise SpecError(
                "a purging trigger empties the window at each firing, so that no later pane corrects an earlier one; "
                "use accumulation: discarding, or a trigger that does not purge"
            )
        then = process_function(self.effective_function())
        if then is not None:
            raise SpecError(
                f"retracting panes need a function that returns one value, and {_name(then)} may emit any number of "
                "them; use aggregates, or accumulation: accumulating"
            )

    def _check_beam(self) -> None:
        """Raise a SpecError for what the Beam model does not define."""
        trigger, function = self.trigger, self.effective_function()
        while isinstance(trigger, (Purging, ProcessingTimeout)):
            trigger = trigger.inner
        if isinstance(trigger, (EventTime, ContinuousEventTime)):
            raise SpecError(
                f"{_name(trigger)} waits for a window's last instant, and in the profile {self.profile.name!r} a "
                "window is complete at its end, 1 ms later; use a trigger of windowlib.beam, in a pipeline file "
                "default or after_watermark, or semantics: strict"
            )
        is_reduce = isinstance(function, Whole) and isinstance(function.aggregate, Reduce)
        if is_reduce and self._discards and self.effective_trigger().has_on_time_pane:
            raise SpecError(
                f"the profile {self.profile.name!r} emits an ON_TIME pane even if it is empty, and a reduce has no "
                "value then; use aggregates or a fold, or accumulation: accumulating"
            )

    def _check_losses(self) -> None:
        trigger = self.effective_trigger()
        # With `takes_at_limit`, a record may enter at the watermark that completes its window; on the clock at any.
        has_late = self.assigner.has_bounds and (self.profile.takes_at_limit or not self.assigner.is_event_time)
        reason = trigger.may_lose_data(allowed_lateness_ms=max(self.allowed_lateness_ms, has_late))
        if reason is not None and self.leftovers != "report":
            raise SpecError(
                f"the trigger can lose records of {_name(self.assigner)}: {reason}, and no pane would show later "
                "records. Wrap it in Repeatedly (in a pipeline file: repeatedly), give AfterWatermark "
                "(after_watermark) a `late` trigger, or count the lost records: leftovers: report"
            )
        if self.leftovers != "refuse" or not self.assigner.has_bounds:
            return
        if trigger.may_leave_records(is_event_time=self.assigner.is_event_time):
            raise SpecError(
                f"windows of {_name(self.assigner)} can end with records that {_name(trigger)} never fired; say what "
                "to do with them: leftovers: report (count them in the audit) or leftovers: fire (a last pane)"
            )

    def check_terminates(self) -> None:
        """Check that the spec terminates when the watermark jumps to its maximum (F4). Pipelines call this.

        Raises SpecError: a continuous event-time trigger on windows that event time does not end, in the flink profile.
        """
        trigger = self.trigger
        while isinstance(trigger, (Purging, ProcessingTimeout)):
            trigger = trigger.inner
        is_endless = isinstance(trigger, ContinuousEventTime) and not self.assigner.is_event_time
        if is_endless and not self.profile.continuous_ends:
            raise SpecError(
                f"a continuous event-time trigger on {_name(self.assigner)} fires without end when Flink's input "
                f"ends (F4), and the profile {self.profile.name!r} reproduces that; use semantics: strict"
            )

    def effective_trigger(self) -> Trigger:
        """Return the trigger that runs: the default if the spec has none, made purging if panes discard."""
        trigger = self.trigger
        if trigger is None:
            trigger = default_trigger(self.assigner, self.profile)
        if self.timestamp_combiner != "end_of_window":
            trigger = Holding(inner=trigger, combiner=self.timestamp_combiner, assigner=self.assigner)
        if self._discards and not isinstance(trigger, Purging):
            return Purging(trigger)
        return trigger

    @property
    def keeps_records(self) -> bool:
        """Whether open windows hold their records, for an evictor or process function, instead of accumulators."""
        return self.evictor is not None or isinstance(self.effective_function(), ProcessFunction)

    @property
    def _discards(self) -> bool:
        return self.accumulation == "discarding" or isinstance(self.trigger, Purging)

    def effective_function(self) -> WindowFunction:
        """Return the function that runs; a tuple of aggregates becomes `Aggregates`."""
        return Aggregates(self.function) if isinstance(self.function, tuple) else self.function

    def state_rules(self) -> StateRules:
        """Return the rules of open windows, as the assigner makes them."""
        assigner, profile, function = self.assigner, self.profile, self.effective_function()
        grid, least_ms, most_ms = None, 1, None
        match assigner:
            case Tumbling(size_ms=size_ms, offset_ms=offset_ms):
                grid = (size_ms, size_ms if assigner.stagger is Stagger.ALIGNED else 1, offset_ms)
            case Sliding():
                grid = (assigner.size_ms, assigner.slide_ms, assigner.offset_ms)
            case Session():
                least_ms = most_ms = assigner.gap_ms
            case _:
                pass  # windows of any size
        gone_after_ms = self.allowed_lateness_ms + profile.deleted_after_end_ms if assigner.is_event_time else 0
        aggregates: tuple[object, ...] = function.aggregates if isinstance(function, Aggregates) else ()
        return StateRules(
            has_bounds=assigner.has_bounds,
            wraps=profile.wraps_int64,
            grid=grid,
            least_ms=least_ms,
            most_ms=most_ms,
            is_merging=assigner.is_merging,
            is_event_time=assigner.is_event_time,
            gone_after_ms=gone_after_ms if assigner.has_bounds else None,
            has_orphans=not profile.keeps_identical_session,
            keeps_records=self.keeps_records,
            aggregates=() if self.keeps_records else aggregates,
            trigger_problem=partial(trigger_problem, self.effective_trigger()),
        )

    def build(self, groups: KeyGroupRange | None = None) -> WindowOperator:
        windowing = Windowing(
            assigner=self.assigner,
            trigger=self.effective_trigger(),
            function=self.effective_function(),
            evictor=self.evictor,
            allowed_lateness_ms=self.allowed_lateness_ms,
            mode="discarding" if self._discards or self.stands_alone else "accumulating",
            retracts=self.accumulation == "retracting",
            timestamp_combiner=self.timestamp_combiner,
            leftovers=self.leftovers,
            profile=self.profile,
            stale_max=self.stale_max,
            pending_max=self.pending_max,
            waiting_max=self.waiting_max,
        )
        return (FastOperator if FastOperator.runs(windowing) else WindowOperator)(windowing, groups)


def default_trigger(assigner: Assigner, profile: Profile = STRICT) -> Trigger:
    """Return the trigger of a spec without one. It fires at the window's end, in the time that completes the window."""
    if profile.has_composite_triggers and (assigner.is_event_time or not assigner.has_bounds):
        return Default()
    if not assigner.has_bounds:
        return Never()
    return EventTime() if assigner.is_event_time else ProcessingTime()


def count_windows(
    size: int, *, function: WindowFunction | tuple[Aggregate, ...], slide: int | None = None, profile: Profile = STRICT
) -> WindowSpec:
    """Return the spec of windows of `size` records, one every `slide` records; by default they do not overlap.

    Raises SpecError: the size or slide is not positive.
    """
    if slide is None:
        return WindowSpec(assigner=Global(), function=function, trigger=Purging(CountReached(size)), profile=profile)
    if size <= 0:
        raise SpecError(f"count window: the size must be positive, got {size}")
    return WindowSpec(
        assigner=Global(),
        function=function,
        trigger=CountReached(slide),
        evictor=KeepCount(count=size),
        profile=profile,
        stands_alone=True,
    )


def _name(part: Assigner | Trigger | ProcessFunction) -> str:
    return type(part).__name__
