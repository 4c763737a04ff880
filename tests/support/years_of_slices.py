"""A lake with years of published slices, made directly: a log, and a ledger of eight events in four commits a slice."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.engine.fingerprints import fingerprint, run_id, spec_fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.chain import GENESIS, linked
from jobs.ledger.events import (
    EventKind,
    LedgerEvent,
    checked_event,
    event_rows,
    ledger_schema,
    slice_columns,
    staged_event,
)
from jobs.ledger.head import Head, write_head
from jobs.ledger.ledger import Ledger
from jobs.ledger.looks import Look, looked_event
from jobs.pipeline.files import pipeline_to_json
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.log_state import read_log_state
from jobs.reading.log_places import log_place
from jobs.runs import EMPTY_STATE, CheckResult, Counts, LogCoordinates, RunResult, Slice, Verdict
from tests.support.fake_replay import SCHEMA, day_ms, sales

CHECKS = 4
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class YearsOfSlices:
    """How many days of pipeline `sales` have a run, and the first day. The newest day has a commit of its own."""

    slices: int
    first: str = "1990-01-01"

    def fill(self, root: Path) -> Pipeline:
        """Write the log and the ledger below the root of a lake; return the pipeline."""
        pipeline, lake = sales(), Lake(root=str(root))
        days = tuple(slices_between(pipeline, day_ms(self.first), day_ms(self.first) + self.slices * DAY_MS))
        _write_log(lake.event_log(pipeline), days)
        log = read_log_state(pipeline, lake, days)
        look = _look(lake, pipeline)
        _write_ledger(lake.ledger(pipeline.name), [*_commits(pipeline, days, log.coordinates, look)])
        Ledger(lake.ledger(pipeline.name), now_ms=lambda: days[-1].end_ms).view()  # writes a snapshot
        return pipeline


def _write_log(uri: str, days: tuple[Slice, ...]) -> None:
    rows = [
        {"id": f"{day.slice_id}/{key}", "key": key, "at_ms": day.start_ms, "amount": 1,
         "day": date.fromisoformat(day.slice_id)}
        for day in days
        for key in ("a", "b")
    ]  # fmt: skip
    write_deltalake(uri, pa.Table.from_pylist(rows[:-2], schema=SCHEMA), partition_by=["day"])
    DeltaTable(uri).create_checkpoint()
    write_deltalake(uri, pa.Table.from_pylist(rows[-2:], schema=SCHEMA), mode="append", partition_by=["day"])


def _look(lake: Lake, pipeline: Pipeline) -> Look:
    tip = log_place(lake, pipeline).tip()
    assert tip is not None, "the log was just written"
    table = DeltaTable(lake.event_log(pipeline))
    table_id = str(table.metadata().id)
    return Look(table_id=table_id, version=tip.version, commit=tip.commit, names={"day": "day"})


def _commits(
    pipeline: Pipeline, days: tuple[Slice, ...], logs: Mapping[str, LogCoordinates], look: Look
) -> Iterator[list[LedgerEvent]]:
    spec, state = spec_fingerprint(pipeline), EMPTY_STATE
    details = {"kind": "scheduled", "fresh": False, "spec": pipeline_to_json(pipeline)}
    for day in days:
        result = _result(pipeline, day, logs[day.slice_id], spec=spec, state=state)
        request_id, attempt = fingerprint(["request", day.slice_id])[:32], result.attempt_id
        own: dict[str, Any] = {"request_id": request_id}
        place = {**own, **slice_columns(day), "run_id": result.run_id, "attempt_id": attempt}
        opened = details | {"from_ms": day.start_ms, "to_ms": day.end_ms}
        lease = {"lease_id": attempt, "holder": None, "length_ms": 60_000}
        yield [
            LedgerEvent(kind=EventKind.REQUESTED, **own, who="airflow", spec_fingerprint=spec, details=opened),
            LedgerEvent(kind=EventKind.LEASED, **own, details=lease),
        ]
        yield [LedgerEvent(kind=EventKind.STARTED, **own, attempt_id=attempt, details={"slices": [day.slice_id]})]
        yield [staged_event(request_id, result, is_chain_start=state == EMPTY_STATE), checked_event(request_id, result)]
        yield [
            LedgerEvent(kind=EventKind.COMPLETED, **own),
            LedgerEvent(kind=EventKind.PUBLISHED, **place, who="airflow", details={"told_by": None}),
            looked_event(look),
        ]
        state = result.state_after


def _result(pipeline: Pipeline, day: Slice, log: LogCoordinates, *, spec: str, state: str) -> RunResult:
    read = fingerprint([day.slice_id, "read"])
    own = run_id(pipeline=pipeline.name, slice_=day, spec=spec, input=read, state_before=state)
    checks = tuple(
        CheckResult(
            slice_id=day.slice_id,
            table="window_outputs",
            check=f"check {number}",
            severity="critical",
            verdict=Verdict.PASS,
            message=f"all rows of {day.slice_id} are as they should be, by check {number}",
        )
        for number in range(CHECKS)
    )
    return RunResult(
        slice=day,
        run_id=own,
        attempt_id=fingerprint(["attempt", day.slice_id])[:32],
        spec_fingerprint=spec,
        input_fingerprint=read,
        state_before=state,
        state_after=fingerprint([state, day.slice_id]),
        digests={"window_outputs": fingerprint(own)[:32]},
        counts=Counts(read=2, assigned=2, late=0, unassigned=0, invalid=0, panes=2),
        watermark_ms=day.start_ms,
        log=log,
        seconds=1.5,
        verdict=Verdict.PASS,
        checks=checks,
    )


def _write_ledger(uri: str, commits: list[list[LedgerEvent]]) -> None:
    """Write all commits as one, and name it as the last of them: the commit files before it are gone, as after weeks.

    The table has a checkpoint at the last version, and no commit file.
    """
    Path(uri).parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seq, events in enumerate(commits, start=1):
        stamped = [replace(event, seq=seq, ordinal=place, at_ms=seq) for place, event in enumerate(events)]
        rows += event_rows(stamped, commit_id=f"{seq:032x}")
    chained: list[dict[str, Any]] = linked(rows, GENESIS)
    write_deltalake(uri, pa.Table.from_pylist(chained, schema=ledger_schema()))
    DeltaTable(uri).create_checkpoint()
    log, last = Path(uri) / "_delta_log", len(commits)
    for path in log.glob(f"{0:020}.*"):
        path.rename(path.with_name(path.name.replace(f"{0:020}", f"{last:020}")))
    pointer = log / "_last_checkpoint"
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"version": last}))
    write_head(uri, Head(version=last, tip=chained[-1]["hash"]))
