"""The tables that a thread keeps: `open_newest` gives the same as a new opening, a listing the files of attempts."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake import delta_tables
from jobs.lake.delta_tables import MOST_KEPT, commit_stamp, forget_table, open_delta, open_newest
from jobs.lake.table_files import Listing
from jobs.storage import FileStamp
from tests.support.fuzzing import seeds


def append(place: Path, number: int, *, attempts: int = 1) -> None:
    rows = [{"slice_id": f"s{number % 3}", "attempt_id": f"a{number}-{one}", "n": number} for one in range(attempts)]
    write_deltalake(str(place), pa.Table.from_pylist(rows), mode="append", partition_by=["slice_id", "attempt_id"])


def content(table: DeltaTable) -> tuple[object, ...]:
    return str(table.metadata().id), table.version(), sorted(table.file_uris())


class Place:
    """A table, and what other processes do to it."""

    def __init__(self, uri: Path, chance: Random) -> None:
        self.uri, self.chance, self.number = uri, chance, 0
        self.append()
        self.append()
        self.backup()

    def append(self) -> None:
        self.number += 1
        append(self.uri, self.number)

    def commit_through_the_kept_table(self) -> None:
        rows = pa.Table.from_pylist([{"slice_id": "s", "attempt_id": "own", "n": 0}])
        write_deltalake(open_newest(str(self.uri)).delta, rows, mode="append")  # moves it, and the cache is not told

    def compact(self) -> None:
        DeltaTable(self.uri).optimize.compact()

    def checkpoint(self) -> None:
        DeltaTable(self.uri).create_checkpoint()

    def lose_the_last_commit(self) -> None:
        commits = sorted(self.uri.glob("_delta_log/*.json"))
        if len(commits) > 1 and not [*self.uri.glob("_delta_log/*.parquet")]:
            commits[-1].unlink()

    def lose_and_append(self) -> None:
        self.lose_the_last_commit()
        self.append()

    def make_anew(self) -> None:
        shutil.rmtree(self.uri)
        for _ in range(self.chance.randrange(1, 4)):
            self.append()

    def backup(self) -> None:
        shutil.rmtree(self.uri.with_name("backup"), ignore_errors=True)
        shutil.copytree(self.uri, self.uri.with_name("backup"))

    def restore(self) -> None:
        shutil.rmtree(self.uri)
        shutil.copytree(self.uri.with_name("backup"), self.uri)


@pytest.mark.slow
def test_a_kept_table_is_read_as_one_that_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: in a store, a process kept a table that was removed and made anew, with its former files."""
    for seed in seeds(30):
        monkeypatch.setattr(delta_tables, "is_remote", lambda _uri, in_store=seed % 2: bool(in_store))
        chance = Random(seed)
        place = Place(tmp_path / str(seed) / "t", chance)
        kinds = [
            place.append, place.append, place.commit_through_the_kept_table, place.compact, place.checkpoint,
            place.lose_the_last_commit, place.lose_and_append, place.make_anew, place.backup, place.restore,
        ]  # fmt: skip
        for _ in range(10):
            action = chance.choice(kinds)
            action()
            expected = content(open_delta(str(place.uri)))
            assert content(open_newest(str(place.uri)).delta) == expected, f"seed {seed}, after {action.__name__}"


def test_a_thread_opens_a_table_once_and_keeps_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t")
    append(tmp_path / "t", 1)
    opened: list[str] = []

    def counted(uri: str) -> DeltaTable:
        opened.append(uri)
        return open_delta(uri)

    monkeypatch.setattr(delta_tables, "open_delta", counted)
    forget_table(uri)
    first = open_newest(uri)
    append(tmp_path / "t", 2)
    assert open_newest(uri) is first
    assert first.delta.version() == first.version == 1
    with ThreadPoolExecutor(1) as other:
        assert other.submit(open_newest, uri).result() is not first
    assert opened == [uri, uri]
    for number in range(MOST_KEPT):
        shutil.copytree(uri, tmp_path / f"copy{number}")
        open_newest(str(tmp_path / f"copy{number}"))
    assert len(delta_tables._KEPT.tables) == MOST_KEPT
    assert open_newest(uri) is not first


def test_a_table_that_is_made_anew_while_it_is_opened_is_not_taken_for_the_kept_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the stamp of the new table was kept with the former table. In a store, it was a request more."""
    uri, read, asked = str(tmp_path / "t"), delta_tables.OpenedTable.read_new_commits, list[int]()

    def made_anew(table: delta_tables.OpenedTable) -> None:
        read(table)
        shutil.rmtree(uri)
        append(tmp_path / "t", 2)

    def noted(uri: str, version: int) -> FileStamp | None:
        asked.append(version)
        return commit_stamp(uri, version)

    append(tmp_path / "t", 1)
    open_newest(uri)
    monkeypatch.setattr(delta_tables, "commit_stamp", noted)
    with monkeypatch.context() as patched:
        patched.setattr(delta_tables.OpenedTable, "read_new_commits", made_anew)
        open_newest(uri)
    assert len(asked) == 1
    assert content(open_newest(uri).delta) == content(open_delta(uri))


def test_a_listing_has_the_files_of_attempts_in_their_order(tmp_path: Path) -> None:
    for seed in seeds(12):
        chance = Random(seed)
        place = tmp_path / str(seed)
        for number in range(chance.randrange(1, 8)):
            append(place, number, attempts=chance.randrange(1, 4))
        if chance.random() < 0.5:
            append(place, 1)  # an attempt with two files
        table = DeltaTable(place)
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        found = [((one["partition.slice_id"], one["partition.attempt_id"]), one["path"]) for one in actions]
        for few in (0, 2, 100):
            listing = Listing(table, few=few)
            for _ in range(4):
                pairs = [pair for pair, _ in found]
                asked = {*chance.sample(pairs, chance.randrange(len(pairs) + 1)), ("s0", "unknown"), ("x", pairs[0][1])}
                expected = [path for pair, path in found if pair in asked]
                assert [one.path for one in listing.of(asked)] == expected, f"seed {seed}, few {few}"


def test_a_listing_is_made_once_for_a_version(tmp_path: Path) -> None:
    append(tmp_path / "t", 1)
    table = open_newest(str(tmp_path / "t"))
    first = table.listing()
    assert table.listing() is first
    append(tmp_path / "t", 2)
    assert open_newest(str(tmp_path / "t")).listing() is table.listing() is not first
    assert [len(one.of({("s1", "a1-0"), ("s2", "a2-0")})) for one in (first, table.listing())] == [1, 2]
