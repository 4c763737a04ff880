"""The section "Differences" of the report: what the newest open request would change."""

import html
import re
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.review.report.model import build_model
from jobs.review.report.page import newest_differences, render, write_report
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales
from tests.support.report_rows import collect

HOSTILE = "<script>\u202e\x1b"


def replay(work: RequestContext, *, is_published: bool) -> None:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-04"), who="ines", reason="r")
    run_request(work, asked, FakeReplayer(), publish=is_published)


@pytest.fixture
def restated(tmp_path: Path) -> RequestContext:
    """Three published days, and an open request in which the second day has two records more."""
    for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
        append_day(tmp_path, day, {"a": 1, "b": 2})
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))
    replay(work, is_published=True)
    append_day(tmp_path, "2024-01-02", {"a": 10, HOSTILE: 5})
    replay(work, is_published=False)
    return work


def section(text: str) -> str:
    """Return the section as text without tags; empty if the page has none."""
    found = re.search(r'<section aria-labelledby="diff-title">.*?</section>', text, re.DOTALL)
    return "" if found is None else " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[0])).split())


def reported(work: RequestContext) -> str:
    return Path(write_report(work.lake, work.pipeline)).read_text(encoding="utf-8")


def test_the_report_shows_counts_columns_and_rows(restated: RequestContext) -> None:
    (request,) = restated.ledger.view().open_requests()
    page = reported(restated)
    text = section(page)
    assert text.startswith(f"Differences Request {request.request_id[:12]}, compared with what readers see")
    assert "windows changed 1 only after 1 only before 0" in text
    assert re.search(r"total 1 0 0 10 10 1,000 % 1,000 %", text)
    assert re.search(r"key a .* changed .*total 1 → 11", text)
    assert r"key <script>\u202e\x1b" in text
    assert "\u202e" not in page
    assert "<script" not in page
    assert reported(restated) == page


def test_nothing_is_shown_if_no_request_would_change_anything(restated: RequestContext) -> None:
    publish(restated, who="ines")
    assert restated.ledger.view().open_requests() == ()
    assert section(reported(restated)) == ""


def test_a_cancelled_request_is_not_shown(restated: RequestContext) -> None:
    (request,) = restated.ledger.view().open_requests()
    cancel(restated, request.request_id, reason="no", by=By(who="ines", decision_id="d"))
    assert newest_differences(restated.lake, "sales", restated.ledger.view()) is None
    assert section(reported(restated)) == ""


def test_an_expensive_comparison_is_replaced_by_its_command(restated: RequestContext) -> None:
    view = restated.ledger.view()
    (request,) = view.open_requests()
    found = newest_differences(restated.lake, "sales", view, most_rows=1)
    assert found is not None
    assert found.compared.found is None
    text = section(render(build_model(collect(restated.lake, restated.pipeline)), found))
    assert f"hindcast diff sales --request {request.request_id} --lake {restated.lake.root}" in text
    assert "Compare now" not in text


def test_a_comparison_that_fails_does_not_fail_the_report(restated: RequestContext) -> None:
    for file in (Path(restated.lake.root) / "sales" / "window_outputs").rglob("*.parquet"):
        file.write_bytes(b"PAR1 nothing PAR1")
    assert "The views cannot be compared." in section(reported(restated))
