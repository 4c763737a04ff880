"""Candidates that share runs with the published chain, or that checks hold, over a real ledger, without Spark."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.view import LedgerView, RequestKind, RequestState, StagedRun
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import RequestContext
from jobs.planning.steps import Ask
from jobs.publishing.decisions import rollback
from jobs.publishing.publication_warnings import publication_warnings
from jobs.publishing.publishing import publish
from jobs.replay.orders import ReplayOrder
from jobs.runs import RunResult, Verdict
from tests.jobs.orchestration.test_requests import asked, work_on
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day
from tests.support.waiving import waive_newest
from windowlib.errors import RequestError

EDITED = PIPELINE.replace("size: 1d", "size: 2d")
RANGE = ("2024-01-01", "2024-01-04")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for number in range(1, 5):
        append_day(tmp_path, f"2024-01-{number:02d}", {"a": 10 + number, "b": 1})
    return tmp_path


def checked_by(suite: str, verdict: Verdict = Verdict.PASS) -> FakeReplayer:
    """Return a replayer whose runs were checked by a suite."""

    def change(result: RunResult) -> RunResult:
        return replace(result, verdict=verdict, extras={"checks_fingerprint": suite})

    return FakeReplayer(change=change)


def candidate(
    work: RequestContext, replayer: FakeReplayer, start: str = RANGE[0], end: str = RANGE[1], *, fresh: bool = False
) -> RequestOutcome:
    request = replace(asked(start, end, fresh=fresh), kind=RequestKind.CANDIDATE)
    return run_request(work, request, replayer, staging=Staging())


def chain_of(view: LedgerView) -> dict[str, StagedRun]:
    """Return the published runs, without the sightings of their input."""
    return {name: replace(view.run(run_id), sightings=()) for name, run_id in view.published.items()}


def test_a_candidate_that_replays_runs_of_the_chain_leaves_their_checks_and_settles(lake: Path) -> None:
    """A fresh chain over the whole log has the run ids of the published one. The edited suite fails all of them."""
    work = replace(work_on(lake), checks="suite a")
    run_request(work, asked(*RANGE), checked_by("suite a"))
    before = chain_of(work.ledger.view())
    edited = replace(work, checks="suite b")
    first = candidate(edited, checked_by("suite b", Verdict.FAIL), fresh=True)
    assert first.replayed == 3
    assert chain_of(work.ledger.view()) == before
    again = candidate(edited, checked_by("suite b", Verdict.FAIL), fresh=True)
    assert again.replayed == 0
    assert chain_of(work.ledger.view()) == before


def test_an_edited_suite_checks_the_runs_of_the_candidate_again_and_settles(lake: Path) -> None:
    run_request(work_on(lake), asked(*RANGE), FakeReplayer())
    work = replace(work_on(lake, EDITED), checks="suite a")
    first = candidate(work, checked_by("suite a", Verdict.FAIL))
    work = replace(work, checks="suite b")
    second = candidate(work, checked_by("suite b"))
    assert (second.request_id, second.replayed) == (first.request_id, 3)
    assert candidate(work, checked_by("suite b")).replayed == 0
    assert publish(work, who="ann", request_id=first.request_id).is_published


def test_a_judgement_of_a_candidate_leaves_that_of_a_run_which_the_chain_has_published_since(lake: Path) -> None:
    """The chain publishes the first run of the candidate, and then the candidate is judged."""
    text = PIPELINE + "publish: {settled: {after: 1d, change_at_most: {share: 1}}}\n"
    work = work_on(lake, text)
    outcome = candidate(work, FakeReplayer())
    run_request(work, asked(RANGE[0], "2024-01-02"), FakeReplayer())
    before = chain_of(work.ledger.view())
    assert before["2024-01-01"].result.run_id == outcome.runs[0].result.run_id
    assert publish(work, who="ann", request_id=outcome.request_id).is_published
    after = work.ledger.view()
    assert chain_of(after)["2024-01-01"] == before["2024-01-01"]
    assert len(after.published) == 3


def test_checks_hold_a_candidate_until_a_person_waives_them(lake: Path) -> None:
    run_request(work_on(lake), asked(*RANGE), FakeReplayer())
    append_day(lake, "2024-01-04", {"c": FAILS})
    work = work_on(lake, EDITED)
    outcome = candidate(work, FakeReplayer(), end="2024-01-05")
    assert "held by 2024-01-04" in publish(work, who="ann", request_id=outcome.request_id).why
    waive_newest(work, "2024-01-04", reason="a large order", who="ann")
    assert publish(work, who="ann", request_id=outcome.request_id).is_published
    assert work.ledger.view().requests[outcome.request_id].state is RequestState.PUBLISHED


def test_a_killed_candidate_is_not_complete_and_the_same_command_continues_it(lake: Path) -> None:
    run_request(work_on(lake), asked(*RANGE), FakeReplayer())
    work = work_on(lake, EDITED)

    def die(_order: object) -> None:
        raise KeyboardInterrupt

    request = replace(asked(*RANGE), kind=RequestKind.CANDIDATE)
    with pytest.raises(KeyboardInterrupt):
        run_request(work, request, FakeReplayer(on_order=die), staging=Staging(chunk=2))
    [opened] = work.ledger.view().open_requests(RequestKind.CANDIDATE)
    assert "run" in publish(work, who="ann", request_id=opened.request_id).why
    assert candidate(work, FakeReplayer()).request_id == opened.request_id
    assert publish(work, who="ann", request_id=opened.request_id).is_published


def test_publish_without_a_name_takes_no_candidate(lake: Path) -> None:
    work = work_on(lake, EDITED)
    outcome = candidate(work, FakeReplayer())
    with pytest.raises(RequestError, match=f"name a candidate with --request: {outcome.request_id}"):
        publish(work, who="ann")
    assert not work.ledger.view().published


def test_a_candidate_leaves_no_slice_out_that_was_published_while_it_worked_and_rolled_back_since(lake: Path) -> None:
    """The last slice has the run that readers saw, so the candidate has no run of its own for it."""
    work = work_on(lake)

    def publish_the_same(_order: ReplayOrder) -> None:
        if not work.ledger.view().publications:
            run_request(work_on(lake), asked(*RANGE), FakeReplayer())

    request = replace(asked(*RANGE), kind=RequestKind.CANDIDATE)
    replayer = FakeReplayer(on_order=publish_the_same)
    outcome = run_request(work, request, replayer, staging=Staging(chunk=1))
    view = work.ledger.view()
    assert len(view.requests[str(outcome.request_id)].runs) < len(view.published) == 3
    rollback(work, view.standing[-1].seq, reason="a doubt", who="ann")
    refused = publish(work, who="ann", request_id=outcome.request_id)
    assert not refused.is_published
    assert "is not complete; the same `hindcast run … --as-candidate` completes it" in refused.why
    assert not work.ledger.view().published
    again = run_request(work, request, FakeReplayer(), staging=Staging())
    assert again.request_id == outcome.request_id
    assert publish(work, who="ann", request_id=outcome.request_id).is_published
    assert len(work.ledger.view().published) == 3


def test_a_run_during_which_a_candidate_is_promoted_does_not_undo_the_promotion(lake: Path) -> None:
    """Defect: the run published the former spec again, although nobody had seen that."""
    work, edited = work_on(lake), work_on(lake, EDITED)
    run_request(work, asked(*RANGE), FakeReplayer())
    tried = candidate(edited, FakeReplayer())
    append_day(lake, "2024-01-03", {"c": 5})

    def promote(_order: ReplayOrder) -> None:
        assert publish(edited, who="ann", request_id=tried.request_id).is_published

    outcome = run_request(work, asked(*RANGE), FakeReplayer(on_order=promote))
    assert outcome.publication is not None
    assert "readers got runs of another spec of 2024-01-01, 2024-01-02, 2024-01-03 since" in outcome.publication.why
    head = work.ledger.view().head
    assert head is not None
    assert head.result.spec_fingerprint == spec_fingerprint(edited.pipeline)
    slices = tuple(run.result.slice for run in tried.runs)
    planned = work.plan(work.ledger.view(), Ask(slices=slices))
    [told] = publication_warnings(work.lake, work.ledger.view(), planned)
    assert told.startswith("readers see 2024-01-01, 2024-01-02 by another spec, which was published after that of")
    assert publish(work, who="bob", request_id=outcome.request_id).is_published, "a person has looked"
