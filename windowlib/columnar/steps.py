"""The steps of clock and watermark of a chunk as arrays, and an operator's walk along them.

A chunk's clock and watermark advance at certain positions of the log, which are the same for every key (`timeline`). An
operator visits only the steps that reach one of its timers. The steps between two visits are applied as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windowlib.bounds import MIN_TIME_MS
from windowlib.keyed.operator_protocol import Operator
from windowlib.records.records import Position
from windowlib.watermarks.timeline import Step

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Clock and watermark after the record at `sequence[i]` and before the next record (see `timeline.Step`).

    `due_ms`, `clock_ms` and `watermark_ms` never decrease. (`slice_start_ms`, `rank`) is the position of the record
    that caused the step. `slice_ends[n]` is the number of steps up to the end of slice n of the chunk.
    """

    sequence: Int64s
    slice_start_ms: Int64s
    rank: Int64s
    due_ms: Int64s
    clock_ms: Int64s
    watermark_ms: Int64s
    slice_ends: tuple[int, ...]

    def position(self, step: int) -> Position:
        """Return the position of the record that caused a step; before the chunk's first record the rank is -1."""
        if self.sequence[step] < 0:
            return int(self.slice_start_ms[step]), -1
        return int(self.slice_start_ms[step]), int(self.rank[step])


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


class Walk:
    """Applies the steps of a chunk to one operator."""

    def __init__(self, operator: Operator, steps: Steps, beginning: Beginning) -> None:
        """Start before the first step."""
        self._operator = operator
        self._steps = steps
        self.taken = 0
        """The number of steps applied so far."""
        self._due_ms = self._clock_ms = beginning.clock_ms
        self._watermark_ms = beginning.watermark_ms

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
        steps, first = self._steps, len(self._steps.sequence)
        if (timer_ms := self._operator.next_event_timer_ms()) is not None:
            reached_ms = max(timer_ms, self._watermark_ms + 1)
            first = int(np.searchsorted(steps.watermark_ms, reached_ms, side="left"))
        if (timer_ms := self._operator.next_processing_timer_ms()) is not None:
            passed_ms = max(timer_ms, self._due_ms)
            first = min(first, int(np.searchsorted(steps.due_ms, passed_ms, side="right")))
        return first

    def _happen(self, step: int) -> None:
        steps, operator = self._steps, self._operator
        due_ms, clock_ms = int(steps.due_ms[step]), int(steps.clock_ms[step])
        watermark_ms, position = int(steps.watermark_ms[step]), steps.position(step)
        # After a deadline at t, due_ms is t + 1 and clock_ms is t. A record at t + 1 then advances only clock_ms.
        if due_ms > self._due_ms or clock_ms > self._clock_ms:
            operator.advance_processing_time(clock_ms, position, inclusive=due_ms > clock_ms)
            self._due_ms, self._clock_ms = due_ms, clock_ms
        if watermark_ms > self._watermark_ms:
            operator.advance_watermark(watermark_ms, position)
            self._watermark_ms = watermark_ms
        self.taken = step + 1
