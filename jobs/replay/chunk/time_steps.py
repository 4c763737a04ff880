"""Computes how clock and watermark move along a chunk, before any window runs.

In general this is one sequential pass over a few columns of the records, through the pipeline's driver of time. The
columns come block by block, so the pass needs the memory of one block and of the steps.
Fast path: if the pipeline has one source with a bounded delay that emits with every record, and no clock, then the
watermark is the running maximum of event time minus the bound. The tasks find that maximum in parallel.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from jobs.engine.engine import Engine
from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.driver_rows import identified
from jobs.replay.chunk.tallies import state_fingerprint
from jobs.runs import CheckpointRef, Slice, WarmUp
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.arrow import column_values
from windowlib.columnar.log_reading import Rises
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.watermark_content import checked_sources
from windowlib.columnar.watermark_steps import Beginning, Int64s, SliceRange, Steps, columns_of
from windowlib.errors import CheckpointError
from windowlib.libraries import pa
from windowlib.records import tables
from windowlib.records.plain_json import from_json, to_json
from windowlib.records.row_ids import IdSum
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow, Timeline

NO_SOURCE = ""
Flags: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Indexes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.intp]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTime:
    """The steps of a chunk, and its time at the beginning and after each slice.

    `after` has the rows of `watermarks` for each slice. `clamped` has the number of arrivals of each slice that were
    outside the slice, and were moved to its first or last millisecond.
    """

    steps: Steps
    beginning: Beginning
    after: tuple[tuple[SourceRow, ...], ...]
    clamped: tuple[int, ...]

    def watermark_ms(self, slice_no: int) -> int | None:
        """Return the watermark at the end of a slice; None before the first valid record."""
        return combined(self.after[slice_no]).watermark_ms


def watermark_row(source: SourceRow) -> dict[str, Any]:
    """Return the row of table `watermarks` for one source, or for all sources together."""
    return identified(tables.watermarks(), {**source._asdict(), "details": to_json(dict(source.details))})


def source_rows(rows: "pa.Table") -> list[SourceRow]:
    """Return rows of table `watermarks` as the values that a driver of time restores."""
    return [source_row(row) for row in rows.select(SourceRow._fields).to_pylist()]


def source_row(row: Mapping[str, Any]) -> SourceRow:
    """Return the fields of a row of table `watermarks` as the value that a driver of time restores."""
    return SourceRow(**{**row, "details": from_json(row["details"])})


def warm_up_from(first: Slice, rows: Sequence[SourceRow]) -> WarmUp:
    """Return the warm-up that begins at a slice from the clock and watermarks before it; no rows: from nothing."""
    if not rows:
        return WarmUp(first=first)
    stored = [watermark_row(row) for row in rows]
    ids = IdSum.of(row[tables.ROW_ID] for row in stored)
    return WarmUp(
        first=first,
        time=tuple({name: row[name] for name in SourceRow._fields} for row in stored),
        fingerprint=state_fingerprint({tables.WATERMARKS: ids}),
    )


def time_before(
    lake: Lake, pipeline: Pipeline, before: CheckpointRef | None, *, warm_up: WarmUp | None = None
) -> list[SourceRow]:
    """Return the clock and watermarks that a checkpoint contains; without one, those of a warm-up, or an empty list.

    Raises CheckpointError: a row is damaged or has wrong content, or the row for all sources together is missing.
    """
    if before is None:
        return [] if warm_up is None else [source_row(row) for row in warm_up.time]

    def wrong(what: str) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint of slice {before.slice_id} (attempt {before.attempt_id}) {what}; run that slice again, or "
            "start with --fresh"
        )

    rows = read_attempts(lake.table(pipeline.name, tables.WATERMARKS), [(before.slice_id, before.attempt_id)])
    columns = {name: rows[name] for name in rows.column_names}
    for damage in RowIdentity(tables.watermarks()).damage(columns) if rows.num_rows else ():
        raise wrong(f"is damaged: a row of table watermarks is not what was written: {damage.what}")
    try:
        sources = checked_sources(rows) if rows.num_rows else []
    except CheckpointError as error:
        raise wrong(f"is damaged: {error}") from error
    if (names := [row.source for row in sources]).count(ALL_SOURCES) != 1:
        raise wrong(
            f"has in table watermarks rows of {names}, and needs one of {ALL_SOURCES!r}: it is damaged or was removed"
        )
    return sources


def combined(rows: Sequence[SourceRow]) -> SourceRow:
    """Return the row of all sources together."""
    return next((row for row in rows if row.source == ALL_SOURCES), SourceRow(ALL_SOURCES, None, None))


def needs_pass(engine: Engine) -> bool:
    """Return whether the time of a pipeline needs a sequential pass over records, and not only the rises."""
    return engine.time.bound_ms is None or engine.needs_clock


def bounded_time(
    engine: Engine, rises: Rises, ranges: Sequence[SliceRange], *, before: Sequence[SourceRow]
) -> ChunkTime:
    """Compute the time of a chunk from the rises of its event time, where `needs_pass` is False.

    `before` has the rows of `time_before`.
    """
    assert engine.time.bound_ms is not None, "needs_pass checked it"
    ends = tuple(int(np.searchsorted(rises.sequence, span.end_sequence, side="left")) for span in ranges)
    watermarks_ms = rises.max_event_time_ms - engine.time.bound_ms
    still = np.broadcast_to(np.int64(MIN_TIME_MS), len(watermarks_ms))
    last = combined(before)
    watermark_ms = last.watermark_ms
    greatest_ms = last.max_event_time_ms
    if watermark_ms != (None if greatest_ms is None else greatest_ms - engine.time.bound_ms):
        raise CheckpointError(
            f"table watermarks, column watermark_ms of source {ALL_SOURCES!r} in the checkpoint has {watermark_ms}; "
            f"allowed is max_event_time_ms, {greatest_ms}, minus {engine.time.bound_ms}; run the slice before again, "
            "or start with --fresh"
        )
    return ChunkTime(
        steps=Steps(
            sequence=rises.sequence,
            due_ms=still,
            clock_ms=still,
            watermark_ms=watermarks_ms,
            slice_ends=ends,
            ranges=tuple(ranges),
        ),
        beginning=Beginning(watermark_ms=MIN_TIME_MS if watermark_ms is None else watermark_ms),
        after=_bounded_rows(engine, rises, ends, before=before),
        clamped=(0,) * len(ends),
    )


def _bounded_rows(
    engine: Engine, rises: Rises, ends: Sequence[int], *, before: Sequence[SourceRow]
) -> tuple[tuple[SourceRow, ...], ...]:
    """Pass only the last rise of each slice to the driver. For a running maximum, this equals passing all of them."""
    driver = engine.time.driver()
    if before:
        driver.restore(before)
    after, start = [], 0
    for end in ends:
        if end > start:
            last = Arrival(int(rises.sequence[end - 1]), int(rises.max_event_time_ms[end - 1]), MIN_TIME_MS)
            driver.before_record(last)
            driver.on_record(last)
        after.append(tuple(driver.snapshot()))
        start = end
    return tuple(after)


def driven_time(
    engine: Engine, blocks: "Iterable[pa.RecordBatch]", ranges: Sequence[SliceRange], *, before: Sequence[SourceRow]
) -> ChunkTime:
    """Compute the time of a chunk in one pass over its valid records.

    `blocks` are the records in log order: `sequence, slice_no, event_time_ms, arrival_ms, commit`, the text `source`
    (null: no source), and the columns that the driver of time asks for as `c0, c1 ..` in feed form. `before` are the
    rows of `time_before`.
    """
    first_ms = ranges[0].start_ms if engine.needs_clock else MIN_TIME_MS
    timeline = Timeline(engine.time.driver(), clock_ms=first_ms)
    if before:
        timeline.restore(before)
    beginning_ms = combined(timeline.snapshot()).watermark_ms
    arrivals = _Arrivals(engine, ranges)
    after, ended = [], 0

    def end_slices(until: int) -> None:
        nonlocal ended
        while ended < until:
            span = ranges[ended]
            end_ms = span.end_ms if engine.needs_clock else MIN_TIME_MS
            timeline.end_slice(end_ms, last_sequence=span.end_sequence - 1)
            after.append(tuple(timeline.snapshot()))
            ended += 1

    for block in blocks:
        for slice_no, arrival in arrivals.of(block):
            end_slices(slice_no)
            timeline.arrive(arrival)
    end_slices(len(ranges))
    sequence, due_ms, clock_ms, watermark_ms = columns_of(timeline.steps)
    return ChunkTime(
        steps=Steps(
            sequence=sequence,
            due_ms=due_ms,
            clock_ms=clock_ms,
            watermark_ms=watermark_ms,
            slice_ends=tuple(timeline.slice_ends),
            ranges=tuple(ranges),
        ),
        beginning=Beginning(
            watermark_ms=MIN_TIME_MS if beginning_ms is None else beginning_ms,
            clock_ms=first_ms,
            first_arrival_ms=timeline.first_arrival_ms if engine.needs_clock else None,
        ),
        after=tuple(after),
        clamped=tuple(int(number) for number in arrivals.clamped),
    )


class _Arrivals:
    """The records that can move the time, block by block. It keeps the clock and the greatest time of each source."""

    def __init__(self, engine: Engine, ranges: Sequence[SliceRange]) -> None:
        self._engine = engine
        self._starts = np.array([span.start_ms for span in ranges], dtype=np.int64)
        self._ends = np.array([span.end_ms for span in ranges], dtype=np.int64)
        self._clock_ms = MIN_TIME_MS
        self._last_clock_ms: int | None = None
        self._highest: dict[str, tuple[int, int]] = {}
        """Source -> its greatest clock and event time so far."""
        self.clamped = np.zeros(len(ranges), dtype=np.int64)

    def of(self, block: "pa.RecordBatch") -> Iterator[tuple[int, Arrival]]:
        """Yield (slice_no, arrival) of the next records that matter."""
        if not block.num_rows:
            return
        time = self._engine.time
        sequence, slice_no, event_time_ms = (
            np.asarray(block[name]) for name in ("sequence", "slice_no", "event_time_ms")
        )
        clock_ms = self._clock(slice_no, block)
        encoded = block["source"].fill_null(NO_SOURCE).dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        chosen = np.arange(len(sequence))
        if not time.needs_every_record:
            by_source = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
            chosen = np.flatnonzero(self._matters(clock_ms, event_time_ms, dict(zip(names, by_source, strict=True))))
        kept = block.take(chosen)
        asked = [column_values(kept[f"c{place}"]) for place in range(len(time.columns))]
        read = zip(*asked, strict=True) if asked else ((),) * len(chosen)
        plain = (numbers[chosen].tolist() for numbers in (slice_no, sequence, event_time_ms, clock_ms))
        rows = zip(codes[chosen].tolist(), *plain, read, kept["commit"].to_pylist(), strict=True)
        for code, number, place, timestamp_ms, at_ms, values, commit in rows:
            columns = dict(zip(time.columns, values, strict=True))
            yield number, Arrival(place, timestamp_ms, at_ms, names[code], columns, commit)

    def _clock(self, slice_no: Int64s, block: "pa.RecordBatch") -> Int64s:
        """Return the replay's clock at each record, and count the clamped arrivals of each slice."""
        if not self._engine.needs_clock:
            return np.full(block.num_rows, MIN_TIME_MS, dtype=np.int64)
        arrival_ms = np.asarray(block["arrival_ms"])
        inside = np.clip(arrival_ms, self._starts[slice_no], self._ends[slice_no] - 1)
        self.clamped += np.bincount(slice_no[inside != arrival_ms], minlength=len(self.clamped))
        clock_ms = np.maximum(np.maximum.accumulate(inside), self._clock_ms)
        self._clock_ms = int(clock_ms[-1])
        return clock_ms

    def _matters(self, clock_ms: Int64s, event_time_ms: Int64s, by_source: "Mapping[str, Indexes]") -> Flags:
        """Return which records can move the time: they raise the clock or the maximum of their source, or wake it.

        `by_source` has the records of each source, in their order.
        """
        matters = _rises(clock_ms, self._last_clock_ms)
        self._last_clock_ms = int(clock_ms[-1])
        for name, own in by_source.items():
            clock_before, time_before = self._highest.get(name, (None, None))
            times = np.maximum.accumulate(event_time_ms[own])
            if time_before is not None:
                times = np.maximum(times, time_before)
            matters[own] |= _rises(clock_ms[own], clock_before) | _rises(times, time_before)
            self._highest[name] = int(clock_ms[own[-1]]), int(times[-1])
        return matters


def _rises(ascending: Int64s, before: int | None) -> Flags:
    """Return where an ascending array exceeds the element before it; the first exceeds `before`, or is a rise."""
    first = np.array([before is None or ascending[0] > before] if len(ascending) else [], dtype=bool)
    return np.concatenate((first, np.diff(ascending) > 0))
