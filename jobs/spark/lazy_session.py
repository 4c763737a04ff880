"""A Spark session that starts when it is first used. A replay whose chunks are small never starts it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.spark.object_storage import object_storage
from jobs.spark.session import chosen_master, spark_session
from jobs.spark.submit import is_on_this_machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@dataclass(slots=True)
class LazySession:
    """The session of a replayer.

    `begin` starts it for about so many records that the JVM will process, and for places that DataFrames will perhaps
    read. `is_local` tells whether its workers are on this machine.
    """

    begin: "Callable[[int, Sequence[str]], SparkSession]"
    is_local: bool
    _spark: "SparkSession | None" = None

    @classmethod
    def named(cls, app_name: str, master: str | None = None) -> "LazySession":
        """Return a session that is not started yet (`spark_session`)."""
        chosen = chosen_master(master)
        return cls(
            lambda records, places: spark_session(app_name, chosen, records=records, may_read=places),
            is_local=is_on_this_machine(chosen),
        )

    @classmethod
    def of(cls, spark: "SparkSession") -> "LazySession":
        """Return a session that runs already."""
        return cls(lambda _records, _places: spark, is_on_this_machine(str(spark.sparkContext.master)), spark)

    @property
    def is_running(self) -> bool:
        """Whether the session was started."""
        return self._spark is not None

    def start(self, records: int = 0, *, reads: Sequence[str] = (), may_read: Sequence[str] = ()) -> "SparkSession":
        """Return the session. The first call starts it.

        Args:
            records: about how many records the JVM will process.
            reads: the places that DataFrames will read.
            may_read: the places that they will perhaps read in a later chunk. A session cannot get jars afterwards.

        Raises:
            JarsMissing: a place of `reads` needs a jar that is missing, also if the session runs already.
        """
        object_storage(reads)
        if self._spark is None:
            self._spark = self.begin(records, (*reads, *may_read))
        return self._spark

    def stop(self) -> None:
        """Stop the session if it was started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
