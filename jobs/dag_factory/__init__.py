"""The DAGs of pipeline files. The only package that imports Airflow; a file in Airflow's dags folder calls it.

`hindcast_dags` is what such a file needs. The other modules make the parts: `pipeline_dags` the two DAGs that replay,
`decide_dag` the one that makes decisions, `alerting` the one that sends messages, `maintain_dag` the one that cleans
up, `dag_page` the text of a DAG's page, and `factory` the DAGs of a broken pipeline file.

`jobs.orchestration.dag_tasks` does the work of a task and is imported when the task runs, so that parsing is fast.
"""

from jobs.dag_factory.factory import hindcast_dags
from jobs.dag_factory.settings import Pools

__all__ = ["Pools", "hindcast_dags"]
