"""Which slices the schedule restates by itself, and what a person runs for the others, played with small lakes."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import RequestKind
from jobs.orchestration.backfill_checks import checked_form
from jobs.orchestration.restatements import BackfillStart, plan_request, propose_changes, restatement_conf, to_start
from jobs.orchestration.scheduling import Replay, publish_task, replay
from jobs.pipeline.slices import slices_between
from jobs.planning.change_sentences import ToldChanges
from jobs.planning.changed_slices import changed_slices
from jobs.planning.readiness import Waiting
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context, requested_event
from jobs.planning.restating import request_to_continue
from jobs.planning.steps import Ask
from jobs.planning.watching import sign_of, watch_log
from jobs.review.verify_input import verify_inputs
from tests.support.day_chains import DAY_MS, FIRST_MS, SESSION, Place, Put, replayed, roll_back, run, totals
from tests.support.replays import pipeline_of
from windowlib.errors import RequestError

AUTO = "restate: {mode: auto, at_most_age: 30000d}\n"
DAYS = range(5)
DOWN = (
    "pipeline: down\nlog:\n  pipeline: late\n  key: [k]\n  event_time: window_time\nwatermark: {kind: ascending}\n"
    f"windows: {{tumbling: {{size: 1d}}}}\naggregates: {{total: {{sum: total}}}}\n{AUTO}"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Five days with two records each. No window is open at the end of a day."""
    place = Place(tmp_path)
    for day in DAYS:
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 20))
    return place


def proposed(work: RequestContext) -> ToldChanges:
    return propose_changes(open_request_context(work.pipeline, work.lake, now_ms=work.ledger.now_ms), who="schedule")


def restated(work: RequestContext, *, origin: DagRunOrigin | None = None) -> ToldChanges:
    """Propose to restate, and restate as the DAG run does that the schedule starts."""
    now_ms = work.ledger.now_ms()
    told = proposed(work)
    if told.request_id is not None:
        asked = Asked(
            from_ms=None, to_ms=None, who="x", reason="", request_id=told.request_id, lease_id="dag run", origin=origin
        )
        planned = plan_request(open_request_context(work.pipeline, work.lake, now_ms=lambda: now_ms), asked=asked)
        assert isinstance(planned, Replay)
        opened, slices = planned.opened, planned.slices
        replay(
            open_request_context(work.pipeline, work.lake, now_ms=lambda: now_ms),
            opened=opened,
            slices=slices,
            replayer=replayed,
        )
        attempt = publish_task(
            open_request_context(work.pipeline, work.lake, now_ms=lambda: now_ms), opened=opened, who="x", slices=slices
        )
        assert attempt.is_published, attempt.why
    return told


def changed(work: RequestContext) -> list[str]:
    return [change.slice.slice_id for change in changed_slices(work, work.ledger.view())]


@pytest.mark.slow
def test_a_log_that_was_dropped_and_made_again_empties_no_published_day_by_itself(place: Place) -> None:
    work = place.work(more=AUTO)
    run(work, 0, 5)
    shutil.rmtree(place.root / "log")
    place.put(Put(4, 24 * 4 + 1), Put(4, 24 * 4 + 20))
    told = restated(work)
    assert totals(work) == [1] * 9
    assert told.sentences == (
        "5 published days changed: 1970-01-05 … 1970-01-09, 10 records then, 2 now; a replay publishes 4 days "
        "without a record: 1970-01-05 … 1970-01-08",
        "1970-01-05 … 1970-01-09: not proposed, because the log is another table than the one that its run has read: "
        "`hindcast plan late --from 1970-01-05 --to 1970-01-10 --verify` compares the records. To restate them: "
        "hindcast run late --from 1970-01-05 --to 1970-01-10",
    )
    assert told.waits == 5
    assert run(work, 0, 5).is_published
    assert (totals(work), changed(work)) == ([1], [])
    place.put(Put(4, 24 * 4 + 22, 7))
    restated(work)
    assert totals(work) == [1, 1], "a change of the new table is restated again"


def test_a_log_that_was_restored_from_a_backup_empties_no_published_day_by_itself(place: Place) -> None:
    """Defect: its version is lower, and the id of the table the same, so it was taken for an ordinary change."""
    work, log, backup = place.work(more=AUTO), place.root / "log", place.root / "backup"
    place.put(Put(4, 24 * 4 + 3))
    shutil.copytree(log, backup)
    place.put(Put(4, 24 * 4 + 5))
    run(work, 0, 5)
    before = totals(work)
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    told = restated(work)
    assert totals(work) == before
    assert (
        "1970-01-09: not proposed, because the log is at version 10, and its run has read version 11"
        in told.sentences[1]
    )
    assert "hindcast run late" in told.sentences[1]
    place.put(Put(4, 24 * 4 + 7), Put(4, 24 * 4 + 8))
    assert "is not the file that an earlier run has read" in (sentence := str(restated(work).sentences))
    assert "give its new history a name in the pipeline file (`log: {history: NAME}`)" in sentence


