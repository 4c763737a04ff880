"""Two neighbours in the published chain fit, whatever requests, repairs, rollbacks and edits have made them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cli.status import _not_staged
from jobs.engine import fingerprints
from jobs.lake.lake import Lake
from jobs.ledger.view import Request, RequestKind
from jobs.orchestration.backfill_checks import checked_form
from jobs.orchestration.backfill_form import FormError
from jobs.orchestration.late_repair import asked_for, repairing
from jobs.orchestration.repair_proposals import propose, propose_repairs
from jobs.orchestration.repair_range import LateRepair, repair_of
from jobs.orchestration.requests import run_request
from jobs.orchestration.restatements import propose_changes
from jobs.orchestration.scheduling import plan_scheduled
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import newly_shown
from jobs.planning.lease_keeping import release
from jobs.planning.published_spec import FORMER_SPEC, LOST, on_published_spec, why_lost
from jobs.planning.request_context import IfOpen, RequestContext, open_request_context
from jobs.planning.restating import request_to_continue, restating
from jobs.planning.steps import Ask
from jobs.publishing.cleaning import clean_lake
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.publishing.publication_warnings import publication_warnings
from jobs.publishing.publishing import publish_request
from jobs.publishing.rules import _incomplete, judge_publication
from jobs.publishing.waivers import SliceWaiver, waive_all
from jobs.reading.published import published_runs
from jobs.replay.orders import ReplayOrder
from jobs.replay.restart import restart_before
from jobs.review.pages.decision_forms import Possible, decision_forms
from jobs.review.pages.state import open_request
from jobs.runs import SETTLED, RunResult, Verdict, WarmUp
from tests.support import day_chains
from tests.support.day_chains import (
    DAY_MS,
    FIRST_MS,
    GRACE,
    HOUR_MS,
    SESSION,
    Place,
    Put,
    gaps,
    late,
    of_airflow,
    published_by_airflow,
    repair,
    replayed,
    roll_back,
    run,
    totals,
    why,
)
from tests.support.replays import NOW_MS, pipeline_of
from windowlib.errors import RequestError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def three_days(place: Place) -> None:
    """The last window of each day is open at its end."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 40), Put(2, 49), Put(2, 71.5), Put(3, 71.8, 5), Put(3, 90))


@pytest.mark.slow
def test_a_chain_start_that_the_slices_before_it_have_joined_continues_their_chain(place: Place) -> None:
    """Also if it was staged as a beginning: the slice before it is not replayed alone."""
    three_days(place)
    run(place.work(), 0, 4)
    work = place.work(lateness=GRACE)
    run(work, 3, 4, warms_up=True)
    assert run(work, 0, 4).is_published
    seen = totals(work)
    place.put(Put(2, 71.9, 100))
    assert "replay them in the same request" in why(run(work, 2, 3))
    assert totals(work) == seen
    assert run(work, 2, 4, if_open=IfOpen.REPLACE).is_published
    assert (gaps(work.ledger.view()), max(totals(work))) == ([], 106)


@pytest.mark.slow
@pytest.mark.parametrize(("warms_up", "options"), [(True, "--warm-up --replace"), (False, "--fresh --replace")])
def test_an_adoption_that_the_schedule_overtook_names_a_command_that_works(
    place: Place, *, warms_up: bool, options: str
) -> None:
    """Defect: the range was named without the restart point, and refused then."""
    three_days(place)
    run(place.work(), 0, 3)
    work = place.work(lateness=GRACE)
    staged = run(work, 2, 3, warms_up=warms_up, is_fresh=not warms_up, publish=False)
    run(place.work(), 3, 4)
    view = work.ledger.view()
    told = judge_publication(work, view, view.requests[staged.request_id]).why
    assert f"hindcast run late --from 1970-01-07 --to 1970-01-09 {options}`" in told
    again = run(work, 2, 4, warms_up=warms_up, is_fresh=not warms_up, if_open=IfOpen.REPLACE)
    assert again.is_published


@pytest.mark.slow
def test_a_run_that_is_to_replace_an_adoption_closes_it_also_if_nothing_is_left_to_replay(place: Place) -> None:
    """Defect: with the former pipeline file, it told that all is published, and left the adoption open for ever."""
    three_days(place)
    run(place.work(), 0, 3)
    staged = run(place.work(lateness=GRACE), 2, 3, warms_up=True, publish=False)
    run(place.work(), 3, 4)
    work = place.work()
    again = run(work, 2, 4, warms_up=True, if_open=IfOpen.REPLACE)
    assert again.replayed == 0
    request = work.ledger.view().requests[staged.request_id]
    assert (request.is_open, request.failure) == (False, "replaced by what ann sees published")


def warned(work: RequestContext, first: int, end: int, *, is_fresh: bool = False) -> str:
    """The warnings that `plan` and `run` print."""
    slices = slices_between(work.pipeline, FIRST_MS + first * DAY_MS, FIRST_MS + end * DAY_MS)
    view = work.ledger.view()
    planned = work.plan(view, Ask(slices=slices, is_fresh=is_fresh))
    return " ".join(publication_warnings(work.lake, view, planned))


