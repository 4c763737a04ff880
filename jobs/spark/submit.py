"""The settings of a JVM that spark-submit starts: the same jars, class archive and compiler as in a session of ours."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from jobs.spark.jars import class_path, delta_jars
from jobs.spark.java_options import class_path_option, find_archive, java_options, spark_jars
from jobs.spark.object_storage import object_storage


class SubmitSettings(NamedTuple):
    """Values of spark-submit; empty if not needed.

    `jars` is `--jars`, `class_path` is `spark.driver.extraClassPath`, `java_options` is
    `spark.driver.extraJavaOptions`.
    """

    jars: str
    class_path: str
    java_options: str


def submit_settings(master: str, *, records: int | None = None, may_read: Sequence[str] = ()) -> SubmitSettings:
    """Return the settings for a program on a Spark master.

    On this machine, Delta's jars are on the class path: Spark then copies no jar, and the class archive covers Delta.
    Spark sends the jars to the executors of a cluster (`spark://…`, `k8s://…`, `yarn`), except jars that each Spark has
    itself. JVMs there have Spark's defaults. The session sends the code (`jobs.spark.code_archive`). `records` is about
    how many records the program reads; None if unknown. `may_read` are the places that its DataFrames will perhaps
    read, see `object_storage`.
    """
    jars, own, further = delta_jars(), spark_jars(), object_storage((), may_read=may_read).jars
    path = class_path_option(jars, own) if is_on_this_machine(master) else None
    if path is None:
        return SubmitSettings(
            jars=",".join(map(str, [*class_path(jars, own), *further])), class_path="", java_options=""
        )
    return SubmitSettings(
        jars=",".join(map(str, further)),
        class_path=path,
        java_options=" ".join(java_options(find_archive(), records=records)),
    )


def master_url(scheme: str, host: str, port: int | None) -> str:
    """Return the URL of the Spark master that Airflow's Spark provider makes of a connection.

    A connection that was given as JSON has the scheme `spark`, and its host is a whole URL or a name such as `local[*]`
    or `yarn`. A connection that was given as a URI has the URL's own scheme.
    """
    start = host if scheme == "spark" and ("://" in host or port is None) else f"{scheme}://{host}"
    return start if port is None else f"{start}:{port}"


def is_on_this_machine(master: str) -> bool:
    """Return whether a master runs executors as threads of the driver (`local`, `local[4]`, `local[*]`)."""
    return master.partition("[")[0] == "local"


def local_cores(master: str) -> int:
    """Return how many tasks a master on this machine runs at the same time: `local[4, 2]` 4, `local` 1."""
    number = master.partition("[")[2].partition("]")[0].partition(",")[0].strip()
    if number == "*":
        return os.cpu_count() or 1
    return int(number) if number.isdigit() else 1


def are_on_class_path(given: str) -> bool:
    """Return whether a class path has Delta's jars, because `submit_settings` has put them there."""
    entries = set(given.split(os.pathsep))
    return bool(entries & {str(jar) for jar in delta_jars() if "delta-spark" in jar.name})
