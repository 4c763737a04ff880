"""Plays one schedule: a seed determines the processes, the interleaving and the faults.

At the end, a person runs all slices, which publishes the rows of an undisturbed run over the same log, and a clean-up
leaves no file that no commit names.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import pytest

from jobs.ledger.view import LedgerView, Request
from jobs.orchestration.repair_range import repair_of
from jobs.orchestration.requests import Staging, run_request
from jobs.planning import lease_keeping
from jobs.planning.request_context import Asked, IfOpen, RequestContext
from jobs.publishing.cleaning import clean
from jobs.runs import EMPTY_STATE, CheckResult
from tests.simulation.actors import Actor
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.current_table import CurrentTable
from tests.simulation.damage import patch_mending
from tests.simulation.disturbances import Disturbances, disturb
from tests.simulation.event_log import EventLog, Reading, readings_of
from tests.simulation.log_access import OPEN_DIFFER, patch_log
from tests.simulation.memory_store import NO_FAULTS, FaultRates
from tests.simulation.observer import Observer
from tests.simulation.programs import (
    HUMAN,
    Program,
    accept_erased,
    adopt,
    decide,
    decide_failed,
    follow,
    mend_rows,
    no_rows,
    reader_of,
    repair,
    repair_late,
    restate,
    run_as_dag,
    run_by_hand,
    tidy,
    try_candidate,
)
from tests.simulation.replays import MemoryReplayer, judged_by_hash, result_of
from tests.simulation.world import (
    CURRENT,
    DAY_MS,
    DAYS,
    FIRST_MS,
    HOUR_MS,
    LEASE_MS,
    RESTATING,
    RETENTION,
    RULES,
    SLICES,
    YEAR_MS,
    MemoryFiles,
    SimulatedThreading,
    World,
)
from windowlib.errors import HindcastError, RequestError

MOST_REPAIRS = 8
"""So many repairs take all late records."""
MOST_STEPS = 50_000
"""A schedule with more steps does not end."""
FURTHER = 0.3
"""The part of the schedules in which somebody may edit the pipeline file, and clocks may differ."""
SHOWN_STEPS = 60
"""A failure shows so many of its last steps."""
REFUSED_REPAIR = "last repair that is refused"
REFUSED = "last run that is refused, because a state was removed"
REPAIRED_ROWS = "repairs_take_every_late_record"
SETTLED_TABLE = "one_more_run_moves_the_current_table_to_the_newest_publication"
UNEXPECTED_ERROR, ENDLESS = "only_named_errors_end_a_process", "every_schedule_ends"
SETTLED_ROWS, CLEAN_FILES = "one_more_run_gives_the_rows_of_an_undisturbed_one", "a_clean_up_leaves_what_commits_name"


@dataclass(frozen=True)
class Played:
    """What happened in a schedule. `written` counts commits by the kinds of their events."""

    seed: int
    steps: int
    written: Counter[str]
    faults: Counter[str]
    trace: Sequence[tuple[str, str]]


class FailedSchedule(AssertionError):  # noqa: N818
    """A schedule violated an invariant. The message has the seed, the command that repeats it, and the last steps."""

    def __init__(self, seed: int, violation: Violation, world: World) -> None:
        self.checker, self.seed = violation.checker, seed
        steps = list(world.trace)[-SHOWN_STEPS:]
        lines = "\n".join(f"  {name}: {step}" for name, step in steps)
        super().__init__(
            f"schedule {seed} violates {violation}\nrepeat it with: make simulate SEED={seed}\n"
            f"the last {len(steps)} of {world.steps:,} steps:\n{lines}"
        )


def play(seed: int, world: World | None = None) -> Played:
    """Play the schedule of a seed, in a world that the caller has made for it, or in a new one.

    Raises:
        FailedSchedule: an invariant does not hold.
    """
    world = world or World(Random(seed))
    rng = world.rng
    rates = FaultRates(
        ambiguous=rng.choice([0, 0.03]), failed=rng.choice([0, 0.01]), delayed=rng.choice([0, 0, 0.01, 0.1])
    )
    checkers = Checkers(Observer(world))
    world.on_commit, world.on_removal = checkers.committed, checkers.removed
    amounts, drawn = [rng.randrange(1, 9) for _ in range(DAYS)], Random(f"features of {seed}")
    _draw_features(world, seed, reach=drawn.choice([0, 0, 1, 2]))
    reach = world.reading.reach or world.features.choice([1, 2])
    readings = readings_of(reach) if world.edits else [world.reading]
    world.log = EventLog.of(SLICES, amounts, at_ms=world.now_ms, readings=readings)
    world.rule, world.retention, world.restating = rng.choice(RULES), rng.choice(["", RETENTION]), rng.choice(RESTATING)
    with simulated(world, checkers):
        try:
            is_restating = rng.random() < 0.5
            if rng.random() < (0.8 if is_restating else 0.5):
                _alone(world, checkers, lambda actor: _run_all(world, actor))
            world.rates = rates
            _disturbed(world, checkers, is_restating=is_restating)
            _settle(world, checkers)
        except Violation as violation:
            raise FailedSchedule(seed, checkers.violation or violation, world) from violation
        finally:
            world.on_commit, world.on_removal = lambda _actor, _rows: None, lambda _paths: None
            world.end()
    return Played(
        seed=seed, steps=world.steps, written=checkers.observer.written, faults=world.faults, trace=tuple(world.trace)
    )


def _draw_features(world: World, seed: int, *, reach: int) -> None:
    """Draw whether the pipeline file is edited, and whether the clock of a host is wrong."""
    world.reading, world.features = Reading(reach), Random(f"further 32 of {seed}")
    rng = world.features
    if rng.random() < FURTHER:
        world.edits = rng.choice([0.0, 0.003, 0.02])
        wrong_ms = [sign * ms for sign in (-1, 1) for ms in (LEASE_MS, HOUR_MS, 6 * HOUR_MS)]
        world.skew_ms = {"h2": rng.choice([0, *wrong_ms])}


@contextmanager
def simulated(world: World, checkers: Checkers) -> Iterator[None]:
    """Replace what the product takes from the machine: threads, contexts of tasks, and the comparison of rows."""

    def judged(_work: RequestContext, view: LedgerView, request: Request) -> dict[str, tuple[CheckResult, ...]]:
        world.running().stop_here("compare rows")
        return judged_by_hash(view, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.publishing.judging.judged_checks_of", judged)
        patch.setattr(lease_keeping, "threading", SimulatedThreading(world))
        patch_log(world, patch, checkers.looked)
        patch_mending(world, patch)
        if CURRENT in world.rule:
            CurrentTable(world, checkers.moved).patch(patch)
        yield


def step(world: World, checkers: Checkers, actor: Actor) -> None:
    """Run an actor to its next stop, and check how it ended.

    Raises:
        Violation: an invariant does not hold.
    """
    world.step(actor)
    if checkers.violation is not None:
        raise checkers.violation
    if actor.done and actor.error is not None and not isinstance(actor.error, HindcastError):
        raise Violation(UNEXPECTED_ERROR, f"{actor.name}: {actor.error!r}") from actor.error
    if actor.done and actor.pid not in world.alive:  # its last thread
        checkers.ended(actor)
    if world.steps > MOST_STEPS:
        raise Violation(ENDLESS, f"{world.steps:,} steps")


def _disturbed(world: World, checkers: Checkers, *, is_restating: bool) -> None:
    """Play processes with faults until all have ended. In half of the schedules, many of them restate and repair."""
    rng, left = world.rng, world.rng.randrange(3, 13)
    most, rates = rng.randint(2, 5), Disturbances.drawn(rng, is_restating=is_restating)
    read = reader_of(checkers)
    programs = [run_by_hand, run_as_dag, decide, tidy, adopt, try_candidate, read, follow, mend_rows, restate, repair]
    programs += [restate, restate, restate, repair] if is_restating else [run_by_hand, run_as_dag, decide]
    while left or world.actors:
        if left and len(world.alive) < most and (not world.actors or rng.random() < 0.2):
            left -= 1
            _start(world, rng.choice(programs))
        disturb(world, rates)
        actor = _next(world, rng)
        if actor is not None:
            step(world, checkers, actor)


def _start(world: World, program: Program) -> None:
    own = Random(world.rng.random())
    world.start(program.__name__, lambda actor: program(world, actor, own), host=world.rng.choice(["h1", "h2"]))


def _next(world: World, rng: Random) -> Actor | None:
    """Return the actor that runs next; None if all sleep or are paused."""
    paused = world.paused_until_ms
    if paused:
        _come_back(world)
    ready = [
        actor
        for actor in world.actors
        if actor.is_dead or ((actor.may_go_on is None or actor.may_go_on()) and actor.pid not in paused)
    ]
    return rng.choice(ready) if ready else None


def _come_back(world: World) -> None:
    """End the pauses that are over, and those of processes that were killed."""
    for pid, until_ms in list(world.paused_until_ms.items()):
        if until_ms <= world.elapsed_ms or pid not in world.alive:
            del world.paused_until_ms[pid]
            world.fault("process that comes back" if pid in world.alive else "process killed while paused")


def _newest_ready(world: World) -> Actor:
    return next(
        actor for actor in reversed(world.actors) if actor.pid not in world.paused_until_ms and actor.is_ready()
    )


def _settle(world: World, checkers: Checkers) -> None:
    """After all processes have ended, a person runs all slices and repairs them without faults, and cleans up."""
    observer = checkers.observer
    world.rates = NO_FAULTS
    log = world.log
    if log.restored is not None and (log.version > log.restored or world.rng.random() < 0.5):
        log.give_name()
    world.reading = world.reading._replace(first=0)
    world.pass_time(10 * YEAR_MS)  # every lease has expired, also one that a clock ahead by years has written
    _alone(world, checkers, lambda actor: _run_all(world, actor))
    if not world.faults[REFUSED]:
        _check(SETTLED_ROWS, lambda: _is_as_undisturbed(world, observer.view))
        if world.rng.random() < 0.3:
            _alone(world, checkers, lambda actor: _repair_all(world, actor))
            _check(SETTLED_ROWS, lambda: _is_as_undisturbed(world, observer.view))
            if not world.faults[REFUSED_REPAIR]:
                _check(REPAIRED_ROWS, lambda: _has_no_late_record(observer.view))
        if CURRENT in world.rule:
            newest = observer.view.publications[-1].seq
            _check(SETTLED_TABLE, lambda: _is_at(observer.current_seq, newest))
    world.pass_time(YEAR_MS)
    _alone(world, checkers, lambda actor: _clean_all(world, actor))
    _check(CLEAN_FILES, lambda: _has_only_named_files(world))


def _alone(world: World, checkers: Checkers, work: Callable[[Actor], None]) -> None:
    actor = world.start("last", work, host="h1")
    world.kinds[actor.pid] = HUMAN
    while not actor.done:
        world.pass_time(1)
        newest = world.actors[-1]
        is_next = newest.may_go_on is None and not world.paused_until_ms  # the usual case
        step(world, checkers, newest if is_next else _newest_ready(world))
    while world.actors:
        step(world, checkers, world.actors[0])
    if actor.error is not None:
        raise Violation(SETTLED_ROWS, repr(actor.error)) from actor.error


def _run_all(world: World, actor: Actor) -> None:
    work = world.request_context(actor, world.spec)
    accept_erased(work, actor, None)
    asked = Asked(from_ms=FIRST_MS, to_ms=FIRST_MS + DAYS * DAY_MS, who="last", reason="settle", if_open=IfOpen.REPLACE)
    try:
        outcome = run_request(work, asked, MemoryReplayer(world, actor), staging=Staging(chunk=1))
    except RequestError as error:
        if "with --warm-up" not in str(error):
            raise
        world.fault(REFUSED)  # `retention` has removed a state, and the error names what to do
        return
    if not outcome.is_published:
        decide_failed(work, outcome, who="last")


def _clean_all(world: World, actor: Actor) -> None:
    work = world.request_context(actor, world.spec)
    clean(work, MemoryFiles(world, actor), older_than_ms=0, who="last", check_rows=no_rows, dry_run=False)


def _repair_all(world: World, actor: Actor) -> None:
    """Repair until no late record is left, or a repair is refused: windows are open after it that differ."""
    for _ in range(MOST_REPAIRS):
        work = world.request_context(actor, world.spec)
        late = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
        if not late.late:
            return
        try:
            outcome = repair_late(world, actor, work, late, proposes=False, publishes=True)
        except RequestError as error:
            if OPEN_DIFFER not in str(error) and "removed by a clean-up" not in str(error):
                raise
            world.fault(REFUSED_REPAIR)
            return
        assert outcome is not None, "it was not only proposed"
        if not outcome.is_published:
            decide_failed(work, outcome, who="last")
    raise Violation(REPAIRED_ROWS, f"{MOST_REPAIRS} repairs leave late records")


def _has_no_late_record(view: LedgerView) -> None:
    for slice_id in view.published:
        run = view.published_run(slice_id)
        assert run is None or not run.result.counts.late, f"{slice_id} has late records that no repair takes"


def _is_as_undisturbed(world: World, view: LedgerView) -> None:
    """Compare the published chain with a replay of the whole log. `readers_see_rows_of_the_log` compares the rows."""
    assert view.published.keys() == {slice_.slice_id for slice_ in SLICES}, "every slice is published"
    pipeline, state = world.pipeline(world.spec), EMPTY_STATE
    for slice_ in SLICES:
        run = view.chain_run(view.published[slice_.slice_id])
        start = run.result.state_before
        assert start == state or (run.is_chain_start and start == EMPTY_STATE), f"{slice_.slice_id} does not follow"
        wanted = result_of(
            pipeline, slice_, world.log.read(slice_, world.reading), state=start, attempt_id="", log=run.result.log
        )
        shown = (run.result.run_id, dict(run.result.digests))
        assert shown == (wanted.run_id, dict(wanted.digests)), slice_.slice_id
        state = run.result.state_after


def _is_at(shown: int, newest: int) -> None:
    assert shown == newest, f"the current table shows publication {shown}, and readers see {newest}"


def _has_only_named_files(world: World) -> None:
    """Only a condemned attempt may have committed a file that is gone: `no_file_of_a_run_is_gone` has checked that."""
    assert world.files.keys() <= world.named | world.deleted.keys(), "a file that no commit names is left"


def _check(checker: str, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        raise Violation(checker, error) from error
