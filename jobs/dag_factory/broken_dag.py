"""The DAG that takes the place of a DAG of a broken pipeline file."""

import hashlib
import re
from typing import TYPE_CHECKING

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from jobs.dag_factory.settings import DagSettings
from jobs.pipeline.files import BrokenPipeline
from jobs.plain_text import escaped, shortened

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Kind

MAX_KEY = 100
MAX_ERROR = 5_000
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")


def broken_dag(broken: BrokenPipeline, kind: "Kind", settings: DagSettings) -> DAG:
    """Return a DAG that takes the place of a DAG of a broken pipeline file and shows the error of the file."""
    name, path = escaped(broken.name), escaped(broken.path)
    error = shortened(escaped(broken.error), MAX_ERROR)
    fenced = error.replace("```", "'''")
    with DAG(
        dag_id=f"{kind}_{_key(broken.name)}",
        dag_display_name=f"{kind}_{name} (broken pipeline file)",
        description=f"{path} is not a valid pipeline file",
        doc_md=(
            f"## {path} is not a valid pipeline file\n\n```\n{fenced}\n```\n\n"
            "Correct the file. The real DAG then takes the place of this one."
        ),
        schedule=None,
        catchup=False,
        default_args={"owner": settings.owner, "retries": 0},
        tags=[*settings.tags, "broken"],
    ) as dag:

        @task(doc_md=fenced)
        def show_error() -> None:
            """Fail with the error of the pipeline file."""
            raise AirflowFailException(error)

        show_error()
    return dag


def _key(name: str) -> str:
    """Return a pipeline's name as part of a DAG id.

    A broken pipeline has the name of its file, which may hold any character and be 255 bytes long. A DAG id allows
    `A-Za-z0-9_.-` and 250 characters. So a name that does not fit is replaced, cut, and made unique by a hash.
    """
    plain = _NOT_IN_AN_ID.sub("_", name)
    if plain == name and len(name) <= MAX_KEY:
        return name
    return f"{plain[:MAX_KEY]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
