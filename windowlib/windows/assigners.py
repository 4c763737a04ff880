"""Window assigners: they return the windows that a record belongs to. Users write their own against `Assigner`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, Protocol

from windowlib.bounds import (
    GLOBAL_WINDOW,
    MAX_DURATION_MS,
    MIN_TIME_MS,
    SAFE_TIME_MS,
    TimeWindow,
    Window,
    whole_number,
    wrap_int64,
)
from windowlib.errors import SpecError
from windowlib.profiles import EngineFault, Profile
from windowlib.records.records import Position, Record

WINDOWS_PER_RECORD_MAX: Final = 10_000_000
"""The greatest allowed size / slide, as in Flink."""


class AssignerContext(Protocol):
    """What an assigner may read besides the record."""

    @property
    def processing_time_ms(self) -> int:
        """The current processing time."""

    @property
    def stagger_ms(self) -> int:
        """The offset that staggering chose for the operator at its first record; 0 without staggering."""

    @property
    def profile(self) -> Profile:
        """The engine profile whose semantics apply."""


class Assigner:
    """Base class of assigners. Built-in assigners are frozen values, and users' assigners should be, too."""

    __slots__ = ()

    is_event_time: bool = True
    """Whether the watermark completes the windows. If not, the clock completes them."""
    is_merging: bool = False
    """Whether overlapping windows are merged. If so, `assign` returns one window: the session of the record alone."""
    has_bounds: bool = True
    """Whether the windows have a start and an end."""

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:
        """Return the record's windows in the order in which the record enters them; empty for a record in a gap."""
        raise NotImplementedError

    def output_time_ms(self, timestamp_ms: int) -> int:
        """Return the event time that a record contributes to its panes, for the combiner `earliest_transformed`."""
        return timestamp_ms


class Stagger(Enum):
    """How an operator shifts its windows. The operator chooses the shift once, at its first record."""

    ALIGNED = "aligned"
    RANDOM = "random"
    NATURAL = "natural"

    def offset(self, size_ms: int, first_ms: int, seed: int) -> int:
        """Return the shift in [0, size): 0, a value from the seed, or the first arrival's offset in its window."""
        match self:
            case Stagger.ALIGNED:
                return 0
            case Stagger.NATURAL:
                return first_ms % size_ms
            case Stagger.RANDOM:
                return (seed * 0x9E37_79B9_7F4A_7C15 >> 7) % size_ms


_ALIGNED: Final = Stagger.ALIGNED  # `assign` runs per record, and the attribute lookup costs more than the comparison
_SAFE_FROM_MS: Final = -SAFE_TIME_MS


def _check_size(name: str, size_ms: int, *, what: str = "size") -> None:
    if not 0 < size_ms <= MAX_DURATION_MS:
        raise SpecError(f"{name}: the {what} must be positive and at most 9,999 years, got {size_ms} ms")


def _event_time(record: Record, profile: Profile) -> int:
    timestamp_ms = record.timestamp_ms
    if timestamp_ms is not None and -SAFE_TIME_MS <= timestamp_ms <= SAFE_TIME_MS:
        return timestamp_ms
    if not profile.wraps_int64:
        raise SpecError(
            f"record at {record.position} has event time {timestamp_ms} ms; event-time windows take -2**62 to 2**62. "
            "Such a record is invalid and must not reach the window operator"
        )
    if timestamp_ms is None or timestamp_ms == MIN_TIME_MS:
        raise EngineFault("RuntimeException", "a record has no timestamp, or Long.MIN_VALUE, which means none")
    return timestamp_ms