def test_a_chain_that_begins_anew_beside_a_published_slice_is_told_before(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Defect: it was published without a word, and windows that waited for their end were lost."""
    three_days(place)
    work = place.work()
    assert warned(work, 0, 3, is_fresh=True) == ""
    run(work, 0, 3)
    assert warned(work, 0, 3, is_fresh=True) == warned(work, 1, 3) == ""
    told = "begins at 1970-01-07, and readers see 1970-01-06 of the former chain. Readers do not see 1 window with"
    assert told in warned(work, 2, 3, is_fresh=True)
    assert run(work, 2, 3, is_fresh=True).is_published
    assert told in caplog.text
    assert warned(work, 2, 3, is_fresh=True) == "", "it begins there already"


@pytest.mark.slow
def test_a_repair_that_ends_tells_which_records_stay_late(place: Place) -> None:
    """Defect: `hindcast repair` was said to list records that it does not take before the border of an adoption."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40), Put(2, 50), Put(2, 25, 7), Put(2, 60))
    run(place.work(), 0, 3)
    repair(place.work())
    edited = place.work(lateness=GRACE)
    staged = run(edited, 2, 3, warms_up=True, publish=False)
    told = publish_request(edited, staged.request_id, who="ann").why
    assert (
        "the repair of 1970-01-06, 1970-01-07 ends, and `hindcast repair` lists the late records of 1970-01-07" in told
    )
    assert "the late records of 1970-01-06 stay late" in told
    assert told.endswith("first run `hindcast adopt late --from 1970-01-06`")
    wanted = repair_of(edited, from_ms=None, to_ms=None, at_most_ms=None)
    assert ([late_slice.slice.slice_id for late_slice in wanted.late], wanted.others) == (["1970-01-07"], 1)


def test_runs_of_a_warm_up_begin_no_chain(place: Place) -> None:
    place.put(Put(0, 1), Put(0, 2), Put(1, 25), Put(1, 47), Put(2, 49), Put(3, 73), Put(3, 90.5), Put(4, 97))
    work = place.work()
    run(work, 3, 4, warms_up=True, publish=False)
    starts = [staged.is_chain_start for staged in work.ledger.view().runs.values()]
    assert starts == [False] * (len(starts) - 1) + [True]


@pytest.mark.slow
def test_a_chain_that_began_with_a_warm_up_is_replayed_without_one(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25), Put(1, 47.5), Put(2, 47.8), Put(2, 71), Put(3, 73), Put(3, 80))
    work = place.work()
    run(work, 2, 4, warms_up=True)
    place.put(Put(2, 71.5, 50))
    assert run(work, 2, 4).is_published
    assert (gaps(work.ledger.view()), max(totals(work))) == ([], 51)


@pytest.mark.slow
def test_a_pipeline_that_begins_later_continues_what_is_published(place: Place) -> None:
    """`log.slice.first` is no part of the spec, so the state fits. Another spec is refused."""
    place.put(Put(0, 1), Put(1, 25), Put(1, 47.5, 3), Put(2, 47.8), Put(2, 71.5), Put(3, 90))
    run(place.work(), 0, 4)
    place.put(Put(2, 71.6, 70))
    later = "{by: day, first: 1970-01-07}"
    work = place.work(slices=later)
    assert run(work, 2, 4).is_published
    assert (gaps(work.ledger.view()), totals(work)) == ([], [1, 1, 4, 71])
    with pytest.raises(RequestError, match=r"1970-01-06 of pipeline late was published by spec"):
        run(place.work(slices=later, lateness=GRACE), 2, 4)


@pytest.mark.slow
def test_rollbacks_restore_the_run_in_whose_place_a_repair_is_seen(place: Place) -> None:
    """Two repairs of two chains can have the same run."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40), Put(2, 50), Put(2, 60))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    before = work.ledger.view()
    edited = place.work(lateness=GRACE)
    run(edited, 1, 3, warms_up=True)
    repair(edited)
    roll_back(edited, 2)
    view = edited.ledger.view()
    chain = [view.chain_run_id(run_id) for run_id in view.published.values()]
    assert (view.published, chain) == (before.published, [*map(before.chain_run_id, before.published.values())])
    assert gaps(view) == []


@pytest.mark.slow
@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_the_run_of_a_repair_becomes_one_of_the_chain_if_the_file_has_its_spec(
    place: Place, *, is_rolled_back: bool
) -> None:
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40))
    work = place.work()
    run(work, 0, 2)
    request_id = repair(work)
    request = work.ledger.view().requests[request_id]
    if is_rolled_back:
        roll_back(work)
    edited = place.work(lateness=f"{repair_lateness(work, request.spec_json)}ms")
    assert run(edited, 1, 2, warms_up=True).is_published
    head = edited.ledger.view().head
    assert head is not None
    assert head.result.spec_fingerprint == request.spec_fingerprint
    assert on_published_spec(edited)[1] == ()
    place.put(Put(2, 41), Put(2, 39, 500), Put(2, 60))
    assert run(edited, 2, 3).runs[0].result.counts.late == 0
    assert gaps(edited.ledger.view()) == ["1970-01-06"]


def repair_lateness(work: RequestContext, spec_json: str) -> int:
    from jobs.pipeline.files import pipeline_from_json

    windows = pipeline_from_json(spec_json, source="test", functions_dir=work.pipeline.functions_dir).windows
    assert windows is not None
    return windows.allowed_lateness_ms


@pytest.mark.slow
def test_a_request_brings_no_older_records_back(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25), Put(2, 49))
    work = place.work(size="120h")
    run(work, 0, 3)
    place.put(Put(1, 26))
    staged = run(work, 1, 3, publish=False).request_id
    place.put(Put(2, 50, 1000))
    assert run(work, 2, 3, kind=RequestKind.RESTATEMENT).is_published
    attempt = publish_request(work, staged, who="ann")
    assert not attempt.is_published
    assert "readers see newer records of 1970-01-07 than request" in attempt.why


@pytest.mark.slow
def test_the_shared_request_of_airflows_backfill_brings_no_older_records_back(place: Place) -> None:
    """Its DAG runs go on when they are cleared, as the message says."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 47.9), Put(2, 50), Put(2, 60))
    work = place.work()
    run(work, 0, 1)

    for day in (1, 2):
        release(open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), of_airflow(work, day).opened)
    place.put(Put(1, 47.95, 1000))
    assert run(work, 1, 2, kind=RequestKind.RESTATEMENT).is_published
    attempt = published_by_airflow(work, 2)
    assert not attempt.is_published
    assert "Clear the DAG runs of these slices" in attempt.why
    assert [staged.result.counts.read for staged in published_runs(work.ledger.view())] == [2, 3]
    published_by_airflow(work, 1)
    assert published_by_airflow(work, 2).is_published
    assert gaps(work.ledger.view()) == []


