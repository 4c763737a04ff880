"""Comments and assignees of requests: what is refused, retries, and that nothing else depends on them."""

from dataclasses import replace

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.history import event_of
from jobs.ledger.projection import project
from jobs.ledger.table import LedgerTable
from jobs.ledger.view import LedgerView
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.publishing.comments import MAX_ASSIGNEE, MAX_TEXT, Entry, comment
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales
from windowlib.errors import RequestError

HOSTILE = "\x1b[2J<b>\u202e\nsecond line"


@pytest.fixture
def work(tmp_path_factory: pytest.TempPathFactory) -> RequestContext:
    root = tmp_path_factory.mktemp("lake")
    append_day(root, "2024-01-01", {"a": 1})
    return open_request_context(sales(), Lake(root=str(root)), now_ms=lambda: day_ms("2024-02-01"))


@pytest.fixture
def request_id(work: RequestContext) -> str:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="ines", reason="r")
    return run_request(work, asked, FakeReplayer(), publish=False).request_id


def events(work: RequestContext) -> list[LedgerEvent]:
    table = LedgerTable(work.lake.ledger(work.pipeline.name))
    table.refresh()
    return [event_of(row, "") for row in table.read(after=0)]


def by(number: int, seen: LedgerView | None = None) -> By:
    return By(who="ines", decision_id=f"decide_sales/{number}", seen=seen)


def test_a_thread_has_texts_and_assignments_in_order_and_a_retry_adds_nothing(
    work: RequestContext, request_id: str
) -> None:
    said = comment(work, request_id, by=by(1), entry=Entry(text=f" {HOSTILE} "))
    assert said == f"request {request_id} has a new comment by ines"
    for _ in range(2):
        said = comment(work, request_id, by=by(2), entry=Entry(assignee=" bob "))
        assert said == f"request {request_id} is assigned to bob"
    comment(work, request_id, by=by(1), entry=Entry(text=HOSTILE))
    for other in (Entry(text="again"), Entry(text=HOSTILE, assignee="bob")):
        with pytest.raises(RequestError, match="decide_sales/1 has written another entry before"):
            comment(work, request_id, by=by(1), entry=other)
    request = work.ledger.view().requests[request_id]
    assert [(one.who, one.text, one.assignee) for one in request.comments] == [
        ("ines", HOSTILE, None),
        ("ines", "", "bob"),
    ]
    assert request.comments[0].at_ms == day_ms("2024-02-01")
    assert request.assignee == "bob"
    comment(work, request_id, by=by(3), entry=Entry(text="no time", assignee=""))
    assert work.ledger.view().requests[request_id].assignee == ""


def test_a_comment_makes_no_decision_outdated_and_changes_no_other_part_of_the_view(
    work: RequestContext, request_id: str
) -> None:
    seen = work.ledger.view()
    comment(work, request_id, by=by(1), entry=Entry(text="wait"))
    after = work.ledger.view()
    plain = {name: replace(one, comments=()) for name, one in after.requests.items()}
    assert replace(after, version=seen.version, requests=plain) == seen
    assert cancel(work, request_id, reason="r", by=by(2, seen)).failure is not None
    comment(work, request_id, by=by(3), entry=Entry(text="a request that is closed may be commented on"))
    assert len(work.ledger.view().requests[request_id].comments) == 2


def test_what_is_not_an_entry_is_refused_and_nothing_is_written(work: RequestContext, request_id: str) -> None:
    version = work.ledger.view().version
    for entry, message in (
        (Entry(text=" \n"), "is empty"),
        (Entry(text="x" * (MAX_TEXT + 1)), "at most 2,000"),
        (Entry(assignee="x" * (MAX_ASSIGNEE + 1)), "at most 200"),
    ):
        with pytest.raises(RequestError, match=message):
            comment(work, request_id, by=by(1), entry=entry)
    with pytest.raises(RequestError, match="has no request nothing"):
        comment(work, "nothing", by=by(1), entry=Entry(text="x"))
    assert work.ledger.view().version == version


def test_a_comment_is_a_note_which_earlier_versions_skip(work: RequestContext, request_id: str) -> None:
    """An event of an unknown kind would make every older worker refuse the whole ledger."""
    comment(work, request_id, by=by(1), entry=Entry(text="x"))
    newest = events(work)[-1]
    assert newest.kind is EventKind.NOTE
    for details in ({}, {"comment": "x"}, {"other": 1}):  # notes of other versions
        others = [*events(work), replace(newest, details=details, seq=newest.seq + 1)]
        assert len(project(others, version=newest.seq + 1).requests[request_id].comments) == 1
    lost = replace(newest, request_id="unknown", seq=newest.seq + 1)
    assert request_id in project([*events(work), lost], version=lost.seq).requests
