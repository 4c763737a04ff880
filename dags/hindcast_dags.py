"""Gives Airflow the DAGs of every pipeline file: `replay_<name>`, `backfill_<name>`, `decide_<name>`.

An existing Airflow needs a file like this one in its dags folder, with its own directory and lake
(docs/how-to/deployment.md#into-an-existing-airflow).
"""

import os
from pathlib import Path

from jobs.dag_factory import hindcast_dags

PIPELINES = os.environ.get("HINDCAST_PIPELINES") or Path(__file__).resolve().parent.parent / "pipelines"

# Airflow finds the DAGs in the global names of a module.
globals().update(hindcast_dags(PIPELINES))
