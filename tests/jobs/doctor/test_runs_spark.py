"""The file that is proposed for a table replays all its records."""

from pathlib import Path

import pytest

from jobs.doctor.column_roles import Wishes
from jobs.doctor.examination import Request, examine
from jobs.lake.lake import Lake
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.slices import show_ms, slice_grid
from tests.jobs.doctor import tables
from tests.support.replays import NOW_MS, run_range
from tests.support.spark_session import SparkSession


@pytest.mark.parametrize("kind", tables.ALL)
def test_the_proposed_file_replays_and_publishes_all_records(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    tables.ALL[kind](tmp_path / "clicks")
    request = Request(
        table="clicks",
        uri=str(tmp_path / "clicks"),
        lake=Lake(root=str(tmp_path)),
        pipelines=tmp_path / "pipelines",
        wishes=Wishes(),
        name="proposed",
    )
    examination = examine(request, now_ms=NOW_MS)
    accepted, measures = examination.accepted, examination.measures
    assert accepted is not None
    assert accepted.range_ms is not None
    assert measures is not None
    pipeline = parse_pipeline(accepted.text, source=str(request.path))
    grid = slice_grid(pipeline)
    start, end = (show_ms(grid, at_ms) for at_ms in accepted.range_ms)
    outcome = run_range(spark, tmp_path, pipeline, (start, end))
    assert outcome.is_published
    counts = [run.result.counts for run in outcome.runs]
    assert sum(one.read for one in counts) == 120
    suggestion = measures.delays.suggestion()
    assert sum(one.late for one in counts) == round(suggestion.late * 120), "the comment in the file is true"
