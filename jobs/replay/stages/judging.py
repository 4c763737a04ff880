"""Reads blocks of the log and judges each record: its hash and times, and whether it is valid."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from jobs.expressions.derived_columns import Derivation
from jobs.expressions.evaluation import Derived, derive
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import LogColumns
from jobs.replay.stages.combine import PartialPlan
from jobs.replay.stages.duplicates import Duplicates, Placed
from windowlib.columnar import instants
from windowlib.columnar.instants import Codes
from windowlib.columnar.log_reading import LogReading
from windowlib.columnar.record_hashes import record_hashes
from windowlib.columnar.watermark_steps import Int64s
from windowlib.records.column_types import spell_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What every scan task gets besides its blocks.

    `inputs` are the columns that the executor reads. The pass over time reads the column `source`, if there is one, and
    the columns that its driver asked for; `asked` is None if time needs no pass. `slice_starts_ms` has the start of
    each slice. With `needs_commits`, the commit of a record is content. `has_short_ranks`: each rank fits 32 bits.
    `key_bits` is the size of the sets of keys (`KeySet`), or None if nobody asks for the keys. `feeds`: the records are
    passed on to windows, and not only counted. `duplicates` are those of the chunk; None if the pipeline keeps all.
    With `columns`, a scan reads only these and finds out about times only, no ids. `gap_ms` asks for the groups of
    event times that are at most so far apart (`TimeGroups`).
    """

    log: LogColumns
    reading: LogReading
    derivation: Derivation
    inputs: tuple[str, ...]
    source: str | None
    asked: tuple[str, ...] | None
    slice_starts_ms: tuple[int, ...]
    needs_commits: bool
    has_short_ranks: bool
    directory: str
    key_bits: int | None = None
    partials: PartialPlan | None = None
    buckets: int = 1
    feeds: bool = False
    duplicates: Duplicates | None = None
    columns: tuple[str, ...] | None = None
    gap_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch of the log with what was read from it. The slice is the block's, and `run` the number of a run of it.

    In `rows`, texts that are not UTF-8 are null. Its last columns are the derived ones. `problems` is
    `instants.FILTERED` for a record that the pipeline's filter does not keep, and `instants.DUPLICATE` for a duplicate.
    `earlier` has the columns of `duplicate_records` about the earlier record, for each duplicate.
    """

    rows: pa.RecordBatch
    hashes: Int64s
    event_time_ms: Int64s
    arrival_ms: "Int64s | None"
    problems: Codes
    sequence: Int64s
    rank: Int64s
    commit: int
    run: int = 0
    earlier: pa.RecordBatch | None = None

    def valid(self) -> "np.ndarray[tuple[int], np.dtype[np.intp]] | slice":
        """Return the indexes of the valid records; a slice if all are valid."""
        return np.flatnonzero(self.problems == 0) if self.problems.any() else slice(None)


def judged_batches(block: Block, plan: ScanPlan, *, columns: Sequence[str] | None = None) -> Iterator[Judged]:
    """Yield the batches of a block, each record with its hash, times and problem.

    With `columns`, only these are read: they must be those that decide about a record. The hashes are then 0.
    Raises LogError: the file cannot be read.
    """
    commits = [plan.slice_starts_ms[block.slice_no] + part.commit for part in block.in_log_order()]
    duplicates = None if plan.duplicates is None else plan.duplicates.of_block(block)
    for run, first, stored in plan.log.in_ranks(block, columns):
        rank = np.arange(first, first + stored.num_rows, dtype=np.int64)
        reading = plan.reading
        rows, problems = instants.decodable(stored)
        if plan.derivation:
            derived = derive(rows, plan.derivation)
            rows = derived.rows
            problems += derived_problems(derived)
        time = instants.read_instants(rows.column(reading.event_time.name), reading.event_time.unit)
        problems += [instants.key_problems(rows.column(name)) for name in reading.key]
        problems.append(time.problems)
        arrival_ms = None
        if reading.arrival_time is not None:
            arrival = instants.read_instants(rows.column(reading.arrival_time.name), reading.arrival_time.unit)
            problems.append(instants.arrival_problems(arrival))
            arrival_ms = arrival.ms
        if reading.gap is not None:
            gap = instants.read_instants(rows.column(reading.gap.name), reading.gap.unit)
            problems.append(instants.gap_problems(gap))
        judged = Judged(
            rows=rows,
            hashes=np.zeros(stored.num_rows, dtype=np.int64)
            if columns is not None
            else record_hashes(stored, reading.widened, constant=block.partition),
            event_time_ms=time.ms,
            arrival_ms=arrival_ms,
            problems=instants.first_problems(*problems, instants.range_problems(time)),
            sequence=block.sequence - block.rank + rank,
            rank=rank,
            commit=commits[run],
            run=run,
        )
        yield judged if duplicates is None else _marked(judged, duplicates)


def deciding_columns(plan: ScanPlan, besides: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the columns of the log that decide whether a record is valid, and when it happened.

    All texts are among them, because a text that is not UTF-8 makes its record invalid.
    """
    reading = plan.reading
    times = (reading.event_time, reading.arrival_time, reading.gap)
    named = {*besides, *reading.key, *(time.name for time in times if time is not None)}
    named |= {leaf.column for leaf in plan.derivation.leaves.values()}
    return tuple(name for name, node in plan.log.nodes.items() if name in named or "string" in spell_type(node))


def _marked(judged: Judged, duplicates: Placed) -> Judged:
    if not len(judged.rank):  # the batch has no record of this slice
        return judged
    first = int(judged.rank[0])
    start, end = np.searchsorted(duplicates.rank, (first, first + len(judged.rank)))
    if start == end:
        return judged
    problems = judged.problems.copy()
    problems[duplicates.rank[start:end] - first] = instants.DUPLICATE
    earlier = pa.RecordBatch.from_pydict(
        {
            "earlier_slice_id": duplicates.earlier_slice_id.slice(start, end - start),
            "earlier_rank": pa.array(duplicates.earlier_rank[start:end]),
        }
    )
    return replace(judged, problems=problems, earlier=earlier)


def derived_problems(derived: Derived) -> list[Codes]:
    """Return which records the filter does not keep, and for which an expression failed."""
    failed = instants.expression_problems([*derived.failed.values()], derived.rows.num_rows)
    if derived.kept is None:
        return [failed]
    return [np.where(derived.kept, 0, instants.FILTERED).astype(np.int8), failed]
