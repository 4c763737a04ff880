"""Records of single flights, against independent arithmetic."""

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from jobs.demo.flights_rows import (
    DAY_MS,
    NEW_YORK,
    local_ms,
    read_flights,
    report_without_air_time_ms,
    scheduled_arrival_ms,
    to_row,
)
from windowlib.errors import LogError

ZONES = {"IAH": "America/Chicago", "HNL": "Pacific/Honolulu"}


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
