"""The programs of the simulated processes: commands, the tasks of DAG runs, persons, clean-ups and readers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import Random

from jobs.cli import follow as follow_command, run as run_command
from jobs.ledger.view import LedgerView, RequestKind, StagedRun
from jobs.orchestration import dag_tasks, gating, scheduling
from jobs.orchestration.dag_tasks import DagRun, Kind, lease_id
from jobs.orchestration.following import following
from jobs.orchestration.interval_backfill import AskAirflow
from jobs.orchestration.late_repair import asked_for, check_current, repairing
from jobs.orchestration.mending import mend
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.repair_proposals import propose, propose_repairs
from jobs.orchestration.repair_range import LateRepair, repair_of
from jobs.orchestration.requests import Staging, run_request
from jobs.orchestration.restatements import BackfillStart, propose_changes, restatement_conf, to_start
from jobs.orchestration.scheduling import Decision, Replay
from jobs.orchestration.stored_warm_up import check_warm_up, restart_of
from jobs.planning.chains import judged_runs
from jobs.planning.lease_keeping import release
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import Asked, IfOpen, RequestContext
from jobs.planning.restating import request_to_continue
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.publishing.cleaning import clean
from jobs.publishing.decisions import cancel, resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.publishing.waivers import waive
from jobs.runs import Verdict, WarmUp
from tests.simulation.actors import Actor
from tests.simulation.checkers import Checkers
from tests.simulation.command_checkers import FOLLOW
from tests.simulation.memory_store import MemoryLedger
from tests.simulation.replays import MemoryReplayer
from tests.simulation.world import DAY_MS, DAYS, FIRST_MS, HOUR_MS, LEASE_MS, SLICES, SPECS, YEAR_MS, MemoryFiles, World
from windowlib.errors import HindcastError

HUMAN, RUN, DAG = "person", "run", "dag"
BACKFILL_DAG = "backfill_sales"

Program = Callable[[World, Actor, Random], None]


def run_by_hand(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast run`, with or without publication."""
    world.kinds[actor.pid] = RUN
    work = world.request_context(actor, world.spec if rng.random() < 0.85 else SPECS[1])
    start = max(rng.choice([0, 0, 0, rng.randrange(DAYS)]), world.reading.first)
    end = rng.randrange(start, DAYS) + 1
    asked = Asked(
        from_ms=FIRST_MS + start * DAY_MS, to_ms=FIRST_MS + end * DAY_MS, who=actor.name, reason="run",
        is_fresh=rng.random() < 0.1, if_open=rng.choice([IfOpen.REPLACE, IfOpen.REPLACE, IfOpen.REFUSE]),
    )  # fmt: skip
    staging = Staging(chunk=rng.choice([None, 1, 2]))
    run_request(work, asked, MemoryReplayer(world, actor), staging=staging, publish=rng.random() < 0.8)


