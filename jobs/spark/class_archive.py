"""Makes the class archive: runs a few small jobs that load the classes of a replay, and lets the JVM write them.

`make setup` runs `python -m jobs.spark.class_archive`.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.spark.java import export_java_home
from jobs.spark.java_options import QUIET, find_archive
from jobs.spark.session import spark_session
from windowlib.libraries import pa

_WAIT_S = 300


def run_small_jobs(options: Sequence[str]) -> None:
    """Run the jobs in a new JVM with these options, and wait until the JVM has ended.

    Raises:
        subprocess.TimeoutExpired: the JVM did not end.
    """
    spark: Any = spark_session("hindcast set-up", "local[2]", extra_options=options)
    process = spark.sparkContext._gateway.proc  # noqa: SLF001 - pyspark has no other way to wait for its JVM
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    with tempfile.TemporaryDirectory() as directory:
        log = f"{directory}/log"
        rows = "id", "cast(id % 3 as string) AS day", "cast(id as string) AS text", "timestamp_millis(id) AS at"
        for _ in range(2):
            frame = spark.range(200).selectExpr(*rows)
            writer = frame.coalesce(1).write.format("delta").mode("append").partitionBy("day")
            writer.option("delta.enableRowTracking", "true").save(log)
        read = spark.read.format("delta").option("versionAsOf", 1).load(log)
        hidden = read.selectExpr("*", "_metadata.row_commit_version AS v", "_metadata.row_id AS i")
        ordered = hidden.orderBy("v", "i").localCheckpoint()
        ordered.groupBy("day").agg({"id": "sum", "text": "max"}).collect()
        ordered.mapInArrow(_same, ordered.schema).groupBy("day").applyInArrow(_one, ordered.schema).write.format(
            "delta"
        ).save(f"{directory}/out")
        spark.sql(f"SELECT day, count(*), bit_xor(id) FROM delta.`{directory}/out` GROUP BY day").collect()  # noqa: S608
        spark.stop()
    gateway.shutdown()
    process.stdin.close()  # the JVM ends at the end of its input
    process.wait(_WAIT_S)


def _same(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    yield from batches


def _one(table: "pa.Table") -> "pa.Table":
    return table


def make_archive() -> Path:
    """Start a session that writes the class archive when it ends, run a few small jobs in it, and return the file.

    Raises OSError, RuntimeError: the JVM did not write the archive.
    """
    export_java_home()
    final = find_archive()
    assert final is not None, "JAVA_HOME was set"
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_suffix(".part")
    partial.unlink(missing_ok=True)
    run_small_jobs([f"-XX:ArchiveClassesAtExit={partial}", *QUIET])
    if not partial.is_file():
        raise RuntimeError("the JVM wrote no class archive")
    for old in final.parent.glob("*.jsa"):
        old.unlink()
    partial.rename(final)
    return final


def main() -> int:
    """Make the archive if it is missing. It only saves time, so a failure is reported and the exit status is 0."""
    try:
        export_java_home()
        archive = find_archive()
        if archive is None or not archive.is_file():
            make_archive()
    except Exception as error:  # noqa: BLE001 - an optional step
        sys.stderr.write(f"set-up: no class archive ({error}); every start of Spark takes some seconds more\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