@pytest.mark.slow
def test_a_repair_is_not_published_again_over_a_greater_one(place: Place) -> None:
    place.put(Put(0, 1), Put(0, 5), Put(0, 23.99), Put(1, 25), Put(1, 21, 10), Put(1, 47.99))
    work = place.work()
    run(work, 0, 2)
    less = repair(work, at_most_ms=8 * HOUR_MS)
    roll_back(work)
    place.put(Put(2, 60), Put(2, 4, 100))
    run(work, 2, 3)
    repair(work)
    attempt = publish_request(work, less, who="ann")
    assert not attempt.is_published
    assert "by a repair with a greater allowed lateness" in attempt.why


@pytest.mark.slow
def test_a_replay_of_a_part_of_a_repair_ends_the_repair(place: Place) -> None:
    """A record would be late in one slice, and in a window that the repair shows in the next one."""
    place.put(Put(0, 1), Put(0, 5), Put(0, 3), Put(0, 23.99), Put(1, 25), Put(1, 3.5, 10), Put(1, 47.99))
    place.put(Put(2, 3.7, 100), Put(2, 60))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    assert (late(work), max(totals(work))) == ([0, 0, 0], 111)
    place.put(Put(1, 25.5))
    again = run(work, 1, 2)
    assert again.publication is not None
    assert again.publication.changed == ("1970-01-06", "1970-01-05", "1970-01-07")
    assert (late(work), max(totals(work))) == ([1, 2, 1], 1)
    assert not [*work.ledger.view().repairs.keys() & {*work.ledger.view().published.values()}]
    roll_back(work)
    assert late(work) == [0, 0, 0]


@pytest.mark.slow
def test_a_replay_in_the_warm_up_of_a_repair_ends_the_repair(place: Place) -> None:
    """Defect: the next repair took the new record out of the late ones, and the pane of the first one did not have it.

    The replay leaves the same state, so the slice of the repair is not replayed.
    """
    place.put(Put(0, 1), Put(0, 5), Put(0, 23.99), Put(1, 25), Put(1, 47.99), Put(2, 3.7, 100), Put(2, 60))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    assert late(work) == [0, 0, 0]
    place.put(Put(1, 3.5, 10))
    again = run(work, 1, 2)
    assert again.publication is not None
    assert again.publication.changed == ("1970-01-06", "1970-01-07")
    assert late(work) == [0, 1, 1]
    repair(work)
    assert (late(work), max(totals(work))) == ([0, 0, 0], 110)


@pytest.mark.slow
def test_a_run_that_readers_see_is_not_judged_for_a_repair_that_ends_beside_the_request(place: Place) -> None:
    """The last run of the request is published already. The run of the first day is one that the end shows again."""
    place.put(Put(0, 1), Put(0, 5), Put(0, 2.5), Put(0, 23.99), Put(1, 25), Put(1, 0.5, 10), Put(1, 47.99))
    place.put(Put(2, 60), Put(2, 71.99))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    place.put(Put(1, 25.5), Put(2, 61))
    staged = run(work, 1, 3, publish=False).request_id
    assert run(work, 2, 3, kind=RequestKind.RESTATEMENT).is_published
    work = place.work(more="publish: {settled: {after: 1h, change_at_most: {share: 0}}}\n")
    attempt = publish_request(work, staged, who="ann")
    assert attempt.stopped_by == ("1970-01-05", "1970-01-06")
    view = work.ledger.view()
    judged, last = newly_shown(view, view.requests[staged]), view.run(view.requests[staged].runs["1970-01-07"])
    assert [*judged] == ["1970-01-06", "1970-01-05"]
    for name, run_id in judged.items():
        checks = [check.slice_id for check in view.run(run_id).result.checks if check.table == SETTLED]
        assert checks == [name]
    assert (view.published["1970-01-07"], last.verdict) == (last.result.run_id, Verdict.PASS)
    by = By(who="ann", decision_id="looked")
    waivers = [SliceWaiver(slice_id=name, run_id=run_id, reason="looked") for name, run_id in judged.items()]
    waive_all(work, waivers, by=by, request_id=staged)
    assert publish_request(work, staged, who="ann").is_published


