"""What a run says of itself arrives everywhere: each field of RunResult, StagedRun and Plan, from a real replay.

A value that is stored and never read, or shown and never set, is a defect: every field is named here with the places
where it must be found, and a new field fails the test until it is.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from expectations.formatting import instant
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration.outcomes import RequestOutcome, run_to_json
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.plain_text import counted
from jobs.planning.plan import Plan
from jobs.planning.request_context import open_request_context
from jobs.planning.steps import Ask
from jobs.review.report.model import SHORT
from jobs.review.report.page import write_report
from jobs.runs import EMPTY_STATE, OPTIONAL_FATES, RunResult
from tests.support.logs import make_log
from tests.support.replays import NOW_MS, pipeline_of, run_range
from tests.support.spark_session import SparkSession
from windowlib.records import tables

pytestmark = pytest.mark.spark
DAY = date(1970, 1, 1)
BOUNDS = ("1970-01-01", "1970-01-02")
PIPELINE = """
pipeline: clicks
log:
  table: log
  key: [user]
  event_time: {column: at, unit: ms}
  arrival_time: {column: came, unit: ms}
  slice: {by: day}
watermark: {kind: ascending}
windows: {dynamic_session: {gap: {column: gap}}, time: processing}
aggregates: {clicks: {count: {}}}
"""


@dataclass(frozen=True)
class Replayed:
    """One published run with clamped arrivals, and everything that is said of it."""

    lake: Path
    outcome: RequestOutcome
    view: LedgerView
    page: str
    events: Mapping[str, Mapping[str, Any]]
    planned: Plan

    @property
    def run(self) -> StagedRun:
        [run] = self.outcome.runs
        return run


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    lake = tmp_path_factory.mktemp("fields")
    rows = [("a", at, came, 5, DAY) for at, came in ((1, -7), (2, 0), (3, 86_400_000), (4, 86_399_999))]
    schema = "user string, at long, came long, gap long, day date"
    make_log(spark, str(lake / "log"), [rows], schema=schema, partition_by="day")
    pipeline = pipeline_of(PIPELINE)
    outcome = run_range(spark, lake, pipeline, BOUNDS)
    place = Lake(root=str(lake))
    work = open_request_context(pipeline, place, now_ms=lambda: NOW_MS)
    view = work.ledger.view()
    stored = DeltaTable(place.ledger("clicks")).to_pyarrow_table().to_pylist()
    slices = slices_between(pipeline, *(parse_bound(pipeline, text) for text in BOUNDS))
    return Replayed(
        lake=lake,
        outcome=outcome,
        view=view,
        page=Path(write_report(place, pipeline)).read_text(encoding="utf-8"),
        events={row["event"]: {**row, **json.loads(row["details"])} for row in stored},
        planned=work.plan(view, Ask(slices=slices)),
    )


COORDINATES = {"attempt_id", "log", "seconds", "extras", "checkpoint", "state_columns"}
"""Fields that differ between equal lakes: in ledger and report, never in the JSON of a run, which is its content."""


def test_each_field_of_a_result_is_set_by_a_replay(replayed: Replayed) -> None:
    result = replayed.run.result
    assert (result.clamped, result.counts.read, result.counts.panes) == (2, 4, 1)
    [warning] = result.warnings
    assert warning.startswith("2 records of slice 1970-01-01 arrived outside of it, according to column 'came'")
    unset = [one.name for one in fields(RunResult) if getattr(result, one.name) in (None, (), {}, "", 0)]
    assert unset == []
    assert result.state_before == EMPTY_STATE
    tallies = DeltaTable(str(replayed.lake / "clicks" / "tallies")).to_pyarrow_table().to_pylist()
    assert [one["record_count"] for one in tallies if one["term"] == "clamped"] == [2]


def test_each_field_of_a_result_arrives_in_json(replayed: Replayed) -> None:
    result, shown = replayed.run.result, run_to_json(replayed.run)
    names = {"slice": "slice_id", "state_after": "state"}
    wanted = {names.get(one.name, one.name): getattr(result, one.name) for one in fields(RunResult)}
    for name in COORDINATES:
        del wanted[name]
        assert name not in shown
    checks = [{"table": one.table, "check": one.check, "column": one.column, "severity": one.severity,
               "verdict": one.verdict.value} for one in result.checks]  # fmt: skip
    given = {"slice_id": result.slice.slice_id, "verdict": result.verdict.value, "counts": asdict(result.counts)}
    assert shown == {**wanted, **given, "checks": checks, "warnings": list(result.warnings)}


def test_each_field_of_a_result_arrives_in_the_ledger(replayed: Replayed) -> None:
    result, staged, checked = replayed.run.result, replayed.events["staged"], replayed.events["checked"]
    counts = {"records_read" if name == "read" else name: count for name, count in asdict(result.counts).items()}
    places = {
        "slice": {"slice_id": result.slice.slice_id, "slice_start_ms": 0, "slice_end_ms": 86_400_000},
        # The ledger names `OPTIONAL_FATES` only where there are some, so that other runs have the events of before.
        "counts": {name: count for name, count in counts.items() if name not in OPTIONAL_FATES},
        "log": {"log": json.loads(json.dumps(asdict(result.log)))},
        "warnings": {"warnings": list(result.warnings)},
        "checkpoint": {"checkpoint": json.loads(json.dumps(asdict(result.checkpoint)))},
        "state_columns": {"state_columns": [*(result.state_columns or ())]},
    }
    of_checks = {"verdict": result.verdict.value, "checks": [asdict(one) | {"verdict": one.verdict.value}
                                                             for one in result.checks]}  # fmt: skip
    for one in fields(RunResult):
        if one.name in of_checks:
            assert checked[one.name] == of_checks[one.name]
            continue
        expected = places.get(one.name, {one.name: getattr(result, one.name)})
        assert {name: staged[name] for name in expected} == expected
    assert replayed.view.run(result.run_id) == replayed.run


def test_each_field_of_a_result_and_of_a_staged_run_arrives_in_the_report(replayed: Replayed) -> None:
    run = replayed.run
    result, log = run.result, run.result.log
    shown = {
        "slice": result.slice.slice_id,
        "run_id": f"run {result.run_id[:SHORT]}",
        "attempt_id": f"attempt {result.attempt_id[:SHORT]}",
        "spec_fingerprint": f"spec {result.spec_fingerprint[:SHORT]}",
        "input_fingerprint": f"input {result.input_fingerprint[:SHORT]}",
        "state_before": f"state before {result.state_before[:SHORT]}",
        "state_after": f"state after {result.state_after[:SHORT]}",
        "digests": f"rows of window_outputs {result.digests[tables.WINDOW_OUTPUTS][:SHORT]}",
        "counts": '<td class="num">4</td>',
        "watermark_ms": f"watermark after {instant(result.watermark_ms or 0)}",
        "log": f"commits of the slice {log.commits[0]}; files and records {counted(log.files, 'file')}",
        "seconds": f"seconds {result.seconds:.1f}",
        "verdict": 'title="pass"',
        "checks": "read = assigned + late + unassigned + invalid",
        "warnings": "2 records of slice 1970-01-01 arrived outside of it",
        "clamped": "2 clamped arrivals",
        "checkpoint": "checkpoint full",
        "extras": f"tallies digest {result.extras['tallies_digest'][:SHORT]}",
    }
    assert shown.keys() | {"state_columns"} == {one.name for one in fields(RunResult)}  # only the next chunk reads them
    staged = {
        "request_id": f"request {run.request_id}",
        "seq": f"ledger staged in version {run.seq}",
        "is_chain_start": "to begin a chain",
        "checks_attempt_id": f"attempt of the checks {run.checks_attempt_id[:SHORT]}",
        "checks_fingerprint": f"checks {str(run.checks_fingerprint)[:SHORT]}",
    }
    # Contradictions, waivers and times of staging are in tests/report, which makes them without Spark. Sightings and
    # removed states are for plans. A judgement adds its checks to those of the result.
    elsewhere = {"result", "at_ms", "is_contradicted", "waiver", "sightings", "judgement", "checkpoint_removal"}
    assert staged.keys() | elsewhere == {one.name for one in fields(StagedRun)}
    missing = [name for name, text in {**shown, **staged}.items() if text not in replayed.page]
    assert missing == []


def test_each_field_of_a_plan_arrives_in_json(replayed: Replayed) -> None:
    planned = replayed.planned
    names = {"from_text": "from", "to_text": "to"}
    shown = planned.to_json()
    plain = {one.name for one in fields(Plan)} - {"steps", "start", "warnings", "known", "basis"}  # for the replay
    assert {name: shown[names.get(name, name)] for name in plain} == {name: getattr(planned, name) for name in plain}
    assert (shown["state_before"], shown["chain"]) == (EMPTY_STATE, planned.start.note)
    [step] = shown["steps"]
    assert (step["reason"], step["records"], step["verdict"], step["published"]) == ("current", 4, "pass", True)
    assert shown["warnings"] == list(planned.warnings)
