"""`StormSpec`, the spec of Storm's windows that users write: checks itself and builds the operator and the driver."""

from dataclasses import dataclass
from typing import Final

from windowlib.errors import SpecError
from windowlib.functions.aggregates import Aggregate
from windowlib.functions.window_functions import Aggregates, WindowFunction, process_function
from windowlib.keyed.state_rules import StateRules
from windowlib.keyed.timers import STALE_MAX, KeyGroupRange
from windowlib.storm.firing import Windows
from windowlib.storm.manager import COMPACT_EVERY, Policies
from windowlib.storm.policies import (
    CountEviction,
    CountTrigger,
    EvictionPolicy,
    TimeEviction,
    TimeTrigger,
    TriggerPolicy,
    WatermarkCountEviction,
    WatermarkCountTrigger,
    WatermarkTimeEviction,
    WatermarkTimeTrigger,
)
from windowlib.storm.profiles import STRICT, StormProfile
from windowlib.storm.reasons import AFTER_ITS_WINDOW, BEHIND_STOP, BETWEEN_WINDOWS, OUT_OF_ORDER
from windowlib.storm.storm_operator import StormOperator
from windowlib.storm.stream_time import StreamTime, StreamWatermarks
from windowlib.watermarks.timeline import ALL_SOURCES


@dataclass(frozen=True, slots=True)
class CountLength:
    """A length or slide of `count` tuples."""

    count: int

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise SpecError(f"a window's length or slide in tuples must be positive, got {self.count}")


@dataclass(frozen=True, slots=True)
class TimeLength:
    """A length or slide of `ms` milliseconds."""

    ms: int

    def __post_init__(self) -> None:
        if self.ms <= 0:
            raise SpecError(f"a window's length or slide in ms must be positive, got {self.ms}")


Length = CountLength | TimeLength

