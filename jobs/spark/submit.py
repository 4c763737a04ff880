"""The settings of a JVM that spark-submit starts: the same jars, class archive and compiler as in a session of ours."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from jobs.spark.jars import delta_jars
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

    On this machine, Delta's jars are on the class path: Spark then copies no jar, and the class archive covers Delta. A
    cluster gets the jars from Spark, and its JVMs have Spark's defaults.

    Args:
        master: the URL of the master, such as `local[*]`.
        records: about how many records the program reads; None if unknown.
        may_read: the places that its DataFrames will perhaps read, see `object_storage`.
    """
    jars, further = delta_jars(), object_storage((), may_read=may_read).jars
    path = class_path_option(jars, spark_jars()) if master.startswith("local") else None
    if path is None:
        return SubmitSettings(jars=",".join(map(str, [*jars, *further])), class_path="", java_options="")
    return SubmitSettings(
        jars=",".join(map(str, further)),
        class_path=path,
        java_options=" ".join(java_options(find_archive(), records=records)),
    )


def are_on_class_path(given: str) -> bool:
    """Return whether a class path has Delta's jars, because `submit_settings` has put them there."""
    entries = set(given.split(os.pathsep))
    return bool(entries & {str(jar) for jar in delta_jars() if "delta-spark" in jar.name})