def follow(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast follow` of a pipeline that reads another one, whose published slices are all or the first ones."""
    world.kinds[actor.pid] = FOLLOW
    work, _warnings = following(world.request_context(actor, world.spec))
    slices, publishes = SLICES[: rng.choice([DAYS, rng.randrange(DAYS) + 1])], rng.random() < 0.7
    slices = slices[world.reading.first :] or SLICES[-1:]
    asked = replace(follow_command._asked(work, slices, reason="", publishes=publishes), who=actor.name)
    run = partial(run_request, work, replayer=MemoryReplayer(world, actor), staging=Staging())
    run_command._in_its_turn(work, asked, run, publishes=publishes, ways="Decide it")


def adopt(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast adopt`: the chain goes on with the other spec, after a warm-up, from a slice to the head."""
    world.kinds[actor.pid] = RUN
    work = world.request_context(actor, rng.choice(SPECS))
    head = work.ledger.view().head
    if head is None:
        return
    last = SLICES.index(head.result.slice)
    first = max(rng.randrange(last + 1), world.reading.first)
    if first > last:
        return
    asked = Asked(
        from_ms=SLICES[first].start_ms, to_ms=SLICES[last].end_ms, who=actor.name, reason="adopt",
        warm_up=WarmUp(first=SLICES[max(first - 1, world.reading.first)]),
        if_open=rng.choice([IfOpen.REPLACE, IfOpen.REFUSE]),
    )  # fmt: skip
    run_request(work, asked, MemoryReplayer(world, actor), publish=rng.random() < 0.8)


def try_candidate(world: World, actor: Actor, rng: Random) -> None:
    """Play a person who runs a candidate, mostly up to the head, looks at it, and publishes it."""
    world.kinds[actor.pid] = HUMAN
    work = world.request_context(actor, rng.choice(SPECS))
    published = [slice_ for slice_ in SLICES if slice_.slice_id in work.ledger.view().published]
    end_ms = published[-1].end_ms if published and rng.random() < 0.8 else rng.choice(SLICES).end_ms
    asked = Asked(
        from_ms=SLICES[world.reading.first].start_ms, to_ms=end_ms, who=actor.name, reason="candidate",
        is_fresh=rng.random() < 0.2, kind=RequestKind.CANDIDATE,
    )  # fmt: skip
    staging = Staging(chunk=rng.choice([None, 1, 2]))
    outcome = run_request(work, asked, MemoryReplayer(world, actor), staging=staging)
    actor.stop_here("look")
    if outcome.request_id and rng.random() < 0.7:
        publish(work, who=actor.name, request_id=outcome.request_id)


def run_as_dag(world: World, actor: Actor, rng: Random) -> None:
    """Play the four tasks of a DAG run. Airflow may start a killed run again."""
    world.kinds[actor.pid] = DAG
    is_retry = world.dag_runs and rng.random() < 0.4  # Airflow retries a run that may still be working
    run = rng.choice(world.dag_runs) if is_retry else _dag_run(world.new_id(), rng)
    _play_dag_run(world, actor, run, rng)


def _dag_run(run_id: str, rng: Random) -> DagRun:
    """Return a new DAG run of the schedule, of Airflow's own backfill, or by hand."""
    end = rng.randrange(DAYS) + 1
    begin_ms, end_ms = FIRST_MS + (end - 1) * DAY_MS, FIRST_MS + end * DAY_MS
    match rng.choice(["scheduled", "scheduled", "backfill", "by hand"]):
        case "by hand":
            if_open = rng.choice([IfOpen.REPLACE, IfOpen.REPLACE, IfOpen.WAIT]).value
            bounds = {"from": SLICES[0].slice_id, "to": _time(end_ms).date().isoformat()}
            params = {**bounds, "reason": "by hand", "if_open": if_open}
            return DagRun(dag_id=BACKFILL_DAG, run_id=run_id, run_type="manual", user="ann", params=params)
        case run_type:
            return DagRun(
                dag_id="replay_sales", run_id=run_id, run_type=run_type, interval_start=_time(begin_ms),
                interval_end=_time(end_ms),
            )  # fmt: skip


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _play_dag_run(world: World, actor: Actor, run: DagRun, rng: Random) -> None:
    if run not in world.dag_runs:
        world.dag_runs.append(run)
    for _try in range(rng.choice([1, 2])):
        world.dag_leases.setdefault(lease_id(run), set()).add(actor.pid)  # a plan may end its own request
        decision = _planned(world, run)
        actor.stop_here("next task")
        if not isinstance(decision, Replay):
            return
        opened = decision.opened
        with suppress(HindcastError):
            scheduling.replay(
                _context(world),
                opened=opened,
                slices=decision.slices,
                replayer=MemoryReplayer(world, actor),
                staging=Staging(chunk=rng.choice([1, 31])),
            )
            actor.stop_here("next task")
            if gating.gate(_context(world), opened=opened, slices=decision.slices).is_passed:
                actor.stop_here("next task")
                _end_of_dag_run(world, run, decision, who=actor.name)
            return


def _end_of_dag_run(world: World, run: DagRun, decision: Replay, *, who: str) -> None:
    """Publish what a DAG run has replayed, if it is to be published."""
    work = _context(world)
    if not run.params.get("publish", True):
        release(work, decision.opened)
        return
    scheduling.publish_task(work, opened=decision.opened, who=who, slices=decision.slices)


def _context(world: World) -> RequestContext:
    """Return the context of a task of the plain pipeline."""
    return world.request_context(world.running(), world.spec)


def _planned(world: World, run: DagRun) -> Decision:
    """Return the decision of a plan task. The lease is the same in every retry of the DAG run."""
    kind: Kind = "backfill" if run.dag_id == BACKFILL_DAG else "replay"
    return dag_tasks._decide(kind, _context(world), run=run, airflow=AskAirflow(), is_again=False)


def restate(world: World, actor: Actor, rng: Random) -> None:
    """Play a scheduled run that has nothing to replay, and what it proposes: a restatement or a repair.

    That is started by itself, by a person in Airflow, or by `hindcast run --request`; or a person declines it.
    """
    world.kinds[actor.pid] = DAG
    if rng.random() < 0.8:
        propose_changes(_context(world), who="airflow")
        propose_repairs(_context(world), who="airflow")
    if rng.random() < 0.5:
        start = to_start("sales.yaml")
        if isinstance(start, BackfillStart):
            earlier = sum(run.run_id == start.run_id for run in world.dag_runs)  # a DAG run that has failed is cleared
            run = DagRun(
                dag_id=start.dag_id, run_id=start.run_id, run_type="operator_triggered", clear_number=earlier,
                params=start.conf,
            )  # fmt: skip
            _play_dag_run(world, actor, run, rng)
            return
    work = _context(world)
    view = work.ledger.view()
    proposals = [*view.open_requests(RequestKind.RESTATEMENT), *view.open_requests(RequestKind.REPAIR)]
    if not proposals:
        return
    request = rng.choice(proposals)
    if rng.random() < 0.15:
        cancel(work, request.request_id, reason="not needed", by=By(who=actor.name, decision_id=work.new_id()))
        return
    if rng.random() < 0.5:
        params = restatement_conf(work, request, publish=rng.random() < 0.8)
        run = DagRun(dag_id=BACKFILL_DAG, run_id=world.new_id(), run_type="manual", user="ann", params=params)
        _play_dag_run(world, actor, run, rng)
        return
    world.kinds[actor.pid] = RUN
    own, request = request_to_continue(work, request.request_id)
    check_warm_up(own, request)
    asked = Asked(
        from_ms=request.from_ms, to_ms=request.to_ms, who=actor.name, reason=request.reason, kind=request.kind,
        is_fresh=request.is_fresh, request_id=request.request_id, warm_up=request.warm_up,
    )  # fmt: skip
    outcome = _run_in_turn(world, actor, own, asked, publishes=rng.random() < 0.8)
    _look_and_decide(world, actor, own, outcome, rng)


def _look_and_decide(
    world: World, actor: Actor, work: RequestContext, outcome: RequestOutcome | None, rng: Random
) -> None:
    """Let a person publish what failed checks hold, mostly."""
    actor.stop_here("look")
    if outcome is not None and outcome.request_id and not outcome.is_published and rng.random() < 0.7:
        world.kinds[actor.pid] = HUMAN
        decide_failed(work, outcome, who=actor.name, is_alone=False)


def decide_failed(work: RequestContext, outcome: RequestOutcome, *, who: str, is_alone: bool = True) -> None:
    """Waive the failed runs of a request, and publish it. If nobody else works, it is published."""
    view = work.ledger.view()
    for slice_id, run_id in judged_runs(view, view.requests[outcome.request_id]).items():
        run = view.run(run_id)
        if run.verdict is Verdict.FAIL and not run.is_publishable:
            by = By(who=who, decision_id=work.new_id())
            waive(work, slice_id, run_id=run_id, reason="real", by=by)
    attempt = publish(work, who=who, request_id=outcome.request_id)
    assert attempt.is_published or not is_alone, attempt.why


def repair(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast repair` of a range, with --run or with --propose."""
    world.kinds[actor.pid] = RUN
    work, _warnings = on_published_spec(_context(world))
    first = max(rng.choice([0, 0, rng.randrange(DAYS)]), world.reading.first)
    end = rng.choice([DAYS, rng.randrange(first, DAYS) + 1])
    late = repair_of(
        work, from_ms=SLICES[first].start_ms, to_ms=SLICES[end - 1].end_ms,
        at_most_ms=rng.choice([None, None, 3 * HOUR_MS]),
    )  # fmt: skip
    if late.late:
        outcome = repair_late(world, actor, work, late, proposes=rng.random() < 0.3, publishes=rng.random() < 0.8)
        _look_and_decide(world, actor, work, outcome, rng)


def repair_late(
    world: World, actor: Actor, work: RequestContext, late: LateRepair, *, proposes: bool, publishes: bool
) -> RequestOutcome | None:
    """Run or propose a repair, as `hindcast repair` does."""
    repaired = repairing(work, late)
    warm_up = restart_of(repaired, late.slices, beginning=late.beginning)
    if proposes:
        propose(work, late, warm_up=warm_up, who=actor.name)
        return None
    check_current(work, late, warm_up)
    asked = asked_for(late, who=actor.name, warm_up=warm_up)
    return _run_in_turn(world, actor, repaired, asked, publishes=publishes)


def _run_in_turn(world: World, actor: Actor, work: RequestContext, asked: Asked, *, publishes: bool) -> RequestOutcome:
    run = partial(run_request, work, replayer=MemoryReplayer(world, actor), staging=Staging())
    return run_command._in_its_turn(work, asked, run, publishes=publishes, ways="Decide it")


def decide(world: World, actor: Actor, rng: Random) -> None:
    """Play a person who publishes, waives, rolls back, resumes, cancels or accepts commits that removed records."""
    world.kinds[actor.pid] = HUMAN
    work = world.request_context(actor, world.spec)
    view = work.ledger.view()
    match rng.choice(
        [
            "publish",
            "publish one",
            "publish one",
            "waive",
            "rollback",
            "rollback",
            "resume",
            "accept",
            "accept",
            "cancel",
        ]
    ):
        case "accept":
            accept_erased(work, actor, rng.choice([*world.log.rewrites, None]))
        case "publish":
            publish(work, who=actor.name)
        case "publish one" if view.requests:
            open_ids = [request.request_id for request in view.open_requests()]
            publish(work, who=actor.name, request_id=rng.choice(open_ids or list(view.requests)))
        case "waive":
            failed = [run for run in view.runs.values() if run.verdict is Verdict.FAIL and run.waiver is None]
            if failed:
                run = rng.choice(failed).result
                by = By(who=actor.name, decision_id=work.new_id())
                waived = waive(work, run.slice.slice_id, run_id=run.run_id, reason="real", by=by)
                assert waived.result.run_id == run.run_id, "the waiver is for the run that it names"
        case "rollback" if view.standing:
            rollback(work, rng.choice(view.standing[-2:]).seq, reason="too early", who=actor.name)
        case "cancel" if view.open_requests():
            by = By(who=actor.name, decision_id=work.new_id())
            cancel(work, rng.choice(view.open_requests()).request_id, reason="not needed", by=by)
        case _:
            resume(work, reason="continue", who=actor.name)


def mend_rows(world: World, actor: Actor, rng: Random) -> None:
    """Damage a file of a run, or take a run whose files were damaged before, and play `hindcast mend` of its slice."""
    world.kinds[actor.pid] = HUMAN
    work = world.request_context(actor, world.spec)
    runs = [*work.ledger.view().runs.values()]
    if not runs:
        return
    result = rng.choice(runs).result
    paths = world.paths.get((rng.choice(["panes", "timers"]), (result.slice.slice_id, result.attempt_id)), ())
    world.damaged |= {*paths} & world.named
    world.fault("damaged rows")
    mend(work, result.slice, MemoryReplayer(world, actor), who=actor.name, dry_run=rng.random() < 0.1)


def accept_erased(work: RequestContext, actor: Actor, only: int | None) -> None:
    """Play `hindcast accept-rewrite`: accept the commits that removed or changed records up to now, or one of them."""
    view = work.ledger.view()
    rewrites = rewrites_of(work, view)
    chosen = chosen_rewrites(work, view, rewrites, versions=[] if only is None else [only])
    actor.stop_here("look at the commits")
    if chosen:
        accept_rewrites(work, rewrites, chosen, reason="by law", who=actor.name)


def no_rows(_view: LedgerView, _runs: Sequence[StagedRun]) -> None:
    """Compare no rows, because the world has none."""


def tidy(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast clean`, sometimes on a host whose clock is wrong, so that all leases seem to have expired."""
    world.kinds[actor.pid] = HUMAN
    if rng.random() < 0.5:
        actor.host, world.ahead_ms[actor.pid] = "h3", YEAR_MS
    work, files = world.request_context(actor, world.spec), MemoryFiles(world, actor)
    for _ in range(rng.choice([1, 3])):
        older_than_ms = rng.choice([0, 0, 5_000, LEASE_MS])
        clean(work, files, older_than_ms=older_than_ms, who=actor.name, check_rows=no_rows, dry_run=rng.random() < 0.1)


def reader_of(checkers: Checkers) -> Program:
    """Return the program of a reader, who looks several times, also at earlier versions, and folds all events alone."""

    def read(world: World, actor: Actor, rng: Random) -> None:
        ledger = world.ledger(actor, MemoryLedger)
        newest = 0
        for _ in range(rng.choice([1, 2, 4])):
            at = rng.randrange(newest + 1) if newest and rng.random() < 0.3 else None
            view = ledger.view(at)
            checkers.read(view, newest=newest, at=at)
            newest = max(newest, view.version)

    return read
