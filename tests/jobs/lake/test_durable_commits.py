"""Commits are awaited with their files, old commits go when the disk has the checkpoint, and races stay races."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.durability import SETTING
from jobs.lake import durable_commits
from jobs.lake.durable_commits import LAST_CHECKPOINT, added_paths, log_files, newest_in_log, renew_properties
from jobs.lake.plain_table import Replacement, create_plain, open_plain, replace_slices, write_rows
from jobs.lake.store import ensure_table
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.ledger import Ledger
from tests.support.write_faults import Call
from tests.support.write_sweeps import undurable
from windowlib.errors import StoreError
from windowlib.records import tables

LONG_AGO_S = 1_600_000_000


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that are awaited, with the setting on."""
    paths, checkpoints = list[Path](), set[Path]()
    monkeypatch.setenv(SETTING, "on")

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        paths.append(path)
        if path.name.endswith(".checkpoint.parquet") and path not in checkpoints:
            checkpoints.add(path)
            first = min(file for _, file in log_files(str(path.parents[1])))
            assert first.name < f"{int(path.name[:20]) - 40:020}", "the commits before it are still there"

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def write(uri: Path) -> int:
    event = LedgerEvent(kind=EventKind.NOTE, who="ines", reason="a note")
    return Ledger(str(uri), now_ms=lambda: 1).write(lambda _view: [event]).version


@pytest.mark.slow
def test_each_commit_of_a_ledger_is_awaited_also_where_delta_removes_old_commits(
    tmp_path: Path, awaited: list[Path]
) -> None:
    """Delta writes a checkpoint and removes commits of more than a week before. The checkpoint is awaited before."""
    uri = tmp_path / "ledger"
    version = write(uri)
    checkpoints = 0
    while version < 103:
        for _, file in log_files(str(uri)):
            os.utime(file, (LONG_AGO_S, LONG_AGO_S))
        awaited.clear()
        version = write(uri)
        new = [file for at, file in log_files(str(uri)) if at == version]
        checkpoints += len(new) - 1
        expected = {*new, *(uri / path for file in new if file.suffix == ".json" for path in added_paths(file))}
        expected |= {uri / "_delta_log" / LAST_CHECKPOINT} if len(new) > 1 else set()
        assert expected <= {*awaited}, f"version {version}"
    assert checkpoints == 2
    assert len([*log_files(str(uri))]) < 60, "old commits are removed"


def test_the_commit_of_a_process_that_was_killed_before_it_has_waited_is_awaited_by_the_next(
    tmp_path: Path, awaited: list[Path]
) -> None:
    """A loss of power would take it from under the next commit, and the table with it."""
    uri, rows = str(tmp_path / "rows"), pa.table({"n": [1]})
    with durable_commits.durable_commits(uri):
        write_deltalake(uri, rows)
    write_deltalake(uri, rows, mode="append")
    awaited.clear()
    with durable_commits.durable_commits(uri):
        write_deltalake(uri, rows, mode="append")
    new = [file for at, file in log_files(uri) if at > 0]
    assert {*new, *(Path(uri) / path for file in new for path in added_paths(file))} <= {*awaited}


def test_a_commit_is_awaited_once_by_a_process_unless_its_file_has_changed(tmp_path: Path, awaited: list[Path]) -> None:
    """The four commits before a new one were awaited again with each one, which was a quarter of a small run."""
    uri = tmp_path / "ledger"
    first, _, last = write(uri), write(uri), write(uri)
    awaited.clear()
    write(uri)
    again = {path for path in awaited if path.suffix in {".json", ".parquet"} and path.parent.name != "_head"}
    new = uri / "_delta_log" / f"{last + 1:020}.json"
    assert again == {new, *(uri / path for path in added_paths(new))}
    changed = uri / "_delta_log" / f"{last:020}.json"
    changed.write_bytes(changed.read_bytes())
    awaited.clear()
    write(uri)
    assert changed in awaited
    assert uri / "_delta_log" / f"{first:020}.json" not in awaited


