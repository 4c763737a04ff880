"""What the tasks of a DAG do, played without Airflow and without Spark, over a real ledger."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration import dag_tasks, scheduling
from jobs.orchestration.dag_tasks import CheckFailed
from jobs.planning.workspace import Opened, open_workspace
from jobs.publishing.decisions import waive
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, sales
from windowlib.errors import RequestError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]


class Dag:
    """Plays DAG runs of one pipeline."""

    def __init__(self, root: Path) -> None:
        self.file = root / "sales.yaml"
        self.file.write_text(PIPELINE, encoding="utf-8")
        self.lake = Lake(root=str(root / "lake"))
        self.runs = 0

    def run(self, kind: dag_tasks.Kind, **facts: object) -> dict[str, Any]:
        """The plan's order for a DAG run."""
        self.runs += 1
        run = {
            "dag_id": f"{kind}_sales",
            "run_id": f"manual__{self.runs}",
            "run_type": "manual",
            "clear_number": 0,
            "user": "ann",
            "interval_start": None,
            "interval_end": None,
            "params": {},
        }
        return dag_tasks.plan(kind, str(self.file), run | facts)

    def backfill(self, first: str, end: str, **params: object) -> dict[str, Any]:
        """The order of a backfill by hand."""
        given = {"from": first, "to": end, "reason": "a test", "publish": True, "fresh": False}
        return self.run("backfill", params=given | params)

    def replay(self, order: dict[str, Any]) -> None:
        """What the Spark task does, with a replayer that needs no Spark."""
        order = dag_tasks.read_order(json.dumps(order))
        scheduling.replay(
            sales(),
            Lake(root=order["lake"]),
            opened=Opened(request_id=order["request_id"], lease_id=order["lease_id"]),
            slices=order["slices"],
            replayer=FakeReplayer(),
            now_ms=now_ms,
        )

    @property
    def seen(self) -> list[str]:
        return list(open_workspace(sales(), self.lake, now_ms=now_ms).ledger.view().published)


@pytest.fixture
def dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dag:
    dag = Dag(tmp_path)
    monkeypatch.setenv("HINDCAST_LAKE", dag.lake.root)
    for index, day in enumerate(DAYS):
        append_day(Path(dag.lake.root), day, {"a": 10 + index})
    return dag


def test_a_backfill_by_hand_is_published_as_a_whole(dag: Dag) -> None:
    order = dag.backfill("2024-01-01", "2024-01-04")
    assert order["action"] == "replay"
    assert order["slices"] == DAYS[:3]
    assert order["who"] == "ann (Airflow)"
    dag.replay(order)
    assert dag_tasks.gate(order) == "3 slices passed"
    assert dag.seen == []
    done = dag_tasks.publish(order)
    assert (done["published"], done["changed"], done["partitions"]) == (True, DAYS[:3], DAYS[:3])
    assert dag.seen == DAYS[:3]
    assert dag.backfill("2024-01-01", "2024-01-04")["action"] == "skip"


def test_a_failed_check_closes_the_gate_until_a_person_decides(dag: Dag) -> None:
    append_day(Path(dag.lake.root), "2024-01-02", {"b": FAILS})
    order = dag.backfill("2024-01-01", "2024-01-04")
    dag.replay(order)
    with pytest.raises(
        CheckFailed,
        match=r"2024-01-02.*hindcast waive PIPELINE SLICE --run RUN --reason …` \(2024-01-02 --run [0-9a-f]{12}\)",
    ):
        dag_tasks.gate(order)
    assert dag.seen == []
    waive(open_workspace(sales(), dag.lake, now_ms=now_ms), "2024-01-02", reason="true", who="ann")
    dag_tasks.gate(order)
    assert dag_tasks.publish(order)["published"]
    assert dag.seen == DAYS[:3]


def test_what_was_not_to_be_published_stays_staged(dag: Dag) -> None:
    order = dag.backfill("2024-01-01", "2024-01-03", publish=False)
    dag.replay(order)
    done = dag_tasks.publish(order)
    assert (done["published"], done["changed"], done["why"]) == (False, [], "staged, not published, as asked for")
    assert dag.seen == []


def test_a_retry_goes_on_with_the_same_request_and_a_cleared_run_has_another(dag: Dag) -> None:
    first = dag.run("replay", run_id="scheduled__1", run_type="scheduled", interval_end="2024-01-03T06:00:00+00:00")
    again = dag.run("replay", run_id="scheduled__1", run_type="scheduled", interval_end="2024-01-03T06:00:00+00:00")
    assert first["request_id"] == again["request_id"]
    assert first["slices"] == DAYS[:2]
    run = {"dag_id": "d", "run_id": "r", "clear_number": 0}
    assert dag_tasks.request_id(run) == dag_tasks.request_id(run)
    assert dag_tasks.request_id(run) != dag_tasks.request_id(run | {"clear_number": 1})


def test_a_run_by_hand_looks_as_far_as_there_is_anything(dag: Dag) -> None:
    order = dag.run("replay", interval_start="2024-01-02T06:00:00+00:00", interval_end="2024-01-02T06:00:00+00:00")
    assert order["slices"][: len(DAYS)] == DAYS


def test_airflows_own_backfill_covers_the_slices_that_end_in_its_interval(dag: Dag) -> None:
    for day, after in ((1, 2), (2, 3)):
        order = dag.run(
            "replay",
            run_id=f"backfill__{day}",
            run_type="backfill",
            interval_start=f"2024-01-{day:02d}T06:00:00+00:00",
            interval_end=f"2024-01-{after:02d}T06:00:00+00:00",
        )
        assert order["slices"] == [f"2024-01-{day:02d}"]
        dag.replay(order)
        dag_tasks.gate(order)
        dag_tasks.publish(order)
    assert dag.seen == DAYS[:2]


def test_many_changed_slices_are_one_event(dag: Dag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_tasks, "MAX_EVENTS", 2)
    order = dag.backfill("2024-01-01", "2024-01-04")
    dag.replay(order)
    done = dag_tasks.publish(order)
    assert done["changed"] == DAYS[:3]
    assert done["partitions"] == ["2024-01-01..2024-01-03"]


def test_a_range_that_is_no_range_is_refused_before_anything_is_written(dag: Dag) -> None:
    with pytest.raises(RequestError):
        dag.backfill("2024-01-04", "2024-01-01")
    assert not Path(dag.lake.ledger("sales")).exists()


def test_a_task_without_a_lake_says_so(dag: Dag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HINDCAST_LAKE")
    with pytest.raises(RequestError, match="HINDCAST_LAKE is not set"):
        dag.backfill("2024-01-01", "2024-01-02")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("None", "is not JSON"),
        ("[]", "lacks lake, lease_id, pipeline, request_id, slices"),
        ('{"pipeline": "x", "lake": "y", "slices": []}', "lacks lease_id, request_id"),
    ],
)
def test_an_argument_that_is_no_order_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        dag_tasks.read_order(text)
