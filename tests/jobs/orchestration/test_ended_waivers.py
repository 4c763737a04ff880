"""A waiver ends with the cancellation of its request, or with the rollback of its publication."""

from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.publishing.decisions import cancel, resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish, publish_request
from jobs.publishing.waivers import SliceWaiver, waive_all
from jobs.review.pages.decision_forms import decision_forms
from tests.support.fake_replay import FAILS, FakeReplayer, append_day, day_ms, sales
from tests.support.waiving import newest_failed_run, waive_newest
from windowlib.errors import RequestError

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
HELD = "2024-01-02"


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """A pipeline with an open request, of which ann has waived one slice."""
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))
    for day in DAYS:
        append_day(tmp_path, day, {"a": FAILS if day == HELD else 10})
    assert not run(work).is_published
    waive_newest(work, HELD, reason="real", who="ann")
    return work


def run(work: RequestContext, *, if_open: IfOpen = IfOpen.REFUSE, is_fresh: bool = False) -> RequestOutcome:
    asked = Asked(
        from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-04"), who="ann", reason="", if_open=if_open, is_fresh=is_fresh
    )
    return run_request(work, asked, FakeReplayer())


def test_a_cancelled_run_is_not_published_by_the_next_request(work: RequestContext) -> None:
    [request] = work.ledger.view().open_requests()
    cancel(work, request.request_id, reason="nobody may see it", by=By(who="bob", decision_id="c"))
    outcome = run(work)
    assert outcome.replayed == 0, "the run is used again"
    assert outcome.publication is not None
    assert outcome.publication.stopped_by == (HELD,)
    assert not work.ledger.view().published
    waive_newest(work, HELD, reason="after all", who="cyd")
    assert publish(work, who="cyd").is_published


def test_a_request_that_replaces_another_one_keeps_its_waivers(work: RequestContext) -> None:
    assert run(work, if_open=IfOpen.REPLACE, is_fresh=True).is_published


def test_a_run_that_was_rolled_back_is_published_again_only_after_another_waiver(work: RequestContext) -> None:
    done = publish(work, who="ann")
    rollback(work, done.ledger_version, reason="bad rows", who="bob")
    again = publish_request(work, done.request_id, who="cyd")
    assert (again.is_published, again.stopped_by) == (False, (HELD,))
    forms = decision_forms(work, work.ledger.view(), request_id=done.request_id).request
    assert forms is not None
    assert ([held.slice_id for held in forms.held], forms.can_waive, bool(forms.publish)) == ([HELD], True, False)
    named = SliceWaiver(slice_id=HELD, run_id=newest_failed_run(work, HELD), reason="after all")
    waive_all(work, [named], by=By(who="cyd", decision_id="w"), request_id=done.request_id, all_of_it=True)
    assert publish_request(work, done.request_id, who="cyd").is_published
    assert list(work.ledger.view().published) == list(DAYS)


def test_the_next_request_after_a_rollback_is_held(work: RequestContext) -> None:
    done = publish(work, who="ann")
    rollback(work, done.ledger_version, reason="bad rows", who="bob")
    resume(work, reason="go on", who="bob")
    outcome = run(work)
    assert outcome.publication is not None
    assert outcome.publication.stopped_by == (HELD,)


def test_a_closed_request_has_no_form(work: RequestContext) -> None:
    [request] = work.ledger.view().open_requests()
    cancel(work, request.request_id, reason="no", by=By(who="bob", decision_id="c"))
    assert decision_forms(work, work.ledger.view(), request_id=request.request_id).request is None
    with pytest.raises(RequestError, match="only an open one can be decided"):
        waive_all(
            work, [SliceWaiver(slice_id=HELD, run_id="x", reason="y")], by=By(who="cyd", decision_id="w"),
            request_id=request.request_id,
        )  # fmt: skip
