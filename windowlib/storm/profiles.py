"""In which points a replay of Storm's windows may differ from Storm. Each is a meaning; nothing asks for a name.

S1 to S6 are the defects of Storm 2.8.4 in docs/STORM.md; S5 is the acker's.
"""

from dataclasses import dataclass
from typing import Final

from windowlib.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class StormProfile:
    """Whose answers the windows give. The defaults are the strict reading."""

    name: str
    fires_complete: bool = True
    """A window fires when no tuple of it is expected any more: its end is below the watermark.
    Storm fires at the watermark itself, and a tuple at that instant may still come, and is never seen (S1)."""
    scans_past_lag: bool = True
    """A scan looks at every tuple. Storm ends it at the first one beyond the lag, and loses those behind it (S2)."""
    counts_each_once: bool = True
    """A count slide counts every tuple, once. Storm passes over those not later than the last window's end (S3)."""
    starts_at_ms: int | None = None
    """Earlier tuples are late before there is a watermark, and the first window's end is not earlier.
    None: nothing is late before the first watermark. Storm: 0, so whatever is before 1970 is late (S4)."""
    jumps_gaps: bool = True
    """With a count length and a time slide, a window fires only if it has something new. Storm fires at every slide,
    through an empty gap of any size (S6)."""
    keeps_due_order: bool = True
    """A count length keeps the tuples that became due last. Storm keeps those that arrived last, so that one which
    arrived early and became due late may expire unseen."""
    first_window_takes_all: bool = False
    """On the clock, the first window has whatever is there, even if older than its length. So in Storm."""
    reports_gaps: bool = True
    """A tuple between windows (slide > length) is unassigned when it arrives. In Storm it expires unseen."""
    forgets_idle_keys: bool = True
    """A key without tuples has no state. Storm keeps the next window's end, which matters for S1."""


STRICT: Final = StormProfile(name="strict")
"""The default: Storm's windows with S1 to S4 and S6 fixed; nothing is lost without a row or a count."""

STORM: Final = StormProfile(
    name="storm",
    fires_complete=False,
    scans_past_lag=False,
    counts_each_once=False,
    starts_at_ms=0,
    jumps_gaps=False,
    keeps_due_order=False,
    first_window_takes_all=True,
    reports_gaps=False,
    forgets_idle_keys=False,
)
"""Bit-exact with Apache Storm 2.8.4, its defects included."""

PROFILES: Final = {profile.name: profile for profile in (STRICT, STORM)}


def storm_profile(name: str) -> StormProfile:
    """Return the profile called `name`.

    Raises:
        SpecError: Storm's windows have no such profile.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise SpecError(
            f"windows of kind storm take semantics {' or '.join(sorted(PROFILES))}, got {name!r}; choose one of them"
        ) from None
