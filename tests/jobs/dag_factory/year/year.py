"""Plays a year of a daily pipeline hour by hour, and checks it."""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from jobs.lake import file_commits
from jobs.lake.lake import Lake
from jobs.lake.parquet_files import write_parquet
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.planning import changed_slices
from jobs.planning.restating import OVERTAKEN
from jobs.replay.orders import ReplayOrder
from jobs.runs import RunResult
from tests.jobs.dag_factory.year import checks, person
from tests.jobs.dag_factory.year.calendar import Calendar
from tests.jobs.dag_factory.year.edited_file import AGGREGATES, Content, EditedFile
from tests.jobs.dag_factory.year.messages import Mornings
from tests.jobs.dag_factory.year.operator import operate
from tests.jobs.dag_factory.year.producer import QUIET_DAYS, Producer, totals
from tests.jobs.dag_factory.year.retention import Kept
from tests.jobs.dag_factory.year.world import World
from tests.support.daily_log import Cluster, LedgerStoreFaults, Writer
from tests.support.message_sinks import WebhookSink
from tests.support.simulated_airflow import Clock, SimulatedAirflow

if TYPE_CHECKING:
    from airflow.sdk import DAG

HOURS: Final = (2, 4, 6, 8, 10, 12, 15, 18)
"""The hours of the local clock that are played."""
PERSON_HOUR, NOON, EVENING = 15, 12, 18
COMMIT_FAULTS: Final = 0.03
"""The chance that the store of the ledgers fails at the next commit, in each hour that is played."""
RESTARTS: Final = 0.02
"""The chance that the processes of Airflow forget what they know, in each hour that is played."""


@dataclass
class Year:
    """A simulated year: the world, and the models that it is compared with."""

    world: World
    kept: Kept = field(default_factory=Kept)
    mornings: Mornings = field(default_factory=Mornings)
    specs: checks.SpecsAndVerdicts = field(default_factory=checks.SpecsAndVerdicts)

    def live(self) -> None:
        """Let the days pass."""
        world = self.world
        world.producer.plan()
        world.airflow.before_task = world.before_task
        for number in range(world.calendar.days + 1):
            world.is_quiet = number > world.calendar.days - QUIET_DAYS
            for hour in HOURS:
                world.set_time(world.calendar.instant_ms(number, hour))
                where = f"{world.calendar.day(number)}, {hour} h"
                self._hour(number, hour)
                view = world.view()
                checks.check_nothing_early(world, view, where)
                self._tell(number, hour, view)
                self.specs.check(world, view, where)
                self.kept.observe(world, view, where)
                if hour == NOON and number:
                    self.kept.look_back(world, checks.check_readers(world, number), where)
        self._check_end()

    def _hour(self, number: int, hour: int) -> None:
        """Let an hour pass until nothing goes on."""
        world = self.world
        world.jump()
        world.edit()
        operate(world)
        world.producer.append_due(number, hour)
        if not world.is_quiet:
            world.producer.erase(number, hour)
        for dag_id in ("maintain_sales", "replay_sales"):
            world.schedule(dag_id)
        if (hour == PERSON_HOUR and world.happens(0.6)) or (world.is_quiet and hour in {PERSON_HOUR, EVENING}):
            person.decide(world)
        if world.is_quiet:
            world.store.following = None
        elif world.happens(COMMIT_FAULTS):
            world.store.following = world.chance.choice(("refused", "unknown"))
        if not world.is_quiet and world.happens(RESTARTS):
            world.drawn["restart"] += 1
            changed_slices._looked.cache.clear()
            world.reload()
        world.airflow.play()

    def _tell(self, number: int, hour: int, view: LedgerView) -> None:
        """Play the DAG runs of the alerts: that of the morning, and one that must not tell the same again."""
        world = self.world
        if number:
            world.schedule("alert_sales")
        if number and hour == PERSON_HOUR and not world.airflow.is_broken("alert_sales"):
            world.airflow.trigger(
                "alert_sales", f"again__{number}", run_type="scheduled", end_ms=world.airflow.clock.ms
            )
        self.mornings.check(world, number, view, where=f"{world.calendar.day(number)}, {hour} h")

    def _check_end(self) -> None:
        """Check that readers see every record of every day, and each once."""
        world = self.world
        view, days = world.view(), world.calendar.before(world.calendar.days)
        assert list(view.published) == days, world.described()
        assert not view.open_requests(), world.described()
        is_count = {
            day: world.file.contents[view.run(run_id).result.spec_fingerprint].aggregate != AGGREGATES[0]
            for day, run_id in view.published.items()
        }
        due = {
            (day, key): total
            for day in days
            for key, total in totals(world.producer.records(day), is_count=is_count[day]).items()
        }
        assert checks.seen(world) == due, world.described()
        Ledger(world.airflow.lake.ledger("sales"), now_ms=lambda: 0).read_whole()
        rollbacks = sum(past.is_rollback for past in view.publications)
        world.drawn |= {
            "commit of a ledger": world.store.happened, "rolled back": rollbacks, "message": self.mornings.count,
            "restated by itself": sum(run.run_id.startswith("restatement__") for run in world.airflow.runs),
            "proposed again": sum(request.failure == OVERTAKEN for request in view.requests.values()),
            "cleaned": self.kept.cleanings, "past view refused": self.kept.refused,
        }  # fmt: skip


def play(
    seed: int, days: int, *, tmp_path: Path, load: "Callable[[Path], Mapping[str, DAG]]", hook: WebhookSink
) -> Mapping[str, int]:
    """Play a year of so many days; return what happened how often."""
    root, chance, drawn = tmp_path / str(seed), Random(seed), dict[str, int]()
    lake, calendar = Lake(root=str(root / "lake")), Calendar.drawn(chance, days)
    start_ms = calendar.instant_ms(0, 0)
    clock, truth, cluster, store = Clock(start_ms), Clock(start_ms), Cluster(), LedgerStoreFaults()
    counts = defaultdict(int, drawn)
    file = EditedFile(root, Content(zone=calendar.zone))
    writer = Writer(Path(lake.root), truth)
    producer = Producer(calendar=calendar, writer=writer, cluster=cluster, chance=chance, drawn=counts)
    patch = pytest.MonkeyPatch()
    with patch.context() as within:
        within.setenv("HINDCAST_LAKE", lake.root)
        store.patch(within)
        _date_files(within, clock)

        def replay(order: ReplayOrder) -> list[RunResult]:
            year.kept.note_order(order, clock.ms)
            world.limits[order.attempt_id] = file.content.limit
            return cluster(order)

        airflow = SimulatedAirflow(load(file.path.parent), lake, clock, replay, within)
        world = World(
            airflow=airflow, calendar=calendar, truth=truth, file=file, producer=producer, store=store, hook=hook,
            chance=chance, drawn=counts, load=lambda: dict(load(file.path.parent)), rate=3.0 if days < 20 else 1.0,
        )  # fmt: skip
        year = Year(world)
        year.live()
    return world.drawn


def _date_files(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Give the files of the tables the time of the injected clock."""

    def dated(place: str, rows: pa.Table, *, bounded: Collection[str] | None = None) -> None:
        write_parquet(place, rows, bounded=bounded)
        os.utime(place, ns=(clock.ms * 1_000_000,) * 2)

    patch.setattr(file_commits, "write_parquet", dated)