def test_the_directories_above_a_new_table_are_awaited_once(tmp_path: Path, awaited: list[Path]) -> None:
    """Defect: up to the root, with each of the first commits of each table: half of the waits of a small run."""
    uri = tmp_path / "lake" / "rows"
    for mode in ("error", "append"):
        awaited.clear()
        with durable_commits.durable_commits(str(uri)):
            write_deltalake(str(uri), pa.table({"n": [1]}), mode=mode)
        assert (tmp_path in awaited) == (mode == "error")
        assert {uri, uri / "_delta_log"} <= {*awaited}


def test_the_commits_to_several_tables_are_awaited_together(tmp_path: Path, awaited: list[Path]) -> None:
    """Table after table, a small run waited 21 times, and awaited each directory above them as often."""
    places, rows = [tmp_path / "lake" / name for name in "abc"], pa.table({"n": [1]})

    def commit(place: Path) -> None:
        with durable_commits.durable_commits(str(place)):
            write_deltalake(str(place), rows, mode="append")

    with durable_commits.commits_awaited_together():
        for place in (*places, *places):
            commit(place)
        assert not awaited
    commits = {file for place in places for _, file in log_files(str(place))}
    added = {place / path for place in places for _, file in log_files(str(place)) for path in added_paths(file)}
    above = {*places, *(place / "_delta_log" for place in places), tmp_path / "lake", tmp_path, *tmp_path.parents}
    assert len(added) == 6
    assert sorted(awaited) == sorted(commits | added | above)
    awaited.clear()
    with suppress(ZeroDivisionError), durable_commits.commits_awaited_together():
        commit(places[0])
        raise ZeroDivisionError
    assert not awaited
    commit(places[0])
    newest = newest_in_log(str(places[0]))
    assert {places[0] / "_delta_log" / f"{version:020}.json" for version in (newest - 1, newest)} <= {*awaited}


def test_a_table_that_another_process_has_moved_is_not_moved_back(tmp_path: Path, awaited: list[Path]) -> None:
    """Defect: the wait opened the table anew, and a commit from an old version was no conflict any more."""
    uri, schema = str(tmp_path / "current"), pa.schema([("n", pa.int64()), ("slice_id", pa.string())])
    rows = pa.table({"n": [1], "slice_id": ["a"]}, schema)
    create_plain(uri, schema)

    def move(shows: int) -> bool:
        plain = open_plain(uri)
        assert plain is not None
        new = Replacement(schema=schema, slices=["a"], shows=(shows, 7), notes={})
        return replace_slices(plain, [*write_rows(uri, rows)], new)

    mine = open_plain(uri)
    assert mine is not None
    with ThreadPoolExecutor(1) as other:
        assert other.submit(move, 12).result()
    old = Replacement(schema=schema, slices=["a"], shows=(11, 7), notes={})
    assert not replace_slices(mine, [*write_rows(uri, rows)], old)
    moved = open_plain(uri)
    assert moved is not None
    assert moved.shows == (12, 7)
    assert {Path(uri, "_delta_log", f"{1:020}.json"), Path(uri)} <= {*awaited}


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_commit_that_the_disk_does_not_confirm_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Defect: errors of network file systems, such as ESTALE, passed as they were."""
    uri = tmp_path / "ledger"
    write(uri)
    monkeypatch.setenv(SETTING, "on")

    def failing(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    told = rf"table {uri} has a new commit.*not confirmed.*{os.strerror(code)}.*'{uri}.*run the same command again"
    with pytest.raises(StoreError, match=told):
        write(uri)

    def make_tables() -> None:
        with durable_commits.commits_awaited_together():
            for name in "ab":
                ensure_table(str(tmp_path / name), tables.watermarks())

    with pytest.raises(StoreError, match=rf"table {tmp_path}/a and 1 more have a new commit.*'{tmp_path}"):
        make_tables()  # defect: it named all eleven tables of a chunk


def test_a_head_that_the_disk_does_not_confirm_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit is confirmed, so it may be reported."""
    uri = tmp_path / "ledger"
    before = write(uri)
    monkeypatch.setenv(SETTING, "on")

    def failing(descriptor: int) -> None:
        if "/_head" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    assert write(uri) > before
    assert f"its head file {before + 1:020}.json was not written" in caplog.text


