"""One pipeline over a small log in this process: the grammar's engine, the tasks' own code, no Spark.

It does what a chunk of a replay does between reading the log and writing the tables: time, steps, operator, checkpoint
rows and back, output rows. A test of a whole pipeline file takes milliseconds. The records are all valid.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from jobs.engine.engine import Engine
from jobs.lake.arrow_sql import query
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from jobs.replay.chunk.bucket_plan import ChunkTables
from jobs.replay.computed import full_checkpoints, stored_sums
from jobs.replay.equations import READ, Audit
from tests.support.bucket_feed import (
    BucketResult,
    FedRecord,
    Row,
    beginning_of,
    bucket_plan,
    run_bucket,
    schema_of,
    steps_of,
    tables_of,
)
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.plan import CheckpointRules
from windowlib.columnar.restored import DAMAGED
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps
from windowlib.records import tables
from windowlib.records.named_rows import tally_content
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow, Timeline

if TYPE_CHECKING:
    from jobs.replay.chunk.tallies import Sums

ATTEMPT: Final = "a" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The records of one slice in log order; each a mapping from column to value."""

    start_ms: int
    end_ms: int
    records: Sequence[Mapping[str, Any]]

    @property
    def slice_id(self) -> str:
        """Return a text that sorts as the slices do."""
        return f"{self.start_ms:020d}"


@dataclass(slots=True)
class Replayed:
    """The committed rows by table; each has its `slice_id`.

    `time` and `state` are the state after the last chunk, from which the next chunk starts. `times` has the time after
    each chunk.
    """

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    arrow: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    time: list[SourceRow] = field(default_factory=list)
    times: list[list[SourceRow]] = field(default_factory=list)
    state: dict[str, list[Row]] = field(default_factory=dict)

    def sorted(self, table: str) -> list[Row]:
        """Return the rows of a table in a fixed order, without the columns that are coordinates."""
        coordinates = {"fired_rank", "rank", tables.ROW_CHECK}
        rows = [{name: value for name, value in row.items() if name not in coordinates} for row in self.rows[table]]
        return sorted(rows, key=repr)

    def audited(self, root: Path, log: Sequence[LogSlice]) -> None:
        """Commit the rows to Delta tables below `root`, and run the audit of every replay on them."""
        for name, parts in self.arrow.items():
            scanned = [_read_tallies(log, parts[0].schema)] if name == tables.TALLIES else []
            rows = pa.concat_tables([*parts, *scanned])
            write_deltalake(
                root / name,
                rows.append_column("attempt_id", pa.array([ATTEMPT] * rows.num_rows, pa.string())),
                partition_by=list(tables.PARTITION_COLUMNS),
            )
        Audit(
            table_uri=lambda name: str(root / name),
            slice_ids=tuple(one.slice_id for one in log),
            attempt_id=ATTEMPT,
            before=None,
        ).close()

    def published(
        self, pipeline: Pipeline, columns: Sequence[str], *, all_panes: bool = False
    ) -> list[tuple[Any, ...]]:
        """Return what the published view shows of these rows, by the SQL that readers use."""
        parts = self.arrow[tables.WINDOW_OUTPUTS]
        if not parts:
            return []
        view = PublishedView(keys=pipeline.log.key_columns, columns=columns, all_panes=all_panes)
        found = query({"panes": pa.concat_tables(parts)}, published_sql(view, relation="panes", quote=quote_duckdb))
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def replay_in_process(
    pipeline: Pipeline,
    columns: Mapping[str, str],
    log: Sequence[LogSlice],
    *,
    chunks: Sequence[int] | None = None,
    changed: Mapping[str, Any] | None = None,
    time: Sequence[SourceRow] = (),
) -> Replayed:
    """Replay a log.

    Args:
        pipeline: event and arrival time are columns in ms.
        columns: the log's columns and their Spark types.
        log: its slices.
        chunks: how many slices each chunk has; by default all of them are one.
        changed: fields of the BucketPlan to replace, for example thresholds.
        time: the clock and the watermarks before the log; by default it begins here.
    """
    written, replayed, start = tables_of(pipeline, columns), Replayed(time=[*time]), 0
    for size in chunks or [len(log)]:
        _chunk(pipeline, written, log[start : start + size], into=replayed, changed=changed or {})
        replayed.times.append(replayed.time)
        start += size
    assert start == len(log), "the chunks are the log"
    return replayed


