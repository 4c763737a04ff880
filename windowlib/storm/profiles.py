"""The profiles of Storm's windows: the points in which our windows can differ from Storm's.

Code reads the fields of a profile, never its name. S1 to S6 are the defects of Storm 2.8.4 in
docs/reference/storm.md; S5 belongs to the acker.
"""

from dataclasses import dataclass
from typing import Final

from windowlib.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class StormProfile:
    """The meaning of Storm's windows, point by point. The defaults are the profile strict."""

    name: str
    fires_complete: bool = True
    """A window fires when no tuple of it is expected any more: Storm's watermark is greater than its end.
    Storm fires when the watermark equals the end. A tuple of that instant may still arrive; no window holds it (S1)."""
    scans_past_lag: bool = True
    """A scan looks at every tuple. Storm's scan ends at the first tuple beyond the lag and loses the rest (S2)."""
    counts_each_once: bool = True
    """A count slide counts every tuple once. Storm skips tuples that are not later than the last window's end (S3)."""
    starts_at_ms: int | None = None
    """Before the first watermark, tuples earlier than this are late, and the first window does not end before it.
    None: nothing is late before the first watermark. Storm: 0, so a tuple before 1970 is late (S4)."""
    jumps_gaps: bool = True
    """With a count length and a time slide, a window fires only if it has a new tuple. Storm fires at every slide,
    through an empty gap of any size (S6)."""
    keeps_due_order: bool = True
    """A count length keeps the tuples that became due last. Storm keeps the tuples that arrived last, so a tuple that
    arrived early and became due late may expire before any window holds it."""
    first_window_takes_all: bool = False
    """On the clock, the first window holds all tuples of the queue, even tuples older than its length, as in Storm."""
    reports_gaps: bool = True
    """A tuple between windows (slide > length) is unassigned when it arrives. In Storm it expires without a report."""
    forgets_idle_keys: bool = True
    """A key without tuples has no state. Storm keeps the next window's end, which matters for S1."""


STRICT: Final = StormProfile(name="strict")
"""The default: Storm's windows with S1 to S4 and S6 fixed. Every tuple is in a pane, in a row, or in a count."""

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
    """Return the profile called `name`. Raises SpecError: there is no profile of this name."""
    try:
        return PROFILES[name]
    except KeyError:
        raise SpecError(
            f"the semantics of windows of kind storm must be {' or '.join(sorted(PROFILES))}, got {name!r}"
        ) from None
