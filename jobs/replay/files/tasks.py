"""Runs Python functions as tasks of Spark. Spark schedules them and tries them again; only their arguments move."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one session."""

    spark: "SparkSession"

    def run(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Return the results of a function, one task per argument, in order.

        Raises:
            HindcastError: the first error of ours that a task raised. Other exceptions come as Spark's, after retries.
        """
        if not arguments:
            return []
        context = self.spark.sparkContext

        def attempt(argument: Argument) -> Result | HindcastError:
            # After each task, the worker collects garbage. That takes 50 ms over all modules, and 1 ms without them.
            gc.freeze()
            try:
                return function(argument)
            except HindcastError as error:  # no retry mends it, and Spark would make a text of it
                return error

        results: list[Result] = []
        for one in context.parallelize(list(arguments), len(arguments)).map(attempt).collect():
            if isinstance(one, HindcastError):
                raise one
            results.append(one)
        return results
