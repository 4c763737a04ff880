"""Assigns values of the log's slice column to slices. Values are compared as instants, never as text."""

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from jobs.pipeline.slices import local_ms
from jobs.runs import Slice
from windowlib.errors import LogError

KNOWN_VALUES = 20_000
"""The instants of so many values are kept: a process reads the same log several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Assigns partition values to slices, which are contiguous and ascending. Each distinct value is parsed once."""

    uri: str
    column: str
    zone: ZoneInfo
    slices: tuple[Slice, ...]
    _starts: list[int] = field(init=False, default_factory=list)
    _instants: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._starts.extend(one.start_ms for one in self.slices)

    def slice_id(self, value: str | None) -> str | None:
        """Return the slice of a value; None without a value, and outside the slices."""
        if value is None or not self.slices:
            return None
        at_ms = self.instant_ms(value)
        index = bisect_right(self._starts, at_ms) - 1
        return self.slices[index].slice_id if index >= 0 and at_ms < self.slices[index].end_ms else None

    def is_instant(self, value: str | None) -> bool:
        """Return whether a value is an ISO date or time."""
        try:
            return value is not None and self.instant_ms(value) is not None
        except LogError:
            return False

    def instant_ms(self, value: str) -> int:
        """Return the instant at which a value begins, in ms; a time without an offset is local to the zone.

        Raises:
            LogError: the value is not an ISO date or time.
        """
        known = self._instants.get(value)
        if known is not None:
            return known
        try:
            at_ms = self._instants[value] = _parsed(value, self.zone)
        except ValueError as error:
            raise LogError(
                f"slice column {self.column!r} of event log {self.uri} has the value {value!r}, which is not an ISO "
                "date or time such as 2013-02-08 or 2013-02-08T05. Remove the records with that value (DELETE), and "
                "append them again with the right one, or name another partition column in `log.slice.by`"
            ) from error
        return at_ms


@lru_cache(maxsize=KNOWN_VALUES)
def _parsed(value: str, zone: ZoneInfo) -> int:
    return local_ms(datetime.fromisoformat(value), zone)
