"""Spark: with Delta, on the loopback interface, quiet, in UTC, with Parquet that other readers can read.

Tasks need a context only. A session adds SQL and Delta to it, for DataFrames. That costs another 1.2 CPU-seconds.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from jobs.spark.code_archive import code_archive
from jobs.spark.jars import class_path, delta_jars
from jobs.spark.java import ensure_java, why_not_started
from jobs.spark.java_options import class_path_option, find_archive, java_options, spark_jars
from jobs.spark.object_storage import object_storage
from jobs.spark.private_dir import private_directory
from jobs.spark.submit import are_on_class_path, is_on_this_machine
from windowlib.errors import RequestError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|\w+://.+")
COMPARE_PAGES = "parquet.page.verify-checksum.enabled"
"""The setting of Hadoop, or of a session, with which DataFrames refuse a damaged page. By default it is read."""
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Spark's default, INT96, fails in other readers and has wrong statistics in years far from now.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Inside, times are integers of UTC. Where SQL reads a text as a time, the machine's zone must not matter (law L1).
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.files.ignoreMissingFiles": "false",
    f"spark.hadoop.{COMPARE_PAGES}": "true",
    # A slice is small. Spark's defaults, 200 shuffle tasks and 50 snapshot tasks, would take most of the time.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "5",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_LOCAL_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",  # every user of the machine reaches the ports; Spark makes the secret itself
    "spark.python.daemon.module": "jobs.replay.worker_daemon",  # it has imported the modules of the tasks
}
_SOCKET_PATH_MAX = 100
"""The system allows 107 bytes in the path of a Unix domain socket."""
_SOCKET_NAME = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")

_OPTIONS, _CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
_RUNNING_JVM = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it: the JVM runs already


def spark_session(
    app_name: str, master: str | None = None, *, extra_options: Sequence[str] = (), reads: Sequence[str] = ()
) -> "SparkSession":
    """Return the Spark session of this process, and start it if there is none (`spark_context`)."""
    return session_of(spark_context(app_name, master, extra_options=extra_options, reads=reads))


def session_of(context: "SparkContext") -> "SparkSession":
    """Return the session of a context, for DataFrames. The first call makes it."""
    with _without_warnings_of_pandas():
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
    assert session.sparkContext is context, "a process has one context"
    return session


def spark_context(
    app_name: str,
    master: str | None = None,
    *,
    records: int | None = None,
    extra_options: Sequence[str] = (),
    reads: Sequence[str] = (),
    may_read: Sequence[str] = (),
) -> "SparkContext":
    """Return the Spark context of this process, and start it if there is none.

    Args:
        app_name: the name in Spark's lists of applications.
        master: a Spark master URL. By default that of spark-submit, else `HINDCAST_MASTER`, else all local cores.
        records: about how many records all jobs of the context will read; None if unknown.
        extra_options: further options of that JVM.
        reads: the places that DataFrames will read, see `object_storage`.
        may_read: the places that they will perhaps read.

    Raises:
        JarsMissing: a jar of Delta is missing, or one that a place of `reads` needs.
        JavaNotFound: this machine has no Java 17.
        RequestError: Java ends before Spark has started, for example Java 11.
    """
    storage = object_storage(reads, may_read=may_read)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers start the python3 of the PATH
    with _without_warnings_of_pandas():
        from pyspark import SparkContext

        given = _submitted()
        chosen = chosen_master(master)
        is_local = is_on_this_machine(chosen)
        if is_local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark needs an address of the machine's name
        settings = _CONF | (_LOCAL_CONF if is_local else {})
        private = private_directory()
        settings |= {"spark.app.name": app_name, "spark.master": chosen, "spark.local.dir": str(private)}
        # Nothing is stored there, but Spark makes the directory, by default in the working directory.
        settings["spark.sql.warehouse.dir"] = str(private / "warehouse")
        settings["spark.driver.memory"] = os.environ.get("HINDCAST_DRIVER_MEMORY", "3g")
        if is_local:
            settings |= socket_settings(str(private))
        settings |= _jvm_settings(
            given.get(_OPTIONS, "") or "",
            extra=[*java_options(find_archive(), records=records), *extra_options],
            starts_here=is_local and _RUNNING_JVM not in os.environ and not given.contains(_CLASS_PATH),
            has_jars=is_local and are_on_class_path(given.get(_CLASS_PATH, "") or ""),
        )
        settings |= storage.settings
        if storage.jars and _RUNNING_JVM not in os.environ:  # spark-submit has got them (`jobs.spark.submit`)
            settings["spark.jars"] = ",".join([*filter(None, [settings.get("spark.jars")]), *map(str, storage.jars)])
        with _refusals_of_java():
            context = SparkContext.getOrCreate(given.setAll(list(settings.items())))
        if not is_local:
            send_code(context)
        return context


def stop_spark(context: "SparkContext") -> None:
    """Stop a context. A thread waits for pyspark's receiver of accumulators, which takes up to a second to end."""
    fields = vars(context)
    if (receiver := fields.pop("_accumulatorServer", None)) is not None:
        Thread(target=receiver.shutdown, name="end of Spark's accumulators", daemon=True).start()
    context.stop()


