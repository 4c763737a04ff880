"""Notebooks show plans, differences and published rows: the same words as the commands, and every value escaped."""

from pathlib import Path

import pytest
from hindcast.notebook import diff, plan, windows

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.plan_total import plan_end, plan_title
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from windowlib.errors import RequestError

HOSTILE = "<script>alert('x')</script>\u202e"
MOST = 20


def ask(work: RequestContext, *, publish: bool) -> None:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="a test", reason="")
    run_request(work, asked, FakeReplayer(), publish=publish)


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """Two published days; the second has another record now."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    append_day(tmp_path, "2024-01-01", {HOSTILE: 1})
    append_day(tmp_path, "2024-01-02", {f"key {number}": number for number in range(MOST + 5)})
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-09"))
    ask(work, publish=True)
    append_day(tmp_path, "2024-01-02", {HOSTILE: 7})
    return work


@pytest.mark.usefixtures("work")
def test_a_plan_has_the_words_of_the_command(tmp_path: Path) -> None:
    shown = plan(str(tmp_path), "sales", from_="2024-01-01", to="2024-01-03", pipelines=tmp_path / "pipelines")
    html = shown._repr_html_()
    assert [step.shown for step in shown.value.steps] == ["current", "input changed"]
    for words in (plan_title(shown.value), plan_end(shown.value), "<td>2024-01-02</td>", "25 records then, 26 now"):
        assert words in html


@pytest.mark.usefixtures("work")
def test_published_rows_are_escaped_and_the_first_ones_are_shown(tmp_path: Path) -> None:
    shown = windows(str(tmp_path), "sales")
    html = shown._repr_html_()
    assert shown.value.num_rows == MOST + 6
    assert html.count("<tr>") == 1 + MOST
    assert f"sales, window_outputs: {MOST + 6} rows" in html
    assert "6 more rows" in html
    chosen = windows(str(tmp_path), "sales", keys={"key": [HOSTILE]}, columns=["key", "total"])._repr_html_()
    assert "&lt;script&gt;" in chosen
    assert "<script>" not in chosen
    assert "\u202e" not in chosen
    assert "more row" not in chosen


def test_a_difference_is_shown_as_on_the_pages(work: RequestContext, tmp_path: Path) -> None:
    ask(work, publish=False)
    html = diff(str(tmp_path), "sales")._repr_html_()
    assert "window_outputs" in html
    assert "<dt>only after</dt><dd>1</dd>" in html
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    version = work.ledger.view().version
    assert diff(str(tmp_path), "sales", at=(version, version)).value.is_equal
    assert "No value differs" in diff(str(tmp_path), "sales", at=version)._repr_html_()
    with pytest.raises(RequestError, match="exclude each other"):
        diff(str(tmp_path), "sales", at=1, request="x")
