"""The ledger table: processes lose no event, a race has one winner, a decision sees the newest version."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.durable_commits import added_paths
from jobs.ledger.chain import event_hash
from jobs.ledger.events import EventKind, LedgerEvent, ledger_schema
from jobs.ledger.head import Head
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.projection import Projection, project
from jobs.ledger.table import LedgerTable
from jobs.ledger.view import LedgerView
from tests.jobs.ledger.test_history import request
from tests.support.fuzzing import seeds
from tests.support.places import ROOT
from windowlib.errors import HindcastError, LedgerError, RequestError, StoreError

APPENDER = """
import sys
from jobs.ledger.ledger import Ledger
from jobs.ledger.events import EventKind, LedgerEvent
uri, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = Ledger(uri, now_ms=lambda: 7)
for number in range(times):
    ledger.write(lambda view: [LedgerEvent(kind=EventKind.NOTE, who=name, reason=str(number)),
                               LedgerEvent(kind=EventKind.NOTE, who=name, reason=f"{number} again")])
"""
RACER = """
import sys
from jobs.ledger.ledger import Ledger
from jobs.ledger.events import EventKind, LedgerEvent
uri, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = Ledger(uri, now_ms=lambda: 7)
for number in range(rounds):
    def claim(view):
        taken = f"round {number}" in view.requests
        return [] if taken else [LedgerEvent(kind=EventKind.REQUESTED, request_id=f"round {number}", who=name,
        spec_fingerprint="s")]
    ledger.write(claim)
