"""A year of a daily pipeline with random faults, against an independent count of what the log has.

The clock is injected. The operators of the DAG file, the requests, the ledger, the log and the messages are the real
ones; `FakeReplayer` stands for Spark. All choices come from a seed. Days arrive in time, late, days later or never;
they arrive twice, get more records, or fail a check. The producer erases records. Workers die, replays fail for a
moment, disks fill up, and the processes of Airflow forget what they know. A person decides what is held and what has
changed, some days later.
"""

import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.orchestration.plan_outline import folded
from jobs.orchestration.restatements import restatement_conf
from jobs.planning import changed_slices
from jobs.planning.readiness import Waiting
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.planning.standing import Standing, standing
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.readers import published_table
from jobs.runs import RunResult
from tests.support.daily_log import Cluster, LedgerStoreFaults, Writer
from tests.support.fake_replay import FAILS, PIPELINE, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.message_sinks import WebhookSink
from tests.support.simulated_airflow import Clock, SimulatedAirflow, WorkerDied, instant_ms
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = pytest.mark.dags

FIRST: Final = date(2027, 8, 1)
"""A year from here has the 29th of February."""
HOURS: Final = (2, 4, 6, 8, 10, 12, 15, 18)
SCHEDULE_HOUR, CHECK_HOUR, PERSON_HOUR, NOON = 6, 8, 15, 12
log = logging.getLogger(__name__)
KINDS: Final = {"on time": 70, "late": 8, "missing": 5, "never": 3, "fails": 5, "twice": 4, "more": 5}
"""How a day arrives -> its weight."""
FAULTS: Final = {"none": 80, "worker died": 8, "store": 6, "disk": 6}
"""What happens while a day is replayed for the first time -> its weight."""
COMMIT_FAULTS: Final = 0.03
"""The chance that the store of the ledgers fails at the next commit, in each hour that is played."""
ERASE_HOUR: Final = 10
ERASES: Final = 0.06
"""The chance that the producer erases the records of a key from a recent day, in each hour `ERASE_HOUR`."""
QUIET_DAYS: Final = 6
"""At the end, nothing goes wrong for so long, and everything is decided."""
TEXT: Final = (
    PIPELINE
    + """
alerts: {to: [hook], not_published_by: "07:00"}
restate: {mode: propose}
"""
)


def day_text(number: int) -> str:
    """Return a day of the log by its number."""
    return str(FIRST + timedelta(days=number))


