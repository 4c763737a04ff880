"""The days of a simulated year in a time zone, and the times of day at which Airflow's crons fire."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

from tests.support.simulated_airflow import HOUR_MS

DAY_MS: Final = 24 * HOUR_MS
_MONDAY_MS: Final = 4 * DAY_MS + 3 * HOUR_MS
"""The first Monday after 1970-01-01, at 03:00 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YearZone:
    """A time zone, the date of one of its days of 23 or 25 hours, and the crons (UTC) of about 05:30 and 07:00 there.

    The zone UTC has no such day, and names the 29th of February.
    """

    name: str
    odd_day: date
    schedule: str
    alert: str


ZONES: Final = (
    YearZone(name="UTC", odd_day=date(2028, 2, 29), schedule="06:00", alert="07:00"),
    YearZone(name="Europe/Berlin", odd_day=date(2027, 10, 31), schedule="04:00", alert="05:30"),
    YearZone(name="Europe/Berlin", odd_day=date(2028, 3, 26), schedule="04:00", alert="05:30"),
    YearZone(name="America/New_York", odd_day=date(2027, 3, 14), schedule="10:00", alert="11:30"),
    YearZone(name="America/New_York", odd_day=date(2027, 11, 7), schedule="10:00", alert="11:30"),
    YearZone(name="Australia/Lord_Howe", odd_day=date(2027, 10, 3), schedule="19:00", alert="20:30"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """So many days from `first` on, in a time zone."""

    zone: YearZone
    first: date
    days: int

    @classmethod
    def drawn(cls, chance: Random, days: int) -> "Calendar":
        """Draw a zone and the first day, so that the odd day of the zone is one of the first days."""
        zone = chance.choice(ZONES)
        first = zone.odd_day - timedelta(days=chance.randrange(1, min(days, 15)))
        return cls(zone=zone, first=first, days=days)

    def day(self, number: int) -> str:
        """Return the id of a slice by its number."""
        return str(self.first + timedelta(days=number))

    def before(self, number: int) -> list[str]:
        """Return the slices before a number, oldest first."""
        return [self.day(earlier) for earlier in range(number)]

    def instant_ms(self, number: int, hour: int) -> int:
        """Return an hour of the local clock as epoch milliseconds."""
        local = datetime.combine(self.first + timedelta(days=number), time(hour), ZoneInfo(self.zone.name))
        return int(local.timestamp() * 1000)

    def midnight_ms(self, at_ms: int) -> int:
        """Return the newest local midnight up to an instant."""
        zone = ZoneInfo(self.zone.name)
        return int(datetime.combine(datetime.fromtimestamp(at_ms / 1000, zone), time(0), zone).timestamp() * 1000)

    def end_ms(self, slice_id: str) -> int:
        """Return the end of a slice: the next local midnight."""
        return self.instant_ms((date.fromisoformat(slice_id) - self.first).days + 1, 0)


def last_daily(text: str, at_ms: int) -> int:
    """Return the newest instant up to `at_ms` with a time of day in UTC."""
    hour, minute = map(int, text.split(":"))
    after_ms = hour * HOUR_MS + minute * 60_000
    return (at_ms - after_ms) // DAY_MS * DAY_MS + after_ms


def last_monday(at_ms: int) -> int:
    """Return the newest Monday, 03:00 UTC, up to `at_ms`."""
    return (at_ms - _MONDAY_MS) // (7 * DAY_MS) * 7 * DAY_MS + _MONDAY_MS


def cron_of(text: str) -> str:
    """Return the cron expression of a time of day."""
    hour, minute = map(int, text.split(":"))
    return f"{minute} {hour} * * *"
