"""Pinning a log: what is accepted, and what is refused before anything is written. No Spark."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.event_log import PinnedLog, pin_log
from jobs.runs import Slice
from windowlib.errors import LogError

UTC = ZoneInfo("UTC")
DAY_MS = 86_400_000
START_MS = 1_359_676_800_000  # 2013-02-01
DAYS = tuple(
    Slice(slice_id=f"2013-02-0{n + 1}", start_ms=START_MS + n * DAY_MS, end_ms=START_MS + (n + 1) * DAY_MS)
    for n in range(3)
)
SCHEMA = pa.schema([("id", pa.string()), ("at_ms", pa.int64()), ("day", pa.date32())])


def _append(log: Path, days: Sequence[date | None], *, records: int = 4) -> None:
    rows = [{"id": f"{day}/{n}", "at_ms": n, "day": day} for day in days for n in range(records)]
    write_deltalake(str(log), pa.Table.from_pylist(rows, schema=SCHEMA), mode="append", partition_by=["day"])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    for day in (1, 2, 3):
        _append(path, [date(2013, 2, day)])
    return path


def pin(log: Path, slices: Sequence[Slice] = DAYS) -> PinnedLog:
    return pin_log(str(log), slice_column="day", zone=UTC, slices=slices)


def test_files_are_found_slice_by_slice_with_their_commits(log: Path) -> None:
    _append(log, [date(2013, 2, 1)], records=2)
    pinned = pin(log, DAYS[:2])
    assert pinned.version == 3
    assert {file.slice_id for file in pinned.files} == {"2013-02-01", "2013-02-02"}
    first = pinned.coordinates("2013-02-01")
    assert (first.records, first.files, first.commits) == (6, 2, (0, 3))
    assert pinned.columns == {"id": "string", "at_ms": "bigint", "day": "date"}


def test_a_day_of_another_zone_begins_at_its_own_midnight(log: Path) -> None:
    """2013-02-02 in Kathmandu begins at 18:15 UTC of the day before, so a UTC slice holds it only from there."""
    pinned = pin_log(str(log), slice_column="day", zone=ZoneInfo("Asia/Kathmandu"), slices=DAYS[:1])
    assert pinned.partitions() == {"2013-02-02": "2013-02-01"}


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nowhere does not exist; load it first"):
        pin(tmp_path / "nowhere")


def test_a_directory_that_is_no_delta_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not a Delta table"):
        pin(tmp_path)


def test_a_column_that_is_no_partition_is_refused(log: Path) -> None:
    with pytest.raises(LogError, match=r"not partitioned by 'id' but by \['day'\]"):
        pin_log(str(log), slice_column="id", zone=UTC, slices=DAYS)


def test_a_delete_inside_the_range_is_refused_with_its_commit(log: Path) -> None:
    DeltaTable(str(log)).delete("id = '2013-02-02/1'")
    with pytest.raises(
        LogError, match=r"commit 3 \(DELETE\) removed or changed records of slice 2013-02-02"
    ) as refused:
        pin(log)
    assert "version 2" in str(refused.value)


def test_an_update_inside_the_range_is_refused(log: Path) -> None:
    DeltaTable(str(log)).update(predicate="id = '2013-02-03/1'", updates={"at_ms": "7"})
    with pytest.raises(LogError, match="slice 2013-02-03"):
        pin(log)


def test_a_delete_outside_the_range_is_nobody_s_business(log: Path) -> None:
    DeltaTable(str(log)).delete("id = '2013-02-03/1'")
    assert len(pin(log, DAYS[:2]).files) == 2


def test_a_file_that_is_gone_is_named_with_its_slice(log: Path) -> None:
    lost = next((log / "day=2013-02-02").glob("*.parquet"))
    lost.unlink()
    with pytest.raises(LogError, match=r"names 1 files of the range that are gone") as refused:
        pin(log)
    assert lost.name in str(refused.value)
    assert "slice 2013-02-02, 4 records" in str(refused.value)
    assert len(pin(log, DAYS[:1]).files) == 1


def test_records_without_a_slice_are_refused_with_their_count(log: Path) -> None:
    _append(log, [None], records=3)
    with pytest.raises(LogError, match="holds 3 records whose slice column 'day' is null"):
        pin(log)


def test_optimize_and_new_columns_are_accepted(log: Path) -> None:
    _append(log, [date(2013, 2, 1)])
    before = pin(log).coordinates("2013-02-01")
    DeltaTable(str(log)).optimize.compact()
    wider = pa.table({"id": ["x"], "at_ms": [1], "day": [date(2013, 2, 3)], "note": ["new"]})
    write_deltalake(str(log), wider, mode="append", schema_mode="merge")
    after = pin(log)
    assert after.columns["note"] == "string"
    assert after.coordinates("2013-02-01").commits == before.commits
    assert after.coordinates("2013-02-01").records == before.records


@pytest.mark.parametrize(
    "value", ["2013-02-01T05", "2013-02-01T05:15", "2013-02-01 05:15:00", "2013-02-01T05:15:00+00:00"]
)
def test_text_partitions_are_read_as_times_and_found_on_disk(tmp_path: Path, value: str) -> None:
    """Delta writes `:`, `+` and spaces in paths as escapes; the file has to be found all the same."""
    rows = pa.table({"id": ["a"], "hour": [value]})
    write_deltalake(str(tmp_path / "log"), rows, partition_by=["hour"])
    hour = Slice(slice_id="2013-02-01T05", start_ms=START_MS + 5 * 3_600_000, end_ms=START_MS + 6 * 3_600_000)
    pinned = pin_log(str(tmp_path / "log"), slice_column="hour", zone=UTC, slices=[hour])
    assert pinned.partitions() == {value: "2013-02-01T05"}


def test_a_text_partition_that_is_no_time_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "log"), pa.table({"id": ["a"], "hour": ["yesterday"]}), partition_by=["hour"])
    with pytest.raises(LogError, match="holds 'yesterday', which is no ISO date or time"):
        pin_log(str(tmp_path / "log"), slice_column="hour", zone=UTC, slices=DAYS)
