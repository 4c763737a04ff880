"""Runs Python functions as tasks: in Spark's workers, or in threads of this process.

Spark schedules its tasks and tries them again; only their arguments move. Its start takes seconds, so a chunk that is
not large runs in this process (`Pinned.threads`) if Spark would be on this machine as well. The functions are the
same. Those of the columnar executor spend their time in Arrow, numpy and compiled loops, which let other threads run.
An operator runs records in Python, one thread at a time.
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from jobs.replay.process_memory import giving_memory_back
from jobs.replay.stage_times import counting
from jobs.spark.lazy_session import LazySession
from windowlib.errors import HindcastError
from windowlib.libraries import pa

if TYPE_CHECKING:
    from pyspark import SparkContext

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Tasks(ABC):
    """Runs tasks."""

    @property
    @abstractmethod
    def shares_files(self) -> bool:
        """Whether all tasks see the files of this machine."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """About how many tasks run at the same time, at least 1."""

    @abstractmethod
    def run(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Return the results of a function, one task per argument, in order.

        Raises:
            HindcastError: the first error of ours that a task raised. Other exceptions come as they are, or as Spark's.
        """

    @property
    def sharers(self) -> int:
        """About how many tasks of `share` run at the same time, at least 1."""
        return self.cores

    def share(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Do the same as `run` with a function that may run in threads: its time is that of Arrow and numpy."""
        return self.run(function, arguments)


def tasks_of(session: LazySession, *, threads: int, may_read: Sequence[str] = ()) -> Tasks:
    """Return tasks in this process, or in the workers of a session, which is started.

    So many `threads` run tasks of this process at the same time; 0 if the tasks run in the session. DataFrames of a
    later chunk may read the places `may_read` in the session.
    """
    return LocalTasks(threads) if threads else SparkTasks(session.start(may_read=may_read))


@dataclass(frozen=True, slots=True)
class SparkTasks(Tasks):
    """Tasks in the workers of Spark."""

    context: "SparkContext"

    @property
    def shares_files(self) -> bool:
        """Whether the workers are on this machine."""
        return str(self.context.master).startswith("local")

    @property
    def cores(self) -> int:
        """The cores of the executors that Spark has now."""
        return max(self.context.defaultParallelism, 1)

    def run(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Return the results of one Spark job. An error that is not ours comes as Spark's, after retries."""
        if not arguments:
            return []
        context = self.context

        def attempt(argument: Argument) -> Result | HindcastError:
            # After each task, the worker collects garbage. That takes 50 ms over all modules, and 1 ms without them.
            gc.freeze()
            try:
                return function(argument)
            except HindcastError as error:  # no retry mends it, and Spark would make a text of it
                return error

        results: list[Result] = []
        with counting(lambda: _active_tasks(context)):
            outcomes = context.parallelize(list(arguments), len(arguments)).map(attempt).collect()
        for outcome in outcomes:
            if isinstance(outcome, HindcastError):
                raise outcome
            results.append(outcome)
        return results


def _active_tasks(context: "SparkContext") -> tuple[int, int]:
    """Return how many tasks of the running Spark stages are done, and how many they have."""
    tracker = context.statusTracker()
    infos = [info for stage_id in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage_id)) is not None]
    return sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos)


@dataclass(frozen=True, slots=True)
class LocalTasks(Tasks):
    """Tasks in this process, in so many threads. `share` uses at least as many as Arrow does."""

    cores: int = 1

    @property
    def shares_files(self) -> bool:
        return True

    def run(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Return the results. The first exception, by the order of the arguments, ends the run."""
        with _same_collector(), giving_memory_back():
            return _in_threads(self.cores, function, arguments)

    @property
    def sharers(self) -> int:
        return max(self.cores, int(pa.cpu_count()))

    def share(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        return _in_threads(self.sharers, function, arguments)


def _in_threads(threads: int, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
    """Return the results of a function, in order. A task that has not begun when another one fails does not begin."""
    results: list[Result] = []
    if min(threads, len(arguments)) <= 1:
        with counting(lambda: (len(results), len(arguments))):
            for argument in arguments:
                results.append(function(argument))  # noqa: PERF401 - the length of the list is the progress
        return results
    pool = ThreadPoolExecutor(threads)
    try:
        asked = [pool.submit(function, argument) for argument in arguments]
        with counting(lambda: (sum(future.done() for future in asked), len(asked))):
            return [future.result() for future in asked]
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _same_collector() -> Iterator[None]:
    """Restore the thresholds of the garbage collector, which tasks change for the life of a worker."""
    before = gc.get_threshold()
    try:
        yield
    finally:
        gc.set_threshold(*before)
