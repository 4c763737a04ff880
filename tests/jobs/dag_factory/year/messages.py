"""The message of the morning in a simulated year: it names what readers do not see, once a day, and nothing else."""

from dataclasses import dataclass, field
from typing import Final

from jobs.ledger.view import LedgerView
from jobs.orchestration.plan_outline import folded
from tests.jobs.dag_factory.year.calendar import last_daily
from tests.jobs.dag_factory.year.world import World

NOT_KNOWN: Final = "not published: not known"
"""The subject if a person has to accept first that records of a day were erased before its run."""


@dataclass
class Mornings:
    """The messages of `alert_sales`.

    `looked_ms` is the true time of the newest run with a right clock, `told_ms` that of the newest message on days that
    readers do not see. `wrong_ms` are the times that a wrong clock showed to the runs since then. Such a run tells
    something early, or again. It has looked at a morning whose time was past by its clock.
    """

    looked_ms: int = 0
    told_ms: int = 0
    wrong_ms: list[int] = field(default_factory=list)
    count: int = 0

    def check(self, world: World, number: int, view: LedgerView, *, where: str) -> None:
        """Play the DAG runs of the alerts that are due, and check what was told."""
        before = _ended(world)
        told_before = len(_of_readers(world))
        world.airflow.play()
        told, ran = _of_readers(world)[told_before:], _ended(world) - before
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

    def _check_right(self, world: World, missing: list[str], told: list[str], *, where: str) -> None:
        now_ms, calendar = world.truth.ms, world.calendar
        is_erased = set(missing) & set(world.producer.undecided)
        morning_ms, wrong_ms = last_daily(calendar.zone.alert, now_ms), [*self.wrong_ms]
        is_due = morning_ms > self.looked_ms
        is_told = bool(wrong_ms) and self.told_ms >= calendar.midnight_ms(now_ms)
        is_taken_as_told = any(morning_ms <= at_ms <= now_ms for at_ms in wrong_ms)
        if missing and is_due and not is_told and not is_taken_as_told:
            assert told, f"{where}: nobody was told of {missing}"
        is_allowed = missing and (is_due or wrong_ms)
        assert len(told) <= bool(is_allowed), f"{where}: {missing}, told {told}"
        allowed = [f"{folded(missing)} not visible to readers"] if missing else []
        allowed += [NOT_KNOWN] if is_erased else []
        assert all(any(text in line for text in allowed) for line in told), f"{where}: {told}"
        self.looked_ms = now_ms
        self.wrong_ms.clear()
        self.told_ms = now_ms if told else self.told_ms


def _of_readers(world: World) -> list[str]:
    told = [str(body["subject"]) for body in world.hook.bodies]
    return [line for line in told if "not visible to readers" in line or NOT_KNOWN in line]


def _ended(world: World) -> int:
    return sum(run.dag_id == "alert_sales" and run.state == "success" for run in world.airflow.runs)
