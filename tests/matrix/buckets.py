"""A pipeline of the matrix through the tasks of a chunk, without Spark: feed, buckets, checkpoint rows, tagged rows.

Between two chunks the state is the Arrow rows of the checkpoint tables, and nothing else.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from jobs.replay.chunk_plan import ChunkTables, chunk_tables, plan_buckets
from jobs.replay.chunk_time import ChunkTime
from tests.matrix.log import COLUMNS, HOUR_MS, HOURS
from tests.matrix.one_process import Answer, Entry, Hashes, TimePass, slice_start_ms
from tests.matrix.pipelines import Case
from tests.matrix.rows import Row
from windowlib.bounds import MIN_TIME_MS
from windowlib.records import tables
from windowlib.records.column_types import parse_type
from windowlib.records.row_ids import IdSum
from windowlib.spark.arrow import arrow_struct, arrow_type
from windowlib.spark.bucket import FEED_KINDS, BucketPlan, SliceRange, replay_bucket
from windowlib.spark.restored import BEFORE, DAMAGED, STATE_KINDS
from windowlib.spark.steps import Beginning, Steps, columns_of
from windowlib.watermarks.timeline import ALL_SOURCES, SourceRow, Timeline

Tallies = dict[tuple[int, str, str], IdSum]
"""(number of the slice, equation, term) -> sum of ids."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What the chunks of one way to cut the log gave."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    tallies: Tallies = field(default_factory=dict)
    sources: list[list[SourceRow]] = field(default_factory=list)

    def digests(self) -> dict[tuple[int, str], str]:
        """Return the digest of each slice's rows in each table."""
        return {
            (number, term): ids.digest() for (number, equation, term), ids in self.tallies.items() if equation == "rows"
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the log is cut: the slices of each chunk, how many buckets, how many records a batch of the feed has."""

    chunks: tuple[range, ...]
    buckets: int = 1
    batch: int = 1_000


ONE_CHUNK: Final = Way(chunks=(range(len(HOURS)),))


def replay(case: Case, answer: Answer, hashes: Hashes, way: Way) -> Replayed:
    """Replay the log chunk by chunk."""
    pinned: Any = SimpleNamespace(nodes={name: parse_type(kind) for name, kind in COLUMNS.items()})
    written = chunk_tables(case.pipeline, pinned)
    done = Replayed()
    for chunk in way.chunks:
        entries = [entry for entry in answer.entries if entry.place[0] in chunk]
        time = _time(case, entries, chunk, done)
        plan = _plan(case, written, chunk, time=time, entries=entries, buckets=way.buckets)
        state = {name: _state_before(done, name, chunk.start) for name in STATE_KINDS.values()}
        for bucket in range(way.buckets):
            own = [
                entry for entry in entries if entry.problem is None and _owner(entry.reading._asdict(), plan) == bucket
            ]
            kept = {name: [row for row in rows if _owner(row, plan) == bucket] for name, rows in state.items()}
            fed = [*_state_batches(kept, plan), *_record_batches(case, plan, hashes, entries=own, size=way.batch)]
            _collect(done, replay_bucket(iter(fed), plan), first=chunk.start)
    return done


def _state_before(done: Replayed, name: str, first: int) -> list[Row]:
    return [row for row in done.rows.get(name, ()) if row["slice_no"] == first - 1]


def _owner(row: Row, plan: BucketPlan) -> int:
    """Return the bucket of a row's key."""
    return sum(map(ord, "/".join(str(row[name]) for name in plan.keys))) % plan.buckets


def _time(case: Case, entries: Sequence[Entry], chunk: range, done: Replayed) -> ChunkTime:
    """Walk along the chunk's records; the driver of time comes from the rows of `watermarks`."""
    run = case.engine
    first_ms = slice_start_ms(chunk.start) if run.needs_clock else MIN_TIME_MS
    timeline = Timeline(run.time.driver(), clock_ms=first_ms)
    if done.sources:
        timeline.restore([row._replace(details=json.loads(json.dumps(row.details))) for row in done.sources[-1]])
    marks = [row.watermark_ms for row in timeline.snapshot() if row.source == ALL_SOURCES]
    beginning_ms = marks[0] if marks and done.sources else None
    passed = TimePass(case, timeline)
    for number in chunk:
        for entry in entries:
            if entry.place[0] == number and entry.problem is None:
                passed.arrive(entry)
        timeline.end_slice(slice_start_ms(number) + HOUR_MS if run.needs_clock else MIN_TIME_MS)
        done.sources.append(timeline.snapshot())
    return ChunkTime(
        steps=_steps(timeline, entries),
        beginning=Beginning(
            watermark_ms=MIN_TIME_MS if beginning_ms is None else beginning_ms,
            clock_ms=first_ms,
            first_arrival_ms=timeline.first_arrival_ms if run.needs_clock else None,
        ),
        after=(),
        clamped=(),
    )


def _steps(timeline: Timeline, entries: Sequence[Entry]) -> Steps:
    sequence, due_ms, clock_ms, watermark_ms = columns_of(timeline.steps)
    places = {entry.sequence: entry.place for entry in entries}
    first = entries[0].place if entries else (0, 0)
    located = [places.get(one, first) for one in sequence.tolist()]
    return Steps(
        sequence=sequence,
        slice_start_ms=np.array([slice_start_ms(number) for number, _ in located], dtype=np.int64),
        rank=np.array([rank for _, rank in located], dtype=np.int64),
        due_ms=due_ms,
        clock_ms=clock_ms,
        watermark_ms=watermark_ms,
        slice_ends=tuple(timeline.slice_ends),
    )


def _plan(
    case: Case, written: ChunkTables, chunk: range, *, time: ChunkTime, entries: Sequence[Entry], buckets: int
) -> BucketPlan:
    ranges, end = [], 1 << 62
    for number in reversed(chunk):
        start_ms = slice_start_ms(number)
        ranges.append(
            SliceRange(slice_no=number - chunk.start, start_ms=start_ms, end_ms=start_ms + HOUR_MS, end_sequence=end)
        )
        end = next((entry.sequence for entry in entries if entry.place[0] == number), end)
    read: Any = SimpleNamespace(slices=[], ranges=tuple(reversed(ranges)))
    return replace(plan_buckets(case.pipeline, written, read, time=time), buckets=buckets, tasks=buckets)


def _state_batches(state: Mapping[str, Sequence[Row]], plan: BucketPlan) -> Iterator[pa.RecordBatch]:
    """Yield one bucket's part of the checkpoint: windows, timers, the user's state."""
    for kind, name in STATE_KINDS.items():
        if rows := state[name]:
            columns = plan.table(name).emitted_columns()
            plain = {one: columns[one] for one in columns if one not in plan.keys}
            structs = [{one: row[one] for one in plain} for row in rows]
            keys = {f"k{place}": _column([row[key] for row in rows], key) for place, key in enumerate(plan.keys)}
            kinds = pa.array([FEED_KINDS[kind]] * len(rows), pa.int32())
            yield pa.RecordBatch.from_pydict({"kind": kinds, kind: pa.array(structs, arrow_struct(plain)), **keys})


def _record_batches(
    case: Case, plan: BucketPlan, hashes: Hashes, *, entries: Sequence[Entry], size: int
) -> Iterator[pa.RecordBatch]:
    """Yield one bucket's records in log order."""
    first = (plan.slices[0].start_ms - slice_start_ms(0)) // HOUR_MS
    for start in range(0, len(entries), size):
        batch = entries[start : start + size]
        columns: dict[str, Any] = {
            "kind": pa.array([FEED_KINDS["record"]] * len(batch), pa.int32()),
            "sequence": pa.array([entry.sequence for entry in batch], pa.int64()),
            "slice_no": pa.array([entry.place[0] - first for entry in batch], pa.int32()),
            "rank": pa.array([entry.place[1] for entry in batch], pa.int64()),
            "event_time_ms": pa.array([entry.reading.at_ms for entry in batch], pa.int64()),
            "record_hash": pa.array([hashes[entry.place] for entry in batch], pa.int64()),
        }
        for prefix, names in (("k", plan.keys), ("v", case.engine.layout.read())):
            for place, name in enumerate(names):
                columns[f"{prefix}{place}"] = _column([getattr(entry.reading, name) for entry in batch], name)
        yield pa.RecordBatch.from_pydict(columns)


def _column(values: Sequence[Any], name: str) -> pa.Array:
    """Return a column of the log as it travels: a negative zero is a zero."""
    plain = [0.0 if value == 0 and isinstance(value, float) else value for value in values]
    return pa.array(plain, arrow_type(parse_type(COLUMNS[name])))


def _collect(done: Replayed, result: Iterator[pa.RecordBatch], *, first: int) -> None:
    for batch in result:
        tag = batch.column("tag")[0].as_py()  # a batch holds rows of one table
        for number, values in zip(batch.column("slice_no").to_pylist(), batch.column(tag).to_pylist(), strict=True):
            if tag == tables.TALLIES and number == BEFORE:  # about the checkpoint that was read, not about a slice
                assert values["equation"] != DAMAGED, f"the checkpoint before slice {first}: {values['term']}"
            elif tag == tables.TALLIES:
                ids = done.tallies.setdefault((number + first, values["equation"], values["term"]), IdSum())
                ids.merge(IdSum(values["record_count"], values["id_xor"], values["id_sum"]))
            else:
                done.rows.setdefault(tag, []).append({"slice_no": number + first, **values})
