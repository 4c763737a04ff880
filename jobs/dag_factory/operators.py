"""The operators of the four tasks. `jobs.orchestration.dag_tasks` does the work of plan, gate and publish."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, AirflowSkipException, TaskDeferred
from typing_extensions import override

from jobs.dag_factory.addresses import ReviewLink, absolute
from jobs.dag_factory.assets import AssetOperator, PipelineOperator
from jobs.dag_factory.dag_runs import (
    asset_events,
    clear_run,
    has_succeeded,
    is_interval_before_running,
    start_run,
    state_of,
    wait_for_decisions,
)
from jobs.dag_factory.task_errors import leave_verdict, our_errors, sending_gauges
from jobs.dag_factory.wait_trigger import WaitTrigger
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped
from jobs.review import links
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from jobs.orchestration.dag_orders import Order
    from jobs.orchestration.dag_tasks import DagRun, Kind
    from jobs.orchestration.gating import Gate

PLAN, REPLAY, GATE, PUBLISH, RESTATE = "plan", "replay", "gate", "publish", "restate"


class SlicesHeld(AirflowFailException):
    """A check failed. A person corrects the input and runs again, or waives the held slices.

    `gate` has the slices, with the reasons in words.
    """

    def __init__(self, gate: "Gate") -> None:
        super().__init__(escaped(gate.why))
        self.gate = gate


class PlanOperator(PipelineOperator):
    """Decides what to replay. While the decision is to wait, it is deferred, however long that takes: no slot is held.

    If slices are left that are not complete yet, it starts the DAG run that waits for them, which begins when this one
    has ended. `producers` are the URIs of the assets of `ready.producer`.
    """

    def __init__(self, *, pipeline: Pipeline, kind: "Kind", **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(pipeline=pipeline, **kwargs)
        ready = pipeline.log.ready
        self.kind, self.producers = kind, () if ready is None or kind == "backfill" else ready.producers

    @override
    def execute(self, context: Context) -> dict[str, Any]:
        return self._decide(context, is_again=False)

    def decide_again(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Decide after a wait. `event` has the sign that the trigger saw."""
        self.log.info("decides again, because of the %s", event["sign"])
        return self._decide(context, is_again=True)

    def _decide(self, context: Context, *, is_again: bool) -> dict[str, Any]:
        from jobs.orchestration import dag_orders, dag_tasks
        from jobs.orchestration.interval_backfill import AskAirflow
        from jobs.orchestration.plan_outline import folded
        from jobs.orchestration.scheduling import Skip, Wait

        with our_errors(context):
            planned = dag_tasks.plan(
                self.kind,
                self.pipeline_file,
                dag_run_of(context),
                lake=self.lake,
                state=state_of,
                airflow=AskAirflow(
                    events=lambda since_ms: asset_events(self.producers, since_ms),
                    is_interval_before_running=lambda: is_interval_before_running(context),
                    has_published=lambda: has_succeeded(context, PUBLISH),
                ),
                is_again=is_again,
            )
        page = (absolute(links.request_page(self.pipeline_name, planned.proposal)),) if planned.proposal else ()
        for line in (*planned.warnings, *planned.changes, *page):
            self.log.warning("%s", escaped(line))
        match planned:
            case Skip(why=why):
                leave_verdict(context, with_changes(f"nothing to replay: {why}", planned.changes))
                raise AirflowSkipException(escaped(why))
            case Wait(why=why, watch=watch):
                self.log.info("%s", escaped(why))
                leave_verdict(context, with_changes(why, planned.changes))
                if planned.proposal:
                    self._restate_meanwhile()
                raise TaskDeferred(
                    trigger=WaitTrigger(watch=watch.to_json()), method_name=self.decide_again.__name__, timeout=None
                )
            case dag_orders.Order():
                for line in (*planned.outline, *planned.given_up):
                    self.log.info("%s", escaped(line))
                if planned.follow_up is not None:
                    self._start_follow_up(context, planned.follow_up, planned.waits)
                leave_verdict(
                    context, with_changes(f"{folded(planned.slices)}: planned, not staged yet", planned.changes)
                )
                return planned.to_json()
            case _:
                assert_never(planned)

    def _restate_meanwhile(self) -> None:
        """Start the proposed restatement before a wait, which may be long. A problem with it does not stop the wait."""
        try:
            self.log.info("%s", escaped(start_restatement(self.pipeline_file, self.lake)[1]))
        except Exception as error:  # noqa: BLE001 - the task `restate` tries it again
            self.log.warning("no restatement was started: %s", escaped(error))

    def _start_follow_up(self, context: Context, run_id: str, why: str) -> None:
        """Start the DAG run that waits for the slices that are left. If that fails, the next scheduled run waits."""
        self.log.info("%s", escaped(why))
        dag_id = context["dag_run"].dag_id
        try:
            start_run(dag_id, run_id)
        except Exception as error:  # noqa: BLE001 - the complete slices are published all the same
            self.log.warning("DAG run %s was not started, so the next run waits for it: %s", run_id, escaped(error))
            return
        self.log.info("DAG run %s waits for it, and begins when this one has ended", run_id)


