"""The work of the tasks of a DAG, without Airflow.

`plan` decides with `jobs.orchestration.scheduling`. If there is something to replay, its result is an `Order`
(`jobs.orchestration.dag_orders`): all that the replay, gate and publish tasks need.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, assert_never

from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration import gating, scheduling
from jobs.orchestration.backfill_checks import check_chain, check_log_end, form_of
from jobs.orchestration.dag_leases import RunStateOf, release_ended
from jobs.orchestration.dag_orders import Order, read_order
from jobs.orchestration.deadlines import Checked, Told, look
from jobs.orchestration.decisions import lake_of, settled_runs, was_settled
from jobs.orchestration.gating import Gate, settled_elsewhere
from jobs.orchestration.interval_backfill import AskAirflow, plan_backfill_interval, refuse_lost_lake
from jobs.orchestration.open_ranges import in_the_way
from jobs.orchestration.repair_proposals import propose_repairs
from jobs.orchestration.requests import Progress, Staging
from jobs.orchestration.restatements import plan_request, propose_changes
from jobs.orchestration.scheduling import Decision, Replay, Skip, Wait
from jobs.pipeline.files import load_file, load_pipeline
from jobs.pipeline.models.alerts import AlertsGrammar
from jobs.plain_text import shortened
from jobs.planning.lease_keeping import release
from jobs.planning.readiness import Waiting
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context, published_pipeline
from jobs.publishing.rules import PublicationAttempt, describe_hold
from jobs.replay.process_memory import share_one_heap
from jobs.review.metrics import gauges
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError, SpecError

Kind = Literal["replay", "backfill"]
"""The two DAGs of a pipeline that replay: `replay_<name>` and `backfill_<name>`."""

MAX_SLICES_PER_CHUNK = 31
MAX_EVENTS = 50
MOST_WAITS: Final = 3
"""At most so many DAG runs wait for one slice, one after the other."""
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "hindcast:dag-run")


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """The facts on a DAG run that its tasks need. `run_type` is the value of Airflow's `DagRunType`.

    `asked_ms` is the time at which a person or a task has started the DAG run; None if it is not known.
    `params` has, for a backfill by hand, the fields of its form (`jobs.orchestration.backfill_form`). All other keys of
    the run's configuration are in it, too, and are refused.
    """

    dag_id: str
    run_id: str
    run_type: str
    clear_number: int = 0
    user: str | None = None
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    asked_ms: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def who(self) -> str:
        """The name in the ledger: of the person who has started the DAG run, or its kind."""
        # Operators start the runs that the schedule needs besides its own, such as one that waits.
        by = "scheduled" if self.run_type == "operator_triggered" else self.run_type
        return f"{self.user or by} (Airflow)"


def plan(
    kind: Kind,
    pipeline_file: str,
    run: DagRun,
    *,
    lake: str | None = None,
    state: RunStateOf | None = None,
    airflow: AskAirflow | None = None,
    is_again: bool = False,
) -> Order | Wait | Skip:
    """Decide what one DAG run does. Before that, the leases of DAG runs that have ended are released.

    `kind` is `backfill` for a range by hand, and `replay` for the schedule, for Airflow's own backfill, and for a run
    of the scheduled DAG by hand. The schedule and Airflow's backfill keep the published spec if the file differs from
    it. `lake` is by default the value of HINDCAST_LAKE. Without `state`, which returns the state of a DAG run, no lease
    is released. `is_again`: the DAG run has decided before, and waited since.
    Raises HindcastError: as the functions of `jobs.orchestration.scheduling` raise.
    """
    work = open_request_context(load_file(Path(pipeline_file)), lake_of(lake), now_ms=now_ms)
    if state is not None:
        release_ended(work, state, own=(run.dag_id, run.run_id), own_lease=lease_id(run))
    airflow = airflow or AskAirflow()
    decision = _settled_meanwhile(work, run) or _decide(kind, work, run=run, airflow=airflow, is_again=is_again)
    match decision:
        case Wait() | Skip():
            return decision
        case Replay():
            return _order(decision, work, run, kind=kind, pipeline_file=pipeline_file)
        case _:
            assert_never(decision)


def own_order(given: Any, run: DagRun, *, pipeline_file: str, lake: str | None) -> Order:  # noqa: ANN401 - an XCom
    """Return the order that the plan task of a DAG run has left in XCom.

    Users who start DAG runs may write XComs, too. They choose neither the directory from which a worker imports users'
    functions, nor a lake, nor a name in the ledger.
    Raises RequestError: it is not an order, or not one for this pipeline file, this lake and the person of the run.
    """
    order = read_order(given)
    own = {"pipeline file": (order.pipeline, pipeline_file), "lake": (order.lake, lake_of(lake).root)}
    for name, (ordered, expected) in (own | {"person": (order.who, run.who)}).items():
        if ordered != expected:
            raise RequestError(
                f"the order of the plan task is for the {name} {shortened(ordered)}, and this DAG run is for "
                f"{expected}; if that has changed since, clear the plan task and the tasks after it"
            )
    return order


def places(order: Order) -> tuple[str, str]:
    """Return the places that the replay of an order reads: the lake and the event log."""
    work = order.context(now_ms)
    return work.lake.root, work.lake.event_log(work.pipeline)


def gauges_of(order: Order) -> tuple[str, dict[str, float]]:
    """Return the name of the order's pipeline and the gauges of its ledger now."""
    work = order.context(now_ms)
    return work.pipeline.name, gauges(work, work.ledger.view())


