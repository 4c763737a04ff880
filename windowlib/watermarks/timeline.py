"""The order of things in a replay: when the clock and the watermark move, between which records (DESIGN, section 6).

One sequential pass over the log, before any window is computed. A driver of time says what each record, and each
instant at which it asked to be woken, does to the watermark. What comes out is a step function from places in the log
to (clock, watermark), the same for any partitioning; every key's operator walks along it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from windowlib.bounds import MIN_TIME_MS


class Arrival(NamedTuple):
    """A valid record as the pass sees it.

    `clock_ms` is the replay's clock when it arrives: the running maximum of arrival times, clamped into the slice; the
    slice's start where the pipeline has no arrival time. `columns` holds the columns that the driver asked for,
    `commit` a number of the commit that brought the record, None where it is not asked for: it rises with the log and
    depends on content only (the start of the slice in ms, plus which of the slice's commits it is).
    """

    sequence: int
    timestamp_ms: int
    clock_ms: int
    source: str = ""
    columns: Mapping[str, Any] = {}
    commit: int | None = None


ALL_SOURCES: Final = "*"


class SourceRow(NamedTuple):
    """One row of the checkpoint's `watermarks`: a source of watermarks, or `*`, the combined output of all.

    `details` holds what else the driver must remember: plain JSON-able values.
    """

    source: str
    watermark_ms: int | None
    max_event_time_ms: int | None
    is_idle: bool = False
    is_aligned: bool = True
    last_activity_ms: int | None = None
    details: Mapping[str, Any] = {}


class TimeDriver(Protocol):
    """Who makes the watermark of a pipeline. It only rises; the timeline reads `watermark_ms` after each call."""

    watermark_ms: int
    """The combined watermark; MIN_TIME_MS before the first."""

    def before_record(self, arrival: Arrival) -> None:
        """The clock has reached the record's arrival; nothing of the record itself counts yet."""

    def on_record(self, arrival: Arrival) -> None:
        """The record has been judged; now it may move the watermark."""

    def next_deadline_ms(self) -> int | None:
        """Return the earliest instant at which the clock would do something, None if at none."""

    def on_deadline(self, at_ms: int) -> None:
        """The clock is at the instant that `next_deadline_ms` returned; records that arrive then have gone before.

        Afterwards `next_deadline_ms` must not return `at_ms` or an earlier instant.
        """

    def snapshot(self) -> list[SourceRow]:
        """Return all that the driver remembers, in a fixed order; the row `*` carries the combined watermark."""

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Take over a snapshot; into a fresh driver only."""


FIRST_ARRIVAL: Final = "first_arrival_ms"
"""Where the row `*` keeps the clock at the log's first record; some windows and triggers count from there."""


class Step(NamedTuple):
    """What happens after the record at `sequence`, and before the next one.

    First the processing timers below `due_ms` happen, each at its own instant; then the clock stands at `clock_ms`;
    then the watermark is `watermark_ms`. All three never fall from one step to the next.
    """

    sequence: int
    due_ms: int
    clock_ms: int
    watermark_ms: int


class Timeline:
    """Runs a driver along the log and collects the steps; a step that would change nothing is left out.

    `steps` are all steps so far, `slice_ends` how many of them there were at the end of each slice.
    """

    def __init__(self, driver: TimeDriver, *, clock_ms: int = MIN_TIME_MS) -> None:
        """Begin at `clock_ms`, the start of the first slice; nothing below it is due any more."""
        self.steps: list[Step] = []
        self.slice_ends: list[int] = []
        self.first_arrival_ms: int | None = None
        self._driver = driver
        self._sequence = -1
        self._last = Step(-1, clock_ms, clock_ms, driver.watermark_ms)

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Take over what `snapshot` returned at the end of the slice before."""
        rows = list(rows)
        self._driver.restore(rows)
        for row in rows:
            self.first_arrival_ms = row.details.get(FIRST_ARRIVAL, self.first_arrival_ms)
        self._last = self._last._replace(watermark_ms=self._driver.watermark_ms)

    def snapshot(self) -> list[SourceRow]:
        """Return all that the next slice needs."""
        rows = self._driver.snapshot()
        if self.first_arrival_ms is None:
            return rows
        first = {FIRST_ARRIVAL: self.first_arrival_ms}
        return [row._replace(details={**row.details, **first}) if row.source == ALL_SOURCES else row for row in rows]

    def arrive(self, arrival: Arrival) -> None:
        """Take the next record of the log: the clock reaches its arrival, it is judged, then it moves the watermark."""
        driver, clock_ms = self._driver, arrival.clock_ms
        if self.first_arrival_ms is None:
            self.first_arrival_ms = clock_ms
        self._sequence = arrival.sequence - 1
        self._pass_deadlines(clock_ms)
        self._move(due_ms=clock_ms, clock_ms=clock_ms)
        driver.before_record(arrival)
        self._move()
        self._sequence = arrival.sequence
        driver.on_record(arrival)
        self._move()

    def end_slice(self, end_ms: int) -> None:
        """Let every deadline before the slice's end happen, so that it does not matter where the log is cut."""
        self._pass_deadlines(end_ms)
        self._move(due_ms=end_ms, clock_ms=end_ms)
        self.slice_ends.append(len(self.steps))

    def _pass_deadlines(self, before_ms: int) -> None:
        """At one instant the processing timers come first, then what the driver waits for."""
        while (at_ms := self._driver.next_deadline_ms()) is not None and at_ms < before_ms:
            self._move(due_ms=at_ms + 1, clock_ms=at_ms)
            self._driver.on_deadline(at_ms)
            self._move()

    def _move(self, *, due_ms: int = MIN_TIME_MS, clock_ms: int = MIN_TIME_MS) -> None:
        last = self._last
        moved = Step(self._sequence, max(due_ms, last.due_ms), max(clock_ms, last.clock_ms), self._driver.watermark_ms)
        if moved[1:] != last[1:]:
            self._last = moved
            self.steps.append(moved)
