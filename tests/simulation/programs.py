"""The programs of the simulated processes: commands, the tasks of DAG runs, persons, clean-ups and readers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

from jobs.cli import follow as follow_command, run as run_command
from jobs.lake.rewrites import Rewrite, RewrittenSlice
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView, RequestKind, StagedRun
from jobs.orchestration import gating, scheduling
from jobs.orchestration.following import following
from jobs.orchestration.interval_backfill import plan_backfill_interval
from jobs.orchestration.mending import mend
from jobs.orchestration.requests import Staging, run_request
from jobs.orchestration.scheduling import Decision, Replay
from jobs.planning.request_context import Asked, IfOpen, RequestContext
from jobs.publishing.accepting import acceptance_events
from jobs.publishing.cleaning import clean
from jobs.publishing.decisions import cancel, resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.publishing.waivers import waive
from jobs.runs import Verdict, WarmUp
from tests.simulation.actors import Actor
from tests.simulation.checkers import Checkers
from tests.simulation.command_checkers import FOLLOW
from tests.simulation.world import (
    DAY_MS,
    DAYS,
    FIRST_MS,
    LEASE_MS,
    SLICES,
    SPECS,
    YEAR_MS,
    MemoryFiles,
    MemoryReplayer,
    World,
)
from windowlib.errors import HindcastError

HUMAN, RUN, DAG = "person", "run", "dag"

Program = Callable[[World, Actor, Random], None]


def run_by_hand(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast run`, with or without publication."""
    world.kinds[actor.pid] = RUN
    work = world.request_context(actor, SPECS[0] if rng.random() < 0.85 else SPECS[1])
    start = rng.choice([0, 0, 0, rng.randrange(DAYS)])
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
    work, _warnings = following(world.request_context(actor, SPECS[0]))
    slices, publishes = SLICES[: rng.choice([DAYS, rng.randrange(DAYS) + 1])], rng.random() < 0.7
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
    first = rng.randrange(last + 1)
    asked = Asked(
        from_ms=SLICES[first].start_ms, to_ms=SLICES[last].end_ms, who=actor.name, reason="adopt",
        warm_up=WarmUp(first=SLICES[max(first - 1, 0)]), if_open=rng.choice([IfOpen.REPLACE, IfOpen.REFUSE]),
    )  # fmt: skip
    run_request(work, asked, MemoryReplayer(world, actor), publish=rng.random() < 0.8)


def try_candidate(world: World, actor: Actor, rng: Random) -> None:
    """Play a person who runs a candidate, mostly up to the head, looks at it, and publishes it."""
    world.kinds[actor.pid] = HUMAN
    work = world.request_context(actor, rng.choice(SPECS))
    published = [slice_ for slice_ in SLICES if slice_.slice_id in work.ledger.view().published]
    end_ms = published[-1].end_ms if published and rng.random() < 0.8 else rng.choice(SLICES).end_ms
    asked = Asked(
        from_ms=FIRST_MS, to_ms=end_ms, who=actor.name, reason="candidate", is_fresh=rng.random() < 0.2,
        kind=RequestKind.CANDIDATE,
    )  # fmt: skip
    staging = Staging(chunk=rng.choice([None, 1, 2]))
    outcome = run_request(work, asked, MemoryReplayer(world, actor), staging=staging)
    actor.stop_here("look")
    if outcome.request_id and rng.random() < 0.7:
        publish(work, who=actor.name, request_id=outcome.request_id)


def run_as_dag(world: World, actor: Actor, rng: Random) -> None:
    """Play the four tasks of a DAG run. Airflow may start a killed run again."""
    world.kinds[actor.pid] = DAG
    if world.dag_runs and rng.random() < 0.4:
        kind, name, end = rng.choice(world.dag_runs)  # Airflow retries a run that may still be working
    else:
        kind, name, end = rng.choice(["scheduled", "backfill", "by hand"]), world.new_id(), rng.randrange(DAYS) + 1
        world.dag_runs.append((kind, name, end))
    for _try in range(rng.choice([1, 2])):
        world.dag_leases.setdefault(name, set()).add(actor.pid)  # a plan may end its own request
        decision = _planned(world, kind, name, end=end)
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
                scheduling.publish_task(_context(world), opened=opened, who=actor.name, slices=decision.slices)
            return


