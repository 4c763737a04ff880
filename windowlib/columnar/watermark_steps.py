"""The steps of clock and watermark of a chunk as arrays, and an operator's walk along them.

A chunk's clock and watermark advance at certain positions of the log, which are the same for every key (`timeline`). An
operator visits only the steps that reach one of its timers. The steps between two visits are applied as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from windowlib.bounds import MIN_TIME_MS
from windowlib.keyed.operator_protocol import Operator
from windowlib.records.records import Position
from windowlib.watermarks.timeline import Step

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
STEP_ARRAYS: Final = ("sequence", "due_ms", "clock_ms", "watermark_ms")
"""The fields of `Steps` with an element for each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRange:
    """One slice of the chunk. Its records have sequence numbers from the previous `end_sequence` up to its own."""

    slice_no: int
    start_ms: int
    end_ms: int
    end_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Clock and watermark after the record at `sequence[i]` and before the next record (see `timeline.Step`).

    `due_ms`, `clock_ms` and `watermark_ms` never decrease. `slice_ends[n]` is the number of steps up to the end of
    slice n of the chunk. `ranges` are the slices that the records are in.
    A log whose event time rises with most records has about as many steps as records, so a step has few columns.
    """

    sequence: Int64s
    due_ms: Int64s
    clock_ms: Int64s
    watermark_ms: Int64s
    slice_ends: tuple[int, ...]
    ranges: tuple[SliceRange, ...]

    def positions(self, steps: Int64s | slice) -> tuple[Int64s, Int64s]:
        """Return the positions (slice_start_ms, rank) of the records that caused some steps.

        Before the chunk's first record, the rank is -1, and the slice is that of the first record.
        """
        sequence = self.sequence[steps]
        ends = np.array([span.end_sequence for span in self.ranges], dtype=np.int64)
        starts_ms = np.array([span.start_ms for span in self.ranges], dtype=np.int64)
        inside = np.clip(sequence, 0, max(int(ends[-1]) - 1, 0))
        slice_no = np.minimum(np.searchsorted(ends, inside, side="right"), len(ends) - 1)
        first = np.concatenate(([0], ends[:-1]))[slice_no]
        return starts_ms[slice_no], np.where(sequence < 0, -1, np.maximum(inside - first, 0))

    def rows(self, start: int, end: int) -> list[tuple[int, int, int, Position]]:
        """Return (due_ms, clock_ms, watermark_ms, position) of some steps; the position as that of `positions`."""
        some = slice(start, end)
        slice_starts_ms, ranks = self.positions(some)
        positions = zip(slice_starts_ms.tolist(), ranks.tolist(), strict=True)
        times = (column[some].tolist() for column in (self.due_ms, self.clock_ms, self.watermark_ms))
        return list(zip(*times, positions, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Clock and watermark before a chunk's first record, and the arrival time of the log's first record."""

    watermark_ms: int = MIN_TIME_MS
    clock_ms: int = MIN_TIME_MS
    first_arrival_ms: int | None = None


def columns_of(steps: Sequence[Step]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the columns of steps as arrays: sequence, due_ms, clock_ms, watermark_ms."""
    table = np.array(steps, dtype=np.int64).reshape(-1, len(Step._fields))
    sequence, due_ms, clock_ms, watermark_ms = (np.ascontiguousarray(table[:, i]) for i in range(table.shape[1]))
    return sequence, due_ms, clock_ms, watermark_ms


def latest_before(times: Int64s, latest_ms: int) -> Int64s:
    """Return the greatest event time before each record: of the earlier ones, and of `latest_ms`."""
    before_ms = np.empty(len(times), dtype=np.int64)
    before_ms[:1] = latest_ms
    np.maximum(np.maximum.accumulate(times[:-1]), latest_ms, out=before_ms[1:])
    return before_ms


STEPS_PER_BLOCK: Final = 4_096
"""The default of `Walk`'s `block_max`: at most so many steps are converted to Python numbers together."""
_BLOCK_MIN: Final = 16


class Walk:
    """Applies the steps of a chunk to one operator."""

    def __init__(
        self, operator: Operator, steps: Steps, beginning: Beginning, *, block_max: int = STEPS_PER_BLOCK
    ) -> None:
        """Start before the first step."""
        self._operator = operator
        self._steps = steps
        self.taken = 0
        """The number of steps applied so far."""
        self._due_ms = self._clock_ms = beginning.clock_ms
        self._watermark_ms = beginning.watermark_ms
        self._waits_for: tuple[int | None, int | None] | None = None
        """The first event timer and the first processing timer from which `_first` was computed."""
        self._first = -1
        """The first step that reaches one of these timers. It is valid until it is taken."""
        self._block_max = block_max
        self._block = min(_BLOCK_MIN, block_max)
        """The number of steps to read next. It doubles while the walk visits most steps."""
        self._block_start = 0
        self._rows: list[tuple[int, int, int, Position]] = []
        """(due_ms, clock_ms, watermark_ms, position) of the steps from `_block_start`."""

    def until(self, end: int) -> None:
        """Apply the steps before step `end`."""
        while self.taken < end:
            step = self._first_of_interest()
            if step >= end:
                self._happen(end - 1)
            else:
                if step > self.taken:
                    self._happen(
                        step - 1
                    )  # no timer is due there, but a timer's callback at `step` reads clock and watermark
                self._happen(step)

    def _first_of_interest(self) -> int:
        """Return the first step that reaches a timer. An overdue timer waits for the next advance of its time."""
        event_ms, processing_ms = self._operator.next_event_timer_ms(), self._operator.next_processing_timer_ms()
        if self.taken <= self._first and self._waits_for == (event_ms, processing_ms):
            return self._first
        self._waits_for = event_ms, processing_ms
        steps, first = self._steps, len(self._steps.sequence)
        if event_ms is not None:
            reached_ms = max(event_ms, self._watermark_ms + 1)
            first = int(steps.watermark_ms.searchsorted(reached_ms, side="left"))
        if processing_ms is not None:
            passed_ms = max(processing_ms, self._due_ms)
            first = min(first, int(steps.due_ms.searchsorted(passed_ms, side="right")))
        self._first = first
        return first

    def _happen(self, step: int) -> None:
        place = step - self._block_start
        if not 0 <= place < len(self._rows):
            self._read(step)
            place = 0
        due_ms, clock_ms, watermark_ms, position = self._rows[place]
        # After a deadline at t, due_ms is t + 1 and clock_ms is t. A record at t + 1 then advances only clock_ms.
        if due_ms > self._due_ms or clock_ms > self._clock_ms:
            self._operator.advance_processing_time(clock_ms, position, inclusive=due_ms > clock_ms)
            self._due_ms, self._clock_ms = due_ms, clock_ms
        if watermark_ms > self._watermark_ms:
            self._operator.advance_watermark(watermark_ms, position)
            self._watermark_ms = watermark_ms
        self.taken = step + 1

    def _read(self, start: int) -> None:
        """Convert the steps of a block that begins at `start`."""
        passed = start - (self._block_start + len(self._rows))
        self._block = min(self._block * 2 if passed < self._block else _BLOCK_MIN, self._block_max)
        self._block_start, self._rows = start, self._steps.rows(start, start + self._block)
