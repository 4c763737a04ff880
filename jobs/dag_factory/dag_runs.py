"""What a task asks Airflow about other DAG runs, and how it starts or clears one.

A worker has no access to Airflow's database, and no token of a person. It asks through its supervisor, which uses the
task's own token for Airflow's execution API. That API clears a DAG run as a whole only: it has no route for one task.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowRuntimeError

from jobs.dag_factory.assets import normalized
from jobs.orchestration.decision_actions import decide_dag_id

if TYPE_CHECKING:
    from jobs.planning.readiness import AssetEvent

DECISION_WAIT_S = 120
DECISION_POLL_S = 2.0
PAGE_EVENTS = 1_000
NOT_FOUND = 404


def state_of(dag_id: str, run_id: str) -> str | None:
    """Return the state of a DAG run; None if there is none, for example because it was deleted.

    Raises LookupError: Airflow did not tell.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        state = RuntimeTaskInstance.get_dagrun_state(dag_id=dag_id, run_id=run_id)
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == NOT_FOUND:
            return None
        raise LookupError(f"Airflow does not tell the state of {dag_id}, run {run_id}") from error
    return str(getattr(state, "value", state))  # an enum of the task SDK, whose text is not its value


def clear_run(dag_id: str, run_id: str) -> None:
    """Clear all tasks of an existing DAG run, so that Airflow runs them again.

    Raises AirflowRuntimeError: Airflow refused it.
    """
    from airflow.sdk.execution_time.comms import TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    # For an existing run id, the supervisor clears the run: TriggerDagRunOperator(reset_dag_run=True) does the same.
    SUPERVISOR_COMMS.send(TriggerDagRun(dag_id=dag_id, run_id=run_id, reset_dag_run=True))


def start_run(dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None) -> bool:
    """Start a DAG run without a data interval; return False if the DAG has a run with this id already.

    Raises AirflowRuntimeError: Airflow refused it.
    """
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    started = TriggerDagRun(dag_id=dag_id, run_id=run_id, conf=None if conf is None else dict(conf))
    answer = SUPERVISOR_COMMS.send(started)
    return not (isinstance(answer, ErrorResponse) and answer.error == ErrorType.DAGRUN_ALREADY_EXISTS)


def is_interval_before_running(context: Context) -> bool:
    """Return whether a DAG run of Airflow's own backfill with an earlier interval is running.

    Other runs may be between them: those that a person has started, and intervals without a slice, which end at once.
    If Airflow runs the intervals backwards, the last one that is running follows queued ones, which are not waited for.
    """
    from airflow.sdk.execution_time.comms import GetPreviousDagRun, PreviousDagRunResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    run = context["dag_run"]
    dag_id, before = run.dag_id, run.logical_date
    while before is not None:
        answer = SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=dag_id, logical_date=before, state="running"))
        earlier = answer.dag_run if isinstance(answer, PreviousDagRunResult) else None
        if earlier is not None and earlier.run_type == "backfill":
            return True
        before = None if earlier is None else earlier.logical_date
    return False


def has_succeeded(context: Context, task_id: str) -> bool:
    """Return whether a task has succeeded in a run of this DAG, as far back as Airflow keeps tasks."""
    dag_id = context["dag_run"].dag_id
    return context["ti"].get_ti_count(dag_id=dag_id, task_ids=[task_id], states=["success"]) > 0


def asset_events(uris: Sequence[str], since_ms: int) -> "list[AssetEvent]":
    """Return all events from a time on, and at least the newest PAGE_EVENTS, of each asset with one of these URIs.

    The names of the assets do not matter. An event may be in the list twice.
    """
    return [event for uri in uris for event in _newest_events(uri, since_ms)]


def _newest_events(uri: str, since_ms: int) -> "Iterator[AssetEvent]":
    """Read pages, newest first. Airflow gives events up to a time, included, so pages overlap."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    from jobs.planning.readiness import AssetEvent

    pages, limit, before = InletEventsAccessor(asset_uri=normalized(uri)).ascending(ascending=False), PAGE_EVENTS, None
    while True:
        page = list(pages.limit(limit))
        for event in page:
            yield AssetEvent(uri=uri, at_ms=int(event.timestamp.timestamp() * 1000), key=event.partition_key)
        if len(page) < limit or page[-1].timestamp.timestamp() * 1000 < since_ms:
            return
        limit = 2 * limit if page[-1].timestamp == before else PAGE_EVENTS  # more events of one time than a page has
        before = page[-1].timestamp
        pages.before(before.isoformat())


def wait_for_decisions(
    context: Context, pipeline: str, *, limit_s: float = DECISION_WAIT_S, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Return when no decision on a pipeline is on its way any more, or after `limit_s`.

    A page clears the gate when it starts `decide_<pipeline>`, so the gate may begin before the ledger has the decision.
    """
    waited = 0.0
    while waited < limit_s and _pending(context, pipeline):
        sleep(DECISION_POLL_S)
        waited += DECISION_POLL_S


def _pending(context: Context, pipeline: str) -> bool:
    count: int = context["ti"].get_dr_count(dag_id=decide_dag_id(pipeline), states=["queued", "running"])
    return count > 0
