"""A log that differs from the flights: sensor readings around the epoch, with hostile values in every column.

Pure Python. The times are whole milliseconds, so that expected values need no rounding.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

DAY_MS = 86_400_000
FIRST_DAY = date(1969, 12, 30)
DAYS = 4  # two before 1970, two after
OUT_OF_ORDER = 0.30
MAX_LAG_MS = 8 * 3_600_000

SCHEMA = """
    `sensor-id` string,
    measured double,
    `größe` double,
    `select` bigint,
    price decimal(38,18),
    flag boolean,
    tiny tinyint,
    single float,
    `local` timestamp_ntz,
    seen timestamp,
    blob binary,
    tags map<string,string>,
    nested struct<a: int, list: array<string>>,
    note string,
    record string,
    rank int,
    sequence bigint,
    row_id bigint,
    slice_id string,
    attempt_id string,
    `in` date
"""
"""`in` is the partition column, the day of arrival. Most names are reserved in SQL or are used in Hindcast's tables."""

KEY, EVENT_TIME, PARTITION = "sensor-id", "measured", "in"

KEYS = (
    "plain",
    "",
    " ",
    'O\'Brien "quoted" `ticked`',
    "back\\slash/%2F?&=#",
    "line\nbreak\ttab\r",
    "nul\x00byte",
    "🛫✈️👩🏽‍✈️",
    "é",  # one code point
    "e\u0301",  # the same letter in two code points: another key
    "Straße",
    "STRASSE",
    "null",
    "NaN",
    "__HIVE_DEFAULT_PARTITION__",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "'; DROP TABLE ledger; --",
    "k" * 1_000,
    "🧨" * 500 + "x" * 500,
)

INVALID_TIMES: Mapping[str, tuple[float | None, ...]] = {
    "null_time": (None,),
    "nan_time": (math.nan,),
    "infinite_time": (math.inf, -math.inf),
    # The instants next to the years 1 to 9999, and far beyond 64 bits.
    "time_out_of_range": (253_402_300_800.0, -62_135_596_800.001, 9.3e15, -1e300, 1.7976931348623157e308),
}
EDGE_TIMES = (0.0, -0.0, -0.001, 0.001, 253_402_300_799.999, -62_135_596_800.0)
"""Valid event times at the limits. The greatest one passes every window, so `other_log` adds them only on request."""


TABLE = "event_logs/other"
PIPELINE = """\
pipeline: other
log:
  table: event_logs/other
  key: [sensor-id]
  event_time: {column: measured, unit: s}
  slice: {by: in, every: 1d, first: 1969-12-30, last: 1970-01-02}
watermark: {kind: bounded, out_of_orderness: 2h}
windows:
  tumbling: {size: 1h}
  allowed_lateness: 30m
aggregates:
  readings: {count: {}}
  size_total: {sum: größe}
  select_least: {min: select}
  select_most: {max: select}
  note_first: {first: note}
  note_last: {last: note}
"""
"""A pipeline on that log. `fates` computes the fates of its records."""

WINDOW_MS, BOUND_MS, LATENESS_MS = 3_600_000, 7_200_000, 1_800_000


class Reading(NamedTuple):
    """One record, in the order of the schema."""

    sensor_id: str | None
    measured: float | None
    size: float | None
    select: int | None
    price: Decimal | None
    flag: bool | None
    tiny: int | None
    single: float | None
    local: datetime | None
    seen: datetime | None
    blob: bytes | None
    tags: dict[str, str | None] | None
    nested: tuple[int, list[str | None]] | None
    note: str | None
    record: str | None
    rank: int | None
    sequence: int | None
    row_id: int | None
    slice_id: str | None
    attempt_id: str | None
    arrived: date


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLog:
    """Records by commit. Log order is by day, then by commit, then by position in the commit."""

    commits: tuple[tuple[Reading, ...], ...]

    def days(self) -> dict[date, list[Reading]]:
        """Return day of arrival -> records in log order."""
        days: dict[date, list[Reading]] = {}
        for commit in self.commits:
            for reading in commit:
                days.setdefault(reading.arrived, []).append(reading)
        return dict(sorted(days.items()))

    def records(self) -> list[Reading]:
        """Return all records in log order: by day, then by commit and place in it."""
        return [reading for readings in self.days().values() for reading in readings]

    def invalid(self) -> dict[date, int]:
        """Return day -> number of records without a key or a usable time."""
        return {day: sum(not is_valid(one) for one in readings) for day, readings in self.days().items()}

    def time_problems(self) -> Counter[str]:
        """Return reason -> number of records with a key whose time cannot be used for this reason."""
        kinds = (time_problem(one.measured) for one in self.records() if one.sensor_id is not None)
        return Counter(kind for kind in kinds if kind is not None)

    def out_of_order_share(self) -> float:
        """Return the share of the valid records that are older than the greatest event time before them."""
        times = [one.measured for one in self.records() if is_valid(one) and one.measured is not None]
        greatest, behind = -math.inf, 0
        for at in times:
            behind += at < greatest
            greatest = max(greatest, at)
        return behind / len(times)


