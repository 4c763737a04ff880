"""Requests from opening to publication, over a real ledger and a real Delta log, with a replayer without Spark."""

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.engine.fingerprints import fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.view import RequestKind
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.publishing.decisions import rollback
from jobs.publishing.publishing import publish, publish_request
from jobs.replay.orders import ReplayOrder
from jobs.runs import RunResult, Verdict
from tests.support.delta_logs import clean_commits
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.waiving import waive_newest
from windowlib.errors import AuditError, InvariantBroken, LogError, RequestError

NOW_MS = day_ms("2024-02-01")
DAYS = [f"2024-01-{day:02d}" for day in range(1, 11)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": 10 + index, "b": 1})
    return tmp_path


def work_on(lake: Path, text: str = PIPELINE) -> RequestContext:
    return open_request_context(sales(text), Lake(root=str(lake)), now_ms=lambda: NOW_MS)


def asked(start: str, end: str, *, fresh: bool = False) -> Asked:
    return Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="me", reason="test", is_fresh=fresh)


def scheduled(start: str, end: str) -> Asked:
    """A request of the schedule, which is not in the way of a person: the schedule looks at leases before."""
    return replace(asked(start, end), kind=RequestKind.SCHEDULED)


def run(
    work: RequestContext, start: str, end: str, replayer: FakeReplayer | None = None, *, chunk: int | None = None
) -> RequestOutcome:
    return run_request(work, asked(start, end), replayer or FakeReplayer(), staging=Staging(chunk=chunk))


def seen(work: RequestContext) -> dict[str, str]:
    return dict(work.ledger.view().published)


def test_a_range_is_replayed_in_one_chunk_and_published_at_once(lake: Path) -> None:
    work, replayer = work_on(lake), FakeReplayer()
    outcome = run(work, "2024-01-01", "2024-01-11", replayer)
    assert replayer.replayed == [DAYS]
    assert outcome.is_published
    assert list(seen(work)) == DAYS
    assert [publication.changes.keys() for publication in work.ledger.view().publications] == [set(DAYS)]


@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_runs_do_not_depend_on_the_size_of_chunks(lake: Path, tmp_path: Path, chunk: int) -> None:
    one = run(work_on(lake), "2024-01-01", "2024-01-11")
    other = tmp_path / "other"
    for index, day in enumerate(DAYS):
        append_day(other, day, {"a": 10 + index, "b": 1})
    many = run(work_on(other), "2024-01-01", "2024-01-11", chunk=chunk)
    assert many.to_json() == one.to_json()


def test_a_second_run_replays_no_slice_and_writes_no_event(lake: Path) -> None:
    work = work_on(lake)
    first = run(work, "2024-01-01", "2024-01-11")
    version, replayer = work.ledger.view().version, FakeReplayer()
    again = run(work, "2024-01-01", "2024-01-11", replayer)
    assert replayer.orders == []
    assert again.to_json() == first.to_json()
    assert work.ledger.view().version == version


def test_early_cut_off_stops_at_a_slice_that_leaves_its_old_state(lake: Path) -> None:
    work = work_on(lake)
    run(work, "2024-01-01", "2024-01-11")
    append_day(lake, "2024-01-03", {"c": 5})
    replayer = FakeReplayer()
    outcome = run(work, "2024-01-01", "2024-01-11", replayer)
    # The third slice changes, and with it the state before the fourth. The fourth leaves the same state as before.
    assert replayer.replayed == [["2024-01-03"], ["2024-01-04"]]
    assert outcome.is_published
    changes = work.ledger.view().publications[-1].changes
    assert set(changes) == {"2024-01-03", "2024-01-04"}


@pytest.mark.slow
@pytest.mark.parametrize(("again", "reached"), [(None, 10), (6, 6)])
def test_a_change_that_goes_on_is_followed_in_growing_chunks(lake: Path, again: int | None, reached: int) -> None:
    """A chunk of twice the slices follows each one, so that a change of many slices does not take a chunk for each."""
    work = work_on(lake)

    def goes_on(result: RunResult) -> RunResult:
        """Make a state of all records so far, as count windows do, from `again` on one that nothing changes."""
        if again is not None and result.slice.slice_id >= DAYS[again - 1]:
            return result
        return replace(result, state_after=fingerprint([result.state_before, result.input_fingerprint]))

    run(work, "2024-01-01", "2024-01-11", FakeReplayer(change=goes_on))
    append_day(lake, "2024-01-02", {"c": 5})
    replayer = FakeReplayer(change=goes_on)
    assert run(work, "2024-01-01", "2024-01-11", replayer).is_published
    chunks = [DAYS[1:2], DAYS[2:3], DAYS[3:5], DAYS[5:9], DAYS[9:10]]
    assert replayer.replayed == (chunks if reached == 10 else chunks[:4])
    assert set(work.ledger.view().publications[-1].changes) == set(DAYS[1:reached])


