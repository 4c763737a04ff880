"""What users write: a WindowSpec. It checks itself when it is made, and builds the operator that computes it."""

from dataclasses import dataclass
from typing import Final

from windowlib.aggregates import Aggregate
from windowlib.assigners import Assigner, Global
from windowlib.errors import SpecError
from windowlib.evictors import Evictor, KeepCount
from windowlib.functions import Aggregates, ProcessFunction, Whole, WindowFunction, can_merge, process_function
from windowlib.profiles import STRICT, Profile
from windowlib.records import Mode
from windowlib.timers import KeyGroupRange
from windowlib.trigger_protocol import Trigger
from windowlib.trigger_wrappers import ProcessingTimeout, Purging
from windowlib.triggers import (
    ContinuousEventTime,
    CountReached,
    EventTime,
    Never,
    ProcessingTime,
)
from windowlib.window_operator import WindowOperator
from windowlib.windowing import Leftovers, Windowing
from windowlib.windows import MAX_TIME_MS

MODES: Final = ("accumulating", "discarding")
LEFTOVERS: Final = ("refuse", "report", "fire")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """Which windows, when they fire, what they compute.

    Args:
        assigner: which windows a record belongs to.
        function: what a pane holds: `Aggregates`, `Whole` or a `ProcessFunction`; a tuple of aggregates for short.
        trigger: when a window fires; by default at its end, or never for the global window.
        evictor: which records to drop before or after the function.
        allowed_lateness_ms: how long after its end an event-time window takes records.
        accumulation: 'accumulating' panes hold all of a window, 'discarding' ones what is new since the last.
        leftovers: what to do at a window's end with records that no pane has shown: 'report' counts them in the audit,
            'fire' emits a last pane; 'refuse' (strict only) allows no trigger that can leave any.
        profile: whose answers to give.

    Raises:
        SpecError: the parts do not go together.
    """

    assigner: Assigner
    function: WindowFunction | tuple[Aggregate, ...]
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    accumulation: Mode = "accumulating"
    leftovers: Leftovers = "refuse"
    profile: Profile = STRICT

    def __post_init__(self) -> None:
        """Check that the parts go together."""
        if not 0 <= self.allowed_lateness_ms <= MAX_TIME_MS:
            raise SpecError(f"allowed lateness must be from 0 to {MAX_TIME_MS} ms, got {self.allowed_lateness_ms}")
        if self.accumulation not in MODES:
            raise SpecError(f"accumulation must be one of {', '.join(MODES)}, got {self.accumulation!r}")
        if self.leftovers not in LEFTOVERS:
            raise SpecError(f"leftovers must be one of {', '.join(LEFTOVERS)}, got {self.leftovers!r}")
        if self.assigner.is_merging:
            self._check_merging()
        self._check_leftovers()

    def _check_merging(self) -> None:
        trigger, function = self.effective_trigger(), self.effective_function()
        if not trigger.can_merge:
            raise SpecError(
                f"{_name(self.assigner)} merges windows, and the trigger {_name(trigger)} does not support merging; "
                "choose another trigger, or windows that do not merge"
            )
        then = process_function(function)
        if then is not None and then.window_state:
            names = ", ".join(state.name for state in then.window_state)
            raise SpecError(
                f"{_name(self.assigner)} merges windows, and {_name(then)} keeps per-window state ({names}), which "
                "cannot be merged; keep it per key (`state`), or in the aggregate"
            )
        if isinstance(function, Whole) and self.evictor is None and not can_merge(function.aggregate):
            raise SpecError(
                f"{_name(self.assigner)} merges windows, and the aggregate cannot be merged (a fold); give it "
                "merge_accumulators, or use a reduce"
            )

    def _check_leftovers(self) -> None:
        if self.leftovers != "refuse" or not self.profile.refuses_leftovers or not self.assigner.has_bounds:
            return
        trigger = self.effective_trigger()
        if trigger.may_leave_records(is_event_time=self.assigner.is_event_time):
            raise SpecError(
                f"windows of {_name(self.assigner)} can end with records that {_name(trigger)} never fired; say what "
                "to do with them: leftovers: report (count them in the audit) or leftovers: fire (a last pane)"
            )

    def check_terminates(self) -> None:
        """Refuse a spec that need not come to an end when the watermark jumps to its maximum (F4); for pipelines.

        Raises:
            SpecError: a continuous event-time trigger on windows that event time does not end, in the flink profile.
        """
        trigger = self.trigger
        while isinstance(trigger, (Purging, ProcessingTimeout)):
            trigger = trigger.inner
        is_endless = isinstance(trigger, ContinuousEventTime) and not self.assigner.is_event_time
        if is_endless and not self.profile.continuous_ends:
            raise SpecError(
                f"a continuous event-time trigger on {_name(self.assigner)} fires without end when Flink's input is "
                f"over (F4), and the profile {self.profile.name!r} reproduces that; use semantics: strict"
            )

    def effective_trigger(self) -> Trigger:
        """Return the trigger that runs: the default filled in, purging when panes discard."""
        trigger = self.trigger
        if trigger is None:
            trigger = default_trigger(self.assigner)
        if self.accumulation == "discarding" and not isinstance(trigger, Purging):
            return Purging(trigger)
        return trigger

    def effective_function(self) -> WindowFunction:
        """Return the function that runs."""
        return Aggregates(self.function) if isinstance(self.function, tuple) else self.function

    def build(self, groups: KeyGroupRange | None = None) -> WindowOperator:
        """Return a fresh operator that owns `groups`, by default all of them."""
        trigger = self.effective_trigger()
        return WindowOperator(
            Windowing(
                assigner=self.assigner,
                trigger=trigger,
                function=self.effective_function(),
                evictor=self.evictor,
                allowed_lateness_ms=self.allowed_lateness_ms,
                mode="discarding" if isinstance(trigger, Purging) else self.accumulation,
                leftovers=self.leftovers,
                profile=self.profile,
            ),
            groups,
        )


def default_trigger(assigner: Assigner) -> Trigger:
    """Return the trigger of a spec that names none: at the window's end, on the clock that completes it."""
    if not assigner.has_bounds:
        return Never()
    return EventTime() if assigner.is_event_time else ProcessingTime()


def count_windows(
    size: int, *, function: WindowFunction | tuple[Aggregate, ...], slide: int | None = None, profile: Profile = STRICT
) -> WindowSpec:
    """Return the spec of windows of `size` records, every `slide` records, or end to end.

    Raises:
        SpecError: a size or slide that is not positive.
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
    )


def _name(part: Assigner | Trigger | ProcessFunction) -> str:
    return type(part).__name__
