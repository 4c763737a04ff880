"""A pipeline of the matrix through the tasks of a chunk, without Spark: buckets, checkpoint rows, rows of tables.

Between two chunks, the rows of the checkpoint tables are the only state.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.matrix.log import COLUMNS, HOUR_MS, HOURS
from tests.matrix.one_process import Answer, Entry, Hashes, TimePass, slice_start_ms
from tests.matrix.pipelines import Case
from tests.matrix.rows import Row
from tests.support.bucket_feed import (
    BucketResult,
    FedRecord,
    beginning_of,
    bucket_plan,
    run_bucket,
    steps_of,
    tables_of,
)
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.plan import RECORDS_PER_BLOCK, BucketPlan, CheckpointRules, ExecutorChoice
from windowlib.columnar.restored import BEFORE, DAMAGED
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.watermarks.timeline import ALL_SOURCES, SourceRow, Timeline

Tallies = dict[tuple[int, str, str], IdSum]
"""(number of the slice, equation, term) -> sum of ids."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """The results of all chunks of one way to cut the log."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    tallies: Tallies = field(default_factory=dict)
    sources: list[list[SourceRow]] = field(default_factory=list)

    def digests(self) -> dict[tuple[int, str], str]:
        """Return the digest of each slice's rows in each table."""
        return {
            (number, term): ids.digest()
            for (number, equation, term), ids in self.tallies.items()
            if equation in {"rows", "state"}
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the log is cut: the slices of each chunk, how many buckets, how many records a batch and a block have."""

    chunks: tuple[range, ...]
    buckets: int = 1
    batch: int = 1_000
    block: int = RECORDS_PER_BLOCK
    executor: ExecutorChoice = "auto"


ONE_CHUNK: Final = Way(chunks=(range(len(HOURS)),))


def replay(case: Case, answer: Answer, hashes: Hashes, way: Way) -> Replayed:
    """Replay the log chunk by chunk."""
    done = Replayed()
    for chunk in way.chunks:
        plan, fed = chunk_plan(case, answer, hashes, chunk, done)
        plan = replace(plan, buckets=way.buckets, tasks=way.buckets)
        plan = replace(plan, executor=way.executor, records_per_block=way.block)
        state = {name: state_before(done, name, chunk.start) for name in tables.INCREMENTAL_TABLES}
        for bucket in range(way.buckets):
            own = [record for record in fed if _owner(record.values, plan) == bucket]
            kept = {name: [row for row in rows if _owner(row, plan) == bucket] for name, rows in state.items()}
            _collect(done, run_bucket(plan, kept, own, size=way.batch), first=chunk.start)
    return done


def chunk_plan(
    case: Case, answer: Answer, hashes: Hashes, chunk: range, done: Replayed
) -> tuple[BucketPlan, list[FedRecord]]:
    """Return the plan of a chunk after what is `done`, with one bucket, and its records. `done` gets the times."""
    of_chunk = [entry for entry in answer.entries if entry.place[0] in chunk]
    entries = [entry._replace(sequence=number) for number, entry in enumerate(of_chunk)]
    ranges = _ranges(chunk, entries)
    steps, beginning = _time(case, entries, chunk, done, ranges=ranges)
    plan = bucket_plan(case.pipeline, tables_of(case.pipeline, COLUMNS), ranges, steps=steps, beginning=beginning)
    # Every checkpoint is whole; tests/windowlib/execution has those that are stored as changes.
    plan = replace(plan, checkpoints=CheckpointRules(full_slices=frozenset(range(len(chunk)))))
    return plan, [_fed(entry, chunk.start, hashes) for entry in entries if entry.problem is None]


def state_before(done: Replayed, name: str, first: int) -> list[Row]:
    return [row for row in done.rows.get(name, ()) if row["slice_no"] == first - 1]


def _owner(row: Mapping[str, Any], plan: BucketPlan) -> int:
    """Return the bucket of a row's key."""
    return sum(map(ord, "/".join(str(row[name]) for name in plan.keys))) % plan.buckets


def _time(
    case: Case, entries: Sequence[Entry], chunk: range, done: Replayed, *, ranges: Sequence[SliceRange]
) -> tuple[Steps, Beginning]:
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
    beginning = beginning_of(timeline, watermark_ms=beginning_ms, clock_ms=first_ms, needs_clock=run.needs_clock)
    return steps_of(timeline, ranges), beginning


def _ranges(chunk: range, entries: Sequence[Entry]) -> list[SliceRange]:
    ranges, end = [], 1 << 62
    for number in reversed(chunk):
        start_ms = slice_start_ms(number)
        ranges.append(
            SliceRange(slice_no=number - chunk.start, start_ms=start_ms, end_ms=start_ms + HOUR_MS, end_sequence=end)
        )
        end = next((entry.sequence for entry in entries if entry.place[0] == number), end)
    return ranges[::-1]


def _fed(entry: Entry, first: int, hashes: Hashes) -> FedRecord:
    (number, rank), at_ms = entry.place, entry.reading.at_ms
    assert at_ms is not None, "such a record is invalid"
    return FedRecord(entry.sequence, number - first, rank, at_ms, hashes[entry.place], entry.reading._asdict())


def _collect(done: Replayed, result: BucketResult, *, first: int) -> None:
    for (number, equation, term), ids in result.tallies.items():
        if number == BEFORE:  # about the checkpoint that was read, not about a slice
            assert equation != DAMAGED, f"the checkpoint before slice {first}: {term}"
        else:
            done.tallies.setdefault((number + first, equation, term), IdSum()).merge(ids)
    for (number, table), rows in result.rows.items():
        if table != tables.STATE_REMOVALS:
            own = done.rows.setdefault(table, [])
            own += [{"slice_no": number + first, **row} for row in rows.to_pylist()]