@pytest.mark.slow
def test_a_replay_in_one_repair_ends_those_that_touch_it(place: Place) -> None:
    """A window that the repair of a later slice shows has records that would be late again before it."""
    place.put(Put(0, 1), Put(0, 5), Put(0, 3), Put(0, 23.99), Put(1, 25), Put(1, 3.5, 10), Put(1, 47.99))
    place.put(Put(2, 3.7, 100), Put(2, 60), Put(3, 80), Put(3, 3.9, 1000), Put(3, 90))
    work = place.work()
    run(work, 0, 4)
    repair(work, 0, 3)
    repair(work, 3, 4)
    assert late(work) == [0, 0, 0, 0]
    place.put(Put(1, 25.5))
    days = "1970-01-05, 1970-01-06, 1970-01-07, 1970-01-08"
    told = f"the repair of {days} ends, and `hindcast repair` lists the late records of {days} again"
    assert warned(work, 1, 2) == f"if the run publishes other runs of these slices, {told}"
    outcome = run(work, 1, 2)
    assert outcome.publication is not None
    assert outcome.publication.why.endswith(told)
    assert (late(work), max(totals(work))) == ([1, 2, 1, 1], 1)


@pytest.mark.slow
def test_an_older_request_goes_on_when_the_newer_records_were_erased(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25))
    work = place.work()
    run(work, 0, 2)
    place.put(Put(0, 2.5), Put(1, 30))
    staged = run(work, 0, 2, publish=False).request_id
    place.put(Put(1, 32, 500))
    run(work, 1, 2, kind=RequestKind.RESTATEMENT)
    assert not publish_request(work, staged, who="ann").is_published
    place.erase(500)
    again = run(place.work(), 0, 2)
    assert (again.request_id, again.replayed, again.is_published) == (staged, 0, True)
    assert [view_run.result.counts.read for view_run in published_runs(work.ledger.view())] == [2, 2]


def overtake(patch: pytest.MonkeyPatch, place: Place, *records: Put, drops: bool = False) -> None:
    """Let the log get records after the next replay, perhaps as another table, and publish a restatement of day 1."""

    def overtaken(order: ReplayOrder) -> list[RunResult]:
        patch.undo()
        results = replayed(order)
        if drops:
            shutil.rmtree(place.root / "log")
        place.put(*records)
        assert run(place.work(), 1, 2, kind=RequestKind.RESTATEMENT).is_published
        return results

    patch.setattr(day_chains, "replayed", overtaken)


@pytest.mark.slow
def test_a_run_that_was_overtaken_before_it_was_staged_does_not_count_as_one_of_the_newest_records(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the plan after the chunk took it for one of the log of that time, and the ledger recorded that."""
    place.put(Put(0, 1), Put(1, 25))
    run(place.work(), 0, 2)
    place.put(Put(1, 30))
    overtake(monkeypatch, place, Put(1, 32, 500), Put(1, 40))
    assert "readers see newer records of 1970-01-06" in why(run(place.work(), 0, 2))
    assert max(totals(place.work())) == 500
    assert run(place.work(), 0, 2).replayed == 0
    assert max(totals(place.work())) == 500


@pytest.mark.slow
def test_a_run_of_a_former_table_is_not_published_over_one_of_the_newer_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the versions of two tables were not compared, so the older rows came back."""
    place.put(Put(0, 1), Put(1, 25))
    run(place.work(), 0, 2)
    place.put(Put(1, 30), Put(1, 36))
    overtake(monkeypatch, place, Put(0, 1), Put(1, 25), Put(1, 32, 500), Put(1, 40), drops=True)
    assert "readers see newer records" in why(run(place.work(lateness=GRACE), 0, 2))
    assert max(totals(place.work())) == 500


@pytest.mark.slow
def test_a_repair_stays_if_its_log_is_created_again_with_the_same_records(place: Place) -> None:
    """Defect: the slice counted as changed for ever. A repair wanted a replay first, which found all current."""
    records = [Put(0, 1), Put(0, 5), Put(0, 3), Put(1, 25), Put(1, 40)]
    place.put(*records)
    run(place.work(), 0, 2)
    repair(place.work())
    shutil.rmtree(place.root / "log")
    place.count = 0
    place.put(*records)
    assert run(place.work(), 0, 2, publish=False).replayed == 2
    work = place.work()
    assert late(work) == [0, 0]
    assert restating(work, work.ledger.view()).changed == ()


@pytest.mark.slow
def test_a_request_that_takes_the_run_of_a_repair_over_is_published(place: Place) -> None:
    place.put(Put(0, 1), Put(0, 5), Put(0, 3), Put(0, 23.99), Put(1, 25), Put(1, 3.5, 10), Put(1, 47.99))
    place.put(Put(2, 3.7, 100), Put(2, 60))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    place.put(Put(1, 47.995, 7))
    run(work, 1, 3, publish=False)
    place.erase(7)
    place.put(Put(2, 62, 5))
    assert run(place.work(), 1, 3).is_published
    assert (late(work), gaps(work.ledger.view())) == ([1, 1, 1], [])


@pytest.mark.slow
def test_a_run_from_a_longer_replay_begins_the_chain_that_began_with_a_warm_up(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25), Put(1, 47.5), Put(2, 47.8), Put(2, 71.5), Put(3, 80))
    work = place.work()
    run(work, 2, 4, warms_up=True)
    place.put(Put(2, 71.6))
    whole = run(work, 0, 4, publish=False)
    cancel(work, whole.request_id, reason="a test", by=By(who="ann", decision_id="one"))
    again = run(work, 2, 4)
    assert (again.replayed, again.is_published) == (0, True)