def _wrapped_start(instant_ms: int, offset_ms: int, size_ms: int) -> int:
    """Return the start of the window that contains an instant, computed in wrapping 64-bit arithmetic (F8)."""
    shifted = wrap_int64(instant_ms - offset_ms)
    remainder = shifted % size_ms
    return wrap_int64(instant_ms - remainder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tumbling(Assigner):
    """Windows of one size without gaps or overlap, aligned to 1970 plus an offset."""

    size_ms: int
    offset_ms: int = 0
    is_event_time: bool = True
    stagger: Stagger = Stagger.ALIGNED
    seed: int = 0

    def __post_init__(self) -> None:
        _check_size("tumbling window", self.size_ms)
        if abs(self.offset_ms) >= self.size_ms:
            raise SpecError(
                f"tumbling window: the offset must be smaller than the size {self.size_ms} ms, got {self.offset_ms} ms"
            )

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[TimeWindow]:
        size_ms, offset_ms = self.size_ms, self.offset_ms
        instant_ms = record.timestamp_ms
        if not self.is_event_time:
            instant_ms = ctx.processing_time_ms
        elif instant_ms is None or not _SAFE_FROM_MS <= instant_ms <= SAFE_TIME_MS:
            instant_ms = _event_time(record, ctx.profile)
        if self.stagger is not _ALIGNED:
            offset_ms = _truncated(offset_ms + ctx.stagger_ms, size_ms)
        if ctx.profile.wraps_int64:
            start_ms = _wrapped_start(instant_ms, offset_ms, size_ms)
            return (TimeWindow(start_ms, wrap_int64(start_ms + size_ms)),)
        return _shared_window(instant_ms - (instant_ms - offset_ms) % size_ms, size_ms)


@lru_cache(maxsize=1 << 12)
def _shared_window(start_ms: int, size_ms: int) -> Sequence[TimeWindow]:
    """Return a window as a tuple of one. All keys share the object, because a cache lookup is faster than creation."""
    return (TimeWindow(start_ms, start_ms + size_ms),)


def _windows(starts: range, size_ms: int) -> Sequence[TimeWindow]:
    return tuple([TimeWindow(start_ms, start_ms + size_ms) for start_ms in starts])


SHARED_MAX: Final = 256
"""The default of `Sliding.shared_max`: tuples of more windows are not cached, because they take too much memory."""
_shared_windows = lru_cache(maxsize=1 << 10)(_windows)


def _truncated(number: int, divisor: int) -> int:
    """Return the remainder with the sign of `number`, as Java's % operator."""
    remainder = abs(number) % divisor
    return remainder if number >= 0 else -remainder


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding(Assigner):
    """Windows of one size that start every `slide_ms`. If the slide exceeds the size, a record in a gap has no window.

    `shared_max`: if a record has at most so many windows, they are cached for other records.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    is_event_time: bool = True
    shared_max: int = SHARED_MAX

    def __post_init__(self) -> None:
        _check_size("sliding window", self.size_ms)
        _check_size("sliding window", self.slide_ms, what="slide")
        if abs(self.offset_ms) >= self.slide_ms:
            raise SpecError(
                f"sliding window: the offset must be smaller than the slide {self.slide_ms} ms, got {self.offset_ms} ms"
            )
        if self.size_ms // self.slide_ms > WINDOWS_PER_RECORD_MAX:
            raise SpecError(
                f"sliding window: a size of {self.size_ms} ms and a slide of {self.slide_ms} ms put each record into "
                f"{self.size_ms // self.slide_ms} windows, at most {WINDOWS_PER_RECORD_MAX} are allowed; "
                "use a longer slide"
            )

    @property
    def is_regular(self) -> bool:
        """Whether the windows are the same for all instants of one slide, and few enough to be cached."""
        count, rest = divmod(self.size_ms, self.slide_ms)
        return not rest and count <= self.shared_max

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[TimeWindow]:
        """Return the windows that contain the record, newest start first."""
        instant_ms = _event_time(record, ctx.profile) if self.is_event_time else ctx.processing_time_ms
        size_ms, slide_ms = self.size_ms, self.slide_ms
        if ctx.profile.wraps_int64:
            return self._assign_wrapped(instant_ms)
        newest_ms = instant_ms - (instant_ms - self.offset_ms) % slide_ms
        starts = range(newest_ms, instant_ms - size_ms, -slide_ms)
        return _shared_windows(starts, size_ms) if len(starts) <= self.shared_max else _windows(starts, size_ms)

    def _assign_wrapped(self, instant_ms: int) -> Sequence[TimeWindow]:
        start_ms = _wrapped_start(instant_ms, self.offset_ms, self.slide_ms)
        until_ms = wrap_int64(instant_ms - self.size_ms)
        windows = []
        while start_ms > until_ms:
            windows.append(TimeWindow(start_ms, wrap_int64(start_ms + self.size_ms)))
            start_ms = wrap_int64(start_ms - self.slide_ms)
        return windows


class _SessionAssigner(Assigner):
    __slots__ = ()
    is_merging = True

    def _gap_ms(self, record: Record) -> int:
        raise NotImplementedError

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[TimeWindow]:
        """Return the session of this record alone: from its instant to its instant plus the gap."""
        if not self.is_event_time:
            instant_ms = ctx.processing_time_ms
        elif ctx.profile.wraps_int64:
            instant_ms = MIN_TIME_MS if record.timestamp_ms is None else record.timestamp_ms
        else:
            instant_ms = _event_time(record, ctx.profile)
        return (TimeWindow(instant_ms, ctx.profile.add(instant_ms, self._gap_ms(record))),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(_SessionAssigner):
    """Windows of activity: a silence longer than `gap_ms` ends a window. Sessions that touch are merged."""

    gap_ms: int
    is_event_time: bool = True

    def __post_init__(self) -> None:
        _check_size("session window", self.gap_ms, what="gap")

    def _gap_ms(self, record: Record) -> int:  # noqa: ARG002
        return self.gap_ms


def gap_of_record(record: Record) -> int | None:
    """Return the record's own gap in ms."""
    return record.gap_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSession(_SessionAssigner):
    """Sessions whose gap a function computes from each record; by default the record's own `gap_ms`."""

    gap: Callable[[Record], int | None] = gap_of_record
    is_event_time: bool = True

    def _gap_ms(self, record: Record) -> int:
        given = self.gap(record)
        gap_ms = whole_number(given)
        if gap_ms is None or not 0 < gap_ms <= MAX_DURATION_MS:
            raise wrong_gap(given, record.position)
        return gap_ms


def wrong_gap(gap_ms: object, position: Position) -> SpecError:
    """Return the error for the gap of a record."""
    return SpecError(
        f"dynamic session: the record at {position} has gap {gap_ms!r:.100}; it must be a positive whole number of ms, "
        "at most 9,999 years. Correct the gap's column or function"
    )


@dataclass(frozen=True, slots=True)
class Global(Assigner):
    """One window without end for all records of a key. It fires only if the spec has a trigger."""

    is_event_time = False
    has_bounds = False

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        return _GLOBAL


_GLOBAL: Final = (GLOBAL_WINDOW,)


_Assign = Callable[[Record], Sequence[Window]]
KNOWN_MAX: Final = 1 << 12
"""The default of `known_max` of `assigning`."""


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Event-time windows that are the same for all instants of an interval. The intervals are numbered.

    Interval n is `[offset + n * every, offset + (n + 1) * every)`. Windows begin and end only at edges of intervals.
    """

    every_ms: int
    offset_ms: int
    windows_each: int
    """The number of windows of an interval."""

    @property
    def farthest(self) -> int:
        """All instants of the intervals between this number and its negative are safe."""
        return SAFE_TIME_MS // self.every_ms - 1

    def number(self, instant_ms: int) -> int:
        """Return the number of the interval that contains an instant."""
        return (instant_ms - self.offset_ms) // self.every_ms

    def next_edge(self, instant_ms: int) -> int:
        """Return the end of the interval that contains an instant."""
        return self.offset_ms + (self.number(instant_ms) + 1) * self.every_ms

    def windows(self, number: int) -> Sequence[TimeWindow]:
        """Return the windows of an interval, newest start first."""
        newest_ms = self.offset_ms + number * self.every_ms
        size_ms = self.every_ms * self.windows_each
        return _shared_windows(range(newest_ms, newest_ms - size_ms, -self.every_ms), size_ms)


def grid_of(assigner: Assigner, profile: Profile) -> WindowGrid | None:
    """Return the grid of the assigner's windows, None if they have none."""
    if assigner.is_event_time and not profile.wraps_int64:
        if type(assigner) is Tumbling and assigner.stagger is _ALIGNED:
            return WindowGrid(assigner.size_ms, assigner.offset_ms, 1)
        if type(assigner) is Sliding and assigner.is_regular:
            return WindowGrid(assigner.slide_ms, assigner.offset_ms, assigner.size_ms // assigner.slide_ms)
    return None


def assigning(assigner: Assigner, ctx: AssignerContext, *, known_max: int = KNOWN_MAX) -> _Assign:
    """Return `assigner.assign` for one operator. What does not change between records is decided here.

    `known_max`: the windows of so many starts are remembered.
    """
    grid = grid_of(assigner, ctx.profile)
    if grid is not None:
        return _aligned(assigner, ctx, grid, known_max=known_max)
    if type(assigner) is Global:
        return lambda _record: _GLOBAL
    assign = assigner.assign
    return lambda record: assign(record, ctx)


def _aligned(assigner: Assigner, ctx: AssignerContext, grid: WindowGrid, *, known_max: int) -> _Assign:
    """Return `assigner.assign` for windows of a grid."""
    offset_ms, every_ms = grid.offset_ms, grid.every_ms
    known: dict[int, Sequence[Window]] = {}
    farthest = grid.farthest  # all instants of a remembered number are safe

    def assign(record: Record) -> Sequence[Window]:
        instant_ms = record[1]
        number = 0 if instant_ms is None else (instant_ms - offset_ms) // every_ms
        windows = known.get(number)
        if windows is None or instant_ms is None:
            windows = assigner.assign(record, ctx)  # raises an error if the instant is unsafe
            if len(known) >= known_max:
                known.clear()
            if abs(number) < farthest:
                known[number] = windows
        return windows

    return assign
