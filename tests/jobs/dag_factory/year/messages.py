"""The message of the morning in a simulated year: it names what readers do not see, once a day, and nothing else."""

import json
from dataclasses import dataclass, field
from typing import Final

from jobs.ledger.view import LedgerView
from jobs.orchestration.plan_outline import folded
from tests.jobs.dag_factory.year.calendar import DAY_MS, last_daily
from tests.jobs.dag_factory.year.world import World

BROKEN: Final = "sales: the pipeline file is broken"


@dataclass
class Mornings:
    """The messages of `alert_sales`.

    `looked_ms` is the true time of the newest run with a right clock, `told_ms` that of the newest message on days that
    readers do not see. `wrong_ms` are the times that a wrong clock showed to the runs since then. Such a run tells
    something early, or again. It has looked at a morning whose time was past by its clock. `broken_ms` are the days, by
    Airflow's clock, on which it was told that the file is broken. `alert` is the time of the message, and `edited_ms`
    is when it became that: a later time on the same day is looked at, too.
    """

    looked_ms: int = 0
    told_ms: int = 0
    wrong_ms: list[int] = field(default_factory=list)
    broken_ms: set[int] = field(default_factory=set)
    alert: str = ""
    edited_ms: int = 0
    count: int = 0

    def check(self, world: World, number: int, view: LedgerView, *, where: str) -> None:
        """Play the DAG runs of the alerts that are due, and check what was told."""
        head = view.head
        is_stored = world.file.is_broken and head is not None
        alert = _stored_alert(view, head.request_id) if is_stored and head is not None else world.file.content.alert
        if alert != self.alert:
            self.alert, self.edited_ms = alert, world.truth.ms
        before = _ended(world)
        told_before = len(_of_readers(world))
        world.airflow.play()
        told, ran = _of_readers(world)[told_before:], _ended(world) - before
        self._check_broken(world, is_looked=bool(ran), where=where)
        self.count += len(world.hook.bodies)
        world.hook.bodies.clear()
        if not ran:
            assert not told
            return
        if world.offset_ms:
            self.wrong_ms.append(world.airflow.clock.ms)
            self.told_ms = world.truth.ms if told else self.told_ms
            return
        missing = [day for day in world.calendar.before(number) if day not in view.published]
        self._check_right(world, missing, told, where=where)

    def _check_broken(self, world: World, *, is_looked: bool, where: str) -> None:
        """Check that a broken file is told once on each day, and only while it is broken."""
        told = [body for body in world.hook.bodies if body["subject"] == BROKEN]
        assert len(told) <= (is_looked and world.file.is_broken), f"{where}: {told}"
        today_ms = world.calendar.midnight_ms(world.airflow.clock.ms)
        self.broken_ms |= {today_ms} if told else set()
        assert today_ms in self.broken_ms or not (is_looked and world.file.is_broken), f"{where}: not told of the file"

    def _check_right(self, world: World, missing: list[str], told: list[str], *, where: str) -> None:
        now_ms, calendar = world.truth.ms, world.calendar
        morning_ms, wrong_ms = last_daily(self.alert, now_ms), [*self.wrong_ms]
        is_due = morning_ms > self.looked_ms
        is_told = bool(wrong_ms) and self.told_ms >= calendar.midnight_ms(now_ms)
        is_taken_as_told = any(morning_ms <= at_ms <= now_ms for at_ms in wrong_ms)
        if missing and is_due and not is_told and not is_taken_as_told:
            assert told, f"{where}: nobody was told of {missing}"
        is_allowed = missing and (is_due or wrong_ms or now_ms - self.edited_ms < DAY_MS)
        assert len(told) <= bool(is_allowed), f"{where}: {missing}, told {told}"
        assert all(f"{folded(missing)} not visible to readers" in line for line in told), f"{where}: {told}"
        self.looked_ms = now_ms
        self.wrong_ms.clear()
        self.told_ms = now_ms if told else self.told_ms


def _stored_alert(view: LedgerView, request_id: str) -> str:
    """Return the time of the message in the published spec."""
    return str(json.loads(view.requests[request_id].spec_json)["alerts"]["not_published_by"])


def _of_readers(world: World) -> list[str]:
    told = [str(body["subject"]) for body in world.hook.bodies]
    return [line for line in told if "not visible to readers" in line]


def _ended(world: World) -> int:
    return sum(run.dag_id == "alert_sales" and run.state == "success" for run in world.airflow.runs)