def _chunk(
    pipeline: Pipeline, written: ChunkTables, log: Sequence[LogSlice], *, into: Replayed, changed: Mapping[str, Any]
) -> None:
    """Replay one chunk, from the state that the chunk before left in `into`."""
    ends = np.cumsum([len(one.records) for one in log]).tolist()
    ranges = [
        SliceRange(slice_no=number, start_ms=one.start_ms, end_ms=one.end_ms, end_sequence=end)
        for number, (one, end) in enumerate(zip(log, ends, strict=True))
    ]
    steps, beginning = _time(pipeline, written.engine, log, chain=into, ranges=ranges)
    # Every checkpoint is whole; tests/windowlib/execution has those that are stored as changes.
    rules = CheckpointRules(full_slices=frozenset(range(len(log))))
    plan = replace(bucket_plan(pipeline, written, ranges, steps=steps, beginning=beginning), checkpoints=rules)
    plan = replace(plan, **changed)
    result = run_bucket(plan, into.state, _fed_records(pipeline, log))
    assert not any(equation == DAMAGED for _, equation, _ in result.tallies), (
        "the checkpoint is what the last chunk left"
    )
    for table in plan.tables:
        if table.name == tables.STATE_REMOVALS:
            continue
        for number, one in enumerate(log):
            rows = _rows_of(result, table, number)
            into.arrow[table.name].append(
                rows.append_column("slice_id", pa.array([one.slice_id] * rows.num_rows, pa.string()))
            )
            into.rows[table.name] += into.arrow[table.name][-1].to_pylist()
        if table.name in tables.INCREMENTAL_TABLES:
            into.state[table.name] = into.arrow[table.name][-1].to_pylist()


def _time(
    pipeline: Pipeline, run: Engine, log: Sequence[LogSlice], *, chain: Replayed, ranges: Sequence[SliceRange]
) -> tuple[Steps, Beginning]:
    """The sequential pass of jobs.replay.chunk.time_steps, over records that are all valid."""
    first_ms = log[0].start_ms if run.needs_clock else MIN_TIME_MS
    timeline = Timeline(run.time.driver(), clock_ms=first_ms)
    if chain.time:
        timeline.restore(chain.time)
    before_ms = next((row.watermark_ms for row in timeline.snapshot() if row.source == ALL_SOURCES), None)
    sequence, clock_ms = 0, first_ms
    for one in log:
        for record in one.records:
            if run.needs_clock and pipeline.log.arrival_time is not None:
                inside_ms = min(max(record[pipeline.log.arrival_time.column], one.start_ms), one.end_ms - 1)
                clock_ms = max(clock_ms, inside_ms)
            asked = {name: record[name] for name in run.time.columns}
            source = str(record[run.time.source]) if run.time.source else ""
            at_ms = record[pipeline.log.event_time.column]
            timeline.arrive(Arrival(sequence, at_ms, clock_ms, source, asked, one.start_ms))
            sequence += 1
        timeline.end_slice(one.end_ms if run.needs_clock else MIN_TIME_MS)
    chain.time = timeline.snapshot()
    beginning = beginning_of(timeline, watermark_ms=before_ms, clock_ms=first_ms, needs_clock=run.needs_clock)
    return steps_of(timeline, ranges), beginning


def _record_ids(one: LogSlice) -> list[int]:
    """Return the id of each record: a hash of its place in the log."""
    texts = [repr((one.slice_id, rank)).encode() for rank in range(len(one.records))]
    return [int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True) for text in texts]


def _read_tallies(log: Sequence[LogSlice], schema: pa.Schema) -> pa.Table:
    """Return the tallies that the scan of the log writes: the ids of all records of each slice."""
    rows = []
    for one in log:
        ids = IdSum()
        for identity in _record_ids(one):
            ids.add(identity)
        parts = dict(zip(("record_count", "id_xor", "id_sum"), ids.as_row(), strict=True))
        rows.append({"equation": "fates", "term": READ, **parts, "row_id": 0, "slice_id": one.slice_id})
    return pa.Table.from_pylist(rows, schema=schema)


def _fed_records(pipeline: Pipeline, log: Sequence[LogSlice]) -> list[FedRecord]:
    at = pipeline.log.event_time.column
    placed = [
        (number, rank, record, identity)
        for number, one in enumerate(log)
        for rank, (record, identity) in enumerate(zip(one.records, _record_ids(one), strict=True))
    ]
    return [
        FedRecord(sequence, number, rank, record[at], identity, record)
        for sequence, (number, rank, record, identity) in enumerate(placed)
    ]


def _stored_tallies(result: BucketResult, table: Table, slice_no: int) -> pa.Table:
    """Return the tallies of a slice as a replay stores them."""
    counted: Sums = {**result.tallies}
    assert all(full_checkpoints(counted, slice_no + 1)), "every slice emits its whole state"
    stored = stored_sums(counted, (True,) * (1 + max(number for number, *_ in counted)))
    rows = [
        tally_content(equation, term, ids) | {tables.ROW_ID: 0}
        for (number, equation, term), ids in stored.items()
        if number == slice_no
    ]
    return pa.Table.from_pylist(rows, schema=schema_of(table))


def _rows_of(result: BucketResult, table: Table, slice_no: int) -> pa.Table:
    """Return the rows of a table and slice."""
    if table.name == tables.TALLIES:
        return _stored_tallies(result, table, slice_no)
    schema = schema_of(table)
    rows = result.rows.get((slice_no, table.name))
    return schema.empty_table() if rows is None else rows.select(schema.names)