@pytest.mark.slow
def test_a_log_that_was_restored_and_written_to_goes_on_under_the_name_of_its_new_history(place: Place) -> None:
    """Defect: only a copy of its records in a new table went on."""
    work, log, backup = place.work(more=AUTO), place.root / "log", place.root / "backup"
    shutil.copytree(log, backup)
    place.put(Put(3, 24 * 3 + 5), Put(4, 24 * 4 + 5))
    run(work, 0, 5)
    before = totals(work)
    shutil.rmtree(log)
    shutil.copytree(backup, log)
    place.put(Put(4, 24 * 4 + 22))
    restored = work.pipeline.log.model_copy(update={"history": "restored-1"})
    work = replace(work, pipeline=work.pipeline.model_copy(update={"log": restored}))
    told = restated(work)
    assert (told.request_id, totals(work)) == (None, before)
    assert "the log is another table than the one that its run has read" in told.sentences[1]
    slices = slices_between(work.pipeline, FIRST_MS, FIRST_MS + 5 * DAY_MS)
    verified = verify_inputs(SESSION, work, work.plan(work.ledger.view(), Ask(slices=slices)), who="ann")
    assert [*verified.different] == ["1970-01-08", "1970-01-09"]
    assert changed(work) == ["1970-01-08", "1970-01-09"]
    assert run(work, 3, 5).is_published
    assert (changed(work), totals(work)) == ([], [1] * 10)
    place.put(Put(1, 24 + 22, 7))
    restated(work)
    assert totals(work) == [*[1] * 10, 7], "a change of the new history is restated again"


@pytest.mark.slow
def test_a_table_with_the_same_records_is_the_log_after_a_comparison(place: Place) -> None:
    work = place.work(more=AUTO)
    run(work, 0, 5)
    records = DeltaTable(str(place.root / "log")).to_pyarrow_table()
    shutil.rmtree(place.root / "log")
    write_deltalake(str(place.root / "log"), records, partition_by=["day"])
    assert restated(work).request_id is None
    slices = slices_between(work.pipeline, FIRST_MS, FIRST_MS + 5 * DAY_MS)
    verified = verify_inputs(SESSION, work, work.plan(work.ledger.view(), Ask(slices=slices)), who="ann")
    assert not verified.different
    assert restated(work).sentences == ()
    place.put(Put(1, 24 + 22, 7))
    restated(work)
    assert totals(work) == [*[1] * 9, 7]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bound", "day", "words"),
    [
        ("first: 1970-01-07", 0, "it is before log.slice.first (1970-01-07), so readers keep it as it was published"),
        ("last: 1970-01-07", 1, "its restatement ends with 1970-01-09, which is after log.slice.last (1970-01-07)"),
        ("last: 1970-01-07", 4, "its restatement ends with 1970-01-09, which is after log.slice.last (1970-01-07)"),
    ],
)
def test_a_change_that_log_slice_leaves_out_is_told_and_restated_after_that(
    place: Place, bound: str, day: int, words: str
) -> None:
    """It was proposed, published without it, and proposed again, without end; or the plan ended in an IndexError."""
    work = place.work(more=AUTO)
    run(work, 0, 5)
    place.put(Put(day, 24 * day + 22, 7))
    told = restated(place.work(slices=f"{{by: day, {bound}}}", more=AUTO))
    assert told.request_id is None
    assert words in told.sentences[1]
    assert "hindcast run" not in told.sentences[1]
    assert told.waits == ("last" in bound)
    assert totals(work) == [1] * 9
    assert restated(work).request_id is not None
    assert totals(work) != [1] * 9
    assert changed(work) == []


@pytest.mark.parametrize("bound", ["first: 1970-01-08", "last: 1970-01-07"])
def test_a_request_of_slices_that_log_slice_leaves_out_is_refused(place: Place, bound: str) -> None:
    work = place.work(more=AUTO)
    run(work, 0, 5)
    place.put(Put(2, 24 * 2 + 22, 7))
    request_id = proposed(work).request_id
    assert request_id is not None
    edited = place.work(slices=f"{{by: day, {bound}}}", more=AUTO)
    with pytest.raises(
        RequestError, match=r"has the slices of \[1970-01-07, 1970-01-10\), and `log.slice` leaves some"
    ):
        request_to_continue(edited, request_id)
    assert proposed(edited).request_id is None
    assert not work.ledger.view().requests[request_id].is_open


