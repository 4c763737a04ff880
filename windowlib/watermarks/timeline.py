"""The timeline of a replay: between which records the clock and the watermark advance.

docs/explanation/architecture.md#time-the-clock-and-the-watermark describes the clock.

It is computed in one sequential pass over the log, before any window. A time driver moves the watermark for each
record and for each deadline that it requested. The result is a step function from places in the log to (clock,
watermark). It does not depend on the partitioning, and the operators of all keys follow it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from windowlib.bounds import MIN_TIME_MS


class Arrival(NamedTuple):
    """A valid record, with the attributes that a time driver needs.

    `clock_ms` is the replay's clock at its arrival: the running maximum of arrival times, clamped to the slice.
    It is the start of the slice if the pipeline has no arrival time. `columns` has the columns that the driver needs.
    `commit` is a number of the record's commit, None if the driver does not need it. It rises with the log and depends
    only on content: it is the start of the slice in ms plus the index of the commit in the slice.
    """

    sequence: int
    timestamp_ms: int
    clock_ms: int
    source: str = ""
    columns: Mapping[str, Any] = {}
    commit: int | None = None


ALL_SOURCES: Final = "*"
"""The `source` of the row with the combined output of all sources."""


def row_of_source(name: str) -> str:
    """Return the `source` of a source's row: its name, with another `*` in front if it starts with `*`."""
    return ALL_SOURCES + name if name.startswith(ALL_SOURCES) else name


def source_of_row(source: str) -> str:
    """Return the name of the source of a row."""
    return source.removeprefix(ALL_SOURCES)


def first_tick(at_ms: int, every_ms: int) -> int:
    """Return the first tick at or after an instant."""
    return -(-at_ms // every_ms) * every_ms


def or_none(watermark_ms: int) -> int | None:
    """Return a driver's watermark as a checkpoint stores it: None before the first."""
    return None if watermark_ms == MIN_TIME_MS else watermark_ms


def or_lowest(watermark_ms: int | None) -> int:
    """Return a checkpoint's watermark as a driver stores it: MIN_TIME_MS before the first."""
    return MIN_TIME_MS if watermark_ms is None else watermark_ms


class SourceRow(NamedTuple):
    """One row of the checkpoint's table `watermarks`: a source of watermarks, or `*`, the combined output of all.

    `details` has the remaining state of the driver as JSON-able values.
    """

    source: str
    watermark_ms: int | None
    max_event_time_ms: int | None
    is_idle: bool = False
    is_aligned: bool = True
    last_activity_ms: int | None = None
    details: Mapping[str, Any] = {}


class TimeDriver(Protocol):
    """The protocol of time drivers. A driver computes the watermark of a pipeline, which only rises.

    The timeline reads `watermark_ms` after each call.
    """

    watermark_ms: int
    """The combined watermark, MIN_TIME_MS before the first."""

    def before_record(self, arrival: Arrival) -> None:
        """Called when the clock has reached the record's arrival, before the record itself counts."""

    def on_record(self, arrival: Arrival) -> None:
        """Called when the fate of the record is decided. From here on the record may move the watermark."""

    def next_deadline_ms(self) -> int | None:
        """Return the earliest instant at which the clock has an effect, None if there is none."""

    def on_deadline(self, at_ms: int) -> None:
        """Called when the clock is at the instant of `next_deadline_ms`, after the records that arrive then.

        Afterwards `next_deadline_ms` must not return `at_ms` or an earlier instant.
        """

    def snapshot(self) -> list[SourceRow]:
        """Return the whole state of the driver, in a fixed order. The row `*` has the combined watermark."""

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Load a snapshot. Allowed only in a fresh driver."""


FIRST_ARRIVAL: Final = "first_arrival_ms"
"""The key in `details` of the row `*` for the clock at the log's first record, from which some windows count."""


class Step(NamedTuple):
    """The changes of time after the record at `sequence` and before the next record.

    First the processing timers below `due_ms` fire, each at its own instant. Then the clock is `clock_ms`. Then the
    watermark is `watermark_ms`. None of the three decreases from one step to the next.
    """

    sequence: int
    due_ms: int
    clock_ms: int
    watermark_ms: int


class Timeline:
    """Runs a time driver over the log and collects the steps. Steps without a change are left out.

    `steps` has all steps so far, `slice_ends` their number at the end of each slice. It begins at `clock_ms`, the start
    of the first slice. Deadlines before that have already happened.
    """

    def __init__(self, driver: TimeDriver, *, clock_ms: int = MIN_TIME_MS) -> None:
        self.steps: list[Step] = []
        self.slice_ends: list[int] = []
        self.first_arrival_ms: int | None = None
        self._driver = driver
        self._sequence = -1
        self._last = Step(-1, clock_ms, clock_ms, driver.watermark_ms)

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Load the snapshot of the end of the previous slice."""
        rows = list(rows)
        self._driver.restore(rows)
        for row in rows:
            self.first_arrival_ms = row.details.get(FIRST_ARRIVAL, self.first_arrival_ms)
        self._last = self._last._replace(watermark_ms=self._driver.watermark_ms)

    def snapshot(self) -> list[SourceRow]:
        """Return the state that the next slice needs."""
        rows = self._driver.snapshot()
        if self.first_arrival_ms is None:
            return rows
        first = {FIRST_ARRIVAL: self.first_arrival_ms}
        return [row._replace(details={**row.details, **first}) if row.source == ALL_SOURCES else row for row in rows]

    def arrive(self, arrival: Arrival) -> None:
        """Process the next record of the log.

        The clock reaches the record's arrival, the record's fate is decided, then it may move the watermark.
        """
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

    def end_slice(self, end_ms: int, *, last_sequence: int = -1) -> None:
        """Process every deadline before the slice's end, so that the results do not depend on where the log is cut.

        `last_sequence` is the place of the slice's last record, which may not have arrived here: a record that moves no
        time is left out. The end of the slice comes after it.
        """
        self._sequence = max(self._sequence, last_sequence)
        self._pass_deadlines(end_ms)
        self._move(due_ms=end_ms, clock_ms=end_ms)
        self.slice_ends.append(len(self.steps))

    def _pass_deadlines(self, before_ms: int) -> None:
        """Process the deadlines before an instant. At each of them the processing timers fire first."""
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