@dataclass
class Year:
    """The simulated year.

    `arrivals` maps (day of the calendar, hour) to what is appended then, `erasures` a version of the log to the day and
    the key whose records it erased. `accepted` are the versions of the erasures that a person has accepted.
    """

    airflow: SimulatedAirflow
    writer: Writer
    cluster: Cluster
    hook: WebhookSink
    chance: Random
    days: int
    store: LedgerStoreFaults
    load: Callable[[], "dict[str, DAG]"]
    arrivals: dict[tuple[int, int], list[tuple[int, dict[str, int]]]] = field(default_factory=lambda: defaultdict(list))
    commits: list[tuple[int, str, dict[str, int]]] = field(default_factory=list)
    erasures: dict[int, tuple[str, str]] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)
    messages: int = 0
    is_quiet: bool = False
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def plan(self) -> None:
        """Draw when the records of each day arrive, and what happens while the day is replayed."""
        for number in range(self.days):
            is_quiet = number == 0 or number >= self.days - QUIET_DAYS
            kind = "on time" if is_quiet else self.chance.choices(tuple(KINDS), tuple(KINDS.values()))[0]
            self.faults[kind] += 1
            self._plan_day(number, kind)
            if not is_quiet and (fault := self._fault()) is not None:
                self.cluster.once[day_text(number)] = fault

    def _plan_day(self, number: int, kind: str) -> None:
        later = self.chance.randrange(2, 8)
        amounts = {"a": FAILS if kind == "fails" else number + 1, "b": self.chance.randrange(1, 9)}
        more = {"twice": amounts, "more": {"c": later}}
        if kind == "late":
            self._arrives(number, amounts, after=1, hour=10)
        elif kind != "never":
            self._arrives(number, amounts, after=later if kind == "missing" else 1)
        if kind in more:
            self._arrives(number, more[kind], after=later)

    def _arrives(self, number: int, amounts: dict[str, int], *, after: int, hour: int = 2) -> None:
        self.arrivals[min(number + after, self.days), hour].append((number, amounts))

    def _fault(self) -> Callable[[], None] | None:
        def die() -> None:
            raise WorkerDied

        def fail_for_a_moment() -> None:
            raise LedgerError("the store does not answer")

        def fill_the_disk() -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        name = self.chance.choices(tuple(FAULTS), tuple(FAULTS.values()))[0]
        self.faults[name] += 1
        return {"none": None, "worker died": die, "store": fail_for_a_moment, "disk": fill_the_disk}[name]

    def live(self) -> None:
        """Let the days pass, and check at each noon."""
        for number in range(self.days + 1):
            for hour in HOURS:
                self.airflow.clock.ms = instant_ms(f"{day_text(number)}T{hour:02d}:00")
                self._hour(number, hour)
                if hour == NOON:
                    self._noon(number)

    def _hour(self, number: int, hour: int) -> None:
        for day, amounts in self.arrivals.pop((number, hour), ()):
            self.writer.append(day_text(day), amounts)
            self.commits.append((self._next_version, day_text(day), amounts))
        name = f"scheduled__{day_text(number)}T{hour:02d}"
        if hour == SCHEDULE_HOUR and number > 0:
            self.airflow.trigger("replay_sales", name, run_type="scheduled", end_ms=self.airflow.clock.ms)
        self.is_quiet = number > self.days - QUIET_DAYS
        self._erase(number, hour)
        if hour == PERSON_HOUR and (self.is_quiet or self.chance.random() < 0.6):
            self._decide()
        if self.is_quiet:
            self.store.following = None
        elif self.chance.random() < COMMIT_FAULTS:
            self.store.following = self.chance.choice(("refused", "unknown"))
        if not self.is_quiet and self.chance.random() < 0.02:
            self.faults["restart"] += 1
            changed_slices._looked.cache.clear()
            self.airflow.dags = self.load()
        self.airflow.play()
        if hour in {CHECK_HOUR, PERSON_HOUR}:
            missing = self._missing(number)
            self.airflow.trigger("alert_sales", name, run_type="scheduled", end_ms=self.airflow.clock.ms)
            self.airflow.play()
            told = [str(body["subject"]) for body in self.hook.bodies]
            of_readers = [line for line in told if "not visible to readers" in line]
            is_due = bool(missing) and hour == CHECK_HOUR
            assert len(of_readers) == is_due, f"{name}: {missing}, told {told}"
            assert all(f"{folded(missing)} not visible to readers" in line for line in of_readers), f"{name}: {told}"
        self.messages += len(self.hook.bodies)
        self.hook.bodies.clear()

    @property
    def _next_version(self) -> int:
        return len(self.commits) + len(self.erasures)

    def _erase(self, number: int, hour: int) -> None:
        """Draw whether to erase the records of a key from a recent day, at most once from a day."""
        if hour != ERASE_HOUR or self.is_quiet or self.chance.random() >= ERASES:
            return
        erased = {day for day, _key in self.erasures.values()}
        recent = [day_text(day) for day in range(max(0, number - 10), number)]
        days = [day for day in recent if day not in erased and self._records(day)]
        if not days:
            return
        self.faults["erased"] += 1
        day, key = self.chance.choice(days), self.chance.choice(("a", "b"))
        self.writer.erase(day, key)
        self.erasures[self._next_version] = (day, key)

    def _accept_erasures(self) -> None:
        """Draw whether a person accepts all commits that erased records, as `hindcast accept-rewrite` does."""
        if not self.erasures.keys() - self.accepted or not (self.is_quiet or self.chance.random() < 0.5):
            return
        self.store.following = None  # a command that fails is called again
        work = self.work()
        view = work.ledger.view()
        rewrites = rewrites_of(work, view)
        chosen = chosen_rewrites(work, view, rewrites, versions=())
        assert {rewrite.version for rewrite in chosen} == self.erasures.keys() - self.accepted, "what is to be accepted"
        if chosen:
            accept_rewrites(work, rewrites, chosen, reason="by law", who="anna")
            self.accepted |= {rewrite.version for rewrite in chosen}

    def _missing(self, number: int) -> list[str]:
        published = self.work().ledger.view().published
        return [day_text(day) for day in range(number) if day_text(day) not in published]

    def work(self) -> RequestContext:
        clock = self.airflow.clock
        return open_request_context(sales(TEXT), self.airflow.lake, now_ms=lambda: clock.ms)

    def _decide(self) -> None:
        """Let a person accept what is held or erased, replay what has changed, and clear DAG runs that failed."""
        self._accept_erasures()
        for run in self.airflow.runs:
            if run.dag_id in {"replay_sales", "backfill_sales"} and run.state == "failed":
                self.airflow.clear(run.dag_id, run.run_id)
        self.airflow.play()
        view = self.work().ledger.view()
        if view.hold is not None:
            self._decided("resume", view, reason="seen")
        elif view.standing and not self.is_quiet and self.chance.random() < 0.05:
            self.faults["rolled back"] += 1
            self._decided("roll_back", view, reason="a doubt", publication=view.standing[-1].seq)
        for request in view.open_requests():
            if request.is_proposed:
                conf = restatement_conf(self.work(), request, publish=True)
                name = f"manual__{len(self.airflow.runs)}"
                self.airflow.trigger("backfill_sales", name, run_type="manual", conf=conf)
            elif held := _held(view, request):
                self._judge(view, request, held)

    def _judge(self, view: LedgerView, request: Request, held: list[RunResult]) -> None:
        # A restatement that a person has cancelled is declined, and not proposed again.
        if request.kind is RequestKind.SCHEDULED and not self.is_quiet and self.chance.random() < 0.2:
            self.faults["cancelled"] += 1
            self._decided("cancel", view, request_id=request.request_id, reason="not now")
            return
        self.faults["waived"] += len(held)
        chosen = [{"slice_id": run.slice.slice_id, "run_id": run.run_id, "reason": "a real peak"} for run in held]
        self._decided("waive_and_publish", view, request_id=request.request_id, slices=chosen)

    def _decided(self, action: str, view: LedgerView, **given: object) -> None:
        """Start the DAG of decisions, as its form does."""
        conf = {"action": action, "ledger_version": view.version, **given}
        name = f"manual__{len(self.airflow.runs)}"
        self.airflow.trigger("decide_sales", name, run_type="manual", user="anna", conf=conf)

    def _noon(self, number: int) -> None:
        """Check what readers see against the commits of the producer."""
        if number == 0:
            return
        work, where = self.work(), day_text(number)
        view = work.ledger.view()
        now = standing(work, view)
        days = [day_text(day) for day in range(number)]
        assert list(view.published) == days[: len(view.published)], f"{where}: readers see days without a gap"
        due: dict[tuple[str, str], int] = {}
        for slice_id, run_id in view.published.items():
            run = view.run(run_id).result
            records = self._records(slice_id, until=run.log.version)
            assert run.counts.read == len(records), f"{where}: {slice_id}"
            due |= {(slice_id, key): total for key, total in _totals(records).items()}
        assert self._seen() == due, f"{where}: readers see the sums of what the runs could read"
        self._check_changed(where, view, now)
        if len(view.published) < number:
            first = days[len(view.published)]  # the days after it wait for it
            assert self._has_cause(first, view, waiting=now.waiting), f"{where}: {first} without a cause"

    def _check_changed(self, where: str, view: LedgerView, now: Standing) -> None:
        """Check which published days are named as changed, and which as those of an erasure without a decision."""
        undecided = {day: version for version, (day, _key) in self.erasures.items() if version not in self.accepted}
        stale = {
            slice_id
            for slice_id, run_id in view.published.items()
            if self._records(slice_id, until=view.run(run_id).result.log.version) != self._records(slice_id)
            or slice_id in undecided
        }
        assert {changed.slice.slice_id for changed in now.changed} == stale, f"{where}: what has changed is named"
        removed = {changed.slice.slice_id: changed.removed for changed in now.changed if changed.removed}
        assert removed.keys() == undecided.keys() & view.published.keys(), f"{where}: {removed}, {undecided}"
        assert all(f"commit {undecided[day]} " in f"{name} " for day, name in removed.items()), f"{where}: {removed}"

    def _has_cause(self, slice_id: str, view: LedgerView, *, waiting: Waiting | None) -> bool:
        """Return whether a day is waited for, in an open request, on hold, or that of a DAG run without success.

        If its request was cancelled, the next DAG run opens a new one, unless it publishes the days before it first.
        """
        is_asked = any(
            request.from_ms is not None
            and request.to_ms is not None
            and request.from_ms <= day_ms(slice_id) < request.to_ms
            for request in view.open_requests()
        )
        is_waited_for = waiting is not None and waiting.slice.slice_id == slice_id
        replays = [run for run in self.airflow.runs if run.dag_id == "replay_sales"]
        ended = {run.state for run in replays}
        went_on = f"{date.fromisoformat(slice_id) - timedelta(days=1)}: 1 slice published" in replays[-1].verdict
        return went_on or is_asked or is_waited_for or view.hold is not None or bool(ended - {"success"})

    def _seen(self) -> dict[tuple[str, str], int]:
        """Return (day, key) -> the sum that readers see."""
        rows = published_table(self.airflow.lake.root, "sales").to_pylist()
        seen = {(row["slice_id"], row["key"]): row["total"] for row in rows}
        assert len(seen) == len(rows), "readers see a window twice"
        return seen

    def _records(self, slice_id: str, *, until: int | None = None) -> list[tuple[str, int]]:
        """Return the records of a day, at a version of the log or now."""
        newest = self._next_version if until is None else until
        gone = [(version, key) for version, (day, key) in self.erasures.items() if day == slice_id]
        return [
            (key, amount)
            for version, day, amounts in self.commits
            if day == slice_id and version <= newest
            for key, amount in sorted(amounts.items())
            if not any(version < erased <= newest and key == erased_key for erased, erased_key in gone)
        ]

    def check_end(self) -> None:
        """Check that readers see every record of every day, and each once."""
        view = self.work().ledger.view()
        assert list(view.published) == [day_text(day) for day in range(self.days)]
        assert not view.open_requests(), view.open_requests()
        assert any(past.is_rollback for past in view.publications) == bool(self.faults["rolled back"])
        days = [day_text(day) for day in range(self.days)]
        assert self._seen() == {(day, key): total for day in days for key, total in _totals(self._records(day)).items()}
        Ledger(self.airflow.lake.ledger("sales"), now_ms=lambda: 0).read_whole()


