"""What a process remembers of a ledger: a new `Ledger` finds the same as one that reads the whole table."""

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.ledger import table
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.history import REMEMBERED, EventHistory, Remembered
from jobs.ledger.ledger import Ledger
from jobs.ledger.projection import Projection, project
from jobs.ledger.table import LedgerTable
from jobs.ledger.view import LedgerView
from jobs.pipeline.slices import slices_between
from tests.jobs.ledger.test_ledger_view import a_result
from tests.support.fake_replay import day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.ledger_chains import published_chain
from windowlib.errors import LedgerError


def opened(uri: Path) -> Ledger:
    return Ledger(str(uri), now_ms=lambda: 1)


def fresh(uri: Path) -> Ledger:
    """Return a ledger that remembers nothing and uses nothing that was remembered."""
    return Ledger(str(uri), now_ms=lambda: 1, store=LedgerTable(str(uri)))


def request(number: int, days: int) -> list[LedgerEvent]:
    """Return the events of a request that publishes some days."""
    slices = slices_between(sales(), day_ms("2024-01-01"), day_ms(f"2024-01-{days + 1:02}"))
    events = published_chain(sales(), slices, log=a_result(1).log)
    runs = {one.run_id: f"{one.run_id}-{number}" for one in events if one.run_id is not None}
    return [replace(one, request_id=f"r{number}", run_id=runs.get(one.run_id or ""), seq=0) for one in events]


def found(ledger: Ledger) -> LedgerView | type[LedgerError]:
    try:
        return ledger.view()
    except LedgerError:
        return LedgerError


class Place:
    """A ledger, and what happens to its files."""

    def __init__(self, uri: Path, chance: Random) -> None:
        self.uri, self.chance, self.backup = uri, chance, uri.with_name("backup")
        self.requests = 0
        self.append()
        shutil.copytree(self.uri, self.backup)

    def append(self) -> None:
        self.requests += 1
        events = request(self.requests, self.chance.randrange(1, 4))
        if not isinstance(found(fresh(self.uri)), LedgerView) and self.uri.exists():
            return  # nothing is appended to a damaged ledger
        self.chance.choice([opened, fresh])(self.uri).write(lambda _view: events)

    def compact(self) -> None:
        if isinstance(found(fresh(self.uri)), LedgerView):
            LedgerTable(str(self.uri)).compact()

    def flip(self) -> None:
        self.flip_file(self.chance.choice(self._data()))

    def flip_file(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        if data:
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
            path.write_bytes(data)

    def lose_a_file(self) -> None:
        self.chance.choice(self._data()).unlink()

    def lose_the_last_commit(self) -> None:
        commits = sorted(self.uri.glob("_delta_log/*.json"))
        if len(commits) > 2:
            commits[-1].unlink()

    def restore(self) -> None:
        shutil.rmtree(self.uri)
        shutil.copytree(self.backup, self.uri)
        REMEMBERED.forget_all()  # a process that has read later versions refuses the restored ledger: it starts again

    def make_anew(self) -> None:
        shutil.rmtree(self.uri)
        self.append()

    def _data(self) -> list[Path]:
        return sorted(self.uri.glob("*.parquet"))


@pytest.mark.slow
def test_a_remembered_ledger_is_read_as_one_that_is_read_from_its_beginning(tmp_path: Path) -> None:
    errors = 0
    for seed in seeds(25):
        chance = Random(seed)
        place = Place(tmp_path / str(seed) / "ledger", chance)
        kinds = [
            place.append, place.append, place.append, place.compact, place.flip, place.lose_a_file,
            place.lose_the_last_commit, place.restore, place.make_anew,
        ]  # fmt: skip
        for _ in range(8):
            action = chance.choice(kinds)
            action()
            expected = found(fresh(place.uri))
            assert found(opened(place.uri)) == expected, f"seed {seed}, after {action.__name__}"
            if expected is LedgerError:
                errors += 1
                place.restore()
    assert errors


def test_a_copied_fold_and_its_original_take_other_events() -> None:
    for seed in seeds(30):
        chance = Random(seed)
        events = [one for number in range(3) for one in request(number, chance.randrange(1, 5))]
        events = [replace(one, seq=number, ordinal=0) for number, one in enumerate(events, start=1)]
        cut = chance.randrange(len(events))
        original = Projection()
        for event in events[:cut]:
            original.add(event)
        if chance.random() < 0.5:
            original.view(cut)
        copied, other = original.copy(), request(9, 4)
        for event in events[cut:]:
            copied.add(event)
        for event in other:
            original.add(event)
        assert copied.view(len(events)) == project(events, version=len(events)), seed
        assert original.view(99) == project([*events[:cut], *other], version=99), seed


def test_the_next_ledger_of_a_process_reads_the_new_events_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "ledger"
    opened(uri).write(lambda _view: request(1, 20))
    rows: list[int] = []
    take_in = EventHistory.take_in

    def counted(self: EventHistory, *args: Any, **named: Any) -> None:  # noqa: ANN401 - those of the method
        rows.append(len(args[0]))
        take_in(self, *args, **named)

    monkeypatch.setattr(EventHistory, "take_in", counted)
    opened(uri).view()
    assert rows == []
    opened(uri).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE, reason="new")])
    fresh(uri).view()
    assert rows == [1, 62]


