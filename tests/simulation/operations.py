"""Two operations at once, in every interleaving: each operation's last write to the ledger takes six steps.

The steps of a write: list the commits, get the head, put the commit, put the head, list the commits, get the head. The
steps before the write are taken first, so both operations have seen the same ledger. There are 12! / (6! 6!) = 924
interleavings. The steps that an operation takes after its six, for example after a lost race, come at the end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

from jobs.ledger.history import EventHistory
from jobs.ledger.view import LedgerView, RequestKind
from jobs.orchestration.attempts import replay_until_closed
from jobs.orchestration.open_ranges import open_range
from jobs.orchestration.requests import Staging, stage
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Asked, IfOpen, Opened, RequestContext, leased_event, open_request
from jobs.publishing.cleaning import clean
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish_request
from jobs.publishing.waivers import waive
from jobs.replay.orders import ReplayOrder
from jobs.runs import Slice, Verdict, WarmUp
from tests.simulation.actors import Actor
from tests.simulation.checkers import Checkers
from tests.simulation.event_log import EventLog
from tests.simulation.observer import Observer
from tests.simulation.programs import HUMAN, no_rows
from tests.simulation.replays import MemoryReplayer
from tests.simulation.schedules import simulated, step
from tests.simulation.world import HOUR_MS, LAKE, PLAIN, SLICES, SPECS, YEAR_MS, MemoryFiles, World

STEPS = 6
"""The steps of one write to the ledger."""
BEFORE_COMMIT = 2
"""So many of them are before the commit."""
WORKING = "work"
"""The step of a process that has finished its operation and holds a lease."""


@dataclass
class Start:
    """The ledger before the two operations, and the names in it.

    Readers see the first three slices. Waiting requests: `restated` (the same slices with late records), `daily` (the
    last slice), `failed` (a failed run of the last slice), `adopting` (the third slice with another spec), and `worked`
    (an attempt at the last slice is being made on another host).
    """

    world: World
    observer: Observer
    requests: dict[str, str] = field(default_factory=dict)
    history: EventHistory = field(default_factory=EventHistory)
    opened: Opened | None = None

    def copy(self) -> "Start":
        """Return the same start for another run."""
        source = self.world
        world = World(Random(0))
        world.table = source.table.copy()
        world.log, world.files, world.named = source.log, dict(source.files), set(source.named)
        world.gone = set(source.gone)
        world.places, world.paths = dict(source.places), dict(source.paths)
        world.now_ms, world.ids, world.next_pid = source.now_ms, source.ids, source.next_pid
        return Start(world, self.observer.copy(world), self.requests, self.history, self.opened)

    def context(self, actor: Actor, text: str = SPECS[0]) -> RequestContext:
        """Return the context of a process that has read the ledger."""
        work = self.world.request_context(actor, text)
        work.ledger._history = self.history
        return work


def made_start() -> Start:
    """Play the requests of a start, one after the other."""
    world = World(Random(0))
    start = Start(world, Observer(world))
    checkers = Checkers(start.observer)
    world.on_commit = checkers.committed
    world.log = EventLog.of(SLICES, [2, 3, 4, 7], at_ms=0)

    def staged(name: str, asked: Asked, text: str = SPECS[0], *, publishes: bool = False) -> None:
        def work_on(actor: Actor) -> None:
            work = world.request_context(actor, text)
            opened = open_request(work, asked)
            stage(work, opened.request_id, slices_of(asked), replayer=MemoryReplayer(world, actor), staging=Staging())
            release(work, opened)
            start.requests[name] = opened.request_id
            if publishes:
                assert publish_request(work, opened.request_id, who="ann").is_published

        play_alone(world, checkers, work_on)

    def begin(actor: Actor) -> None:
        start.opened = open_request(world.request_context(actor, SPECS[0]), asked_for(3, 4, is_fresh=True))
        start.requests["worked"] = start.opened.request_id

    with simulated(world, checkers):
        staged("first", asked_for(0, 3), publishes=True)
        staged("failed", Asked(from_ms=None, to_ms=None, who="a", reason="", kind=RequestKind.AIRFLOW_BACKFILL))
        world.log.append(SLICES[3], 1, at_ms=0)
        staged("daily", asked_for(3, 4, kind=RequestKind.SCHEDULED))
        world.log.append(SLICES[0], 1, at_ms=0)
        world.log.append(SLICES[2], 1, at_ms=0)
        staged("restated", asked_for(0, 3))
        staged("adopting", asked_for(2, 3, warm_up=WarmUp(first=SLICES[1])), SPECS[1])
        play_alone(world, checkers, begin)
    world.write_file("panes", "left by a killed process")
    start.history = world.table.history(len(world.table.commits), uri="memory")
    return start


def asked_for(first: int, end: int, **options: Any) -> Asked:  # noqa: ANN401 - the fields of `Asked`
    """Return what asks for the slices `first` to `end - 1`."""
    return Asked(from_ms=SLICES[first].start_ms, to_ms=SLICES[end - 1].end_ms, who="ann", reason="a test", **options)


def slices_of(asked: Asked) -> tuple[Slice, ...]:
    """Return the slices of a range; the last slice without a range."""
    if asked.from_ms is None or asked.to_ms is None:
        return (SLICES[3],)
    return tuple(slice_ for slice_ in SLICES if asked.from_ms <= slice_.start_ms < asked.to_ms)


def play_alone(world: World, checkers: Checkers, work: Callable[[Actor], None]) -> None:
    """Run a process to its end."""
    actor = world.start("alone", work, host="h1")
    world.kinds[actor.pid] = HUMAN
    while world.actors:
        step(world, checkers, next(other for other in reversed(world.actors) if other.is_ready()))
    assert actor.error is None, repr(actor.error)


# --- the operations ---------------------------------------------------------------------------------------------------

Operation = Callable[[Start, Actor], None]


def publishing(name: str) -> Operation:
    def publish_it(start: Start, actor: Actor) -> None:
        publish_request(start.context(actor), start.requests[name], who=actor.name)

    return publish_it


def waiving(start: Start, actor: Actor) -> None:
    work = start.context(actor)
    run = next(run for run in work.ledger.view().runs.values() if run.verdict is Verdict.FAIL).result
    by = By(who=actor.name, decision_id=work.new_id())
    waive(work, run.slice.slice_id, run_id=run.run_id, reason="real", by=by)


def rolling_back(start: Start, actor: Actor) -> None:
    work = start.context(actor)
    rollback(work, work.ledger.view().standing[-1].seq, reason="too early", who=actor.name)


def cancelling(start: Start, actor: Actor) -> None:
    work = start.context(actor)
    by = By(who=actor.name, decision_id=work.new_id())
    cancel(work, start.requests["restated"], reason="not needed", by=by)


def working(actor: Actor) -> None:
    """Work on: the process lives, and holds its lease."""
    while True:
        actor.stop_here(WORKING)


def replacing(start: Start, actor: Actor) -> None:
    open_range(start.context(actor), asked_for(0, 3, if_open=IfOpen.REPLACE, is_fresh=True))
    working(actor)


def staging(start: Start, actor: Actor) -> None:
    """Stage an attempt at the last slice. The process is the one that holds the request `worked`."""
    actor.host = "h9"
    work = start.context(actor)
    assert start.opened is not None
    event = leased_event(work, start.opened)
    work.ledger.write(lambda _view: [event])
    order = ReplayOrder(
        pipeline=PLAIN, lake=LAKE, slices=(SLICES[3],), before=None, request_id=start.requests["worked"],
        attempt_id=f"staging {actor.pid}",
    )  # fmt: skip
    replay_until_closed(work, order, replayer=MemoryReplayer(start.world, actor))


def cleaning(start: Start, actor: Actor) -> None:
    """Clean up on a host whose clock is wrong, so that all leases seem to have expired."""
    start.world.ahead_ms[actor.pid] = YEAR_MS
    clean(
        start.context(actor), MemoryFiles(start.world, actor), older_than_ms=0, who=actor.name, check_rows=no_rows,
        dry_run=False,
    )  # fmt: skip


def leasing(start: Start, actor: Actor) -> None:
    """Take the lease of the waiting request `restated`, as a command does that runs it again."""
    open_request(start.context(actor), asked_for(0, 3))
    working(actor)


OPERATIONS: dict[str, Operation] = {
    "publish restated": publishing("restated"),
    "publish daily": publishing("daily"),
    "publish adopting": publishing("adopting"),
    "waive": waiving,
    "roll back": rolling_back,
    "cancel": cancelling,
    "replace": replacing,
    "stage": staging,
    "clean": cleaning,
    "lease": leasing,
}


# --- playing ----------------------------------------------------------------------------------------------------------

Outcome = tuple[object, ...]


@dataclass
class Pair:
    """Two operations, and how many steps each takes before its last write. `trace` has the steps that were played."""

    start: Start
    names: tuple[str, str]
    first_steps: tuple[int, int] = (0, 0)
    trace: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        self.first_steps = (self._steps_before(self.names[0]), self._steps_before(self.names[1]))

    def _steps_before(self, name: str) -> int:
        """Play an operation alone; return how many steps it takes before those of its last write."""
        start = self.start.copy()
        world = start.world
        actor = world.start(name, partial(OPERATIONS[name], start), host="h1")
        names = []
        with simulated(world, Checkers(start.observer)):
            while not actor.done and actor.step_name != WORKING:
                names.append(actor.step_name)
                world.step(actor)
            world.end()
        assert actor.error is None, (name, actor.error)
        last = max(number for number, step_name in enumerate(names) if step_name == "put commit")
        return last - BEFORE_COMMIT

    def play(self, order: Sequence[int], *, kills_first: bool = False) -> Outcome:
        """Play an interleaving, a sequence of 0 and 1; return what it left. The first process may be killed after it.

        Raises:
            Violation: an invariant does not hold.
        """
        start = self.start.copy()
        world, checkers = start.world, Checkers(start.observer)
        world.on_commit, world.on_removal = checkers.committed, checkers.removed
        world.pass_time(HOUR_MS)
        actors = [world.start(name, partial(OPERATIONS[name], start), host="h1") for name in self.names]
        world.kinds.update({actor.pid: HUMAN for actor in actors})
        firsts = [index for index, count in enumerate(self.first_steps) for _ in range(count)]
        rest = [index for index in (0, 1) for _ in range(10 * STEPS)]
        try:
            with simulated(world, checkers):
                for index in (*firsts, *order):
                    if not actors[index].done:
                        step(world, checkers, actors[index])
                if kills_first:
                    world.kill(actors[0].pid)
                for index in rest:
                    if not actors[index].done:
                        step(world, checkers, actors[index])
        finally:
            self.trace = tuple(world.trace)
            world.end()
        return outcome_of(start.observer.view, actors)


def outcome_of(view: LedgerView, actors: Sequence[Actor]) -> Outcome:
    """Return what two operations left: the state of the ledger without ids of attempts, and who was refused."""
    return (
        dict(view.published),
        {request_id: request.state for request_id, request in list(view.requests.items())[:6]},
        sorted(request.state.value for request in view.requests.values()),
        sorted(run_id for run_id, run in view.runs.items() if run.waiver is not None),
        sorted(view.runs),
        view.hold is not None,
        any(attempt_id.startswith("staging") for attempt_id in view.condemned_attempts),
        [type(actor.error).__name__ for actor in actors],
    )


def interleavings(first: int = STEPS) -> Iterator[tuple[int, ...]]:
    """Yield all interleavings of two actors with `first` and six steps. The first and the last are the serial ones."""
    for places in combinations(range(first + STEPS), first):
        yield tuple(0 if place in places else 1 for place in range(first + STEPS))
