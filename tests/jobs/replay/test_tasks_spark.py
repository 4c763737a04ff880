"""Tasks while a session starts: this process runs them until the session is there, and Spark runs the others."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.replay.tasks import SparkTasks, StartingTasks, tasks_of
from jobs.spark.lazy_session import LazySession
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNT = 5


def wait_for(is_done: Callable[[], bool]) -> None:
    """Return when `is_done` does, at most after a minute."""
    deadline = time.monotonic() + 60
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.01)


def starting_tasks(session: LazySession) -> StartingTasks:
    """Return the tasks of a session that is not there."""
    tasks = tasks_of(session, runs_here=False, may_begin_here=True)
    assert isinstance(tasks, StartingTasks)
    return tasks


@pytest.mark.parametrize("here", [0, 1, 3, COUNT])
def test_this_process_runs_tasks_until_the_session_is_there(spark: "SparkSession", tmp_path: Path, here: int) -> None:
    go, ready = tmp_path / "go", tmp_path / "ready"

    def begin(*_: object) -> "SparkContext":
        wait_for(go.exists)
        return spark.sparkContext

    def run(number: int) -> tuple[int, int]:
        if number == here - 1:
            go.touch()
            wait_for(ready.exists)
        return number, os.getpid()

    session = LazySession(begin, is_local=True, cores=2)
    tasks = starting_tasks(session)
    assert (tasks.cores, tasks.sharers, tasks.shares_files) == (2, 2, True)
    assert session._starting is not None
    session._starting.add_done_callback(lambda _: ready.touch())
    if here == 0:
        go.touch()
        wait_for(ready.exists)
    results = tasks.run(run, range(COUNT))
    assert [number for number, _ in results] == list(range(COUNT))
    assert [pid == os.getpid() for _, pid in results] == [number < here for number in range(COUNT)]
    assert tasks_of(session, runs_here=False, may_begin_here=True) == SparkTasks(spark.sparkContext)


def test_a_session_that_cannot_start_fails_the_tasks_that_need_it_and_no_others() -> None:
    def begin(*_: object) -> "SparkContext":
        time.sleep(0.3)
        raise SpecError("no Java here")

    session = LazySession(begin, is_local=True, cores=2)
    assert starting_tasks(session).run(str, [1]) == ["1"]
    session.stop()
    with pytest.raises(SpecError, match="no Java here"):
        starting_tasks(session).run(lambda _: time.sleep(0.5), [1, 2])
    session.stop()


@pytest.mark.parametrize(("may_begin_here", "cores"), [(False, 2), (True, 0)])
def test_tasks_that_only_workers_may_run_wait_for_the_session(
    spark: "SparkSession", *, may_begin_here: bool, cores: int
) -> None:
    session = LazySession(lambda *_: spark.sparkContext, is_local=True, cores=cores)
    assert tasks_of(session, runs_here=False, may_begin_here=may_begin_here) == SparkTasks(spark.sparkContext)