def test_the_ledger_that_was_used_least_recently_is_forgotten_first() -> None:
    kept = Remembered(10_000)
    histories = {
        name: EventHistory(count=count) for name, count in {"a": 0, "b": 9_000, "c": 1_500, "d": 8_500}.items()
    }
    for name in "abac":
        kept.keep(name, histories[name])
    assert [name for name in "abcd" if kept.find(name) is not None] == ["a", "c"]
    kept.keep("d", histories["d"])
    assert [name for name in "abcd" if kept.find(name) is not None] == ["c", "d"]
    histories["d"].count = 90_000  # it has grown
    kept.keep("d", histories["d"])
    assert [name for name in "abcd" if kept.find(name) is not None] == ["d"]


def test_a_forked_process_remembers_nothing_and_waits_for_no_lock() -> None:
    REMEMBERED.keep("somewhere", EventHistory())
    with REMEMBERED._lock:  # as if another thread kept a history at the moment of the fork
        child = os.fork()
        if child == 0:
            os._exit(0 if REMEMBERED.find("somewhere") is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert REMEMBERED.find("somewhere") is not None


@pytest.mark.slow
def test_threads_take_over_what_another_one_extends(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    opened(uri).write(lambda _view: request(0, 1))
    failures: list[str] = []

    def read() -> None:
        last = 0
        for _ in range(40):
            view = opened(uri).view()
            if view.version < last or view != fresh(uri).view(view.version):
                failures.append(f"{view.version} after {last}")
            last = view.version

    threads = [threading.Thread(target=read) for _ in range(3)]
    for one in threads:
        one.start()
    writer = opened(uri)
    for number in range(1, 10):
        writer.write(lambda _view, number=number: request(number, 2))  # type: ignore[misc]
    for one in threads:
        one.join()
    assert not failures


def test_in_a_store_a_look_reads_the_new_commits_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: it asked for two commit files by their names before, which takes three requests."""
    uri = tmp_path / "ledger"
    looking = LedgerTable(str(uri))
    fresh(uri).write(lambda _view: request(1, 1))
    assert looking.refresh() == 1
    monkeypatch.setattr(table, "is_remote", lambda _uri: True)
    monkeypatch.setattr(table, "is_newest", None)
    assert looking.refresh() == 1
    LedgerTable(str(uri)).compact()
    fresh(uri).write(lambda _view: request(2, 1))
    assert looking.refresh() == DeltaTable(str(uri)).version()
