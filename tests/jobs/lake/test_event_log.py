"""Pinning a log: which logs are accepted, and which are refused before anything is written. No Spark."""

import cProfile
import json
import pstats
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake import log_files
from jobs.lake.commit_history import CommitHistory
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.known_log import KnownLog
from jobs.lake.log_files import Entry, LogFiles
from jobs.pipeline.look_back import LookBack
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.delta_logs import clean_commits, commits_of, cut_off, map_columns
from tests.support.fuzzing import seeds
from windowlib.errors import LogError

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


def pin(log: Path, slices: Sequence[Slice] | LookBack = DAYS, *, known: KnownLog | None = None) -> PinnedLog:
    return pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day"), slices=slices, known=known)


def test_files_are_found_slice_by_slice_with_their_commits(log: Path) -> None:
    _append(log, [date(2013, 2, 1)], records=2)
    pinned = pin(log, DAYS[:2])
    assert pinned.version == 3
    assert {file.slice_id for file in pinned.files} == {"2013-02-01", "2013-02-02"}
    first = pinned.coordinates("2013-02-01")
    assert (first.records, first.files, first.commits) == (6, 2, (0, 3))
    assert pinned.columns == {"id": "string", "at_ms": "bigint", "day": "date"}


def _restored(log: Path, backup: Path) -> KnownLog:
    """Append to a log and read it, and restore it from a backup of before; return what was read."""
    shutil.copytree(log, backup)
    _append(log, [date(2013, 2, 1)])
    known = pin(log).known()
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    return known


def test_a_restored_table_has_not_the_commits_that_it_has_lost(log: Path, tmp_path: Path) -> None:
    """Defect: the coordinates of a slice had commits that were newer than their version, and it changed for ever."""
    known = _restored(log, tmp_path / "backup")
    assert pin(log, known=replace(known, opened=None)).coordinates("2013-02-01").commits == (0,)


def test_a_commit_that_is_removed_after_the_listing_is_named(log: Path) -> None:
    """Defect: log retention behind a plan ended it with a traceback."""
    files = DeltaPlace(uri=str(log)).open().log_files()
    commits_of(log)[1].unlink()
    with pytest.raises(LogError, match=r"0001\.json of event log .* was removed after the log was listed .* Run again"):
        files.entries(1)


def test_a_day_of_another_zone_begins_at_its_own_midnight(log: Path) -> None:
    """2013-02-02 in Kathmandu begins at 18:15 UTC of the day before, so a UTC slice holds it only from there."""
    pinned = pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day", timezone="Asia/Kathmandu"), slices=DAYS[:1])
    assert pinned.partitions() == {"2013-02-02": "2013-02-01"}


def test_a_log_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nowhere does not exist; load it first"):
        pin(tmp_path / "nowhere")


def test_a_directory_that_is_not_a_delta_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not a Delta table"):
        pin(tmp_path)


def test_a_slice_column_that_is_not_a_partition_column_is_refused(log: Path) -> None:
    with pytest.raises(LogError, match=r"'id' of .* is a string, and the log is partitioned by \['day'\]"):
        pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="id"), slices=DAYS)


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


def test_a_delete_outside_the_range_is_accepted(log: Path) -> None:
    DeltaTable(str(log)).delete("id = '2013-02-03/1'")
    assert len(pin(log, DAYS[:2]).files) == 2


def test_a_lost_file_is_named_with_its_slice(log: Path) -> None:
    lost = next((log / "day=2013-02-02").glob("*.parquet"))
    lost.unlink()
    with pytest.raises(LogError, match=r"names 1 file of the range that does not exist") as refused:
        pin(log)
    assert lost.name in str(refused.value)
    assert "slice 2013-02-02, 4 records" in str(refused.value)
    assert len(pin(log, DAYS[:1]).files) == 1


