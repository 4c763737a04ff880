"""What may be replayed after the last record of the log: Airflow's own backfill waits, and a person is warned."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.orchestration import dag_tasks
from jobs.orchestration.dag_orders import Order
from jobs.orchestration.dag_tasks import DagRun
from jobs.orchestration.interval_backfill import AskAirflow
from jobs.orchestration.scheduling import Skip, Wait
from jobs.planning.readiness import AssetEvent, EventsSince
from jobs.planning.standing import standing
from jobs.planning.steps import Ask
from tests.support.day_chains import DAY_MS, FIRST_MS, HOUR_MS, Place, Put, of_airflow, run

RAW = "s3://raw"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Three published days; the fourth is over, and has no record."""
    place = Place(tmp_path)
    place.put(*(Put(day, 24 * day + hour) for day in range(3) for hour in (1, 20)))
    place.now_ms = FIRST_MS + 4 * DAY_MS + HOUR_MS
    run(place.work(), 0, 3)
    return place


def planned(place: Place, *, events: EventsSince, more: str = "") -> Order | Wait | Skip:
    """Return the result of the plan task of Airflow's own backfill of the fourth day."""
    file = place.root / "late.yaml"
    file.write_text(place.text(slices="{by: day}" + more))
    start, end = (datetime.fromtimestamp((FIRST_MS + day * DAY_MS) / 1000, tz=UTC) for day in (3, 4))
    facts = DagRun(
        dag_id="replay_late", run_id="backfill__1", run_type="backfill", interval_start=start, interval_end=end
    )
    return dag_tasks.plan("replay", str(file), facts, lake=str(place.root), airflow=AskAirflow(events=events))


@pytest.mark.slow
def test_airflows_backfill_waits_for_a_slice_as_the_schedule_does(place: Place) -> None:
    waits = planned(place, events=lambda _since_ms: ())
    assert isinstance(waits, Wait)
    assert waits.waiting == standing(place.work(), place.work().ledger.view()).waiting
    assert waits.watch.log is not None
    assert not place.work().ledger.view().open_requests()
    place.put(Put(3, 24 * 3 + 1))
    assert of_airflow(place.work(), 3).slices == ("1970-01-08",)


def test_an_asset_event_completes_a_slice_of_airflows_backfill(place: Place) -> None:
    ready = f"\n  ready: {{producer: '{RAW}'}}"
    assert isinstance(planned(place, more=ready, events=lambda _since_ms: ()), Wait)
    named = AssetEvent(uri=RAW, at_ms=place.now_ms, key="1970-01-08")
    assert isinstance(planned(place, more=ready, events=lambda _since_ms: (named,)), Order)


def test_airflows_backfill_tells_that_a_person_decides_on_an_overdue_slice(place: Place) -> None:
    waits = planned(place, events=lambda _since_ms: (), more="\n  ready: {timeout: 30m, then: hold}")
    assert isinstance(waits, Wait)
    assert waits.why.endswith("then: hold); the schedule replays it for a person to decide, and then this run goes on")
    waits = planned(place, events=lambda _since_ms: (), more="\n  ready: {timeout: 30m, then: wait}")
    assert isinstance(waits, Wait)
    assert waits.why.endswith("(ready.timeout, then: wait)")


def test_a_person_publishes_a_slice_that_may_not_have_arrived_and_is_warned(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    told = "the log has no record after 1970-01-07, so 1970-01-08 may not have arrived"
    work, view = place.work(), place.work().ledger.view()
    [day] = standing(work, view).due
    plan = work.plan(view, Ask(slices=(day,)))
    assert any(told in warning for warning in plan.to_json()["warnings"])
    assert run(work, 3, 4).is_published
    assert told in caplog.text
    caplog.clear()
    view = work.ledger.view()
    assert not any(told in warning for warning in work.plan(view, Ask(slices=(day,))).cautions)
    assert planned(place, events=lambda _since_ms: ()) == Skip(why="every slice is current and published")