@pytest.mark.slow
def test_a_chain_that_a_person_has_begun_stands_alone_after_its_first_slice_was_replayed(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25), Put(2, 49), Put(2, 71.5), Put(3, 80), Put(3, 95.5), Put(4, 97))
    work = place.work()
    run(work, 0, 2)
    run(work, 3, 5, is_fresh=True)
    place.put(Put(3, 95.6))
    assert run(work, 3, 5).is_published
    assert run(work, 2, 3).is_published
    assert gaps(work.ledger.view()) == ["1970-01-08"]


@pytest.mark.slow
def test_a_clean_up_keeps_the_run_in_whose_place_a_repair_was_seen(place: Place) -> None:
    """It is removed as long after the repair has become a run of the chain as any superseded run."""
    more = "retention: {superseded: 1d, unpublished: 1d}\n"
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40))
    work = place.work(more=more)
    run(work, 0, 2)
    before = work.ledger.view()
    request_id = repair(work)
    request = work.ledger.view().requests[request_id]
    place.now_ms += 3 * DAY_MS
    edited = place.work(lateness=f"{repair_lateness(work, request.spec_json)}ms", more=more)
    run(edited, 1, 2, warms_up=True)
    place.now_ms += HOUR_MS
    clean_lake(edited, older_than_ms=0, who="ann", dry_run=False)
    roll_back(edited)
    assert place.work(more=more).ledger.view().head == before.head


@pytest.mark.slow
def test_a_repair_at_the_beginning_of_a_chain_after_a_changed_slice_is_published(place: Place) -> None:
    """The state before was removed, and the warm-up has read a changed slice. The repair changes neither neighbour."""
    more = "retention: {checkpoints: 1d}\nrestate: {at_most_age: 1d}\n"
    place.put(Put(0, 1), Put(1, 25), Put(2, 49), Put(2, 71.5), Put(3, 80), Put(3, 73), Put(3, 90), Put(4, 97))
    work = place.work(more=more)
    for first, end in ((0, 3), (3, 4), (4, 5)):
        run(work, first, end)
    place.now_ms += 3 * DAY_MS
    clean_lake(work, older_than_ms=0, who="ann", dry_run=False)
    place.put(Put(2, 71.6), Put(3, 91))
    assert run(work, 3, 5, warms_up=True).is_published
    assert gaps(work.ledger.view()) == ["1970-01-08"]
    repair(work, 3, 4)
    assert late(work)[3] == 0


@pytest.mark.slow
def test_the_lateness_of_a_repair_is_adopted_in_the_middle_of_its_range(place: Place) -> None:
    """The new chain begins with a run that the repair has staged after another one. It was refused for ever."""
    for day in range(5):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 20))
        if day > 1:
            place.put(Put(day, 24 * day + 2, 7))
    work = place.work()
    run(work, 0, 5)
    lateness_ms = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None).lateness_ms
    repair(work)
    assert late(work) == [0] * 5
    edited = place.work(lateness=f"{lateness_ms}ms")
    assert run(edited, 3, 5, warms_up=True, if_open=IfOpen.REPLACE).is_published
    assert late(work) == [0, 0, 1, 0, 0]
    assert run(edited, 2, 5, warms_up=True, if_open=IfOpen.REPLACE).is_published
    assert late(work) == [0] * 5


@pytest.mark.slow
def test_after_a_change_of_the_code_the_schedule_stops_and_adopt_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function was edited, or Hindcast computes other rows: the published spec cannot be computed any more."""
    three_days(place)
    run(place.work(), 0, 2)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    work, [_] = on_published_spec(place.work())
    assert "has changed since, so that spec cannot be computed any more" in why_lost(work, work.ledger.view())
    with pytest.raises(RequestError, match=r"the same pipeline is spec \w+ now, and .* `hindcast adopt late`, or"):
        run(work, 2, 3)
    day = {"from": "1970-01-07", "to": "1970-01-08", "reason": "a test"}
    with pytest.raises(FormError, match=r"Run `hindcast adopt late`, or restore that version\."):
        checked_form(place.work(), day, now_ms=NOW_MS)
    run(place.work(), 1, 2, warms_up=True)
    assert run(on_published_spec(place.work())[0], 2, 3).is_published


def test_windows_without_a_restart_point_name_the_two_commands_that_go_on(place: Place) -> None:
    three_days(place)
    text = place.text().replace("tumbling: {size: 2h}", "global: {}\n  trigger: {count: 2}")
    pipeline = pipeline_of(text)
    work = open_request_context(pipeline, Lake(root=str(place.root)), now_ms=lambda: NOW_MS)
    two = r"hindcast run late --from 1970-01-05 --to \.\.\), or .*hindcast run late --from 1970-01-07 --to \.\. --fresh"
    with pytest.raises(RequestError, match=two):
        run(work, 2, 3, warms_up=True)


def test_after_a_change_of_the_code_nothing_is_repaired_or_restated_before_a_person_adopts_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New code would be published in the middle of the old chain. A repair that waits is closed, and not declined."""
    more = "repair: {mode: propose, at_most_age: 36500d}\nrestate: {mode: propose, at_most_age: 36500d}\n"
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40))
    work = place.work(more=more)
    run(work, 0, 2)
    propose_repairs(open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), who="airflow")
    [proposed] = work.ledger.view().open_requests(RequestKind.REPAIR)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    place.put(Put(0, 6), Put(2, 60))
    work = place.work(more=more)
    [told] = propose_repairs(open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), who="airflow")
    assert "go on with the pipeline file: `hindcast adopt late`" in told
    assert work.ledger.view().requests[proposed.request_id].failure == LOST
    [told] = propose_changes(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), who="airflow"
    ).sentences
    assert told.startswith("nothing is restated: the published chain of pipeline late is spec")
    with pytest.raises(RequestError, match="`hindcast adopt late`"):
        plan_scheduled(
            open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS),
            interval_end_ms=FIRST_MS + 3 * DAY_MS,
            who="airflow",
            lease_id="r",
            origin=None,
            events=lambda _since_ms: (),
        )
    run(work, 0, 2, if_open=IfOpen.REPLACE)
    propose_repairs(open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), who="airflow")
    assert [request.is_proposed for request in work.ledger.view().open_requests(RequestKind.REPAIR)] == [True]


