"""Groups of event times that are at most a gap apart: what may be one session, for all keys together."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from windowlib.columnar.watermark_steps import Int64s

_LEAST: Final = int(np.iinfo(np.int64).min)
_GREATEST: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGroups:
    """Disjoint groups in ascending order: `first_ms` and `last_ms` are the least and greatest event time of each.

    Times of one group may be `gap_ms` apart: sessions that touch merge (Flink's `TimeWindow.intersects`).
    """

    gap_ms: int
    first_ms: Int64s
    last_ms: Int64s

    @classmethod
    def none(cls, gap_ms: int) -> "TimeGroups":
        nothing = np.empty(0, dtype=np.int64)
        return cls(gap_ms=gap_ms, first_ms=nothing, last_ms=nothing)

    def with_times(self, times_ms: Int64s) -> "TimeGroups":
        """Return the groups of these times, too, in any order."""
        return self._with(times_ms, times_ms)

    def joined(self, other: "TimeGroups") -> "TimeGroups":
        """Return the groups of the times of both, which have the same gap."""
        return self._with(other.first_ms, other.last_ms)

    def later_than(self, limit_ms: int) -> "TimeGroups":
        """Return the groups whose greatest event time is above a limit."""
        kept = self.last_ms > min(max(limit_ms, _LEAST), _GREATEST)
        return TimeGroups(gap_ms=self.gap_ms, first_ms=self.first_ms[kept], last_ms=self.last_ms[kept])

    def _with(self, first_ms: Int64s, last_ms: Int64s) -> "TimeGroups":
        starts, ends = np.concatenate([self.first_ms, first_ms]), np.concatenate([self.last_ms, last_ms])
        if not len(starts):
            return self
        order = np.argsort(starts, kind="stable")
        starts, reached = starts[order], np.maximum.accumulate(ends[order])
        begins = np.concatenate([[True], starts[1:] - reached[:-1] > self.gap_ms])
        places = np.flatnonzero(begins)
        return TimeGroups(
            gap_ms=self.gap_ms, first_ms=starts[places], last_ms=reached[np.append(places[1:], len(starts)) - 1]
        )