def time_problem(measured: float | None) -> str | None:
    """Return the reason why an event time in seconds cannot be used; None if it can."""
    if measured is None:
        return "null_time"
    if math.isnan(measured):
        return "nan_time"
    if math.isinf(measured):
        return "infinite_time"
    return None if -62_135_596_800 <= measured < 253_402_300_800 else "time_out_of_range"


def is_valid(reading: Reading) -> bool:
    """Return whether a record has a key and a usable time."""
    return reading.sensor_id is not None and time_problem(reading.measured) is None


def event_time_ms(reading: Reading) -> int:
    """Return the event time of a valid record; exact, because all are whole milliseconds."""
    assert reading.measured is not None
    return round(Decimal(repr(reading.measured)) * 1000)


def fates(log: OtherLog) -> dict[date, Counter[str]]:
    """Return day -> fate -> number of records, for `PIPELINE`, computed from the definitions record by record.

    A record is late if the watermark before it has reached the cleanup time of its window: the window's last instant
    plus the allowed lateness.
    """
    watermark_ms = -(1 << 63)
    found: dict[date, Counter[str]] = {}
    for day, readings in log.days().items():
        fate = found.setdefault(day, Counter())
        for reading in readings:
            if not is_valid(reading):
                fate["invalid"] += 1
                continue
            at = event_time_ms(reading)
            last_ms = at - at % WINDOW_MS + WINDOW_MS - 1
            fate["late" if last_ms + LATENESS_MS <= watermark_ms else "assigned"] += 1
            watermark_ms = max(watermark_ms, at - BOUND_MS - 1)
    return found


class Totals(NamedTuple):
    """The final values of one window."""

    readings: int
    size_total: float | None
    select_least: int | None
    select_most: int | None


def published_windows(log: OtherLog) -> dict[tuple[str, int], Totals]:
    """Return (key, window start) -> the values that `PIPELINE` publishes after all slices, by brute force.

    Windows that the watermark has not passed are open and not included.
    """
    members: dict[tuple[str, int], list[Reading]] = {}
    watermark_ms = -(1 << 63)
    for reading in log.records():
        if reading.sensor_id is None or not is_valid(reading):
            continue
        at = event_time_ms(reading)
        start_ms = at - at % WINDOW_MS
        if start_ms + WINDOW_MS - 1 + LATENESS_MS > watermark_ms:
            members.setdefault((reading.sensor_id, start_ms), []).append(reading)
        watermark_ms = max(watermark_ms, at - BOUND_MS - 1)
    return {window: totals(of) for window, of in members.items() if window[1] + WINDOW_MS - 1 <= watermark_ms}


def totals(readings: Sequence[Reading]) -> Totals:
    """Return the aggregates of one window. A null counts only as a reading."""
    selects = [one.select for one in readings if one.select is not None]
    return Totals(
        readings=len(readings),
        size_total=exact_sum([one.size for one in readings if one.size is not None]),
        select_least=min(selects, default=None),
        select_most=max(selects, default=None),
    )


