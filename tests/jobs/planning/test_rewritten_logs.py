"""Plans and runs after the log was rewritten: OPTIMIZE, DELETE, RESTORE, log retention. No Spark."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.lake import event_log
from jobs.lake.commit_history import read_history
from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.plan import plan_range
from jobs.planning.workspace import Asked, Workspace, open_workspace
from tests.support.delta_logs import clean_commits
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales
from windowlib.errors import LogError

NOW_MS = day_ms("2024-02-01")
RANGE = (day_ms("2024-01-01"), day_ms("2024-01-04"))


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    """A workspace with three published days of two commits each."""
    for day in (1, 2, 3):
        append_day(tmp_path, f"2024-01-0{day}", {"a": 1})
        append_day(tmp_path, f"2024-01-0{day}", {"b": 2})
    opened = open_workspace(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)
    run(opened)
    return opened


def log_of(work: Workspace) -> DeltaTable:
    return DeltaTable(work.lake.event_log(work.pipeline))


def run(work: Workspace) -> list[list[str]]:
    """Run the three days; return the replayed slices, chunk by chunk."""
    replayer = FakeReplayer()
    run_request(work, Asked(from_ms=RANGE[0], to_ms=RANGE[1], who="me", reason=""), replayer)
    return replayer.replayed


def reasons(work: Workspace) -> list[str]:
    planned = plan_range(work.pipeline, work.lake, work.ledger.view(), from_ms=RANGE[0], to_ms=RANGE[1], now_ms=NOW_MS)
    return [step.reason.value for step in planned.steps]


def forget_commits(work: Workspace) -> None:
    """Remove old commits as log retention does, after a new commit to another slice."""
    append_day(Path(work.lake.root), "2024-01-09", {"a": 1})
    clean_commits(Path(work.lake.event_log(work.pipeline)))


def test_optimize_makes_no_slice_stale_while_its_commit_can_be_read(work: Workspace) -> None:
    log_of(work).optimize.compact()
    assert reasons(work) == ["current"] * 3
    assert run(work) == []


def test_log_retention_alone_makes_no_slice_stale(work: Workspace) -> None:
    forget_commits(work)
    assert reasons(work) == ["current"] * 3


def test_after_optimize_and_log_retention_one_replay_makes_the_slices_current(work: Workspace) -> None:
    """Equal records give the same run. Its second attempt records the new files."""
    published = dict(work.ledger.view().published)
    log_of(work).optimize.compact()
    forget_commits(work)
    assert reasons(work) == ["input unverified"] * 3
    assert run(work) == [["2024-01-01", "2024-01-02", "2024-01-03"]]
    assert reasons(work) == ["current"] * 3
    assert work.ledger.view().published == published
    assert run(work) == []


def test_a_deleted_and_an_inserted_record_make_a_slice_unverified(work: Workspace) -> None:
    """The number of records is the same, and the commits that tell the difference are gone."""
    published = dict(work.ledger.view().published)
    log_of(work).delete("id = '2024-01-02/b/2'")
    append_day(Path(work.lake.root), "2024-01-02", {"c": 3})
    with pytest.raises(LogError, match=r"\(DELETE\) removed or changed records of slice 2024-01-02"):
        reasons(work)
    forget_commits(work)
    assert reasons(work) == ["current", "input unverified", "state before changed"]
    run(work)
    assert reasons(work) == ["current"] * 3
    after = work.ledger.view().published
    assert after["2024-01-01"] == published["2024-01-01"]
    assert after["2024-01-02"] != published["2024-01-02"]


def test_after_a_delete_and_the_advised_restore_every_slice_is_current(work: Workspace) -> None:
    version = log_of(work).version()
    log_of(work).delete("id = '2024-01-02/b/2'")
    with pytest.raises(LogError, match=f"Restore the table to version {version},"):
        reasons(work)
    log_of(work).restore(version)
    assert reasons(work) == ["current"] * 3
    assert run(work) == []
    append_day(Path(work.lake.root), "2024-01-03", {"c": 3})
    assert reasons(work) == ["current", "current", "input changed"]


def test_a_plan_reads_new_commits_only(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits that a run has seen are not read again, for any slice."""
    read: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on unchanged
        history = read_history(*arguments, **named)
        read.append(history.read)
        return history

    monkeypatch.setattr(event_log, "read_history", counted)
    assert reasons(work) == ["current"] * 3
    append_day(Path(work.lake.root), "2024-01-03", {"c": 3})
    reasons(work)
    run(work)
    assert read == [0, 1, 1, 0], "two plans, the plan of the run, which its steps take, the chunk"
