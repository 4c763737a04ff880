"""How far records are behind the records before them, and what watermark and allowed lateness follow from that. Pure.

A record is late for a tumbling window if the watermark has passed the window's end by the allowed lateness when the
record is read. The watermark is the greatest event time before the record, minus the bound, minus 1 ms. So only the sum
of the bound and the allowed lateness decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from jobs.durations import UNIT_MS, parse_duration
from windowlib.columnar.instants import Codes
from windowlib.columnar.watermark_steps import Int64s, latest_before

LADDER_MS: Final = tuple(
    map(parse_duration, ("0s", "1s", "10s", "1m", "5m", "15m", "30m", "1h", "2h", "6h", "12h", "1d", "3d", "7d", "30d"))
)
"""The bounds of the histogram, and the values that are suggested."""
BEHIND_SHARE: Final = 0.05
"""The suggested bound leaves at most this share of the records behind the watermark. All windows wait for the bound."""
LATE_SHARE: Final = 0.0001
"""The suggested allowed lateness leaves at most this share of the records late."""
MOST_LATENESS_MS: Final = 7 * UNIT_MS["d"]
"""The longest allowed lateness that is suggested: windows stay in the state so long."""
_FIRST: Final = -(1 << 61)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One line of the histogram: the shares of all records for one sum of bound and allowed lateness.

    `behind` are behind a watermark with this bound, `late` are late for the tumbling windows.
    """

    bound_ms: int
    behind: float
    late: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The suggested bound and allowed lateness, and the shares that they leave behind and late."""

    out_of_orderness_ms: int
    allowed_lateness_ms: int
    behind: float
    late: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """The delays of the valid records, ascending; `records` counts the invalid ones, too.

    `behind_ms` is how far a record is behind the greatest event time before it, 0 if it is not. `overdue_ms` is how far
    the greatest event time is past the end of the record's window; negative if it is not.
    """

    records: int
    behind_ms: Int64s
    overdue_ms: Int64s

    def rung(self, bound_ms: int) -> Rung:
        """Return the shares for a sum of bound and allowed lateness."""
        behind = len(self.behind_ms) - int(np.searchsorted(self.behind_ms, bound_ms, side="right"))
        late = len(self.overdue_ms) - int(np.searchsorted(self.overdue_ms, bound_ms, side="left"))
        of = max(self.records, 1)
        return Rung(bound_ms=bound_ms, behind=behind / of, late=late / of)

    @property
    def worst_ms(self) -> int:
        return int(self.behind_ms[-1]) if len(self.behind_ms) else 0

    def histogram(self) -> tuple[Rung, ...]:
        """Return the rungs up to the first one for which no record is late or behind."""
        rungs: list[Rung] = []
        for bound_ms in LADDER_MS:
            rungs.append(self.rung(bound_ms))
            if not rungs[-1].behind and not rungs[-1].late:
                break
        return tuple(rungs)

    def suggestion(self) -> Suggestion:
        """Return the least bound and allowed lateness of the ladder that leave few records behind and late."""
        bound_ms = next((rung_ms for rung_ms in LADDER_MS if self.rung(rung_ms).behind <= BEHIND_SHARE), LADDER_MS[-1])
        choices = [rung_ms for rung_ms in LADDER_MS if rung_ms <= MOST_LATENESS_MS]
        fitting = (rung_ms for rung_ms in choices if self.rung(bound_ms + rung_ms).late <= LATE_SHARE)
        lateness_ms = next(fitting, choices[-1])
        return Suggestion(
            out_of_orderness_ms=bound_ms,
            allowed_lateness_ms=lateness_ms,
            behind=self.rung(bound_ms).behind,
            late=self.rung(bound_ms + lateness_ms).late,
        )


def measure_delays(event_time_ms: Int64s, problems: Codes, *, window_ms: int) -> Delays:
    """Measure the delays of records in log order.

    `problems` is 0 where the record is valid; an invalid record moves no watermark and is never late. `window_ms` is
    the size of the tumbling windows.
    """
    times = event_time_ms[problems == 0]
    before_ms = latest_before(times, _FIRST)
    overdue_ms = before_ms - (times - times % window_ms + window_ms)
    return Delays(
        records=len(event_time_ms), behind_ms=np.sort(np.maximum(before_ms - times, 0)), overdue_ms=np.sort(overdue_ms)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDelays:
    """Delays within commits and between them: the share of records, and the greatest delay."""

    within: float
    within_worst_ms: int
    between: float
    between_worst_ms: int


def measure_commit_delays(event_time_ms: Int64s, commit: Int64s) -> CommitDelays:
    """Measure how far valid records in the order of appending are behind their own commit and behind earlier ones."""
    starts = np.flatnonzero(np.diff(commit, prepend=commit[:1] - 1))
    ends = [*starts[1:].tolist(), len(commit)][: len(starts)]
    within = np.zeros(len(commit), dtype=np.int64)
    between = np.zeros(len(commit), dtype=np.int64)
    latest_ms = _FIRST
    for start, end in zip(starts.tolist(), ends, strict=True):
        own = event_time_ms[start:end]
        within[start:end] = np.maximum(latest_before(own, _FIRST) - own, 0)
        between[start:end] = np.maximum(latest_ms - own, 0)
        latest_ms = max(latest_ms, int(own.max()))
    return CommitDelays(
        within=_share(within),
        within_worst_ms=int(within.max(initial=0)),
        between=_share(between),
        between_worst_ms=int(between.max(initial=0)),
    )


def _share(delays: Sequence[int] | Int64s) -> float:
    return float(np.count_nonzero(delays)) / max(len(delays), 1)
