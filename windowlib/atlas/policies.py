"""The profiles of Atlas's windows: a value for each point that the documentation of Atlas leaves open."""

from dataclasses import dataclass
from typing import Final, Literal

from windowlib.errors import SpecError

IdleReading = Literal["after_end", "after_both"]
IDLE_READINGS: Final = ("after_end", "after_both")


@dataclass(frozen=True, slots=True, kw_only=True)
class AtlasProfile:
    """The semantics of the open points. The defaults are the profile strict.

    `idle_reading` tells when an idle source closes a window. 'after_end': the time-out begins when the window's end has
    passed and the source is idle (Atlas's page on windows). 'after_both': the source was idle for the whole time-out,
    and the window's end has passed (Atlas's pages on the stages). If `dead_letters_partly_late`, a document that missed
    some of its windows and is in others is also a dead letter.
    """

    name: str
    idle_reading: IdleReading = "after_end"
    dead_letters_partly_late: bool = True

    def __post_init__(self) -> None:
        if self.idle_reading not in IDLE_READINGS:
            raise SpecError(f"idle_reading must be one of {', '.join(IDLE_READINGS)}, got {self.idle_reading!r}")

    def idle_deadline(self, end_ms: int, *, idle_from_ms: int, timeout_ms: int) -> int:
        """Return the time at which a window that ends at `end_ms` closes if the source stays idle."""
        if self.idle_reading == "after_end":
            return max(end_ms, idle_from_ms) + timeout_ms
        return max(end_ms, idle_from_ms + timeout_ms)


STRICT: Final = AtlasProfile(name="strict")
MONGODB: Final = AtlasProfile(name="mongodb")
"""Equal to strict, because we know of no defect of the engine that this profile must reproduce."""

ATLAS_PROFILES: Final = {profile.name: profile for profile in (STRICT, MONGODB)}
