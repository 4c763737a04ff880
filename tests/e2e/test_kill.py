"""kill -9 of a whole run, driver and JVM, in the middle of its writing; then the same command again (law L5)."""

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.support.commands import Commands, until_from
from tests.support.logs import make_log
from tests.support.other_log import PARTITION, PIPELINE, SCHEMA, TABLE, other_log
from tests.support.replays import pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.slow]

FROM, TO = "1969-12-30", "1970-01-03"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    log = other_log(random.Random(20130208), records_per_day=100)
    make_log(spark, str(tmp_path / "lake" / TABLE), log.commits, schema=SCHEMA, partition_by=PARTITION)
    (tmp_path / "other.yaml").write_text(PIPELINE, encoding="utf-8")
    return tmp_path / "lake"


@pytest.fixture
def commands() -> Iterator[Commands]:
    with Commands() as started:
        yield started


def _hindcast(commands: Commands, lake: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start the command in a session of its own, so that one signal reaches all its processes."""
    return commands.python("-m", "jobs.cli.main", *arguments, "--lake", str(lake), environ={"TZ": "America/New_York"})


def _run(commands: Commands, lake: Path) -> "subprocess.Popen[str]":
    pipeline = str(lake.parent / "other.yaml")
    return _hindcast(commands, lake, "run", pipeline, "--from", FROM, "--to", TO, "--json", "--master", "local[1]")


def _show(commands: Commands, lake: Path) -> list[Any]:
    shown = _hindcast(commands, lake, "show", str(lake.parent / "other.yaml"), "--json")
    out, err = shown.communicate()
    assert shown.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_a_run_killed_in_its_writing_leaves_nothing_visible_and_runs_again_to_the_same(
    spark: SparkSession, lake: Path, tmp_path: Path, commands: Commands
) -> None:
    shutil.copytree(lake / TABLE, tmp_path / "undisturbed" / TABLE)
    killed = _run(commands, lake)
    # It has more tables to write when the first of them has rows.
    first_commit = lake / "other" / "invalid_records" / "_delta_log" / "00000000000000000001.json"
    until_from(killed, first_commit.exists, what="rows are committed to invalid_records")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert _show(commands, lake) == []

    again = _run(commands, lake)
    out, err = again.communicate()
    assert again.returncode == 0, err
    found = json.loads(out)
    undisturbed = run_range(spark, tmp_path / "undisturbed", pipeline_of(PIPELINE), (FROM, TO))
    assert found["runs"] == what_was_run(undisturbed), "one core, another zone, after a kill: the same ids and digests"
    assert found["published"]
    attempts = set(DeltaTable(str(lake / "other" / "invalid_records")).to_pyarrow_table()["attempt_id"].to_pylist())
    assert len(attempts) == 2, "the killed attempt left rows; nobody reads them"
    shown = _show(commands, lake)
    assert len({row["attempt_id"] for row in shown}) == 1
    windows = [(row["sensor-id"], row["window_start"]) for row in shown]
    assert len(windows) == len(set(windows)) > 0, "nothing is doubled"
