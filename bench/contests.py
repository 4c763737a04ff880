"""A contest: contestants that compute the same thing, round by round in the same order, with equal results."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from bench.checksums import require_equal
from bench.contestant import Job
from bench.machine import busy_cores, why_loaded
from bench.samples import Checksum, Measure, Sample
from bench.seats import Missing, Ran, Seat, SeatFailed
from bench.workloads import Workload

Equality = Literal["all", "rounds", "none"]
"""Which results must be equal: of all contestants and rounds, of a contestant's own rounds, or none."""
Unit = Literal["ratio", "rate", "seconds", "mb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure to reach: `must` at least (for `seconds` and `mb` at most), `aim` if possible.

    A `ratio` is the peer's `measure` by that of `ours`; a `rate` is million records for each CPU second; `mb` is the
    greatest resident memory of `role`.
    """

    unit: Unit
    must: float
    aim: float
    ours: str
    peer: str = ""
    measure: Measure = "wall_s"
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One bench. The first contestant is ours; ratios are to it.

    `source`: records from memory, from a Delta log that the benches make, or the contestants' own. `is_fresh`: each run
    is in a new process. `measure` is what the chart shows. There are at most `rounds` rounds.
    """

    name: str
    title: str
    what: str
    contestants: tuple[str, ...]
    workload: Workload
    records: int
    source: Literal["memory", "log", "own"]
    equal: Equality = "all"
    is_fresh: bool = False
    measure: Measure = "wall_s"
    targets: tuple[Target, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How contests are run. `cache` keeps logs between runs, `scratch` is emptied by its user."""

    rounds: int
    cores: int
    cache: Path
    scratch: Path
    refuses_load: bool = False
    seed: int = 1
    limit_s: float = 1_800.0


class MachineLoaded(RuntimeError):  # noqa: N818 - it says what happened
    """Other programs use the machine, and the caller wants no figures then."""


class SeatLike(Protocol):
    """What a contest needs of a seat; tests have seats without processes."""

    def prepare(self, job: Job) -> None:
        """Let the contestant prepare."""

    def run(self) -> Ran:
        """Measure one run."""

    def close(self) -> None:
        """End the process."""


SeatFor = Callable[[str, Path, Mapping[str, str]], SeatLike]
"""Returns the seat of a contestant; gets its name, the file for what it prints, and variables of its environment."""


@dataclass(slots=True)
class Entry:
    """What one contestant did. `missing` says why it has no samples; `has_failed` that this is an error."""

    name: str
    samples: list[Sample] = field(default_factory=list)
    checksums: list[Checksum] = field(default_factory=list)
    notes: list[Mapping[str, Any]] = field(default_factory=list)
    missing: str = ""
    has_failed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The entries of a contest, and why rounds were disturbed."""

    contest: Contest
    entries: tuple[Entry, ...]
    disturbed: tuple[str, ...]

    def entry(self, name: str) -> Entry:
        """Return the entry of a contestant."""
        return next(one for one in self.entries if one.name == name)


def play(
    contest: Contest,
    settings: Settings,
    *,
    log: str = "",
    seat_for: SeatFor | None = None,
    busy: Callable[[], float] = lambda: busy_cores(1.0),
    load: Callable[[], float] = lambda: os.getloadavg()[0],
) -> Played:
    """Run a contest: every contestant once in each round, always in the same order.

    Args:
        contest: the bench.
        settings: rounds, cores, directories.
        log: the Delta log with the records, if the contest reads one.
        seat_for: gives the contestants their seats; by default a process for each.
        busy: measures how many cores are in use while no contestant runs.
        load: returns the load average of the last minute.

    Raises:
        UnequalResults: two results differ that have to be equal.
        MachineLoaded: the machine is loaded, and the settings refuse that.
    """
    entries = [Entry(name) for name in contest.contestants]
    disturbed: list[str] = []
    with ExitStack() as stack:
        table = _Table(contest, settings, log=log, seat_for=seat_for or _process_seat(settings), stack=stack)
        for number in range(min(contest.rounds, settings.rounds)):
            why = why_loaded(load() if number == 0 else None, busy(), cores=settings.cores)
            if why is not None:
                if settings.refuses_load:
                    raise MachineLoaded(f"bench {contest.name}, round {number + 1}: {why}")
                disturbed.append(f"round {number + 1}: {why}")
            for entry in entries:
                if not entry.missing:
                    table.measure(entry)
            _compare(contest, entries)
    disturbed += _noisy(entries, settings.cores)
    return Played(contest=contest, entries=tuple(entries), disturbed=tuple(disturbed))


def _process_seat(settings: Settings) -> SeatFor:
    return lambda name, log, environ: Seat(name=name, log=log, environ=environ, limit_s=settings.limit_s)


@dataclass(slots=True)
class _Table:
    """The seats of a contest. A seat is opened at the first run of its contestant, or at each run."""

    contest: Contest
    settings: Settings
    log: str = field(kw_only=True)
    seat_for: SeatFor = field(kw_only=True)
    stack: ExitStack = field(kw_only=True)
    seats: dict[str, SeatLike] = field(default_factory=dict)

    def measure(self, entry: Entry) -> None:
        """Run one contestant once, and keep what it gave. A contestant that fails is out; the others go on."""
        try:
            seat = self.seats.get(entry.name) or self._open(entry.name)
            ran = seat.run()
        except Missing as error:
            entry.missing = str(error)
            return
        except SeatFailed as error:
            entry.missing, entry.has_failed = f"It failed: {str(error).splitlines()[0]}", True
            for given in (entry.samples, entry.checksums, entry.notes):
                given.clear()
            return
        entry.samples.append(ran.sample)
        entry.checksums.append(ran.checksum)
        entry.notes.append(ran.notes)
        if self.contest.is_fresh:
            self.seats.pop(entry.name).close()

    def _open(self, name: str) -> SeatLike:
        contest, settings = self.contest, self.settings
        seat = self.seat_for(name, settings.scratch / "logs" / f"{contest.name}-{name}.log", self._environ())
        self.stack.callback(seat.close)
        scratch = settings.scratch / contest.name / name
        scratch.mkdir(parents=True, exist_ok=True)
        options = {"cache": str(settings.cache), **contest.options.get(name, {})}
        seat.prepare(
            Job(
                bench=contest.name,
                workload=contest.workload,
                records=contest.records,
                seed=settings.seed,
                cores=1 if contest.source == "memory" else settings.cores,
                log=self.log,
                scratch=str(scratch),
                options=options,
            )
        )
        self.seats[name] = seat
        return seat

    def _environ(self) -> Mapping[str, str]:
        threads = 1 if self.contest.source == "memory" else self.settings.cores
        return {"POLARS_MAX_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0"}


def _compare(contest: Contest, entries: Sequence[Entry]) -> None:
    for expected in _groups(contest, entries):
        require_equal(contest.name, expected)


def _groups(contest: Contest, entries: Sequence[Entry]) -> Iterator[dict[str, Checksum]]:
    named = [
        {f"{entry.name}, round {number + 1}": one for number, one in enumerate(entry.checksums)} for entry in entries
    ]
    match contest.equal:
        case "all":
            yield {name: one for group in named for name, one in group.items()}
        case "rounds":
            yield from named
        case "none":
            return


def _noisy(entries: Sequence[Entry], cores: int) -> list[str]:
    return [
        f"{entry.name}, round {number + 1}: other processes used {sample.foreign_cores:.1f} cores"
        for entry in entries
        for number, sample in enumerate(entry.samples)
        if sample.is_disturbed(cores)
    ]
