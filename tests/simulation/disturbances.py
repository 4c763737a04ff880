"""What happens to the processes and to the log of a schedule by chance."""

from dataclasses import dataclass
from random import Random

from tests.simulation.event_log import FIRSTS
from tests.simulation.replays import LATE_MS
from tests.simulation.world import DAYS, HOUR_MS, LEASE_MS, SLICES, SPECS, YEAR_MS, World

NAMED_RATE = 0.01
"""The probability per step that a person names the history of a restored log."""
PACE_MS = 2_000
"""At most so much time passes in a step."""
PAUSED_PACE_MS = HOUR_MS // 6
"""The same while a process is paused, so that the pause takes hours."""


@dataclass(frozen=True)
class Disturbances:
    """Probabilities of disturbances per step. They differ from schedule to schedule, so that calm ones occur, too."""

    jump: float
    kill: float
    pause: float
    late: float
    erase: float
    undo: float
    create: float
    compact: float
    expire: float
    restore: float

    @classmethod
    def drawn(cls, rng: Random, *, is_restating: bool) -> "Disturbances":
        rates = (0.0, 0.001, 0.003, 0.01)
        jump, kill, pause = (rng.choice(rates) for _ in range(3))
        late = rng.choice((0.01, 0.03)) if is_restating else rng.choice(rates)
        erase = rng.choice((0.0, 0.0, 0.0, 0.003, 0.02))
        create, restore = rng.choice((0.0, 0.0, 0.0, 0.002)), rng.choice((0.0, 0.0, 0.0, 0.004))
        undo, compact, expire = (rng.choice((0.0, 0.02)) for _ in range(3))
        return cls(
            jump=jump, kill=kill, pause=pause, late=late, erase=erase, undo=undo, create=create, compact=compact,
            expire=expire, restore=restore,
        )  # fmt: skip


def disturb(world: World, rates: Disturbances) -> None:
    """Advance time, move the clock, kill or pause a process, or change the log, by chance."""
    rng = world.rng
    world.pass_time(rng.randrange(PAUSED_PACE_MS if world.paused_until_ms else PACE_MS))
    if world.edits and world.features.random() < world.edits:
        _edit_file(world)
    if rng.random() < rates.jump:
        jump_ms = rng.choice([-YEAR_MS, -6 * HOUR_MS, -LEASE_MS, LEASE_MS // 2, LEASE_MS, 6 * HOUR_MS, YEAR_MS])
        world.now_ms += jump_ms
        world.fault("clock that jumps back" if jump_ms < 0 else "clock that jumps forward")
    if rng.random() < rates.kill and world.alive:
        world.kill(rng.choice(sorted(world.alive)))
        world.fault("killed process")
    if rng.random() < rates.pause and world.alive:
        pid = rng.choice(sorted(world.alive))
        world.paused_until_ms[pid] = world.elapsed_ms + rng.randint(1, 6) * HOUR_MS
        world.fault("paused process")
    _disturb_log(world, rates)


def _edit_file(world: World) -> None:
    """Edit the windows, `log.distinct` or `log.slice.first` of the pipeline file, perhaps back."""
    rng, reading = world.features, world.reading
    match rng.choice(["windows", "distinct", "first"]):
        case "windows":
            world.spec = SPECS[1 - SPECS.index(world.spec)]
        case "distinct":
            reach = max(own.reach for own in world.log.readings)
            world.reading = reading._replace(reach=0 if reading.reach else reach)
        case _:
            world.reading = reading._replace(first=rng.choice([0, *FIRSTS]))
    world.fault("edited pipeline file")


def _disturb_log(world: World, rates: Disturbances) -> None:
    """Let writers and persons change the log, by chance."""
    rng, log = world.rng, world.log
    if rng.random() < rates.late:
        amount = rng.choice((rng.randrange(1, 9), *LATE_MS))
        log.append(rng.choice(SLICES), amount, at_ms=world.now_ms)
        world.fault("late records")
    if rng.random() < rates.erase:
        _rewrite(world, rng)
    if rng.random() < rates.undo:
        log.undo(rng.choice(SLICES), at_ms=world.now_ms)
    if rng.random() < rates.compact:
        log.compact(rng.choice(SLICES), at_ms=world.now_ms)
        world.fault("compaction")
    _disturb_table(world, rates)


def _disturb_table(world: World, rates: Disturbances) -> None:
    """Create the table of the log again, restore it from a backup, or remove old commits, by chance."""
    rng, log = world.rng, world.log
    if rng.random() < rates.create:
        log.create_again(at_ms=world.now_ms)
        world.fault("log that is created again")
    if rng.random() < rates.expire:
        log.expire(log.expired + rng.randrange(1, 9))
        world.fault("commits removed by log retention")
    if rng.random() < rates.restore:
        log.restore(rng.randint(max(log.expired, DAYS - 1), log.version))
        world.fault("log restored from a backup")
    if log.restored is not None and rng.random() < NAMED_RATE:
        log.give_name()
        world.fault("history that gets a name")


def _rewrite(world: World, rng: Random) -> None:
    """Remove a record from the log by a commit, or give it another amount."""
    slice_ = rng.choice(SLICES)
    amounts = world.log.amounts(slice_)
    is_change = rng.random() < 0.4
    if len(amounts) > 1 or is_change:
        amount = rng.randrange(1, 9) if is_change else None
        world.log.rewrite(slice_, rng.randrange(len(amounts)), amount, at_ms=world.now_ms)
        world.fault("changed records" if is_change else "erased records")
