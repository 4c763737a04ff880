"""The message of the morning in a simulated year: it names what readers do not see, once a day, and nothing else."""

from dataclasses import dataclass

from jobs.orchestration.plan_outline import folded
from tests.jobs.dag_factory.year.calendar import last_daily
from tests.jobs.dag_factory.year.world import World


@dataclass
class Mornings:
    """The messages of `alert_sales`.

    `looked_ms` is the true time of the newest run with a right clock, `told_ms` that of the newest message on days that
    readers do not see. `is_blurred`: a run had a wrong clock since then, so a message may be repeated or early.
    """

    looked_ms: int = 0
    told_ms: int = 0
    is_blurred: bool = False
    count: int = 0

    def check(self, world: World, number: int, where: str) -> None:
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
            self.is_blurred = True
            self.told_ms = world.truth.ms if told else self.told_ms
            return
        self._check_right(world, number, told, where)

    def _check_right(self, world: World, number: int, told: list[str], where: str) -> None:
        now_ms, calendar = world.truth.ms, world.calendar
        missing = [day for day in calendar.before(number) if day not in world.view().published]
        is_due = last_daily(calendar.zone.alert, now_ms) > self.looked_ms
        is_told_today = self.is_blurred and self.told_ms >= calendar.instant_ms(number, 0)
        if missing and is_due:
            assert told or is_told_today, f"{where}: nobody was told of {missing}"
        assert len(told) <= bool(missing and (is_due or self.is_blurred)), f"{where}: {missing}, told {told}"
        assert all(f"{folded(missing)} not visible to readers" in line for line in told), f"{where}: {told}"
        self.looked_ms, self.is_blurred = now_ms, False
        self.told_ms = now_ms if told else self.told_ms


def _of_readers(world: World) -> list[str]:
    told = [str(body["subject"]) for body in world.hook.bodies]
    return [line for line in told if "not visible to readers" in line]


def _ended(world: World) -> int:
    return sum(run.dag_id == "alert_sales" and run.state == "success" for run in world.airflow.runs)
