"""The order in which the files of a log were appended, of logs that got row tracking later. No Spark."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.append_order import CommitOrder
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.row_tracking import appended_files
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.delta_logs import clean_commits, commits_of, merge_commits, track_rows, track_rows_later
from tests.support.fuzzing import seeds
from windowlib.errors import LogError

DAY_MS = 86_400_000
BY_COMMITS = CommitOrder()
DAYS = tuple(Slice(slice_id=f"1970-01-0{n + 1}", start_ms=n * DAY_MS, end_ms=(n + 1) * DAY_MS) for n in range(3))


def _write(log: Path, commits: Sequence[Sequence[int]]) -> Path:
    """Write a log without row tracking; a commit has three records of each of its days."""
    for number, days in enumerate(commits):
        rows = [{"id": f"{number}/{n}", "day": date(1970, 1, day)} for day in days for n in range(3)]
        write_deltalake(str(log), pa.Table.from_pylist(rows), mode="append", partition_by=["day"])
    return log


def _pin(log: Path, slices: Sequence[Slice] = DAYS, *, order: CommitOrder | None = BY_COMMITS) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day"), slices=slices, order=order)


def _unordered(log: Path, slices: Sequence[Slice] = DAYS, *, order: CommitOrder = BY_COMMITS) -> frozenset[str]:
    """Return the slices of which a look at the log tells that their order is lost."""
    place = DeltaPlace(uri=str(log))
    pinned = pin_log(place, by=SliceGrammar(by="day"), slices=slices, may_be_changed=True)
    return pinned.unordered(replace(order, row_ids=False))


def _drop_commits(chance: Random, log: Path) -> None:
    """Write a checkpoint of a version, and remove some or all of the commits that it covers."""
    newest = DeltaTable(str(log)).version()
    version = chance.randrange(newest + 1)
    DeltaTable(str(log), version=version).create_checkpoint()
    for commit in commits_of(log)[: chance.randrange(version + 1) + (version == newest)]:
        commit.unlink()


def _set_clocks(chance: Random, log: Path) -> None:
    """Give the files random modification times, as writers with wrong clocks do."""
    times: dict[str, int] = {}
    for commit in commits_of(log):
        entries = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (entry["add"] for entry in entries if "add" in entry):
            add["modificationTime"] = times.setdefault(add["path"], chance.randrange(10**12))
        commit.write_text("\n".join(map(json.dumps, entries)))


def _ids(log: PinnedLog) -> list[str]:
    read = (pq.ParquetFile(log.place(file)).read(["id"])["id"].to_pylist() for file in log.in_log_order())
    return [one for rows in read for one in rows]


def _random_log(chance: Random, root: Path) -> tuple[Path, Path, int]:
    """Return a log with row tracking, the same log that gets it later, and the files of a commit of its backfill."""
    commits = [chance.sample((1, 2, 3), chance.randrange(1, 4)) for _ in range(chance.randrange(2, 8))]
    born = _write(root / "born", commits)
    number = len(commits)
    for _ in range(chance.randrange(number // 2 + 1)):
        number -= 1
        merge_commits(born, chance.randrange(number))
    later, after = root / "later", chance.randrange(1, number + 1)
    shutil.copytree(born, later)
    track_rows(born)
    batches, meanwhile = chance.choice((1, 1, 2)), chance.choice((0, 0, 1))
    return born, later, track_rows_later(later, chance, after=after, batches=batches, meanwhile=meanwhile)


@pytest.mark.slow
def test_a_log_that_got_row_tracking_later_is_read_in_the_order_of_appending(tmp_path: Path) -> None:
    """Taken as the order, the ids of the backfill made 200 of 300 records late."""
    for seed in seeds(25):
        chance = Random(seed)
        born, later, _ = _random_log(chance, tmp_path / str(seed))
        if chance.random() < 0.3:
            _set_clocks(chance, later)
        if chance.random() < 0.5:
            DeltaTable(str(later)).create_checkpoint()
        assert _ids(_pin(later)) == _ids(_pin(born)), f"seed {seed}"


@pytest.mark.slow
def test_records_whose_commits_are_gone_are_read_in_order_or_refused(tmp_path: Path) -> None:
    """A log that is born with row tracking is read as before. The other one is refused if the order is not known."""
    refusals = 0
    for seed in seeds(25):
        chance = Random(seed)
        born, later, backfill_files = _random_log(chance, tmp_path / str(seed))
        expected = {one.slice_id: _ids(_pin(born, [one])) for one in DAYS}
        for log in (born, later):
            _drop_commits(chance, log)
        assert {one.slice_id: _ids(_pin(born, [one])) for one in DAYS} == expected, f"seed {seed}"
        order = CommitOrder(backfill_files=backfill_files)
        for one in DAYS:
            assert not _unordered(born, [one])
            is_lost = _unordered(later, [one], order=order) == {one.slice_id}
            try:
                read = _ids(_pin(later, [one], order=order))
            except LogError:
                refusals += 1
                assert is_lost, f"seed {seed}"
            else:
                assert not is_lost, f"seed {seed}"
                assert read == expected[one.slice_id], f"seed {seed}"
    assert refusals


def _later(tmp_path: Path, *, after: int = 3) -> Path:
    log = _write(tmp_path / "log", [[1], [1], [1, 2], [2], [2]])
    track_rows_later(log, Random(1), after=after)
    return log


def test_only_slices_with_files_of_lost_commits_are_refused(tmp_path: Path) -> None:
    log = _later(tmp_path)
    DeltaTable(str(log)).create_checkpoint()
    for commit in commits_of(log)[:1]:
        commit.unlink()
    with pytest.raises(LogError, match=r"slice 1970-01-01 .* log retention has removed") as refused:
        _pin(log)
    assert "log.order" in str(refused.value)
    assert "docs/reference/logs.md" in str(refused.value)
    assert _ids(_pin(log, DAYS[1:])) == [f"{number}/{n}" for number in (2, 3, 4) for n in range(3)]
    # Defect: a restatement of such slices was proposed, and each command refused it.
    assert _unordered(log) == {"1970-01-01"}


def test_a_backfill_whose_commit_is_gone_is_not_taken_for_an_append(tmp_path: Path) -> None:
    """All files of the lowest version were modified before every other file, as files are that a backfill numbered."""
    log = _later(tmp_path)
    clean_commits(log)
    for days, is_refused in ((DAYS[:1], True), (DAYS[1:2], True), (DAYS[2:], False)):
        if is_refused:
            with pytest.raises(LogError, match="may have been switched on later"):
                _pin(log, days)
        else:
            _pin(log, days)


def test_a_log_that_was_born_with_row_tracking_is_read_when_its_first_files_are_gone(tmp_path: Path) -> None:
    """The first day was removed, and log retention has removed all commits but the newest. One slice is in doubt."""
    log = _write(tmp_path / "log", [[1], [1], [2], [2, 3], [3], [3]])
    DeltaTable(str(log)).delete("day = '1970-01-01'")
    track_rows(log)
    clean_commits(log)
    assert _ids(_pin(log, DAYS[2:])) == [f"{number}/{n}" for number in (3, 4, 5) for n in range(3)]
    with pytest.raises(LogError, match=r"slice 1970-01-02 .* may have been switched on later"):
        _pin(log, DAYS[1:])
    with pytest.raises(LogError, match=r"commit 6 \(DELETE\) removed or changed records of slice 1970-01-01"):
        _pin(log)


def test_a_file_that_was_compacted_before_row_tracking_is_refused(tmp_path: Path) -> None:
    log = _write(tmp_path / "log", [[1], [1], [2]])
    DeltaTable(str(log)).optimize.compact()
    track_rows_later(log, Random(1), after=4)
    with pytest.raises(LogError, match=r"commit 3 \(OPTIMIZE\) made file .*log.order"):
        _pin(log, DAYS[:1])
    assert _ids(_pin(log, DAYS[1:])) == ["2/0", "2/1", "2/2"]


def _rewrite(log: Path, versions: Sequence[int], day: str = "1970-01-01") -> None:
    """Add a commit that compacts the files of a day; its rows get these commit versions."""
    table = DeltaTable(str(log))
    old = [path for path in table.file_uris() if f"day={day}" in path]
    rows = pa.table({"id": [f"x{n}" for n in range(len(versions))], "_row-id-col-1": list(range(len(versions)))})
    rows = rows.append_column("_row-commit-version-col-1", pa.array(versions, pa.int64()))
    path = f"day={day}/compacted.parquet"
    pq.write_table(rows, log / path)
    version = len(commits_of(log))
    values = {"partitionValues": {"day": day}, "dataChange": False}
    ids = {"baseRowId": 1_000, "defaultRowCommitVersion": version}
    size = {"size": (log / path).stat().st_size, "modificationTime": 2**42, "stats": json.dumps({"numRecords": 9})}
    lines: list[dict[str, Any]] = [{"commitInfo": {"operation": "OPTIMIZE"}}]
    lines += [{"remove": {"path": uri.partition("/log/")[2], "deletionTimestamp": 0, **values}} for uri in old]
    lines.append({"add": {"path": path, **values, **size, **ids}})
    (log / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


def test_a_compacted_file_is_refused_if_it_may_have_records_of_the_backfill(tmp_path: Path) -> None:
    """OPTIMIZE stores the version of the backfill in the rows. That is not the order of the old commits."""
    for versions, is_refused in (((4, 4, 4), True), ((4, 6, 7), True), ((6, 6, 7), False)):
        root = tmp_path / repr(versions)
        log = _write(root / "log", [[1], [1], [1, 2], [1], [1, 2]])
        track_rows_later(log, Random(1), after=3)  # the commits 3, 4 and 5 switch it on, and 4 is the backfill
        _rewrite(log, versions)
        if is_refused:
            with pytest.raises(LogError, match=r"slice 1970-01-01 .* was compacted"):
                _pin(log, DAYS[:1])
        else:
            assert [file.path for file in _pin(log, DAYS[:1]).files] == ["day=1970-01-01/compacted.parquet"]
        assert _ids(_pin(log, DAYS[1:])) == [f"{number}/{n}" for number in (2, 4) for n in range(3)]


def test_a_compacted_log_that_was_born_with_row_tracking_is_read_without_its_commits(tmp_path: Path) -> None:
    """The rows of the first slice show that no backfill came before them."""
    log = _write(tmp_path / "log", [[1], [1, 2], [2, 3], [3], [3]])
    track_rows(log)
    for day, versions in (("1970-01-01", [0, 1]), ("1970-01-02", [1, 2]), ("1970-01-03", [2, 3, 4])):
        _rewrite(log, versions, day)
    clean_commits(log)
    for one in DAYS:
        assert len(_pin(log, [one]).files) == 1
    next((log / "day=1970-01-01").glob("compacted.parquet")).unlink()
    with pytest.raises(LogError, match=r"reading the footer of .*day=1970-01-01/compacted.parquet failed"):
        _pin(log)


def test_a_compacted_log_whose_first_slice_was_removed_is_in_doubt_in_one_slice(tmp_path: Path) -> None:
    log = _write(tmp_path / "log", [[1], [1], [2], [2, 3], [3]])
    DeltaTable(str(log)).delete("day = '1970-01-01'")
    track_rows(log)
    _rewrite(log, [2, 3], "1970-01-02")
    _rewrite(log, [3, 4], "1970-01-03")
    clean_commits(log)
    assert len(_pin(log, DAYS[2:]).files) == 1
    with pytest.raises(LogError, match=r"slice 1970-01-02 .* was compacted"):
        _pin(log)
    assert _unordered(log) == {"1970-01-02"}


def test_a_clone_is_refused_because_its_files_are_in_no_order(tmp_path: Path) -> None:
    """Spark gives the files of a clone new ids, in any order."""
    log = _write(tmp_path / "log", [[1], [1]])
    merge_commits(log, 0)
    track_rows(log)
    commit = commits_of(log)[0]
    commit.write_text(commit.read_text().replace('"operation":"CREATE TABLE"', '"operation":"CLONE"'))
    entries = [json.loads(line) for line in commit.read_text().splitlines()]
    for entry in entries:
        if "commitInfo" in entry:
            entry["commitInfo"]["operation"] = "CLONE"
    commit.write_text("\n".join(map(json.dumps, entries)))
    with pytest.raises(LogError, match=r"commit 0 \(CLONE\) .* original"):
        _pin(log)


def test_a_log_without_row_tracking_is_refused_only_in_the_order_of_commits(tmp_path: Path) -> None:
    log = _write(tmp_path / "log", [[1], [1]])
    with pytest.raises(LogError, match="has no row tracking") as refused:
        _pin(log, order=CommitOrder(row_ids=False))
    assert "docs/reference/logs.md" in str(refused.value)
    assert len(_pin(log, order=None).files) == 2
    assert _unordered(log) == {"1970-01-01"}
    assert not _unordered(log, order=CommitOrder(by_adds=True))


def _born(tmp_path: Path) -> Path:
    log = _write(tmp_path / "log", [[1], [1, 2], [1, 2]])
    track_rows(log)
    return log


def _commit(
    log: Path, *entries: dict[str, Any], operation: str, tags: dict[str, str] | None = None, version: int | None = None
) -> None:
    lines = [{"commitInfo": {"operation": operation, "tags": tags}}, *entries]
    path = log / "_delta_log" / f"{len(commits_of(log)) if version is None else version:020}.json"
    path.write_text("\n".join(map(json.dumps, lines)))


def _adds(log: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for commit in commits_of(log) for line in commit.read_text().splitlines()]
    return [entry["add"] for entry in entries if "add" in entry]


def test_files_that_were_compacted_while_row_tracking_was_off_are_refused(tmp_path: Path) -> None:
    """Defect: OPTIMIZE stores no row ids then, and the order inside its files was taken as that of appending."""
    log = _born(tmp_path)
    [*first, _] = [add for add in _adds(log) if add["partitionValues"]["day"] == "1970-01-01"]
    path = "day=1970-01-01/first.parquet"
    pq.write_table(pa.concat_tables([pq.ParquetFile(log / add["path"]).read() for add in reversed(first)]), log / path)
    gone = [{"remove": {**add, "deletionTimestamp": 0, "dataChange": False}} for add in first]
    new = first[0] | {"path": path, "size": (log / path).stat().st_size, "stats": json.dumps({"numRecords": 6})}
    new |= {"dataChange": False, "baseRowId": 15, "defaultRowCommitVersion": 3}
    _commit(log, *gone, {"add": new}, operation="OPTIMIZE")
    with pytest.raises(LogError, match=r"slice 1970-01-01 .* switched off once, and commit 3 \(OPTIMIZE\), or"):
        _pin(log)
    assert len(_pin(log, DAYS[1:]).files) == 2
    # Defect: the next OPTIMIZE, with row tracking on, stored the new ids, and they were taken as those of the appends.
    _rewrite(log, [1, 3, 4])
    with pytest.raises(LogError, match=r"slice 1970-01-01 .* and commit 4 \(OPTIMIZE\), or an earlier one, gave new"):
        _pin(log)
    (log / "day=1970-01-01/compacted.parquet").rename(log / "day=1970-01-01/second.parquet")
    commits_of(log)[-1].unlink()
    _rewrite(log, [0, 2, 4])  # records of commits before and after it
    assert len(_pin(log).files) == 3


@pytest.mark.parametrize("is_later", [False, True])
def test_files_that_were_compacted_meanwhile_are_refused_in_every_log(tmp_path: Path, *, is_later: bool) -> None:
    """Defect: only a log with row tracking from its creation, and with its first commit, was looked at."""
    if is_later:
        log = _write(tmp_path / "log", [[1], [1], [2]])
        track_rows_later(log, Random(1), after=2)
    else:
        log = _born(tmp_path)
        DeltaTable(str(log)).create_checkpoint()
        commits_of(log)[0].unlink()
    version = len(commits_of(log)) + (not is_later)
    [add, *_] = [add for add in _adds(log) if add["partitionValues"]["day"] == "1970-01-02"]
    path = "day=1970-01-02/compacted.parquet"
    shutil.copy(log / add["path"], log / path)
    new = add | {"path": path, "dataChange": False, "baseRowId": 100, "defaultRowCommitVersion": version}
    entries = [{"remove": {**add, "deletionTimestamp": 0, "dataChange": False}}, {"add": new}]
    _commit(log, *entries, operation="OPTIMIZE", version=version)
    assert _lost(log) == {"1970-01-02"}
    commits_of(log)[-1].unlink()
    assert not _lost(log)


@pytest.mark.parametrize("operation", ["UPDATE", "MERGE"])
@pytest.mark.parametrize("is_kept", [False, True])
def test_files_that_were_changed_while_row_tracking_was_off_are_refused(
    tmp_path: Path, operation: str, *, is_kept: bool
) -> None:
    """Defect: records that an UPDATE had only copied were taken as appended by it, once OPTIMIZE had stored that.

    Of a MERGE, they were taken so at once. With row tracking on, both keep the versions of these records, and say so.
    """
    log = _born(tmp_path)
    old = next(add for add in _adds(log) if add["partitionValues"]["day"] == "1970-01-01")
    path = "day=1970-01-01/changed.parquet"
    shutil.copy(log / old["path"], log / path)
    gone = {"remove": {**old, "deletionTimestamp": 0, "dataChange": True}}
    new = old | {"path": path, "dataChange": True, "baseRowId": 15, "defaultRowCommitVersion": 3}
    tags = {"delta.rowTracking.preserved": "true"} if is_kept else {}
    _commit(log, gone, {"add": new}, operation=operation, tags=tags)
    _rewrite(log, [1, 2, 3])
    lost = set() if is_kept else {"1970-01-01"}
    assert _lost(log) == lost
    commits_of(log)[-1].unlink()
    assert _lost(log) == {"1970-01-01"}, "the file has no stored ids of rows"


def _lost(log: Path) -> frozenset[str]:
    """Return the slices whose order is lost, whatever commits have removed records."""
    pinned = pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day"), slices=DAYS, may_be_changed=True)
    return pinned.unordered(BY_COMMITS)


def test_a_log_that_has_dropped_row_tracking_and_got_it_again_is_refused(tmp_path: Path) -> None:
    """Defect: the ids of the backfill were taken as those of the creation, and a checkpoint as a proof of appends."""
    log = _born(tmp_path)
    metadata = next(json.loads(line) for line in commits_of(log)[0].read_text().splitlines() if "metaData" in line)
    metadata["metaData"]["configuration"]["delta.rowTracking.materializedRowIdColumnName"] = "_row-id-col-2"
    places = enumerate(reversed(_adds(log)))
    again = [
        {"add": add | {"dataChange": False, "baseRowId": 3 * n, "defaultRowCommitVersion": 3}} for n, add in places
    ]
    _commit(log, *again, operation="ROW TRACKING BACKFILL")
    _commit(log, metadata, operation="SET TBLPROPERTIES")
    for order in (BY_COMMITS, CommitOrder(row_ids=False)):
        with pytest.raises(LogError, match=r"commit 3 \(ROW TRACKING BACKFILL\), or an earlier one, gave"):
            _pin(log, order=order)
    assert _unordered(log) == {"1970-01-01", "1970-01-02"}
    DeltaTable(str(log), version=2).create_checkpoint()
    proven = appended_files(DeltaPlace(uri=str(log)).open(2).log_files())
    assert proven is not None
    assert len(proven) == 5
    DeltaTable(str(log)).create_checkpoint()
    assert appended_files(DeltaPlace(uri=str(log)).open().log_files()) is None
