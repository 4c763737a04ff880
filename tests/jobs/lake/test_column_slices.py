"""Slices by a column of times that is no partition: which files a slice has, and how many records. No Spark."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given, strategies as st

from jobs.lake.delta_log import DeltaPlace
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.log_cut import Cut
from jobs.lake.log_look import touched_since
from jobs.lake.slice_instants import TimeKind, slice_instants, statistics_span
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.slices import SliceGrid, local_ms, slice_at
from jobs.runs import Slice
from tests.support.delta_logs import mark_deleted, merge_commits, track_rows
from tests.support.fuzzing import seeds
from windowlib.errors import LogError

FIRST = datetime(2026, 10, 24, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu")
KINDS: dict[TimeKind, pa.DataType] = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}


def _grid(by: SliceGrammar) -> SliceGrid:
    return SliceGrid(every_ms=by.every_ms, zone=by.zone, first_ms=None, last_ms=None)


def _slices(by: SliceGrammar, first: datetime, count: int) -> tuple[Slice, ...]:
    found = [slice_at(_grid(by), round(first.timestamp() * 1000))]
    while len(found) < count:
        found.append(slice_at(_grid(by), found[-1].end_ms))
    return tuple(found)


def _value(kind: TimeKind, at: datetime) -> object:
    return at if kind == "timestamp" else at.replace(tzinfo=None) if kind == "timestamp_ntz" else at.date()


def _append(log: Path, kind: TimeKind, times: Sequence[datetime | None], *, statistics: bool = True) -> None:
    """Append a commit of one file."""
    values = [None if at is None else _value(kind, at) for at in times]
    rows = pa.table({"id": pa.array(range(len(times))), "at": pa.array(values, KINDS[kind])})
    configuration = {} if statistics else {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(str(log), rows, mode="append", configuration=configuration)


def _forget_statistics(log: Path, chance: Random) -> None:
    """Remove random parts of the statistics of some files, and compute those of some others again (ANALYZE)."""
    live, analyzed = {Path(uri).name for uri in DeltaTable(str(log)).file_uris()}, []
    commits = sorted((log / "_delta_log").glob("*.json"))
    for commit in commits:
        entries = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (entry["add"] for entry in entries if entry.get("add", {}).get("stats")):
            if chance.random() < 0.3 and add["path"] in live:
                analyzed.append({"add": add | {"dataChange": False}})
            part = chance.choice(("stats", "numRecords", "minValues", "maxValues", "nullCount", "nothing"))
            left = {name: own for name, own in json.loads(add["stats"]).items() if name != part}
            add["stats"] = None if part == "stats" else json.dumps(left)
        commit.write_text("\n".join(map(json.dumps, entries)))
    if analyzed:
        info = {"commitInfo": {"timestamp": 0, "operation": "COMPUTE STATS", "operationParameters": {}}}
        newest = log / "_delta_log" / f"{len(commits):020}.json"
        newest.write_text("\n".join(map(json.dumps, [info, *analyzed])))


def _pin(log: Path, by: SliceGrammar, slices: Sequence[Slice]) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=by, slices=slices)


def _rows(pinned: PinnedLog, by: SliceGrammar, kind: TimeKind) -> Counter[str]:
    """Read the files as an intake does, and count the records of each slice."""
    found: Counter[str] = Counter()
    for file in pinned.files:
        instants = slice_instants(pq.read_table(pinned.place(file))["at"].combine_chunks(), kind, by.zone)
        values = instants.to_numpy(zero_copy_only=False)
        count = len(values)
        if file.part is not None:
            count = int(np.sum((values >= file.part.start_ms) & (values < file.part.end_ms)))
        assert file.records == count > 0
        found[file.slice_id] += count
    return found


@pytest.mark.parametrize("statistics", [True, False])
def test_the_slice_column_may_have_other_upper_and_lower_case_in_a_file(tmp_path: Path, *, statistics: bool) -> None:
    """Files that CONVERT TO DELTA has taken over, for example: Spark reads them, too."""
    by, log = SliceGrammar(by="at"), tmp_path / "log"
    _append(log, "timestamp", [FIRST + timedelta(hours=9 * number) for number in range(6)], statistics=statistics)
    [file] = log.glob("*.parquet")
    rows = pq.read_table(file).rename_columns(["id", "AT"])
    pq.write_table(rows, file)
    commit = log / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in commit.read_text().splitlines()]
    for entry in entries:
        entry.get("add", {})["size"] = file.stat().st_size
    commit.write_text("\n".join(map(json.dumps, entries)))
    pinned = _pin(log, by, _slices(by, FIRST, 2))
    assert [(own.slice_id, own.records) for own in pinned.files] == [("2026-10-24", 3), ("2026-10-25", 3)]


@pytest.mark.slow
def test_files_and_records_of_random_logs(tmp_path: Path) -> None:
    """Random commits, in order of time or not, with all statistics, some or none, compacted, against a naive model."""
    for seed in seeds(25):
        chance = Random(seed)
        kind = chance.choice([*KINDS])
        every = "1d" if kind == "date" else chance.choice(("1d", "1h", "6h"))
        zone = chance.choice(ZONES) if every == "1d" else "UTC"
        by = SliceGrammar.model_validate({"by": "at", "every": every, "timezone": zone})
        log, all_times = tmp_path / str(seed), list[tuple[int, datetime]]()
        has_statistics = chance.random() < 0.7
        for number in range(chance.randrange(1, 8)):
            start = timedelta(hours=number * 5 if chance.random() < 0.7 else chance.randrange(60))
            spread = chance.choice((1, 3_600_000_000, 90_000_000_000))
            times = [FIRST + start + timedelta(microseconds=chance.randrange(spread)) for _ in range(5)]
            _append(log, kind, times, statistics=has_statistics)
            all_times += [(number, at) for at in times]
        if chance.random() < 0.3:
            DeltaTable(str(log)).optimize.compact()
        if chance.random() < 0.5:
            _forget_statistics(log, chance)
        slices = _slices(by, FIRST + timedelta(hours=chance.randrange(-30, 60)), chance.randrange(1, 6))
        cut = Cut(uri="log", by=by, slices=slices)
        owners = [(number, cut.slice_of(_model_ms(kind, at, by.zone))) for number, at in all_times]
        expected = Counter(owner for _, owner in owners if owner is not None)
        pinned = _pin(log, by, slices)
        assert _rows(pinned, by, kind) == expected, seed
        assert {one.slice_id: pinned.coordinates(one.slice_id).records for one in slices} == {
            one.slice_id: expected[one.slice_id] for one in slices
        }, seed
        for one in slices:  # a commit of OPTIMIZE is none that adds records
            own = {number for number, owner in owners if owner == one.slice_id}
            assert own <= set(pinned.coordinates(one.slice_id).commits) <= set(range(len(all_times) // 5)), seed
        instants = [_model_ms(kind, at, by.zone) for _, at in all_times]
        filled = {slice_at(_grid(by), at_ms).slice_id for at_ms in pinned.data_ms}
        assert (min(instants), max(instants)) == (pinned.data_ms[0], pinned.data_ms[-1]), seed
        assert {owner for _, owner in owners if owner} == {one.slice_id for one in slices} & filled, seed


def _model_ms(kind: TimeKind, at: datetime, zone: ZoneInfo) -> int:
    """The instant of a record, one by one in Python."""
    floored = at.replace(microsecond=at.microsecond // 1000 * 1000)
    if kind == "timestamp":
        return local_ms(floored, zone)
    naive = floored.replace(tzinfo=None)
    return local_ms(naive if kind == "timestamp_ntz" else datetime.combine(naive.date(), datetime.min.time()), zone)


@given(
    times=st.lists(st.datetimes(datetime(1890, 1, 1), datetime(2100, 1, 1)) | st.none(), max_size=20),  # noqa: DTZ001
    zone=st.sampled_from([*ZONES, "Asia/Beirut", "Pacific/Apia"]),
    kind=st.sampled_from([*KINDS]),
    unit=st.sampled_from(["ms", "us", "ns"]),
)
@example(times=[datetime(2000, 1, 1), datetime(2038, 4, 1)], zone="Europe/Berlin", kind="timestamp_ntz", unit="ms")  # noqa: DTZ001
def test_instants_of_columns_are_those_of_single_values(
    times: list[datetime | None], zone: str, kind: TimeKind, unit: str
) -> None:
    stored = [None if at is None else at.replace(microsecond=at.microsecond // 1000 * 1000) for at in times]
    values = [None if at is None else at.replace(tzinfo=UTC) if kind == "timestamp" else at for at in stored]
    if kind == "date":
        column = pa.array([None if at is None else at.date() for at in stored], pa.date32())
    else:
        column = pa.array(values, pa.timestamp("us", "UTC" if kind == "timestamp" else None))
        column = column.cast(pa.timestamp(unit, column.type.tz))
    expected = [None if at is None else _model_ms(kind, at.replace(tzinfo=UTC), ZoneInfo(zone)) for at in stored]
    assert slice_instants(column, kind, ZoneInfo(zone)).to_pylist() == expected


def test_instants_before_1970_are_rounded_down() -> None:
    column = pa.array([-1, -1_000, -1_001, 999], pa.timestamp("us", "UTC"))
    assert slice_instants(column, "timestamp", ZoneInfo("UTC")).to_pylist() == [-1, -1, -2, 0]


def test_times_of_all_years_are_in_their_slices_or_refused_with_the_file(tmp_path: Path) -> None:
    """9999-12-31 is what writers store for "never"; seconds that are read as milliseconds are after the year 9999."""
    for number, seed in enumerate(seeds(10)):
        chance = Random(seed)
        kind, form = chance.choice([*KINDS]), chance.choice(("plain", "int96", "without statistics"))
        by = SliceGrammar.model_validate({"by": "at", "timezone": chance.choice(ZONES)})
        ends = [datetime(9999, 12, 30, tzinfo=UTC)] + [datetime(1, 1, 3, tzinfo=UTC)] * (form != "int96")
        log, far = tmp_path / str(number), chance.choice(ends)
        _append(log, kind, [FIRST, far], statistics=False)
        [path] = [Path(one.removeprefix("file://")) for one in DeltaTable(str(log)).file_uris()]
        rows, options = pq.read_table(path), {"use_deprecated_int96_timestamps": form == "int96"}
        pq.write_table(rows, path, write_statistics=form == "plain", **options)
        ends_ms, data_ms = [_model_ms(kind, at, by.zone) for at in (FIRST, far)], _look(log, by).data_ms
        assert (min(ends_ms), max(ends_ms)) == (data_ms[0], data_ms[-1]), seed
        beyond = [int(FIRST.timestamp()) * 1_000_000, chance.choice((1, -1)) * 1_768_136_020_560_000_000]
        days = pa.array([value // 86_400_000_000 for value in beyond], pa.int32())
        values = days.cast(pa.date32()) if kind == "date" else pa.array(beyond, KINDS[kind])
        options["use_deprecated_int96_timestamps"] &= beyond[1] > 0
        pq.write_table(rows.set_column(1, "at", values), path, write_statistics=form == "plain", **options)
        word, key = ("after the year 9999", "last") if beyond[1] > 0 else ("before the year 1", "first")
        with pytest.raises(LogError, match=f"has in file {path.name} .* {word}, .* set `log.slice.{key}`"):
            _look(log, by)
        assert _look(log, by.model_copy(update={key: "2026-10-24"})).records == 1


@pytest.mark.parametrize(
    "wrong", [{"maxValues": "1816-03-29T05:56:08.066Z"}, {"minValues": "2185-07-21T23:34:33.709Z"}]
)
def test_a_file_whose_bounds_are_the_wrong_way_round_is_read(tmp_path: Path, wrong: dict[str, str]) -> None:
    """Defect: Spark stores INT96 in checkpoints, and deltalake reads its 9999-12-31 as 1816, and 1601 as 2185.

    So a file seemed to end before the slices of its other records, and a range of these read none of them.
    """
    _append(tmp_path, "timestamp", [FIRST, FIRST + timedelta(hours=30)])
    commit = tmp_path / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in commit.read_text().splitlines()]
    for add in (entry["add"] for entry in entries if "add" in entry):
        statistics = json.loads(add["stats"])
        for kind, bound in wrong.items():
            statistics[kind]["at"] = bound
        add["stats"] = json.dumps(statistics)
    commit.write_text("\n".join(map(json.dumps, entries)))
    by = SliceGrammar(by="at")
    assert _rows(_pin(tmp_path, by, _slices(by, FIRST, 2)[1:]), by, "timestamp") == {"2026-10-25": 1}
    assert _rows(_pin(tmp_path, by, _slices(by, FIRST, 1)), by, "timestamp") == {"2026-10-24": 1}


def _look(log: Path, by: SliceGrammar) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=by, slices=_slices(by, FIRST, 2), may_be_changed=True)


HOURLY = SliceGrammar.model_validate({"by": "at", "every": "1h"})


def test_a_null_is_refused_with_the_column(tmp_path: Path) -> None:
    for statistics in (True, False):
        log = tmp_path / str(statistics)
        _append(log, "timestamp", [FIRST, None], statistics=statistics)
        with pytest.raises(LogError, match="has 1 record whose slice column 'at' is null"):
            _pin(log, HOURLY, _slices(HOURLY, FIRST, 2))
        [path] = DeltaTable(str(log)).get_add_actions().column("path").to_pylist()
        mark_deleted(log, {path: [1]})
        assert _look(log, HOURLY).records == 1


def test_a_delete_is_refused_in_the_slices_of_its_files_and_a_restore_mends_them(tmp_path: Path) -> None:
    log, slices = tmp_path / "log", _slices(HOURLY, FIRST, 6)
    for number in range(6):
        _append(log, "timestamp", [FIRST + timedelta(hours=number, minutes=n) for n in (1, 59)])
    DeltaTable(str(log)).delete("at < '2026-10-24T01:30:00Z' AND at >= '2026-10-24T01:00:00Z'")
    with pytest.raises(LogError, match=r"commit 6 \(DELETE\) removed or changed records of slice 2026-10-24T01"):
        _pin(log, HOURLY, slices)
    assert sum(_rows(_pin(log, HOURLY, slices[2:]), HOURLY, "timestamp").values()) == 8
    DeltaTable(str(log)).restore(5)
    assert sum(_rows(_pin(log, HOURLY, slices), HOURLY, "timestamp").values()) == 12


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_delete_of_old_files_whose_commits_are_not_read_again_refuses_no_other_slice(
    tmp_path: Path, *, is_expired: bool
) -> None:
    """Defect: a `remove` of delta-rs has no statistics, so a nightly DELETE of the oldest day stopped all later."""
    log, slices = tmp_path / "log", _slices(HOURLY, FIRST, 6)
    for number in range(4):
        _append(log, "timestamp", [FIRST + timedelta(hours=number, minutes=n) for n in (1, 59)])
    known = _pin(log, HOURLY, slices[:4]).known()
    if is_expired:
        DeltaTable(str(log)).create_checkpoint()
        for version in range(3):
            Path(log, "_delta_log", f"{version:020}.json").unlink()
    for number in range(2):
        DeltaTable(str(log)).delete(f"at < '2026-10-24T0{number + 1}:00:00Z'")
        _append(log, "timestamp", [FIRST + timedelta(hours=number + 4)])
    pinned = pin_log(DeltaPlace(uri=str(log)), by=HOURLY, slices=slices[2:], known=known, few_commits=100)
    assert pinned.records == 6
    with pytest.raises(LogError, match=r"commit 6 \(DELETE\) removed or changed records of slice 2026-10-24T01"):
        pin_log(DeltaPlace(uri=str(log)), by=HOURLY, slices=slices[1:], known=known, few_commits=100)


def _restored_behind_an_append(log: Path) -> Path:
    """Write a log in which a RESTORE undoes a DELETE, and takes back what was appended to the next hour since."""
    _append(log, "timestamp", [FIRST])
    DeltaTable(str(log)).delete("id = 0")
    _append(log, "timestamp", [FIRST + timedelta(hours=1)])
    DeltaTable(str(log)).restore(0)
    return log


def test_an_append_that_a_restore_took_back_is_refused_in_its_slice(tmp_path: Path) -> None:
    """The restored version has the files of before the DELETE, and not the records that were appended since."""
    log, slices = _restored_behind_an_append(tmp_path / "log"), _slices(HOURLY, FIRST, 3)
    with pytest.raises(LogError, match=r"commit 3 \(RESTORE\) removed or changed records of slice 2026-10-24T01"):
        _pin(log, HOURLY, slices[1:])
    assert _pin(log, HOURLY, slices[:1]).records == 1
    assert _pin(log, HOURLY, slices[:1]).history.sound == 0  # and not 3: other slices have lost records


def test_new_commits_touch_the_slices_of_their_statistics(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _append(log, "timestamp", [FIRST])
    _append(log, "timestamp", [FIRST + timedelta(hours=1), FIRST + timedelta(hours=3)])
    tip = DeltaPlace(uri=str(log)).tip()
    assert tip is not None
    cut, names = Cut(uri=str(log), by=HOURLY, slices=()), {"at": "at"}
    first_ms = round(FIRST.timestamp() * 1000)
    assert touched_since(tip, 0, cut, names=names) == {(first_ms + 3_600_000, first_ms + 3 * 3_600_000): 1}
    _append(log, "timestamp", [FIRST], statistics=True)
    DeltaTable(str(log)).delete("id = 1")
    tip = DeltaPlace(uri=str(log)).tip()
    assert tip is not None
    assert touched_since(tip, 2, cut, names=names) is None  # a `remove` without statistics
    assert touched_since(tip, 0, cut, names={}) is None  # a look of a version of Hindcast that stored no names


def test_statistics_of_all_spellings() -> None:
    def span(low: object, high: object, zone: str = "UTC") -> object:
        text = json.dumps({"minValues": {"at": low}, "maxValues": {"at": high}})
        return statistics_span(text, "at", ZoneInfo(zone))

    assert span("1970-01-01T00:00:00.001Z", "1970-01-01T01:00:00+01:00") == (0, 1)
    assert span("1970-01-01 00:00:01", "1970-01-01T00:00:02.5", "Europe/Berlin") == (
        1_000 - 3_600_000,
        2_500 - 3_600_000,
    )
    assert span("1970-01-01", "1970-01-02") == (0, 86_400_000)
    for nothing in ((None, None), ("x", "y"), (1, 2), ("+12026-01-01T00:00:00Z", "+12026-01-01T00:00:00Z")):
        assert span(*nothing) is None
    assert statistics_span(None, "at", ZoneInfo("UTC")) is None


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ({"by": "id"}, "slice column 'id' of event log .* is a bigint, and the log is partitioned by nothing"),
        ({"by": "nowhere"}, "slice column 'nowhere' of event log .* does not exist"),
        ({"by": "at", "format": "yyyyMMdd"}, "is not partitioned by 'at' but by nothing; several columns"),
        ({"by": ["at", "id"], "every": "1h"}, "is not partitioned by 'at', 'id' but by nothing; several columns"),
    ],
)
def test_a_column_that_cannot_cut_the_log_is_refused(tmp_path: Path, by: dict[str, object], message: str) -> None:
    _append(tmp_path / "log", "timestamp", [FIRST])
    grammar = SliceGrammar.model_validate(by)
    with pytest.raises(LogError, match=message):
        _pin(tmp_path / "log", grammar, _slices(HOURLY, FIRST, 1))


def test_a_restore_over_a_checkpoint_that_loses_records_of_another_slice_leaves_the_log_unsound(tmp_path: Path) -> None:
    """Defect: with a checkpoint of a row-tracked log, the files of all other slices together counted as whole again."""
    log, slices = _restored_behind_an_append(tmp_path / "log"), _slices(HOURLY, FIRST, 3)
    merge_commits(log, 1)  # as a MERGE, it removes records of one slice and adds those of another one
    track_rows(log)
    DeltaTable(str(log), version=0).create_checkpoint()
    pinned = pin_log(DeltaPlace(uri=str(log)), by=HOURLY, slices=slices[2:], few_commits=0)
    assert (pinned.history.read, pinned.history.sound) == (2, 0)