def test_records_without_a_slice_are_refused_with_their_count(log: Path) -> None:
    _append(log, [None], records=3)
    with pytest.raises(LogError, match="has 3 records whose slice column 'day' is null"):
        pin(log)
    for commit in commits_of(log):
        lines = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        for add in (line["add"] for line in lines if "add" in line):
            del add["stats"]
        commit.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    with pytest.raises(LogError, match="has records whose slice column 'day' is null"):
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
    """Delta escapes `:`, `+` and spaces in paths. The file must still be found."""
    rows = pa.table({"id": ["a"], "hour": [value]})
    write_deltalake(str(tmp_path / "log"), rows, partition_by=["hour"])
    hour = Slice(slice_id="2013-02-01T05", start_ms=START_MS + 5 * 3_600_000, end_ms=START_MS + 6 * 3_600_000)
    pinned = pin_log(DeltaPlace(uri=str(tmp_path / "log")), by=SliceGrammar(by="hour"), slices=[hour])
    assert pinned.partitions() == {value: "2013-02-01T05"}


def test_a_text_partition_that_is_not_a_time_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "log"), pa.table({"id": ["a"], "hour": ["yesterday"]}), partition_by=["hour"])
    with pytest.raises(LogError, match="has the value 'yesterday', which is not an ISO date or time"):
        pin_log(DeltaPlace(uri=str(tmp_path / "log")), by=SliceGrammar(by="hour"), slices=DAYS)


