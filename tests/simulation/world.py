"""The simulated world: log, clocks, processes, files, and the ledger that the processes share.

Only Delta, Spark, clocks and threads are replaced. All decisions are those of the product's code.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from jobs.lake.lake import Lake
from jobs.lake.leftover_files import CommittedFile, LakeFiles, LeftoverFile
from jobs.lake.table_files import Attempt
from jobs.ledger.chain import Row
from jobs.ledger.leases import Holder
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.view import LedgerView
from jobs.orchestration.dag_tasks import DagRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.log_state import LogState, read_log_state
from jobs.planning.request_context import RequestContext
from jobs.runs import Slice
from tests.simulation.actors import Actor
from tests.simulation.event_log import ALONE, EventLog, Reading
from tests.simulation.memory_store import Access, FaultRates, MemoryLedger, MemoryStore, MemoryTable, SharedLedger
from tests.support.fake_replay import PIPELINE, day_ms, sales

DAYS = 4
FIRST_MS = day_ms("2024-01-01")
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
LEASE_MS = 600_000
YEAR_MS = 365 * DAY_MS
LAKE = Lake(root="/nowhere")
SPECS = (PIPELINE, PIPELINE.replace("size: 1d", "size: 2d"))
SETTLED_RULE, CURRENT = "settled: {after: 1d, change_at_most: {share: 0.1}}", "current_tables: [window_outputs]"
RULES = ("", *(f"publish: {{{part}}}\n" for part in (SETTLED_RULE, CURRENT, f"{SETTLED_RULE}, {CURRENT}")))
RETENTION = "retention: {superseded: 1d, unpublished: 1d, checkpoints: 30d}\n"
RESTATING = (
    "",
    "repair: {mode: propose}\n",
    "restate: {mode: auto}\nrepair: {mode: auto}\n",
    "restate: {mode: auto, at_most_slices: 1}\nrepair: {mode: auto, at_most_lateness: 3h}\n",
)
"""What the schedule does about changed and late records."""
ORDER, CUT = "  order: [id]\n", "slice: {by: day}"
"""Parts of `log` of the pipeline files."""
PLAIN = sales()
SLICES = slices_between(PLAIN, FIRST_MS, FIRST_MS + DAYS * DAY_MS)
Rows = tuple[str, Attempt]
"""The rows of an attempt at a slice in a table."""
TRACED = 400
"""The trace keeps so many of the last steps."""


@dataclass
class World:
    """The log, the clocks, the processes, and their common ledger. `current` is the actor that runs.

    `now_ms` is the wall clock, which may jump. `elapsed_ms` never goes back: threads sleep by it.
    """

    rng: Random
    rates: FaultRates = field(default_factory=FaultRates)
    table: MemoryTable = field(default_factory=MemoryTable)
    log: EventLog = field(default_factory=lambda: EventLog(SLICES))
    now_ms: int = FIRST_MS + 10 * DAY_MS
    elapsed_ms: int = 0
    alive: set[int] = field(default_factory=set)
    actors: list[Actor] = field(default_factory=list)
    current: Actor | None = None
    kinds: dict[int, str] = field(default_factory=dict)  # pid -> the kind of process
    dag_runs: list[DagRun] = field(default_factory=list)
    dag_leases: dict[str, set[int]] = field(default_factory=dict)  # lease -> pids of the processes of the DAG run
    last_read_ms: dict[int, int] = field(default_factory=dict)  # pid -> the clock at its last read of the ledger
    ahead_ms: dict[int, int] = field(default_factory=dict)  # pid -> how far the clock of its host is ahead
    paused_until_ms: dict[int, int] = field(default_factory=dict)  # pid -> the elapsed time at which it comes back
    files: dict[str, LeftoverFile] = field(default_factory=dict)  # path -> a file in the lake
    written: dict[str, LeftoverFile] = field(default_factory=dict)  # the same, and the files that were removed
    named: set[str] = field(default_factory=set)  # the paths that the newest versions of the tables name
    gone: set[str] = field(default_factory=set)  # those of `named` whose files were removed
    places: dict[str, Attempt] = field(default_factory=dict)  # path -> the attempt at a slice whose rows it has
    paths: dict[Rows, tuple[str, ...]] = field(default_factory=dict)  # table, attempt -> its `places`
    damaged: set[str] = field(default_factory=set)  # paths of files with other bytes than were written
    deleted: dict[str, int] = field(default_factory=dict)  # path -> when its rows were deleted
    faults: Counter[str] = field(default_factory=Counter)
    trace: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=TRACED))
    steps: int = 0
    next_pid: int = 100
    ids: int = 0
    rule: str = ""  # the part `publish` of the pipeline files
    retention: str = ""  # their retention
    restating: str = ""  # what they tell of changed and late records
    spec: str = SPECS[0]  # the spec of the pipeline file, until somebody edits it
    reading: Reading = ALONE  # its `log.distinct` and `log.slice.first`
    skew_ms: Mapping[str, int] = field(default_factory=dict)  # host -> how far its clock is ahead
    edits: float = 0.0  # the probability per step that somebody edits the pipeline file
    features: Random = field(default_factory=lambda: Random(0))  # draws what most schedules do not have
    on_commit: Callable[[Actor, Sequence[Row]], None] = field(default=lambda _actor, _rows: None)
    on_removal: Callable[[Collection[str]], None] = field(default=lambda _paths: None)

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def running(self) -> Actor:
        """Return the actor that runs."""
        assert self.current is not None, "only actors use the ledger"
        return self.current

    def start(self, name: str, work: Callable[[Actor], None], *, host: str) -> Actor:
        """Start a process with a new pid."""
        self.next_pid += 1
        actor = Actor(name=f"{name} {self.next_pid}", host=host, pid=self.next_pid, work=work)
        self.ahead_ms[actor.pid] = self.skew_ms.get(host, 0)
        self.alive.add(actor.pid)
        self.actors.append(actor)
        return actor

    def step(self, actor: Actor) -> None:
        """Run an actor to its next stop."""
        self.trace.append((actor.name, actor.step_name))
        self.steps += 1
        self.current = actor
        actor.step()
        self.current = None
        if actor.done:
            self.actors.remove(actor)
            if all(other.pid != actor.pid for other in self.actors):
                self.alive.discard(actor.pid)

    def kill(self, pid: int) -> None:
        """Kill all threads of a process."""
        self.alive.discard(pid)
        for actor in self.actors:
            actor.is_dead = actor.is_dead or actor.pid == pid

    def end(self) -> None:
        """Kill all processes, so that no thread is left."""
        for actor in list(self.actors):
            actor.is_dead = True
            while not actor.done:
                self.step(actor)

    def pass_time(self, ms: int) -> None:
        """Let time pass on all clocks."""
        self.now_ms += ms
        self.elapsed_ms += ms

    def is_alive(self, actor: Actor, holder: Holder) -> bool | None:
        """Return whether a process can see that another one is alive; None if that is on another host."""
        return holder.pid in self.alive if holder.host == actor.host else None

    # --- the product's interfaces -----------------------------------------------------------------------------------

    def access(self) -> Access:
        def refreshed() -> None:
            self.last_read_ms[self.running().pid] = self.now_ms

        return Access(
            rng=self.rng,
            actor=self.running,
            faulted=self.fault,
            refreshed=refreshed,
            committed=lambda rows: self.on_commit(self.running(), rows),
        )

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1
        self.trace.append(("fault", kind))

    def ledger(self, actor: Actor, kind: type[MemoryLedger] = SharedLedger) -> Ledger:
        """Return a new ledger of a process."""
        limits = LedgerLimits(attempts=50, compact_every=self.rng.choice([1, 2, 5, 100]))
        store = MemoryStore(self.table, self.access(), self.rates)
        now_ms = self.clock_of(actor)
        return kind("memory", now_ms=now_ms, sleep=lambda _s: None, limits=limits, store=store)

    def clock_of(self, actor: Actor) -> Callable[[], int]:
        return lambda: self.now_ms + self.ahead_ms.get(actor.pid, 0)

    def pipeline(self, text: str) -> Pipeline:
        """Return the content of a pipeline file: a spec, and the rules of the world."""
        log = f"{ORDER}  history: {self.log.name}\n" if self.log.name else ORDER
        reach, first = self.reading
        log += f"  distinct: {{by: [id], within: {reach}d}}\n" if reach else ""
        text = text.replace(ORDER, log)
        text = text.replace(CUT, f"slice: {{by: day, first: {SLICES[first].slice_id}}}") if first else text
        return sales(text + self.rule + self.retention + self.restating)

    def request_context(self, actor: Actor, text: str) -> RequestContext:
        """The context of one process."""
        place = {"host": actor.host, "boot_id": "b", "pid_namespace": "n"}
        return RequestContext(
            pipeline=self.pipeline(text),
            lake=LAKE,
            ledger=self.ledger(actor),
            new_id=self.new_id,
            holder=Holder(**place, pid=actor.pid, start_ticks=1),
            is_alive=lambda holder: self.is_alive(actor, holder),
            lease_ms=LEASE_MS,
            read_log=self.read_log,
        )

    def read_log(
        self,
        pipeline: Pipeline,
        lake: Lake,
        slices: Sequence[Slice],
        *,
        view: LedgerView | None,
        before: LogState | None = None,
        now_ms: int | None = None,
    ) -> LogState:
        del now_ms  # all slices of this log have begun
        return read_log_state(pipeline, lake, slices, view=view, before=before)

    def has_rows(self, table: str, place: Attempt) -> bool:
        """Return whether a table has the rows of an attempt at a slice."""
        for path in self.paths.get((table, place), ()):  # noqa: SIM110 - is called often
            if path in self.named and path in self.files:
                return True
        return False

    def rows_of(self, path: str) -> Rows:
        """Return the rows that a file has."""
        return path.partition("/")[0], self.places[path]

    def write_file(self, table: str, attempt_id: str, slice_id: str = "") -> str:
        path = f"{table}/attempt_id={attempt_id}/{len(self.files)}-{self.new_id()}"
        self.places[path] = place = slice_id, attempt_id
        self.paths[table, place] = (*self.paths.get((table, place), ()), path)
        self.files[path] = self.written[path] = LeftoverFile(
            path=path, table=table, attempt_id=attempt_id, bytes=1, modified_ms=self.now_ms
        )
        return path


class MemoryFiles(LakeFiles):
    """The files of the world, as one process sees them. Each access is a step."""

    def __init__(self, world: World, actor: Actor) -> None:
        object.__setattr__(self, "world", world)
        object.__setattr__(self, "actor", actor)

    world: World
    actor: Actor

    def listed(self) -> list[LeftoverFile]:
        self.actor.stop_here("list files")
        files = list(self.world.files.values())
        if files and self.world.access().happens("delayed listing of files", self.world.rates.delayed):
            del files[-self.world.rng.randint(1, 3) :]
        return files

    def named(self, tables: Iterable[str]) -> frozenset[str]:
        self.actor.stop_here("read the names of files")
        return frozenset(_of_tables({*self.world.named, *self.world.deleted}, tables))

    def committed(self, tables: Iterable[str]) -> list[CommittedFile]:
        self.actor.stop_here("read the rows of tables")
        files = (self.world.written[path] for path in sorted(_of_tables(self.world.named, tables)))
        return [
            CommittedFile(table=file.table, attempt=self.world.places[file.path], bytes=1, modified_ms=file.modified_ms)
            for file in files
        ]

    def delete_rows(self, table: str, attempts: Collection[Attempt], *, metadata: Mapping[str, str]) -> None:
        del metadata
        self.actor.stop_here("delete rows")
        world = self.world
        paths = [path for path in _of_tables(world.named, [table]) if world.places[path] in attempts]
        for path in paths:
            world.named.discard(path)
            world.gone.discard(path)
            world.deleted[path] = world.now_ms
        world.fault("rows deleted")
        world.on_removal(paths)

    def expired(self, tables: Iterable[str], *, older_than_ms: int) -> frozenset[str]:
        self.actor.stop_here("read deleted files")
        limit_ms = self.world.clock_of(self.actor)() - older_than_ms
        deleted = self.world.deleted
        return frozenset(path for path in _of_tables(deleted, tables) if deleted[path] <= limit_ms)

    def remove(self, paths: Iterable[str]) -> None:
        for path in self.world.rng.sample(wanted := list(paths), len(wanted)):
            self.actor.stop_here("remove a file")
            self.world.files.pop(path, None)
            self.world.deleted.pop(path, None)
            self.world.gone |= {path} & self.world.named
            self.world.on_removal([path])


def _of_tables(paths: Iterable[str], tables: Iterable[str]) -> list[str]:
    names = {*tables}
    return [path for path in paths if path.partition("/")[0] in names]


@dataclass
class SimulatedEvent:
    """`threading.Event` of a simulated process."""

    world: World
    is_set: bool = False

    def set(self) -> None:
        self.is_set = True

    def wait(self, timeout: float) -> bool:
        due_ms = self.world.elapsed_ms + int(timeout * 1000)
        self.world.running().stop_here("sleep", until=lambda: self.is_set or self.world.elapsed_ms >= due_ms)
        return self.is_set


@dataclass(kw_only=True)
class SimulatedThread:
    """`threading.Thread` of a simulated process: a further actor with the same pid."""

    world: World
    target: Callable[..., None]
    args: tuple[Any, ...]
    name: str
    daemon: bool
    actor: Actor | None = None

    def start(self) -> None:
        parent = self.world.running()
        self.actor = Actor(
            name=f"lease of {parent.name}",
            host=parent.host,
            pid=parent.pid,
            work=lambda _actor: self.target(*self.args),
        )
        self.world.actors.append(self.actor)

    def join(self) -> None:
        thread = self.actor
        assert thread is not None, "the thread was started"
        self.world.running().stop_here("join", until=lambda: thread.done)


@dataclass(frozen=True)
class SimulatedThreading:
    """What `jobs.planning.lease_keeping` uses of the module `threading`."""

    world: World

    def Event(self) -> SimulatedEvent:  # noqa: N802 - the name of the class that it replaces
        return SimulatedEvent(self.world)

    def Thread(self, **options: Any) -> SimulatedThread:  # noqa: ANN401, N802 - those of the class that it replaces
        return SimulatedThread(world=self.world, **options)
