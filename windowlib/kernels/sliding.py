"""Sliding windows that fire at their end, from slices.

The starts and ends of all windows are multiples of the slice length g = gcd(size, slide) after the offset. Each record
is added to one slice of its key. The contents of a window are the combined states of its slices, by
`ColumnAggregate.ranges`. So the cost grows with records + slices + panes, and not with records x size / slide.

A record that meets a window after its end, or misses one, is the exception: it is added window by window.
Source of the idea: Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from windowlib.bounds import MAX_TIME_MS
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.block import FARTHEST_MS, RecordBlock
from windowlib.kernels.completed import CompletedWindows, LateEntries
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import PairCodes, counts_before, expanded, sorted_rows, starts_of, window_codes
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import Misses
from windowlib.kernels.slices_of_time import SlicesOfTime
from windowlib.kernels.windows import BlockOutcome, Frame, SliceContents
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import FIRED, NEW
from windowlib.windows.assigners import Sliding


@dataclass(frozen=True, slots=True)
class _Spans:
    """The windows of each row: the numbers from `low` to `high`; none if `high` is less than `low`."""

    low: Int64s
    high: Int64s

    def take(self, rows: Int64s) -> "_Spans":
        return _Spans(self.low[rows], self.high[rows])


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Windows as ranges of slices, ordered by key and number. A window has the slices from `low` to `high - 1`."""

    number: Int64s
    low: Int64s
    high: Int64s

    def take(self, chosen: Bools) -> "_Ranges":
        return _Ranges(self.number[chosen], self.low[chosen], self.high[chosen])


