"""The newest event and the newest commit of a ledger: a change or a loss of them is detected by every reader."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.lake.durable_commits import added_paths
from jobs.ledger.chain import GENESIS, event_hash
from jobs.ledger.events import EventKind, LedgerEvent, ledger_schema
from jobs.ledger.head import Head, read_head, write_head
from jobs.ledger.history import REMEMBERED
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.lost_commits import lost_commits, restore_commits
from tests.jobs.ledger.test_history import found, request
from tests.support.fuzzing import seeds
from windowlib.errors import LedgerError


def opened(uri: Path, **options: Any) -> Ledger:  # noqa: ANN401 - those of Ledger
    return Ledger(str(uri), now_ms=lambda: 1, **options)


def new_process(uri: Path) -> Ledger:
    """Return a ledger as a process has it that has not read it before."""
    REMEMBERED.forget_all()
    return opened(uri)


def tip_of(uri: Path) -> str:
    """Return the hash of the newest event, computed from its row."""
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return event_hash(max(rows, key=lambda row: (row["seq"], row["ordinal"])))


@pytest.fixture
def rolled_back(tmp_path: Path) -> Path:
    """A ledger of three commits: a publication of three days, its rollback, and a note by the same person."""
    uri, events = tmp_path / "ledger", request(1, 3)
    opened(uri).write(lambda _view: events)
    published = [one for one in events if one.kind is EventKind.PUBLISHED]
    columns = ("request_id", "slice_id", "slice_start_ms", "slice_end_ms")
    hidden = [
        LedgerEvent(
            kind=EventKind.ROLLED_BACK,
            who="me",
            reason="wrong",
            details={"undoes": 1},
            **{name: getattr(one, name) for name in columns},
        )
        for one in published
    ]
    opened(uri).write(lambda _view: hidden)
    assert new_process(uri).view().published == {}
    return uri


def newest_commit(uri: Path) -> Path:
    return max(uri.glob("_delta_log/*.json"))


def newest_data_file(uri: Path) -> Path:
    added = [json.loads(line).get("add", {}).get("path") for line in newest_commit(uri).read_text().splitlines()]
    [name] = [one for one in added if one]
    return uri / str(name)


def change_newest_event(uri: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the last event in its data file, as damage that Parquet does not notice."""
    path = newest_data_file(uri)
    rows = pq.ParquetFile(path).read().to_pylist()
    change(rows[-1])
    pq.write_table(pa.Table.from_pylist(rows, schema=ledger_schema()), path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("slice_id", "2024-01-09"),
        ("run_id", "another"),
        ("request_id", "another"),
        ("who", "somebody"),
        ("reason", None),
        ("event", "note"),
        ("details", "{"),
        ("details", None),
        ("commit_events", None),
        ("seq", None),
        ("hash", None),
        ("hash", GENESIS),
        ("at_ms", 2),
    ],
)
def test_a_change_of_the_newest_event_is_detected(rolled_back: Path, column: str, value: object) -> None:
    """Defect: nothing covered the last event. With another `slice_id`, the withdrawn slice was public again."""
    change_newest_event(rolled_back, lambda row: row.update({column: value}))
    with pytest.raises(LedgerError) as refused:
        new_process(rolled_back).view()
    assert str(rolled_back) in str(refused.value)
    assert ".parquet" in str(refused.value) or column == "seq"
    assert ("begun before 23 November" in str(refused.value)) is ((column, value) == ("hash", None))


def test_a_lost_newest_commit_is_detected_by_every_process(rolled_back: Path) -> None:
    """Defect: without the commit file of a rollback, the withdrawn publication was public again."""
    in_use = opened(rolled_back)
    in_use.view()
    newest_commit(rolled_back).unlink()
    for ledger in (in_use, opened(rolled_back)):
        with pytest.raises(LedgerError, match=r"at version 1, but this process has seen version 2|cannot be read"):
            ledger.view()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"lost its last commits: its head names version 2 .* at version 1"):
            new_process(rolled_back).view()
    with pytest.raises(LedgerError, match="has lost its last commits"):
        new_process(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])


def test_a_process_refuses_a_version_below_one_that_it_has_seen(rolled_back: Path) -> None:
    """Defect: a process that had read version 2 read version 1 as if nothing had happened. The head is lost, too."""
    opened(rolled_back).view()
    newest_commit(rolled_back).unlink()
    shutil.rmtree(rolled_back / "_head")
    with pytest.raises(LedgerError, match="at version 1, but this process has seen version 2"):
        opened(rolled_back).view()


def test_a_ledger_that_was_made_anew_at_the_same_place_is_another_one(rolled_back: Path) -> None:
    opened(rolled_back).view()
    shutil.rmtree(rolled_back)
    opened(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE, reason="new")])
    assert opened(rolled_back).view().version == 1


def test_a_person_can_go_on_without_lost_commits(rolled_back: Path) -> None:
    opened(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])
    for _ in range(2):
        newest_commit(rolled_back).unlink()
    with pytest.raises(LedgerError, match="hindcast recover"):
        new_process(rolled_back).view()
    lost = new_process(rolled_back).recover(who="me", reason="the disk failed")
    assert lost.version == 3
    view = new_process(rolled_back).view()
    assert view.version == 2
    assert len(view.published) == 3, "the rollback is lost, so its publication is public again"
    assert read_head(str(rolled_back)) == Head(version=2, tip=tip_of(rolled_back))
    with pytest.raises(LedgerError, match="nothing to recover"):
        opened(rolled_back).recover(who="me", reason="again")
    opened(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])
    assert new_process(rolled_back).view().version == 3


