"""Computes how clock and watermark move along a chunk, before any window runs.

In general this is one sequential pass over a few columns of the records, through the pipeline's driver of time.
Fast path: if the pipeline has one source with a bounded delay that emits with every record, and no clock, then the
watermark is the running maximum of event time minus the bound. Spark computes that maximum in parallel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.engine.engine import Engine
from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.driver_rows import identified
from jobs.replay.chunk.log_input import ChunkInput
from jobs.runs import CheckpointRef
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.arrow import column_values
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.steps import Beginning, Int64s, Steps, columns_of
from windowlib.errors import CheckpointError
from windowlib.records import tables
from windowlib.records.plain_json import from_json, to_json
from windowlib.spark.feed import feed_value
from windowlib.spark.log_order import Rises, find_rises
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow, Timeline

if TYPE_CHECKING:
    import pyarrow as pa

NO_SOURCE = ""
Flags: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"


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
    found = rows.select(SourceRow._fields).to_pylist()
    return [SourceRow(**{**row, "details": from_json(row["details"])}) for row in found]


def time_before(lake: Lake, pipeline: Pipeline, before: CheckpointRef | None) -> list[SourceRow]:
    """Return the clock and watermarks that a checkpoint contains; an empty list at the beginning of a chain.

    Raises:
        CheckpointError: a row is damaged, or the row for all sources together is missing.
    """
    if before is None:
        return []
    uri = lake.table(pipeline.name, tables.WATERMARKS)
    rows = read_attempts(uri, [(before.slice_id, before.attempt_id)])
    columns = {name: rows[name] for name in rows.column_names}
    for damage in RowIdentity(tables.watermarks()).damage(columns) if rows.num_rows else ():
        raise CheckpointError(
            f"the checkpoint of slice {before.slice_id} (attempt {before.attempt_id}) is damaged: a row of table "
            f"watermarks is not what was written: {damage.what}; run that slice again, or start with --fresh"
        )
    found = source_rows(rows) if rows.num_rows else []
    if [row.source for row in found].count(ALL_SOURCES) != 1:
        raise CheckpointError(
            f"the checkpoint of slice {before.slice_id} (attempt {before.attempt_id}) has in table watermarks rows of "
            f"{[row.source for row in found]}, and needs one of {ALL_SOURCES!r}: it is damaged or was removed; run "
            "that slice again, or start with --fresh"
        )
    return found


def combined(rows: Sequence[SourceRow]) -> SourceRow:
    """Return the row of all sources together."""
    return next((row for row in rows if row.source == ALL_SOURCES), SourceRow(ALL_SOURCES, None, None))


def chunk_time(engine: Engine, read: ChunkInput, before: Sequence[SourceRow]) -> ChunkTime:
    """Compute how clock and watermark move along a chunk.

    Args:
        engine: the engine of the pipeline.
        read: the records of the chunk in log order.
        before: the rows of `time_before`.
    """
    if engine.time.bound_ms is not None and not engine.needs_clock:
        return _bounded_time(engine, read, before)
    return _driven_time(engine, read, before)


def _bounded_time(engine: Engine, read: ChunkInput, before: Sequence[SourceRow]) -> ChunkTime:
    assert engine.time.bound_ms is not None, "chunk_time checked it"
    rises = find_rises(read.ordered, max_before_ms=combined(before).max_event_time_ms)
    ends = tuple(int(np.searchsorted(rises.sequence, one.end_sequence, side="left")) for one in read.ranges)
    watermarks_ms = rises.max_event_time_ms - engine.time.bound_ms
    still = np.full(len(watermarks_ms), MIN_TIME_MS, dtype=np.int64)
    watermark_ms = combined(before).watermark_ms
    return ChunkTime(
        steps=_placed(read, (rises.sequence, still, still, watermarks_ms), ends),
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


def _driven_time(engine: Engine, read: ChunkInput, before: Sequence[SourceRow]) -> ChunkTime:
    first_ms = read.ranges[0].start_ms if engine.needs_clock else MIN_TIME_MS
    timeline = Timeline(engine.time.driver(), clock_ms=first_ms)
    if before:
        timeline.restore(before)
    beginning_ms = combined(timeline.snapshot()).watermark_ms
    rows = _records(engine, read)
    sequence = rows["sequence"].to_numpy()
    clock_ms, clamped = _clock(engine, read, rows)
    matters = np.ones(len(sequence), dtype=bool)
    if not engine.time.needs_every_record:
        matters = _matters(clock_ms, rows["event_time_ms"].to_numpy(), rows["source"])
    chosen = np.flatnonzero(matters)
    arrivals = _arrivals(engine, rows.take(chosen), clock_ms[chosen])
    after, at = [], 0
    for one in read.ranges:
        while at < len(arrivals) and arrivals[at].sequence < one.end_sequence:
            timeline.arrive(arrivals[at])
            at += 1
        timeline.end_slice(one.end_ms if engine.needs_clock else MIN_TIME_MS)
        after.append(tuple(timeline.snapshot()))
    return ChunkTime(
        steps=_placed(read, columns_of(timeline.steps), tuple(timeline.slice_ends)),
        beginning=Beginning(
            watermark_ms=MIN_TIME_MS if beginning_ms is None else beginning_ms,
            clock_ms=first_ms,
            first_arrival_ms=timeline.first_arrival_ms if engine.needs_clock else None,
        ),
        after=tuple(after),
        clamped=clamped,
    )


def _records(engine: Engine, read: ChunkInput) -> "pa.Table":
    """Collect the columns that the pass reads, for the valid records, in log order."""
    time, record = engine.time, F.col("record")
    kinds = {field.name: field.dataType.simpleString() for field in read.record_type}
    source = record.getField(time.source).cast("string") if time.source else F.lit(None).cast("string")
    commit = F.col("commit") if time.needs_commits else F.lit(None).cast("bigint")
    asked = [feed_value(record.getField(name), kinds[name]).alias(f"c{i}") for i, name in enumerate(time.columns)]
    rows = read.ordered.where("problem is null").select(
        "sequence",
        "slice_no",
        "event_time_ms",
        (F.col("arrival_ms") if engine.needs_clock else F.lit(None).cast("bigint")).alias("arrival_ms"),
        F.coalesce(source, F.lit(NO_SOURCE)).alias("source"),
        commit.alias("commit"),
        *asked,
    )
    return rows.toArrow().sort_by("sequence").combine_chunks()


def _clock(engine: Engine, read: ChunkInput, rows: "pa.Table") -> tuple[Int64s, tuple[int, ...]]:
    """Return the replay's clock at each record, and the number of clamped arrivals of each slice."""
    count = rows.num_rows
    if not engine.needs_clock or not count:
        return np.full(count, MIN_TIME_MS, dtype=np.int64), (0,) * len(read.ranges)
    slice_no = rows["slice_no"].to_numpy()
    arrival_ms = rows["arrival_ms"].to_numpy()
    starts = np.array([one.start_ms for one in read.ranges], dtype=np.int64)[slice_no]
    ends = np.array([one.end_ms for one in read.ranges], dtype=np.int64)[slice_no]
    inside = np.clip(arrival_ms, starts, ends - 1)
    clamped = np.bincount(slice_no[inside != arrival_ms], minlength=len(read.ranges))
    return np.maximum.accumulate(inside), tuple(int(number) for number in clamped)


