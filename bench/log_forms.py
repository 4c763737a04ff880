"""The records of the benches as Delta logs of several forms, which the intake reads in different ways.

A log is written once per machine into the cache: `python -m bench.log_forms JOB`. Every form has
the columns of the benches and `seq`, the number of the record in log order.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from bench.delta_logs import RECORDS_PER_FILE, cached_log, events_table, whole_log
from bench.workloads import Workload, make_parts
from jobs.demo.flights import PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Form = Literal["tracked", "optimized", "in order", "shuffled", "overlapping"]
FORMS: Final[dict[Form, str]] = {
    "tracked": "row tracking",
    "optimized": "row tracking and OPTIMIZE",
    "in order": "order by seq, files in order",
    "shuffled": "order by seq, files shuffled inside",
    "overlapping": "order by seq, each file has the whole day",
}
"""Form -> its name on the page. `tracked` and `optimized` have row tracking; the others have none."""
TRACKED: Final[frozenset[Form]] = frozenset({"tracked", "optimized"})


def order_of(form: Form) -> str | list[str]:
    """Return `log.order` of a pipeline over a log of this form."""
    return "commits" if form in TRACKED else ["seq"]


def log_of_form(workload: Workload, records: int, *, form: Form, cache: Path, seed: int) -> str:
    """Return the path of the log of a workload in a form; write it first if the cache does not have it."""
    return cached_log("bench.log_forms", workload, records, cache=cache, seed=seed, form=form)


def write_form(spark: "SparkSession", place: Path, workload: Workload, records: int, *, form: Form, seed: int) -> None:
    """Write a log of one day: a commit of one file for each million records."""
    for part in _parts(workload, records, form=form, seed=seed):
        if form in TRACKED:
            frame = spark.createDataFrame(part).coalesce(1)
            options = {**PROPERTIES, "delta.appendOnly": "false"}
            frame.write.format("delta").mode("append").partitionBy("ingest_date").options(**options).save(str(place))
        else:
            write_deltalake(str(place), part, mode="append", partition_by=["ingest_date"])
    if form == "optimized":
        spark.sql(f"OPTIMIZE delta.`{place}`")


def _parts(workload: Workload, records: int, *, form: Form, seed: int) -> Iterator[pa.Table]:
    rng = np.random.default_rng(seed)
    if form == "overlapping":
        whole = pa.concat_tables([*_in_order(workload, records, seed)])
        count = -(-whole.num_rows // RECORDS_PER_FILE)
        dealt = rng.permutation(whole.num_rows)
        yield from (whole.take(pa.array(np.sort(dealt[number::count]))) for number in range(count))
        return
    for part in _in_order(workload, records, seed):
        yield part.take(pa.array(rng.permutation(part.num_rows))) if form == "shuffled" else part


def _in_order(workload: Workload, records: int, seed: int) -> Iterator[pa.Table]:
    done = 0
    for events in make_parts(workload, records, seed=seed):
        for part in events.parts(RECORDS_PER_FILE):
            numbers = np.arange(done, done + len(part), dtype=np.int64)
            done += len(part)
            yield events_table(part).append_column("seq", pa.array(numbers))


def _main(job: dict[str, Any]) -> None:
    from jobs.spark.session import spark_session

    spark = spark_session("hindcast bench: log")
    workload = Workload.from_json(job["workload"])
    with whole_log(Path(job["place"])) as place:
        write_form(spark, place, workload, job["records"], form=job["form"], seed=job["seed"])
    spark.stop()


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