def removing(uri: Path, monkeypatch: pytest.MonkeyPatch, **properties: str) -> list[int]:
    """Let a ledger remove commits at each checkpoint. Return a list of the versions at which it begins to."""
    calls = list[int]()
    remove = DeltaTable.cleanup_metadata

    def counted(table: DeltaTable) -> None:
        calls.append(table.version())
        remove(table)

    write(uri)
    stored = {"delta.logRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "5"}
    DeltaTable(uri).alter.set_table_properties(stored | {f"delta.{name}": value for name, value in properties.items()})
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", counted)
    monkeypatch.setenv(SETTING, "on")
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    return calls


def test_only_the_process_that_has_committed_a_checkpoint_removes_old_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: a process that found the ledger without its newest head removed them, too, maybe at the same time."""
    uri = tmp_path / "ledger"
    calls = removing(uri, monkeypatch)
    version, heads = 0, dict[str, bytes]()
    while not calls:
        heads = {path.name: path.read_bytes() for path in (uri / "_head").iterdir()}
        version = write(uri)
    assert calls == [version]
    [newest] = (uri / "_head").iterdir()
    newest.unlink()
    for name, content in heads.items():
        (uri / "_head" / name).write_bytes(content)
    Ledger(str(uri), now_ms=lambda: 1).write(lambda _view: [])
    assert newest.exists()
    assert calls == [version]


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), OSError(errno.EIO, "no disk")])
def test_a_commit_succeeds_if_another_process_removes_the_same_old_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    uri = tmp_path / "ledger"
    removing(uri, monkeypatch)

    def fails(_table: DeltaTable) -> None:
        raise error

    monkeypatch.setattr(DeltaTable, "cleanup_metadata", fails)
    versions = [write(uri) for _ in range(10)]
    assert versions == sorted({*versions})


def test_a_table_whose_property_keeps_all_commits_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = tmp_path / "ledger"
    calls = removing(uri, monkeypatch, enableExpiredLogCleanup="false")
    version = [write(uri) for _ in range(10)][-1]
    assert calls == []
    assert len([path for _, path in log_files(str(uri)) if path.suffix == ".json"]) == version + 1
    assert any(path.suffix == ".parquet" for _, path in log_files(str(uri)))


def test_new_properties_are_committed_with_the_hooks_of_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: deltalake names a table on this machine by a `file://` URI, which was taken for an object store."""
    uri, places = str(tmp_path / "ledger"), list[str]()
    write(Path(uri))
    monkeypatch.setattr(durable_commits, "commit_hooks", places.append)
    table, name = DeltaTable(uri), "delta.logRetentionDuration"
    new = {name: "interval 3 days"}
    assert not renew_properties(uri, table, new, former={})
    assert renew_properties(uri, table, new, former={name: table.metadata().configuration[name]})
    assert places == [uri]


def test_of_a_long_log_only_the_new_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "_delta_log"
    directory.mkdir()
    names = [f"{version:020}.json" for version in range(1_000)] + [LAST_CHECKPOINT, ".tmp", f"{998:020}.crc"]
    names += [f"{version:020}.checkpoint.parquet" for version in (500, 998)]
    for name in names:
        (directory / name).touch()
    made = list[str]()

    class CountedPath(type(tmp_path)):  # type: ignore[misc]
        def __truediv__(self, name: str) -> Path:
            made.append(name)
            return Path(self, name)

    monkeypatch.setattr(durable_commits, "Path", CountedPath)
    assert newest_in_log(str(tmp_path)) == 999
    new = sorted((version, path.name) for version, path in log_files(str(tmp_path), after=997))
    assert new == [(998, f"{998:020}.checkpoint.parquet"), (998, f"{998:020}.json"), (999, f"{999:020}.json")]
    assert len(made) == 3
    assert newest_in_log(str(tmp_path / "nowhere")) == -1


def test_what_no_fsync_has_awaited_is_found(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_text("x")
    written = [Call("mkdir", "t"), Call("create", "t/x#1"), Call("write", "t/x#1"), Call("link", "t/x")]
    assert undurable(written, tmp_path) == ["t", "t/x"]
    assert undurable([*written, Call("fsync", "t/x")], tmp_path) == ["t", "t/x"], "its name is not awaited"
    assert undurable([*written, Call("fsync", "t/x"), Call("fsync", "t"), Call("fsync", ".")], tmp_path) == []
    assert undurable([*written, Call("fsync", "t"), Call("fsync", ".")], tmp_path) == ["t/x"], "its content is not"