def test_after_a_failed_check_readers_see_what_they_saw_before(lake: Path) -> None:
    work = work_on(lake)
    run(work, "2024-01-01", "2024-01-04")
    before = seen(work)
    append_day(lake, "2024-01-06", {"c": 2_000})
    outcome = run(work, "2024-01-04", "2024-01-11")
    assert not outcome.is_published
    assert outcome.publication is not None
    assert outcome.publication.stopped_by == ("2024-01-06",)
    assert "2024-01-06: window_outputs: total: failed" in outcome.publication.why
    assert seen(work) == before


def test_a_request_is_published_as_a_whole_after_a_waiver(lake: Path) -> None:
    work = work_on(lake)
    append_day(lake, "2024-01-06", {"c": 2_000})
    run(work, "2024-01-01", "2024-01-11")
    with pytest.raises(RequestError, match="needs a reason"):
        waive_newest(work, "2024-01-06", reason="  ", who="me")
    with pytest.raises(RequestError, match="did not fail"):
        waive_newest(work, "2024-01-05", reason="why not", who="me")
    assert not publish(work, who="me").is_published
    run_waived = waive_newest(work, "2024-01-06", reason="the sale is real", who="ann")
    assert run_waived.waiver is not None
    assert (run_waived.waiver.who, run_waived.waiver.reason) == ("ann", "the sale is real")
    publication = publish(work, who="me")
    assert publication.is_published
    assert list(seen(work)) == DAYS
    with pytest.raises(RequestError, match="nothing to waive"):
        waive_newest(work, "2024-01-06", reason="again", who="me")


def test_an_error_is_never_waived_or_published(lake: Path) -> None:
    work = work_on(lake)
    append_day(lake, "2024-01-06", {"c": 2_000_000})
    outcome = run(work, "2024-01-01", "2024-01-07")
    assert outcome.runs[-1].verdict is Verdict.ERROR
    with pytest.raises(RequestError, match="error cannot be waived"):
        waive_newest(work, "2024-01-06", reason="please", who="me")
    assert not publish(work, who="me").is_published


def test_a_crash_in_the_second_chunk_loses_only_that_chunk(lake: Path) -> None:
    work = work_on(lake)

    class Killed(BaseException):
        pass

    def kill_second(_order: object) -> None:
        if len(crashing.orders) == 2:
            raise Killed

    crashing = FakeReplayer(on_order=kill_second)
    with pytest.raises(Killed):
        run(work, "2024-01-01", "2024-01-11", crashing, chunk=4)
    assert seen(work) == {}
    later = replace(
        work, ledger=open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS + 7_200_000).ledger
    )
    replayer = FakeReplayer()
    outcome = run(later, "2024-01-01", "2024-01-11", replayer, chunk=4)
    assert replayer.replayed == [DAYS[4:8], DAYS[8:]]
    assert outcome.is_published
    assert len(work.ledger.view().requests) == 1
    other = lake / "uncrashed"
    for index, day in enumerate(DAYS):
        append_day(other, day, {"a": 10 + index, "b": 1})
    assert outcome.to_json() == run(work_on(other), "2024-01-01", "2024-01-11").to_json()


def test_an_error_of_the_replayer_leaves_the_request_open_and_is_recorded(lake: Path) -> None:
    work = work_on(lake)

    def refuse(_order: object) -> None:
        raise LogError("the log is gone")

    with pytest.raises(LogError):
        run(work, "2024-01-01", "2024-01-03", FakeReplayer(on_order=refuse))
    [request] = work.ledger.view().open_requests()
    assert request.failure == "the log is gone"
    assert request.leases == ()
    assert run(work, "2024-01-01", "2024-01-03").is_published


def test_a_chunk_whose_audit_does_not_close_fails_and_is_replayed(lake: Path) -> None:
    work = work_on(lake)

    def lose_once(_order: object) -> None:
        if len(replayer.orders) == 2:
            raise AuditError("a row is missing")

    replayer = FakeReplayer(on_order=lose_once)
    outcome = run(work, "2024-01-01", "2024-01-04", replayer, chunk=1)
    assert replayer.replayed == [["2024-01-01"], ["2024-01-02"], ["2024-01-02"], ["2024-01-03"]]
    assert outcome.is_published
    attempts = [order.attempt_id for order in replayer.orders]
    rows = sorted(DeltaTable(lake / "sales" / "ledger").to_pyarrow_table().to_pylist(), key=lambda row: row["seq"])
    failed = [row["attempt_id"] for row in rows if row["event"] == "failed"]
    assert failed == [attempts[1]], "the ledger records the attempt that failed"
    staged = [row["attempt_id"] for row in rows if row["event"] == "staged"]
    assert staged == [attempts[0], *attempts[2:]], "the replay is another attempt"
    assert replayer.orders[1].before == replayer.orders[2].before


