"""A Spark session that starts when it is first used. A replay whose chunks are small never starts it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@dataclass(slots=True)
class LazySession:
    """The session of a replayer. `begin` starts it for about so many records that the JVM will process."""

    begin: "Callable[[int], SparkSession]"
    _spark: "SparkSession | None" = None

    @classmethod
    def named(cls, app_name: str, master: str | None = None) -> "LazySession":
        """Return a session that is not started yet (`spark_session`)."""
        return cls(lambda records: spark_session(app_name, master, records=records))

    @classmethod
    def of(cls, spark: "SparkSession") -> "LazySession":
        """Return a session that runs already."""
        return cls(lambda _records: spark, spark)

    @property
    def is_running(self) -> bool:
        """Whether the session was started."""
        return self._spark is not None

    def start(self, records: int = 0) -> "SparkSession":
        """Return the session. The first call starts it for about `records` records that the JVM will process."""
        if self._spark is None:
            self._spark = self.begin(records)
        return self._spark

    def stop(self) -> None:
        """Stop the session if it was started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
