"""The fold: one attempt per run, verdicts, waivers, what readers see. Cases, and random histories against a model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from jobs.ledger.events import (
    EventKind,
    LedgerEvent,
    checked_event,
    judged_event,
    run_result,
    slice_columns,
    staged_event,
    with_checks,
)
from jobs.ledger.leases import Lease
from jobs.ledger.ledger import Ledger
from jobs.ledger.looks import Look, SeenInput, changes_details, looked_event
from jobs.ledger.projection import Projection, project
from jobs.ledger.provenance import decision_details
from jobs.ledger.removals import Why, removed_event
from jobs.ledger.run_projection import RunsProjection
from jobs.ledger.run_slots import RunBrief
from jobs.ledger.view import Judgement, LedgerView, RequestState
from jobs.publishing.waivers import request_to_publish
from jobs.reading.published import published_runs
from jobs.reading.stored_rows import run_attempt
from jobs.runs import EMPTY_STATE, CheckResult, Counts, LogCoordinates, RunResult, Slice, Verdict
from tests.support.fuzzing import seeds
from windowlib.errors import LedgerError

DAY = 86_400_000


def a_slice(number: int) -> Slice:
    return Slice(slice_id=f"1970-01-{number:02d}", start_ms=(number - 1) * DAY, end_ms=number * DAY)


def a_result(
    number: int, *, run: str = "run", attempt: str = "a1", verdict: Verdict = Verdict.PASS, digest: str = "d"
) -> RunResult:
    check = CheckResult(slice_id=a_slice(number).slice_id, table="t", check="c", severity="critical", verdict=verdict)
    return RunResult(
        slice=a_slice(number),
        run_id=f"{run}{number}",
        attempt_id=attempt,
        spec_fingerprint="spec",
        input_fingerprint="input",
        state_before=EMPTY_STATE,
        state_after="after",
        digests={"window_outputs": digest},
        counts=Counts(read=1, assigned=1, late=0, unassigned=0, invalid=0, panes=1),
        watermark_ms=5,
        log=LogCoordinates(table_id="log", version=3, commits=(1, 3), files=1, records=1, bytes=10),
        seconds=1.5,
        verdict=verdict,
        checks=(check,),
        warnings=("w",),
        clamped=2,
        extras={"checks_fingerprint": "suite"},
    )


def requested(request_id: str = "r") -> LedgerEvent:
    return LedgerEvent(
        kind=EventKind.REQUESTED, request_id=request_id, who="me", spec_fingerprint="spec", details={"kind": "range"}
    )


def staged(result: RunResult, request_id: str = "r") -> list[LedgerEvent]:
    return [staged_event(request_id, result, is_chain_start=True), checked_event(request_id, result)]


def about(
    kind: EventKind,
    result: RunResult,
    *,
    who: str | None = None,
    reason: str | None = None,
    request_id: str | None = None,
) -> LedgerEvent:
    return LedgerEvent(
        kind=kind,
        **slice_columns(result.slice),
        run_id=result.run_id,
        attempt_id=result.attempt_id,
        who=who,
        reason=reason,
        request_id=request_id,
    )


def view(*events: LedgerEvent) -> LedgerView:
    return project([replace(event, seq=index) for index, event in enumerate(events, start=1)], version=len(events))


def test_a_result_is_the_same_after_the_ledger() -> None:
    result = a_result(1)
    stage, check = staged(result)
    assert with_checks(run_result(stage), check) == result
    assert view(requested(), stage, check).run("run1").result == result


def test_a_run_that_was_never_checked_is_an_error() -> None:
    assert view(requested(), staged(a_result(1))[0]).run("run1").verdict is Verdict.ERROR


def test_the_first_attempt_counts_for_the_run() -> None:
    found = view(requested(), *staged(a_result(1, attempt="a1")), *staged(a_result(1, attempt="a2"))).run("run1")
    assert found.result.attempt_id == "a1"
    assert found.checks_attempt_id == "a2"
    assert found.verdict is Verdict.PASS


def test_a_contradicting_attempt_makes_the_run_an_error_until_one_is_condemned() -> None:
    first, second = a_result(1, attempt="a1"), a_result(1, attempt="a2", digest="other")
    events = [requested(), *staged(first), *staged(second)]
    assert view(*events).run("run1").verdict is Verdict.ERROR
    assert not view(*events).run("run1").is_publishable
    remaining = view(*events, about(EventKind.CONDEMNED, first)).run("run1")
    assert (remaining.result.attempt_id, remaining.verdict) == ("a2", Verdict.PASS)


def test_a_run_without_attempts_is_an_error_that_tells_what_to_do() -> None:
    found = view(requested(), *staged(a_result(1)), about(EventKind.CONDEMNED, a_result(1)))
    with pytest.raises(LedgerError, match=r"its attempts were condemned, or none was staged\. Replay its slice"):
        found.run("run1")


def test_a_look_up_of_one_run_reads_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [a_result(number) for number in range(3)]
    now = view(requested(), *(event for result in results for event in staged(result)))
    made: list[str] = []
    real = RunsProjection.brief

    def brief(runs: RunsProjection, run_id: str) -> RunBrief:
        made.append(run_id)
        return real(runs, run_id)

    monkeypatch.setattr(RunsProjection, "brief", brief)
    assert now.run(results[1].run_id).result.slice == results[1].slice
    assert {*made} == {results[1].run_id}


def test_views_share_their_slices_until_there_is_another_one() -> None:
    state = Projection()
    for event in (requested(), *staged(a_result(2))):
        state.add(event)
    first = state.view(1)
    state.add(requested("r2"))
    assert state.view(2).slices is first.slices
    for event in staged(a_result(1)):
        state.add(event)
    assert [*state.view(3).slices.values()] == [a_slice(1), a_slice(2)]
    assert [*first.slices.values()] == [a_slice(2)]


@pytest.mark.parametrize("digest", ["d", "other"])
def test_an_earlier_version_has_a_later_attempt_with_equal_rows(tmp_path: Path, digest: str) -> None:
    first, second = a_result(1, attempt="a1"), a_result(1, attempt="a2", digest=digest)
    ledger = Ledger(str(tmp_path / "ledger"), now_ms=lambda: 1)
    ledger.write(lambda _view: [requested(), *staged(first), about(EventKind.PUBLISHED, first, request_id="r")])
    ledger.write(lambda _view: [requested("s"), *staged(second, "s")])
    removed = removed_event({("1970-01-01", "a1"): Why.UNPUBLISHED}, who="me", reason="old")
    ledger.write(lambda _view: [removed])
    then = ledger.view(at=1)
    if digest == "d":
        run = then.run("run1")
        assert (run.result.attempt_id, run.checks_attempt_id) == ("a2", "a2")
        assert (run.request_id, run.seq, run.verdict) == ("r", 1, Verdict.PASS)
    else:
        with pytest.raises(LedgerError, match="were removed by a clean-up"):
            then.run("run1")


def test_a_waiver_lasts_until_another_check_fails() -> None:
    result = a_result(1, verdict=Verdict.FAIL)
    events = [requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real")]
    assert view(*events).run("run1").is_publishable
    assert view(*events, checked_event("r", result)).run("run1").is_publishable
    other = replace(result, checks=(replace(result.checks[0], check="another"),))
    assert not view(*events, checked_event("r", other)).run("run1").is_publishable
    stricter = replace(result, checks=(replace(result.checks[0], arguments='{"max_value": 5}'),))
    assert view(*events, checked_event("r", stricter)).run("run1").is_publishable, "so earlier versions have read it"
    events[-1] = replace(events[-1], details={"by_arguments": True})
    assert view(*events, checked_event("r", result)).run("run1").is_publishable
    assert not view(*events, checked_event("r", stricter)).run("run1").is_publishable


def test_a_waiver_counts_again_when_the_judgement_finds_again_what_a_person_has_waived() -> None:
    """Defect: where two requests end one repair, the judgement for one of them ended the waivers for the other one."""
    result, own, other = (
        a_result(1),
        *(
            CheckResult(
                slice_id=a_slice(1).slice_id,
                table="settled",
                check="s",
                severity="critical",
                verdict=Verdict.FAIL,
                observed=text,
            )
            for text in ("1 window", "2 windows")
        ),
    )
    judged = [judged_event(name, name, {"run1": (found,)}) for name, found in (("r", own), ("s", other), ("r", own))]
    waived = about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r")
    events = [
        requested(), *staged(result), requested("s"), about(EventKind.ADOPTED, result, request_id="s"),
        judged[0], waived, *judged[1:],
    ]  # fmt: skip
    assert [view(*events[:end]).run("run1").is_publishable for end in (-2, -1, None)] == [True, False, True]
    named = [request_to_publish(then, then.run("run1")) for then in (view(*events[:-1]), view(*events))]
    assert [request and request.request_id for request in named] == ["s", "r"]


def cancelled(request_id: str = "r", *, action: str | None = "cancel") -> LedgerEvent:
    details = {} if action is None else decision_details("d", action)
    return LedgerEvent(kind=EventKind.CLOSED, request_id=request_id, who="bob", reason="cancelled", details=details)


def rolled_back(result: RunResult, *, undoes: int) -> LedgerEvent:
    event = about(EventKind.ROLLED_BACK, result, who="bob", reason="bad rows")
    return replace(event, run_id=None, attempt_id=None, details={"undoes": undoes})


def test_a_waiver_ends_when_a_person_cancels_a_request_with_the_run() -> None:
    result = a_result(1, verdict=Verdict.FAIL)
    events = [requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r")]
    assert view(*events, cancelled(action=None)).run("run1").is_publishable, "another request has replaced it"
    adopted = [requested("s"), about(EventKind.ADOPTED, result, request_id="s")]
    assert view(*events, *adopted, cancelled("s")).run("run1").is_publishable, "r is open, and ann has decided on it"
    for closed in (
        [cancelled(), *adopted],
        [*adopted, cancelled()],
        [cancelled(action=None), *adopted, cancelled("s")],
    ):
        ended = view(*events, *closed)
        assert (ended.run("run1").is_publishable, ended.run("run1").waiver) == (False, None)
        again = about(EventKind.WAIVED, result, who="cyd", reason="real", request_id="r")
        newer = view(*events, *closed, again).run("run1").waiver
        assert newer is not None
        assert newer.who == "cyd"


def test_a_waiver_ends_with_the_rollback_of_the_publication() -> None:
    result = a_result(1, verdict=Verdict.FAIL)
    events = [requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r")]
    published = about(EventKind.PUBLISHED, result, who="ann", request_id="r")
    assert not view(*events, published, rolled_back(result, undoes=5)).run("run1").is_publishable


def test_a_run_that_readers_see_keeps_its_waiver_when_another_request_ends() -> None:
    result = a_result(1, verdict=Verdict.FAIL)
    first = [requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r")]
    published = about(EventKind.PUBLISHED, result, who="ann", request_id="r")
    other = a_result(1, run="other", verdict=Verdict.FAIL)
    second = [
        requested("s"), about(EventKind.ADOPTED, result, request_id="s"), cancelled("s"),
        requested("t"), *staged(other, "t"), about(EventKind.WAIVED, other, who="ann", reason="real", request_id="t"),
        about(EventKind.PUBLISHED, other, who="ann", request_id="t"),
        replace(rolled_back(other, undoes=13), run_id=result.run_id),
    ]  # fmt: skip
    seen = view(*first, published, *second)
    assert seen.published == {a_slice(1).slice_id: "run1"}
    assert [seen.run(run_id).waiver is not None for run_id in ("run1", "other1")] == [True, False]


def test_a_run_that_a_rollback_shows_again_is_waived_by_its_publication() -> None:
    result, other = a_result(1, verdict=Verdict.FAIL), a_result(1, run="other")
    events = [
        requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r"),
        about(EventKind.PUBLISHED, result, who="ann", request_id="r"),
        requested("s"), *staged(other, "s"), about(EventKind.PUBLISHED, other, who="ann", request_id="s"),
        requested("t"), about(EventKind.ADOPTED, result, request_id="t"), cancelled("t"),
    ]  # fmt: skip
    assert not view(*events).run("run1").is_publishable
    back = replace(rolled_back(result, undoes=9), run_id=result.run_id)
    assert view(*events, back).run("run1").is_publishable


def test_a_run_that_a_rollback_shows_has_no_judgement_of_a_request_that_would_have_shown_it() -> None:
    """Defect: readers saw a failed run, whose waiver was gone, after the request was cancelled."""
    result, other = a_result(1, verdict=Verdict.FAIL), a_result(1, run="other")
    found = CheckResult(
        slice_id=a_slice(1).slice_id, table="settled", check="s", severity="critical", verdict=Verdict.FAIL
    )
    by_arguments = {"by_arguments": True}
    waived = about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r")
    events = [
        requested(), *staged(result), judged_event("r", "b", {"run1": ()}), replace(waived, details=by_arguments),
        about(EventKind.PUBLISHED, result, who="ann", request_id="r"),
        requested("s"), *staged(other, "s"), about(EventKind.PUBLISHED, other, who="ann", request_id="s"),
        requested("t"), about(EventKind.ADOPTED, result, request_id="t"), judged_event("t", "c", {"run1": (found,)}),
    ]  # fmt: skip
    assert not view(*events).run("run1").is_publishable
    back = replace(rolled_back(result, undoes=10), run_id=result.run_id)
    shown = view(*events, cancelled("t"), back)
    assert shown.published == {a_slice(1).slice_id: "run1"}
    assert (shown.run("run1").judgement, shown.run("run1").is_publishable) == (Judgement(basis="b", checks=()), True)
    again = about(EventKind.PUBLISHED, result, who="ann", request_id="t")
    assert not view(*events, again).run("run1").is_publishable, "its publication shows what was judged"
    stricter = replace(result, checks=(replace(result.checks[0], arguments='{"max_value": 5}'),))
    checked = checked_event("r", stricter)
    assert not view(*events, checked, cancelled("t"), back).run("run1").is_publishable, "another check fails"


def test_a_run_that_an_earlier_version_has_published_after_the_rollback_stays_waived() -> None:
    result = a_result(1, verdict=Verdict.FAIL)
    events = [requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real", request_id="r")]
    published = about(EventKind.PUBLISHED, result, who="ann", request_id="r")
    ended = [*events, published, rolled_back(result, undoes=5)]
    waiver = view(*ended, published).run("run1").waiver
    assert waiver is not None
    assert waiver.who == "ann"
    passed = [checked_event("r", replace(result, verdict=Verdict.PASS)), published]
    failed_again = view(*ended, *passed, checked_event("r", result)).run("run1")
    assert not failed_again.is_publishable, "no person has waived the run of the second publication"


def test_an_error_is_not_publishable_even_when_waived() -> None:
    result = a_result(1, verdict=Verdict.ERROR)
    found = view(requested(), *staged(result), about(EventKind.WAIVED, result, who="ann", reason="real"))
    assert not found.run("run1").is_publishable


def test_publication_shows_all_slices_of_a_commit_in_slice_order() -> None:
    second, first = a_result(2), a_result(1)
    events = [requested(), *staged(second), *staged(first)]
    before = view(*events)
    assert not before.published
    publish = [replace(about(EventKind.PUBLISHED, one, request_id="r"), seq=9) for one in (second, first)]
    after = project([*(replace(event, seq=1) for event in events), *publish], version=9)
    assert tuple(map(run_attempt, published_runs(after))) == (("1970-01-01", "a1"), ("1970-01-02", "a1"))
    assert after.head is not None
    assert after.head.result.slice.slice_id == "1970-01-02"
    assert after.requests["r"].state is RequestState.PUBLISHED
    assert len(after.publications) == 1


def leased(lease_id: str, *, at_ms: int = 0, length_ms: int = 100) -> LedgerEvent:
    lease = Lease(lease_id=lease_id, holder=None, renewed_at_ms=0, length_ms=length_ms)
    return LedgerEvent(kind=EventKind.LEASED, request_id="r", at_ms=at_ms, details=lease.to_details())


def is_worked_on(events: Sequence[LedgerEvent], now_ms: int) -> bool:
    return bool(view(*events).requests["r"].holders(now_ms=now_ms, is_alive=lambda _holder: None))


def test_a_lease_ends_by_expiry_by_release_and_with_the_request() -> None:
    taken = [requested(), leased("one")]
    assert is_worked_on(taken, 99)
    assert not is_worked_on(taken, 100)
    assert is_worked_on([*taken, leased("one", at_ms=90)], 189), "renewed"
    assert is_worked_on([*taken, *staged(a_result(1))], 99), "it is held between two chunks"
    released = LedgerEvent(kind=EventKind.RELEASED, request_id="r", details={"lease_id": "one"})
    assert not is_worked_on([*taken, released], 50)
    assert is_worked_on([*taken, leased("two"), released], 50), "a release ends only the lease that it names"
    assert not is_worked_on([*taken, LedgerEvent(kind=EventKind.CLOSED, request_id="r")], 50)


def test_a_moved_clock_holds_no_lease() -> None:
    year_ms = 365 * DAY
    taken = [requested(), leased("one", at_ms=year_ms)]
    assert is_worked_on(taken, year_ms - 99)
    assert not is_worked_on(taken, 0), "the clock was moved back by a year since"


def test_a_request_has_not_failed_if_a_later_attempt_has_started() -> None:
    def started(attempt_id: str) -> LedgerEvent:
        return LedgerEvent(kind=EventKind.STARTED, request_id="r", attempt_id=attempt_id, details={"slices": []})

    def failed(attempt_id: str) -> LedgerEvent:
        return LedgerEvent(kind=EventKind.FAILED, request_id="r", attempt_id=attempt_id, reason="broke")

    alone = view(requested(), started("a1"), failed("a1")).requests["r"]
    assert (alone.failure, alone.is_open) == ("broke", True)
    followed = view(requested(), leased("two"), started("a1"), started("a2"), failed("a1")).requests["r"]
    assert followed.failure is None
    assert [lease.lease_id for lease in followed.leases] == ["two"]


def test_an_unknown_kind_of_request_is_named_in_the_error() -> None:
    with pytest.raises(LedgerError, match="has the unknown kind 'hourly'; a newer Hindcast wrote it"):
        view(replace(requested(), details={"kind": "hourly"}))


def test_an_event_of_an_unknown_request_is_damage() -> None:
    with pytest.raises(LedgerError, match="names request nobody, which no earlier event opens"):
        view(LedgerEvent(kind=EventKind.CLOSED, request_id="nobody"))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["stage", "publish", "roll back", "waive", "condemn", "note"]),
        st.integers(1, 4),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["a1", "a2", "a3"]),
        st.sampled_from(list(Verdict)),
    ),
    max_size=30,
)


@given(STEPS)
def test_readers_see_published_runs_only_and_the_first_attempt_that_is_not_condemned(
    steps: list[tuple[str, int, str, str, Verdict]],
) -> None:
    """L4 and L6, against a model that keeps lists only."""
    events = [requested()]
    attempts: dict[str, list[str]] = {}
    condemned: set[tuple[str, str]] = set()
    seen: dict[str, str | None] = {}
    for what, number, run, attempt, verdict in steps:
        result = a_result(number, run=run, attempt=attempt, verdict=verdict)
        name = result.slice.slice_id
        match what:
            case "stage":
                events += staged(result)
                attempts.setdefault(result.run_id, []).append(attempt)
            case "publish" if result.run_id in attempts:
                events.append(about(EventKind.PUBLISHED, result, request_id="r"))
                seen[name] = result.run_id
            case "roll back" if seen.get(name):
                undoes = next(one.seq for one in reversed(view(*events).publications) if name in one.changes)
                back = replace(about(EventKind.ROLLED_BACK, result), run_id=None, attempt_id=None)
                events.append(replace(back, details={"undoes": undoes}))
                seen[name] = None
            case "waive" if result.run_id in attempts:
                events.append(about(EventKind.WAIVED, result, who="ann", reason="r"))
            case "condemn" if result.run_id in attempts and result.run_id not in seen.values():
                events.append(about(EventKind.CONDEMNED, result))
                condemned.add((result.run_id, attempt))
            case _:
                events.append(LedgerEvent(kind=EventKind.NOTE))
        found = view(*events)
        standing = {
            run_id: [one for one in tried if (run_id, one) not in condemned] for run_id, tried in attempts.items()
        }
        assert {run_id: run.result.attempt_id for run_id, run in found.runs.items()} == {
            run_id: tried[0] for run_id, tried in standing.items() if tried
        }
        assert dict(found.published) == {name: seen[name] for name in sorted(seen) if seen[name]}
        shown = [found.published_at(seq) for seq in range(found.version + 1)]
        assert shown[-1] == dict(found.published)
        assert shown[0] == {}


def proposed(reason: str, *changes: int, request_id: str = "r") -> LedgerEvent:
    """The event by which the schedule proposes to restate slices."""
    logs = {a_slice(number).slice_id: a_result(number).log for number in changes}
    return replace(
        requested(request_id), reason=reason, details={"kind": "restatement", "from_ms": 0} | changes_details(logs)
    )


def test_a_proposal_is_what_its_newest_event_says_until_an_attempt_starts() -> None:
    events = [proposed("one", 1), proposed("two", 1, 2)]
    view = project(events, version=1)
    assert (view.requests["r"].reason, list(view.requests["r"].changes)) == ("two", ["1970-01-01", "1970-01-02"])
    assert view.requests["r"].is_proposed
    started = LedgerEvent(kind=EventKind.STARTED, request_id="r", attempt_id="a1", details={"slices": ["1970-01-01"]})
    begun = project([*events, started, proposed("three", 3)], version=2).requests["r"]
    assert (begun.reason, begun.is_proposed) == ("two", False)
    other = replace(proposed("range", 1), details={"kind": "range"})
    assert project([other, proposed("two", 2)], version=1).requests["r"].reason == "range"


def test_looks_are_stored_as_differences() -> None:
    """For random looks, each of which adds, changes or drops slices. An event has no slice that is as it was."""
    for seed in seeds(20):
        chance, changed, events = Random(seed), dict[str, SeenInput](), list[LedgerEvent]()
        for seq in range(1, 9):
            known, before = changed, project(events, version=seq - 1).look
            changed = {name: seen for name, seen in known.items() if chance.random() < 0.8}
            for name in chance.sample(range(10), chance.randrange(3)):
                changed[f"1970-01-{name:02d}"] = SeenInput(log=replace(a_result(1).log, records=chance.randrange(3)))
            look = Look(table_id="log", version=seq, commit=f"c{seq}", names={"day": "col-1"}, changed=changed, seq=seq)
            events.append(replace(looked_event(look, before), seq=seq))
            assert project(events, version=seq).look == look, seed
            stored = events[-1].details.get("newly", {}).keys() if seq > 1 else changed.keys()
            assert stored == {name for name, seen in changed.items() if known.get(name) != seen}, seed


def test_the_newest_look_counts_and_a_damaged_one_is_an_error() -> None:
    log = a_result(1).log
    look = Look(table_id="log", version=7, commit="c", changed={"1970-01-01": SeenInput(log=log, removed="commit 3")})
    event = replace(looked_event(look), seq=4)
    assert project([], version=0).look is None
    assert project([replace(event, seq=3, details={**event.details, "version": 6}), event], version=4).look == replace(
        look, seq=4
    )
    for field in ("table_id", "version", "commit", "changed"):
        damaged = {name: value for name, value in event.details.items() if name != field}
        with pytest.raises(LedgerError, match=r"ledger event looked \(seq 4\) cannot be read"):
            project([replace(event, details=damaged)], version=4)
    following = replace(looked_event(replace(look, changed={}), replace(look, seq=4)), seq=5)
    for before in ([], [replace(event, seq=3)]):
        with pytest.raises(LedgerError, match=r"ledger event looked \(seq 5\) cannot be read: .* is missing"):
            project([*before, following], version=5)
    with pytest.raises(LedgerError, match="ledger event requested"):
        project([replace(proposed("x", 1), details={"kind": "restatement", "changes": {"s": 3}})], version=1)
