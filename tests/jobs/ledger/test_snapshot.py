"""A ledger that is read from a snapshot is the ledger that is read from its first event, whatever happens to files."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from jobs.ledger import snapshot
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.snapshot import DIRECTORY, read_snapshot, remove_old_snapshots
from jobs.ledger.table import LedgerTable
from jobs.ledger.view import LedgerView
from tests.jobs.ledger.test_history import Place, found, fresh, request
from tests.support.fuzzing import seeds
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = LedgerLimits(snapshot_every=1, compact_every=7)


def process(uri: Path, limits: LedgerLimits = EVERY) -> Ledger:
    """Return the ledger as a new process opens it: it remembers nothing, and may use a snapshot."""
    REMEMBERED.forget_all()
    return Ledger(str(uri), now_ms=lambda: 1, limits=limits)


def snapshots(uri: Path) -> list[Path]:
    return sorted((uri / DIRECTORY).glob("*.zst"))


def begun_after(ledger: Ledger) -> int:
    return ledger._history.begun_after


def random_events(chance: Random, number: int) -> list[LedgerEvent]:
    """Return events that change the fold in every way that a snapshot must keep."""
    own = request(number, chance.randrange(1, 4))
    runs = [event for event in own if event.kind is EventKind.STAGED]
    run = chance.choice(runs)
    place: dict[str, Any] = {"run_id": run.run_id, "slice_id": run.slice_id, "attempt_id": run.attempt_id}
    place |= {"slice_start_ms": run.slice_start_ms, "slice_end_ms": run.slice_end_ms}
    lease = {"lease_id": "l", "holder": None, "length_ms": 5}
    look = {"table_id": "t", "version": number, "commit": "c", "changed": {}}
    more = [
        LedgerEvent(kind=EventKind.LEASED, request_id=f"r{number}", details=lease),
        LedgerEvent(kind=EventKind.STARTED, request_id=f"r{number}", attempt_id="b", details={"slices": ["x"]}),
        LedgerEvent(kind=EventKind.ADOPTED, request_id=f"r{number}", **place, details={"chain_start": True}),
        LedgerEvent(
            kind=EventKind.COMPLETED,
            request_id=f"r{number}",
            details={"compared_with": {f"{run.slice_id}": run.run_id, "later": None}},
        ),
        LedgerEvent(kind=EventKind.FAILED, request_id=f"r{number}", attempt_id="b", reason="it broke"),
        LedgerEvent(kind=EventKind.WAIVED, **place, who="me", reason="known"),
        LedgerEvent(kind=EventKind.VERIFIED, **place, details={"log": run.details["log"], "equal": False}),
        LedgerEvent(kind=EventKind.LOOKED, details=look),
        LedgerEvent(kind=EventKind.CONDEMNED, **place),
        LedgerEvent(kind=EventKind.REMOVED, who="me", details={"superseded": {"a": [run.slice_id]}}),
        replace(run, kind=EventKind.MENDED, attempt_id="m", details={**run.details, "owns_checks": True}),
        LedgerEvent(kind=EventKind.RESUMED, who="me"),
        LedgerEvent(kind=EventKind.CLOSED, request_id=f"r{number}", reason="no"),
    ]
    return own + [event for event in more if chance.random() < 0.3]


class SnapshotPlace(Place):
    """A ledger with snapshots, and what happens to its files and to those of its snapshots."""

    @override
    def append(self) -> None:
        self.requests += 1
        if isinstance(found(fresh(self.uri)), LedgerView) or not self.uri.exists():
            events = random_events(self.chance, self.requests)
            limits = replace(EVERY, snapshot_every=self.chance.choice([1, 1, 10, 1_000]))
            process(self.uri, limits).write(lambda _view: events)

    def read(self) -> None:
        found(process(self.uri))

    def flip_in_snapshot(self) -> None:
        for path in snapshots(self.uri):
            self.flip_file(path)

    def cut_snapshot(self) -> None:
        for path in snapshots(self.uri):
            path.write_bytes(path.read_bytes()[: self.chance.randrange(200)])

    def name_a_future_version(self) -> None:
        for path in snapshots(self.uri):
            path.rename(path.with_name(f"{10**9:020}{path.name[20:]}"))

    def roll_back_to_a_copy(self) -> None:
        """The directory is restored, and the snapshots of the time after the copy stay."""
        kept = [(path.name, path.read_bytes()) for path in snapshots(self.uri)]
        shutil.rmtree(self.uri)
        shutil.copytree(self.backup, self.uri)
        (self.uri / DIRECTORY).mkdir(exist_ok=True)
        for name, content in kept:
            (self.uri / DIRECTORY / name).write_bytes(content)

    @override
    def make_anew(self) -> None:
        kept = [(path.name, path.read_bytes()) for path in snapshots(self.uri)]
        shutil.rmtree(self.uri)
        self.append()
        (self.uri / DIRECTORY).mkdir(exist_ok=True)
        for name, content in kept:
            (self.uri / DIRECTORY / name).write_bytes(content)


@pytest.mark.slow
def test_a_ledger_with_snapshots_is_read_as_one_that_is_read_from_its_first_event(tmp_path: Path) -> None:
    used = errors = 0
    for seed in seeds(8):
        chance = Random(seed)
        place = SnapshotPlace(tmp_path / str(seed) / "ledger", chance)
        actions: list[Callable[[], None]] = [
            place.append, place.append, place.append, place.append, place.read, place.compact, place.flip_in_snapshot,
            place.cut_snapshot, place.name_a_future_version, place.flip, place.lose_a_file,
            place.lose_the_last_commit, place.roll_back_to_a_copy, place.make_anew,
        ]  # fmt: skip
        for _ in range(6):
            action = chance.choice(actions)
            action()
            expected = found(fresh(place.uri))
            ledger = process(place.uri)
            assert found(ledger) == expected, f"seed {seed}, after {action.__name__}"
            used += begun_after(ledger) > 0
            if expected is LedgerError:
                errors += 1
                place.roll_back_to_a_copy()
    assert used
    assert errors


@pytest.mark.slow
def test_the_fold_goes_on_from_a_snapshot_at_each_version(tmp_path: Path) -> None:
    for seed in seeds(2):
        chance, uri = Random(seed), tmp_path / str(seed) / "ledger"
        versions = 4
        for number in range(1, versions + 1):
            events = random_events(chance, number)
            process(uri).write(lambda _view, events=events: events)  # type: ignore[misc]
            shutil.copytree(uri / DIRECTORY, tmp_path / str(seed) / f"snapshot-{number}")
        for number in range(1, versions + 1):
            shutil.rmtree(uri / DIRECTORY)
            shutil.copytree(tmp_path / str(seed) / f"snapshot-{number}", uri / DIRECTORY)
            ledger = process(uri, replace(EVERY, snapshot_every=10**6))
            assert ledger.view() == fresh(uri).view(), (seed, number)
            assert begun_after(ledger) == number
            for at in range(versions + 1):
                assert process(uri).view(at) == fresh(uri).view(at), (seed, number, at)


@pytest.mark.slow
def test_a_view_that_is_read_late_is_that_of_its_version(tmp_path: Path) -> None:
    """Its values are made when they are read; events that the same ledger has taken in meanwhile change none."""
    for seed in seeds(4):
        chance, uri = Random(seed), tmp_path / str(seed) / "ledger"
        ledger = process(uri)
        views = []
        for number in range(1, 7):
            events = random_events(chance, number)
            unread = ledger.write(lambda _view, events=events: events)  # type: ignore[misc]
            expected = fresh(uri).view()
            repr(expected)  # makes all its values now
            views.append((unread, expected))
            if chance.random() < 0.5:
                ledger = process(uri)
        for unread, expected in views:
            assert unread == expected, f"seed {seed}, version {unread.version}"


def test_a_clean_up_leaves_a_snapshot_with_the_brief_of_each_run(tmp_path: Path) -> None:
    """Defect: in a ledger of some hundred runs, each command made all briefs again until 2,000 runs had none."""
    uri, limits = tmp_path / "ledger", replace(EVERY, snapshot_every=30)
    process(uri).write(lambda _view: request(1, 5))
    removed = LedgerEvent(kind=EventKind.REMOVED, who="me", details={"superseded": {"a": ["2024-01-01"]}})
    process(uri, limits).write(lambda _view: [removed])
    ledger = process(uri, limits)
    ledger.view()
    assert begun_after(ledger) == 2
    assert not ledger._history.project.runs.unsettled


def test_a_snapshot_of_another_history_is_not_used(tmp_path: Path) -> None:
    uri, other = tmp_path / "ledger", tmp_path / "other"
    process(uri).write(lambda _view: request(1, 2))
    process(uri).write(lambda _view: request(2, 2))
    shutil.copytree(uri, other)
    process(other).write(lambda _view: request(3, 1))
    process(uri).write(lambda _view: request(4, 3))
    shutil.rmtree(uri / DIRECTORY)
    shutil.copytree(other / DIRECTORY, uri / DIRECTORY)
    assert process(uri).view() == fresh(uri).view()
    assert process(uri).view().requests.keys() == {"r1", "r2", "r4"}


def test_a_snapshot_of_lost_commits_is_replaced_by_one_that_readers_use(tmp_path: Path) -> None:
    """Defect: it was the newest, so each process read all events, and wrote a snapshot that no other one looked at."""
    uri, copy = tmp_path / "ledger", tmp_path / "copy"
    process(uri).write(lambda _view: request(1, 2))
    shutil.copytree(uri, copy)
    process(uri).write(lambda _view: request(2, 2))
    later = snapshots(uri)[-1]
    shutil.copy(later, copy / DIRECTORY)
    shutil.rmtree(uri)
    shutil.copytree(copy, uri)
    process(uri).view()
    ledger = process(uri)
    assert ledger.view() == fresh(uri).view()
    assert begun_after(ledger) == 1
    assert later.name not in {path.name for path in snapshots(uri)}


def test_the_next_events_must_continue_the_chain_of_the_snapshot(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    process(uri).write(lambda _view: request(1, 2))
    other = read_snapshot(str(uri))
    assert other is not None
    other.tip = "f" * 64
    other.tips[other.known] = "f" * 64
    snapshot.write_snapshot(str(uri), other)
    never = replace(EVERY, snapshot_every=10**6)
    assert process(uri, never).view() == fresh(uri).view()  # the head names another hash
    fresh(uri).write(lambda _view: request(2, 2))
    ledger = process(uri, never)
    assert ledger.view() == fresh(uri).view()  # the next event names another hash
    assert begun_after(ledger) == 0


def test_other_code_ignores_a_snapshot_and_makes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = tmp_path / "ledger"
    process(uri).write(lambda _view: request(1, 2))
    (first,) = snapshots(uri)
    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "code_digest", lambda: "0" * 16)
        ledger = process(uri)
        assert ledger.view() == fresh(uri).view()
        assert begun_after(ledger) == 0
        assert len(snapshots(uri)) == 2
    ledger = process(uri)
    ledger.view()
    assert begun_after(ledger) == 1
    unfinished = [f".{number:020}-{'0' * 16}.zst.{'e' * 32}" for number in range(3)]  # of processes that were killed
    for name in unfinished:
        (uri / DIRECTORY / name).touch()
    old = (*unfinished[:2], f"{1:020}-{'0' * 16}.zst")
    assert remove_old_snapshots(str(uri), dry_run=True) == old
    assert len(snapshots(uri)) == 2
    assert remove_old_snapshots(str(uri), dry_run=False) == old
    assert snapshots(uri) == [first]
    assert (uri / DIRECTORY / unfinished[2]).exists(), "a process may write it now"


def test_a_compaction_by_a_writer_leaves_a_snapshot_that_readers_use(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    for number in range(1, 5):
        process(uri, LedgerLimits(snapshot_every=1, compact_every=4)).write(
            lambda _view, number=number: request(number, 2)  # type: ignore[misc]
        )
    assert LedgerTable(str(uri)).refresh() == 5, "version 5 is the compaction"
    ledger = process(uri)
    assert ledger.view() == fresh(uri).view()
    assert begun_after(ledger) == 4


def test_a_killed_writer_leaves_no_part_of_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = tmp_path / "ledger"
    process(uri).write(lambda _view: request(1, 2))

    def killed(path: str, content: bytes) -> None:
        Path(path).write_bytes(content[: len(content) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            process(uri).write(lambda _view: request(2, 2))
    assert [path.name[:20] for path in snapshots(uri)] == [f"{1:020}"]
    assert not [path.name for path in (uri / DIRECTORY).iterdir() if path.name.startswith(".")]
    ledger = process(uri, replace(EVERY, snapshot_every=10**6))
    assert ledger.view() == fresh(uri).view()
    assert begun_after(ledger) == 1


def test_a_ledger_that_nobody_may_write_to_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = tmp_path / "ledger"
    fresh(uri).write(lambda _view: request(1, 2))

    def refused(place: str) -> None:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr(snapshot, "make_directory", refused)
    assert process(uri).view() == fresh(uri).view()
    assert not snapshots(uri)


def test_details_that_changed_after_a_snapshot_are_an_error(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    process(uri).write(lambda _view: request(1, 1))
    view = process(uri).view()
    os.truncate(next(uri.glob("*.parquet")), 100)
    (run,) = view.runs.values()
    with pytest.raises(LedgerError, match="cannot be read"):
        len(run.result.checks)


def test_verify_reads_every_event_and_leaves_the_snapshot(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    process(uri).write(lambda _view: request(1, 1))
    process(uri).write(lambda _view: request(2, 1))
    inodes = [path.stat().st_ino for path in snapshots(uri)]
    ledger = process(uri)
    ledger.view()
    assert begun_after(ledger) == 2
    ledger.read_whole()
    assert begun_after(ledger) == 0
    process(uri).view(at=1)  # reads every event, too
    assert [path.stat().st_ino for path in snapshots(uri)] == inodes
    assert ledger.view() == fresh(uri).view()
