"""A replay through files and a replay through DataFrames have the same runs: ids, digests, counts, tallies."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.replay.sizes import Sizes
from jobs.review.execution import execution
from tests.support.other_log import PIPELINE, TABLE, OtherLog
from tests.support.replays import order_of, pipeline_of, run_range, what_was_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BOUNDS = ("1969-12-30", "1970-01-03")
SMALL = Sizes(
    records_per_bucket=60,
    records_per_columnar_bucket=60,
    buckets=3,
    records_per_task=70,
    rows_per_read=13,
    rows_per_file=40,
    rows_from=20,
    rows_per_encoding=50,
    driver_rows=10,
)
FILES = {"default sizes": Sizes(), "small sizes": SMALL}
SPECS = {
    "tumbling": PIPELINE,
    "sessions": PIPELINE.replace("tumbling: {size: 1h}", "session: {gap: 7m}") + "  notes: {collect_list: note}\n",
    "gaps": PIPELINE.replace("tumbling: {size: 1h}", "sliding: {size: 20m, slide: 45m}") + "  mean: {avg: größe}\n",
}


@pytest.mark.parametrize("spec", SPECS)
def test_both_ways_have_the_same_runs(
    spark: "SparkSession", hostile_log: tuple[OtherLog, Path], tmp_path: Path, spec: str
) -> None:
    pipeline = pipeline_of(SPECS[spec])
    found = {}
    for name, sizes in {"frames": Sizes(way="frames"), **FILES}.items():
        lake = tmp_path / name
        shutil.copytree(hostile_log[1], lake / TABLE)
        if name != "frames":
            order = order_of(lake, pipeline, BOUNDS)
            assert execution(pipeline, order.lake, order.slices).why_not_files is None
        found[name] = what_was_run(run_range(spark, lake, pipeline, BOUNDS, chunk=3, sizes=sizes))
    for name in FILES:
        assert found[name] == found["frames"], name
