"""Plans and runs after the log was rewritten: OPTIMIZE, DELETE, RESTORE, log retention. No Spark."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake import log_coordinates
from jobs.lake.commit_history import read_history
from jobs.lake.lake import Lake
from jobs.lake.log_files import LogFiles
from jobs.ledger.looks import verified_event
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import run_request
from jobs.pipeline.slices import slices_between
from jobs.planning.log_state import read_log_state
from jobs.planning.plan import Plan
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.planning.steps import Ask
from jobs.publishing.publishing import publish_request
from jobs.review.pages.state import open_request
from jobs.runs import Sighting
from tests.support.delta_logs import clean_commits, commits_of, without_statistics
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from windowlib.errors import LogError

NOW_MS = day_ms("2024-02-01")
RANGE = (day_ms("2024-01-01"), day_ms("2024-01-04"))


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """A context with three published days of two commits each."""
    for day in (1, 2, 3):
        append_day(tmp_path, f"2024-01-0{day}", {"a": 1})
        append_day(tmp_path, f"2024-01-0{day}", {"b": 2})
    opened = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)
    run(opened)
    return opened


def log_of(work: RequestContext) -> DeltaTable:
    return DeltaTable(work.lake.event_log(work.pipeline))


def run(work: RequestContext) -> list[list[str]]:
    """Run the three days; return the replayed slices, chunk by chunk."""
    replayer = FakeReplayer()
    run_request(work, Asked(from_ms=RANGE[0], to_ms=RANGE[1], who="me", reason=""), replayer)
    return replayer.replayed


def run_outcome(work: RequestContext) -> RequestOutcome:
    return run_request(work, Asked(from_ms=RANGE[0], to_ms=RANGE[1], who="me", reason=""), FakeReplayer())


def plan_of(work: RequestContext) -> Plan:
    return work.plan(work.ledger.view(), Ask(slices=slices_between(work.pipeline, *RANGE)))


def reasons(work: RequestContext) -> list[str]:
    return [step.reason.value for step in plan_of(work).steps]


def forget_commits(work: RequestContext) -> None:
    """Remove old commits as log retention does, after a new commit to another slice."""
    append_day(Path(work.lake.root), "2024-01-09", {"a": 1})
    clean_commits(Path(work.lake.event_log(work.pipeline)))


def test_optimize_makes_no_slice_stale_while_its_commit_can_be_read(work: RequestContext) -> None:
    log_of(work).optimize.compact()
    assert reasons(work) == ["current"] * 3
    assert run(work) == []


def test_optimize_of_files_without_statistics_makes_no_slice_stale(tmp_path: Path) -> None:
    """Defect: the new files have statistics, so `0 records then, 2 now` was taken for a change."""
    for day in (1, 2, 3):
        append_day(tmp_path, f"2024-01-0{day}", {"a": 1})
        append_day(tmp_path, f"2024-01-0{day}", {"b": 2})
    opened = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)
    without_statistics(Path(opened.lake.event_log(opened.pipeline)))
    run(opened)
    log_of(opened).optimize.compact()
    assert reasons(opened) == ["current"] * 3
    append_day(tmp_path, "2024-01-03", {"c": 3})
    assert reasons(opened) == ["current", "current", "input changed"]
    publication = run_outcome(opened).publication
    assert publication is not None
    assert publication.is_published


def test_without_statistics_a_commit_that_only_a_run_of_another_slice_has_read_is_not_known(tmp_path: Path) -> None:
    """Defect: the slice to which the commit had appended counted as current when the commit was gone."""
    for day in (1, 2, 3):
        append_day(tmp_path, f"2024-01-0{day}", {"a": 1})
    opened = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)
    log = Path(opened.lake.event_log(opened.pipeline))
    without_statistics(log)
    run(opened)
    for day in (1, 3):
        append_day(tmp_path, f"2024-01-0{day}", {"c": 3})
    without_statistics(log)
    third = Asked(from_ms=day_ms("2024-01-03"), to_ms=RANGE[1], who="me", reason="")
    assert run_request(opened, third, FakeReplayer()).replayed == 1
    assert reasons(opened)[0] == "input changed"
    forget_commits(opened)
    assert reasons(opened)[0] == "input unverified"
    run(opened)
    assert reasons(opened) == ["current"] * 3


def test_log_retention_alone_makes_no_slice_stale(work: RequestContext) -> None:
    forget_commits(work)
    assert reasons(work) == ["current"] * 3


def test_log_retention_during_a_plan_makes_no_slice_stale(
    work: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the commit that the run has read was listed, and gone when it was compared: a damaged log."""
    log, check = Path(work.lake.event_log(work.pipeline)), LogFiles.check_history
    append_day(Path(work.lake.root), "2024-01-09", {"a": 1})
    log_of(work).create_checkpoint()

    def forget_first(files: LogFiles) -> None:
        for commit in commits_of(log)[:-1]:
            commit.unlink()
        check(files)

    monkeypatch.setattr(LogFiles, "check_history", forget_first)
    assert reasons(work) == ["current"] * 3


