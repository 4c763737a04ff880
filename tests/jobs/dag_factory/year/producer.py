"""The producer of the log of a simulated year: when the records of each day arrive, and which are erased.

It counts what the log has at each version, so that a test can compare what readers see.
"""

import errno
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.jobs.dag_factory.year.calendar import Calendar
from tests.support.daily_log import Cluster, Writer
from tests.support.fake_replay import FAILS
from tests.support.simulated_airflow import WorkerDied
from windowlib.errors import LedgerError

KINDS: Final = {
    "on time": 70, "late": 8, "missing": 5, "never": 3, "fails": 5, "fails by far": 2, "twice": 4, "more": 5,
    "in parts": 6,
}  # fmt: skip
"""How a day arrives -> its weight."""
FAULTS: Final = {"none": 80, "worker died": 8, "store": 6, "disk": 6, "worker died after writing": 6}
"""What happens while a day is replayed for the first time -> its weight."""
ERASE_HOUR: Final = 10
ERASES: Final = 0.06
"""The chance that the producer erases the records of a key from a recent day, in each hour `ERASE_HOUR`."""
QUIET_DAYS: Final = 6
"""At the end, nothing goes wrong for so long, and everything is decided."""
Records = list[tuple[str, int]]
"""The records of a day: key and amount."""


@dataclass(kw_only=True)
class Producer:
    """The producer, its log, and what happens to the replays of a day.

    `arrivals` maps (day of the calendar, hour) to what is appended then, `erasures` a version of the log to the day and
    the key whose records it erased. `accepted` are the versions of the erasures that a person has accepted.
    """

    calendar: Calendar
    writer: Writer
    cluster: Cluster
    chance: Random
    drawn: dict[str, int]
    arrivals: dict[tuple[int, int], list[tuple[int, dict[str, int]]]] = field(default_factory=lambda: defaultdict(list))
    commits: list[tuple[int, str, dict[str, int]]] = field(default_factory=list)
    erasures: dict[int, tuple[str, str]] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)

    @property
    def next_version(self) -> int:
        """The version of the next commit of the log."""
        return len(self.commits) + len(self.erasures)

    @property
    def undecided(self) -> dict[str, int]:
        """The days with an erasure that nobody has accepted -> its version."""
        return {day: version for version, (day, _key) in self.erasures.items() if version not in self.accepted}

    def erased_before_runs(self, published: Collection[str]) -> list[str]:
        """Return the days with such an erasure that readers do not see yet. They stop the schedule."""
        return [day for day in self.undecided if day not in published]

    def plan(self) -> None:
        """Draw when the records of each day arrive, and what happens while the day is replayed."""
        days = self.calendar.days
        for number in range(days):
            is_quiet = number == 0 or number >= days - QUIET_DAYS
            kind = "on time" if is_quiet else self._draw(KINDS)
            self._plan_day(number, kind)
            if not is_quiet:
                self._plan_fault(self.calendar.day(number))

    def _draw(self, kinds: dict[str, int]) -> str:
        name = self.chance.choices(tuple(kinds), tuple(kinds.values()))[0]
        self.drawn[name] += 1
        return name

    def _plan_day(self, number: int, kind: str) -> None:
        later = self.chance.randrange(2, 8)
        first = {"fails": FAILS, "fails by far": 3 * FAILS}.get(kind, number + 1)
        amounts = {"a": first, "b": self.chance.randrange(1, 9)}
        more = {"twice": amounts, "more": {"c": later}}
        if kind == "in parts":
            self._arrives(number, {"c": later}, after=0, hour=15)
        if kind == "late":
            self._arrives(number, amounts, after=1, hour=10)
        elif kind != "never":
            self._arrives(number, amounts, after=later if kind == "missing" else 1)
        if kind in more:
            self._arrives(number, more[kind], after=later)

    def _arrives(self, number: int, amounts: dict[str, int], *, after: int, hour: int = 2) -> None:
        self.arrivals[min(number + after, self.calendar.days), hour].append((number, amounts))

    def _plan_fault(self, day: str) -> None:
        def die() -> None:
            raise WorkerDied

        def fail_for_a_moment() -> None:
            raise LedgerError("the store does not answer")

        def fill_the_disk() -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        name = self._draw(FAULTS)
        before: dict[str, Callable[[], None]] = {"worker died": die, "store": fail_for_a_moment, "disk": fill_the_disk}
        if name in before:
            self.cluster.once[day] = before[name]
        elif name == "worker died after writing":
            self.cluster.afterwards[day] = die

    def append_due(self, number: int, hour: int) -> None:
        """Append what arrives in this hour."""
        for arrived, amounts in self.arrivals.pop((number, hour), ()):
            day = self.calendar.day(arrived)
            self.writer.append(day, amounts)
            self.commits.append((self.next_version, day, amounts))

    def erase(self, number: int, hour: int) -> None:
        """Draw whether to erase the records of a key from a recent day, at most once from a day."""
        if hour != ERASE_HOUR or self.chance.random() >= ERASES:
            return
        erased = {day for day, _key in self.erasures.values()}
        recent = [self.calendar.day(day) for day in range(max(0, number - 10), number)]
        days = [day for day in recent if day not in erased and self.records(day)]
        if not days:
            return
        day = self.chance.choice(days)
        key = self.chance.choice(sorted(dict(self.records(day))))
        self.drawn["erased"] += 1
        self.writer.erase(day, key)
        self.erasures[self.next_version] = (day, key)

    def records(self, slice_id: str, *, until: int | None = None) -> Records:
        """Return the records of a day, at a version of the log or now."""
        newest = self.next_version if until is None else until
        gone = [(version, key) for version, (day, key) in self.erasures.items() if day == slice_id]
        return [
            (key, amount)
            for version, day, amounts in self.commits
            if day == slice_id and version <= newest
            for key, amount in sorted(amounts.items())
            if not any(version < erased <= newest and key == erased_key for erased, erased_key in gone)
        ]


def totals(records: Sequence[tuple[str, int]], *, is_count: bool) -> dict[str, int]:
    """Return key -> the sum of its amounts, or the number of its records."""
    by_key: dict[str, int] = defaultdict(int)
    for key, amount in records:
        by_key[key] += 1 if is_count else amount
    return by_key
