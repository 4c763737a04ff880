"""Decisions of persons: what is refused and why, retries, and two decisions at once."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind
from jobs.ledger.leases import Holder
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, RequestKind, RequestState
from jobs.orchestration import decisions, scheduling
from jobs.orchestration.decision_fields import read_decision
from jobs.orchestration.interval_backfill import plan_backfill_interval
from jobs.orchestration.requests import run_request
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Asked, Opened, RequestContext, open_request, open_request_context
from jobs.publishing.optimistic_check import By, OutdatedDecision, check_seen_request, check_seen_run
from jobs.publishing.publishing import publish
from jobs.publishing.stop_reasons import stop_reasons
from jobs.runs import CheckResult
from jobs.wall_clock import now_ms
from tests.support.fake_replay import BREAKS, FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from tests.support.fuzzing import seeds
from windowlib.errors import HindcastError, RequestError

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")
HELD = DAYS[1:3]
NOW_MS = day_ms("2024-02-01")
ANN, BOB, CID = (By(who=name, decision_id=f"decide_sales/{name}") for name in ("ann", "bob", "cid"))


class Place:
    """Four days of sales in a lake. The second and the third fail their check. A request has staged all of them."""

    def __init__(self, root: Path, *, amount: int = FAILS) -> None:
        self.lake = root / "lake"
        self.file = root / "sales.yaml"
        self.file.write_text(PIPELINE, encoding="utf-8")
        for day in DAYS:
            append_day(self.lake, day, {"a": amount if day in HELD else 1})
        self.work = self.request_context()
        self.request_id = self.stage("2024-01-01", "2024-01-05")

    def request_context(self) -> RequestContext:
        return open_request_context(sales(), Lake(root=str(self.lake)), now_ms=lambda: NOW_MS)

    def stage(self, first: str, end: str, reason: str = "a test", *, is_fresh: bool = False) -> str:
        origin = DagRunOrigin(dag_id="backfill_sales", run_id=f"manual__{first}", slice_ids=DAYS)
        asked = Asked(
            from_ms=day_ms(first), to_ms=day_ms(end), who="ines (Airflow)", reason=reason, origin=origin,
            is_fresh=is_fresh,
        )  # fmt: skip
        return run_request(self.work, asked, FakeReplayer(), publish=False).request_id

    def decide(self, decider: By, given: Mapping[str, Any]) -> decisions.Decided:
        return decisions.decide(str(self.file), read_decision(given), decider, lake=str(self.lake))

    def publish(self, decider: By, decided: decisions.Decided) -> Any:  # noqa: ANN401
        return decisions.publish_decided(str(self.file), decided, decider, lake=str(self.lake))

    def waiver(self, *, slices: tuple[str, ...] = HELD, action: str = "waive_and_publish") -> dict[str, Any]:
        """A decision on what the ledger has now."""
        view = self.work.ledger.view()
        runs = view.requests[self.request_id].runs
        chosen = [{"slice_id": one, "run_id": runs[one], "reason": f"snow on {one}"} for one in slices]
        return {
            "action": action, "request_id": self.request_id, "slices": chosen, "ledger_version": view.version
        }  # fmt: skip

    def count(self, kind: EventKind) -> int:
        self.work.ledger.view()
        return sum(event.kind is kind for event in self.work.ledger._history.events)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_waive_and_publish_names_the_person_the_reasons_and_the_stopped_dag_run(place: Place) -> None:
    decided = place.decide(ANN, place.waiver())
    published = place.publish(ANN, decided)
    assert (published.is_published, published.changed) == (True, DAYS)
    view = place.work.ledger.view()
    assert set(view.published) == set(DAYS)
    assert view.publications[-1].who == "ann"
    for day in HELD:
        run = view.published_run(day)
        assert run is not None
        assert run.waiver is not None
        assert (run.waiver.who, run.waiver.reason) == ("ann", f"snow on {day}")
    asked: list[tuple[str, str]] = []

    def state(dag_id: str, run_id: str) -> str:
        asked.append((dag_id, run_id))
        return "failed"

    [stopped] = decisions.runs_to_clear(str(place.file), decided, state, lake=str(place.lake))
    assert (stopped.dag_id, stopped.run_id) == ("backfill_sales", "manual__2024-01-01") == asked[0]
    assert decisions.runs_to_clear(str(place.file), decided, lambda *_: "success", lake=str(place.lake)) == ()
    assert decisions.runs_to_clear(str(place.file), decided, lambda *_: None, lake=str(place.lake)) == ()
    assert (
        decisions.was_settled(place.work, ("", ""), request_id=place.request_id)
        == f"ann has published request {place.request_id}"
    )


def test_a_retry_of_each_task_writes_nothing_and_returns_the_same(place: Place) -> None:
    """The worker died after the write, before Airflow had its result: the events are sent by the retry."""
    given = place.waiver()
    first = place.decide(ANN, given)
    version = place.work.ledger.view().version
    assert place.decide(ANN, given) == first
    assert place.work.ledger.view().version == version
    published = place.publish(ANN, first)
    version = place.work.ledger.view().version
    again = place.publish(ANN, first)
    assert (again.changed, again.is_published) == (published.changed, True)
    assert place.publish(BOB, first).changed == (), "the DAG run of another decision sends no event"
    assert place.work.ledger.view().version == version
    back = {"action": "roll_back", "publication": version, "reason": "too early"}
    rolled = place.decide(By(who="cid", decision_id="3"), back)
    assert rolled == place.decide(By(who="cid", decision_id="3"), back)
    assert rolled.changed == list(DAYS)
    ended = place.decide(By(who="cid", decision_id="4"), {"action": "resume", "reason": "go"})
    assert ended == place.decide(By(who="cid", decision_id="4"), {"action": "resume", "reason": "go"})


def test_a_decision_that_was_rolled_back_is_not_made_again_by_a_clear_of_its_dag_run(tmp_path: Path) -> None:
    """Without a ledger version, the decision is not compared with what the person saw."""
    place = Place(tmp_path, amount=1)
    given = {"action": "publish", "request_id": place.request_id}
    decided = place.decide(ANN, given)
    place.publish(ANN, decided)
    back = {"action": "roll_back", "publication": place.work.ledger.view().version, "reason": "wrong rates"}
    place.decide(BOB, back)
    version = place.work.ledger.view().version
    for task in (lambda: place.decide(ANN, given), lambda: place.publish(ANN, decided)):
        with pytest.raises(OutdatedDecision, match=r"this decision was made before.*bob has rolled it back since"):
            task()
    view = place.work.ledger.view()
    assert (view.version, dict(view.published), view.hold is None) == (version, {}, False)
    assert place.publish(CID, place.decide(CID, given)).is_published, "another decision publishes it again"


def test_a_decision_with_the_id_of_another_one_is_refused(place: Place) -> None:
    """The DAG run that had the id was deleted. Defect: nothing was written, and the DAG run told that it was done."""
    cancels = {"action": "cancel", "request_id": place.request_id, "reason": "no"}
    first = place.decide(ANN, cancels)
    assert place.decide(ANN, cancels) == first
    place.request_id = place.stage("2024-01-01", "2024-01-05", "again")
    resumes = {"action": "resume", "reason": "go"}
    for given in (cancels | {"request_id": place.request_id}, place.waiver(action="waive"), resumes):
        with pytest.raises(RequestError, match="decide_sales/ann has made another decision before: cancel at"):
            place.decide(ANN, given)
    assert place.work.ledger.view().requests[place.request_id].is_open
    place.publish(BOB, place.decide(BOB, place.waiver()))
    back = {"action": "roll_back", "publication": place.work.ledger.view().version, "reason": "wrong rates"}
    place.decide(CID, back)
    with pytest.raises(RequestError, match="decide_sales/cid has made another decision before: roll_back at"):
        place.decide(CID, back | {"publication": 1})


def test_a_cleared_end_of_a_hold_does_not_tell_that_a_later_hold_has_ended(tmp_path: Path) -> None:
    """Defect: the DAG run told that the chain goes on."""
    place = Place(tmp_path, amount=1)
    ends = By(who="eve", decision_id="decide_sales/eve")
    for by in (ANN, BOB):
        place.publish(by, place.decide(by, {"action": "publish", "request_id": place.request_id}))
        back = {"action": "roll_back", "publication": place.work.ledger.view().version, "reason": "wrong rates"}
        place.decide(By(who=by.who, decision_id=f"{by.who} again"), back)
        if by is ANN:
            place.decide(ends, {"action": "resume", "reason": "go"})
    with pytest.raises(OutdatedDecision, match="this decision was made before, and bob has rolled publication"):
        place.decide(ends, {"action": "resume", "reason": "go"})
    assert place.work.ledger.view().hold is not None


def test_a_cleared_waiver_that_has_ended_is_outdated(place: Place) -> None:
    """Defect: the DAG run told that nothing is waived, in words without a slice, and was successful."""
    given = place.waiver(action="waive")
    first = place.decide(ANN, given)
    assert place.decide(ANN, given) == first
    place.decide(BOB, {"action": "cancel", "request_id": place.request_id, "reason": "no"})
    with pytest.raises(OutdatedDecision, match="a cancellation or a rollback has ended them, other"):
        place.decide(ANN, given)


def test_a_decision_is_outdated_by_a_failed_check_of_another_table_or_with_other_arguments(place: Place) -> None:
    """The rows of both tables miss the same limit, so only the table tells the two checks apart."""
    view = place.work.ledger.view()
    run = view.run(view.requests[place.request_id].runs[HELD[0]])
    limits = json.dumps({"max_value": 0})
    rows = replace(
        run.result.checks[0], check="expect_table_row_count_to_be_between", arguments=limits, observed='{"value": 2}'
    )
    late = replace(rows, table="late_records")
    alike = replace(rows, arguments=json.dumps({"max_value": 0, "min_value": None}))

    def with_checks(*checks: CheckResult) -> LedgerView:
        shown = replace(run, result=replace(run.result, checks=checks))
        return replace(view, runs={**view.runs, run.result.run_id: shown})

    by = By(who="ann", decision_id="d", seen=with_checks(rows))
    assert stop_reasons(with_checks(rows, late).run(run.result.run_id)) == (
        "window_outputs: number of rows 2, limit 0",
        "late_records: number of rows 2, limit 0",
    )
    check_seen_request(with_checks(rows), place.request_id, by)
    for checks, told in (((rows, late), "late_records: number"), ((alike,), "with other arguments")):
        with pytest.raises(OutdatedDecision, match=told):
            check_seen_request(with_checks(*checks), place.request_id, by)
        with pytest.raises(OutdatedDecision, match=told):
            check_seen_run(with_checks(*checks), run.result.run_id, by)


def test_an_outdated_decision_is_refused_with_what_happened(place: Place) -> None:
    stale = place.waiver()
    place.decide(BOB, place.waiver(slices=HELD[:1], action="waive"))
    with pytest.raises(OutdatedDecision, match=r"bob decided waive at .*snow on 2024-01-02.*has changed nothing"):
        place.decide(ANN, stale)
    assert place.count(EventKind.WAIVED) == 1, "not even the slice that bob did not waive"


def test_another_run_of_a_slice_makes_a_decision_outdated(place: Place) -> None:
    stale = place.waiver()
    append_day(place.lake, HELD[0], {"b": FAILS})
    work = place.request_context()
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-05"), who="ines", reason="again")
    assert run_request(work, asked, FakeReplayer(), publish=False).request_id == place.request_id
    with pytest.raises(OutdatedDecision, match=r"slice 2024-01-02 has run .* it had run"):
        place.decide(ANN, stale)


def test_a_ledger_that_grew_by_other_requests_is_not_outdated(place: Place) -> None:
    given = place.waiver()
    append_day(place.lake, "2024-01-05", {"a": 1})
    place.stage("2024-01-05", "2024-01-06", "another request", is_fresh=True)
    assert place.decide(ANN, given).publishes


def test_a_publication_of_its_slices_makes_a_publication_outdated(tmp_path: Path) -> None:
    """Defect: a click on an old page took back what another person had published since."""
    place = Place(tmp_path, amount=1)
    given = {"action": "publish", "request_id": place.request_id, "ledger_version": place.work.ledger.view().version}
    edited = replace(place.work, pipeline=sales(PIPELINE.replace("size: 1d", "size: 2d")))
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[1]), who="bob", reason="", kind=RequestKind.CANDIDATE)
    publish(edited, who="bob", request_id=run_request(edited, asked, FakeReplayer()).request_id)
    with pytest.raises(OutdatedDecision, match="readers see other runs of 2024-01-01, because bob published at"):
        place.decide(ANN, given)
    given["ledger_version"] = place.work.ledger.view().version
    assert place.publish(ANN, place.decide(ANN, given)).is_published


def test_a_version_from_the_future_is_refused(place: Place) -> None:
    with pytest.raises(RequestError, match="decision was made on ledger version 999"):
        place.decide(ANN, place.waiver() | {"ledger_version": 999})


def test_publishing_needs_all_held_slices_waived(place: Place) -> None:
    with pytest.raises(RequestError, match="would still be held by 2024-01-03"):
        place.decide(ANN, place.waiver(slices=HELD[:1]))
    assert place.count(EventKind.WAIVED) == 0, "all of a decision is written, or nothing"
    with pytest.raises(RequestError, match="is not published: held by 2024-01-02"):
        place.decide(ANN, {"action": "publish", "request_id": place.request_id})
    decided = place.decide(ANN, place.waiver(action="waive"))
    assert not decided.publishes
    assert not place.publish(ANN, decided).is_published
    version = place.work.ledger.view().version
    decided = place.decide(
        BOB, {"action": "publish", "request_id": place.request_id, "ledger_version": version}
    )  # fmt: skip
    assert place.publish(BOB, decided).changed == DAYS


def test_an_error_cannot_be_waived(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="verdict error"):
        (broken := Place(tmp_path, amount=BREAKS)).decide(ANN, broken.waiver())


def test_cancel_closes_a_request_that_nobody_works_on(place: Place) -> None:
    cancel = {"action": "cancel", "request_id": place.request_id, "reason": "wrong range"}
    asked = Asked(from_ms=None, to_ms=None, who="x", reason="x", request_id=place.request_id, lease_id="busy")
    other = open_request_context(sales(), Lake(root=str(place.lake)), now_ms=now_ms)
    gone = Holder(host="elsewhere", boot_id="b", pid_namespace="n", pid=7, start_ticks=1)
    open_request(replace(other, holder=gone), asked)
    with pytest.raises(RequestError, match="worked on by process 7 on elsewhere"):
        place.decide(ANN, cancel)
    release(other, Opened(request_id=place.request_id, lease_id="busy"))
    assert "cancelled by ann: wrong range" in place.decide(ANN, cancel).why
    assert place.work.ledger.view().requests[place.request_id].state is RequestState.CLOSED
    with pytest.raises(RequestError, match=r"is closed .cancelled by ann: wrong range"):
        place.decide(BOB, cancel)
    with pytest.raises(RequestError, match="cancelled by ann"):
        place.decide(BOB, place.waiver() | {"ledger_version": None})


def test_a_second_rollback_tells_of_the_first(place: Place) -> None:
    place.publish(ANN, place.decide(ANN, place.waiver()))
    version = place.work.ledger.view().version
    back = {"action": "roll_back", "publication": version, "reason": "too early", "ledger_version": version}
    place.decide(By(who="cid", decision_id="3"), back)
    with pytest.raises(OutdatedDecision, match=r"cid decided roll_back .*too early"):
        place.decide(By(who="dan", decision_id="4"), back)
    with pytest.raises(RequestError, match="rolled back already, by cid"):
        place.decide(By(who="dan", decision_id="4"), back | {"ledger_version": None})


@pytest.mark.slow
def test_a_dag_run_of_airflows_backfill_is_cleared_when_its_own_slices_may_pass(tmp_path: Path) -> None:
    """Its DAG runs share one request. The publication waits for the others, and the run itself turns green."""
    place = Place(tmp_path)
    lake = Lake(root=str(place.lake))
    cid = By(who="cid", decision_id="decide_sales/cid")
    place.decide(cid, {"action": "cancel", "request_id": place.request_id, "reason": "another way"})
    for day, end in zip(DAYS, (*DAYS[1:], "2024-01-05"), strict=True):
        planned = plan_backfill_interval(
            open_request_context(sales(), lake, now_ms=lambda: NOW_MS),
            interval_ms=(day_ms(day), day_ms(end)),
            who="airflow",
            lease_id=day,
            origin=DagRunOrigin(dag_id="replay_sales", run_id=f"backfill__{day}", slice_ids=()),
        )
        assert isinstance(planned, scheduling.Replay)
        spark_task(place.request_context(), planned)
        release(open_request_context(sales(), lake, now_ms=lambda: NOW_MS), planned.opened)
        place.request_id = planned.opened.request_id
    first = place.decide(ANN, place.waiver(slices=HELD[:1]))
    found = place.publish(ANN, first)
    assert not found.is_published
    assert found.why.startswith(f"the decision is stored, and the backfill is not published yet: held by {HELD[1]}")

    def cleared(decided: decisions.Decided) -> list[str]:
        runs = decisions.runs_to_clear(str(place.file), decided, lambda *_: "failed", lake=str(place.lake))
        return [run.run_id for run in runs]

    assert f"backfill__{HELD[0]}" in cleared(first)
    assert f"backfill__{HELD[1]}" not in cleared(first)
    second = place.decide(BOB, place.waiver(slices=HELD[1:]))
    assert place.publish(BOB, second).changed == DAYS
    assert f"backfill__{HELD[1]}" in cleared(second)


REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "nothing": ({}, "has no action; choose one of publish, waive"),
    "an unknown action": ({"action": "delete"}, "action: "),
    "an unknown key": ({"action": "publish", "reqest_id": "x"}, r"'reqest_id'; did you mean 'request_id'"),
    "no request": ({"action": "publish"}, "the action publish needs request_id"),
    "a foreign field": ({"action": "publish", "request_id": "x", "publication": 3}, "does not take publication"),
    "no slices": ({"action": "waive", "request_id": "x", "slices": []}, "needs slices"),
    "no reason": ({"action": "waive", "request_id": "x", "slices": [{"slice_id": "a", "run_id": "b"}]}, "no reason"),
    "a blank reason": ({"action": "resume", "reason": " \n"}, "blank"),
    "no run": ({"action": "waive", "request_id": "x", "slices": [{"slice_id": "a"}]}, "slices.0.run_id"),
    "a text for a number": ({"action": "roll_back", "publication": "3", "reason": "r"}, "publication: "),
    "no publication": ({"action": "roll_back", "publication": 0, "reason": "r"}, "publication: "),
    "a long reason": ({"action": "resume", "reason": "x" * 2_001}, "reason: "),
    "a control character": ({"action": "publish", "\x1b[2J": 1}, r"\\x1b\[2J"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_keys_and_contradictions_are_refused(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(RequestError, match=message):
        read_decision(given)


def test_a_decision_survives_the_way_through_the_params(place: Place) -> None:
    found = read_decision(place.waiver())
    assert read_decision(found.to_json()) == found
    defaults = dict.fromkeys(("publication", "reason", "slices", "request_id"))
    assert read_decision(defaults | found.to_json()) == found


@pytest.mark.slow
def test_of_decisions_at_once_one_is_made_and_each_other_hears_of_it(tmp_path: Path) -> None:
    """Two to four persons look at the same ledger, and decide at the same time, each in a process of his own."""
    for seed in seeds(6):
        rng = Random(seed)
        place = Place(_made(tmp_path / str(seed)))
        choices: list[Mapping[str, Any]] = [
            place.waiver(),
            place.waiver(action="waive"),
            place.waiver(slices=HELD[:1], action="waive"),
            {"action": "cancel", "request_id": place.request_id, "reason": "no",
             "ledger_version": place.work.ledger.view().version},
        ]  # fmt: skip
        chosen = [rng.choice(choices) for _ in range(rng.randint(2, 4))]
        results = _at_once([partial(_decide, place, index, given) for index, given in enumerate(chosen)])
        made = [index for index, one in enumerate(results) if isinstance(one, decisions.Decided)]
        assert len(made) == 1, (seed, results)
        for index, one in enumerate(results):
            if index != made[0]:
                assert isinstance(one, OutdatedDecision), (seed, one)
                assert f"p{made[0]} decided" in str(one), (seed, one)
        view = place.work.ledger.view()
        assert [one.who for one in view.decisions.values()] == [f"p{made[0]}"]
        waived = {run.result.slice.slice_id for run in view.runs.values() if run.waiver is not None}
        wanted = {one["slice_id"] for one in chosen[made[0]].get("slices", ())}
        assert waived == wanted, seed


@pytest.mark.slow
def test_of_publications_at_once_one_changes_what_readers_see(tmp_path: Path) -> None:
    """Persons and the DAG run publish together: the changed slices are in one result only, so one event is sent."""
    for seed in seeds(4):
        place = Place(_made(tmp_path / str(seed)))
        place.decide(ANN, place.waiver(action="waive"))
        given = {"action": "publish", "request_id": place.request_id}
        ready = [By(who=f"p{index}", decision_id=str(index)) for index in range(3)]
        decided = [place.decide(one, given) for one in ready]
        calls: list[Callable[[], Any]] = [
            partial(place.publish, one, what) for one, what in zip(ready, decided, strict=True)
        ]
        results = _at_once(
            [*calls, partial(publish, place.request_context(), who="shell", request_id=place.request_id)]
        )
        told = [len(one.changed) for one in results[:-1]]  # the shell tells nobody
        assert sorted(told) == [0, 0, len(DAYS)], (seed, results)
        assert place.publish(ready[told.index(len(DAYS))], decided[told.index(len(DAYS))]).changed == DAYS, "a retry"
        assert len(place.work.ledger.view().publications) == 1


def _decide(place: Place, index: int, given: Mapping[str, Any]) -> decisions.Decided:
    return place.decide(By(who=f"p{index}", decision_id=str(index)), given)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _at_once(calls: "list[Callable[[], Any]]") -> list[Any]:
    """Return the result of each call, or the error it raised. All of them begin together."""
    results: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = calls[index]()
        except HindcastError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
