"""Slices that the schedule leaves out: before a `log.slice.first` after the head, and holes before the head."""

from pathlib import Path

import pytest

from jobs.engine import fingerprints
from jobs.orchestration.alerts import Event
from jobs.orchestration.deadlines import Told, look
from jobs.orchestration.scheduling import Replay, plan_scheduled, publish_task, replay
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.planning.standing import awaited_slice, holes, standing
from jobs.publishing.rules import PublicationAttempt
from jobs.review.metrics import gauges
from tests.jobs.cli.conftest import Shell
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


def scheduled(place: Place, work: RequestContext, *, lease_id: str) -> Replay:
    """Plan and replay what a scheduled run has to."""
    decision = plan_scheduled(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: place.now_ms),
        interval_end_ms=place.now_ms,
        who="s",
        lease_id=lease_id,
    )
    assert isinstance(decision, Replay)
    replay(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: place.now_ms),
        opened=decision.opened,
        slices=decision.slices,
        replayer=replayed,
    )
    return decision


def published(place: Place, work: RequestContext, decision: Replay) -> PublicationAttempt:
    return publish_task(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: place.now_ms),
        opened=decision.opened,
        who="s",
        slices=decision.slices,
    )


@pytest.mark.slow
def test_the_schedule_leaves_out_the_slices_before_the_first_one_of_the_pipeline_file(place: Place) -> None:
    work = place.work(slices=FROM_THE_SIXTH)
    counts = gauges(work, work.ledger.view())
    assert counts["unpublished_slices"] == 3
    decision = scheduled(place, work, lease_id="r")
    assert decision.slices == ("1970-01-10", "1970-01-11", "1970-01-12")
    assert published(place, work, decision).is_published
    view = work.ledger.view()
    assert [*view.published] == ["1970-01-05", "1970-01-06", "1970-01-07", *decision.slices]
    assert len(totals(work)) == 10
    place.put(Put(8, 24 * 8 + 1), Put(9, 24 * 9 + 1))
    place.now_ms += DAY_MS
    assert published(place, work, scheduled(place, work, lease_id="next")).is_published


def test_the_schedule_waits_for_the_first_slice_of_the_pipeline_file(place: Place) -> None:
    work = place.work(slices="{by: day, first: 1970-01-14}", more="schedule: '0 6 * * *'\n")
    view = work.ledger.view()
    assert awaited_slice(work, view, until_ms=place.now_ms) is None
    place.now_ms += 2 * DAY_MS
    waiting = awaited_slice(work, view, until_ms=place.now_ms)
    assert waiting is not None
    assert waiting.slice.slice_id == "1970-01-14"
    assert standing(work, view).waiting == waiting


@pytest.mark.slow
def test_what_was_staged_before_the_first_slice_moved_is_published(place: Place) -> None:
    """The slices that it leaves out are staged already, and fit."""
    decision = scheduled(place, place.work(), lease_id="r")
    assert published(place, place.work(slices=FROM_THE_SIXTH), decision).is_published


SCHEDULED = "schedule: '0 6 * * *'\nalerts: {to: [{connection: chat}], not_published_by: '00:30', digest_at: '00:45'}\n"


def messages(work: RequestContext) -> dict[Event, str]:
    """Return the text of each message that is due."""
    assert work.pipeline.alerts is not None
    checked = look(work, work.pipeline.alerts, Told.read(None), url=str)
    return {message.alert.event: message.alert.text for message in checked.messages}


@pytest.mark.slow
def test_a_hole_before_the_head_is_told_with_the_command_that_fills_it(place: Place) -> None:
    work = place.work(more=SCHEDULED)
    run(work, 5, 8, warms_up=True)
    view = work.ledger.view()
    assert standing(work, view).due == ()
    [hole] = standing(work, view).holes
    assert hole.ids == ("1970-01-08", "1970-01-09")
    assert hole.command == "`hindcast run late --from 1970-01-08 --to 1970-01-10`"
    told = messages(work)
    assert all(hole.sentence in told[event] for event in (Event.NOT_PUBLISHED, Event.DIGEST))
    assert not list(holes(place.work(slices=FROM_THE_SIXTH, more=SCHEDULED), view)), "they are left out on purpose"
    assert not list(holes(place.work(), view)), "a person chooses the slices"
    run(work, 3, 5)
    assert standing(work, work.ledger.view()).holes == ()
    assert messages(work).keys() == {Event.DIGEST}


def test_a_hole_that_the_first_slice_of_the_file_has_left_is_filled_to_the_end_of_the_chain(place: Place) -> None:
    """Defect: when it was moved back, the command of the hole alone was named, which is refused."""
    assert published(
        place, place.work(slices=FROM_THE_SIXTH), scheduled(place, place.work(slices=FROM_THE_SIXTH), lease_id="r")
    ).is_published
    work = place.work(more=SCHEDULED)
    [hole] = standing(work, work.ledger.view()).holes
    assert hole.command == "`hindcast run late --from 1970-01-08 --to 1970-01-13`"
    assert run(work, 3, 8).is_published
    assert standing(work, work.ledger.view()).holes == ()


@pytest.mark.slow
def test_a_hole_between_two_specs_is_filled_with_a_warm_up(place: Place) -> None:
    work = place.work(lateness="1h", more=SCHEDULED)
    run(work, 4, 8, warms_up=True)
    [hole] = standing(work, work.ledger.view()).holes
    assert hole.command == "`hindcast run late --from 1970-01-08 --to 1970-01-09 --warm-up`"
    assert run(work, 3, 4, warms_up=True).is_published
    assert standing(work, work.ledger.view()).holes == ()


@pytest.mark.slow
def test_a_hole_of_a_chain_that_cannot_be_computed_any_more_is_adopted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: a `hindcast run` was named, which is refused."""
    run(place.work(more=SCHEDULED), 4, 8, warms_up=True)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    work = place.work(more=SCHEDULED)
    [hole] = standing(work, work.ledger.view()).holes
    assert hole.command == "`hindcast adopt late --from 1970-01-08`"
    assert run(work, 3, 8, warms_up=True).is_published
    assert standing(work, work.ledger.view()).holes == ()


@pytest.mark.slow
def test_status_tells_a_hole(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(place.work(more=SCHEDULED), 5, 8, warms_up=True)
    monkeypatch.setenv("COLUMNS", "300")
    (place.root / "pipelines").mkdir()
    (place.root / "pipelines" / "late.yaml").write_text(place.text(more=SCHEDULED))
    shell = Shell(place.root, capsys)
    assert shell("status", "late") == 0, shell.err
    assert "1970-01-08 … 1970-01-09: left out" in shell.out
    [hole] = shell.json("status", "late")["pipelines"][0]["holes"]
    assert hole["slices"] == ["1970-01-08", "1970-01-09"]
    assert "`hindcast run late --from 1970-01-08 --to 1970-01-10`" in hole["line"]
