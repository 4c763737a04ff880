"""What the schedule does if slices are left out: by `log.slice.first` after the published head."""

from pathlib import Path

import pytest

from jobs.orchestration.scheduling import Replay, plan_scheduled, publish_task, replay
from jobs.planning.request_context import RequestContext
from jobs.planning.standing import awaited_slice, standing
from jobs.publishing.rules import PublicationAttempt
from jobs.review.metrics import gauges
from tests.support.day_chains import DAY_MS, FIRST_MS, HOUR_MS, Place, Put, replayed, run, totals

FROM_THE_SIXTH = "{by: day, first: 1970-01-10}"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Three published days of eight."""
    place = Place(tmp_path)
    place.put(*(Put(day, 24 * day + hour) for day in range(8) for hour in (1, 20)))
    place.now_ms = FIRST_MS + 8 * DAY_MS + HOUR_MS
    run(place.work(), 0, 3)
    return place


def scheduled(place: Place, work: RequestContext, *, request_id: str) -> Replay:
    """Plan and replay what a scheduled run has to."""
    decision = plan_scheduled(
        work.pipeline, work.lake, interval_end_ms=place.now_ms, now_ms=place.now_ms, who="s", request_id=request_id
    )
    assert isinstance(decision, Replay)
    replay(
        work.pipeline, work.lake, opened=decision.opened, slices=decision.slices, replayer=replayed,
        now_ms=lambda: place.now_ms,
    )  # fmt: skip
    return decision


def published(place: Place, work: RequestContext, decision: Replay) -> PublicationAttempt:
    return publish_task(
        work.pipeline, work.lake, opened=decision.opened, who="s", now_ms=place.now_ms, slices=decision.slices
    )


def test_the_schedule_leaves_out_the_slices_before_the_first_one_of_the_pipeline_file(place: Place) -> None:
    work = place.work(slices=FROM_THE_SIXTH)
    counts = {gauge.name: gauge.value for gauge in gauges(work, work.ledger.view())}
    assert counts["unpublished_slices"] == 3
    decision = scheduled(place, work, request_id="r")
    assert decision.slices == ("1970-01-10", "1970-01-11", "1970-01-12")
    assert published(place, work, decision).is_published
    view = work.ledger.view()
    assert [*view.published] == ["1970-01-05", "1970-01-06", "1970-01-07", *decision.slices]
    assert len(totals(work)) == 10
    place.put(Put(8, 24 * 8 + 1), Put(9, 24 * 9 + 1))
    place.now_ms += DAY_MS
    assert published(place, work, scheduled(place, work, request_id="next")).is_published


def test_the_schedule_waits_for_the_first_slice_of_the_pipeline_file(place: Place) -> None:
    work = place.work(slices="{by: day, first: 1970-01-14}", more="schedule: '0 6 * * *'\n")
    view = work.ledger.view()
    assert awaited_slice(work, view, until_ms=place.now_ms) is None
    place.now_ms += 2 * DAY_MS
    waiting = awaited_slice(work, view, until_ms=place.now_ms)
    assert waiting is not None
    assert waiting.slice.slice_id == "1970-01-14"
    assert standing(work, view).waiting == waiting


def test_what_was_staged_before_the_first_slice_moved_is_published(place: Place) -> None:
    """The slices that it leaves out are staged already, and fit."""
    decision = scheduled(place, place.work(), request_id="r")
    assert published(place, place.work(slices=FROM_THE_SIXTH), decision).is_published
