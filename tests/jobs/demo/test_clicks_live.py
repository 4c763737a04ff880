"""The producer of `clicks_live`: what it appends on which day, and what the pipeline makes of it."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.demo.clicks_live import BACKLOG_DAYS, KINDS, TABLE, Delivery, clicks, deliver, deliveries, kind_of
from tests.support.places import ROOT

MONDAY = date(2026, 11, 2)
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _days(count: int, first: date = MONDAY) -> list[date]:
    return [first + timedelta(days=number) for number in range(count)]


def test_every_week_has_every_kind_of_day_and_weeks_differ() -> None:
    weeks = [tuple(kind_of(day) for day in _days(7, MONDAY + timedelta(weeks=week))) for week in range(60)]
    assert all(Counter(week) == Counter(KINDS) for week in weeks)
    assert len(set(weeks)) > 30


def test_a_file_is_a_function_of_its_day_and_its_records_are_ordered_and_differ() -> None:
    for day in _days(14):
        files = [clicks(one) for one in deliveries(day)]
        assert files == [clicks(one) for one in deliveries(day)]
        for file in files:
            keys = [(one.received_at, one.click_id, one.delivery) for one in file]
            assert keys == sorted(set(keys))
            assert {one.ingest_date for one in file} == {day}
            assert {datetime.fromtimestamp(one.clicked_at / 1000, UTC).date() for one in file} == {day}
        ids = [[one.click_id for one in file] for file in files]
        if kind_of(day) == "twice":
            assert ids[0] == ids[1]
        elif kind_of(day) == "in parts":
            assert not set(ids[0]) & set(ids[1])
            assert 0 < len(ids[1]) < len(ids[0])
        lost = sum(one.user_id is None for one in files[0]) / len(files[0])
        assert lost > 0.2 if kind_of(day) == "bad" else lost == 0


@pytest.mark.parametrize("now", [NOW, NOW + timedelta(days=3)])
def test_the_first_call_writes_a_backlog_and_the_next_one_the_newest_day_and_the_second_files(
    tmp_path: Path, now: datetime
) -> None:
    first = deliver(str(tmp_path), now_ms=_ms(now))
    days = _days(BACKLOG_DAYS, now.date() - timedelta(days=BACKLOG_DAYS))
    *present, newest = [day for day in days if deliveries(day)[0].at_ms <= _ms(now)]
    assert sorted(one.day for one in first) == present
    assert {one.number for one in first} == {1}
    second = deliver(str(tmp_path), now_ms=_ms(now))
    assert [one.day for one in second if one.number == 1] == [newest]
    assert sum(one.number == 2 for one in second) >= 3
    assert deliver(str(tmp_path), now_ms=_ms(now)) == ()
    table = DeltaTable(str(tmp_path / TABLE))
    assert table.version() + 1 == len(first) + len(second)
    assert table.to_pyarrow_table().num_rows == sum(len(clicks(one)) for one in (*first, *second))


@pytest.mark.slow
def test_hour_by_hour_every_file_comes_once_when_it_is_due(tmp_path: Path) -> None:
    deliver(str(tmp_path), now_ms=_ms(NOW))
    deliver(str(tmp_path), now_ms=_ms(NOW))
    seen: list[Delivery] = []
    for hour in range(6, 24 * 9, 6):
        at_ms = _ms(NOW + hour * HOUR)
        new = deliver(str(tmp_path), now_ms=at_ms)
        assert all(at_ms - 6 * 3_600_000 < one.at_ms <= at_ms for one in new)
        seen += new
    end_ms = _ms(NOW + 210 * HOUR)
    near = [one for day in _days(20, NOW.date() - timedelta(days=6)) for one in deliveries(day)]
    assert sorted(one.app_id for one in seen) == sorted(one.app_id for one in near if _ms(NOW) < one.at_ms <= end_ms)


@pytest.mark.slow
def test_the_pipeline_holds_exactly_the_bad_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deliver(str(tmp_path), now_ms=_ms(NOW))
    deliver(str(tmp_path), now_ms=_ms(NOW))
    lake = ("--lake", str(tmp_path), "--pipelines", str(ROOT / "pipelines"))
    days = _days(7, date(2026, 11, 9))
    assert run_cli(hindcast, ["run", "clicks_live", "--from", "2026-11-09", "--to", "2026-11-16", *lake]) == 1
    found = capsys.readouterr()
    [bad] = [day for day in days if kind_of(day) == "bad"]
    assert f"{bad}: share of invalid records" in found.err or str(bad) in found.err
    [line] = [line for line in found.out.splitlines() if line.startswith(str(bad))]
    assert "fail" in line
    assert sum("fail" in line for line in found.out.splitlines() if line[:4] == "2026") == 1
