"""A DAG of your own that runs once for each slice that a publication of a pipeline has changed.

Copy this file into Airflow's dags folder and change PIPELINE. This one writes the windows of the slice into a CSV file;
a second run for the same slice, after a restatement, replaces the file. HINDCAST_LAKE is the lake, HINDCAST_EXPORT the
directory of the files.
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
    max_active_runs=4,
    default_args={"owner": "you", "retries": 2},
    tags=["export"],
) as dag:

    @task
    def export(*, partition_key: str | None = None) -> str:
        """Write the windows that the slice has emitted. Airflow gives the key of the asset event, the slice's id."""
        import pyarrow.compute as pc
        from pyarrow import csv

        from jobs.readers import published_table

        if partition_key is None:
            raise ValueError("this DAG runs for a slice; start it with the id of a slice as its partition key")
        # A publication of more than 50 changed slices sends one event for all of them: `first..last`.
        first, _, last = partition_key.partition("..")
        windows = published_table(os.environ["HINDCAST_LAKE"], PIPELINE)
        slice_id = windows["slice_id"]
        is_own = pc.and_(pc.greater_equal(slice_id, first), pc.less_equal(slice_id, last or first))
        target = Path(os.environ["HINDCAST_EXPORT"], f"{PIPELINE}_{partition_key}.csv")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        csv.write_csv(windows.filter(is_own).drop_columns(["attempt_id", "run_id"]), partial)
        partial.replace(target)  # a reader never sees half a file
        return str(target)

    export()