def test_a_proposed_restatement_of_code_that_has_changed_is_closed_until_the_code_is_restored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: it stayed open, and each click on it was refused, until a person cancelled it."""
    more = "restate: {mode: propose, at_most_age: 36500d}\n"
    place.put(Put(0, 1), Put(1, 25), Put(2, 50))
    run(place.work(more=more), 0, 3)
    place.put(Put(2, 51))

    def proposals() -> list[str]:
        propose_changes(place.work(more=more), who="airflow")
        return [request.request_id for request in place.work().ledger.view().open_requests(RequestKind.RESTATEMENT)]

    [first] = proposals()
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    assert proposals() == []
    failure = place.work().ledger.view().requests[first].failure
    assert failure is not None
    assert "`hindcast adopt late`" in failure
    monkeypatch.undo()
    [again] = proposals()
    assert again != first, "the code was restored, and nobody has declined it"


@pytest.mark.slow
def test_a_proposed_restatement_does_not_undo_an_adoption(place: Place) -> None:
    """Defect: its replay published the former spec again, without a word."""
    more = "restate: {mode: propose, at_most_age: 36500d}\n"
    three_days(place)
    run(place.work(more=more), 0, 4)
    place.put(Put(1, 41))
    propose_changes(place.work(more=more), who="airflow")
    work = place.work(more=more, lateness=GRACE)
    [proposal] = work.ledger.view().open_requests(RequestKind.RESTATEMENT)
    assert "Replay it with hindcast run late" in _not_staged(work, work.ledger.view(), proposal)
    assert run(work, 2, 4, warms_up=True).is_published
    closed = work.ledger.view().requests[proposal.request_id]
    assert (closed.is_open, closed.failure) == (False, FORMER_SPEC)
    place.put(Put(3, 91))
    propose_changes(work, who="airflow")
    [proposal] = work.ledger.view().open_requests(RequestKind.RESTATEMENT)
    roll_back(work)
    told = "cannot be replayed, because the published chain goes on with another spec since it was opened"
    assert f"It {told}: end it with hindcast cancel" in _not_staged(work, work.ledger.view(), proposal)
    assert open_request(work, work.ledger.view(), proposal).waits == f"{told}: decline it"
    incomplete = _incomplete(work, work.ledger.view(), proposal)
    forms = decision_forms(work, work.ledger.view(), request_id=proposal.request_id).request
    assert incomplete is not None
    assert incomplete.why.endswith(f"left to replay; it {told}: cancel it")
    assert forms is not None
    assert forms.replay == Possible(why_not=FORMER_SPEC)
    with pytest.raises(RequestError, match=told):
        request_to_continue(work, proposal.request_id)


@pytest.mark.slow
def test_a_replayed_restatement_before_an_adoption_is_published(place: Place) -> None:
    """Defect: it was refused, because the chain goes on with another spec, although its slices keep the former one."""
    more = "schedule: '0 6 * * *'\nrestate: {mode: propose, at_most_age: 36500d}\n"
    three_days(place)
    run(place.work(more=more), 0, 3)
    place.put(Put(0, 6, 50))
    staged = run(place.work(more=more), 0, 3, publish=False, kind=RequestKind.RESTATEMENT)
    work = place.work(more=more, lateness=GRACE)
    assert run(work, 3, 4, warms_up=True).is_published
    assert 50 not in totals(work)
    assert publish_request(work, staged.request_id, who="ann").is_published
    assert 50 in totals(work)


def repair_and_warm_up(work: RequestContext) -> tuple[LateRepair, WarmUp | None]:
    wanted = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    return wanted, restart_before(SESSION, repairing(work, wanted), wanted.slices, beginning=wanted.beginning)


@pytest.mark.slow
def test_the_refusal_of_a_range_after_a_rollback_names_no_staged_repair(place: Place) -> None:
    """Defect: it named the publication of the repair, which is refused. A repair leaves no state to continue from."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40), Put(2, 50))
    work = place.work()
    run(work, 0, 2)
    wanted, warm_up = repair_and_warm_up(work)
    asked = asked_for(wanted, who="ann", warm_up=warm_up)
    staged = run_request(repairing(work, wanted), asked, replayed, publish=False).request_id
    roll_back(work)
    assert work.ledger.view().requests[staged].is_open
    with pytest.raises(RequestError, match="has no published run") as refused:
        run(work, 2, 3)
    assert staged not in str(refused.value)