def test_after_optimize_and_log_retention_one_replay_makes_the_slices_current(work: RequestContext) -> None:
    """Equal records give the same run. Its second attempt records the new files."""
    published = dict(work.ledger.view().published)
    log_of(work).optimize.compact()
    forget_commits(work)
    assert reasons(work) == ["input unverified"] * 3
    assert run(work) == [["2024-01-01", "2024-01-02", "2024-01-03"]]
    assert reasons(work) == ["current"] * 3
    assert work.ledger.view().published == published
    assert run(work) == []


def test_a_deleted_and_an_inserted_record_make_a_slice_unverified(work: RequestContext) -> None:
    """The number of records is the same, and the commits that tell the difference are gone."""
    published = dict(work.ledger.view().published)
    log_of(work).delete("id = '2024-01-02/b/2'")
    append_day(Path(work.lake.root), "2024-01-02", {"c": 3})
    with pytest.raises(LogError, match=r"\(DELETE\) removed or changed records of slice 2024-01-02"):
        reasons(work)
    forget_commits(work)
    assert reasons(work) == ["current", "input unverified", "state before changed"]
    publish_request(work, run_outcome(work).request_id, who="a person")
    assert reasons(work) == ["current"] * 3
    after = work.ledger.view().published
    assert after["2024-01-01"] == published["2024-01-01"]
    assert after["2024-01-02"] != published["2024-01-02"]


@pytest.mark.parametrize("change", ["delete", "update", "delete, then append"])
def test_a_delete_is_not_taken_for_an_optimize_when_its_commit_is_gone(work: RequestContext, change: str) -> None:
    """Whatever the number of records is, and whether a readable commit has added records since."""
    published = dict(work.ledger.view().published)
    if change == "update":
        log_of(work).update(predicate="id = '2024-01-02/b/2'", updates={"id": "'2024-01-02/x'"})
    else:
        log_of(work).delete("id = '2024-01-02/b/2'")
    forget_commits(work)
    if "append" in change:
        append_day(Path(work.lake.root), "2024-01-02", {"d": 4})
    assert reasons(work) == ["current", "input unverified", "state before changed"]
    outcome = run_outcome(work)
    assert outcome.publication is not None
    assert not outcome.is_published
    assert outcome.publication.stopped_by == ("2024-01-02",)
    assert f"hindcast publish sales --request {outcome.request_id}" in outcome.publication.why
    assert dict(work.ledger.view().published) == published


def test_a_person_publishes_records_that_could_not_be_verified(work: RequestContext) -> None:
    published = dict(work.ledger.view().published)
    log_of(work).delete("id = '2024-01-02/b/2'")
    forget_commits(work)
    held = run_outcome(work)
    assert not held.is_published
    view = work.ledger.view()
    waits = open_request(work, view, view.requests[held.request_id]).waits
    assert "ready to be published by a person (2024-01-02: the log holds other records there" in waits
    assert publish_request(work, held.request_id, who="a person").is_published
    assert work.ledger.view().published["2024-01-02"] != published["2024-01-02"]
    assert reasons(work) == ["current"] * 3


