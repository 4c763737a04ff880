"""The operators of `decide_<pipeline>`. `jobs.orchestration.decisions` does the work."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException
from typing_extensions import override

from jobs.dag_factory.assets import AssetOperator, PipelineOperator
from jobs.dag_factory.dag_runs import clear_run, state_of
from jobs.dag_factory.task_errors import our_errors
from jobs.plain_text import escaped
from windowlib.errors import LedgerError, RequestError

if TYPE_CHECKING:
    from jobs.orchestration.decisions import Decided
    from jobs.publishing.optimistic_check import By

DECIDE, PUBLISH, CLEAR_GATE = "decide", "publish", "clear_gate"
REFUSED = "refused"
"""The XCom key under which the task `decide` or `publish` leaves why the decision was refused, for the pages."""


@contextmanager
def _decision_errors(context: Context) -> Iterator[None]:
    """Handle errors as `our_errors` does, and leave for the pages why a decision was refused."""
    with our_errors(context):
        try:
            yield
        except RequestError as error:
            context["ti"].xcom_push(key=REFUSED, value=escaped(error))
            raise


class DecideOperator(PipelineOperator):
    """Checks the decision against the ledger of now, and writes it. It is refused if something has changed since."""

    @override
    def execute(self, context: Context) -> dict[str, Any]:
        from jobs.orchestration import decisions
        from jobs.orchestration.decision_fields import read_decision

        with _decision_errors(context):
            decision = read_decision(dict(context["params"]) | dict(context["dag_run"].conf or {}))
            decided = decisions.decide(
                self.pipeline_file, decision, decider_of(context), lake=self.lake, state=state_of
            )
        self.log.info("%s: %s", decision.action.value, escaped(decided.why))
        return decided.to_json()


class PublishDecidedOperator(AssetOperator):
    """Publishes the request in the name of the person, and sends asset events for the slices that have changed."""

    @override
    def execute(self, context: Context) -> dict[str, Any]:
        from jobs.orchestration import decisions

        with _decision_errors(context):
            outcome = decisions.publish_decided(
                self.pipeline_file, decided_of(context), decider_of(context), lake=self.lake
            )
        self.log.info("%s", escaped(outcome.why))
        return self.send_events(context, outcome)


class ClearGateOperator(PipelineOperator):
    """Clears the DAG runs that failed checks had stopped, unless a page has cleared their gate already."""

    @override
    def execute(self, context: Context) -> list[str]:
        from jobs.orchestration import decisions

        with our_errors(context):
            stopped = decisions.runs_to_clear(self.pipeline_file, decided_of(context), state_of, lake=self.lake)
        if not stopped:
            raise AirflowSkipException("no failed DAG run waits for this decision")
        for run in stopped:
            clear_run(run.dag_id, run.run_id)
            self.log.info("cleared %s of %s", escaped(run.run_id), escaped(run.dag_id))
        return [run.run_id for run in stopped]


def decider_of(context: Context) -> "By":
    """Return who has started this DAG run. Its retries have the same decision id."""
    from jobs.publishing.optimistic_check import By

    run = context["dag_run"]
    who = f"{run.triggering_user_name or run.run_type.value} (Airflow)"
    return By(who=who, decision_id=f"{run.dag_id}/{run.run_id}")


def decided_of(context: Context) -> "Decided":
    """Return what the task `decide` has left. Raises LedgerError: it left nothing that can be read."""
    from jobs.orchestration.decisions import Decided

    try:
        return Decided.model_validate(context["ti"].xcom_pull(task_ids=DECIDE))
    except ValueError as error:
        raise LedgerError(f"the task {DECIDE} has left no decision; clear it") from error
