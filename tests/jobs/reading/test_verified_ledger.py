"""`verify` compares the ledger with the metadata of table commits, and lists ledger files that no commit names."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.lake.lake import Lake
from jobs.lake.store import ensure_table
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.head import Head
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger
from jobs.ledger.unnamed_files import UnnamedFile, unnamed_files
from jobs.reading.verified_ledger import LedgerVerification, verify_ledger
from jobs.replay.chunk.driver_rows import append_driver_rows
from windowlib.errors import LedgerError
from windowlib.records import tables

NOTE = LedgerEvent(kind=EventKind.NOTE)


class Place:
    """A lake with the ledger of one pipeline, and its table of tallies."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake(root=str(root))
        self.uri = Path(self.lake.ledger("sales"))
        self.tallies = self.lake.table("sales", tables.TALLIES)
        ensure_table(self.tallies, tables.tallies())

    @property
    def ledger(self) -> Ledger:
        REMEMBERED.forget_all()
        return Ledger(str(self.uri), now_ms=lambda: 1)

    def write(self, times: int = 1) -> None:
        for _ in range(times):
            self.ledger.write(lambda _view: [NOTE])

    def commit_rows(self, head: Head | None = None) -> None:
        """Append a row of tallies, as a replay does."""
        ledger = self.ledger
        ledger.view()
        head = head or ledger.newest()
        assert head is not None
        row = dict.fromkeys(tables.tallies().stored_columns()) | {"slice_id": "2024-01-01", "attempt_id": "a"}
        append_driver_rows(self.tallies, tables.tallies(), [row], metadata=head.metadata())

    def lose_commit(self) -> None:
        max(self.uri.glob("_delta_log/*.json")).unlink()

    def verified(self) -> LedgerVerification:
        return verify_ledger(self.ledger)


def unnamed_of(place: Place) -> tuple[UnnamedFile, ...]:
    ledger = place.ledger
    ledger.view()
    return unnamed_files(str(place.uri), ledger.commit_ids())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "lake")
    made.write(3)
    made.commit_rows()
    return made


def test_nothing_is_found_in_a_whole_ledger(place: Place) -> None:
    assert place.verified() == LedgerVerification(findings=(), notes=())
    place.write()
    assert place.verified() == LedgerVerification(findings=(), notes=())


def test_a_loss_of_commits_and_of_the_head_file_is_found_in_the_commits_of_tables(place: Place) -> None:
    place.lose_commit()
    shutil.rmtree(place.uri / "_head")
    for read in (place.ledger.view, place.verified, place.write):
        with pytest.raises(LedgerError, match=r"lost its last commits: its head names version 3 .* ends at version 2"):
            read()
    assert place.ledger.recover(who="me", reason="both are lost").version == 3
    assert place.verified().findings == ()
    assert ["with events of version 3" in note for note in place.verified().notes] == [True]


def test_a_lost_commit_that_another_one_replaced_is_found_in_the_commits_of_tables(place: Place) -> None:
    """An earlier version of Hindcast, which compares no head, may have written on."""
    place.lose_commit()
    shutil.rmtree(place.uri / "_head")
    shutil.rmtree(place.tallies)
    place.write()
    ensure_table(place.tallies, tables.tallies())
    place.commit_rows(Head(version=3, tip="0" * 64))
    assert ["a commit of table" in one.what and "version 3" in one.what for one in place.verified().findings] == [True]


def test_a_ledger_whose_head_file_alone_is_lost_is_read(place: Place) -> None:
    shutil.rmtree(place.uri / "_head")
    [note] = place.verified().notes
    assert "has no head file" in note
    place.write()
    assert place.verified().notes == ()


def test_tables_that_are_newer_than_their_ledger_belong_to_a_copy(place: Place) -> None:
    """`back-up-lake` copies the ledger first, so the copy of a running replay has such tables, and a head."""
    place.commit_rows(Head(version=5, tip="0" * 64))
    assert place.verified().findings == ()
    [note] = place.verified().notes
    assert "is at version 3, and a commit of table tallies was made when it had version 5" in note
    assert "`hindcast recover PIPELINE --reason …` goes on without them" in note


@pytest.mark.parametrize(("writes", "runs"), [(0, 0), (4, 0), (1, 1), (4, 2)])
def test_a_ledger_that_was_restored_from_an_older_copy_goes_on_after_a_person_has_told_it(
    place: Place, tmp_path: Path, writes: int, runs: int
) -> None:
    """Defect: nothing told it, or nothing after the next run, whose commits name events that the ledger has."""
    shutil.copytree(place.uri, tmp_path / "copy")
    place.write(2)
    place.commit_rows()
    shutil.rmtree(place.uri)
    shutil.copytree(tmp_path / "copy", place.uri)
    place.write(writes)
    for _ in range(runs):
        place.commit_rows()
    verified = place.verified()
    assert [len(verified.findings), len(verified.notes)] == ([1, 0] if writes else [0, 1])
    assert place.ledger.recover(who="me", reason="of yesterday").version == 5
    place.write()
    assert place.verified() == LedgerVerification(findings=(), notes=())
    with pytest.raises(LedgerError, match="nothing to recover"):
        place.ledger.recover(who="me", reason="again")


def test_a_damaged_log_of_the_tallies_hides_no_other_damage(place: Place) -> None:
    place.write()
    max(Path(place.tallies, "_delta_log").glob("*.json")).write_bytes(b"{")
    assert ["cannot be compared" in finding.what for finding in place.verified().findings] == [True]
    place.lose_commit()
    assert place.ledger.recover(who="me", reason="both are damaged").version == 4


def test_a_ledger_that_is_gone_is_no_new_one(place: Place) -> None:
    """An incomplete restore, or a rule that expires objects: the next run would begin at version 0, and publish."""
    shutil.rmtree(place.uri)
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"its head names version 3 .* ends at version 0\. Restore"):
            place.write()
    place.ledger.recover(who="ann", reason="lost")
    place.write()
    assert place.ledger.view().version > 0


def test_a_loss_that_a_person_has_accepted_is_no_finding(place: Place) -> None:
    place.write(2)
    place.commit_rows(Head(version=4, tip="0" * 64))
    place.lose_commit()
    place.lose_commit()
    place.ledger.recover(who="me", reason="lost for good")
    verified = place.verified()
    assert verified.findings == ()
    assert {one.versions for one in unnamed_of(place)} == {(4,), (5,)}


def test_files_of_killed_writers_are_listed_and_those_of_compaction_are_not(place: Place) -> None:
    place.write(4)
    ledger = Ledger(str(place.uri), now_ms=lambda: 1)
    ledger.view()
    ledger._store.compact()
    assert unnamed_of(place) == ()
    one = next(iter(place.uri.glob("*.parquet")))
    shutil.copy(one, place.uri / "part-merged.parquet")  # the ledger has its events
    other = pq.ParquetFile(one).read()
    of_a_writer = other.set_column(other.column_names.index("commit_id"), "commit_id", [["other"] * other.num_rows])
    pq.write_table(of_a_writer, place.uri / "part-killed.parquet")
    (place.uri / "part-torn.parquet").write_bytes(one.read_bytes()[:50])
    [killed, torn] = unnamed_of(place)
    assert killed.versions == tuple(sorted(set(other["seq"].to_pylist())))
    assert "is named by no commit. Another write was first and this one was repeated, or" in str(killed)
    assert str(killed).endswith("`hindcast clean` keeps files of ledgers")
    assert "part-torn.parquet, which cannot be read" in str(torn)
    assert place.verified().findings == ()
