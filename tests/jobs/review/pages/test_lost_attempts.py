"""The attempts without a run on the page of a slice."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from jobs.replay.orders import ReplayOrder
from jobs.review.pages.slice_page import slice_page
from jobs.runs import RunResult
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales
from tests.support.report_rows import collect

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


def test_an_order_that_was_divided_shows_no_lost_attempt_and_a_failed_one_does(tmp_path: Path) -> None:
    """The replayer takes one slice of each order, and breaks at the first order of the last slice."""
    for day in DAYS:
        append_day(tmp_path, day, {"a": 1})
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-06"))
    fake, orders = FakeReplayer(), list[ReplayOrder]()

    def one_by_one(order: ReplayOrder) -> list[RunResult]:
        orders.append(order)
        if len(orders) == len(DAYS):
            raise RuntimeError("no memory")
        return fake(replace(order, slices=order.slices[:1]))

    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-04"), who="ann", reason="")
    with pytest.raises(RuntimeError):
        run_request(work, asked, one_by_one)
    assert run_request(work, asked, one_by_one).is_published
    view, rows = work.ledger.view(), collect(work.lake, work.pipeline)
    pages = [slice_page(view, slice_, shown=None, rows=rows) for slice_ in view.slices.values()]
    assert [[lost.attempt_id for lost in page.lost] for page in pages] == [[], [], [orders[2].attempt_id]]
