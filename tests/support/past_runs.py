"""Random histories of runs with their tables in memory, for suites that are made from or tried on the past."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.arrow_slices import ArrowSlices
from expectations.suites import LATE_RECORDS, RUN
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.checked_tables import run_rows
from jobs.review.suites.history import PastTables, RunHistory
from jobs.runs import Counts, LogCoordinates, RunResult, Slice, Verdict

DAY = timedelta(days=1)
START = datetime(2024, 1, 1, tzinfo=UTC)
OUTPUTS = pa.schema(
    [
        ("key", pa.string()),
        ("shop", pa.int64()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_end", pa.timestamp("us", tz="UTC")),
        ("pane_index", pa.int64()),
        ("kind", pa.string()),
        ("record_count", pa.int64()),
        ("total", pa.int64()),
        ("mean_price", pa.float64()),
        ("slice_id", pa.string()),
    ]
)
LATE = pa.schema([("late_by_ms", pa.int64()), ("slice_id", pa.string())])
PIPELINE = """
pipeline: sales
log:
  table: event_logs/sales
  key: [key, shop]
  event_time: {column: at_ms, unit: ms}
  slice: {by: day}
watermark: {kind: ascending}
windows: {tumbling: {size: 1d}}
aggregates: {total: {sum: amount}, mean_price: {avg: price}}
"""


def sales() -> Pipeline:
    return parse_pipeline(PIPELINE, source="sales.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTables(PastTables):
    """Past tables whose rows are in memory."""

    outputs: pa.Table = field(default_factory=OUTPUTS.empty_table)
    late: pa.Table = field(default_factory=LATE.empty_table)

    def table(self, name: str, block: Sequence[StagedRun], columns: Collection[str] | None) -> ArrowSlices:
        if name == RUN:
            results = [run.result for run in block]
            return run_rows([one.slice for one in results], [(one.counts, one.watermark_ms) for one in results])
        rows = self.late if name == LATE_RECORDS else self.outputs
        ids = [run.result.slice.slice_id for run in block]
        own = rows.filter(pa.array([one in ids for one in rows["slice_id"].to_pylist()], pa.bool_()))
        numbers = np.array([ids.index(one) for one in own["slice_id"].to_pylist()], dtype=np.int64)
        names = own.column_names if columns is None else sorted({*columns, "slice_id"})
        return ArrowSlices(own.select(names), numbers, len(block))


def staged(number: int, counts: Counts, *, watermark_ms: int | None) -> StagedRun:
    start = int((START + number * DAY).timestamp() * 1_000)
    one = Slice(slice_id=f"{START + number * DAY:%Y-%m-%d}", start_ms=start, end_ms=start + 86_400_000)
    result = RunResult(
        slice=one, run_id=f"{number:032x}", attempt_id=f"a{number}", spec_fingerprint="s" * 64, input_fingerprint="i",
        state_before="b", state_after="a", digests={}, counts=counts, watermark_ms=watermark_ms,
        log=LogCoordinates(table_id="t", version=1, commits=(), files=1, records=counts.read, bytes=1), seconds=1.0,
        verdict=Verdict.PASS,
    )  # fmt: skip
    return StagedRun(
        result=result, request_id="r", seq=number, at_ms=0, is_chain_start=False, checks_attempt_id=f"a{number}",
        checks_fingerprint="none",
    )  # fmt: skip


def random_past(chance: random.Random, slices: int, *, rows_max: int, rows_at_once: int) -> MemoryTables:
    """Return a random history: some columns have nulls, wild numbers or many values, some slices have no rows."""
    runs, outputs, late = [], [], []
    shape = _Shape(chance)
    for number in range(slices):
        own = [shape.row(chance, number, place) for place in range(chance.choice([0, 1, chance.randrange(rows_max)]))]
        lates = [shape.late(chance, number) for _ in range(chance.choice([0, 0, chance.randrange(4)]))]
        read = chance.randrange(50, 90) if chance.random() < 0.9 else 0
        invalid = chance.randrange(read // 4 + 1) if shape.has_invalid else 0
        assigned = read - invalid - min(len(lates), read - invalid)
        counts = Counts(
            read=read, assigned=assigned, late=read - invalid - assigned, unassigned=0, invalid=invalid, panes=len(own)
        )
        watermark = None if chance.random() < shape.no_watermark else number * 86_400_000 + chance.randrange(10**7)
        runs.append(staged(number, counts, watermark_ms=watermark))
        outputs += own
        late += lates
    return MemoryTables(
        lake=Lake(root="/nowhere"),
        view=LedgerView(version=3),
        history=RunHistory(pipeline="sales", ledger_version=3, runs=tuple(runs)),
        rows_at_once=rows_at_once,
        outputs=pa.Table.from_pylist(outputs, OUTPUTS),
        late=pa.Table.from_pylist(late, LATE),
    )


class _Shape:
    """What the rows of one history have in common."""

    def __init__(self, chance: random.Random) -> None:
        self.keys = [f"k{number}" for number in range(chance.choice([1, 3, 12, 13, 40]))]
        self.shops = chance.choice([0, 2**53 - 2, 2**60])
        self.key_nulls, self.price_nulls = chance.choice([0, 0, 0.3]), chance.choice([0, 0.2, 1])
        self.has_superseded, self.has_doubles = chance.random() < 0.3, chance.random() < 0.2
        self.totals = chance.choice([(0, 0), (5, 5), (-50, 50), (0, 10**6), (2**52, 2**54)])
        self.prices = chance.choice([[1.5], [0.1, 0.2, 0.7], [1e300, -1e300], [float("inf"), 1.0], [float("nan"), 2.0]])
        self.has_invalid, self.no_watermark = chance.random() < 0.7, chance.choice([0, 0, 0.2])
        self.late_by = chance.choice([1, 10**4, 10**8])

    def row(self, chance: random.Random, number: int, place: int) -> dict[str, Any]:
        start = START + number * DAY
        return {
            "key": None if chance.random() < self.key_nulls else chance.choice(self.keys),
            "shop": self.shops + chance.randrange(3),
            "window_start": start,
            "window_end": start + DAY,
            "pane_index": 0 if self.has_doubles else place,
            "kind": "superseded" if self.has_superseded and chance.random() < 0.5 else "result",
            "record_count": chance.randrange(1, 9),
            "total": chance.randint(*self.totals),
            "mean_price": None if chance.random() < self.price_nulls else chance.choice(self.prices) * chance.random(),
            "slice_id": f"{start:%Y-%m-%d}",
        }

    def late(self, chance: random.Random, number: int) -> dict[str, Any]:
        return {"late_by_ms": chance.randrange(1, self.late_by + 1), "slice_id": f"{START + number * DAY:%Y-%m-%d}"}


def run_row(values: Mapping[str, Any]) -> ArrowSlices:
    """Return the table `run` with one row, with these values and usual ones elsewhere."""
    counts = Counts(read=70, assigned=70, late=0, unassigned=0, invalid=0, panes=3)
    ((_, batch),) = run_rows([staged(0, counts, watermark_ms=0).result.slice], [(counts, 0)]).batches(
        sorted({"slice_id", "assigned", *values})
    )
    rows = [batch.to_pylist()[0] | values]
    return ArrowSlices(pa.Table.from_pylist(rows, batch.schema), np.zeros(1, dtype=np.int64), 1)