def test_after_two_audits_that_do_not_close_the_same_call_continues_the_request(lake: Path) -> None:
    work = work_on(lake)

    def lose(order: ReplayOrder) -> None:
        if order.slices[0].slice_id == "2024-01-02":
            raise AuditError("a row is missing")

    losing = FakeReplayer(on_order=lose)
    with pytest.raises(AuditError, match="a row is missing"):
        run(work, "2024-01-01", "2024-01-04", losing, chunk=1)
    assert losing.replayed == [["2024-01-01"], ["2024-01-02"], ["2024-01-02"]]
    assert seen(work) == {}
    [request] = work.ledger.view().open_requests()
    assert request.failure == "a row is missing"
    sound = FakeReplayer()
    outcome = run(work, "2024-01-01", "2024-01-04", sound, chunk=1)
    assert outcome.request_id == request.request_id, "the same request continues"
    assert sound.replayed == [["2024-01-02"], ["2024-01-03"]]
    assert outcome.is_published


def test_a_range_without_a_run_before_it_is_refused_and_both_slices_are_named(lake: Path) -> None:
    work = work_on(lake)
    with pytest.raises(RequestError, match=r"slice 2024-01-05 .* after 2024-01-04.*--from 2024-01-01.*--fresh"):
        run(work, "2024-01-05", "2024-01-07")
    assert work.ledger.view().version == 0
    outcome = run_request(work, asked("2024-01-05", "2024-01-07", fresh=True), FakeReplayer())
    assert outcome.is_published
    assert outcome.runs[0].is_chain_start


def test_a_changed_state_is_published_only_together_with_the_slices_after_it(lake: Path) -> None:
    work = work_on(lake)
    run(work, "2024-01-01", "2024-01-11")
    before = seen(work)
    append_day(lake, "2024-01-03", {"c": 5})
    outcome = run(work, "2024-01-03", "2024-01-04")
    assert not outcome.is_published
    assert outcome.publication is not None
    assert "replay them in the same request" in outcome.publication.why
    assert outcome.publication.stopped_by[0] == "2024-01-04"
    assert seen(work) == before
    assert "--replace`" in outcome.publication.why
    wider = replace(asked("2024-01-03", "2024-01-05"), if_open=IfOpen.REPLACE)
    assert run_request(work, wider, FakeReplayer()).is_published


def test_another_spec_cannot_continue_from_a_published_state(lake: Path) -> None:
    run(work_on(lake), "2024-01-01", "2024-01-04")
    changed = work_on(lake, PIPELINE.replace("size: 1d", "size: 2d"))
    with pytest.raises(RequestError, match=r"2024-01-03 .* was published by spec .*--fresh"):
        run(changed, "2024-01-04", "2024-01-06")
    outcome = run(changed, "2024-01-01", "2024-01-06")
    assert outcome.is_published


def test_two_requests_for_the_same_slices_publish_one_result(lake: Path) -> None:
    work, rival = work_on(lake), work_on(lake)
    inner: list[RequestOutcome] = []

    def meanwhile(_order: object) -> None:
        if not inner:
            inner.append(run_request(rival, scheduled("2024-01-01", "2024-01-04"), FakeReplayer()))

    outer = run(work, "2024-01-01", "2024-01-04", FakeReplayer(on_order=meanwhile))
    view = work.ledger.view()
    assert inner[0].is_published
    assert outer.is_published
    assert outer.to_json() == inner[0].to_json()
    attempts = {view.run(run_id).result.attempt_id for run_id in view.published.values()}
    assert attempts == {inner[0].runs[0].result.attempt_id}


def test_older_records_do_not_come_back_if_the_commits_since_are_gone(lake: Path) -> None:
    """Defect: it was not known what the commits had done, so the runs with fewer records were published."""
    work, both = work_on(lake), asked("2024-01-01", "2024-01-03")
    run_request(work, both, FakeReplayer())
    append_day(lake, "2024-01-01", {"c": 0})
    append_day(lake, "2024-01-02", {"c": 2})
    older = run_request(work, both, FakeReplayer(), publish=False).request_id
    append_day(lake, "2024-01-02", {"d": 3})
    clean_commits(lake / "event_logs" / "sales")
    second = replace(asked("2024-01-02", "2024-01-03"), kind=RequestKind.RESTATEMENT)
    newer = run_request(work, second, FakeReplayer(), publish=False).request_id
    assert publish_request(work, newer, who="ann").is_published
    assert "readers see newer records of 2024-01-02" in publish_request(work, older, who="ann").why
    outcome = run_request(work, both, FakeReplayer())
    assert (outcome.request_id, [run.result.counts.read for run in outcome.runs]) == (older, [3, 4])


