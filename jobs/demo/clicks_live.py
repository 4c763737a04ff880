"""The log `<lake>/event_logs/clicks_live`: clicks of a small shop, whose days follow the calendar.

`deliver` plays the producer: it appends the files that are due. All of it is a function of the date. In each week, one
day comes late, one in two parts, one twice, and one has clicks without a user. The other three come on time.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from jobs.lake.delta_log import open_log
from jobs.lake.delta_tables import is_delta
from jobs.lake.lake import Lake
from windowlib.libraries import pa

TABLE = "event_logs/clicks_live"
BACKLOG_DAYS = 14
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_ON_TIME_MS, _LATE_MS = _HOUR_MS // 3, 33 * _HOUR_MS
_AGAIN_MS = _DAY_MS + 10 * _HOUR_MS
_USERS, _PAGES = 60, ("home", "search", "product", "basket", "payment")
_SESSIONS = (90, 130)
_BAD_SHARE = 0.4
KINDS = ("bad", "late", "in parts", "twice", "on time", "on time", "on time")
"""The kinds of days, one for each day of a week, in an order that each week shuffles."""


class Click(NamedTuple):
    """One record of the log. Times are epoch ms. `delivery` is 1, or 2 for the second file of a day."""

    click_id: str
    user_id: str | None
    clicked_at: int
    received_at: int
    page: str
    amount: float
    delivery: int
    ingest_date: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One file: the day of its clicks, its number of that day, and when it comes (epoch ms)."""

    day: date
    number: int
    at_ms: int

    @property
    def app_id(self) -> str:
        """The id of the transaction of Delta that appends this file, so that it is appended once."""
        return f"clicks_live {self.day} {self.number}"


def kind_of(day: date) -> str:
    """Return how a day is delivered: one of `KINDS`. Each week has each kind as often as `KINDS` has it."""
    week = day.isocalendar()
    return random.Random(f"week {week.year}-{week.week}").sample(KINDS, len(KINDS))[week.weekday - 1]  # noqa: S311


def deliveries(day: date) -> tuple[Delivery, ...]:
    """Return the files of a day in the order in which they come."""
    end_ms = _ms(day) + _DAY_MS
    kind = kind_of(day)
    first = Delivery(day=day, number=1, at_ms=end_ms + (_LATE_MS if kind == "late" else _ON_TIME_MS))
    if kind not in {"in parts", "twice"}:
        return (first,)
    return first, Delivery(day=day, number=2, at_ms=end_ms + _AGAIN_MS)


def clicks(delivery: Delivery) -> list[Click]:
    """Return the records of a file, in the order in which the shop received them."""
    kind, day = kind_of(delivery.day), delivery.day
    chance = random.Random(f"clicks {day}")  # noqa: S311 - data for a demonstration
    records = list(_day(day, chance, is_bad=kind == "bad"))
    if kind == "in parts":
        records = [record for record in records if (chance.random() < 0.8) == (delivery.number == 1)]  # noqa: PLR2004
    return sorted((record._replace(delivery=delivery.number) for record in records), key=lambda click: click[3:0:-1])


def deliver(lake_root: str, *, now_ms: int) -> tuple[Delivery, ...]:
    """Append the files that are due and that the log does not have, one commit for each, and return them.

    The first call makes the log with the first files of the last 14 days, without the newest file. The second call
    appends the newest file and the second files that are due. So it always brings a late day and changed days.
    Raises LogError: there is a table without a readable Delta log at this place.
    """
    from deltalake import CommitProperties, Transaction, write_deltalake

    table = Lake(root=lake_root).below(TABLE)
    today = datetime.fromtimestamp(now_ms / 1000, tz=UTC).date()
    is_new = not is_delta(table)
    present = None if is_new else open_log(table)
    first = today - timedelta(days=BACKLOG_DAYS)
    if present is not None:
        first = min((date.fromisoformat(partition["ingest_date"]) for partition in present.partitions()), default=first)
    days = [first + timedelta(days=number) for number in range((today - first).days)]
    due = [delivery for day in days for delivery in deliveries(day) if delivery.at_ms <= now_ms]
    if is_new:
        due = [delivery for delivery in due if delivery.number == 1][:-1]
    todo = [delivery for delivery in due if present is None or present.transaction_version(delivery.app_id) is None]
    todo.sort(key=lambda delivery: (delivery.at_ms, delivery.day))
    for delivery in todo:
        write_deltalake(
            table,
            _arrow_table(clicks(delivery)),
            mode="append",
            partition_by=["ingest_date"],
            configuration={"delta.appendOnly": "true"},
            commit_properties=CommitProperties(app_transactions=[Transaction(delivery.app_id, 1)]),
        )
    return tuple(todo)


def _day(day: date, chance: random.Random, *, is_bad: bool) -> Iterator[Click]:
    """Yield the clicks of a day: sessions of some users. A click is received up to ten minutes after it happened."""
    start_ms, number = _ms(day), 0
    for _ in range(chance.randint(*_SESSIONS)):
        user, at_ms = f"u{chance.randrange(_USERS):02d}", start_ms + chance.randrange(_DAY_MS - 2 * _HOUR_MS)
        for _ in range(chance.randint(1, 6)):
            at_ms += chance.randrange(5_000, 300_000)
            page = chance.choice(_PAGES)
            amount = round(chance.uniform(5, 120), 2) if page == "payment" else 0.0
            is_lost = is_bad and chance.random() < _BAD_SHARE
            number += 1
            yield Click(
                click_id=hashlib.sha256(f"{day} {number}".encode()).hexdigest()[:12],
                user_id=None if is_lost else user,
                clicked_at=at_ms,
                received_at=at_ms + chance.randrange(600_000),
                page=page,
                amount=amount,
                delivery=1,
                ingest_date=day,
            )


def _arrow_table(records: list[Click]) -> "pa.Table":
    columns = {
        "click_id": pa.string(),
        "user_id": pa.string(),
        "clicked_at": pa.int64(),
        "received_at": pa.int64(),
        "page": pa.string(),
        "amount": pa.float64(),
        "delivery": pa.int32(),
        "ingest_date": pa.date32(),
    }
    schema = pa.schema([pa.field(name, kind, nullable=name == "user_id") for name, kind in columns.items()])
    return pa.Table.from_pylist([record._asdict() for record in records], schema=schema)


def _ms(day: date) -> int:
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
