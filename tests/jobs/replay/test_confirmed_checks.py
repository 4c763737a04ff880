"""Whole replays whose checks fail by the compiled form: Great Expectations confirms them before the slice is held."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from expectations import runner
from expectations.compiled.row_checks import RowCheck
from expectations.loader import SUITES_VARIABLE
from expectations.outcomes import Outcome
from expectations.suites import Suite
from jobs.lake.store import table_columns
from jobs.ledger.view import RequestKind
from jobs.orchestration.outcomes import RequestOutcome
from jobs.planning.request_context import RequestContext
from jobs.planning.suites import checked_columns
from jobs.replay import replayer, written
from jobs.replay.computed import Computed
from jobs.runs import CheckResult, Verdict
from tests.support.clicks_log import PIPELINE, day_rows
from tests.support.day_chains import Place, Put, run
from tests.support.delta_logs import track_rows
from tests.support.places import ROOT
from tests.support.replays import context_in, pipeline_of, run_range

BUSY = 20  # records of the second day; the check allows fewer
MOST = {"column": "records_read", "max_value": 10}
NEVER_NULL = {"column": "user"}
SUITES = {
    "run": {"name": "r", "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": MOST}]},
    "window_outputs": {
        "name": "w", "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": NEVER_NULL}]
    },
}  # fmt: skip
SCHEMA = pa.schema([("user", pa.string()), ("at_ms", pa.int64()), ("day", pa.date32())])


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three days of clicks. A check of the second one fails."""
    for number, count in enumerate((3, BUSY, 4)):
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in day_rows(number, *range(count))]
        table = pa.Table.from_pylist(rows, SCHEMA)
        write_deltalake(str(tmp_path / "lake" / "log"), table, mode="append", partition_by=["day"])
    track_rows(tmp_path / "lake" / "log")
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / "clicks.json").write_text(json.dumps(SUITES), encoding="utf-8")
    monkeypatch.setenv("HINDCAST_EXPECTATIONS", str(tmp_path / "expectations"))
    return tmp_path / "lake"


def replayed(lake: Path, confirm: str = "", *, end: str = "1970-01-04") -> tuple[RequestContext, RequestOutcome]:
    pipeline = pipeline_of(PIPELINE + f"quality: {{suite: expectations/clicks.json{confirm}}}\n")
    return context_in(lake, pipeline), run_range(None, lake, pipeline, ("1970-01-01", end))


def busy_check(outcome: RequestOutcome) -> CheckResult:
    (result,) = [one for one in outcome.runs[1].result.checks if one.column == "records_read"]
    return result


def test_a_failed_check_is_confirmed_once_and_holds_the_request(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str | int] = []
    validate, write = runner.validate, written.write

    def noted(name: str, frame: Any, suite: Suite, **named: Any) -> list[Outcome]:  # noqa: ANN401
        events.append(len(frame))
        return validate(name, frame, suite, **named)

    def noted_write(computed: Computed) -> written.Written:
        events.append("write")
        return write(computed)

    monkeypatch.setattr(runner, "validate", noted)
    monkeypatch.setattr(runner, "begin_import", partial(events.append, "import"))
    monkeypatch.setattr(replayer, "write", noted_write)
    _, outcome = replayed(lake)
    assert not outcome.is_published
    assert [run.verdict for run in outcome.runs] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
    assert events == ["import", "write", "import", 1], "one row of table `run`; the import begins before the write"
    assert f"found {BUSY}" in busy_check(outcome).message


def test_a_wrong_compiled_check_is_an_error_until_it_is_not_confirmed(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can waive it. The next run checks it again, also with another `confirm`, and replays nothing else."""
    expected = RowCheck._expected
    with monkeypatch.context() as patch:
        patch.setattr(RowCheck, "_expected", lambda _self, rows: np.zeros(len(rows.slices), dtype=bool))
        work, outcome = replayed(lake, end="1970-01-02")
        assert [run.verdict for run in outcome.runs] == [Verdict.ERROR]
        assert outcome.publication is not None
        assert "the compiled check fails" in outcome.publication.why
        assert "Great Expectations passes" in outcome.publication.why
        assert "an error cannot be waived" in outcome.publication.why
        _, outcome = replayed(lake, ", confirm: none", end="1970-01-02")
        assert [run.verdict for run in outcome.runs] == [Verdict.FAIL]
    assert RowCheck._expected is expected
    assert work.ledger.view().published == {}


PASSES = """
import sys
from pathlib import Path
from tests.jobs.replay.test_confirmed_checks import replayed

work, outcome = replayed(Path(sys.argv[1]), end=sys.argv[2])
print(outcome.is_published, "great_expectations" in sys.modules)
"""


@pytest.mark.parametrize(
    ("end", "printed"), [("1970-01-02", "True False"), pytest.param("1970-01-03", "False True", marks=pytest.mark.slow)]
)
def test_a_replay_that_passes_never_imports_great_expectations(lake: Path, end: str, printed: str) -> None:
    command = [sys.executable, "-c", PASSES, str(lake), end]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == printed


@pytest.mark.slow
def test_checks_of_the_columns_read_those_of_the_spec_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Great Expectations runs the checks as well. A candidate has added a column to the stored table."""
    monkeypatch.setenv(SUITES_VARIABLE, str(tmp_path / "suites"))
    (tmp_path / "suites").mkdir()
    place = Place(tmp_path)
    for day in range(2):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 20))
    work = place.work(more="quality: {suite: expectations/s.json, confirm: all}\n")
    columns = list(checked_columns(work.pipeline)["window_outputs"])
    checks = [
        {"type": "expect_table_columns_to_match_set", "kwargs": {"column_set": columns}},
        {"type": "expect_table_columns_to_match_ordered_list", "kwargs": {"column_list": columns}},
        {"type": "expect_table_column_count_to_equal", "kwargs": {"value": len(columns)}},
    ]
    suite = {"window_outputs": {"name": "columns", "expectations": checks}}
    (tmp_path / "suites" / "s.json").write_text(json.dumps(suite), encoding="utf-8")
    assert run(work, 0, 1).is_published
    wider = replace(work, pipeline=pipeline_of(place.text(more="").replace("total:", "big: {max: v}, total:")))
    run(wider, 0, 1, kind=RequestKind.CANDIDATE, publish=False)
    assert "big" in table_columns(work.lake.table("late", "window_outputs"))
    assert run(work, 1, 2).is_published