def _matters(
    clock_ms: Int64s, event_time_ms: Int64s, source: "pa.ChunkedArray"
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which records can move the time: they raise the clock or the maximum of their source, or wake a source."""
    matters = _rises(clock_ms)
    codes = source.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    for code in np.unique(codes):
        own = np.flatnonzero(codes == code)
        matters[own] |= _rises(clock_ms[own]) | _rises(np.maximum.accumulate(event_time_ms[own]))
    return matters


def _rises(ascending: Int64s) -> Flags:
    return np.concatenate((np.ones(min(len(ascending), 1), dtype=bool), np.diff(ascending) > 0))


def _arrivals(engine: Engine, rows: "pa.Table", clock_ms: Int64s) -> list[Arrival]:
    names = engine.time.columns
    asked = [column_values(rows[f"c{i}"]) for i in range(len(names))]
    read = zip(*asked, strict=True) if asked else ((),) * rows.num_rows
    plain = (rows[name].to_pylist() for name in ("sequence", "event_time_ms", "source", "commit"))
    return [
        Arrival(sequence, timestamp_ms, at_ms, source, dict(zip(names, values, strict=True)), commit)
        for sequence, timestamp_ms, source, commit, at_ms, values in zip(*plain, clock_ms.tolist(), read, strict=True)
    ]


def _placed(read: ChunkInput, moved: tuple[Int64s, Int64s, Int64s, Int64s], ends: tuple[int, ...]) -> Steps:
    sequence, due_ms, clock_ms, watermark_ms = moved
    slice_no, rank = read.ranks.locate(sequence)
    starts = np.array([one.start_ms for one in read.ranges], dtype=np.int64)
    return Steps(
        sequence=sequence,
        slice_start_ms=starts[slice_no],
        rank=rank,
        due_ms=due_ms,
        clock_ms=clock_ms,
        watermark_ms=watermark_ms,
        slice_ends=ends,
    )
