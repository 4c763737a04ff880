"""The DAG `decide_<name>`, by which a person publishes, waives, cancels, rolls back or resumes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from jobs.dag_factory.dag_page import dag_page
from jobs.dag_factory.decide_operators import (
    CLEAR_GATE,
    DECIDE,
    PUBLISH,
    ClearGateOperator,
    DecideOperator,
    PublishDecidedOperator,
)
from jobs.dag_factory.settings import DagSettings
from jobs.orchestration.decision_actions import MAX_REASON, Action, decide_dag_id
from jobs.pipeline.models.pipeline import Pipeline

RETRIES = 3
RETRY_DELAY = timedelta(seconds=5)
_PURPOSE = (
    "Makes a decision of a person: publish, waive, cancel, roll back, resume, comment, assign. The review pages start "
    "it. It writes the decision into the ledger with the name of the person, publishes, sends the asset events, and "
    "clears the DAG runs that failed checks had stopped."
)


def decide_dag(pipeline: Pipeline, settings: DagSettings) -> DAG:
    """Return the DAG that makes the decisions of persons. It is not paused, because a person waits for it."""
    own: dict[str, Any] = {"pipeline": pipeline, "lake": settings.lake}
    with DAG(
        dag_id=decide_dag_id(pipeline.name),
        description=f"Decide on {pipeline.name}: publish, waive, cancel, roll back, resume",
        doc_md=dag_page(pipeline, _PURPOSE),
        schedule=None,
        params=decision_params(),
        catchup=False,
        is_paused_upon_creation=False,
        default_args={
            "owner": pipeline.owner or settings.owner,
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            "weight_rule": "upstream",
        },
        tags=[*settings.tags, *(pipeline.tags or ()), "decide"],
    ) as dag:
        decide = DecideOperator(task_id=DECIDE, **own)
        publish = PublishDecidedOperator(task_id=PUBLISH, **own)
        # The publication of equal rows skips `publish`, and the stopped DAG run is to be cleared nevertheless.
        clear_gate = ClearGateOperator(task_id=CLEAR_GATE, trigger_rule="none_failed", **own)
        decide >> publish >> clear_gate
    return dag


def decision_params() -> Mapping[str, Param]:
    """Return the form of `decide_<name>`. The task `decide` checks how the fields fit together."""
    return {
        "action": Param(
            type="string",
            enum=[action.value for action in Action],
            title="Action",
            values_display={action.value: action.value.replace("_", " ") for action in Action},
            description="What you decide.",
        ),
        "request_id": _optional("string", "Request", "The request to publish, waive, cancel, comment on or assign."),
        "slices": Param(
            default=None,
            type=["null", "array"],
            items={
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("slice_id", "run_id", "reason")},
                "required": ["slice_id", "run_id"],
                "additionalProperties": False,
            },
            title="Slices",
            description="The failed slices that may pass, each with the run that you looked at, and a reason.",
        ),
        "reason": Param(
            default=None,
            type=["null", "string"],
            maxLength=MAX_REASON,
            title="Reason",
            description="Stored in the ledger with your name. For waived slices that have no reason of their own.",
        ),
        "assignee": _optional("string", "Assignee", "Who looks after the request from now on. Empty: nobody."),
        "publication": _optional("integer", "Publication", "The number of the publication to roll back."),
        "ledger_version": _optional(
            "integer",
            "Ledger version",
            "The version of the ledger that you looked at. The decision is refused if something has changed since.",
        ),
    }


def _optional(kind: str, title: str, description: str) -> Param:
    return Param(default=None, type=["null", kind], title=title, description=description)
