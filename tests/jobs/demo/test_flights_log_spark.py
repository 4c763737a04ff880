"""The log of flights as a Delta table: order, properties, a commit per day, killed and repeated loads."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from delta.tables import DeltaTable

from jobs.demo.flights import COLUMNS, PROPERTIES, TABLE, load_flights
from jobs.demo.flights_rows import read_flights
from tests.support.logs import log_order, make_log
from tests.support.places import ROOT
from tests.support.spark_session import SparkSession
from windowlib.errors import LogError, RequestError

pytestmark = pytest.mark.spark

DAYS = [date(2013, 2, 7), date(2013, 2, 8), date(2013, 2, 9)]
END = date(2013, 2, 10)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three days. Its name needs quoting in every language."""
    assert spark is not None
    root = tmp_path_factory.mktemp("lakes") / "a `lake` of 'ours' é"
    load_flights(str(root), DAYS[0], END)
    return root


@pytest.fixture
def own_lake(lake: Path, tmp_path: Path) -> Path:
    """A copy that a test may change. A copied table keeps its commit times, which are in the Delta log."""
    shutil.copytree(lake, tmp_path / "lake")
    return tmp_path / "lake"


def commits(lake: Path) -> list[list[dict[str, dict[str, object]]]]:
    files = sorted((lake / TABLE / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in files]


@pytest.mark.slow
def test_the_order_of_commits_is_the_order_of_reports(spark: SparkSession, lake: Path) -> None:
    expected = [row for rows in read_flights(DAYS[0], END).values() for row in rows]
    assert log_order(spark, str(lake / TABLE), *COLUMNS) == expected


def test_each_day_is_one_commit_of_one_file(lake: Path) -> None:
    made, *days = commits(lake)
    assert not [action for action in made if "add" in action]
    added = [[action["add"] for action in commit if "add" in action] for commit in days]
    assert [[add["partitionValues"] for add in adds] for adds in added] == [[{"ingest_date": str(day)}] for day in DAYS]


def test_the_properties_are_there_from_the_first_commit(lake: Path) -> None:
    first = commits(lake)[0]
    [metadata] = [action["metaData"] for action in first if "metaData" in action]
    configuration = metadata["configuration"]
    assert isinstance(configuration, dict)
    assert PROPERTIES.items() <= configuration.items()
    [protocol] = [action["protocol"] for action in first if "protocol" in action]
    assert isinstance(protocol["writerFeatures"], list)
    assert {"rowTracking", "inCommitTimestamp", "appendOnly"} <= set(protocol["writerFeatures"])
    assert "deletionVectors" not in protocol["writerFeatures"]


@pytest.mark.slow
def test_a_delete_is_refused(spark: SparkSession, lake: Path) -> None:
    table = DeltaTable.forPath(spark, str(lake / TABLE))
    with pytest.raises(Exception, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        table.delete("carrier = 'HA'")


@pytest.mark.slow
def test_loading_again_adds_only_the_days_that_are_not_there(spark: SparkSession, own_lake: Path) -> None:
    seen: list[tuple[date, int, int]] = []
    summary = load_flights(str(own_lake), DAYS[1], date(2013, 2, 11), progress=lambda *done: seen.append(done))
    assert (summary.loaded, summary.skipped, summary.records) == ((END,), tuple(DAYS[1:]), 692)
    assert seen == [(DAYS[1], 1, 3), (DAYS[2], 2, 3), (END, 3, 3)]
    expected = [row.flight_id for rows in read_flights(DAYS[0], date(2013, 2, 11)).values() for row in rows]
    assert [row[0] for row in log_order(spark, str(own_lake / TABLE), "flight_id")] == expected


@pytest.mark.slow
def test_a_load_of_nothing_new_needs_no_spark(own_lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.demo.flights.spark_session", lambda *_: pytest.fail("a session was started"))
    summary = load_flights(str(own_lake), DAYS[0], END)
    assert (summary.loaded, summary.skipped, summary.records) == ((), tuple(DAYS), 0)


@pytest.mark.slow
def test_a_day_that_another_load_commits_meanwhile_is_not_doubled(
    own_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(commits(own_lake))
    monkeypatch.setattr("jobs.demo.flights._days_present", lambda _table: {})
    load_flights(str(own_lake), DAYS[0], END)
    assert len(commits(own_lake)) == before


@pytest.mark.e2e
@pytest.mark.slow
def test_a_load_that_is_killed_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    first, end = date(2013, 2, 1), date(2013, 2, 9)
    command = (
        "from datetime import date; from jobs.demo.flights import load_flights; "
        f"load_flights({str(tmp_path)!r}, date.fromisoformat('{first}'), date.fromisoformat('{end}'))"
    )
    log = tmp_path / TABLE / "_delta_log"
    killed = subprocess.Popen([sys.executable, "-c", command], cwd=ROOT, start_new_session=True)
    try:
        while len(list(log.glob("*.json"))) < 3:  # the creation and two days; pytest's timeout ends a wait in vain
            assert killed.poll() is None, "the load ended before it could be killed"
            time.sleep(0.05)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)  # Python and its JVM
        killed.wait()
    present = len(list(log.glob("*.json"))) - 1
    assert 2 <= present < 8
    summary = load_flights(str(tmp_path), first, end)
    assert (len(summary.skipped), len(summary.loaded)) == (present, 8 - present)
    expected = [row.flight_id for rows in read_flights(first, end).values() for row in rows]
    assert [row[0] for row in log_order(spark, str(tmp_path / TABLE), "flight_id")] == expected


@pytest.mark.slow
def test_what_a_killed_creation_leaves_is_built_upon(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    log = tmp_path / TABLE / "_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.tmp").write_text("half a com", encoding="utf-8")
    assert load_flights(str(tmp_path), DAYS[0], DAYS[1]).records == 914


@pytest.mark.parametrize(
    ("first", "end", "said"),
    [
        (date(2013, 2, 8), date(2013, 2, 8), r"\[2013-02-08, 2013-02-08\) is empty"),
        (date(2013, 2, 9), date(2013, 2, 8), r"\[2013-02-09, 2013-02-08\) is reversed"),
        (date(2012, 12, 31), date(2013, 1, 2), r"reaches outside"),
        (date(2014, 1, 1), date(2014, 1, 3), r"\[2013-01-01, 2014-01-02\)"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(tmp_path: Path, first: date, end: date, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        load_flights(str(tmp_path), first, end)
    assert not list(tmp_path.iterdir())


def test_something_else_in_the_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / TABLE).mkdir(parents=True)
    (tmp_path / TABLE / "mine.txt").touch()
    with pytest.raises(LogError, match="not a Delta table"):
        load_flights(str(tmp_path), DAYS[0], END)


def test_a_table_that_is_not_ours_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    make_log(
        spark,
        str(tmp_path / TABLE),
        [[("x", DAYS[0])]],
        schema="id string, ingest_date date",
        partition_by="ingest_date",
    )
    with pytest.raises(LogError, match="not a log of flights"):
        load_flights(str(tmp_path), DAYS[0], END)


def test_a_table_without_our_properties_is_refused(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    source = spark.read.format("delta").load(str(lake / TABLE))
    source.write.format("delta").partitionBy("ingest_date").save(str(tmp_path / TABLE))
    with pytest.raises(LogError, match=r"not made by load-flights.*enableRowTracking"):
        load_flights(str(tmp_path), DAYS[0], END)


@pytest.mark.slow
def test_a_day_that_somebody_added_to_is_refused(spark: SparkSession, own_lake: Path) -> None:
    path = str(own_lake / TABLE)
    extra = (
        spark.read.format("delta").load(path).where("flight_id = '2013-02-07-UA-1545-EWR' OR carrier = 'HA'").limit(1)
    )
    extra.write.format("delta").mode("append").save(path)
    with pytest.raises(LogError, match="another program wrote to it"):
        load_flights(str(own_lake), DAYS[0], END)
