"""The DAG that takes the place of a DAG of a broken pipeline file."""

import hashlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import DAG, BaseOperator, Context
from typing_extensions import override

from jobs.dag_factory.alerting import AlertOnFailureOfBroken, may_name_pipeline
from jobs.dag_factory.operators import GATE, PLAN, PUBLISH, REPLAY
from jobs.dag_factory.settings import DagSettings
from jobs.dag_factory.task_errors import leave_verdict
from jobs.pipeline.files import BrokenPipeline
from jobs.plain_text import escaped, shortened
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Kind

MAX_KEY = 100
MAX_ERROR = 5_000
RETRIES = 2
RETRY_DELAY = timedelta(minutes=5)
"""A person corrects a file within minutes. The first try after that has the real task and its delay."""
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")


class BrokenOperator(BaseOperator):
    """Takes the place of a task of a broken pipeline file: fails with the error of the file, and is tried again."""

    def __init__(self, *, error: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.error = error

    @override
    def execute(self, context: Context) -> NoReturn:
        leave_verdict(context, f"task {self.task_id} failed: {self.error}")
        raise SpecError(self.error)

    def decide_again(self, context: Context, event: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002
        """Fail after a wait of the plan task that had begun before the file was broken."""
        self.execute(context)


def broken_dag(broken: BrokenPipeline, kind: "Kind", settings: DagSettings) -> DAG:
    """Return a DAG that takes the place of a DAG of a broken pipeline file and shows the error of the file.

    It has the tasks of the real DAG, because Airflow removes other tasks from the DAG runs that are under way: it would
    stop a replay, and fail the run. With the same tasks, a run goes on after the correction of the file.
    """
    name, path = escaped(broken.name), escaped(broken.path)
    error = shortened(escaped(broken.error), MAX_ERROR)
    fenced = error.replace("```", "'''")
    defaults = {"owner": settings.owner, "retries": RETRIES, "retry_delay": RETRY_DELAY}
    if may_name_pipeline(broken):
        defaults["on_failure_callback"] = AlertOnFailureOfBroken(broken.name, broken.path, settings.lake)
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
        max_active_runs=1,
        default_args=defaults,
        tags=[*settings.tags, "broken"],
    ) as dag:
        pool = settings.pools.daily if kind == "replay" else settings.pools.backfill
        plan, gate, publish = (
            BrokenOperator(task_id=task_id, error=error, doc_md=fenced) for task_id in (PLAN, GATE, PUBLISH)
        )
        plan >> BrokenOperator(task_id=REPLAY, error=error, doc_md=fenced, pool=pool) >> gate >> publish
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
