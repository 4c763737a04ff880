"""Runs the operator of a pipeline over the records of one key in one slice, and tells what it does to one window.

The executor has the state and the records of this key only, so all that it emits belongs to the key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.durations import human_duration
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.reading.plain_values import rows_of
from jobs.review.window.key_records import FED, SHOWN
from jobs.review.window.wanted import WantedWindow, bounds_text
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar import instants
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import Bools, Int64s
from windowlib.records import tables
from windowlib.records.instants import INFINITE_TIME, NAN_TIME, NOT_UTF8, NULL_TIME, OUT_OF_RANGE, WRONG_TYPE

Bounds = tuple[int, int]
"""Start and end of a window in ms."""
MOST_CHANGES: Final = 2_000
_WITHOUT_TIME: Final = frozenset({NOT_UTF8, NULL_TIME, NAN_TIME, INFINITE_TIME, WRONG_TYPE, OUT_OF_RANGE})
"""The reasons of invalid records whose event time tells no window."""
_OTHERS: Final = {instants.FILTERED: "filtered", instants.DUPLICATE: "duplicate"}
"""The fates of records that are neither valid nor invalid, by their code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """A record of the log whose time is in the window.

    `rank` is its number in the slice, from 0. `watermark_ms` is the watermark that it met; None before the first one.
    `fate`: counted, late, unassigned, invalid, filtered or duplicate. `reason` tells why it is invalid, or how long
    after the end of the window's lifetime a late record came. `change` tells what it did to the bounds of the window,
    if windows merge. `values` are the columns that the windows read.
    """

    slice_id: str
    rank: int
    record_id: str
    event_time_ms: int
    watermark_ms: int | None
    fate: str
    reason: str | None
    change: str | None
    values: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class OperatorWalk:
    """One slice of one key. `panes` collects the rows of the window, `known` the bounds of windows that have existed.

    `is_clock` tells that windows are of processing time. `is_merging`: a record may change the bounds of its window.
    Such a change is found for at most `MOST_CHANGES` records, because that takes a millisecond for each.
    """

    plan: BucketPlan
    executor: OperatorExecutor
    window: WantedWindow
    slice_id: str
    is_clock: bool
    is_merging: bool
    lateness_ms: int
    panes: list[dict[str, Any]] = field(default_factory=list)
    known: set[Bounds] = field(default_factory=set)
    _late: dict[int, tuple[frozenset[Bounds], int | None]] = field(default_factory=dict)
    _unassigned: set[int] = field(default_factory=set)

    def take(self, rows: pa.Table) -> Iterator[WindowRecord]:
        """Process the next records of the key. Yield those whose time is in the window."""
        batch = rows.combine_chunks()
        watermarks, clocks = self._met(batch["sequence"].to_numpy())
        problems = batch["problem"].to_numpy()
        own = np.flatnonzero(self._in_window(batch, clocks, problems))
        changes = self._process(batch, own, problems=problems, times=watermarks if not self.is_clock else clocks)
        told = batch.take(pa.array(own))
        for place, row in zip(own.tolist(), rows_of(told), strict=True):
            met_ms = int(watermarks[place])
            fate, reason = self._fate(int(problems[place]), row["rank"])
            yield WindowRecord(
                slice_id=self.slice_id,
                rank=row["rank"],
                record_id="" if row["record_id"] is None else row["record_id"],
                event_time_ms=row["event_time_ms"],
                watermark_ms=None if met_ms == MIN_TIME_MS else met_ms,
                fate=fate,
                reason=reason,
                change=changes.get(place),
                values=row[SHOWN],
            )
        self._late.clear()
        self._unassigned.clear()

    def end(self) -> frozenset[Bounds]:
        """Take the remaining steps of the slice. Return the bounds of the windows that are open then."""
        self._collect(self.executor.end_slice())
        still_open = frozenset(self._open())
        self.known |= still_open
        return still_open

    def _met(self, sequence: Int64s) -> tuple[Int64s, Int64s]:
        """Return the watermark and the clock that each record met."""
        steps, before = self.plan.steps, self.plan.beginning
        places = np.searchsorted(steps.sequence, sequence, side="left")
        watermarks = np.concatenate(([before.watermark_ms], steps.watermark_ms))[places]
        return watermarks, np.concatenate(([before.clock_ms], steps.clock_ms))[places]

    def _in_window(self, batch: pa.Table, clocks: Int64s, problems: Int64s) -> Bools:
        held = self.window.holds(clocks if self.is_clock else batch["event_time_ms"].to_numpy())
        no_time = [code for code, name in enumerate(instants.PROBLEMS) if name in _WITHOUT_TIME]
        return np.asarray(held & ~np.isin(problems, no_time))

    def _process(self, batch: pa.Table, own: Int64s, *, problems: Int64s, times: Int64s) -> dict[int, str]:
        """Process the valid records. Return what those of the window did to its bounds, by their place."""
        changes: dict[int, str] = {}
        done = 0
        for place in own.tolist() if self.is_merging and len(own) <= MOST_CHANGES else ():
            if problems[place]:
                continue
            self._feed(batch, np.arange(done, place), problems)
            before = {(start, end) for start, end in self._open() if end - 1 + self.lateness_ms > times[place]}
            self._feed(batch, np.arange(place, place + 1), problems)
            self.known |= (after := {*self._open()})
            if after - before and int(batch["rank"][place].as_py()) not in self._late:
                changes[place] = _change(before, after)
            done = place + 1
        self._feed(batch, np.arange(done, batch.num_rows), problems)
        return changes

    def _feed(self, batch: pa.Table, places: Int64s, problems: Int64s) -> None:
        valid = places[problems[places] == 0]
        if not len(valid):
            return
        names = [*FED, *(name for name in batch.column_names if name[0] in "kv" and name[1:].isdigit())]
        rows = batch.select(names).take(pa.array(valid)).combine_chunks()
        for records in rows.to_batches():
            self._collect(self.executor.process(records))

    def _collect(self, emission: Mapping[str, pa.Table]) -> None:
        panes = emission.get(tables.WINDOW_OUTPUTS)
        if panes is not None:
            bounds = bounds_ms(panes["window_start"], panes["window_end"])
            self.known.update(bounds)
            wanted = (self.window.start_ms, self.window.end_ms)
            chosen = [place for place, own in enumerate(bounds) if own == wanted]
            self.panes += rows_of(panes.take(pa.array(chosen, pa.int64())))
        late = emission.get(tables.LATE_RECORDS)
        if late is not None:
            missed = zip(_missed(late["missed_windows"]), late["late_by_ms"].to_pylist(), strict=True)
            self._late.update(zip(late["rank"].to_pylist(), missed, strict=True))
        if (others := emission.get(tables.UNASSIGNED_RECORDS)) is not None:
            self._unassigned.update(others["rank"].to_pylist())

    def _fate(self, problem: int, rank: int) -> tuple[str, str | None]:
        if problem:
            return _OTHERS.get(problem, "invalid"), instants.PROBLEMS[problem] if problem > 0 else None
        late = self._late.get(rank)
        if late is None:
            return ("unassigned" if rank in self._unassigned else "counted"), None
        missed, late_by_ms = late
        # A late record of a session has missed the session that it would have been alone, and no other one.
        if missed and not self.is_merging:
            self.known |= missed
            if (self.window.start_ms, self.window.end_ms) not in missed:
                return "counted", None
            if late_by_ms is not None and not self.window.is_right_closed:  # Storm's does not depend on the window
                late_by_ms += max(end for _, end in missed) - self.window.end_ms  # the row has that of the last window
        return "late", None if late_by_ms is None else f"by {human_duration(late_by_ms)}"

    def _open(self) -> Sequence[Bounds]:
        rows = self.executor.state().get(tables.WINDOW_STATE)
        if rows is None or not rows.num_rows:
            return ()
        starts, ends = (rows[name].to_pylist() for name in ("window_start_ms", "window_end_ms"))
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start is not None and end is not None]


def bounds_ms(starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> list[Bounds]:
    """Return bounds in ms of columns of microseconds; (None, None) is the bounds of a window without any."""
    columns = (pc.divide(column.cast(pa.int64()), 1_000).to_pylist() for column in (starts, ends))
    return list(zip(*columns, strict=True))


def _missed(column: pa.ChunkedArray) -> list[frozenset[Bounds]]:
    """Return the bounds of the windows that each late record has missed."""
    lists = column.combine_chunks()
    flat = lists.flatten()
    bounds = bounds_ms(*(pa.chunked_array([flat.field(name)]) for name in ("window_start", "window_end")))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy()).tolist()
    return [frozenset(bounds[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _change(before: set[Bounds], after: set[Bounds]) -> str:
    """Return what a record did to the open windows of its key, in words."""
    made = next(iter(after - before))
    gone = sorted((start, end) for start, end in before - after if made[0] <= start and end <= made[1])
    name = bounds_text(*made)
    if not gone:
        return f"opens {name}"
    if len(gone) == 1:
        return f"extends the window to {name}"
    ends = ", ".join(show_instant(end) for _, end in gone)
    return f"merges {counted(len(gone), 'window')} into {name}, which ended at {ends}"