def _context(world: World) -> RequestContext:
    """Return the context of a task of the plain pipeline."""
    return world.request_context(world.running(), SPECS[0])


def _planned(world: World, kind: str, name: str, *, end: int) -> Decision:
    """Return the decision of a plan task. `name` is the id of the DAG run, the same in every retry."""
    end_ms = FIRST_MS + end * DAY_MS
    if kind == "scheduled":
        return scheduling.plan_scheduled(_context(world), interval_end_ms=end_ms, who="airflow", lease_id=name)
    if kind == "backfill":
        return plan_backfill_interval(
            _context(world), interval_ms=(end_ms - DAY_MS, end_ms), who="airflow", lease_id=name
        )
    asked = Asked(
        from_ms=FIRST_MS, to_ms=end_ms, who="ann", reason="by hand", lease_id=name,
        if_open=IfOpen.REPLACE if int(name, 16) % 3 else IfOpen.WAIT,
    )  # fmt: skip
    return scheduling.plan_by_hand(_context(world), asked=asked)


def decide(world: World, actor: Actor, rng: Random) -> None:
    """Play a person who publishes, waives, rolls back, resumes, cancels or accepts commits that removed records."""
    world.kinds[actor.pid] = HUMAN
    work = world.request_context(actor, SPECS[0])
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
            accept_erased(world, work, actor, rng.choice([*world.erased, None]))
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
    work = world.request_context(actor, SPECS[0])
    runs = [*work.ledger.view().runs.values()]
    if not runs:
        return
    result = rng.choice(runs).result
    paths = world.paths.get((rng.choice(["panes", "timers"]), (result.slice.slice_id, result.attempt_id)), ())
    world.damaged |= {*paths} & world.named
    world.fault("damaged rows")
    mend(work, result.slice, MemoryReplayer(world, actor), who=actor.name, dry_run=rng.random() < 0.1)


def accept_erased(world: World, work: RequestContext, actor: Actor, only: int | None) -> None:
    """Accept the commits that removed amounts up to now, or one of them."""
    chosen = [
        Rewrite(
            version=version, operation="DELETE", predicate="", at_ms=None, actions="",
            slices={slice_.slice_id: RewrittenSlice(before=1, after=0)},
        )
        for version, slice_ in world.erased.items()
        if only in {None, version}
    ]  # fmt: skip
    actor.stop_here("accept")
    work.ledger.write(partial(acceptance_events, table_id="log", chosen=chosen, reason="by law", who=actor.name))


def no_rows(_view: LedgerView, _runs: Sequence[StagedRun]) -> None:
    """Compare no rows, because the world has none."""


def tidy(world: World, actor: Actor, rng: Random) -> None:
    """Play `hindcast clean`, sometimes on a host whose clock is wrong, so that all leases seem to have expired."""
    world.kinds[actor.pid] = HUMAN
    if rng.random() < 0.5:
        actor.host, world.ahead_ms[actor.pid] = "h3", YEAR_MS
    work, files = world.request_context(actor, SPECS[0]), MemoryFiles(world, actor)
    for _ in range(rng.choice([1, 3])):
        older_than_ms = rng.choice([0, 0, 5_000, LEASE_MS])
        clean(work, files, older_than_ms=older_than_ms, who=actor.name, check_rows=no_rows, dry_run=rng.random() < 0.1)


def reader_of(checkers: Checkers) -> Program:
    """Return the program of a reader, who looks several times, also at earlier versions, and folds all events alone."""

    def read(world: World, actor: Actor, rng: Random) -> None:
        ledger = world.ledger(actor, Ledger)
        newest = 0
        for _ in range(rng.choice([1, 2, 4])):
            at = rng.randrange(newest + 1) if newest and rng.random() < 0.3 else None
            view = ledger.view(at)
            checkers.read(view, newest=newest, at=at)
            newest = max(newest, view.version)

    return read
