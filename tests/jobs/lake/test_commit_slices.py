"""Slices by the times of commits: which files a slice has, and which logs are refused. No Spark."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.commit_slices import commit_time_ms
from jobs.lake.delta_log import DeltaPlace, describe_log
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.known_log import KnownLog
from jobs.lake.log_cut import Cut
from jobs.lake.log_look import log_slices, touched_since
from jobs.lake.rewrite_search import find_rewrites
from jobs.lake.row_tracking import stored_versions
from jobs.pipeline.look_back import LookBack
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.delta_logs import clean_commits, commits_of, track_rows_later
from tests.support.fuzzing import seeds
from windowlib.errors import LogError

HOUR_MS = 3_600_000
BY = SliceGrammar.model_validate({"by": "commits", "every": "1h"})
HOURS = tuple(Slice(slice_id=f"1970-01-01T{n:02}", start_ms=n * HOUR_MS, end_ms=(n + 1) * HOUR_MS) for n in range(24))


def _edit(log: Path, change: Any, version: int = -1) -> None:  # noqa: ANN401 - a function of the test
    commit = commits_of(log)[version]
    entries = [json.loads(line) for line in commit.read_text().splitlines()]
    commit.write_text("\n".join(json.dumps(change(entry)) for entry in entries))


def _at(log: Path, at_ms: int, *, key: str = "timestamp") -> None:
    """Set the time of the newest commit."""

    def changed(entry: dict[str, Any]) -> dict[str, Any]:
        if "commitInfo" in entry:
            entry["commitInfo"][key] = at_ms
        return entry

    _edit(log, changed)


def _append(log: Path, at_ms: int, *, records: int = 2, mark: int = 0) -> None:
    write_deltalake(str(log), pa.table({"id": [mark] * records}), mode="append")
    _at(log, at_ms)


def _pin(log: Path, slices: Sequence[Slice] = HOURS) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=BY, slices=slices)


def _records(pinned: PinnedLog) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in pinned.files:
        found[file.slice_id] += pq.read_metadata(pinned.place(file)).num_rows
    return found


@pytest.mark.slow
def test_slices_of_random_logs(tmp_path: Path) -> None:
    """Random times, some of clocks that were set back, against a naive model; with a checkpoint, and read in steps."""
    for seed in seeds(15):
        chance, log = Random(seed), tmp_path / str(seed)
        expected: Counter[str] = Counter()
        commits: dict[str, list[int]] = {}
        at_ms = newest_ms = 0
        known = KnownLog()
        for number in range(chance.randrange(1, 12)):
            at_ms += chance.randrange(-HOUR_MS, 3 * HOUR_MS)
            newest_ms = max(newest_ms, at_ms)
            _append(log, max(at_ms, 0), records=number % 3 + 1)
            slice_id = f"1970-01-01T{newest_ms // HOUR_MS:02}"
            expected[slice_id] += number % 3 + 1
            commits.setdefault(slice_id, []).append(number)
            if chance.random() < 0.2:
                DeltaTable(str(log)).create_checkpoint()
            if chance.random() < 0.3:
                known = pin_log(DeltaPlace(uri=str(log)), by=BY, slices=HOURS, known=known).known()
        pinned = pin_log(DeltaPlace(uri=str(log)), by=BY, slices=HOURS, known=known)
        inside = {one.slice_id for one in HOURS}
        assert _records(pinned) == Counter({key: count for key, count in expected.items() if key in inside}), seed
        assert max(pinned.data_ms) == newest_ms, seed
        for one in HOURS:
            place = pinned.coordinates(one.slice_id)
            assert (place.records, list(place.commits)) == (expected[one.slice_id], commits.get(one.slice_id, [])), seed


def test_a_time_is_the_in_commit_timestamp_else_that_of_the_writer_else_that_of_the_files() -> None:
    add = {"add": {"modificationTime": 3}}
    assert commit_time_ms([{"commitInfo": {"inCommitTimestamp": 1, "timestamp": 2}}, add]) == 1
    assert commit_time_ms([{"commitInfo": {"timestamp": 2}}, add]) == 2
    assert commit_time_ms([{"commitInfo": {}}, add, {"add": {"modificationTime": 4}}]) == 4
    assert commit_time_ms([{"metaData": {}}]) is None


def test_a_compacted_file_is_refused_where_it_may_have_records(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for hour in (1, 2):
        _append(log, hour * HOUR_MS)
    DeltaTable(str(log)).optimize.compact()
    _at(log, 3 * HOUR_MS)
    _append(log, 5 * HOUR_MS)
    advised = (
        r"commit 2 \(OPTIMIZE\) wrote file part-.* other commits .* `log\.slice\.first` to a slice after that commit"
    )
    with pytest.raises(LogError, match=advised):
        _pin(log)
    assert _records(_pin(log, HOURS[4:])) == {"1970-01-01T05": 2}


def test_compacted_records_from_before_row_tracking_are_not_in_the_slice_of_the_backfill(tmp_path: Path) -> None:
    """Defect: OPTIMIZE stores the version of the backfill in them, and they moved to its slice."""
    for stored, records in ((3, None), (5, {"1970-01-01T01": 4, "1970-01-01T02": 2})):
        log = tmp_path / str(stored)
        for hour in (1, 1, 2):
            _append(log, hour * HOUR_MS)
        track_rows_later(log, Random(1), after=2)  # the commits 2, 3 and 4 switch it on, and 3 is the backfill
        row = {"_row-id-col-1": [0, 1], "_row-commit-version-col-1": pa.array([stored] * 2, pa.int64())}
        pq.write_table(pa.table({"id": [7, 7]} | row), log / "compacted.parquet")
        [add] = [
            entry["add"] for entry in map(json.loads, commits_of(log)[-1].read_text().splitlines()) if "add" in entry
        ]
        new = add | {"path": "compacted.parquet", "dataChange": False, "defaultRowCommitVersion": 6}
        new["size"] = (log / "compacted.parquet").stat().st_size
        gone = {"path": add["path"], "dataChange": False, "deletionTimestamp": 0}
        lines = [{"commitInfo": {"operation": "OPTIMIZE", "timestamp": 3 * HOUR_MS}}, {"remove": gone}, {"add": new}]
        (log / "_delta_log" / f"{6:020}.json").write_text("\n".join(map(json.dumps, lines)))
        if records is None:
            with pytest.raises(LogError, match=r"commit 6 \(OPTIMIZE\) wrote file compacted.parquet from records"):
                _pin(log)
        else:
            assert _records(_pin(log)) == records


def test_a_commit_that_is_gone_is_refused_where_it_may_have_records(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for hour in (1, 2, 4):
        _append(log, hour * HOUR_MS)
    DeltaTable(str(log)).create_checkpoint()
    commits_of(log)[0].unlink()
    with pytest.raises(LogError, match="log retention has removed the commit that added file part-"):
        _pin(log)
    pinned = _pin(log, HOURS[3:])
    assert _records(pinned) == {"1970-01-01T04": 2}
    assert pinned.data_ms[0] == 2 * HOUR_MS  # the oldest that is known: a plan from the first data asks for this slice
    found = log_slices(DeltaPlace(uri=str(log)), by=BY, back=LookBack(slices=(*HOURS,)), known=KnownLog())
    assert sorted(found.coordinates) == [one.slice_id for one in HOURS[3:]]  # no look takes them for changed


def test_after_an_accepted_delete_a_new_file_has_no_slice_and_a_removed_file_has_left_its_slice(tmp_path: Path) -> None:
    """The new file has records of an older commit, so it does not belong to the slice of the DELETE."""
    log = tmp_path / "log"
    for hour in (1, 2):
        _append(log, hour * HOUR_MS, mark=hour)
    write_deltalake(str(log), pa.table({"id": [3, 4]}), mode="append")
    _at(log, 3 * HOUR_MS)
    DeltaTable(str(log)).delete("id = 1")
    _at(log, 6 * HOUR_MS)
    assert _records(_pin_accepted(log)) == {"1970-01-01T02": 2, "1970-01-01T03": 2}
    DeltaTable(str(log)).delete("id = 4")
    _at(log, 7 * HOUR_MS)
    with pytest.raises(LogError, match=r"commit 4 \(DELETE\) wrote file part-.* from records that other commits"):
        _pin_accepted(log)


def _pin_accepted(log: Path) -> PinnedLog:
    """Pin a log as if a person had accepted all commits that removed records."""
    found = find_rewrites(DeltaPlace(uri=str(log)), by=BY, slices=HOURS, known=KnownLog())
    accepted = {found.table_id: {one.version: one for one in found.rewrites}}
    return pin_log(DeltaPlace(uri=str(log)), by=BY, slices=HOURS, known=KnownLog(accepted=accepted))


def test_a_delete_is_refused_in_the_slice_of_the_append(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for hour in (1, 2):
        _append(log, hour * HOUR_MS, mark=hour)
    DeltaTable(str(log)).delete("id = 1")
    _at(log, 6 * HOUR_MS)
    with pytest.raises(LogError, match=r"commit 2 \(DELETE\) removed or changed records of slice 1970-01-01T01"):
        _pin(log)
    assert _records(_pin(log, HOURS[2:])) == {"1970-01-01T02": 2}
    DeltaTable(str(log)).restore(1)
    _at(log, 7 * HOUR_MS)
    assert _records(_pin(log)) == {"1970-01-01T01": 2, "1970-01-01T02": 2}


def test_new_commits_touch_the_slice_of_their_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for at_ms in (HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS):  # the clock of the last writer is slow
        _append(log, at_ms)
    tip = DeltaPlace(uri=str(log)).tip()
    assert tip is not None
    assert touched_since(tip, 0, Cut(uri=str(log), by=BY, slices=()), names={}) == {(3 * HOUR_MS, 3 * HOUR_MS): 2}


def test_commits_that_a_file_stores_for_its_rows(tmp_path: Path) -> None:
    """As OPTIMIZE of Spark stores them: a column with the commit of each row, null for that of the file."""
    log = tmp_path / "log"
    _append(log, 0)
    properties = {"delta.rowTracking.materializedRowCommitVersionColumnName": "_v"}

    def named(entry: dict[str, Any]) -> dict[str, Any]:
        if "metaData" in entry:
            entry["metaData"]["configuration"] = properties
        return entry

    _edit(log, named, 0)
    clean_commits(log)

    table = describe_log(str(log))
    for values, statistics, expected in (
        ([2, 3], True, (2, 3)),
        ([2, None], True, (2, 7)),
        ([None, None], True, (7, 7)),
        ([2, 3], False, (-1, 7)),
    ):
        place = tmp_path / "file.parquet"
        pq.write_table(pa.table({"_v": pa.array(values, pa.int64())}), place, write_statistics=statistics)
        assert stored_versions(table, str(place), 7) == expected
    pq.write_table(pa.table({"id": [1]}), tmp_path / "other.parquet")
    assert stored_versions(table, str(tmp_path / "other.parquet"), 7) is None
