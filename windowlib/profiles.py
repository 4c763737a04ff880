"""The profiles: which engine's semantics apply. A profile is one frozen value.

Code reads a profile's fields and never compares its name. F1 to F12 are defects of Flink 2.3.0;
docs/reference/conformance.md describes each and names its tests.
"""

from dataclasses import dataclass
from typing import Final

from windowlib.bounds import wrap_int64
from windowlib.errors import HindcastError, SpecError


class EngineFault(HindcastError):  # noqa: N818 - it is a fault of the engine, not an error of Hindcast
    """The engine of the chosen profile throws an exception at this point and its job fails. Never raised in strict."""

    def __init__(self, exception: str, what: str) -> None:
        super().__init__(f"{exception}: {what}; the strict profile does not fail here")
        self.exception = exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The points in which the profiles differ. The defaults are the strict semantics."""

    name: str
    merge_touching: bool = True
    """Sessions that touch, such as [0, 10) and [10, 20), become one session."""
    keeps_identical_session: bool = True
    """A session with the bounds of an open one joins it. Flink gives it empty contents and loses the old ones (F1)."""
    watermark_survives_failure: bool = True
    """A restore after a failure restores the watermark. Flink starts at the minimum and fires again (F2)."""
    guards_merge_overflow: bool = True
    """A merge first tests the cleanup instant, guarded against overflow. Flink merges, adds unguarded, throws (F3)."""
    continuous_ends: bool = True
    """A continuous trigger stops at the last watermark. Flink registers timer after timer up to MAX_TIME_MS (F4)."""
    reports_gaps: bool = True
    """A record in a gap is unassigned, whenever it arrives. Flink drops it or treats it as late (F5)."""
    floors_intervals: bool = True
    """Intervals are aligned by rounding down. Flink truncates towards 0 and skips one interval before 1970 (F6)."""
    skips_empty_panes: bool = True
    """A window emits nothing if its evictor keeps no record. Flink emits an empty pane or fails (F7)."""
    wraps_int64: bool = False
    """Time arithmetic wraps at 64 bits, as in Java (F8)."""
    timeout_adds_to_timers: bool = False
    """A processing-time-out trigger fires at every timer, also at the cleanup timer (F10)."""
    timeout_keeps_timers: bool = True
    """A time-out that restarts keeps the inner trigger's timer of the same instant. Flink's deletes both (F12)."""
    survives_missing_state: bool = True
    """A continuous trigger without state continues. Flink throws a NullPointerException."""
    protects_cleanup_timer: bool = True
    """A trigger cannot delete the cleanup timer. In Flink it can, and then the window is never cleaned up (F11)."""
    merges_in_log_order: bool = True
    """Merged contents are in log order. Flink concatenates the windows in the order of a Java hash set."""
    refuses_regression: bool = True
    """A watermark that decreases is refused. Flink's window operator accepts it and reopens windows."""
    refuses_leftovers: bool = True
    """A trigger that can leave records unfired needs `leftovers` in the spec. Flink drops these records (F9)."""
    completes_at_end: bool = False
    """True: an event-time window is complete when the watermark reaches its end. False: its last instant, 1 ms less."""
    takes_at_limit: bool = False
    """True: a record is late once the watermark is greater than completion plus lateness. False: once it is equal."""
    judges_record_alone: bool = False
    """Lateness is decided by the record's own session (True), or by the open session that it would join (False)."""
    only_end_is_on_time: bool = False
    """True: only the pane that the watermark fires at the window's end is ON_TIME. False: the first pane from then."""
    fires_empty_on_time: bool = False
    """The window fires at its end even if no record came since an EARLY pane."""
    has_composite_triggers: bool = False
    """The default trigger is composite. Flink's event-time triggers are refused: they wait for the last instant."""

    @property
    def deleted_after_end_ms(self) -> int:
        """By how much the watermark has passed the end of an event-time window that is deleted, besides the lateness.

        Flink deletes a window when the watermark reaches its end minus 1 ms (`WindowOperator.cleanupTime`); Beam up to
        2 ms later (`EndStore`).
        """
        if not self.has_composite_triggers:
            return -1
        return 1 if self.takes_at_limit else 0

    def add(self, left: int, right: int) -> int:
        """Return `left + right`, wrapped at 64 bits if `wraps_int64`."""
        return wrap_int64(left + right) if self.wraps_int64 else left + right

    def align(self, instant_ms: int, interval_ms: int) -> int:
        """Return the start of the interval that contains `instant_ms`, or with F6 the start by truncation."""
        remainder = instant_ms % interval_ms
        if not self.floors_intervals and instant_ms < 0 and remainder:
            remainder -= interval_ms
        return self.add(instant_ms, -remainder)


STRICT: Final = Profile(name="strict")
"""The default: Flink's semantics without the defects F1 to F12. No record is lost without a row or a count."""

FLINK: Final = Profile(
    name="flink",
    keeps_identical_session=False,
    watermark_survives_failure=False,
    guards_merge_overflow=False,
    continuous_ends=False,
    reports_gaps=False,
    floors_intervals=False,
    skips_empty_panes=False,
    wraps_int64=True,
    timeout_adds_to_timers=True,
    timeout_keeps_timers=False,
    survives_missing_state=False,
    protects_cleanup_timer=False,
    merges_in_log_order=False,
    refuses_regression=False,
    refuses_leftovers=False,
)
"""Bit-exact with Apache Flink 2.3.0, including its defects."""

BEAM: Final = Profile(
    name="beam",
    merge_touching=False,
    completes_at_end=True,
    takes_at_limit=True,
    judges_record_alone=True,
    only_end_is_on_time=True,
    fires_empty_on_time=True,
    has_composite_triggers=True,
)
"""The Beam model, as the driver of Beam's Python SDK 2.77 computes it. docs/reference/beam.md lists the differences."""

PROFILES: Final = {profile.name: profile for profile in (STRICT, FLINK, BEAM)}


def profile(name: str) -> Profile:
    """Return the profile called `name`. Raises SpecError: there is no such profile."""
    try:
        return PROFILES[name]
    except KeyError:
        raise SpecError(f"semantics must be one of {', '.join(sorted(PROFILES))}, got {name!r}") from None
