"""Which engine's answers to give. A profile is one frozen value; code asks it about a meaning, never about a name.

F1 to F10 are the defects of Flink 2.3.0 in SEMANTICS.md section 1.12; docs/CONFORMANCE.md links each to its tests.
"""

from dataclasses import dataclass
from typing import Final

from windowlib.bounds import wrap_int64
from windowlib.errors import HindcastError, SpecError


class EngineFault(HindcastError):  # noqa: N818 - it names a fault of the engine, and is no error of ours
    """The engine whose profile is asked for would throw here and the job would die. Never raised in strict."""

    def __init__(self, exception: str, what: str) -> None:
        """Name the engine's exception and what it is about."""
        super().__init__(f"{exception}: {what}; the strict profile does not fail here")
        self.exception = exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The points in which the profiles differ. The defaults are the strict reading."""

    name: str
    merge_touching: bool = True
    """Sessions that touch, [0, 10) and [10, 20), are one session."""
    keeps_identical_session: bool = True
    """A session that equals an open one joins it. Flink gives it fresh contents and loses the old ones (F1)."""
    watermark_survives_failure: bool = True
    """Restoring after a failure restores the watermark. Flink starts at the minimum and fires again (F2)."""
    guards_merge_overflow: bool = True
    """Merging looks at the guarded cleanup instant first. Flink merges, adds the lateness unguarded, throws (F3)."""
    continuous_ends: bool = True
    """A continuous trigger stops at the last watermark. Flink counts on to the end of time (F4)."""
    reports_gaps: bool = True
    """A record in a gap is unassigned, whenever it comes. Flink drops it, or calls it late (F5)."""
    floors_intervals: bool = True
    """Intervals are aligned by floor. Flink truncates, and skips one before 1970 (F6)."""
    skips_empty_panes: bool = True
    """A window whose evictor left nothing emits nothing. Flink emits an empty pane or dies (F7)."""
    wraps_int64: bool = False
    """Time arithmetic wraps at 64 bits, as in Java (F8)."""
    timeout_adds_to_timers: bool = False
    """A processing-time-out trigger turns every timer into a firing, the cleanup timer too (F10)."""
    survives_missing_state: bool = True
    """A continuous trigger without state goes on. Flink throws a NullPointerException."""
    protects_cleanup_timer: bool = True
    """A trigger cannot delete the cleanup timer. In Flink it can, and the window stays for ever (F11)."""
    merges_in_log_order: bool = True
    """Merged contents are in log order. In Flink: the order of a Java hash set, one window after the other."""
    refuses_regression: bool = True
    """A watermark that goes back is refused. Flink's window operator takes it, and reopens windows."""
    refuses_leftovers: bool = True
    """A trigger that can leave records unfired at the end needs a word in the spec. In Flink they vanish (F9)."""
    completes_at_end: bool = False
    """An event-time window is complete when the watermark reaches its end; else, its last instant, 1 ms before."""
    takes_at_limit: bool = False
    """A record is taken while the watermark is exactly at completion plus lateness; else, it is late from there on."""
    judges_record_alone: bool = False
    """A record is too late by its own session; else, by the open one that it would merge into."""
    only_end_is_on_time: bool = False
    """Only the pane that the watermark fires at the window's end is ON_TIME; else, the first one from then on."""
    fires_empty_on_time: bool = False
    """The pane at the window's end comes even if nothing is new since an EARLY one."""
    has_composite_triggers: bool = False
    """The default trigger is a composite one. Flink's event-time triggers wait for the last instant and are refused."""

    def add(self, left: int, right: int) -> int:
        """Return `left + right`, wrapped at 64 bits where the profile says so."""
        return wrap_int64(left + right) if self.wraps_int64 else left + right

    def align(self, instant_ms: int, interval_ms: int) -> int:
        """Return the start of the interval that holds `instant_ms`; for F6, the one that truncation gives."""
        remainder = instant_ms % interval_ms
        if not self.floors_intervals and instant_ms < 0 and remainder:
            remainder -= interval_ms
        return self.add(instant_ms, -remainder)


STRICT: Final = Profile(name="strict")
"""The default: Flink's semantics with F1 to F10 fixed; nothing is lost without a row or a count."""

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
    survives_missing_state=False,
    protects_cleanup_timer=False,
    merges_in_log_order=False,
    refuses_regression=False,
    refuses_leftovers=False,
)
"""Bit-exact with Apache Flink 2.3.0, its defects included."""

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
"""The Beam model, as the driver of its Python SDK 2.77 computes it; docs/BEAM.md lists where they differ."""

PROFILES: Final = {profile.name: profile for profile in (STRICT, FLINK, BEAM)}


def profile(name: str) -> Profile:
    """Return the profile called `name`.

    Raises:
        SpecError: no such profile.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise SpecError(f"semantics must be one of {', '.join(sorted(PROFILES))}, got {name!r}") from None
