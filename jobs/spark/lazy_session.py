"""A Spark context that starts when it is first used. A replay whose chunks are small never starts it."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.spark.object_storage import object_storage
from jobs.spark.session import chosen_master, spark_context, stop_spark
from jobs.spark.submit import is_on_this_machine, local_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class LazySession:
    """The Spark context of a replayer.

    `begin` starts it for about so many records that the JVM will process, and for places that DataFrames will perhaps
    read. `is_local` tells whether its workers are on this machine. `cores` is the number of their tasks that run at the
    same time on this machine; 0 if unknown.
    """

    begin: "Callable[[int, Sequence[str]], SparkContext]"
    is_local: bool
    cores: int = 0
    _spark: "SparkContext | None" = None
    _starting: "Future[SparkContext] | None" = None

    @classmethod
    def named(cls, app_name: str, master: str | None = None) -> "LazySession":
        """Return a context that is not started yet (`spark_context`)."""
        chosen = chosen_master(master)
        return cls(
            lambda records, places: spark_context(app_name, chosen, records=records, may_read=places),
            is_local=is_on_this_machine(chosen),
            cores=local_cores(chosen) if is_on_this_machine(chosen) else 0,
        )

    @classmethod
    def of(cls, spark: "SparkSession") -> "LazySession":
        """Return the context of a session that runs already."""
        context = spark.sparkContext
        return cls(lambda *_: context, is_local=is_on_this_machine(str(context.master)), _spark=context)

    @property
    def is_running(self) -> bool:
        """Whether the context was started. `start` returns at once."""
        return self._spark is not None or (self._starting is not None and self._starting.done())

    def start_beside(self, *, may_read: Sequence[str] = ()) -> None:
        """Start the context and its workers in a thread. `start` waits for it, and raises what the thread raised."""
        if self._spark is None and self._starting is None:
            starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="start of Spark")
            self._starting = starter.submit(self._with_workers, tuple(may_read))
            starter.shutdown(wait=False)

    def _with_workers(self, may_read: Sequence[str]) -> "SparkContext":
        context = self.begin(0, may_read)
        context.parallelize(range(self.cores), self.cores).count()  # it starts a worker for each core
        return context

    def start(self, records: int = 0, *, reads: Sequence[str] = (), may_read: Sequence[str] = ()) -> "SparkContext":
        """Return the context. The first call starts it.

        Args:
            records: about how many records the JVM will process.
            reads: the places that DataFrames will read.
            may_read: the places that they will perhaps read in a later chunk. A context cannot get jars afterwards.

        Raises:
            JarsMissing: a place of `reads` needs a jar that is missing, also if the context runs already.
        """
        object_storage(reads)
        if self._spark is None:
            starting, self._starting = self._starting, None
            self._spark = self.begin(records, (*reads, *may_read)) if starting is None else starting.result()
        return self._spark

    def stop(self) -> None:
        """Stop the context if it was started."""
        starting, self._starting = self._starting, None
        if starting is not None and starting.exception() is None:  # it waits; nobody needs a context that failed
            self._spark = starting.result()
        if self._spark is not None:
            stop_spark(self._spark)
            self._spark = None
