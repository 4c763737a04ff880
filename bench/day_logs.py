"""Logs of several days, for `bench.billion`, written without Spark: `python -m bench.day_logs JOB`.

Spark needs 5 CPU seconds to write a million records, deltalake a tenth of that. The log has row tracking as Spark
writes it, a partition for each day, and a commit for each file of a million records.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from deltalake import write_deltalake

from bench.delta_logs import RECORDS_PER_FILE, cached_log, events_table, whole_log
from bench.workloads import Workload, day_parts
from tests.support.delta_logs import track_rows

NO_CHECKPOINT: Final = {"delta.checkpointInterval": "1000000"}
"""The commits get row tracking when all are written, and a checkpoint would not."""


def log_of_days(workload: Workload, records: int, *, days: int, cache: Path, seed: int = 1) -> str:
    """Return the path of the log with so many records of a workload a day; write it if the cache does not have it."""
    return cached_log("bench.day_logs", workload, records, cache=cache, seed=seed, days=f"{days} days")


def _write(job: dict[str, Any]) -> None:
    workload, days = Workload.from_json(job["workload"]), int(job["days"].split()[0])
    with whole_log(Path(job["place"])) as place:
        for day in range(days):
            for events in day_parts(workload, job["records"], day, of=days, seed=job["seed"]):
                for part in events.parts(RECORDS_PER_FILE):
                    table = events_table(part, day=day)
                    write_deltalake(
                        str(place), table, mode="append", partition_by=["ingest_date"], configuration=NO_CHECKPOINT
                    )
        track_rows(place)


if __name__ == "__main__":
    _write(json.loads(sys.argv[1]))