def test_the_advice_for_a_text_partition_that_is_not_a_time_works(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_deltalake(str(log), pa.table({"id": ["a", "b"], "day": ["2013-02-01", "yesterday"]}), partition_by=["day"])
    with pytest.raises(LogError, match=r"Remove the records with that value \(DELETE\), and append them again"):
        pin(log)
    write_deltalake(str(log), pa.table({"id": ["b"], "day": ["2013-02-01"]}), mode="append")
    DeltaTable(str(log)).delete("day = 'yesterday'")
    assert pin(log).coordinates("2013-02-01").records == 2


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("change", ["delete", "update"])
def test_a_change_in_a_log_with_mapped_columns_is_found(log: Path, mode: str, change: str) -> None:
    """If columns are mapped, commits name partition columns by their physical names."""
    if change == "delete":
        DeltaTable(str(log)).delete("id = '2013-02-02/1'")
    else:
        DeltaTable(str(log)).update(predicate="id = '2013-02-02/1'", updates={"at_ms": "7"})
    map_columns(log, mode)
    with pytest.raises(LogError, match="removed or changed records of slice 2013-02-02"):
        pin(log)
    assert pin(log, DAYS[:1]).coordinates("2013-02-01").commits == (0,)


def test_mapped_columns_without_physical_names_are_refused(log: Path) -> None:
    map_columns(log, "name")
    first = commits_of(log)[0]
    first.write_text(first.read_text().replace("delta.columnMapping.physicalName", "delta.columnMapping.other"))
    with pytest.raises(LogError, match=r"gives no physical name of 'at_ms', 'day', 'id'|cannot be opened|failed"):
        pin(log)


def test_a_commit_that_does_not_name_the_partition_is_refused(log: Path) -> None:
    """A commit whose partition is unknown must not count as a commit of another partition."""
    last = commits_of(log)[-1]
    last.write_text(last.read_text().replace('"partitionValues":{"day"', '"partitionValues":{"week"'))
    with pytest.raises(LogError, match=r"without its partition by 'day'|failed"):
        pin(log)


def test_after_a_restore_a_log_with_a_delete_is_accepted(log: Path) -> None:
    """The advice of the error message works: after a RESTORE the log is accepted, with the same files."""
    before = pin(log).coordinates("2013-02-02")
    DeltaTable(str(log)).delete("id = '2013-02-02/1'")
    with pytest.raises(LogError, match="restore the table to version 2"):
        pin(log)
    DeltaTable(str(log)).restore(2)
    after = pin(log)
    assert after.coordinates("2013-02-02").digest == before.digest
    assert after.coordinates("2013-02-02").commits == before.commits
    assert (after.history.sound, after.version) == (4, 4)
    DeltaTable(str(log)).update(predicate="id = '2013-02-03/1'", updates={"at_ms": "7"})
    with pytest.raises(LogError, match=r"commit 5 \(UPDATE\)"):
        pin(log)


def test_a_restore_that_loses_what_was_appended_since_a_delete_is_refused(log: Path) -> None:
    """Defect: the files were those of before the DELETE, so the slice counted as whole without the new records."""
    DeltaTable(str(log)).delete("id = '2013-02-02/1'")
    _append(log, [date(2013, 2, 2)])
    DeltaTable(str(log)).restore(2)
    with pytest.raises(LogError, match=r"commit 5 \(RESTORE\) removed or changed records of slice 2013-02-02"):
        pin(log)
    assert pin(log, DAYS[2:]).history.sound == 2, "after the DELETE, records were missing until the RESTORE"
    _append(log, [date(2013, 2, 2)])
    DeltaTable(str(log)).restore(5)
    with pytest.raises(LogError, match=r"commit 5 \(RESTORE\) removed or changed records of slice 2013-02-02"):
        pin(log)


def test_a_restore_behind_a_delete_of_what_was_appended_since_another_delete_is_refused(log: Path) -> None:
    """Defect: such a RESTORE only adds files, so the second DELETE counted as undone, too."""
    for _ in range(2):
        DeltaTable(str(log)).delete("day = '2013-02-02'")
        _append(log, [date(2013, 2, 2)])
    DeltaTable(str(log)).delete("day = '2013-02-02'")
    DeltaTable(str(log)).restore(2)
    with pytest.raises(LogError, match=r"commit 5 \(DELETE\) removed or changed records of slice 2013-02-02"):
        pin(log)


def test_a_restore_to_a_version_without_some_records_is_refused(log: Path) -> None:
    """Version 1 has no record of the third day, so the RESTORE removes records."""
    DeltaTable(str(log)).restore(1)
    with pytest.raises(LogError, match=r"commit 3 \(RESTORE\) removed or changed records of slice 2013-02-03"):
        pin(log)


def test_commits_that_earlier_runs_have_read_are_not_read_again(log: Path) -> None:
    first = pin(log)
    assert first.history.read == 3
    _append(log, [date(2013, 2, 3)])
    again = pin(log, known=first.known())
    assert (again.history.read, again.history.since) == (1, 3)
    assert again.coordinates("2013-02-03").commits == (2, 3), "the commits of earlier reads are kept"
    DeltaTable(str(log)).delete("id = '2013-02-01/1'")
    with pytest.raises(LogError, match=r"commit 4 \(DELETE\)"):
        pin(log, known=again.known())
    assert pin(log, DAYS[1:], known=again.known()).history.sound == 3


def test_for_a_slice_with_other_files_the_commits_since_its_sighting_are_read(log: Path) -> None:
    """Otherwise an OPTIMIZE that an earlier run of another slice has skipped would look like a rewrite."""
    _append(log, [date(2013, 2, 1)])
    seen = pin(log)
    DeltaTable(str(log)).optimize.compact()
    _append(log, [date(2013, 2, 3)])
    known = replace(pin(log).known(), seen={"2013-02-01": [seen.coordinates("2013-02-01")]})
    assert pin(log, known=known).history.since == 4


def test_a_slice_has_no_commit_of_slices_that_its_run_does_not_read(log: Path) -> None:
    """Defect: `log.distinct` counted a commit of the first day for the third, whose run reads the second day, too.

    Commits that a run has read are not read again, and what it saw of the second day covers the first.
    """
    _append(log, [date(2013, 2, 1)])
    reach = {DAYS[1].slice_id: range(1), DAYS[2].slice_id: range(1, 2)}
    back = LookBack(slices=DAYS, reach=reach)
    known = pin(log, back).known()
    _append(log, [date(2013, 2, 9)])
    now = pin(log, back, known=replace(known, opened=None))
    assert now.history.since == 4
    assert {name: now.coordinates(name).commits for name in (DAYS[1].slice_id, DAYS[2].slice_id)} == {
        "2013-02-02": (0, 1, 3),
        "2013-02-03": (1, 2),
    }


def test_other_commits_than_those_that_the_plan_has_read_are_refused(log: Path, tmp_path: Path) -> None:
    """Defect: a table that was restored from a backup between plan and replay had a DELETE that nobody looked at."""
    known = _restored(log, tmp_path / "backup")
    DeltaTable(str(log)).delete("id = '2013-02-01/1'")
    _append(log, [date(2013, 2, 3)])
    with pytest.raises(LogError, match=r"commit 3 of event log .* is not the one that an earlier look"):
        pin(log, known=known)


@pytest.mark.slow
def test_a_log_is_sound_if_it_has_all_records_that_were_appended(tmp_path: Path) -> None:
    """Compares random appends, deletes, OPTIMIZEs and RESTOREs with a model that has the records of each version."""
    for seed in seeds(12):
        _play(random.Random(seed), tmp_path / str(seed))


def _play(chance: random.Random, log: Path) -> None:
    _append(log, [date(2013, 2, 1), date(2013, 2, 2)], records=2)
    versions = [_records(log)]
    known: KnownLog | None = None
    for step in range(chance.randrange(2, 8)):
        day = chance.choice([1, 2])
        match chance.choice(["append", "delete", "optimize", "restore", "restore"]):
            case "append":
                rows = [{"id": f"step {step}", "at_ms": step, "day": date(2013, 2, day)}]
                write_deltalake(str(log), pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")
            case "delete":
                DeltaTable(str(log)).delete(f"day = '2013-02-0{day}' and at_ms = {chance.randrange(3)}")
            case "optimize":
                DeltaTable(str(log)).optimize.compact()
            case _:
                DeltaTable(str(log)).restore(chance.randrange(max(1, len(versions) - 1))) if versions[1:] else None
        while len(versions) <= DeltaTable(str(log)).version():
            versions.append(_records(log, len(versions)))
        for number, one in enumerate(DAYS[:2]):
            is_sound = _is_sound([version[number] for version in versions])
            assert _accepts(log, one, None) == is_sound, f"{one.slice_id} after {versions}"
            # With `known`, a RESTORE to files from before the known version is refused, even if the records are equal.
            assert is_sound or not _accepts(log, one, known)
        if chance.random() < 0.3 and all(_accepts(log, one, None) for one in DAYS[:2]):
            known = pin(log).known()


def _records(log: Path, version: int = 0) -> tuple[frozenset[str], ...]:
    rows = DeltaTable(str(log), version=version).to_pyarrow_table().to_pylist()
    return tuple(frozenset(row["id"] for row in rows if row["day"].day == day) for day in (1, 2))


def _is_sound(versions: Sequence[frozenset[str]]) -> bool:
    """Return whether no version lost a record of the version before, or a later version restored all of them.

    A version that restores them and has lost a record that was appended since is never sound again.
    """
    lost: frozenset[str] | None = None
    ever, has_grown = versions[0], False
    for before, after in pairwise(versions):
        if lost is None and not after >= before:
            lost, has_grown = before, False
        elif lost == after:
            if has_grown:
                return False
            lost = None
        has_grown |= not after <= ever
        ever |= after
    return lost is None


def _accepts(log: Path, one: Slice, known: KnownLog | None) -> bool:
    try:
        pin(log, [one], known=known)
    except LogError:
        return False
    return True


def test_a_truncated_data_file_is_named(log: Path) -> None:
    file = next((log / "day=2013-02-02").glob("*.parquet"))
    cut_off(file, keep=0.5)
    with pytest.raises(LogError, match=r"names 1 file of the range that has another size now") as refused:
        pin(log)
    assert file.name in str(refused.value)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_truncated_commit_gives_an_error_of_one_paragraph(log: Path, which: int, keep: float) -> None:
    """An empty newest commit is a version without changes for deltalake: its records would be missing silently."""
    cut_off(commits_of(log)[which], keep=keep)
    with pytest.raises(LogError, match=r"damaged|empty|backup") as refused:
        pin(log)
    assert "\n" not in str(refused.value)


def test_an_empty_newest_commit_is_found_even_if_it_was_read_before(log: Path) -> None:
    known = pin(log).known()
    cut_off(commits_of(log)[-1], keep=0)
    with pytest.raises(LogError, match="is empty"):
        pin(log, known=known)


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_truncated_checkpoint_of_delta_gives_an_error_of_one_paragraph(log: Path, keep: float) -> None:
    clean_commits(log)
    [checkpoint] = (log / "_delta_log").glob("*.checkpoint.parquet")
    cut_off(checkpoint, keep=keep)
    with pytest.raises(LogError, match="damaged checkpoint") as refused:
        pin(log)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/Havana"])
def test_partitions_at_the_first_and_last_date_are_accepted(log: Path, zone: str) -> None:
    _append(log, [date.min, date.max])
    pinned = pin_log(DeltaPlace(uri=str(log)), by=SliceGrammar(by="day", timezone=zone), slices=DAYS)
    assert len(pinned.data_ms) == 5
    assert "0001-01-01" not in pinned.partitions()


def test_spellings_of_dates_are_compared_as_instants(tmp_path: Path) -> None:
    """Sorted as text, `20130201` is not next to `2013-02-01`, although both are the same instant."""
    log = tmp_path / "log"
    days = ["2013-02-02", "20130201", "20130203", "2013-02-01", "2013-W05-7"]
    write_deltalake(str(log), pa.table({"id": days, "day": days}), partition_by=["day"])
    pinned = pin(log)
    assert pinned.partitions() == {
        "2013-02-02": "2013-02-02",
        "20130201": "2013-02-01",
        "20130203": "2013-02-03",
        "2013-02-01": "2013-02-01",
        "2013-W05-7": "2013-02-03",
    }
    assert pinned.coordinates("2013-02-01").records == 2
    assert pinned.data_ms == tuple(one.start_ms for one in DAYS)


def test_the_advice_for_records_without_a_slice_works(log: Path) -> None:
    _append(log, [None], records=3)
    with pytest.raises(LogError, match="DELETE … WHERE day IS NULL"):
        pin(log)
    _append(log, [date(2013, 2, 3)], records=3)
    DeltaTable(str(log)).delete("day IS NULL")
    assert pin(log).coordinates("2013-02-03").records == 7


def test_a_shallow_clone_reads_the_files_of_its_original(log: Path, tmp_path: Path) -> None:
    """Its commits name these files by whole URIs."""
    clone = tmp_path / "a clone"
    shutil.copytree(log / "_delta_log", clone / "_delta_log")
    for commit in commits_of(clone):
        commit.write_text(commit.read_text().replace('"path":"', f'"path":"{log.as_uri()}/'))
    assert len(pin(clone).files) == 3
    next((log / "day=2013-02-02").glob("*.parquet")).unlink()
    with pytest.raises(LogError, match="1 file of the range that does not exist"):
        pin(clone)


@pytest.mark.slow
def test_the_cost_of_pinning_is_linear_in_the_size_of_the_log(tmp_path: Path) -> None:
    """Twice the slices, files and commits need twice the calls, not four times."""
    calls = [_calls_to_pin(tmp_path / str(days), days) for days in (25, 50)]
    assert calls[1] < 2.3 * calls[0], calls


def _calls_to_pin(log: Path, days: int) -> int:
    slices = [
        Slice(slice_id=str(n), start_ms=START_MS + n * DAY_MS, end_ms=START_MS + (n + 1) * DAY_MS) for n in range(days)
    ]
    for n in range(days):
        _append(log, [date(2013, 2, 1) + timedelta(days=n)], records=1)
    profile = cProfile.Profile()
    profile.enable()
    pinned = pin(log, slices)
    assert sum(pinned.coordinates(one.slice_id).records for one in slices) == days
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_commits_are_read_at_the_same_time_from_an_object_store(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, together, parse = pin(log).history, Barrier(len(DAYS)), LogFiles._parse

    def waiting(files: LogFiles, path: str) -> Sequence[Entry]:
        together.wait(timeout=30)  # breaks if commits are read one after the other
        return parse(files, path)

    monkeypatch.setattr(log_files, "is_remote", lambda _uri: True)
    monkeypatch.setattr(LogFiles, "_parse", waiting)
    assert pin(log).history == before


def test_the_sound_version_is_computed_once_for_all_slices(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at every partition. Once for each slice, it took 17 s for 10,000 slices."""
    calls: list[int] = []

    def counted(self: CommitHistory) -> int:
        calls.append(1)
        return self.version

    monkeypatch.setattr(CommitHistory, "sound", property(counted))
    assert {pin(log).coordinates(one.slice_id).sound for one in DAYS} == {2}
    assert len(calls) == len(DAYS), "once for each pin"