def test_commits_that_another_history_replaced_are_detected(rolled_back: Path) -> None:
    """The newest commit was lost, and an earlier version of Hindcast, which knows no head, has written another one."""
    newest_commit(rolled_back).unlink()
    head = read_head(str(rolled_back))
    shutil.rmtree(rolled_back / "_head")
    new_process(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])
    assert head is not None
    write_head(str(rolled_back), head)
    with pytest.raises(LedgerError, match="has other events there"):
        new_process(rolled_back).view()


def test_a_writer_that_was_killed_before_its_head_file_leaves_a_readable_ledger(
    rolled_back: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jobs.ledger.table.write_head", killed)
    with pytest.raises(KeyboardInterrupt):
        opened(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])
    monkeypatch.undo()
    assert new_process(rolled_back).view().version == 3
    opened(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)])
    head = read_head(str(rolled_back))
    assert head is not None
    assert head.version == 4
    assert len(list(rolled_back.glob("_head/*"))) == 1


def test_a_head_that_cannot_be_written_does_not_fail_the_commit(
    rolled_back: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(rolled_back / "_head")
    (rolled_back / "_head").write_text("a file, where the directory has to be")
    assert opened(rolled_back).write(lambda _view: [LedgerEvent(kind=EventKind.NOTE)]).version == 3
    assert "its head file 00000000000000000003.json was not written" in caplog.text


def test_a_damaged_head_file_is_named(rolled_back: Path) -> None:
    [path] = rolled_back.glob("_head/*")
    for content in (b"", b"{}", b"[]", b"\xff", path.read_bytes().replace(b'"version": 2', b'"version": 1')):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match=f"head file {path} of ledger .* is damaged"):
            new_process(rolled_back).view()


def test_lost_commit_files_are_written_again_if_their_data_files_prove_them(tmp_path: Path) -> None:
    """Defect: with a lost commit in the middle, every command refused the ledger, and `recover` as well."""
    for seed in seeds(4):
        chance, uri = Random(seed), tmp_path / str(seed) / "ledger"
        for number in range(1, 8):
            opened(uri, limits=LedgerLimits(compact_every=5)).write(
                lambda _view, number=number: request(number, 1)  # type: ignore[misc]
            )
        expected = new_process(uri).view()
        commits = sorted(uri.glob("_delta_log/*.json"))
        compaction = commits[6]
        lost = chance.sample([*commits[1:6], *commits[7:]], chance.randrange(1, 4))
        lost = sorted([*lost, *([compaction] if chance.random() < 0.3 else [])])
        active = {Path(file).name for file in DeltaTable(uri).file_uris()}  # a compaction has merged the others
        data = [str(uri / path) for path in added_paths(lost[0]) if path in active]
        data = data if lost[0] != compaction else []
        for commit in lost:
            commit.write_bytes(b"") if chance.random() < 0.3 else commit.unlink()
        if found(new_process(uri)) == expected:
            continue  # the compaction has the events of an empty commit file
        with pytest.raises(LedgerError, match="hindcast recover PIPELINE"):
            new_process(uri).view()
        files = {path: path.read_bytes() for path in uri.rglob("*") if path.is_file() and str(path) not in data}
        if data and chance.random() < 0.5:
            for path in data:
                shutil.move(path, tmp_path / "aside")
            assert new_process(uri).restore_commits(who="me", reason="a test") == (), seed
            assert files == {path: path.read_bytes() for path in uri.rglob("*") if path.is_file()}
            shutil.move(tmp_path / "aside", data[0])
        restored = new_process(uri).restore_commits(who="me", reason="a test")
        assert restored == tuple(int(commit.stem) for commit in lost), seed
        assert new_process(uri).view(expected.version) == expected, seed
        assert new_process(uri).restore_commits(who="me", reason="again") == ()


def test_of_two_files_of_a_version_that_of_the_chain_is_named_again(tmp_path: Path) -> None:
    """Defect: after `recover` had given commits up, the file of a lost commit was found, and so nothing restored."""
    uri = tmp_path / "ledger"
    for number in range(1, 6):
        opened(uri).write(lambda _view, number=number: request(number, 1))  # type: ignore[misc]
    for _ in range(2):
        newest_commit(uri).unlink()
    new_process(uri).recover(who="me", reason="the disk failed")
    for number in range(7, 10):
        opened(uri).write(lambda _view, number=number: request(number, 1))  # type: ignore[misc]
    expected = new_process(uri).view()
    for version in (4, 5):
        (uri / "_delta_log" / f"{version:020}.json").unlink()
        assert new_process(uri).restore_commits(who="me", reason="a test") == (version,)
        assert new_process(uri).view(expected.version) == expected


def test_an_interrupted_recovery_leaves_the_ledger_as_it_was(rolled_back: Path) -> None:
    lost = newest_commit(rolled_back)
    lost.write_bytes(b"{")
    head = read_head(str(rolled_back))
    assert head is not None
    with pytest.raises(KeyboardInterrupt):
        restore_commits(str(rolled_back), (head.version, head.tip), check=Mock(side_effect=KeyboardInterrupt))
    assert lost.read_bytes() == b"{"


def test_a_commit_file_that_may_not_be_read_is_not_lost(rolled_back: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.ledger.lost_commits.read_bytes", Mock(side_effect=PermissionError))
    assert lost_commits(str(rolled_back)) == ()
