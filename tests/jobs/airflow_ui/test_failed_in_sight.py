"""A published slice that fails an edited suite is told wherever a person looks: pages, card, digest and metrics."""

import html
import json
from dataclasses import replace

import pytest

from expectations.loader import SUITES_VARIABLE
from jobs.ledger.run_projection import failing_in_sight
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from jobs.planning.suites import suite_fingerprint, with_checks
from jobs.review import links
from jobs.review.metrics import gauges
from jobs.runs import RunResult
from tests.jobs.airflow_ui.conftest import NOW_MS, Clients, Place
from tests.support.fake_replay import PIPELINE, FakeReplayer, day_ms, sales
from tests.support.waiving import waive_newest

pytestmark = pytest.mark.dags

QUALITY = f"{PIPELINE}quality: {{suite: expectations/sales.json, fail_on: critical}}\n"
DAY = "2024-01-02"


@pytest.fixture
def failing(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Two published days, the second of which fails the suite that was edited since."""

    def judged(result: RunResult) -> RunResult:
        return replace(result, extras={"checks_fingerprint": suite_fingerprint(sales(QUALITY))})

    suite = place.lake / "suites" / "sales.json"
    suite.parent.mkdir()
    monkeypatch.setenv(SUITES_VARIABLE, str(suite.parent))
    monkeypatch.setattr("jobs.airflow_ui.context.now_ms", lambda: NOW_MS + 1)
    (place.pipelines / "sales.yaml").write_text(QUALITY, encoding="utf-8")
    work = open_request_context(sales(QUALITY), place.work.lake, now_ms=lambda: NOW_MS)
    for most in (100, 2):
        check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": most}}
        document = {"window_outputs": {"name": "sales", "expectations": [check | {"severity": "critical"}]}}
        suite.write_text(json.dumps(document), encoding="utf-8")
        asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines", reason="because")
        run_request(with_checks(work), asked, FakeReplayer(change=judged))
    return replace(place, work=work)


def test_a_published_slice_that_fails_is_told_on_every_page_until_it_is_waived(
    clients: Clients, failing: Place
) -> None:
    client = clients("viewer")
    assert [run.result.slice.slice_id for run in failing_in_sight(failing.work.ledger.view())] == [DAY]
    badge = "1 published slice with failed checks"

    def told(path: str) -> str:
        return html.unescape(client.get(path).text)

    for path in (links.overview(), links.pipeline_page("sales")):
        assert badge in told(path)
        assert "readers see this run" in told(path)
        assert 'class="hero trouble"' in told(path)
    (card,) = client.get(f"{links.PREFIX}/held.json").json()["held"]
    assert (card["title"], card["badge"]) == (f"sales: {badge}", "failed")
    assert (card["path"], card["why"]) == (links.pipeline_page("sales"), f"{DAY}: window_outputs: total: failed")
    assert f'<dd class="wrap">{DAY}: window_outputs: total: failed</dd>' in told(links.digest_page("sales"))
    page = told(links.slice_page("sales", DAY))
    assert "The run stays published until a person runs the slice again" in page
    assert "held until" not in page
    assert numbers(failing)["failed_published_slices"] == 1
    waive_newest(failing.work, DAY, reason="seen", who="ines")
    assert client.get(f"{links.PREFIX}/held.json").json()["held"] == []
    assert badge not in told(links.overview())
    assert numbers(failing)["failed_published_slices"] == 0


def numbers(place: Place) -> dict[str, float]:
    return gauges(place.work, place.work.ledger.view())
