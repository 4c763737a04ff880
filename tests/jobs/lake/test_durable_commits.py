"""Commits are awaited with their files, old commits go when the disk has the checkpoint, and races stay races."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.durability import SETTING
from jobs.lake.durable_commits import LAST_CHECKPOINT, added_paths, log_files
from jobs.lake.plain_table import Replacement, create_plain, open_plain, replace_slices, write_rows
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.ledger import Ledger
from tests.support.write_faults import Call
from tests.support.write_sweeps import undurable

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


def test_what_no_fsync_has_awaited_is_found(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_text("x")
    written = [Call("mkdir", "t"), Call("create", "t/x#1"), Call("write", "t/x#1"), Call("link", "t/x")]
    assert undurable(written, tmp_path) == ["t", "t/x"]
    assert undurable([*written, Call("fsync", "t/x")], tmp_path) == ["t", "t/x"], "its name is not awaited"
    assert undurable([*written, Call("fsync", "t/x"), Call("fsync", "t"), Call("fsync", ".")], tmp_path) == []
    assert undurable([*written, Call("fsync", "t"), Call("fsync", ".")], tmp_path) == ["t/x"], "its content is not"