class SlidingWindows:
    """The sliding windows of one bucket (windows.Windows). Window i starts at offset + i * slide."""

    def __init__(self, frame: Frame, assigner: Sliding) -> None:
        self._frame = frame
        self._size_ms, self._slide_ms, self._offset_ms = assigner.size_ms, assigner.slide_ms, assigner.offset_ms
        self.slices = SlicesOfTime.of(assigner)
        self._slice_ms = self.slices.slice_ms
        self._completed = CompletedWindows(frame, assigner.size_ms, assigner.slide_ms)
        self._ended = self._last_ended(frame.plan.beginning.watermark_ms)
        """The greatest number of a window whose end the watermark has reached."""
        nothing = np.zeros(0, dtype=np.int64)
        self._slices = SliceContents(key_code=nothing, number=nothing, edges=EdgeColumns.none(0), states=frame.empty(0))
        """The contents of windows before their end, ordered by (key number, slice number)."""
        self._alone = OpenWindows.none(frame.aggregates)
        """Contents of windows before their end that are not in slices: of a checkpoint, and of exceptional records."""

    def restore(self, opened: OpenWindows) -> None:
        aggregates = self._frame.aggregates
        is_pending = opened.end_ms - 1 > self._frame.plan.beginning.watermark_ms
        self._completed.add(opened.take(np.flatnonzero(~is_pending), aggregates))
        self._alone = opened.take(np.flatnonzero(is_pending), aggregates)

    def open(self) -> OpenWindows:
        aggregates, pending = self._frame.aggregates, self._alone
        if len(self._slices):
            opened = [self._windows_of(ranges) for ranges in self._ranges(None, self._frame.plan.records_per_block)]
            pending = self._frame.one_per_window(OpenWindows.concat([pending, *opened], aggregates))
        return OpenWindows.concat([pending, self._completed.windows], aggregates)

    def merge(self, partials: SliceContents, outcome: BlockOutcome) -> None:
        """Add partials of slices of time, whose windows are all before their end."""
        outcome.add_assigned(partials.edges.sum())
        spans = self._windows_at(partials.number * self._slice_ms + self._offset_ms)
        outcome.add_edges(NEW, _repeated(partials.edges, spans.high - spans.low + 1))
        self._slices = self._joined(self._slices, partials)

    def process(self, block: RecordBlock, until_step: int, outcome: BlockOutcome) -> None:
        spans = self._windows_at(block.event_time_ms)
        has_none = spans.low > spans.high
        is_usual = self._last_ms(spans.low) > block.watermark_ms
        late = LateEntries(rows=np.zeros(0, dtype=np.int64), start_ms=np.zeros(0, dtype=np.int64))
        rows: Int64s | slice = slice(None)
        if has_none.any() or not is_usual.all():
            rows = np.flatnonzero(is_usual & ~has_none)
            outcome.add_unassigned(block, np.flatnonzero(has_none))
            late = self._exceptions(block, spans, np.flatnonzero(~is_usual & ~has_none), outcome=outcome)
            spans = spans.take(rows)
        outcome.add_assigned(block.record_hash[rows])
        outcome.add_edges(NEW, _repeated(EdgeColumns.of_each(block.record_hash[rows]), spans.high - spans.low + 1))
        self._collect(block, rows)
        watermark_ms = self._frame.clock.after(until_step)
        self._fire(self._last_ended(watermark_ms), block.slice_start_ms, outcome)
        self._completed.enter(block, late, outcome)
        self._completed.clean_up(watermark_ms, outcome)

    def _windows_at(self, event_time_ms: Int64s) -> _Spans:
        since_ms = event_time_ms - self._offset_ms
        return _Spans((since_ms - self._size_ms) // self._slide_ms + 1, since_ms // self._slide_ms)

    def _last_ms(self, number: Int64s) -> Int64s:
        return number * self._slide_ms + (self._offset_ms + self._size_ms - 1)

    def _last_ended(self, watermark_ms: int) -> int:
        """Return the greatest number of a window whose last instant is at or before a watermark."""
        since_ms = min(max(watermark_ms, -FARTHEST_MS), 4 * FARTHEST_MS) - (self._offset_ms + self._size_ms - 1)
        return since_ms // self._slide_ms

    def _exceptions(self, block: RecordBlock, spans: _Spans, rows: Int64s, *, outcome: BlockOutcome) -> LateEntries:
        """Process records that arrive after the end of some of their windows, in log order.

        Emits the records that miss windows, and adds the others to their windows before the end. Returns the entries
        into windows after the end.
        """
        spans, watermark_ms = spans.take(rows), np.maximum(block.watermark_ms[rows], -FARTHEST_MS)
        first_last_ms = self._offset_ms + self._size_ms - 1
        ended = np.minimum((watermark_ms - first_last_ms) // self._slide_ms, spans.high)
        lateness_ms = min(self._frame.spec.allowed_lateness_ms, 4 * FARTHEST_MS)
        cleaned = np.minimum((watermark_ms - lateness_ms - first_last_ms) // self._slide_ms, spans.high)
        cleaned = np.where(watermark_ms == MAX_TIME_MS, spans.high, cleaned)
        self._miss(block, _Spans(spans.low, cleaned), rows, is_all=spans.high <= cleaned, outcome=outcome)
        outcome.add_assigned(block.record_hash[rows[cleaned < spans.high]])
        at, number = expanded(ended + 1, spans.high)
        self._add_alone(block, rows[at], number, outcome=outcome)
        at, number = expanded(np.maximum(cleaned + 1, spans.low), ended)
        return LateEntries(rows=rows[at], start_ms=number * self._slide_ms + self._offset_ms)

    def _miss(self, block: RecordBlock, missed: _Spans, rows: Int64s, *, is_all: Bools, outcome: BlockOutcome) -> None:
        places = np.flatnonzero(missed.low <= missed.high)
        missed = missed.take(places)
        # The assigner returns the newest window first.
        at, back = expanded(np.zeros(len(places), dtype=np.int64), missed.high - missed.low)
        start_ms = (missed.high[at] - back) * self._slide_ms + self._offset_ms
        sizes = missed.high - missed.low + 1
        outcome.add_late(
            block,
            Misses(
                rows=rows[places],
                offsets=np.concatenate([[0], np.cumsum(sizes)]),
                start_ms=start_ms,
                end_ms=start_ms + self._size_ms,
                late_from_ms=self._completed.cleanup_ms(missed.high * self._slide_ms + self._offset_ms),
                missed_all=is_all[places],
            ),
        )

    def _add_alone(self, block: RecordBlock, rows: Int64s, number: Int64s, *, outcome: BlockOutcome) -> None:
        if not len(rows):
            return
        outcome.add_edges(NEW, block.record_hash[rows])
        start_ms, key_code = number * self._slide_ms + self._offset_ms, block.key_code[rows]
        order, codes = sorted_rows(window_codes(number, key_code))
        starts = starts_of(codes)
        leaders, chosen = order[starts], rows[order]
        opened = OpenWindows.fresh(
            key_code[leaders],
            (start_ms[leaders], start_ms[leaders] + self._size_ms),
            edges=EdgeColumns.of_groups(block.record_hash[chosen], starts),
            states=self._frame.reduced(block, chosen, starts),
        )
        windows = OpenWindows.concat([self._alone, opened], self._frame.aggregates)
        self._alone = self._frame.one_per_window(windows)

    def _collect(self, block: RecordBlock, rows: Int64s | slice) -> None:
        number = self.slices.numbers(block.event_time_ms[rows])
        if not len(number):
            return
        key_code = block.key_code[rows]
        order, codes = sorted_rows(window_codes(key_code, number - number.min()))
        starts = starts_of(codes)
        leaders = order[starts]
        chosen = order if isinstance(rows, slice) else rows[order]
        new = SliceContents(
            key_code=key_code[leaders],
            number=number[leaders],
            edges=EdgeColumns.of_groups(block.record_hash[chosen], starts),
            states=self._frame.reduced(block, chosen, starts),
        )
        self._slices = self._joined(self._slices, new) if len(self._slices) else new

    def _joined(self, left: SliceContents, right: SliceContents) -> SliceContents:
        frame = self._frame
        key_code = np.concatenate([left.key_code, right.key_code])
        number = np.concatenate([left.number, right.number])
        order, codes = sorted_rows(window_codes(key_code, number - number.min()))
        starts = starts_of(codes)
        edges, states = EdgeColumns.concat([left.edges, right.edges]), frame.joined([left.states, right.states])
        edges, states = edges.take(order), frame.taken(states, order)
        if len(starts) < len(order):
            edges = edges.grouped(starts)
            states = frame.regrouped(states, starts)
            order = order[starts]
        return SliceContents(key_code=key_code[order], number=number[order], edges=edges, states=states)

    def _numbers(self, slices: SliceContents) -> _Spans:
        spans = self._windows_at(slices.number * self._slice_ms + self._offset_ms)
        return _Spans(np.maximum(spans.low, self._ended + 1), spans.high)

    def _ranges(self, until: int | None, panes_max: int) -> Iterator[_Ranges]:
        """Yield the windows of slices that have not ended, up to the number `until`, in parts of about `panes_max`.

        Slices are ordered by key and time. So the windows whose first slice is slice n are those of slice n that are
        not windows of the slice before it.
        """
        slices = self._slices
        if not len(slices):
            return
        spans = self._numbers(slices)
        last = spans.high if until is None else np.minimum(spans.high, until)
        first = spans.low.copy()
        same_key = slices.key_code[1:] == slices.key_code[:-1]
        after_previous = np.where(same_key, spans.high[:-1] + 1, first[1:])
        np.maximum(first[1:], after_previous, out=first[1:])
        per_slide, per_size = self._slide_ms // self._slice_ms, self._size_ms // self._slice_ms
        pairs = PairCodes.of(slices.number, keys=int(slices.key_code[-1]) + 1)
        codes = pairs.codes(slices.key_code, slices.number)
        for start, end in _parts(np.maximum(last - first + 1, 0), panes_max):
            row, number = expanded(first[start:end], last[start:end])
            low = row + start
            ends = pairs.codes(slices.key_code[low], number * per_slide + per_size)
            if len(low):
                yield _Ranges(number, low, counts_before(codes, ends))

    def _contents(self, ranges: _Ranges) -> tuple[Any, ...]:
        begin, end = int(ranges.low.min()), int(ranges.high.max())
        states = self._frame.taken(self._slices.states, np.arange(begin, end, dtype=np.int64))
        return self._frame.ranged(states, ranges.low - begin, ranges.high - begin)

    def _windows_of(self, ranges: _Ranges) -> OpenWindows:
        start_ms = ranges.number * self._slide_ms + self._offset_ms
        return OpenWindows.fresh(
            self._slices.key_code[ranges.low],
            (start_ms, start_ms + self._size_ms),
            edges=self._slices.edges.ranged(ranges.low, ranges.high),
            states=self._contents(ranges),
        )

    def _fire(self, ended: int, slice_start_ms: int, outcome: BlockOutcome) -> None:
        """Fire the windows up to the number `ended`, and forget the slices that only they have."""
        if ended <= self._ended:
            return
        frame, slices = self._frame, self._slices
        lone = self._alone.start_ms <= ended * self._slide_ms + self._offset_ms
        is_kept_after = bool(frame.spec.allowed_lateness_ms)
        joined = [self._alone]
        usual = _repeated(slices.edges, np.minimum(self._numbers(slices).high, ended) - self._numbers(slices).low + 1)
        for ranges in self._ranges(ended, frame.plan.records_per_block):
            if is_kept_after:
                self._fire_kept(ranges, lone, joined, slice_start_ms=slice_start_ms, outcome=outcome)
                continue
            is_lone = self._are_among(ranges, lone)
            if is_lone.any():
                windows = self._windows_of(ranges.take(is_lone))
                joined.append(windows)
                usual = _difference(usual, windows.edges.sum())
            self._emit(ranges.take(~is_lone) if is_lone.any() else ranges, slice_start_ms, outcome)
        if not is_kept_after:
            outcome.add_edges(FIRED, usual)
        if len(joined) > 1:
            self._alone = frame.one_per_window(OpenWindows.concat(joined, frame.aggregates))
        self._fire_alone(ended, slice_start_ms, outcome)
        kept = np.flatnonzero(self._windows_at(slices.number * self._slice_ms + self._offset_ms).high > ended)
        self._slices = SliceContents(
            key_code=slices.key_code[kept],
            number=slices.number[kept],
            edges=slices.edges.take(kept),
            states=frame.taken(slices.states, kept),
        )
        self._ended = ended

    def _fire_kept(
        self, ranges: _Ranges, lone: Bools, joined: list[OpenWindows], *, slice_start_ms: int, outcome: BlockOutcome
    ) -> None:
        """Fire windows that stay open for late records. Those that have contents outside of slices join `joined`."""
        is_lone = self._are_among(ranges, lone)
        windows = self._windows_of(ranges)
        if is_lone.any():
            joined.append(windows.take(np.flatnonzero(is_lone), self._frame.aggregates))
            windows = windows.take(np.flatnonzero(~is_lone), self._frame.aggregates)
        self._completed.add(self._completed.fire(windows, slice_start_ms, outcome))

    def _are_among(self, ranges: _Ranges, lone: Bools) -> Bools:
        """Return which windows also have contents in `_alone`, of which `lone` chooses some."""
        among = np.zeros(len(ranges.number), dtype=np.bool_)
        if lone.any():
            number = (self._alone.start_ms[lone] - self._offset_ms) // self._slide_ms
            key_code, lone_key_code = self._slices.key_code[ranges.low], self._alone.key_code[lone]
            keys = max(int(key_code[-1]), int(lone_key_code.max())) + 1
            pairs = PairCodes.of(number, ranges.number, keys=keys)
            codes = pairs.codes(key_code, ranges.number)  # ascending
            wanted = pairs.codes(lone_key_code, number)
            place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
            among[place[codes[place] == wanted]] = True
        return among

    def _fire_alone(self, ended: int, slice_start_ms: int, outcome: BlockOutcome) -> None:
        aggregates = self._frame.aggregates
        is_fired = self._alone.start_ms <= ended * self._slide_ms + self._offset_ms
        if not is_fired.any():
            return
        fired = self._alone.take(np.flatnonzero(is_fired), aggregates)
        self._completed.add(self._completed.fire(fired, slice_start_ms, outcome))
        self._alone = self._alone.take(np.flatnonzero(~is_fired), aggregates)

    def _emit(self, ranges: _Ranges, slice_start_ms: int, outcome: BlockOutcome) -> None:
        """Fast path: without lateness, windows whose contents are all in slices are fired and cleaned up at once."""
        if len(ranges.number):
            self._completed.emit(
                self._slices.key_code[ranges.low],
                ranges.number * self._slide_ms + self._offset_ms,
                self._slices.edges.counts_of_ranges(ranges.low, ranges.high),
                states=self._contents(ranges),
                slice_start_ms=slice_start_ms,
                outcome=outcome,
            )


def _repeated(edges: EdgeColumns, times: Int64s) -> IdSum:
    """Return the tally of edges that each occur so many times; a negative number counts as 0."""
    times = np.maximum(times, 0)
    odd = edges.xor[(times & 1).astype(np.bool_)]
    return IdSum(int((edges.count * times).sum()), int(np.bitwise_xor.reduce(odd)), int((edges.total * times).sum()))


def _difference(edges: IdSum, part: IdSum) -> IdSum:
    return IdSum(edges.count - part.count, edges.xor ^ part.xor, edges.total - part.total)


def _parts(sizes: Int64s, size_max: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose sizes add up to `size_max` or a little more."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start] - sizes[start])
        end = min(int(np.searchsorted(ends, before + size_max, side="left")) + 1, len(sizes))
        yield start, end
        start = end