def test_what_a_person_has_verified_is_published_without_another_decision(work: RequestContext) -> None:
    log_of(work).delete("id = '2024-01-02/b/2'")
    forget_commits(work)
    run = work.ledger.view().published_run("2024-01-02")
    assert run is not None
    now = read_log_state(work.pipeline, work.lake, slices_between(work.pipeline, *RANGE)).coordinates["2024-01-02"]
    seen = verified_event(run.result, Sighting(log=now, is_equal=False), fingerprint="other", who="me")
    work.ledger.write(lambda _view: [seen])
    assert reasons(work)[1] == "input changed"
    assert run_outcome(work).is_published


def test_commits_that_some_run_has_read_need_not_be_read_again(work: RequestContext) -> None:
    """A run of another slice has read the commit, which did not remove anything. Then log retention removes it."""
    for day in ("2024-01-02", "2024-01-03"):
        append_day(Path(work.lake.root), day, {"c": 3})
    last = Asked(from_ms=day_ms("2024-01-03"), to_ms=RANGE[1], who="me", reason="")
    assert run_request(work, last, FakeReplayer()).is_published
    forget_commits(work)
    assert reasons(work) == ["current", "input changed", "state before changed"]
    assert run_outcome(work).is_published


def test_a_plan_of_slices_without_a_run_tells_since_when_the_log_is_known(tmp_path: Path) -> None:
    append_day(tmp_path, "2024-01-01", {"a": 1, "b": 2})
    opened = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)
    assert [step.because for step in plan_of(opened).steps] == ["no run yet"] * 3
    log_of(opened).delete("id = '2024-01-01/b/2'")
    forget_commits(opened)
    assert [step.because for step in plan_of(opened).steps] == [
        "no run yet; commits before log version 2 are gone: a DELETE or MERGE there cannot be seen",
        "no run yet",
        "no run yet",
    ]


def test_after_a_delete_and_the_advised_restore_every_slice_is_current(work: RequestContext) -> None:
    version = log_of(work).version()
    log_of(work).delete("id = '2024-01-02/b/2'")
    with pytest.raises(LogError, match=rf"restore the table to version {version}\."):
        reasons(work)
    log_of(work).restore(version)
    assert reasons(work) == ["current"] * 3
    assert run(work) == []
    append_day(Path(work.lake.root), "2024-01-03", {"c": 3})
    assert reasons(work) == ["current", "current", "input changed"]


def test_after_a_delete_and_the_advised_copy_only_changed_slices_get_other_runs(work: RequestContext) -> None:
    """A person has to be forgotten: their records are removed from the log, and are to stay removed."""
    published = dict(work.ledger.view().published)
    log_of(work).delete("id = '2024-01-02/b/2'")
    with pytest.raises(LogError, match=r"append the records that are left to a new table, and name it in `log.table`"):
        reasons(work)
    rows = log_of(work).to_pyarrow_table(columns=["id", "key", "at_ms", "amount", "day"]).sort_by("id")
    copy = Path(work.lake.root) / "event_logs" / "copy"
    for day in (1, 2, 3):
        own = rows.filter(pc.field("day") == date(2024, 1, day))
        write_deltalake(str(copy), own, mode="append", partition_by=["day"])
    copied = replace(work, pipeline=sales(PIPELINE.replace("event_logs/sales", "event_logs/copy")))
    assert run_outcome(copied).is_published
    after = work.ledger.view().published
    assert [name for name in published if after[name] != published[name]] == ["2024-01-02", "2024-01-03"]
    assert reasons(copied) == ["current"] * 3


def test_a_plan_reads_new_commits_only(work: RequestContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits that a run has seen are not read again, for any slice."""
    read: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on unchanged
        history = read_history(*arguments, **named)
        read.append(history.read)
        return history

    monkeypatch.setattr(log_coordinates, "read_history", counted)
    assert reasons(work) == ["current"] * 3
    append_day(Path(work.lake.root), "2024-01-03", {"c": 3})
    reasons(work)
    run(work)
    assert read == [0, 1, 1, 0], "two plans, the plan of the run, which its steps take, the chunk"
