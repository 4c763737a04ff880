"""A DAG of your own that runs once for each slice that a publication of a pipeline has changed.

Copy this file into Airflow's dags folder and change PIPELINE. This one writes a CSV file for each slice, with the
windows whose last pane the slice has emitted. Together, the files are what readers see. If a slice fires a window of an
earlier slice again, the earlier slice loses the window. So a run also writes the files before that of its own slice
that differ. HINDCAST_LAKE is the lake, HINDCAST_EXPORT the directory of the files.
"""

import os
from pathlib import Path

from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task

PIPELINE = "flights"

with DAG(
    dag_id=f"export_{PIPELINE}",
    description=f"Write the windows of each published slice of {PIPELINE} into a file",
    # The name and the URI are those of the asset that the tasks `publish` have as their outlet.
    schedule=PartitionedAssetTimetable(
        assets=Asset(name=f"hindcast_{PIPELINE}", uri=f"hindcast://{PIPELINE}/published", group="hindcast")
    ),
    catchup=False,
    max_active_runs=1,  # two runs must not write one file
    default_args={"owner": "you", "retries": 2},
    tags=["export"],
) as dag:

    @task
    def export(*, partition_key: str | None = None) -> list[str]:
        """Write the files that differ, and return their names. Airflow gives the key of the event, the slice's id."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv

        from jobs.readers import published_table

        if partition_key is None:
            raise ValueError("this DAG runs for a slice; start it with the id of a slice as its partition key")
        # A publication of more than 50 changed slices sends one event for all of them: `first..last`.
        last = partition_key.rpartition("..")[2]
        windows = published_table(os.environ["HINDCAST_LAKE"], PIPELINE).drop_columns(["attempt_id", "run_id"])
        directory = Path(os.environ["HINDCAST_EXPORT"], PIPELINE)
        directory.mkdir(parents=True, exist_ok=True)
        slices = {*windows["slice_id"].unique().to_pylist(), *(file.stem for file in directory.glob("*.csv"))}
        written = []
        for slice_id in sorted(name for name in slices if name <= last):
            target, rows = directory / f"{slice_id}.csv", pa.BufferOutputStream()
            csv.write_csv(windows.filter(pc.equal(windows["slice_id"], slice_id)), rows)
            if target.is_file() and target.read_bytes() == rows.getvalue():
                continue
            partial = target.with_suffix(".partial")
            partial.write_bytes(rows.getvalue())
            partial.replace(target)  # a reader never sees half a file
            written.append(target.name)
        return written

    export()
