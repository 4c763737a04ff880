"""The ids of DAGs that other DAGs name."""


def decide_dag_id(pipeline: str) -> str:
    """Return the id of the DAG that makes the decisions of persons on a pipeline."""
    return f"decide_{pipeline}"
