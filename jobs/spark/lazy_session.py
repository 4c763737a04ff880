"""A Spark context that starts when it is first used. A replay whose chunks are small never starts it."""

from collections.abc import Sequence
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
    read. `is_local` tells whether its workers are on this machine. `cores` is the number of tasks that
    may run at the same time on this machine.
    """

    begin: "Callable[[int, Sequence[str]], SparkContext]"
    is_local: bool
    cores: int = 1
    _spark: "SparkContext | None" = None

    @classmethod
    def named(cls, app_name: str, master: str | None = None) -> "LazySession":
        """Return a context that is not started yet (`spark_context`)."""
        chosen = chosen_master(master)
        return cls(
            lambda records, places: spark_context(app_name, chosen, records=records, may_read=places),
            is_local=is_on_this_machine(chosen),
            cores=local_cores(chosen),
        )

    @classmethod
    def of(cls, spark: "SparkSession") -> "LazySession":
        """Return the context of a session that runs already."""
        context = spark.sparkContext
        master = str(context.master)
        return cls(lambda *_: context, is_local=is_on_this_machine(master), cores=local_cores(master), _spark=context)

    def start(self, records: int = 0, *, reads: Sequence[str] = (), may_read: Sequence[str] = ()) -> "SparkContext":
        """Return the context. The first call starts it.

        The JVM will process about so many `records`. DataFrames will read the places `reads`, and perhaps `may_read` in
        a later chunk: a context cannot get jars afterwards.
        Raises JarsMissing: a place of `reads` needs a jar that is missing, also if the context runs already.
        """
        object_storage(reads)
        if self._spark is None:
            self._spark = self.begin(records, (*reads, *may_read))
        return self._spark

    def close(self) -> None:
        """Stop the context if it was started."""
        if self._spark is not None:
            stop_spark(self._spark)
            self._spark = None
