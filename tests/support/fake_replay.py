"""A small deterministic replayer without Spark, for tests of the code around a replayer.

It sums `amount` per key, or counts the records if the pipeline file counts them. The state after a slice is the
fingerprint of that slice's total. So a change in one slice changes the rows of that slice and of the next one: enough
to test chains, early cut-off and attempts that differ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.engine.fingerprints import fingerprint, run_id, spec_fingerprint
from jobs.lake.event_log import pin_log
from jobs.lake.file_commits import append_rows
from jobs.lake.store import ensure_table
from jobs.orchestration.dag_orders import Order
from jobs.orchestration.requests import Staging
from jobs.orchestration.scheduling import Replay, replay
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.look_back import look_back
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import RequestContext
from jobs.planning.suites import load_checks
from jobs.reading.log_places import log_place
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.runs import EMPTY_STATE, CheckResult, Counts, RunResult, Slice, Verdict
from tests.support.plain_rows import named_rows
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.row_identity import RowIdentity
from windowlib.records import tables
from windowlib.records.column_types import parse_type
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

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
  order: [id]
watermark: {kind: ascending}
windows: {tumbling: {size: 1d}}
aggregates: {total: {sum: amount}}
schedule: "0 6 * * *"
"""
FAILS = 1_000  # without a suite, the check of a slice fails if its amounts sum up to this or more
BREAKS = 1_000_000  # the check itself breaks if they sum up to this or more


@cache
def sales(text: str = PIPELINE) -> Pipeline:
    return parse_pipeline(text, source="sales.yaml")


def day_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def append_day(lake: Path, day: str, amounts: dict[str, int], *, arrives: str | None = None) -> None:
    """Append one commit to the log: one record per key, which arrives on its day or on another one."""
    _append(lake, _records(day, amounts, arrives=arrives), partition_by=["day"])


def append_bulk(lake: Path, days: dict[str, dict[str, int]]) -> None:
    """Append one file with the records of some days to a log without partitions."""
    _append(lake, [record for day, amounts in days.items() for record in _records(day, amounts)], partition_by=None)


def _records(day: str, amounts: dict[str, int], *, arrives: str | None = None) -> list[dict[str, object]]:
    return [
        {
            "id": f"{day}/{key}/{amount}",
            "key": key,
            "at_ms": day_ms(day),
            "amount": amount,
            "day": date.fromisoformat(arrives or day),
        }
        for key, amount in amounts.items()
    ]


def _append(lake: Path, rows: list[dict[str, object]], *, partition_by: list[str] | None) -> None:
    records = pa.Table.from_pylist(rows, schema=SCHEMA)
    write_deltalake(lake / "event_logs" / "sales", records, mode="append", partition_by=partition_by)


RECORD = parse_type("struct<id:string>")
SIDE = {
    table.name: table
    for table in (tables.late_records(RECORD), tables.unassigned_records(RECORD), tables.invalid_records(RECORD))
}


def outputs_of(pipeline: Pipeline) -> Table:
    """The table `window_outputs` of runs with this spec."""
    return tables.window_outputs(dict.fromkeys(pipeline.log.key_columns, "string"), {"total": "bigint"})


def write_rows(order: ReplayOrder, table: Table, rows: Sequence[Mapping[str, object]]) -> IdSum:
    """Append rows to a table as a replay does, with ids and checks; return the sum of the ids.

    The column `record`, if the table has one, is null.
    """
    uri = order.lake.table(order.pipeline.name, table.name)
    ensure_table(uri, table)
    identity = RowIdentity(table)
    named = named_rows(table, rows)
    if "record" in table.coordinates:
        named["record"] = pa.nulls(len(rows), arrow_type(table.coordinates["record"]))
    ids = identity.ids(named)
    words = {tables.ROW_ID: ids, tables.ROW_CHECK: identity.checks(ids, named)}
    placed = {name: pa.array([row[name] for row in rows], pa.string()) for name in tables.SLICE_COLUMNS}
    append_rows(uri, pa.table({**named, **{name: pa.array(word) for name, word in words.items()}, **placed}))
    return IdSum.of_array(ids)


