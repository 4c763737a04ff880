"""A user's function that calls sys.exit in a Spark worker: an error of one paragraph, and no visible row."""

import shutil
from pathlib import Path

import pytest
import yaml

from jobs.lake.lake import Lake
from jobs.pipeline.files import load_file
from jobs.planning.request_context import open_request_context
from jobs.reading.published import read_published
from tests.support.other_log import PIPELINE, TABLE, OtherLog
from tests.support.replays import run_range
from tests.support.spark_session import SparkSession
from windowlib.errors import SpecError

pytestmark = pytest.mark.spark


def test_a_function_that_exits_in_a_worker_is_named(
    spark: SparkSession, hostile_log: tuple[OtherLog, Path], tmp_path: Path
) -> None:
    shutil.copytree(hostile_log[1], tmp_path / "lake" / TABLE)
    (tmp_path / "my_exit.py").write_text("import sys\n\ndef gap(columns):\n    sys.exit(0)\n")
    document = yaml.safe_load(PIPELINE.replace("1969-12-30", '"1969-12-30"').replace("1970-01-02", '"1970-01-02"'))
    document["windows"] = {"session": {"gap": {"function": "my_exit:gap"}}}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(document))
    pipeline = load_file(tmp_path / "other.yaml")
    said = rf"a function of yours called sys\.exit: 0 \({tmp_path}/my_exit\.py, line 4, in gap\)"
    with pytest.raises(SpecError, match=said):
        run_range(spark, tmp_path / "lake", pipeline, ("1969-12-30", "1969-12-31"))
    lake = Lake(root=str(tmp_path / "lake"))
    view = open_request_context(pipeline, lake, now_ms=lambda: 0).ledger.view()
    assert [request.failure for request in view.open_requests()] != [None]
    assert read_published(lake, "other", view).num_rows == 0
