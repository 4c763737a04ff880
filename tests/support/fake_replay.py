"""A replayer without Spark, for tests of everything around it: small, deterministic, honest.

It sums `amount` per key. The state after a slice is the fingerprint of that slice's total, so a change in one slice
reaches the next slice and no further: enough to see chains, early cut-off and contradictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.event_log import pin_log
from jobs.fingerprints import fingerprint, run_id, spec_fingerprint
from jobs.pipeline import parse_pipeline
from jobs.pipeline_models import Pipeline
from jobs.requests import ReplayOrder
from jobs.runs import EMPTY_STATE, CheckResult, Counts, RunResult, Slice, Verdict

SCHEMA = pa.schema(
    [("id", pa.string()), ("key", pa.string()), ("at_ms", pa.int64()), ("amount", pa.int64()), ("day", pa.date32())]
)
PIPELINE = """
pipeline: sales
log:
  table: event_logs/sales
  key: [key]
  event_time: {column: at_ms, unit: ms}
  record_id: id
  slice: {by: day}
watermark: {kind: ascending}
windows: {tumbling: {size: 1d}}
aggregates: {total: {sum: amount}}
schedule: "0 6 * * *"
"""
FAILS = 1_000  # a slice whose amounts add up to this or more fails its check
BREAKS = 1_000_000  # ... or this: the check itself breaks


def sales(text: str = PIPELINE) -> Pipeline:
    return parse_pipeline(text, source="sales.yaml")


def day_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def append_day(lake: Path, day: str, amounts: dict[str, int]) -> None:
    """Append one commit to the log: one record per key."""
    rows = [
        {
            "id": f"{day}/{key}/{amount}",
            "key": key,
            "at_ms": day_ms(day),
            "amount": amount,
            "day": date.fromisoformat(day),
        }
        for key, amount in amounts.items()
    ]
    write_deltalake(
        lake / "event_logs" / "sales", pa.Table.from_pylist(rows, schema=SCHEMA), mode="append", partition_by=["day"]
    )


def write_outputs(order: ReplayOrder, rows: Sequence[dict[str, object]]) -> None:
    """Append rows to window_outputs, with the columns that readers need."""
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("window_start", pa.timestamp("us", tz="UTC")),
            ("window_end", pa.timestamp("us", tz="UTC")),
            ("pane_index", pa.int32()),
            ("timing", pa.string()),
            ("is_first", pa.bool_()),
            ("is_last", pa.bool_()),
            ("mode", pa.string()),
            ("kind", pa.string()),
            ("record_count", pa.int64()),
            ("total", pa.int64()),
            ("watermark_ms", pa.int64()),
            ("fired_rank", pa.int64()),
            ("row_id", pa.int64()),
            ("slice_id", pa.string()),
            ("attempt_id", pa.string()),
            ("run_id", pa.string()),
        ]
    )
    table = pa.Table.from_pylist(list(rows), schema=schema)
    uri = order.lake.table(order.pipeline.name, "window_outputs")
    write_deltalake(uri, table, mode="append", partition_by=["slice_id", "attempt_id"])


@dataclass
class FakeReplayer:
    """Counts its calls; `before_results` may raise, or change what is returned."""

    orders: list[ReplayOrder] = field(default_factory=list)
    change: Callable[[RunResult], RunResult] = field(default=lambda result: result)
    on_order: Callable[[ReplayOrder], None] = field(default=lambda _order: None)

    @property
    def replayed(self) -> list[list[str]]:
        return [[one.slice_id for one in order.slices] for order in self.orders]

    def __call__(self, order: ReplayOrder) -> list[RunResult]:
        self.orders.append(order)
        self.on_order(order)
        by, zone = order.pipeline.log.slice.by, order.pipeline.log.slice.zone
        uri, known = order.lake.event_log(order.pipeline), order.known_log
        pinned = pin_log(uri, slice_column=by, zone=zone, slices=order.slices, known=known)
        records = DeltaTable(order.lake.event_log(order.pipeline)).to_pyarrow_table().to_pylist()
        state = order.before.fingerprint if order.before else EMPTY_STATE
        results = []
        for one in order.slices:
            own = sorted((row for row in records if str(row["day"]) == one.slice_id), key=lambda row: row["id"])
            result = self._result(order, one, own, state)
            results.append(self.change(RunResult(**result, log=pinned.coordinates(one.slice_id))))
            state = results[-1].state_after
            write_outputs(order, [_row(order, one, results[-1], key, total) for key, total in _totals(own).items()])
        return results

    def _result(self, order: ReplayOrder, one: Slice, own: list[dict[str, object]], state: str) -> dict[str, Any]:
        total = sum(_totals(own).values())
        verdict = Verdict.ERROR if total >= BREAKS else Verdict.FAIL if total >= FAILS else Verdict.PASS
        spec, read = spec_fingerprint(order.pipeline), fingerprint([row["id"] for row in own])
        check = CheckResult(
            slice_id=one.slice_id, table="window_outputs", check="total", severity="critical", verdict=verdict
        )
        return {
            "slice": one,
            "run_id": run_id(pipeline=order.pipeline.name, one=one, spec=spec, input=read, state_before=state),
            "attempt_id": order.attempt_id,
            "spec_fingerprint": spec,
            "input_fingerprint": read,
            "state_before": state,
            "state_after": fingerprint(["total", total]),
            "digests": {"window_outputs": fingerprint([state, _totals(own)])},
            "counts": Counts(read=len(own), assigned=len(own), late=0, unassigned=0, invalid=0, panes=len(own)),
            "watermark_ms": one.start_ms,
            "seconds": 0.5,
            "verdict": verdict,
            "checks": (check,),
        }


def _totals(rows: Sequence[dict[str, object]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for row in rows:
        totals[str(row["key"])] = totals.get(str(row["key"]), 0) + int(str(row["amount"]))
    return totals


def _row(order: ReplayOrder, one: Slice, result: RunResult, key: str, total: int) -> dict[str, object]:
    return {
        "key": key,
        "window_start": datetime.fromtimestamp(one.start_ms / 1000, tz=UTC),
        "window_end": datetime.fromtimestamp(one.end_ms / 1000, tz=UTC),
        "pane_index": 0,
        "timing": "ON_TIME",
        "is_first": True,
        "is_last": True,
        "mode": "accumulating",
        "kind": "result",
        "record_count": 1,
        "total": total,
        "watermark_ms": one.end_ms,
        "fired_rank": 0,
        "row_id": 1,
        "slice_id": one.slice_id,
        "attempt_id": order.attempt_id,
        "run_id": result.run_id,
    }