@dataclass
class FakeReplayer:
    """Records its orders. `on_order` is called first and may raise. `change` changes each result.

    `beside` holds rows of side tables to write: slice -> table -> rows.
    """

    beside: Mapping[str, Mapping[str, Sequence[dict[str, object]]]] = field(default_factory=dict)
    orders: list[ReplayOrder] = field(default_factory=list)
    change: Callable[[RunResult], RunResult] = field(default=lambda result: result)
    on_order: Callable[[ReplayOrder], None] = field(default=lambda _order: None)

    @property
    def replayed(self) -> list[list[str]]:
        return [[one.slice_id for one in order.slices] for order in self.orders]

    def __call__(self, order: ReplayOrder) -> list[RunResult]:
        self.orders.append(order)
        self.on_order(order)
        source, known = log_place(order.lake, order.pipeline), order.known_log
        back = look_back(order.pipeline, order.slices)
        pinned = pin_log(source, by=order.pipeline.log.slice, slices=back, known=known)
        records = DeltaTable(order.lake.event_log(order.pipeline)).to_pyarrow_table().to_pylist()
        state = order.before.fingerprint if order.before else EMPTY_STATE
        results = []
        for one in order.slices:
            own = sorted((row for row in records if str(row["day"]) == one.slice_id), key=lambda row: row["id"])
            result = self._result(order, one, own, state)
            outputs = outputs_of(order.pipeline)
            rows = [row for key, total in _totals(order, own).items() for row in _rows(order, one, result, key, total)]
            result["digests"] = {outputs.name: write_rows(order, outputs, rows).digest()}
            for table, more in self.beside.get(one.slice_id, {}).items():
                placed = {"slice_id": one.slice_id, "attempt_id": order.attempt_id, "run_id": result["run_id"]}
                result["digests"][table] = write_rows(order, SIDE[table], [row | placed for row in more]).digest()
            results.append(self.change(RunResult(**result, log=pinned.coordinates(one.slice_id))))
            state = results[-1].state_after
        return results

    def _result(self, order: ReplayOrder, one: Slice, own: list[dict[str, object]], state: str) -> dict[str, Any]:
        total = sum(_totals(order, own).values())
        verdict = Verdict.ERROR if total >= BREAKS else Verdict.FAIL if total >= _limit(order) else Verdict.PASS
        spec, read = spec_fingerprint(order.pipeline), fingerprint([row["id"] for row in own])
        check = CheckResult(
            slice_id=one.slice_id, table="window_outputs", check="total", severity="critical", verdict=verdict
        )
        return {
            "slice": one,
            "run_id": run_id(pipeline=order.pipeline.name, slice_=one, spec=spec, input=read, state_before=state),
            "attempt_id": order.attempt_id,
            "spec_fingerprint": spec,
            "input_fingerprint": read,
            "state_before": state,
            "state_after": fingerprint(["total", total]),
            "counts": Counts(read=len(own), assigned=len(own), late=0, unassigned=0, invalid=0, panes=len(own)),
            "watermark_ms": one.start_ms,
            "seconds": 0.5,
            "verdict": verdict,
            "checks": (check,),
        }


def spark_task(
    work: RequestContext, planned: Replay | Order, replayer: Replayer | None = None, *, staging: Staging | None = None
) -> None:
    """Do the work of the Spark task of a DAG run, by default with a fake replayer."""
    replay(work, opened=planned.opened, slices=planned.slices, replayer=replayer or FakeReplayer(), staging=staging)


def _totals(order: ReplayOrder, rows: Sequence[dict[str, object]]) -> dict[str, int]:
    aggregate = order.pipeline.aggregates.get("total")
    is_count = aggregate is not None and aggregate.kind == "count"
    totals: dict[str, int] = {}
    for row in rows:
        totals[str(row["key"])] = totals.get(str(row["key"]), 0) + (1 if is_count else int(str(row["amount"])))
    return totals


def _limit(order: ReplayOrder) -> int:
    """Return from which total on the check of a slice fails: after `max_value` of the only check of the suite."""
    suites = load_checks(order.pipeline)
    if suites is None:
        return FAILS
    [check] = suites.document["window_outputs"]["expectations"]
    return int(check["kwargs"]["max_value"]) + 1


def _rows(order: ReplayOrder, one: Slice, result: Mapping[str, Any], key: str, total: int) -> list[dict[str, object]]:
    """Return one window per key. With a further key column, return one window for each of two values of it."""
    more = order.pipeline.log.key_columns[1:]
    keys = [dict.fromkeys(more, value) for value in (("x", "y") if more else ("",))]
    row = {
        "key": key,
        "window_start": one.start_ms * 1_000,
        "window_end": one.end_ms * 1_000,
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
        "slice_id": one.slice_id,
        "attempt_id": order.attempt_id,
        "run_id": result["run_id"],
        "pane_time_ms": int(
            fingerprint([result["state_before"]])[:12], 16
        ),  # makes the digest depend on the state before
    }
    return [{**row, **values} for values in keys]
