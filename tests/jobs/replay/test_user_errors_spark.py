"""A user's function that ends the program inside a Spark worker: one paragraph, exit status 2, nothing visible."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from jobs.lake.lake import Lake
from jobs.pipeline.files import load_file
from jobs.planning.workspace import open_workspace
from jobs.reading.published import read_published
from tests.support.logs import make_log
from tests.support.other_log import PARTITION, PIPELINE, SCHEMA, TABLE, other_log
from tests.support.replays import run_range
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_function_that_exits_in_a_worker_is_named(spark: "SparkSession", tmp_path: Path) -> None:
    log = other_log(random.Random(20130208), records_per_day=20)
    make_log(spark, str(tmp_path / "lake" / TABLE), log.commits, schema=SCHEMA, partition_by=PARTITION)
    (tmp_path / "my_exit.py").write_text("import sys\n\ndef gap(columns):\n    sys.exit(0)\n")
    document = yaml.safe_load(PIPELINE.replace("1969-12-30", '"1969-12-30"').replace("1970-01-02", '"1970-01-02"'))
    document["windows"] = {"session": {"gap": {"function": "my_exit:gap"}}}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(document))
    pipeline = load_file(tmp_path / "other.yaml")
    said = rf"a function of yours called sys\.exit: 0 \({tmp_path}/my_exit\.py, line 4, in gap\)"
    with pytest.raises(SpecError, match=said):
        run_range(spark, tmp_path / "lake", pipeline, ("1969-12-30", "1969-12-31"))
    lake = Lake(root=str(tmp_path / "lake"))
    view = open_workspace(pipeline, lake, now_ms=lambda: 0).ledger.view()
    assert [request.failure for request in view.open_requests()] != [None]
    assert read_published(lake, "other", view).num_rows == 0
