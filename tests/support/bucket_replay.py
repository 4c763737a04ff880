"""One pipeline over a small log in this process: the grammar's engine, the tasks' own code, no Spark.

It is what a chunk of a replay does between reading the log and writing the tables: time, steps, operator, checkpoint
rows and back, output rows. So a test of a whole pipeline file takes milliseconds.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from jobs.engine.engine import Engine
from jobs.engine.window_spec import engine
from jobs.lake.store import query
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from jobs.replay.equations import READ, Audit
from windowlib.bounds import MIN_TIME_MS
from windowlib.records import tables
from windowlib.records.column_types import parse_type, struct_type
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.arrow import arrow_type
from windowlib.spark.bucket import FEED_KINDS, BucketPlan, SliceRange, replay_bucket
from windowlib.spark.log_order import BlockSlice, Ranks
from windowlib.spark.restored import DAMAGED
from windowlib.spark.steps import Beginning, Steps, columns_of
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow, Timeline

Row = dict[str, Any]
ATTEMPT: Final = "a" * 32
_STATE_KINDS: Final = {"window": tables.WINDOW_STATE, "timer": tables.TIMERS, "user": tables.USER_STATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """The records of one slice in log order; each a mapping from column to value."""

    start_ms: int
    end_ms: int
    records: Sequence[Mapping[str, Any]]

    @property
    def slice_id(self) -> str:
        """A text that sorts as the slices do."""
        return f"{self.start_ms:020d}"


@dataclass(slots=True)
class Replayed:
    """The committed rows by table; each has its `slice_id`."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    arrow: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))

    def sorted(self, table: str) -> list[Row]:
        """Rows of a table in a fixed order, without what only says where they stand."""
        coordinates = {"fired_rank", "rank", tables.ROW_CHECK}
        rows = [{name: value for name, value in row.items() if name not in coordinates} for row in self.rows[table]]
        return sorted(rows, key=repr)

    def audited(self, root: Path, log: Sequence[LogSlice]) -> None:
        """Commit the rows to Delta tables below `root`, and let the audit of every replay close its equations."""
        for name, parts in self.arrow.items():
            scanned = [_read_tallies(log, parts[0].schema)] if name == tables.TALLIES else []
            rows = pa.concat_tables([*parts, *scanned])
            write_deltalake(
                root / name, rows.append_column("attempt_id", pa.array([ATTEMPT] * rows.num_rows, pa.string()))
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
        """What the published view shows of these rows, by the SQL that readers use."""
        parts = self.arrow[tables.WINDOW_OUTPUTS]
        if not parts:
            return []
        view = PublishedView(keys=pipeline.log.key_columns, columns=columns, all_panes=all_panes)
        found = query({"panes": pa.concat_tables(parts)}, published_sql(view, relation="panes", quote=quote_duckdb))
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


@dataclass(slots=True, kw_only=True)
class _Chain:
    """What one chunk leaves for the next."""

    time: list[SourceRow] = field(default_factory=list)
    state: dict[str, pa.Table] = field(default_factory=dict)


def replay_in_process(
    pipeline: Pipeline,
    columns: Mapping[str, str],
    log: Sequence[LogSlice],
    *,
    chunks: Sequence[int] | None = None,
    changed: Mapping[str, Any] | None = None,
) -> Replayed:
    """Replay a log.

    Args:
        pipeline: event and arrival time are columns in ms.
        columns: the log's columns and their Spark types.
        log: its slices.
        chunks: how many slices each chunk has; by default all of them are one.
        changed: fields of the BucketPlan to replace, such as thresholds.
    """
    run = engine(pipeline, columns)
    chain, replayed, start = _Chain(), Replayed(), 0
    for size in chunks or [len(log)]:
        _chunk(pipeline, columns, run, log[start : start + size], chain=chain, into=replayed, changed=changed or {})
        start += size
    assert start == len(log), "the chunks are the log"
    return replayed


def _chunk(
    pipeline: Pipeline,
    columns: Mapping[str, str],
    run: Engine,
    log: Sequence[LogSlice],
    *,
    chain: _Chain,
    into: Replayed,
    changed: Mapping[str, Any],
) -> None:
    emitted = _tables(pipeline, columns, run)
    ends = np.cumsum([len(one.records) for one in log]).tolist()
    slices = tuple(
        SliceRange(slice_no=number, start_ms=one.start_ms, end_ms=one.end_ms, end_sequence=end)
        for number, (one, end) in enumerate(zip(log, ends, strict=True))
    )
    steps, beginning = _time(pipeline, run, log, slices, chain=chain)
    fields = {
        "spec": run.operator,
        "layout": run.layout,
        "keys": {name: columns[name] for name in pipeline.log.key_columns},
        "inputs": {name: columns[name] for name in run.layout.read()},
        "outputs": tuple(run.outputs),
        "side_outputs": {tag: tuple(named) for tag, named in run.side_outputs.items()},
        "accumulators": run.accumulators,
        "last": tuple(run.outputs) if run.keeps_last else (),
        "slices": slices,
        "steps": steps,
        "beginning": beginning,
        "max_parallelism": pipeline.max_parallelism,
        "tables": emitted,
        "buckets": 1,
        "tasks": 1,
    }
    plan = BucketPlan(**{**fields, **changed})
    batches = [*_state_batches(plan, chain), *_record_batches(pipeline, plan, log)]
    result = list(replay_bucket(iter(batches), plan))
    assert not _damage(result), "the checkpoint is what the chunk before has left"
    chain.state = {}
    for table in emitted:
        for number, one in enumerate(log):
            rows = _rows_of(result, table, number)
            into.arrow[table.name].append(
                rows.append_column("slice_id", pa.array([one.slice_id] * rows.num_rows, pa.string()))
            )
            into.rows[table.name] += into.arrow[table.name][-1].to_pylist()
            if number == len(log) - 1 and table.name in _STATE_KINDS.values():
                chain.state[table.name] = rows


def _tables(pipeline: Pipeline, columns: Mapping[str, str], run: Engine) -> tuple[Table, ...]:
    keys = {name: columns[name] for name in pipeline.log.key_columns}
    record = struct_type({})
    slim = [one.slim() for one in (tables.late_records(record), tables.unassigned_records(record))]
    return (
        tables.window_outputs(keys, run.outputs),
        *slim,
        *(tables.side_outputs(tag, keys, named) for tag, named in run.side_outputs.items()),
        tables.window_state(keys, run.accumulators, run.outputs if run.keeps_last else None),
        *((tables.user_state(keys),) if run.keeps_user_state else ()),
        tables.timers(keys),
        tables.tallies(),
    )


def _time(
    pipeline: Pipeline, run: Engine, log: Sequence[LogSlice], slices: Sequence[SliceRange], *, chain: _Chain
) -> tuple[Steps, Beginning]:
    """The sequential pass of jobs.replay.chunk_time, over records that are all valid."""
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
    moved, due, clock, watermark = columns_of(timeline.steps)
    firsts = [0, *(one.end_sequence for one in slices)]
    ranks = Ranks(tuple(BlockSlice(0, n, firsts[n], len(one.records)) for n, one in enumerate(log) if one.records))
    slice_no, rank = ranks.locate(moved)
    steps = Steps(
        sequence=moved,
        slice_start_ms=np.array([one.start_ms for one in log], dtype=np.int64)[slice_no],
        rank=rank,
        due_ms=due,
        clock_ms=clock,
        watermark_ms=watermark,
        slice_ends=tuple(timeline.slice_ends),
    )
    return steps, Beginning(
        watermark_ms=MIN_TIME_MS if before_ms is None else before_ms,
        clock_ms=first_ms,
        first_arrival_ms=timeline.first_arrival_ms if run.needs_clock else None,
    )


def _record_ids(one: LogSlice) -> list[int]:
    """The id of each record: a hash of where it stands."""
    texts = [repr((one.slice_id, rank)).encode() for rank in range(len(one.records))]
    return [int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True) for text in texts]