def replay(order: Order, *, on_progress: Callable[[Progress], None] | None = None) -> tuple[StagedRun, ...]:
    """Replay the slices of an order, with this process as the driver; return the runs in slice order.

    `on_progress` is called before and after each chunk.
    Raises HindcastError: the replay failed. The same order continues after the last staged slice.
    """
    from jobs.replay.replayer import spark_replayer

    share_one_heap()
    with spark_replayer() as replayer:
        outcome = scheduling.replay(
            order.context(now_ms),
            opened=order.opened,
            slices=order.slices,
            replayer=replayer,
            staging=Staging(
                chunk=MAX_SLICES_PER_CHUNK,
                stops_on_fail=order.stops_on_fail,
                on_progress=on_progress or (lambda _progress: None),
            ),
        )
    return outcome.runs


def gate(order: Order) -> Gate:
    """Return whether the checks let the slices of an order pass. If they do not, the request waits for a person."""
    return gating.gate(order.context(now_ms), opened=order.opened, slices=order.slices)


def publish(order: Order, *, publisher: str | None = None) -> PublicationAttempt:
    """Publish the request of an order, if the order asks for it and the ledger's rules allow it.

    `publisher` names the DAG run. If it has published the request before, the result has the same changed slices again.
    Raises RequestError: publication was refused, and waiting does not help.
    """
    work = order.context(now_ms)
    view = work.ledger.view()
    request = view.requests.get(order.request_id)
    is_candidate = request is not None and request.is_candidate and request.is_open
    if is_candidate or not order.publish:
        release(work, order.opened)
        why = "a person promotes a candidate after its comparison" if is_candidate else "as the run's parameters ask"
        return PublicationAttempt(request_id=order.request_id, is_published=False, why=f"staged, not published, {why}")
    settled = None if request is None else settled_elsewhere(view, request)
    if settled is not None:
        return PublicationAttempt(request_id=order.request_id, is_published=False, why=settled)
    attempt = scheduling.publish_task(
        work, opened=order.opened, who=order.who, slices=order.slices, publisher=publisher
    )
    if not attempt.is_published and attempt.waits_for is None:
        raise RequestError(
            f"request {order.request_id} of pipeline {work.pipeline.name} was not published: {attempt.why}"
        )
    return attempt


def event_keys(changed: Sequence[str]) -> list[str]:
    """Return the keys of the asset events of changed slices: the slices, or one for their whole range if many."""
    return list(changed) if len(changed) <= MAX_EVENTS else [f"{changed[0]}..{changed[-1]}"]


def runs_to_clear(order: Order, state: RunStateOf, *, publisher: str) -> tuple[DagRunOrigin, ...]:
    """Return the failed DAG runs of others that the publication of an order has settled. `publisher`: as `publish`."""
    work = order.context(now_ms)
    return tuple(
        origin
        for origin in settled_runs(work.ledger.view(), order.request_id)
        if f"{origin.dag_id}/{origin.run_id}" != publisher and state(*origin.key) == "failed"
    )


def deadlines(
    name: str,
    pipeline_file: str,
    told: Told,
    *,
    lake: str | None = None,
    url: Callable[[str], str],
    everything: bool = False,
) -> tuple[AlertsGrammar | None, Checked]:
    """Return the messages of `alert_<name>` that are due now, and who gets them. A broken file is one of the messages.

    Raises:
        SpecError: the file is broken, and no slice is published.
        LedgerError: the ledger cannot be read.
    """
    place, broken = lake_of(lake), ""
    try:
        pipeline = load_pipeline(name, Path(pipeline_file).parent)
    except SpecError as error:
        broken = str(error)
        published = published_pipeline(place, name, functions_dir=Path(pipeline_file).parent, now_ms=now_ms)
        if published is None:
            raise
        pipeline = published
    if pipeline.alerts is None:
        return None, Checked(messages=(), before=told, told=told)
    work = open_request_context(pipeline, place, now_ms=now_ms)
    return pipeline.alerts, look(work, pipeline.alerts, told, url=url, everything=everything, broken=broken)


def lease_id(run: DagRun) -> str:
    """Return the id of a DAG run's lease: the same in every retry of its tasks, another one after a clear.

    The request that it opens gets the same id, unless the ledger has it: the DAG run of this name was deleted.
    """
    return uuid.uuid5(_NAMESPACE, f"{run.dag_id}/{run.run_id}/{run.clear_number}").hex


