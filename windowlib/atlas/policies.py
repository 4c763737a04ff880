"""What the documentation of Atlas Stream Processing leaves open, as values: a profile answers each question."""

from dataclasses import dataclass
from typing import Final, Literal

from windowlib.errors import SpecError

IdleReading = Literal["after_end", "after_both"]
IDLE_READINGS: Final = ("after_end", "after_both")


@dataclass(frozen=True, slots=True, kw_only=True)
class AtlasProfile:
    """The answers; the defaults are the strict ones.

    Args:
        name: how the profile is called.
        idle_reading: when an idle source closes a window. 'after_end': the time-out begins when both the window's end
            has passed and the source is idle (the page on windows). 'after_both': the source has been idle for as long
            as the time-out, and the window's end has passed (the pages on the stages).
        dead_letters_partly_late: a document that missed some of its windows, and is in others, is a dead letter too.
    """

    name: str
    idle_reading: IdleReading = "after_end"
    dead_letters_partly_late: bool = True

    def __post_init__(self) -> None:
        """Check the reading."""
        if self.idle_reading not in IDLE_READINGS:
            raise SpecError(f"idle_reading must be one of {', '.join(IDLE_READINGS)}, got {self.idle_reading!r}")

    def idle_deadline(self, end_ms: int, *, idle_from_ms: int, timeout_ms: int) -> int:
        """Return when a window that ends at `end_ms` closes, if the source stays idle."""
        if self.idle_reading == "after_end":
            return max(end_ms, idle_from_ms) + timeout_ms
        return max(end_ms, idle_from_ms + timeout_ms)


STRICT: Final = AtlasProfile(name="strict")
MONGODB: Final = AtlasProfile(name="mongodb")
"""Equal to strict: no defect of the engine is known to us that would have to be reproduced."""

ATLAS_PROFILES: Final = {profile.name: profile for profile in (STRICT, MONGODB)}