def _read_tallies(log: Sequence[LogSlice], schema: pa.Schema) -> pa.Table:
    """What the scan of the log says: the ids of all records of each slice."""
    rows = []
    for one in log:
        ids = IdSum()
        for identity in _record_ids(one):
            ids.add(identity)
        parts = dict(zip(("record_count", "id_xor", "id_sum"), ids.as_row(), strict=True))
        rows.append({"equation": "fates", "term": READ, **parts, "row_id": 0, "slice_id": one.slice_id})
    return pa.Table.from_pylist(rows, schema=schema)


def _record_batches(pipeline: Pipeline, plan: BucketPlan, log: Sequence[LogSlice]) -> list[pa.RecordBatch]:
    records = [(number, rank, one) for number, part in enumerate(log) for rank, one in enumerate(part.records)]
    if not records:
        return []
    rows = [record for _, _, record in records]
    kinds = {**plan.keys, **plan.inputs}
    named = {f"k{i}": name for i, name in enumerate(plan.keys)}
    named |= {f"v{i}": name for i, name in enumerate(plan.layout.read())}
    identities = [identity for one in log for identity in _record_ids(one)]
    data = {
        "kind": pa.array([FEED_KINDS["record"]] * len(rows), pa.int32()),
        "sequence": pa.array(range(len(rows)), pa.int64()),
        "slice_no": pa.array([number for number, _, _ in records], pa.int32()),
        "rank": pa.array([rank for _, rank, _ in records], pa.int64()),
        "event_time_ms": pa.array([one[pipeline.log.event_time.column] for one in rows], pa.int64()),
        "record_hash": pa.array(identities, pa.int64()),
        **{k: pa.array([one[name] for one in rows], arrow_type(parse_type(kinds[name]))) for k, name in named.items()},
    }
    return [pa.RecordBatch.from_pydict(data)]


def _state_batches(plan: BucketPlan, chain: _Chain) -> list[pa.RecordBatch]:
    found = []
    for kind, name in _STATE_KINDS.items():
        rows = chain.state.get(name)
        if rows is None or not rows.num_rows:
            continue
        rest = [one for one in plan.table(name).emitted_columns() if one not in plan.keys]
        columns = {one: rows[one].combine_chunks() for one in rest}
        data = {
            "kind": pa.array([FEED_KINDS[kind]] * rows.num_rows, pa.int32()),
            **{f"k{i}": rows[one].combine_chunks() for i, one in enumerate(plan.keys)},
            kind: pa.StructArray.from_arrays(list(columns.values()), names=list(columns)),
        }
        found.append(pa.RecordBatch.from_pydict(data))
    return found


def _damage(result: Sequence[pa.RecordBatch]) -> list[Row]:
    """What the task found wrong with its checkpoint."""
    tallied = [row for batch in result for row in batch.to_pylist() if row["tag"] == tables.TALLIES]
    return [row for row in tallied if row[tables.TALLIES]["equation"] == DAMAGED]


def _rows_of(result: Sequence[pa.RecordBatch], table: Table, slice_no: int) -> pa.Table:
    """The rows of a table and slice; every batch of a tagged result has one tag."""
    parts = [batch.slice(0, 0) for batch in result[:1]]
    tagged = [batch for batch in result if batch["tag"][0].as_py() == table.name]
    parts += [batch.filter(pc.equal(batch["slice_no"], slice_no)) for batch in tagged]
    names = list(table.emitted_columns())
    return pa.concat_tables([pa.Table.from_arrays(part[table.name].flatten(), names=names) for part in parts])