def _totals(records: Sequence[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for key, amount in records:
        totals[key] += amount
    return totals


def _held(view: LedgerView, request: Request) -> list[RunResult]:
    return [view.run(run_id).result for run_id in request.runs.values() if not view.run(run_id).is_publishable]


def play(seed: int, days: int, *, tmp_path: Path, load: "LoadDags", hook: WebhookSink) -> Year:
    """Play a year of so many days."""
    patch = pytest.MonkeyPatch()
    root = tmp_path / str(seed)
    store = LedgerStoreFaults()
    lake, clock, cluster = Lake(root=str(root / "lake")), Clock(instant_ms(f"{FIRST}T00:00")), Cluster()
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "sales.yaml").write_text(TEXT, encoding="utf-8")
    with patch.context() as within:
        within.setenv("HINDCAST_LAKE", lake.root)
        store.patch(within)
        airflow = SimulatedAirflow(load(pipelines), lake, clock, cluster, within)
        year = Year(
            airflow=airflow, writer=Writer(Path(lake.root), clock), cluster=cluster, hook=hook, chance=Random(seed),
            days=days, store=store, load=lambda: dict(load(pipelines)),
        )  # fmt: skip
        year.plan()
        year.live()
        year.check_end()
        year.faults["commit of a ledger"] = store.happened
    return year


@pytest.mark.parametrize("days", [pytest.param(45, marks=pytest.mark.slow), pytest.param(366, marks=pytest.mark.soak)])
def test_readers_see_every_record_or_a_cause_is_named(
    days: int, load_dags: "LoadDags", tmp_path: Path, hook: WebhookSink
) -> None:
    for seed in seeds(1):
        year = play(seed, days, tmp_path=tmp_path, load=load_dags, hook=hook)
        log.info("seed %s, %s days: %s, %s messages", seed, days, dict(year.faults), year.messages)
