"""A plan refuses the logs that a run refuses, in the same words, and the words name what the user can do. No Spark."""

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.log_pin import pin_input
from jobs.planning.log_state import read_log_state
from jobs.planning.request_context import open_request_context
from jobs.planning.steps import Ask
from tests.support.delta_logs import clean_commits, track_rows, track_rows_later
from tests.support.fake_replay import PIPELINE, append_day, day_ms, sales
from tests.support.places import ROOT
from windowlib.errors import HindcastError, LogError, SpecError

NOW_MS = day_ms("2024-02-01")
RANGE = (day_ms("2024-01-01"), day_ms("2024-01-04"))
BY_COMMITS = PIPELINE.replace("  order: [id]\n", "")


def _switch_on_and_forget(log: Path) -> None:
    track_rows_later(log, Random(1), after=3)
    clean_commits(log)


def _delete(log: Path) -> None:
    DeltaTable(str(log)).delete("key = 'a' and day = '2024-01-02'")
    track_rows(log)


def _append_without_a_slice(log: Path) -> None:
    rows = pa.table({"id": ["x"], "key": ["a"], "at_ms": [1], "amount": [1], "day": pa.array([None], pa.date32())})
    write_deltalake(str(log), rows, mode="append", partition_by=["day"])
    track_rows(log)


def _lose_a_file(log: Path) -> None:
    track_rows(log)
    next((log / "day=2024-01-02").glob("*.parquet")).unlink()


def _put_a_directory_in_the_place_of_a_file(log: Path) -> None:
    track_rows(log)
    file = next((log / "day=2024-01-02").glob("*.parquet"))
    file.unlink()
    file.mkdir()


def _do_not_partition(log: Path) -> None:
    rows = pa.table({"id": ["x"], "key": ["a"], "at_ms": [1], "amount": [1], "day": ["2024-01-01"]})
    write_deltalake(str(log), rows, mode="overwrite", schema_mode="overwrite", partition_by=["key"])


REFUSED: dict[str, tuple[Callable[[Path], None], type[HindcastError], str]] = {
    "no row tracking": (lambda _log: None, LogError, "has no row tracking"),
    "row tracking later": (_switch_on_and_forget, LogError, "may have been switched on later"),
    "a delete": (_delete, LogError, r"commit 3 \(DELETE\) removed or changed records of slice 2024-01-02"),
    "no slice": (_append_without_a_slice, LogError, "slice column 'day' is null"),
    "a lost file": (_lose_a_file, LogError, "does not exist"),
    "a directory": (_put_a_directory_in_the_place_of_a_file, LogError, "does not exist"),
    "no partition column": (_do_not_partition, LogError, "'day' of .* is a string, and the log is partitioned by"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_and_a_run_refuse_a_log_in_the_same_words(tmp_path: Path, name: str) -> None:
    change, kind, words = REFUSED[name]
    for day in (1, 2, 3):
        append_day(tmp_path, f"2024-01-0{day}", {"a": 1, "b": 2})
    change(tmp_path / "event_logs" / "sales")
    planned, run = _refusals(tmp_path, sales(BY_COMMITS))
    assert str(planned) == str(run)
    assert isinstance(planned, kind)
    assert re.search(words, str(planned))
    for page in re.findall(r"docs/[a-z/-]+\.md", str(planned)):
        assert (ROOT / page).exists()


def test_a_plan_and_a_run_refuse_a_pipeline_in_the_same_words(tmp_path: Path) -> None:
    append_day(tmp_path, "2024-01-01", {"a": 1})
    planned, run = _refusals(tmp_path, sales(PIPELINE.replace("sum: amount", "sum: ammount")))
    assert isinstance(planned, SpecError)
    assert str(planned) == str(run)


def test_a_new_pipeline_does_not_write_its_tables_into_its_log(tmp_path: Path) -> None:
    append_day(tmp_path, "2024-01-01", {"a": 1})
    (tmp_path / "event_logs" / "sales").rename(tmp_path / "sales")
    pipeline, lake = sales(PIPELINE.replace("event_logs/sales", "sales")), Lake(root=str(tmp_path))
    slices = slices_between(pipeline, *RANGE)[:1]
    with pytest.raises(
        SpecError, match=r"writes its tables below .*sales, where a full VACUUM of the log removes them"
    ):
        read_log_state(pipeline, lake, slices, view=LedgerView(version=0))
    warned = read_log_state(pipeline, lake, slices, view=LedgerView(version=1)).warnings
    assert "full VACUUM" in warned[0], "a pipeline that has tables goes on"
    elsewhere = sales(PIPELINE.replace("event_logs/sales", "sales").replace("pipeline: sales", "pipeline: sale"))
    assert "VACUUM" not in " ".join(read_log_state(elsewhere, lake, slices, view=LedgerView(version=0)).warnings)


@pytest.mark.parametrize("lake", ["lake", "link"], ids=["a relative path", "a link"])
def test_a_lake_has_another_path_than_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str) -> None:
    append_day(tmp_path, "2024-01-01", {"a": 1})
    (tmp_path / "lake").mkdir()
    (tmp_path / "event_logs" / "sales").rename(tmp_path / "lake" / "sales")
    (tmp_path / "link").symlink_to("lake")
    monkeypatch.chdir(tmp_path)
    pipeline = sales(PIPELINE.replace("event_logs/sales", str(tmp_path / "lake" / "sales")))
    with pytest.raises(SpecError, match=r"writes its tables below .*sales, where"):
        read_log_state(pipeline, Lake(root=lake), slices_between(pipeline, *RANGE)[:1], view=LedgerView(version=0))


def _refusals(lake: Path, pipeline: Pipeline) -> tuple[HindcastError, HindcastError]:
    """Return how a plan and a run of three days refuse a log."""
    work = open_request_context(pipeline, Lake(root=str(lake)), now_ms=lambda: NOW_MS)
    slices = slices_between(pipeline, *RANGE)
    with pytest.raises(HindcastError) as planned:
        work.plan(work.ledger.view(), Ask(slices=slices))
    with pytest.raises(HindcastError) as run:
        pin_input(pipeline, work.lake, slices)
    return planned.value, run.value