def test_a_proposed_repair_of_slices_that_were_published_again_is_told_as_one_to_replace(place: Place) -> None:
    """Defect: `status` named its replay, which is refused."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40), Put(2, 50))
    work = place.work()
    run(work, 0, 2)
    wanted, warm_up = repair_and_warm_up(work)
    first = propose(work, wanted, warm_up=warm_up, who="ann")
    assert "Replay it with hindcast run late" in _not_staged(work, work.ledger.view(), first)
    place.put(Put(1, 41))
    assert run(work, 1, 2).is_published
    told = "cannot be replayed, because slices were published again after it was opened, first 1970-01-06"
    status = _not_staged(work, work.ledger.view(), first)
    assert f"It {told}: replace it with hindcast repair late --propose, or end it with hindcast cancel late" in status
    assert open_request(work, work.ledger.view(), first).waits == f"{told}: decline it"
    wanted, warm_up = repair_and_warm_up(work)
    second = propose(work, wanted, warm_up=warm_up, who="ann")
    assert second.request_id != first.request_id
    assert not work.ledger.view().requests[first.request_id].is_open


@pytest.mark.slow
def test_a_repair_that_a_person_proposed_before_the_code_changed_is_told_and_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: without `repair` in the file, it stayed open for ever, and `hindcast repair --propose` returned it."""

    def proposed() -> Request:
        wanted, warm_up = repair_and_warm_up(work)
        return propose(work, wanted, warm_up=warm_up, who="ann")

    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40), Put(2, 50), Put(2, 26, 10), Put(2, 65))
    work = place.work()
    run(work, 0, 3)
    first = proposed()
    assert proposed().request_id == first.request_id
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    work = place.work()
    told = f"It cannot be replayed, because {LOST}: end it with hindcast cancel late --request {first.request_id[:12]}"
    assert told in _not_staged(work, work.ledger.view(), first)
    assert open_request(work, work.ledger.view(), first).waits == f"cannot be replayed, because {LOST}: decline it"
    run(work, 2, 3, warms_up=True)
    second = proposed()
    assert (first.request_id != second.request_id, second.is_open) == (True, True)
    assert work.ledger.view().requests[first.request_id].failure == LOST


@pytest.mark.slow
def test_a_candidate_of_code_that_has_changed_is_not_promoted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    three_days(place)
    work = place.work()
    run(work, 0, 3)
    candidate = run(place.work(lateness=GRACE), 0, 3, publish=False, kind=RequestKind.CANDIDATE)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    attempt = publish_request(place.work(), candidate.request_id, who="ann")
    assert not attempt.is_published
    assert "is of code that has changed since" in attempt.why


def test_a_publication_tells_that_its_rows_are_of_code_that_has_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade, rows of a defect that it has mended were published without a word."""
    three_days(place)
    staged = run(place.work(), 0, 3, publish=False)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    attempt = publish_request(place.work(), staged.request_id, who="ann")
    assert attempt.is_published
    assert attempt.why == (
        "3 slices published together; they are of code that has changed since: `hindcast status late` tells how the "
        "chain goes on"
    )


def test_an_unfinished_request_of_code_that_has_changed_names_what_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command is refused, because its spec is another one."""
    three_days(place)
    staged = run(place.work(), 0, 3, publish=False)
    view = place.work().ledger.view()
    request = view.requests[staged.request_id]
    begun = replace(request, is_complete=False, runs=dict([*request.runs.items()][:1]))
    assert judge_publication(place.work(), view, begun).why.endswith("continues there")
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    why = judge_publication(place.work(), view, begun).why
    assert why.endswith(
        "opened: cancel it, or run its range again with `hindcast run late --from .. --to .. --replace`"
    )