@pytest.mark.parametrize("is_compacted", [True, False])
def test_erased_records_do_not_come_back_by_a_request_that_has_read_them(lake: Path, *, is_compacted: bool) -> None:
    """Defect: the published run was older than the request, and the newer log in which it was seen did not count.

    If the erasure leaves the files that the published run has read, no run is seen in a newer log.
    """
    work = work_on(lake)
    append_day(lake, "2024-01-02", {"d": 1})
    run(work, "2024-01-01", "2024-01-03")
    append_day(lake, "2024-01-02", {"c": 2})
    staged = run_request(work, asked("2024-01-01", "2024-01-03"), FakeReplayer(), publish=False).request_id
    DeltaTable(lake / "event_logs" / "sales").delete("key = 'c'")
    if is_compacted:
        DeltaTable(lake / "event_logs" / "sales").optimize.compact()
    view = work.ledger.view()
    rewrites = rewrites_of(work, view)
    chosen = chosen_rewrites(work, view, rewrites, versions=())
    accept_rewrites(work, rewrites, chosen, reason="test", who="me")
    before = seen(work)
    run_request(work_on(lake), scheduled("2024-01-02", "2024-01-03"), FakeReplayer())
    assert "readers see newer records of 2024-01-02" in publish_request(work, staged, who="ann").why
    assert seen(work) == before
    again = run_request(work, replace(asked("2024-01-01", "2024-01-03"), request_id=staged), FakeReplayer())
    assert (again.is_published, seen(work)) == (True, before)


def test_two_attempts_with_different_rows_make_the_run_an_error(lake: Path) -> None:
    work, rival = work_on(lake), work_on(lake)
    done: list[RequestOutcome] = []

    def meanwhile(_order: object) -> None:
        if not done:
            done.append(run_request(rival, scheduled("2024-01-01", "2024-01-02"), FakeReplayer(), publish=False))

    def corrupt(result: RunResult) -> RunResult:
        return replace(result, digests={"window_outputs": "0" * 64})

    outcome = run(work, "2024-01-01", "2024-01-02", FakeReplayer(on_order=meanwhile, change=corrupt))
    assert not outcome.is_published
    assert outcome.runs[0].verdict is Verdict.ERROR
    assert outcome.publication is not None
    assert "not deterministic" in outcome.publication.why


def test_a_replayer_that_breaks_its_contract_stages_nothing(lake: Path) -> None:
    work = work_on(lake)
    with pytest.raises(InvariantBroken, match="state"):
        run(work, "2024-01-01", "2024-01-03", FakeReplayer(change=lambda one: replace(one, state_before="other")))
    assert work.ledger.view().runs == {}


def test_publishing_a_request_twice_writes_no_event(lake: Path) -> None:
    work = work_on(lake)
    outcome = run(work, "2024-01-01", "2024-01-03")
    version = work.ledger.view().version
    assert publish_request(work, outcome.request_id, who="me").is_published
    assert work.ledger.view().version == version


def test_after_a_rollback_readers_see_what_they_saw_before(lake: Path) -> None:
    work = work_on(lake)
    run(work, "2024-01-01", "2024-01-03")
    first = seen(work)
    append_day(lake, "2024-01-02", {"c": 5})
    run(work, "2024-01-01", "2024-01-04")
    assert seen(work) != first
    older, newest = (one.seq for one in work.ledger.view().publications)
    with pytest.raises(RequestError, match=f"publication {older} .* is not the newest .* publication {newest}, by me"):
        rollback(work, older, reason="too early", who="me")
    assert rollback(work, newest, reason="too early", who="me").changed == ("2024-01-02", "2024-01-03")
    assert seen(work) == first
    with pytest.raises(RequestError, match="was rolled back already, by me"):
        rollback(work, newest, reason="again", who="me")
    rollback(work, older, reason="all of it", who="me")
    assert seen(work) == {}
    with pytest.raises(RequestError, match="was rolled back already, by me"):
        rollback(work, older, reason="more", who="me")


def test_results_of_another_spec_than_that_of_the_request_are_not_staged(lake: Path) -> None:
    work = work_on(lake)
    edited = FakeReplayer(change=lambda one: replace(one, spec_fingerprint="a function was edited"))
    with pytest.raises(
        RequestError, match=r"a function of the pipeline has changed while request \w+ ran: slice 2024-"
    ):
        run(work, "2024-01-01", "2024-01-03", edited, chunk=1)
    assert not work.ledger.view().runs
    assert run(work, "2024-01-01", "2024-01-03").is_published
