"""The Delta logs of the benches, written once per machine into the cache: `python -m bench.delta_logs JOB`.

A log has one partition (a day), row tracking, and several files of a million records, each its own commit.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.workloads import COLUMNS, FIRST_DAY, Events, Workload, make_parts
from jobs.demo.flights import PROPERTIES
from tests.support.places import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_PER_FILE: Final = 1_000_000
FORMAT: Final = 1
"""Part of the name of a cached log. Raise it when the records or their layout change."""


def log_for(workload: Workload, records: int, *, cache: Path, seed: int = 1) -> str:
    """Return the path of the log with the records of a workload; write it first if the cache does not have it.

    Workloads that differ only in their windows share a log.
    """
    return cached_log("bench.delta_logs", workload, records, cache=cache, seed=seed)


def cached_log(module: str, workload: Workload, records: int, *, cache: Path, seed: int, **more: str) -> str:
    """Return the path of a log in the cache. If it is not there, `module` writes it in a process of its own.

    Args:
        module: is run with the job as JSON: `workload`, `records`, `seed`, `place`, and `more`.
        workload: the records.
        records: their number.
        cache: the directory of the cache.
        seed: of the records.
        more: what else makes the log. The values are a part of its name.
    """
    asked = {name: getattr(workload, name) for name in ("keys", "late_one_in", "density")}
    asked |= {"records": records, "seed": seed, **more}
    name = hashlib.sha256(json.dumps([FORMAT, asked], sort_keys=True).encode()).hexdigest()[:8]
    words = "".join(f"-{value.replace(' ', '-')}" for value in more.values())
    place = cache / "logs" / f"{records}x{workload.keys}{words}-{name}"
    if not place.exists():
        job = {"workload": workload.to_json(), "records": records, "seed": seed, "place": str(place), **more}
        _in_a_process(job, module)
    return str(place)


@contextmanager
def whole_log(place: Path) -> Iterator[Path]:
    """Return a new directory, which gets the name `place` if the context ends without an error."""
    half = place.with_name(place.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    yield half
    half.rename(place)


def flights_for(cache: Path, days: int) -> str:
    """Return the path of the log of the first days of flights of 2013; load it if the cache does not have it."""
    lake = cache / f"flights-{days}"
    done = lake / "loaded"
    if not done.exists():
        _in_a_process({"flights": str(lake), "days": days})
        done.touch()
    return str(lake / "event_logs" / "flights")


def append_events(spark: "SparkSession", path: str, events: Events, *, day: int = 0) -> None:
    """Append records to the log at `path` as one commit of one file, in their order. The first append makes the log.

    Args:
        spark: the session.
        path: the log.
        events: the records.
        day: their partition, in days since the first.
    """
    table = events_table(events, day=day)
    # One partition and no shuffle keep the order of the rows.
    frame = spark.createDataFrame(table).coalesce(1)
    frame.write.format("delta").mode("append").partitionBy("ingest_date").options(**PROPERTIES).save(path)


def events_table(events: Events, *, day: int = 0) -> pa.Table:
    """Return records with the columns of the log."""
    arrived = date.fromisoformat(FIRST_DAY) + timedelta(days=day)
    columns: dict[str, Any] = {
        "key": events.key,
        "at_ms": events.at_ms,
        "arrived_ms": events.arrived_ms,
        "value": events.value,
        "ingest_date": pa.array([arrived], pa.date32()).take(pa.array([0] * len(events), pa.int32())),
    }
    return pa.table({name: columns[name] for name in COLUMNS})


def _in_a_process(job: dict[str, Any], module: str = "bench.delta_logs") -> None:
    command = [sys.executable, "-m", module, json.dumps(job)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=sys.stderr)


def _write(job: dict[str, Any]) -> None:
    from jobs.spark.session import spark_session

    spark = spark_session("hindcast bench: log")
    with whole_log(Path(job["place"])) as place:
        for events in make_parts(Workload.from_json(job["workload"]), job["records"], seed=job["seed"]):
            for part in events.parts(RECORDS_PER_FILE):
                append_events(spark, str(place), part)
    spark.stop()


def _main(job: dict[str, Any]) -> None:
    if "flights" in job:
        from jobs.demo.flights import load_flights
        from jobs.demo.flights_rows import FIRST_DAY as FIRST_FLIGHTS

        load_flights(job["flights"], FIRST_FLIGHTS, FIRST_FLIGHTS + timedelta(days=job["days"]))
    else:
        _write(job)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