EVERY_TUPLE: Final = CountLength(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StormSpec:
    """Windows of one length, with one window every slide. Length and slide are each a number of tuples or a duration.

    Args:
        length: the size of a window. A window that ends at t holds the times in (t - length, t].
        slide: the distance from one window to the next; by default one tuple. If it equals the length, the windows are
            tumbling.
        function: computes the values of a pane: `Aggregates`, `Whole` or a `ProcessFunction`. A tuple of aggregates is
            short for `Aggregates`.
        is_event_time: if true, windows follow the records' times and the watermark; else the clock at their arrival.
        expected: event time: the streams that must have had a record before there is a watermark.
        lag_ms: event time: how far the watermark stays behind the slowest stream.
        watermark_interval_ms: event time: how often, on the clock, a watermark may be emitted.
        late: event time: late records have their own stream. Without it, Storm only logs them. Here both are rows of
            late_records, with different reasons.
        message_timeout_ms: topology.message.timeout.secs. The duration of a window must not exceed it. None: unlimited.
        max_spout_pending: topology.max.spout.pending. The tuples of a window must not exceed it. None: unlimited.
        profile: the engine profile whose semantics apply.
        compact_every: after this many tuples and watermarks without a scan, expired tuples leave the queue.
        stale_max: the maximal number of instants without timers in memory. No result depends on it.

    Raises:
        SpecError: the parts contradict each other, or a limit is exceeded.
    """

    length: Length
    function: WindowFunction | tuple[Aggregate, ...]
    slide: Length = EVERY_TUPLE
    is_event_time: bool = True
    expected: tuple[str, ...] = ()
    lag_ms: int = 0
    watermark_interval_ms: int = 1_000
    late: bool = False
    message_timeout_ms: int | None = None
    max_spout_pending: int | None = None
    profile: StormProfile = STRICT
    compact_every: int = COMPACT_EVERY
    stale_max: int = STALE_MAX

    def __post_init__(self) -> None:
        if self.lag_ms < 0:
            raise SpecError(f"lag must be 0 ms or more, got {self.lag_ms}")
        if self.watermark_interval_ms <= 0:
            raise SpecError(f"the watermark interval must be positive, got {self.watermark_interval_ms} ms")
        self._check_event_time()
        if len(set(self.expected)) != len(self.expected) or ALL_SOURCES in self.expected:
            raise SpecError(
                f"expected streams must have different names, none of them {ALL_SOURCES!r}, got {self.expected}"
            )
        self._check_limits()
        then = process_function(self.effective_function())
        if then is not None and then.window_state:
            names = ", ".join(state.name for state in then.window_state)
            raise SpecError(
                f"{type(then).__name__} declares per-window state ({names}), but a Storm window ends when it fires; "
                "declare state per key (`state`) instead"
            )

    def _check_event_time(self) -> None:
        if self.is_event_time:
            return
        if self.late:
            raise SpecError(
                "Late tuple stream can be defined only when specifying a timestamp field; use event time, or leave "
                "out `late`, because no record is late on the clock"
            )
        if self.lag_ms or self.expected:
            raise SpecError(
                f"a lag ({self.lag_ms} ms) and expected streams {self.expected} define a watermark, but windows on the "
                "clock have no watermark; use event time, or leave out both"
            )

    def _check_limits(self) -> None:
        """Raise a SpecError where Storm does: a tuple is acked when it expires, so it must expire before a time-out."""
        parts = (self.length, self.slide)
        limits = (
            ("duration", "topology.message.timeout", self.message_timeout_ms, "ms",
             [part.ms for part in parts if isinstance(part, TimeLength)]),
            ("count", "topology.max.spout.pending", self.max_spout_pending, "tuples",
             [part.count for part in parts if isinstance(part, CountLength)]),
        )  # fmt: skip
        for what, setting, limit, unit, sizes in limits:
            if limit is not None and sum(sizes) > limit:
                raise SpecError(
                    f"the window's {what} (length + slide), {sum(sizes)} {unit}, is more than {setting}, {limit} "
                    f"{unit}: the spout would replay tuples that are still in the window; raise the limit, or make the "
                    "window smaller"
                )

    def check_terminates(self) -> None:
        """Check that the spec does not fire through gaps of any size (S6). Pipelines call this.

        Raises SpecError: a count length with a time slide, in the profile storm.
        """
        if isinstance(self.length, CountLength) and isinstance(self.slide, TimeLength) and not self.profile.jumps_gaps:
            raise SpecError(
                f"a length of {self.length.count} tuples with a slide of {self.slide.ms} ms fires at every slide in a "
                f"gap without records, however long the gap is (S6), and the profile {self.profile.name!r} reproduces "
                "that; use semantics: strict"
            )

    def effective_function(self) -> WindowFunction:
        return Aggregates(self.function) if isinstance(self.function, tuple) else self.function

    def policies(self) -> Policies:
        profile, is_time = self.profile, isinstance(self.length, TimeLength)
        is_lossy = self.is_event_time and not profile.fires_complete
        return Policies(
            eviction=_eviction(self),
            trigger=_trigger(self),
            keeps_due_order=profile.keeps_due_order,
            starts_at_ms=profile.starts_at_ms,
            late_reason=AFTER_ITS_WINDOW if is_lossy and is_time else None,
            behind_reason=BEHIND_STOP if self.is_event_time and not profile.scans_past_lag else None,
            compact_every=self.compact_every,
        )

    def build(self, groups: KeyGroupRange | None = None) -> StormOperator:
        length, slide = self.length, self.slide
        is_covering = isinstance(length, CountLength) and isinstance(slide, CountLength) and length.count >= slide.count
        windows = Windows(
            policies=self.policies(),
            function=self.effective_function(),
            is_event_time=self.is_event_time,
            has_late_stream=self.late,
            length_ms=length.ms if isinstance(length, TimeLength) else None,
            slide_ms=slide.ms if isinstance(slide, TimeLength) else None,
            unseen_reason=OUT_OF_ORDER if is_covering else BETWEEN_WINDOWS,
            profile=self.profile,
            stale_max=self.stale_max,
        )
        return StormOperator(windows, groups)

    def state_rules(self) -> StateRules:
        """Return the rules of window managers. `restore_manager` checks what only Storm's rows have."""
        return StateRules(has_timers=False, keeps_records=True, counts_records=False)

    def driver(self) -> StreamTime:
        streams = StreamWatermarks(self.expected, self.lag_ms, self.profile.starts_at_ms)
        return StreamTime(streams if self.is_event_time else None, self.watermark_interval_ms)


def _eviction(spec: StormSpec) -> EvictionPolicy:
    profile = spec.profile
    match spec.length:
        case CountLength(count):
            return WatermarkCountEviction(count) if spec.is_event_time else CountEviction(count)
        case TimeLength(ms) if spec.is_event_time:
            stop_ms = None if profile.scans_past_lag else spec.lag_ms
            return WatermarkTimeEviction(length_ms=ms, stop_beyond_ms=stop_ms)
        case TimeLength(ms):
            return TimeEviction(length_ms=ms, first_takes_all=profile.first_window_takes_all)


def _trigger(spec: StormSpec) -> TriggerPolicy:
    profile = spec.profile
    repeats = isinstance(spec.length, TimeLength) or not profile.jumps_gaps
    match spec.slide:
        case CountLength(count) if spec.is_event_time:
            return WatermarkCountTrigger(count=count, counts_each_once=profile.counts_each_once)
        case CountLength(count):
            return CountTrigger(count)
        case TimeLength(ms) if spec.is_event_time:
            return WatermarkTimeTrigger(slide_ms=ms, repeats=repeats, retries=not profile.fires_complete)
        case TimeLength(ms):
            return TimeTrigger(interval_ms=ms, repeats=repeats)