def _order(decision: Replay, work: RequestContext, run: DagRun, *, kind: Kind, pipeline_file: str) -> Order:
    """Return the order of a decision to replay."""
    return Order(
        why=decision.why,
        warnings=list(decision.warnings),
        pipeline=pipeline_file,
        lake=work.lake.root,
        request_id=decision.opened.request_id,
        lease_id=decision.opened.lease_id,
        slices=list(decision.slices),
        who=run.who,
        publish=bool(run.params.get("publish", True)),
        records=decision.records,
        seconds=decision.seconds,
        outline=list(decision.outline),
        changes=list(decision.changes),
        proposal=decision.proposal,
        given_up=list(decision.given_up),
        waits="" if decision.waiting is None else decision.waiting.line(now_ms()),
        follow_up=_follow_up(decision.waiting, run),
        stops_on_fail=kind == "replay" and run.run_type != "backfill",
    )


def _follow_up(waiting: Waiting | None, run: DagRun) -> str | None:
    """Return the id of the DAG run that waits for a slice: the same in every retry of the plan task of `run`.

    The runs that wait for one slice are numbered. One of them may have to replay the slices before it once more, and
    then another one waits. None if there is none, or if `run` is the last one: if each replay fails, they end.
    """
    if waiting is None:
        return None
    own = f"waits__{waiting.slice.slice_id}__"
    earlier = re.match(rf"{re.escape(own)}(\d+)_", run.run_id)
    number = 1 + int(earlier[1]) if earlier else 1
    return f"{own}{number}_{lease_id(run)[:8]}" if number <= MOST_WAITS else None


def _decide(kind: Kind, work: RequestContext, *, run: DagRun, airflow: AskAirflow, is_again: bool) -> Decision:
    if kind == "backfill":
        asked = _asked(work, run)
        plan_it = scheduling.plan_by_hand if run.params.get("request") is None else plan_request
        return plan_it(work, asked=asked)
    if run.params:
        raise RequestError(
            f"{run.dag_id} takes no parameters, and found {shortened(', '.join(map(str, run.params)))}. "
            f"backfill_{work.pipeline.name} replays a range"
        )
    if run.run_type != "manual":
        refuse_lost_lake(work, airflow)
    if run.run_type == "backfill":
        return plan_backfill_interval(
            work,
            interval_ms=(_ms(run.interval_start), _ms(run.interval_end)),
            who=run.who,
            lease_id=lease_id(run),
            origin=_origin(run),
            airflow=airflow,
        )
    # Only a run of a cron schedule has an interval that counts. Other runs take all slices that are over now.
    until_ms = _ms(run.interval_end) if run.run_type == "scheduled" else work.ledger.now_ms()
    told = propose_changes(work, who=run.who)
    decision = scheduling.plan_scheduled(
        work, interval_end_ms=until_ms, who=run.who, lease_id=lease_id(run), origin=_origin(run), events=airflow.events
    )
    repairs = propose_repairs(work, who=run.who, is_again=is_again)
    return replace(decision, changes=(*told.sentences, *repairs), proposal=told.request_id or "")


def _settled_meanwhile(work: RequestContext, run: DagRun) -> Skip | None:
    """Return a skip if this DAG run was cleared after somebody else had published what it had asked for.

    Airflow's own backfill also clears the DAG runs that it runs again (*All Runs*). It asks for their slices as they
    are now, so it is not skipped.
    """
    if not run.clear_number or run.run_type == "backfill":
        return None
    settled = was_settled(work, (run.dag_id, run.run_id), request_id=run.params.get("request"))
    return None if settled is None else Skip(why=settled)


def _origin(run: DagRun) -> DagRunOrigin:
    return DagRunOrigin(dag_id=run.dag_id, run_id=run.run_id, slice_ids=())


def _asked(work: RequestContext, run: DagRun) -> Asked:
    form = form_of(work, run.params, now_ms=work.ledger.now_ms())
    asked = form.asked(who=run.who, lease_id=lease_id(run), origin=_origin(run))
    if form.request is not None:
        return asked
    if form.publish:
        _check_asked_after_rollback(work.ledger.view(), run, version=form.ledger_version)
    check_log_end(work, form)
    if form.if_open is not IfOpen.WAIT or not in_the_way(work, work.ledger.view(), asked):
        check_chain(work, form, request_id=lease_id(run))
    return asked


def _check_asked_after_rollback(view: LedgerView, run: DagRun, *, version: int | None) -> None:
    """Refuse a backfill that waited while somebody rolled back: its publication would end the hold unseen.

    The ledger version that the person has seen tells it. Without one, the times of two machines are compared. A clear
    changes neither, so a DAG run from before the rollback is refused after a clear, too.
    """
    if view.hold is None:
        return
    asked, held = (run.asked_ms, view.hold.at_ms) if version is None else (version, view.hold.seq)
    if asked is not None and asked < held:
        raise RequestError(
            f"{describe_hold(view.hold)}. This DAG run was started before that, so it replays nothing. Start another "
            "one if the range is still to be published"
        )


def _ms(at: datetime | None) -> int:
    if at is None:
        raise RequestError("this DAG run has no data interval; start it on its schedule, or as a backfill")
    return int(at.timestamp() * 1000)