@pytest.mark.slow
def test_old_code_is_not_published_after_a_person_has_adopted_the_new_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its state is equal. The message names no command that would replay with the old code."""
    place.put(Put(0, 1), Put(1, 25), Put(2, 49), Put(3, 73))
    run(place.work(), 0, 2)
    staged = run(place.work(), 2, 3, publish=False)
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    work = place.work()
    adopted = run(work, 1, 2, warms_up=True)
    assert adopted.is_published
    view = work.ledger.view()
    old, new = (view.run(view.requests[staged.request_id].runs["1970-01-07"]), view.published_run("1970-01-06"))
    assert new is not None
    assert old.result.state_before == new.result.state_after
    attempt = publish_request(work, staged.request_id, who="ann")
    assert not attempt.is_published
    assert "Cancel it, and make a new request: a function or Hindcast itself has changed" in attempt.why


@pytest.mark.slow
@pytest.mark.parametrize("is_repair", [True, False])
def test_a_request_that_waits_is_not_published_after_its_warm_up_was_published_again(
    place: Place, *, is_repair: bool
) -> None:
    """The state before its range is equal, because the new record is late there."""
    place.put(Put(0, 1), Put(1, 25), Put(1, 47.9), Put(2, 49), Put(2, 47.5), Put(2, 60), Put(3, 73))
    work = place.work()
    run(work, 0, 4)
    if is_repair:
        repaired = repairing(work, wanted := repair_of(work, from_ms=None, to_ms=None, at_most_ms=None))
        warm_up = restart_before(SESSION, repaired, wanted.slices)
        waiting = run_request(repaired, asked_for(wanted, who="ann", warm_up=warm_up), replayed, publish=False)
    else:
        waiting = run(place.work(lateness=GRACE), 2, 4, warms_up=True, publish=False)
    place.put(Put(1, 26, 50))
    assert run(work, 1, 2).is_published
    attempt = publish_request(work, waiting.request_id, who="ann")
    assert not attempt.is_published
    assert "1970-01-06" in attempt.why
    assert "Cancel" in attempt.why


@pytest.mark.slow
def test_a_repair_of_a_chain_without_earlier_records_reads_none_of_them(place: Place) -> None:
    """Each of two such chains is repaired by a request of its own."""
    place.put(Put(0, 1), Put(1, 25, 1_000), Put(1, 40, 1_000), Put(1, 5, 300), Put(2, 50), Put(2, 60, 4))
    place.put(Put(2, 51, 2), Put(2, 70, 8), Put(3, 80, 16), Put(3, 90))
    work = place.work(size="30h", lateness="2h")
    run(work, 0, 4)
    run(work, 2, 4, is_fresh=True)
    assert (totals(work), late(work)) == ([1, 1, 28], [0, 1, 1, 0])
    first = repair(work)
    assert (totals(work), late(work)) == ([1, 28, 301], [0, 0, 1, 0])
    second = repair(work)
    assert (totals(work), late(work)) == ([3, 28, 301], [0, 0, 0, 0])
    requests = work.ledger.view().requests
    assert [requests[name].from_ms for name in (first, second)] == [FIRST_MS + DAY_MS, FIRST_MS + 2 * DAY_MS]


@pytest.mark.slow
def test_late_records_that_the_pipeline_file_leaves_out_are_not_repaired(place: Place) -> None:
    """A window of the first slice has records of the slice before it, which the file leaves out."""
    place.put(Put(0, 1), Put(1, 25, 1_000), Put(1, 40), Put(1, 5, 300), Put(2, 50), Put(2, 60, 4), Put(2, 51, 2))
    place.put(Put(3, 80, 16), Put(3, 90), Put(4, 125), Put(4, 100, 5), Put(4, 126))
    run(place.work(size="30h"), 0, 5)
    work = place.work(size="30h", slices="{by: day, first: 1970-01-07}")
    seen = totals(work)
    with pytest.raises(RequestError, match=r"from 1970-01-07 on needs records of 1970-01-05, .* log\.slice\.first"):
        propose_late(work)
    assert (totals(work), late(work)) == (seen, [0, 1, 1, 0, 1])
    repair(work, 4, 5)
    assert late(work) == [0, 1, 1, 0, 0]


def propose_late(work: RequestContext) -> None:
    wanted = repair_of(work, from_ms=None, to_ms=None, at_most_ms=None)
    warm_up = restart_before(SESSION, repairing(work, wanted), wanted.slices, beginning=wanted.beginning)
    propose(work, wanted, warm_up=warm_up, who="ann")


def eight_days(place: Place, *late_days: int) -> None:
    for day in range(8):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 20))
        if day in late_days:
            place.put(Put(day, 24 * day + 2, 7))


@pytest.mark.slow
def test_the_first_slice_of_the_file_may_be_the_restart_point_of_a_repair(place: Place) -> None:
    """The published chain has read records before it, and none of them matters."""
    eight_days(place, 4)
    run(place.work(), 0, 8)
    repair(place.work(slices="{by: day, first: 1970-01-08}"))
    assert sum(late(place.work())) == 0


@pytest.mark.slow
def test_records_that_the_file_leaves_out_do_not_stop_later_repairs(place: Place) -> None:
    eight_days(place, 3, 6)
    run(place.work(), 0, 8)
    more = "repair: {mode: propose, at_most_age: 36500d}\n"
    work = place.work(slices="{by: day, first: 1970-01-08}", more=more)
    left_out, proposed = propose_repairs(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), who="airflow"
    )
    assert "log.slice.first leaves out" in left_out
    assert "1 late record of 1 slice" in proposed
    [request] = work.ledger.view().open_requests(RequestKind.REPAIR)
    assert request.from_ms == FIRST_MS + 6 * DAY_MS


@pytest.mark.slow
def test_a_repair_does_not_go_on_after_a_hole(place: Place) -> None:
    eight_days(place, 0, 3)
    work = place.work()
    run(work, 0, 1)
    run(work, 2, 4, warms_up=True)
    for _ in range(2):
        repair(work)
    assert late(work) == [0, 0, 0]


@pytest.mark.slow
def test_a_request_is_published_when_the_slices_of_its_warm_up_are_and_its_state_fits(place: Place) -> None:
    eight_days(place)
    work = place.work()
    run(work, 0, 1)
    waiting = run(work, 4, 6, warms_up=True, publish=False)
    assert run(work, 1, 4).is_published
    assert publish_request(work, waiting.request_id, who="ann").is_published
    assert gaps(work.ledger.view()) == []


@pytest.mark.slow
def test_a_repair_leaves_slices_with_another_spec_as_they_are(place: Place) -> None:
    """A person has adopted the new spec from a slice on, and the slices before it stay."""
    eight_days(place, 1, 6)
    run(place.work(), 0, 8)
    edited = place.work(size="3h")
    run(edited, 4, 8, warms_up=True)
    before = [edited.ledger.view().published[f"1970-01-0{day}"] for day in range(5, 9)]
    wanted = repair_of(edited, from_ms=None, to_ms=None, at_most_ms=None)
    assert (wanted.records, wanted.others) == (1, 1)
    assert wanted.stays_late == "1 late record of slices with another spec than the published head stays late."
    repair(edited)
    assert [edited.ledger.view().published[f"1970-01-0{day}"] for day in range(5, 9)] == before
    assert late(edited) == [0, 1, 0, 0, 0, 0, 0, 0]
