"""Accepting a DELETE or UPDATE of the log: what it changes, what it leaves as it was, and what is refused. No Spark."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from jobs.cli.status import _publication
from jobs.lake.lake import Lake
from jobs.lake.rewrites import Rewrite
from jobs.ledger.view import RequestKind
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.restate import RestateGrammar
from jobs.pipeline.slices import slices_between
from jobs.planning.change_sentences import told_changes
from jobs.planning.plan import Plan
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.planning.restating import propose
from jobs.planning.steps import Ask
from jobs.publishing.accepting import Acceptance, accept_rewrites, chosen_rewrites, rewrites_of
from jobs.publishing.decisions import rollback
from jobs.publishing.publishing import publish_request
from jobs.publishing.staged_changes import changed_since_published, changed_since_staged, requests_with_records
from jobs.review.pages.decision_forms import decision_forms
from tests.support.delta_logs import clean_commits
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.fuzzing import seeds
from windowlib.errors import LogError, RequestError

NOW_MS = day_ms("2024-01-06")
RANGE = (day_ms("2024-01-01"), day_ms("2024-01-04"))
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
WHO, WHY = "ines", "erasure request 88"


def opened(root: Path, text: str = PIPELINE) -> RequestContext:
    return open_request_context(sales(text), Lake(root=str(root)), now_ms=lambda: NOW_MS)


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """A context with three published days of two commits each; the commits of the log are 0 to 5."""
    for day in DAYS:
        append_day(tmp_path, day, {"a": 1})
        append_day(tmp_path, day, {"b": 2})
    made = opened(tmp_path)
    run(made)
    return made


def log_of(work: RequestContext) -> DeltaTable:
    return DeltaTable(work.lake.event_log(work.pipeline))


def run(work: RequestContext) -> list[str]:
    """Run the three days; return the replayed slices."""
    replayer = FakeReplayer()
    assert run_request(work, Asked(from_ms=RANGE[0], to_ms=RANGE[1], who="me", reason=""), replayer).is_published
    return [name for chunk in replayer.replayed for name in chunk]


def plan_of(work: RequestContext) -> Plan:
    return work.plan(work.ledger.view(), Ask(slices=slices_between(work.pipeline, *RANGE)))


def reasons(work: RequestContext) -> list[str]:
    return [step.reason.value for step in plan_of(work).steps]


def found(work: RequestContext) -> tuple[Rewrite, ...]:
    return rewrites_of(work, work.ledger.view()).rewrites


def accept(work: RequestContext, *versions: int) -> Acceptance:
    view = work.ledger.view()
    seen = rewrites_of(work, view)
    chosen = chosen_rewrites(work, view, seen, versions=versions)
    return accept_rewrites(work, seen, chosen, reason=WHY, who=WHO)


def delete(work: RequestContext, *keys: str) -> int:
    """Delete the records day/key of the log; return the version of the commit."""
    named = ", ".join(f"'2024-01-{key}'" for key in keys)
    log_of(work).delete(f"concat(cast(day AS string), '/', key) IN ({named})")
    return log_of(work).version()


def test_only_the_slices_of_an_accepted_delete_have_another_input(work: RequestContext) -> None:
    version = delete(work, "02/b")
    with pytest.raises(LogError, match=r"hindcast accept-rewrite PIPELINE --reason … ?`, which shows the commit"):
        reasons(work)
    [rewrite] = found(work)
    assert (rewrite.version, rewrite.operation) == (version, "DELETE")
    assert "key" in rewrite.predicate
    [(slice_id, done)] = rewrite.slices.items()
    assert (slice_id, done.before, done.after) == ("2024-01-02", 2, 1)
    [accepted] = accept(work).accepted
    stored = replace(rewrite, predicate="")  # it can name a person, and a ledger is never shortened
    assert (accepted.who, accepted.reason, accepted.rewrite) == (WHO, WHY, stored)
    assert [entry.rewrite for entry in work.ledger.view().accepted] == [stored]
    plan = plan_of(work)
    assert [step.reason.value for step in plan.steps] == ["current", "input changed", "state before changed"]
    assert plan.steps[1].because.startswith(
        f"1 record was removed by the accepted commit {version} ({WHY}); 2 records then, 1 now"
    )
    assert run(work) == ["2024-01-02", "2024-01-03"]
    assert reasons(work) == ["current"] * 3
    assert run(work) == []


@pytest.mark.parametrize("has_look", [False, True])
def test_a_staged_request_whose_records_have_changed_is_told_and_not_refused(
    work: RequestContext, tmp_path: Path, *, has_look: bool
) -> None:
    """Defect: nothing told it before the publication, and readers saw a record that was erased."""
    append_day(tmp_path, "2024-01-04", {"a": 1, "b": 2})
    append_day(tmp_path, "2024-01-05", {"a": 1})
    asked = Asked(from_ms=RANGE[1], to_ms=day_ms("2024-01-06"), who="me", reason="")
    request_id = run_request(work, asked, FakeReplayer(), publish=False).request_id

    def told() -> str:
        if has_look:
            propose(work, rule=RestateGrammar(), who=WHO)
        view = work.ledger.view()
        sentence = changed_since_staged(work, view, view.requests[request_id])
        assert _publication(work, view, view.requests[request_id]).endswith(sentence or "publishes 2 slices")
        forms = decision_forms(work, view, request_id=request_id).request
        assert forms is not None
        assert forms.changed == sentence
        return sentence

    assert told() == ""
    append_day(tmp_path, "2024-01-04", {"c": 3})
    again = "Run the request again (pipeline sales): it replays what has changed"
    assert told() == f"1 staged day changed: 2024-01-04, 2 records then, 3 now. {again}"
    version = delete(work, "04/a")
    assert "removed or changed records" in told()
    view = work.ledger.view()
    [sentence] = requests_with_records(view, rewrites_of(work, view), found(work))
    assert sentence.startswith(f"Request {request_id} has read 2024-01-04 before, so its publication shows the records")
    accept(work)
    told_then = f"2 records then, 2 now; 1 record was removed by the accepted commit {version} ({WHY})"
    assert told() == f"1 staged day changed: 2024-01-04, {told_then}. {again}"
    assert publish_request(work, request_id, who="ann").is_published
    view = work.ledger.view()
    published = changed_since_published(work, view, view.requests[request_id])
    assert published.startswith("1 published day changed: 2024-01-04, 2 records then, 2 now")
    assert changed_since_staged(work, view, view.requests[request_id]) == ""


def test_a_replay_after_an_acceptance_equals_one_of_a_log_that_never_had_the_records(
    work: RequestContext, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    for day, keys in zip(DAYS, ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}), strict=True):
        append_day(other, day, keys)
    clean = opened(other)
    run(clean)
    delete(work, "01/b", "02/a")
    accept(work)
    run(work)
    assert dict(work.ledger.view().published) == dict(clean.ledger.view().published), "run ids cover all that they read"


def test_a_chain_that_reaches_the_same_state_again_stops_the_replay(work: RequestContext) -> None:
    """An UPDATE of a column that no total depends on makes one slice another run; the slice after it stays."""
    log_of(work).update(predicate="id = '2024-01-02/b/2'", updates={"id": "'2024-01-02/x/2'"})
    [rewrite] = found(work)
    assert (rewrite.operation, rewrite.slices["2024-01-02"].before, rewrite.slices["2024-01-02"].after) == (
        "UPDATE",
        2,
        2,
    )
    accept(work)
    plan = plan_of(work)
    assert plan.steps[1].because.startswith("records were changed by the accepted commit 6")
    assert [step.is_certain for step in plan.steps] == [True, True, False]
    before = dict(work.ledger.view().published)
    assert run(work) == ["2024-01-02"]
    after = work.ledger.view().published
    assert [name for name in DAYS if after[name] != before[name]] == ["2024-01-02"]


def test_a_later_delete_is_refused_again(work: RequestContext) -> None:
    delete(work, "02/b")
    accept(work)
    later = delete(work, "02/a")
    with pytest.raises(LogError, match=rf"commit {later} \(DELETE\) removed or changed records of slice 2024-01-02"):
        reasons(work)
    assert [one.version for one in found(work)] == [later]
    run_only = work.plan(work.ledger.view(), Ask(slices=slices_between(work.pipeline, RANGE[0], day_ms("2024-01-02"))))
    assert [step.reason.value for step in run_only.steps] == ["current"]
    accept(work)
    assert run(work) == ["2024-01-02", "2024-01-03"]


def test_commits_are_accepted_one_by_one(work: RequestContext) -> None:
    first, second = delete(work, "01/b"), delete(work, "03/b", "01/a")
    assert [one.version for one in found(work)] == [first, second]
    assert [*found(work)[1].slices] == ["2024-01-01", "2024-01-03"]
    accept(work, second)
    with pytest.raises(LogError, match=rf"commit {first} \(DELETE\)"):
        reasons(work)
    assert [one.version for one in found(work)] == [first]
    accept(work, first)
    assert reasons(work) == ["input changed", "state before changed", "input changed"]
    assert plan_of(work).steps[0].because.startswith(f"1 record was removed by the accepted commit {first}")
    assert f"1 record was removed by the accepted commit {second}" in plan_of(work).steps[0].because


def test_a_commit_is_accepted_by_one_event(work: RequestContext, tmp_path: Path) -> None:
    version = delete(work, "02/b")
    one, other = work, opened(tmp_path)
    both = [(each, rewrites_of(each, each.ledger.view())) for each in (one, other)]
    done = [accept_rewrites(each, seen, seen.rewrites, reason=WHY, who=WHO) for each, seen in both]
    assert [len(each.accepted) for each in done] == [1, 0]
    assert [each.rewrite.version for each in done[1].earlier] == [version]
    assert len(work.ledger.view().accepted) == 1
    assert accept(work).accepted == ()
    assert accept(work, version).accepted == ()


@pytest.mark.parametrize("version", [2, 6, 99])
def test_a_commit_that_removed_nothing_cannot_be_accepted(work: RequestContext, version: int) -> None:
    """Commit 2 has appended, the DELETE of commit 6 was undone by a RESTORE, and there is no commit 99."""
    delete(work, "02/b")
    log_of(work).restore(5)
    assert found(work) == ()
    with pytest.raises(RequestError, match=rf"commit {version}\b.*Nothing was accepted. Commits that can .*: none"):
        accept(work, version)
    assert work.ledger.view().accepted == ()


def test_an_acceptance_needs_a_reason(work: RequestContext) -> None:
    delete(work, "02/b")
    seen = rewrites_of(work, work.ledger.view())
    with pytest.raises(RequestError, match="needs a reason that is not empty"):
        accept_rewrites(work, seen, seen.rewrites, reason=" ", who=WHO)
    assert work.ledger.view().accepted == ()


def test_a_commit_with_other_files_than_the_accepted_one_is_accepted_under_its_version(
    work: RequestContext, tmp_path: Path
) -> None:
    """Defect: after a restored backup, the commit counted as accepted by its version, and its slice was refused."""
    log = Path(work.lake.event_log(work.pipeline))
    backup = shutil.copytree(log, tmp_path / "backup")
    version = delete(work, "02/b")
    accept(work)
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    assert delete(work, "03/a") == version
    with pytest.raises(LogError, match=rf"commit {version} \(DELETE\) removed or changed records of slice 2024-01-03"):
        reasons(work)
    done = accept(work)
    assert [[*entry.rewrite.slices] for entry in done.accepted] == [["2024-01-03"]]
    assert done.earlier == ()
    assert run(work) == ["2024-01-03"]
    assert reasons(work) == ["current"] * 3


@pytest.mark.parametrize("runs", [0, 1])
def test_a_restore_after_an_acceptance_makes_the_first_runs_current_again(work: RequestContext, runs: int) -> None:
    before = dict(work.ledger.view().published)
    version = delete(work, "02/b")
    accept(work)
    for _ in range(runs):
        run(work)
        assert dict(work.ledger.view().published) != before
    log_of(work).restore(version - 1)
    assert reasons(work) == ["current"] * 3
    assert run(work) == []
    assert dict(work.ledger.view().published) == before


def test_a_restore_brings_back_what_an_accepted_update_has_changed(work: RequestContext) -> None:
    """The number of records is the same before and after, and the run of the changed records is published."""
    before = dict(work.ledger.view().published)
    log_of(work).update(predicate="id = '2024-01-02/b/2'", updates={"id": "'2024-01-02/b/7'"})
    accept(work)
    run(work)
    assert dict(work.ledger.view().published) != before
    log_of(work).restore(5)
    assert run(work) == []
    assert dict(work.ledger.view().published) == before


def test_a_restore_that_loses_an_append_is_refused(work: RequestContext, tmp_path: Path) -> None:
    version = delete(work, "02/b")
    accept(work)
    append_day(tmp_path, "2024-01-02", {"c": 3})
    log_of(work).restore(version - 1)
    with pytest.raises(LogError, match=r"\(RESTORE\) removed or changed records of slice 2024-01-02"):
        reasons(work)


def test_each_pipeline_on_a_log_accepts_for_itself(work: RequestContext, tmp_path: Path) -> None:
    other = opened(tmp_path, PIPELINE.replace("pipeline: sales", "pipeline: others"))
    run(other)
    delete(work, "02/b")
    accept(work)
    assert reasons(work) == ["current", "input changed", "state before changed"]
    with pytest.raises(LogError, match="removed or changed records"):
        reasons(other)


def test_an_acceptance_does_not_count_for_another_table(work: RequestContext, tmp_path: Path) -> None:
    """The other table has a DELETE in a commit of the same version, at the same place."""
    delete(work, "02/b")
    accept(work)
    log = Path(work.lake.event_log(work.pipeline))
    log.rename(tmp_path / "before")
    for day in DAYS:
        append_day(tmp_path, day, {"a": 1})
        append_day(tmp_path, day, {"b": 2})
    assert delete(work, "02/b") == 6
    with pytest.raises(LogError, match="removed or changed records"):
        reasons(work)


def test_an_acceptance_does_not_count_for_another_commit_of_the_version(work: RequestContext) -> None:
    """The log was set back by a backup, and something else was deleted then."""
    version = delete(work, "02/b")
    accept(work)
    (Path(work.lake.event_log(work.pipeline)) / "_delta_log" / f"{version:020}.json").unlink()
    assert delete(work, "02/a") == version
    with pytest.raises(LogError, match="removed or changed records"):
        reasons(work)


def test_compaction_and_log_retention_after_an_acceptance_change_nothing(work: RequestContext, tmp_path: Path) -> None:
    delete(work, "02/b")
    accept(work)
    run(work)
    log_of(work).optimize.compact()
    assert reasons(work) == ["current"] * 3
    append_day(tmp_path, "2024-01-09", {"a": 1})
    run_request(work, Asked(from_ms=RANGE[1], to_ms=day_ms("2024-01-10"), who="me", reason=""), FakeReplayer())
    clean_commits(Path(work.lake.event_log(work.pipeline)))
    assert reasons(work) == ["current"] * 3


def test_a_slice_of_an_accepted_update_stays_changed_when_its_commit_is_gone(
    work: RequestContext, tmp_path: Path
) -> None:
    """Another slice was replayed meanwhile, so earlier readers know the commits; the number of records is the same."""
    log_of(work).update(predicate="id = '2024-01-03/b/2'", updates={"amount": "7"})
    accept(work)
    append_day(tmp_path, "2024-01-01", {"c": 3})
    asked = Asked(from_ms=RANGE[0], to_ms=day_ms("2024-01-02"), who="me", reason="")
    run_request(work, asked, FakeReplayer())
    append_day(tmp_path, "2024-01-09", {"a": 1})
    clean_commits(Path(work.lake.event_log(work.pipeline)))
    view = work.ledger.view()
    from_ms = day_ms("2024-01-03")
    plan = work.plan(view, Ask(slices=slices_between(work.pipeline, from_ms, RANGE[1])))
    assert [step.reason.value for step in plan.steps] == ["input changed"]


def test_an_accepted_commit_is_told_when_it_is_gone_before_any_replay(work: RequestContext, tmp_path: Path) -> None:
    """The Delta log cannot tell then what else has happened, so a person publishes the replay."""
    version = delete(work, "02/b")
    accept(work)
    append_day(tmp_path, "2024-01-09", {"a": 1})
    clean_commits(Path(work.lake.event_log(work.pipeline)))
    assert reasons(work)[:2] == ["current", "input unverified"]
    assert plan_of(work).steps[1].because.startswith(f"1 record was removed by the accepted commit {version} ({WHY})")


def test_the_schedule_proposes_the_slices_of_an_accepted_commit(work: RequestContext) -> None:
    rule = RestateGrammar()
    version = delete(work, "02/b")
    seen = propose(work, rule=rule, who="the schedule")
    assert seen.proposal is None
    told = told_changes(work, work.ledger.view())
    assert told.slices == ("2024-01-02",)
    assert "hindcast accept-rewrite sales --reason …" in told.sentences[1]
    accept(work)
    told = told_changes(work, work.ledger.view())
    assert told.sentences[0] == (
        "1 published day changed: 2024-01-02, 2 records then, 1 now; "
        f"1 record was removed by the accepted commit {version} ({WHY})"
    )
    seen = propose(work, rule=rule, who="the schedule")
    assert seen.proposal is not None
    assert [one.kind for one in work.ledger.view().open_requests()] == [RequestKind.RESTATEMENT]
    assert [*seen.proposal.changes] == ["2024-01-02"]
    run(work)
    assert told_changes(work, work.ledger.view()).slices == ()


def test_a_rollback_to_the_run_with_the_erased_records_tells_the_commit_again(work: RequestContext) -> None:
    version = delete(work, "02/b")
    accept(work)
    run(work)
    newest = work.ledger.view().standing[-1].seq
    rollback(work, newest, reason="too early", who=WHO)
    [sentence, *_] = told_changes(work, work.ledger.view()).sentences
    assert sentence.endswith(f"1 record was removed by the accepted commit {version} ({WHY})")


def test_a_rewritten_file_cannot_be_accepted_with_the_order_of_appending(tmp_path: Path) -> None:
    """With `order: appended`, a file that a DELETE has written has no place; a whole file may go."""
    text = PIPELINE.replace("order: [id]", "order: appended")
    append_day(tmp_path, "2024-01-01", {"a": 1, "b": 2})
    append_day(tmp_path, "2024-01-01", {"c": 3})
    work = opened(tmp_path, text)
    delete(work, "01/c")
    accept(work)
    assert [step.reason.value for step in plan_of(work).steps] == ["missing"] * 3
    delete(work, "01/b")
    with pytest.raises(RequestError, match=r"cannot be accepted, because .* \(`order: appended`\) is lost: commit 3"):
        accept(work)
    assert len(work.ledger.view().accepted) == 1


@pytest.mark.slow
def test_any_acceptance_gives_the_runs_of_a_log_without_the_erased_records(tmp_path: Path) -> None:
    """Random deletions over random days; slices without one keep their runs."""
    for seed in seeds(2):
        _erase_and_compare(Random(seed), tmp_path / str(seed))


def _erase_and_compare(chance: Random, root: Path) -> None:
    records = [(day, name, chance.randint(1, 9)) for day in DAYS for name in "abcd"]
    _append(root / "log", records)
    work = opened(root / "log")
    run(work)
    erased = [(day, name) for day, name, _ in records if name != "d" and chance.random() < 0.3]
    for day, name in erased:
        delete(work, f"{day[-2:]}/{name}")
        if chance.random() < 0.4:
            accept(work)
        if chance.random() < 0.3:
            log_of(work).optimize.compact()
    accept(work)
    changed = {step.slice.slice_id for step in plan_of(work).steps if step.reason.value == "input changed"}
    assert changed == {day for day, _ in erased}
    run(work)
    _append(root / "clean", [one for one in records if one[:2] not in erased])
    clean = opened(root / "clean")
    run(clean)
    assert dict(work.ledger.view().published) == dict(clean.ledger.view().published)


def _append(root: Path, records: Sequence[tuple[str, str, int]]) -> None:
    for day, name, amount in records:
        append_day(root, day, {name: amount})