@pytest.mark.slow
def test_a_restatement_whose_state_reaches_into_slices_rolled_back_upstream_waits_for_them(place: Place) -> None:
    """Each scheduled run proposed, replayed and was refused, and the advice could not be followed."""
    place.put(Put(2, 24 * 2 + 22, 5))
    work = place.work()
    run(work, 0, 4)
    run(work, 4, 5)
    text = DOWN.replace("size: 1d", "size: 3d")
    down = open_request_context(pipeline_of(text), work.lake, now_ms=lambda: place.now_ms)
    assert run(down, 0, 5).is_published
    roll_back(work)
    place.erase(5)
    assert run(work, 2, 4, if_open=IfOpen.REPLACE).is_published
    (place.root / "down.yaml").write_text(text)
    proposed(down)
    start = to_start(str(place.root / "down.yaml"), lake=str(place.root))
    assert isinstance(start, BackfillStart)
    origin = DagRunOrigin(dag_id=start.dag_id, run_id=start.run_id, slice_ids=())
    with pytest.raises(AssertionError, match=r"late does not publish 1970-01-09 now: publish there first\. Then run"):
        restated(down, origin=origin)
    [request] = down.ledger.view().open_requests(RequestKind.RESTATEMENT)
    for _ in range(2):
        told = proposed(down)
        assert told.request_id is None
        assert told.sentences[1] == f"1970-01-07 … 1970-01-08: replayed by request {request.request_id[:8]}"
    why = f"restatement {request.request_id} waits until pipeline late publishes slice 1970-01-09 again"
    assert to_start(str(place.root / "down.yaml"), lake=str(place.root)) == why
    assert run(work, 4, 5, if_open=IfOpen.REPLACE).is_published
    restated(down)
    assert changed(down) == []


def test_a_pipeline_that_waits_for_another_one_decides_at_most_once_a_minute(place: Place) -> None:
    """The other ledger changes every 20 s while its requests renew their leases. Each decision starts a task."""
    work = place.work()
    run(work, 0, 2)
    down = open_request_context(pipeline_of(DOWN), work.lake, now_ms=lambda: place.now_ms)
    [awaited] = slices_between(down.pipeline, FIRST_MS + 2 * DAY_MS, FIRST_MS + 3 * DAY_MS)
    waiting = Waiting(slice=awaited, missing="late publishes it", since_ms=awaited.end_ms)
    watch = watch_log(down, down.ledger.view(), waiting, version=work.ledger.view().version)
    run(work, 2, 3)
    assert sign_of(watch, now_ms=place.now_ms + 59_999) is None
    assert sign_of(watch, now_ms=place.now_ms + 60_000) == "log"


def test_any_reason_of_a_proposal_fits_the_form_that_starts_it(place: Place) -> None:
    work = place.work()
    run(work, 0, 3)
    for reason in ("x" * 600, "  "):
        asked = Asked(from_ms=FIRST_MS, to_ms=FIRST_MS + DAY_MS, who="ann", reason=reason, kind=RequestKind.REPAIR)
        request_id = work.new_id()
        view = work.ledger.write(lambda _: [requested_event(work, asked, request_id=request_id)])  # noqa: B023
        conf = restatement_conf(work, view.requests[request_id], publish=True)
        assert checked_form(work, conf, now_ms=place.now_ms).from_ms == FIRST_MS


@pytest.mark.slow
def test_a_restatement_ends_before_the_slices_that_the_other_pipeline_has_rolled_back(place: Place) -> None:
    """It spanned them, and was refused each day; what the other pipeline had corrected before was never shown."""
    place.put(Put(2, 24 * 2 + 22, 5))
    work = place.work()
    run(work, 0, 4)
    run(work, 4, 5)
    down = open_request_context(pipeline_of(DOWN), work.lake, now_ms=lambda: place.now_ms)
    assert run(down, 0, 5).is_published
    roll_back(work)
    told = restated(down)
    why = "not proposed, because pipeline late does not publish it now. Publish it there first"
    assert (told.sentences[1:], told.request_id) == ((f"1970-01-09: {why}",), None)
    place.erase(5)
    assert run(work, 2, 4, if_open=IfOpen.REPLACE).is_published
    told = restated(down)
    assert told.sentences[0] == (
        "3 published days changed: 1970-01-07 … 1970-01-09, 7 records then, 4 now; pipeline late does not publish 1 "
        "day now: 1970-01-09"
    )
    assert told.sentences[1].startswith("1970-01-07 … 1970-01-08: proposed as request ")
    assert told.sentences[2] == f"1970-01-09: {why}"
    assert changed(down) == ["1970-01-09"]
    assert restated(down).request_id is None
    assert run(work, 4, 5, if_open=IfOpen.REPLACE).is_published
    restated(down)
    assert changed(down) == []