"""


def note(text: str) -> LedgerEvent:
    return LedgerEvent(kind=EventKind.NOTE, reason=text)


def together(code: str, uri: Path, times: int) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(uri), name, str(times)], cwd=ROOT) for name in ("one", "two")
    ]
    assert [process.wait(timeout=120) for process in started] == [0, 0]


def rows(uri: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["seq"], row["ordinal"]))


@pytest.mark.slow
def test_two_processes_append_and_no_event_is_lost(tmp_path: Path) -> None:
    uri = tmp_path / "p" / "ledger"
    together(APPENDER, uri, 25)
    found = rows(uri)
    assert len(found) == 100
    for name in ("one", "two"):
        own = [row["reason"] for row in found if row["who"] == name]
        assert own == [text for number in range(25) for text in (str(number), f"{number} again")]
    by_commit: dict[object, set[object]] = {}
    for row in found:
        by_commit.setdefault(row["seq"], set()).add(row["who"])
    assert len(by_commit) == 50, "one commit per write, and no two writes at one version"
    assert all(len(writers) == 1 for writers in by_commit.values())


def test_a_ledger_that_several_threads_create_is_created_once(tmp_path: Path) -> None:
    for number in range(10):
        uri, barrier = str(tmp_path / str(number)), Barrier(6)

        def create(uri: str = uri, barrier: Barrier = barrier) -> None:
            barrier.wait()
            LedgerTable(uri).create()

        with ThreadPoolExecutor(6) as pool:
            for one in [pool.submit(create) for _ in range(6)]:
                one.result()
        assert DeltaTable(uri).version() == 0


def test_a_write_that_is_refused_or_writes_nothing_creates_no_ledger(tmp_path: Path) -> None:
    """Defect: `hindcast resume` without a request left an empty ledger, and `verify` told that there is none."""
    ledger = Ledger(str(tmp_path / "p" / "ledger"), now_ms=lambda: 1)

    def refuse(_view: LedgerView) -> Sequence[LedgerEvent]:
        raise RequestError("nothing to resume")

    with pytest.raises(RequestError):
        ledger.write(refuse)
    assert ledger.write(lambda _view: []).version == 0
    assert not [*tmp_path.iterdir()]
    assert ledger.write(lambda view: [note(f"first, on {view.version}")]).version == 1


@pytest.mark.slow
def test_a_race_has_one_winner_each_time(tmp_path: Path) -> None:
    uri = tmp_path / "p" / "ledger"
    together(RACER, uri, 15)
    claimed = [row["request_id"] for row in rows(uri)]
    assert sorted(str(one) for one in claimed) == sorted(f"round {number}" for number in range(15))


def test_a_decision_is_repeated_when_another_writer_was_faster(tmp_path: Path) -> None:
    uri = str(tmp_path / "ledger")
    ledger, rival = Ledger(uri, now_ms=lambda: 1), Ledger(uri, now_ms=lambda: 2)
    ledger.write(lambda _view: [note("first")])
    seen: list[int] = []

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        seen.append(view.version)
        if len(seen) == 1:
            rival.write(lambda _view: [note("rival")])
        return [note(f"decided on {view.version}")]

    view = ledger.write(decide)
    assert seen == [1, 2]
    assert view.version == 3
    assert [(row["seq"], row["reason"], row["at_ms"]) for row in rows(Path(uri))] == [
        (1, "first", 1), (2, "rival", 2), (3, "decided on 2", 1),
    ]  # fmt: skip


def test_a_write_fails_after_the_given_number_of_lost_races(tmp_path: Path) -> None:
    uri = str(tmp_path / "ledger")
    naps: list[float] = []
    limits = LedgerLimits(attempts=5)
    ledger = Ledger(uri, now_ms=lambda: 1, sleep=naps.append, limits=limits)
    rival = Ledger(uri, now_ms=lambda: 2)

    def always_late(_view: LedgerView) -> Sequence[LedgerEvent]:
        rival.write(lambda _view: [note("rival")])
        return [note("late")]

    with pytest.raises(LedgerError, match="other writers committed first 5 times"):
        ledger.write(always_late)
    assert len(naps) == 5
    assert max(naps) < 0.2


def test_a_decision_without_events_writes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"), now_ms=lambda: 1)
    assert ledger.view().version == 0
    assert not (tmp_path / "ledger").exists()
    assert ledger.write(lambda _view: []).version == 0


def test_an_exception_of_the_decision_ends_the_write(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"), now_ms=lambda: 1)

    def refuse(_view: LedgerView) -> Sequence[LedgerEvent]:
        raise LedgerError("no")

    with pytest.raises(LedgerError, match="no"):
        ledger.write(refuse)
    assert ledger.view().version == 0


@pytest.mark.slow
@pytest.mark.parametrize("compact_every", [1, 2, 10])
def test_compaction_loses_no_event_and_old_versions_stay_readable(tmp_path: Path, compact_every: int) -> None:
    uri = tmp_path / "ledger"
    ledger = Ledger(str(uri), now_ms=lambda: 1, limits=LedgerLimits(compact_every=compact_every))
    reader = Ledger(str(uri), now_ms=lambda: 1)
    for number in range(25):
        event = LedgerEvent(kind=EventKind.REQUESTED, request_id=f"r{number:03d}", spec_fingerprint="s")
        ledger.write(lambda _view, event=event: [event])  # type: ignore[misc]
        if number == 3:
            reader.view()
    expected = [f"r{number:03d}" for number in range(25)]
    assert list(reader.view().requests) == expected
    assert list(Ledger(str(uri), now_ms=lambda: 1).view().requests) == expected
    third = reader.view().requests["r002"].opened_seq
    assert list(reader.view(at=third).requests) == expected[:3]
    assert len(DeltaTable(uri).file_uris()) < 10
    with pytest.raises(LedgerError, match="has no version 999"):
        reader.view(at=999)


@pytest.mark.parametrize("kind", [LedgerError, StoreError])
def test_a_compaction_that_fails_does_not_fail_the_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[HindcastError]
) -> None:
    """Defect: one `publish` in a hundred could end with status 1 after readers saw the publication."""

    class FullDisk(LedgerTable):
        def compact(self) -> None:
            raise kind("no space")

    uri = str(tmp_path / "ledger")
    ledger = Ledger(uri, now_ms=lambda: 1, limits=LedgerLimits(compact_every=1), store=FullDisk(uri))
    assert ledger.write(lambda _view: [note("first")]).version == 1
    assert "no space. The events are written" in caplog.text


def test_an_unknown_kind_of_event_is_named_in_the_error(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    Ledger(str(uri), now_ms=lambda: 1).write(lambda _view: [note("x")])
    [first] = rows(uri)
    later = first | {"event": "teleported", "seq": 2, "previous": event_hash(first)}
    later["hash"] = event_hash(later)
    write_deltalake(uri, pa.Table.from_pylist([later], schema=ledger_schema()), mode="append")
    with pytest.raises(LedgerError, match=r"'teleported' \(seq 2\) is of an unknown kind; a newer Hindcast"):
        Ledger(str(uri), now_ms=lambda: 1).view()


def test_a_path_that_is_not_a_table_is_a_ledger_error(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("a file")
    with pytest.raises(LedgerError, match="cannot be"):
        Ledger(str(tmp_path / "ledger"), now_ms=lambda: 1).write(lambda _view: [note("x")])


# --- damage: every view detects a lost or changed event ---------------------------------------------------------------


def some_events(uri: Path, commits: int = 6) -> None:
    ledger = Ledger(str(uri), now_ms=lambda: 1, limits=LedgerLimits(compact_every=4))
    for number in range(commits):
        events = [note(f"{number}.{part}") for part in range(3)]
        ledger.write(lambda _view, events=events: events)  # type: ignore[misc]


def replace_table(uri: Path, stored: pa.Table) -> None:
    """Put a table with these rows in the place of the ledger."""
    shutil.rmtree(uri)
    write_deltalake(uri, stored.slice(0, 0), mode="append")
    write_deltalake(uri, stored, mode="append")


def test_a_last_commit_without_content_is_detected(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    some_events(uri)
    newest = max((uri / "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    with pytest.raises(
        LedgerError, match=r"hold no events.*has lost its content. Lost or damaged commit files in _delta_log: 7\. "
    ):
        Ledger(str(uri), now_ms=lambda: 1).view()


@pytest.mark.parametrize("torn", ["no commit file", "commit of zeros", "no data file", "data of zeros"])
def test_a_commit_that_a_loss_of_power_has_torn_before_it_was_reported_may_be_removed(
    tmp_path: Path, torn: str
) -> None:
    """The head file is written when the disk has the commit. Here the newest commit has no head yet."""
    uri = tmp_path / "ledger"
    some_events(uri)
    before = Ledger(str(uri), now_ms=lambda: 1).view().version
    head = next((uri / "_head").iterdir())
    kept = head.read_bytes()
    Ledger(str(uri), now_ms=lambda: 1).write(lambda _view: [note("unreported")])
    for newer in (uri / "_head").iterdir():
        newer.unlink()
    head.write_bytes(kept)
    [added] = added_paths(uri / "_delta_log" / f"{before + 1:020}.json")
    commit = uri / "_delta_log" / f"{before + 1:020}.json"
    place = commit if "commit" in torn else uri / added
    place.write_bytes(b"" if torn.startswith("no") else bytes(place.stat().st_size))
    REMEMBERED.forget_all()  # the machine has started again
    told = rf"head file names version {before}\..*most likely.*copy the directory of the ledger first.*{commit.name}"
    with pytest.raises(LedgerError, match=told):
        Ledger(str(uri), now_ms=lambda: 1).view()
    commit.unlink()
    REMEMBERED.forget_all()
    assert Ledger(str(uri), now_ms=lambda: 1).view().version == before


def test_a_ledger_that_lost_its_log_is_not_read_as_empty(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    some_events(uri)
    shutil.rmtree(uri / "_delta_log")
    with pytest.raises(LedgerError, match="it has data files, but its _delta_log has no commit"):
        Ledger(str(uri), now_ms=lambda: 1).view()


def test_a_truncated_file_of_the_ledger_is_named_in_one_paragraph(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    some_events(uri)
    live = {Path(path).name for path in DeltaTable(uri).file_uris()}
    newest = max((uri / "_delta_log").glob("*.json"))
    for file in [*(path for path in uri.glob("*.parquet") if path.name in live), newest]:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(LedgerError) as raised:
            Ledger(str(uri), now_ms=lambda: 1).view()
        file.write_bytes(whole)
        assert file.name in str(raised.value)
        assert "\n" not in str(raised.value)
    assert Ledger(str(uri), now_ms=lambda: 1).view().version


def test_a_commit_that_is_removed_under_a_reader_is_detected(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    some_events(uri)
    reader = Ledger(str(uri), now_ms=lambda: 1)
    version = reader.view().version
    max((uri / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(LedgerError, match=f"has seen version {version} before|cannot be read"):
        reader.view()


class DelayedTable(LedgerTable):
    """A store that does not list its newest objects for a while."""

    hidden = 0

    def refresh(self) -> int:
        return super().refresh() - self.hidden

    def head(self) -> Head | None:
        return None


def test_a_write_never_returns_a_view_without_its_own_commit(tmp_path: Path) -> None:
    """Defect: a delayed listing did not show the commit, and the caller missed its own event in the view."""
    store = DelayedTable(str(tmp_path / "ledger"))
    ledger = Ledger(store.uri, now_ms=lambda: 1, store=store)
    ledger.write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])

    def decide(_view: LedgerView) -> list[LedgerEvent]:
        store.hidden = 1
        return [LedgerEvent(kind=EventKind.NOTE)]

    with pytest.raises(LedgerError, match="at version 1, but this process has seen version 2"):
        ledger.write(decide)
    store.hidden = 0
    assert ledger.view().version == 2


@pytest.mark.parametrize("change", ["reason", "drop first", "drop middle", "drop last of a commit", "swap", "double"])
def test_a_changed_lost_or_moved_event_is_detected(tmp_path: Path, change: str) -> None:
    uri = tmp_path / "ledger"
    some_events(uri)
    stored = rows(uri)
    match change:
        case "reason":
            stored[4]["reason"] = "another one"
        case "drop first":
            del stored[0]
        case "drop middle":
            del stored[7]
        case "drop last of a commit":
            del stored[-1]
        case "swap":
            stored[3]["ordinal"], stored[4]["ordinal"] = stored[4]["ordinal"], stored[3]["ordinal"]
        case _:
            stored.append(stored[5])
    replace_table(uri, pa.Table.from_pylist(stored, schema=ledger_schema()))
    with pytest.raises(LedgerError, match=r"is damaged at event \d of version \d+"):
        Ledger(str(uri), now_ms=lambda: 1).view()


def test_a_ledger_of_another_format_is_refused_with_its_columns(tmp_path: Path) -> None:
    uri = tmp_path / "ledger"
    some_events(uri)
    older = pa.Table.from_pylist(rows(uri), schema=ledger_schema()).drop_columns(["previous", "commit_id"])
    replace_table(uri, older)
    with pytest.raises(LedgerError, match=r"has no column commit_id, previous: another version of Hindcast wrote it"):
        Ledger(str(uri), now_ms=lambda: 1).view()


def seen_in(ledger: Ledger) -> object:
    """All that a reader of a ledger gets: every field of every event, and the view."""
    view = ledger.view()
    return repr((ledger._history.events, view.requests, view.runs, view.published, view.hold, view.decisions))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["all files", "the newest commit"])
def test_a_flipped_bit_in_the_ledger_is_detected_or_harmless(tmp_path: Path, which: str) -> None:
    """L9. Defect: six of 1,200 flips of the newest commit's file changed the view, and others ended in a TypeError.

    Each flip takes milliseconds here. `tests.flips` flips bits in all tables of a lake.
    """
    uri = tmp_path / "ledger"
    some_events(uri)
    Ledger(str(uri), now_ms=lambda: 1).write(lambda _view: request(1, 2))
    REMEMBERED.forget_all()
    undamaged = seen_in(Ledger(str(uri), now_ms=lambda: 1))
    files = sorted(path for path in uri.rglob("*") if path.is_file())
    if which == "the newest commit":
        commit = max(uri.glob("_delta_log/*.json"))
        added = [json.loads(line).get("add", {}).get("path") for line in commit.read_text().splitlines()]
        files = [commit, max(uri.glob("_head/*")), *(uri / path for path in added if path)]
    flips = found = harmless = 0
    for seed in seeds(60):
        flips += 1
        random = Random(seed)
        path = random.choice(files)
        whole = path.read_bytes()
        data, bit = bytearray(whole), random.randrange(len(whole) * 8)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        REMEMBERED.forget_all()
        try:
            assert seen_in(Ledger(str(uri), now_ms=lambda: 1)) == undamaged, f"silent: {path.name}, seed {seed}"
            harmless += 1
        except LedgerError as error:
            found += str(uri) in str(error) and "\n" not in str(error)
        finally:
            path.write_bytes(whole)
    assert found + harmless == flips, "each error is one paragraph that names the ledger"
    assert found
    assert harmless


def calls_of(function: Callable[[], object]) -> int:
    """Count the function calls of a call. Unlike time, this cost does not depend on the load of the machine."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_a_fold_costs_time_linear_in_the_events_and_continues_with_the_new_ones_only() -> None:
    events = [
        LedgerEvent(kind=EventKind.REQUESTED, request_id="r", spec_fingerprint="s"),
        *(
            LedgerEvent(
                kind=EventKind.ADOPTED, request_id="r", slice_id=f"{number:05}", slice_start_ms=number,
                slice_end_ms=number + 1, run_id=f"run{number}", seq=number,
            )
            for number in range(1, 801)
        ),
    ]  # fmt: skip
    half, whole = (calls_of(lambda count=count: project(events[:count], version=1)) for count in (400, 800))  # type: ignore[misc]
    assert whole < 2.2 * half, "twice the events, twice the cost"
    running = Projection()
    for event in events[:-1]:
        running.add(event)
    running.view(1)

    def one_more() -> None:
        running.add(events[-1])

    assert calls_of(one_more) < 30