@contextmanager
def _without_warnings_of_pandas() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        yield


@contextmanager
def _refusals_of_java() -> Iterator[None]:
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise RequestError(why_not_started()) from error


def chosen_master(master: str | None = None) -> str:
    """Return the Spark master of this process: the given one, else as `spark_session` says. No session is started.

    Raises RequestError: Spark knows no such master. It would end with the call stack of its JVM.
    """
    submitted = _submitted().get("spark.master", None) if _RUNNING_JVM in os.environ and not master else None
    chosen = master or submitted or os.environ.get("HINDCAST_MASTER") or DEFAULT_MASTER
    if _MASTER.fullmatch(chosen) is None:
        raise RequestError(
            f"the Spark master (--master, or HINDCAST_MASTER) is {chosen!r}; allowed are local, local[4], local[*], "
            "yarn, and URLs such as spark://HOST:7077 and k8s://https://HOST:6443"
        )
    return chosen


def _submitted() -> "SparkConf":
    """Return the settings of spark-submit, empty without it. They are those of its JVM, so this process connects to it.

    Before the connection, `SparkConf` is empty, and a master that is set here would replace that of spark-submit.
    """
    from pyspark import SparkConf, SparkContext

    if _RUNNING_JVM in os.environ:
        SparkContext._ensure_initialized()  # noqa: SLF001 - pyspark has no other way to connect without a session
    return SparkConf()


def send_code(context: "SparkContext") -> None:
    """Send the project's packages to the executors of a context. Modules of this process stay as they are."""
    before = list(sys.path)
    context.addPyFile(str(code_archive()))
    sys.path[:] = before  # else this process would import the rest of the packages from the archive


def socket_settings(directory: str) -> dict[str, str]:
    """Return the settings for Unix domain sockets between the JVM and Python, in a directory of this user.

    Over TCP, each task waits 40 ms for a delayed acknowledgement. If the path is too long, TCP is used.
    """
    if len(os.fsencode(directory)) + _SOCKET_NAME > _SOCKET_PATH_MAX:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": directory}


def _jvm_settings(given: str, *, extra: Sequence[str], starts_here: bool, has_jars: bool = False) -> dict[str, str]:
    """Return the settings for Delta's jars and for the options of the JVM.

    A JVM that this process starts on this machine gets the jars on its class path: Spark then copies no jar, and the
    class archive covers Delta. Other JVMs get the jars from Spark, unless they have them (`jobs.spark.submit`).
    """
    if has_jars:
        return {}
    jars, own = delta_jars(), spark_jars()
    path = class_path_option(jars, own) if starts_here else None
    if path is None:
        return {"spark.jars": ",".join(map(str, class_path(jars, own)))}
    options = " ".join(option for option in (*extra, given) if option)  # a later option wins: the user's
    return {_CLASS_PATH: path} | ({_OPTIONS: options} if options else {})
