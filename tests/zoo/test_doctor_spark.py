"""`hindcast doctor` on the tables of docs/reference/logs.md: the proposed file replays all records."""

from pathlib import Path

import pytest

from jobs.doctor.column_roles import Wishes
from jobs.doctor.examination import Request, examine
from jobs.doctor.finding import Severity
from jobs.lake.lake import Lake
from jobs.pipeline.slices import show_ms, slice_grid
from tests.support.replays import NOW_MS, pipeline_of, run_range
from tests.zoo.catalogue import CATALOGUE
from tests.zoo.documented import ROWS
from tests.zoo.entries import Entry
from tests.zoo.replaying import Zoo

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAMED = {name for row in ROWS for name in row.entries}
TABLES = {
    entry.table: entry
    for entry in CATALOGUE
    if entry.name in NAMED and not entry.is_short and not (entry.refused and "format: " in entry.log)
}


@pytest.fixture(scope="module")
def zoo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"), lambda: request.getfixturevalue("spark"))


@pytest.mark.parametrize("entry", [pytest.param(one, id=one.name.replace(" ", "-")) for one in TABLES.values()])
def test_the_proposed_file_replays_all_records_or_records_were_removed(zoo: Zoo, entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(zoo.table(entry))
    request = Request(
        table="log",
        uri=str(tmp_path / "log"),
        lake=Lake(root=str(tmp_path)),
        pipelines=tmp_path / "pipelines",
        wishes=Wishes(key=("k",), event_time="at"),
        name="proposed",
    )
    examination = examine(request, now_ms=NOW_MS)
    accepted = examination.accepted
    if accepted is None:
        errors = [one.text for one in examination.findings if one.severity is Severity.ERROR]
        assert any("removed or changed records" in text and "accept-rewrite" in text for text in errors), errors
        return
    assert accepted.range_ms is not None
    grid = slice_grid(pipeline_of(accepted.text))
    start, end = (show_ms(grid, at_ms) for at_ms in accepted.range_ms)
    outcome = run_range(zoo.spark(), tmp_path, pipeline_of(accepted.text), (start, end))
    assert outcome.is_published
    assert sum(run.result.counts.read for run in outcome.runs) == examination.sampled