class GateOperator(PipelineOperator):
    """Fails without retry if a check failed. Nothing is published until a person decides.

    A gate that fails, and every gate of a backfill, logs what the publication would change.
    """

    operator_extra_links = (ReviewLink(),)

    def __init__(self, *, kind: "Kind", **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.kind = kind

    @override
    def execute(self, context: Context) -> str:
        from jobs.orchestration import dag_tasks
        from jobs.publishing.stop_reasons import describe_stop, stop_reasons

        with our_errors(context):
            order = order_of(context)
            wait_for_decisions(context, self.pipeline_name)
            with sending_gauges(order):
                gate = dag_tasks.gate(order)
        if self.kind == "backfill" or not gate.is_passed:
            self._log_differences(order)
        if gate.is_passed:
            self.log.info("%s", gate.why)
            return gate.why
        leave_verdict(context, with_changes("; ".join((gate.why, *map(describe_stop, gate.held))), order.changes))
        for run in gate.held:
            for reason in stop_reasons(run):
                self.log.error("%s: %s", run.result.slice.slice_id, escaped(reason))
        self.log.error("What readers see has not changed. Look at the slices and decide:")
        self.log.error("%s", absolute(links.request_page(self.pipeline_name, order.request_id)))
        raise SlicesHeld(gate)

    def _log_differences(self, order: "Order") -> None:
        """Log what the publication would change. It is no part of the verdict, so a problem is only logged."""
        from jobs.orchestration.order_differences import order_differences

        try:
            differences = order_differences(order)
        except Exception as error:  # noqa: BLE001 - whatever happens here, the verdict of the checks is known
            self.log.warning("the request was not compared with what readers see: %s", escaped(error))
            return
        for line in () if differences is None else differences.lines():
            self.log.info("%s", escaped(line))


class PublishOperator(AssetOperator):
    """Publishes the slices in one commit of the ledger, and sends asset events for the changed slices."""

    @override
    def execute(self, context: Context) -> dict[str, Any]:
        from jobs.orchestration import dag_tasks
        from jobs.orchestration.plan_outline import folded

        with our_errors(context):
            order = order_of(context)
            with sending_gauges(order):
                published = dag_tasks.publish(order, publisher=publisher_of(context))
            if published.is_published:
                self._clear_settled(order, publisher_of(context))
        self.log.info("%s", escaped(published.why))
        verdict = "; ".join((f"{folded(order.slices)}: {published.why}", *order.given_up))
        leave_verdict(context, with_changes(verdict, order.changes))
        return self.send_events(context, published)

    def _clear_settled(self, order: "Order", publisher: str) -> None:
        """Clear the failed DAG runs that the publication settles. A problem is only logged: readers see the slices."""
        from jobs.orchestration import dag_tasks

        try:
            for run in dag_tasks.runs_to_clear(order, state_of, publisher=publisher):
                clear_run(run.dag_id, run.run_id)
                self.log.info("cleared %s of %s, which it settles", escaped(run.run_id), escaped(run.dag_id))
        except (AirflowRuntimeError, HindcastError, LookupError) as error:
            self.log.warning("the DAG runs that this publication settles were not cleared: %s", escaped(error))


class RestateOperator(PipelineOperator):
    """Starts `backfill_<name>` for the proposed restatement, if the pipeline file has `restate: {mode: auto}`.

    The DAG run publishes if every check passes. It is started once for the same changes of the log. If it has failed,
    each scheduled run clears it once, unless a failed check or a person has stopped it.
    """

    @override
    def execute(self, context: Context) -> str:
        if str(context["dag_run"].run_type.value) == "backfill":
            raise AirflowSkipException("a backfill of Airflow starts no restatement")
        with our_errors(context):
            run_id, why = start_restatement(self.pipeline_file, self.lake, is_again=True)
        if run_id is None:
            raise AirflowSkipException(escaped(why))
        self.log.info("%s", escaped(why))
        return run_id


def start_restatement(pipeline_file: str, lake: str | None, *, is_again: bool = False) -> tuple[str | None, str]:
    """Start the DAG run that restates the proposal, and return its id (None: none was started) and a sentence.

    With `is_again`, a DAG run that was started before and has failed is cleared.
    Raises LookupError: Airflow did not tell the state of the DAG run.
    """
    from jobs.orchestration import restatements

    start = restatements.to_start(pipeline_file, lake=lake)
    if isinstance(start, str):
        return None, f"no restatement is started: {start}"
    if not start_run(start.dag_id, start.run_id, start.conf):
        state = state_of(start.dag_id, start.run_id)
        if not is_again or state != "failed":
            paused = f": is {start.dag_id} paused?" if state == "queued" else ""
            return None, f"{start.dag_id} {start.run_id} was started before, and is {state}{paused}"
        clear_run(start.dag_id, start.run_id)
        return start.run_id, f"cleared {start.dag_id} {start.run_id}, which has failed: {start.conf['reason']}"
    return start.run_id, f"started {start.dag_id} {start.run_id}: {start.conf['reason']}"


def with_changes(verdict: str, changes: Sequence[str]) -> str:
    """Return a verdict, followed by the sentences on changed slices."""
    return ". ".join((verdict, *changes))


def order_of(context: Context) -> "Order":
    """Return the order that the plan task of this DAG run has left.

    Raises RequestError: it left none, or the order is for another pipeline file, lake or person than the DAG run.
    """
    from jobs.orchestration.dag_tasks import own_order

    plan: Any = context["dag"].get_task(PLAN)
    given = context["ti"].xcom_pull(task_ids=PLAN)
    return own_order(given, dag_run_of(context), pipeline_file=plan.pipeline_file, lake=plan.lake)


def publisher_of(context: Context) -> str:
    """Return the name by which a retry of the publish task finds that the DAG run has published before."""
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def dag_run_of(context: Context) -> "DagRun":
    """Return the facts on the DAG run of a task."""
    from jobs.orchestration.dag_tasks import DagRun

    run = context["dag_run"]
    return DagRun(
        dag_id=run.dag_id,
        run_id=run.run_id,
        run_type=str(run.run_type.value),
        clear_number=run.clear_number or 0,
        user=run.triggering_user_name,
        interval_start=run.data_interval_start,
        interval_end=run.data_interval_end,
        asked_ms=int(run.run_after.timestamp() * 1000),
        params=dict(context["params"]),
    )
