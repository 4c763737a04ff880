"""What DAG tasks are told, played through over a real ledger."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration import scheduling
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.workspace import Asked, Opened, Workspace, open_workspace
from jobs.publishing.decisions import waive
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from windowlib.errors import RequestError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 8)]
HOUR = 3_600_000


def opened_by(decision: dict[str, Any]) -> Opened:
    return Opened(request_id=decision["request_id"], lease_id=decision["lease_id"])


class Airflow:
    """Plays the tasks of one DAG run after the other."""

    def __init__(self, root: Path, text: str = PIPELINE) -> None:
        self.lake = Lake(root=str(root))
        self.text = text
        self.replayer = FakeReplayer()

    def work(self, now_ms: int) -> Workspace:
        return open_workspace(sales(self.text), self.lake, now_ms=lambda: now_ms)

    def scheduled(self, end: str, *, late_ms: int = 6 * HOUR) -> dict[str, Any]:
        now_ms = day_ms(end) + late_ms
        pipeline = sales(self.text)
        decision = scheduling.plan_scheduled(
            pipeline, self.lake, interval_end_ms=day_ms(end), now_ms=now_ms, who="airflow"
        )
        return self.tasks(decision, now_ms)

    def backfilled(self, start: str, end: str) -> dict[str, Any]:
        now_ms = day_ms("2024-02-01")
        decision = scheduling.plan_backfill_interval(
            sales(self.text), self.lake, start_ms=day_ms(start), end_ms=day_ms(end), now_ms=now_ms, who="airflow"
        )
        return self.tasks(decision, now_ms)

    def tasks(self, decision: dict[str, Any], now_ms: int) -> dict[str, Any]:
        if decision["action"] != "replay":
            return decision
        pipeline, opened = sales(self.text), opened_by(decision)
        scheduling.replay(
            pipeline,
            self.lake,
            opened=opened,
            slices=decision["slices"],
            replayer=self.replayer,
            now_ms=lambda: now_ms,
        )
        slices = decision["slices"]
        gate = scheduling.gate(pipeline, self.lake, opened=opened, now_ms=now_ms, slices=slices)
        if not gate["passed"]:
            return decision | {"gate": gate, "published": False}
        done = scheduling.publish_task(pipeline, self.lake, opened=opened, who="airflow", now_ms=now_ms, slices=slices)
        return decision | {"gate": gate} | done

    @property
    def seen(self) -> list[str]:
        return list(self.work(0).ledger.view().published)


@pytest.fixture
def airflow(tmp_path: Path) -> Airflow:
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": 10 + index, "b": 1})
    return Airflow(tmp_path)


def test_a_scheduled_run_catches_up_from_the_head(airflow: Airflow) -> None:
    assert airflow.scheduled("2024-01-03")["slices"] == ["2024-01-01", "2024-01-02"]
    assert airflow.scheduled("2024-01-06")["slices"] == ["2024-01-03", "2024-01-04", "2024-01-05"]
    assert airflow.seen == DAYS[:5]
    assert airflow.scheduled("2024-01-06")["action"] == "skip"


def test_a_failed_slice_holds_the_chain_until_it_is_waived(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-03", {"c": 5_000})
    assert not airflow.scheduled("2024-01-05")["published"]
    assert airflow.seen == []
    prefix = airflow.scheduled("2024-01-06")
    assert prefix["slices"] == ["2024-01-01", "2024-01-02"]
    assert prefix["published"]
    held = airflow.scheduled("2024-01-06")
    assert (held["action"], held["why"]) == ("skip", "held by 2024-01-03: check failed (total)")
    waive(airflow.work(day_ms("2024-01-06")), "2024-01-03", reason="it was real", who="ann")
    before = len(airflow.replayer.orders)
    caught_up = airflow.scheduled("2024-01-06")
    assert caught_up["published"]
    assert airflow.seen == DAYS[:5]
    assert [order.slices[0].slice_id for order in airflow.replayer.orders[before:]] == ["2024-01-05"]


def test_a_held_slice_runs_again_when_its_input_changes(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": 5_000})
    assert not airflow.scheduled("2024-01-02")["published"]
    assert airflow.scheduled("2024-01-02")["action"] == "skip"
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": -5_000})
    assert airflow.scheduled("2024-01-02")["published"]


def test_it_waits_until_the_slice_is_complete(airflow: Airflow) -> None:
    airflow.text = PIPELINE.replace("slice: {by: day}", "slice: {by: day}\n  ready: {after: 2h}")
    waiting = airflow.scheduled("2024-01-02", late_ms=HOUR)
    assert waiting["action"] == "wait"
    assert waiting["why"] == "slice 2024-01-01 is complete 2 h after its end, at 2024-01-02 02:00:00 UTC"
    assert airflow.scheduled("2024-01-02", late_ms=2 * HOUR)["published"]


@pytest.mark.parametrize(
    ("ready", "why"),
    [
        ("{min_records: 5}", "has 2 records, and is complete with 5"),
        ("{newer_commit: true}", "records of a later slice"),
        ("{marker: 'done/{slice_id}'}", "done/2024-01-07 exists"),
    ],
)
def test_signs_of_completeness(airflow: Airflow, ready: str, why: str) -> None:
    run_request(
        airflow.work(day_ms("2024-02-01")),
        Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-07"), who="me", reason="test"),
        FakeReplayer(),
    )
    airflow.text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day}}\n  ready: {ready}")
    waiting = airflow.scheduled("2024-01-08")
    assert waiting["action"] == "wait"
    assert why in waiting["why"]
    airflow.text = airflow.text.replace(ready, ready[:-1] + ", timeout: 3h}")
    with pytest.raises(RequestError, match=r"did not happen within 3 h"):
        airflow.scheduled("2024-01-08")
    append_day(Path(airflow.lake.root), "2024-01-07", {"x": 1, "y": 2, "z": 3})
    append_day(Path(airflow.lake.root), "2024-01-08", {"x": 1})
    (Path(airflow.lake.root) / "done").mkdir()
    (Path(airflow.lake.root) / "done" / "2024-01-07").touch()
    assert airflow.scheduled("2024-01-08")["published"]


def test_it_waits_while_somebody_else_makes_the_slice(airflow: Airflow) -> None:
    seen: list[dict[str, Any]] = []

    def meanwhile(_order: object) -> None:
        decision = scheduling.plan_scheduled(
            sales(), airflow.lake, interval_end_ms=day_ms("2024-01-04"), now_ms=day_ms("2024-01-05"), who="airflow"
        )
        seen.append(decision)

    work = airflow.work(day_ms("2024-01-05"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-04"), who="ann", reason="by hand")
    run_request(work, asked, FakeReplayer(on_order=meanwhile))
    assert seen[0]["action"] == "wait"
    assert "is being made by request" in seen[0]["why"]
    assert "(ann: by hand)" in seen[0]["why"]


def test_an_edited_file_is_a_warning_until_it_is_published(airflow: Airflow) -> None:
    airflow.scheduled("2024-01-03")
    airflow.text = PIPELINE.replace("size: 1d", "size: 2d")
    warned = airflow.scheduled("2024-01-04")
    assert warned["published"]
    assert "is kept to" in warned["warnings"][0]
    view = airflow.work(0).ledger.view()
    assert len({view.run(run_id).result.spec_fingerprint for run_id in view.published.values()}) == 1


def test_airflows_backfill_stages_until_it_reaches_the_published_chain_with_an_equal_state(airflow: Airflow) -> None:
    airflow.scheduled("2024-01-08")
    append_day(Path(airflow.lake.root), "2024-01-02", {"c": 5})
    first = airflow.backfilled("2024-01-02", "2024-01-03")
    assert first["slices"] == ["2024-01-02"]
    assert (first["published"], first["waits_for"]) == (False, "2024-01-03")
    assert first["why"].startswith("staged, waits for 2024-01-03")
    second = airflow.backfilled("2024-01-03", "2024-01-04")
    assert second["request_id"] == first["request_id"]
    assert second["published"]
    assert second["changed"] == ["2024-01-02", "2024-01-03"]
    assert airflow.backfilled("2024-01-04", "2024-01-05")["action"] == "skip"


def test_airflows_backfill_of_a_new_chain_publishes_each_interval_at_the_head(airflow: Airflow) -> None:
    for start, end in pairwise(DAYS[:4]):
        assert airflow.backfilled(start, end)["published"]
    assert airflow.seen == DAYS[:3]


def test_airflows_backfill_waits_for_a_slice_of_the_request_that_a_check_holds(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": 5_000})
    assert airflow.backfilled("2024-01-01", "2024-01-02")["gate"]["stopped_by"] == ["2024-01-01"]
    second = airflow.backfilled("2024-01-02", "2024-01-03")
    assert (second["gate"]["passed"], second["published"], second["waits_for"]) == (True, False, "2024-01-01")
    waive(airflow.work(day_ms("2024-02-01")), "2024-01-01", reason="it was real", who="ann")
    assert airflow.backfilled("2024-01-03", "2024-01-04")["published"]
    assert airflow.seen == DAYS[:3]


def test_a_daily_run_stops_at_the_first_failed_chunk(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-02", {"c": 5_000})
    decision = scheduling.plan_scheduled(
        sales(), airflow.lake, interval_end_ms=day_ms("2024-01-07"), now_ms=day_ms("2024-01-08"), who="airflow"
    )
    scheduling.replay(
        sales(), airflow.lake, opened=opened_by(decision), slices=decision["slices"], replayer=airflow.replayer,
        now_ms=lambda: day_ms("2024-01-08"), staging=Staging(chunk=2),
    )  # fmt: skip
    assert airflow.replayer.replayed == [DAYS[:2]]


def test_airflows_backfill_without_a_predecessor_is_refused(airflow: Airflow) -> None:
    with pytest.raises(RequestError, match="2024-01-04"):
        airflow.backfilled("2024-01-05", "2024-01-06")


def test_a_backfill_by_hand_is_resumed_by_the_same_request(airflow: Airflow) -> None:
    asked = Asked(
        from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-06"), who="ann", reason="first load", request_id="r1"
    )
    now_ms = day_ms("2024-02-01")
    decision = scheduling.plan_by_hand(sales(), airflow.lake, asked=asked, now_ms=now_ms)
    assert decision["request_id"] == "r1"
    again = scheduling.plan_by_hand(sales(), airflow.lake, asked=asked, now_ms=now_ms)
    assert again == decision
    assert airflow.tasks(again, now_ms)["published"]
    assert (
        scheduling.plan_by_hand(sales(), airflow.lake, asked=replace(asked, request_id="r2"), now_ms=now_ms)["action"]
        == "skip"
    )


def test_a_garbage_partition_makes_no_endless_chain(airflow: Airflow) -> None:
    work = airflow.work(day_ms("2024-01-08"))
    view = work.ledger.view()
    assert len(scheduling._after_head(work, view, day_ms("2024-01-08"), most=7)) == 7
    with pytest.raises(RequestError, match=r"more than 6 slices, from 2024-01-01 on.*log\.slice\.first"):
        scheduling._after_head(work, view, day_ms("2024-01-08"), most=6)
