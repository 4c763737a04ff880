"""`jobs.readers` with a Spark session: calls in several threads, and the tables that can be read."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import pytest

from expectations.loader import SUITES_VARIABLE
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked
from jobs.planning.suites import with_checks
from jobs.readers import published, published_rows, published_table
from jobs.replay.replayer import replay_chunk
from tests.support.clicks_log import PARTITION, PIPELINE, SCHEMA, day_rows
from tests.support.logs import make_log
from tests.support.no_spark import threads
from tests.support.replays import context_in, pipeline_of
from tests.support.small_lake import SmallLake
from tests.support.spark_session import SparkSession
from windowlib.errors import RequestError
from windowlib.records import tables

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """A lake with two publications."""
    lake, rng = SmallLake(tmp_path_factory.mktemp("readers")), Random(5)
    for day in range(4):
        lake.append(rng)
        lake.run(day, day)
    return lake


@pytest.mark.slow
def test_threads_of_one_session_get_the_rows_of_their_own_call(lake: SmallLake, spark: SparkSession) -> None:
    root = str(lake.root)
    versions = [publication.seq for publication in lake.view().publications] * 4
    expected = [published_table(root, "late", at=at).num_rows for at in versions]
    assert len(set(expected)) > 1
    with ThreadPoolExecutor(4) as pool:
        counts = [*pool.map(lambda at: published(spark, root, "late", at=at).count(), versions)]
    assert counts == expected


def test_a_table_that_has_no_published_rows_is_refused(lake: SmallLake, spark: SparkSession) -> None:
    for table in (tables.LEDGER, "current_window_outputs", "nosuch"):
        with pytest.raises(RequestError, match=f"no published table '{table}'; it has window_outputs, .*tallies"):
            published_rows(spark, str(lake.root), "late", table=table)
    assert published_rows(spark, str(lake.root), "late", table=tables.WATERMARKS).count() == 4


@pytest.mark.slow
def test_the_checks_that_are_read_are_those_that_judge_the_published_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SUITES_VARIABLE, str(tmp_path))
    make_log(spark, str(tmp_path / "log"), [day_rows(0, 5, 7, 20)], schema=SCHEMA, partition_by=PARTITION)
    for most, verdict in ((9, "pass"), (1, "warn")):
        check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "clicks", "max_value": most}}
        suite = {"name": "clicks", "expectations": [check | {"severity": "warning"}]}
        (tmp_path / "clicks.json").write_text(json.dumps({tables.WINDOW_OUTPUTS: suite}))
        pipeline = pipeline_of(PIPELINE + "quality: {suite: expectations/clicks.json, fail_on: critical}\n")
        from_ms, to_ms = (parse_bound(pipeline, bound) for bound in ("1970-01-01", "1970-01-02"))
        asked = Asked(from_ms=from_ms, to_ms=to_ms, who="a test", reason="")
        work = with_checks(context_in(tmp_path, pipeline))
        assert run_request(work, asked, partial(replay_chunk, threads()), staging=Staging()).is_published
        rows = published_rows(spark, str(tmp_path), "clicks", table=tables.QUALITY_RESULTS).collect()
        assert verdict in {row["verdict"] for row in rows}
