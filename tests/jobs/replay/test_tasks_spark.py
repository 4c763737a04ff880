"""Where the tasks of a chunk run."""

import pytest

from jobs.replay.tasks import LocalTasks, SparkTasks, tasks_of
from jobs.spark.lazy_session import LazySession
from tests.support.no_spark import threads
from tests.support.spark_session import SparkSession
from windowlib.errors import SpecError

pytestmark = pytest.mark.spark


def test_threads_of_this_process_run_tasks_or_the_workers_of_a_session(spark: SparkSession) -> None:
    assert tasks_of(threads(), threads=3) == LocalTasks(3)
    session = LazySession.of(spark)
    assert (session.is_local, session.cores) == (True, 2)
    tasks = tasks_of(session, threads=0)
    assert tasks == SparkTasks(spark.sparkContext)
    assert (tasks.cores, tasks.sharers, tasks.shares_files) == (2, 2, True)
    assert tasks.run(abs, [1, -2, 3]) == tasks.share(abs, [1, -2, 3]) == [1, 2, 3]
    assert tasks.run(abs, []) == []


def test_an_error_of_ours_comes_as_it_is_and_others_as_that_of_spark(spark: SparkSession) -> None:
    tasks = SparkTasks(spark.sparkContext)

    def refuse(number: int) -> int:
        if number:
            raise SpecError(f"no {number}")
        return number

    with pytest.raises(SpecError, match="no 1"):
        tasks.run(refuse, [0, 1, 2])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        tasks.run(lambda number: 1 // number, [1, 0])