def exact_sum(values: Sequence[float]) -> float | None:
    """Return the exact sum, rounded once. A sum above the greatest double is infinite."""
    if not values:
        return None
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return special[0] if all(value == special[0] for value in special) else math.nan
    total = sum(map(Fraction, values), Fraction())
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def other_log(
    rng: random.Random, *, records_per_day: int = 300, invalid_share: float = 0.05, edge_times: Sequence[float] = ()
) -> OtherLog:
    """Return a log of four days with two commits each, and a last commit that adds a record to the first day.

    Args:
        rng: the source of all random values.
        records_per_day: at least 20, so that the first day has every key.
        invalid_share: the share of records whose key is null or whose time cannot be used.
        edge_times: event times, in seconds, of extra records at the end of the last day.
    """
    commits: list[tuple[Reading, ...]] = []
    for number in range(DAYS):
        day = FIRST_DAY + timedelta(days=number)
        readings = [_reading(rng, day, at_ms) for at_ms in _arrivals(rng, number, records_per_day)]
        for index in range(min(len(KEYS), records_per_day) if number == 0 else 0):
            readings[index] = readings[index]._replace(sensor_id=KEYS[index])
        readings = [_spoil(rng, one) if rng.random() < invalid_share else one for one in readings]
        half = rng.randrange(1, len(readings))
        commits += [tuple(readings[:half]), tuple(readings[half:])]
    last = FIRST_DAY + timedelta(days=DAYS - 1)
    commits[-1] += tuple(_reading(rng, last, 0)._replace(measured=at) for at in edge_times)
    straggler = _reading(rng, FIRST_DAY, _arrivals(rng, 0, 1)[0])
    return OtherLog(commits=(*commits, (straggler,)))


def _arrivals(rng: random.Random, day_number: int, records: int) -> list[int]:
    start_ms = (FIRST_DAY - date(1970, 1, 1)).days * DAY_MS + day_number * DAY_MS
    return sorted(start_ms + rng.randrange(DAY_MS) for _ in range(records))


def _reading(rng: random.Random, day: date, arrived_ms: int) -> Reading:
    """Return a record measured when it arrived or, in about a third of the cases, up to 8 h before."""
    lag_ms = rng.randrange(60_000, MAX_LAG_MS) if rng.random() < OUT_OF_ORDER * 1.1 else 0
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(-(10**15), 10**15))
    return Reading(
        sensor_id=rng.choice(KEYS),
        measured=(arrived_ms - lag_ms) / 1000,
        size=rng.choice([None, 0.0, -0.0, 0.1, -1e16, 1e16, 5e-324, 1.7e308, -1.7e308, math.nan, math.inf, -math.inf]),
        select=rng.choice([None, 0, -1, 2**63 - 1, -(2**63), rng.randrange(1_000)]),
        price=rng.choice([None, Decimal(0), Decimal("0.000000000000000001"), Decimal("-99999999999999999999.5")]),
        flag=rng.choice([None, True, False]),
        tiny=rng.choice([None, -128, 127]),
        single=rng.choice([None, 0.5, math.nan, -math.inf]),
        local=rng.choice([None, instant.replace(tzinfo=None)]),
        seen=rng.choice([None, instant]),
        blob=rng.choice([None, b"", b"\x00\xff\xfe", rng.randbytes(20)]),
        tags=rng.choice([None, {}, {"b": "2", "a": None, "": "🙂"}]),
        nested=rng.choice([None, (1, []), (-1, [None, "x", "'\""])]),
        note=rng.choice([None, "", "=1+1", "\u202eright to left", "\ufeff", "a" * 5_000, rng.choice(KEYS)]),
        record=rng.choice([None, "a column named like one of ours"]),
        rank=rng.choice([None, -7]),
        sequence=rng.choice([None, 2**62]),
        row_id=rng.choice([None, 0]),
        slice_id=rng.choice([None, "1969-12-30", "not a slice"]),
        attempt_id=rng.choice([None, "0" * 32]),
        arrived=day,
    )


def _spoil(rng: random.Random, reading: Reading) -> Reading:
    """Return the record without its key, or with a time that cannot be used."""
    kind = rng.choice(["null_key", *INVALID_TIMES])
    if kind == "null_key":
        return reading._replace(sensor_id=None)
    return reading._replace(measured=rng.choice(INVALID_TIMES[kind]))
