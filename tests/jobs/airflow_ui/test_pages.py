"""Every page of a small lake: links, permissions, hostile values, foreign DAGs, rows, filters and CSV."""

import csv
import html
import io
import json
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING
from unittest.mock import Mock
from urllib.parse import urljoin

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.delta_log import DeltaPlace, LogTable
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.removals import Why
from jobs.orchestration.requests import run_request
from jobs.pipeline.files import load_file
from jobs.planning import event_times
from jobs.planning.request_context import Asked, open_request, open_request_context
from jobs.publishing.cleaning import clean_lake
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.replay.replayer import replay_chunk
from jobs.review import links
from jobs.review.metrics import gauges
from jobs.review.pages.record_page import SearchLimits, find, search_scope
from jobs.review.pages.window_page import WindowAsk, window_page
from jobs.runs import RunResult, Slice, Verdict
from tests.jobs.airflow_ui.conftest import NOW_MS, Clients, Place
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.no_spark import threads
from tests.support.waiving import waive_newest
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

pytestmark = pytest.mark.dags

HOSTILE = (
    "<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "javascript:alert(1)", "\u202eevil", "a\x1b[2Jb",
    "{{ 7 * 7 }}", "'; DROP TABLE rows; --", "../../etc/passwd", "%2e%2e%2f", "x" * 3_000, "\x00", "=1+1",
)  # fmt: skip


def replay(place: Place, start: str, end: str, replayer: FakeReplayer | None = None, reason: str = "because") -> None:
    asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="ines", reason=reason)
    run_request(place.work, asked, replayer or FakeReplayer())


def held(place: Place) -> str:
    """Replay all four days, the third of which fails; return the request."""
    replay(place, "2024-01-01", "2024-01-05")
    (request,) = place.work.ledger.view().open_requests()
    return request.request_id


def late(count: int, *, partly: int = 0) -> FakeReplayer:
    """Return a replayer whose second day has late records with hostile texts; `partly` missed only some windows."""
    rows: list[dict[str, object]] = [
        {
            "slice_id": "2024-01-02",
            "rank": rank,
            "event_time_ms": day_ms("2024-01-01"),
            "watermark_ms": day_ms("2024-01-01") + rank * 1_000,
            "late_by_ms": rank * 1_000,
            "missed_all": rank >= partly,
            "record_id": HOSTILE[rank % len(HOSTILE)],
            "reason": "past_cleanup",
        }
        for rank in range(count)
    ]

    def change(result: RunResult) -> RunResult:
        if result.slice.slice_id != "2024-01-02":
            return result
        return replace(result, counts=replace(result.counts, read=count + 2, late=count - partly))

    return FakeReplayer(beside={"2024-01-02": {"late_records": rows}}, change=change)


def addresses(text: str, base: str) -> Iterator[str]:
    """Yield the addresses on a page that stay on this server."""
    for found in re.findall(r'(?:href|action|src)="([^"]*)"', text):
        target = urljoin(base, html.unescape(found)).partition("#")[0]
        if target.startswith(links.PREFIX) and "format=csv" not in target:
            yield target


def crawl(client: "TestClient", start: str, most: int = 400) -> dict[str, int]:
    """Follow every link from a page on; return the status of each address."""
    seen: dict[str, int] = {}
    waiting = [start]
    while waiting and len(seen) < most:
        path = waiting.pop()
        if path in seen:
            continue
        answer = client.get(path, follow_redirects=True)
        seen[path] = answer.status_code
        if answer.status_code == 200 and "text/html" in answer.headers["content-type"]:
            assert "<script" not in answer.text
            assert "http://" not in answer.text.replace('xmlns="http://www.w3.org/2000/svg"', "")
            waiting += [one for one in addresses(answer.text, path) if one not in seen]
    return seen


@pytest.mark.slow
def test_every_link_on_every_page_answers(clients: Clients, place: Place) -> None:
    """Random small lakes: some days replayed, waived, published, replayed again."""
    for seed in seeds(1):
        rng = random.Random(seed)
        replay(place, "2024-01-01", "2024-01-03", late(rng.randrange(1, 120)))
        if rng.random() < 0.8:
            replay(place, "2024-01-03", "2024-01-05", reason=rng.choice(HOSTILE[:9]))
            if rng.random() < 0.5:
                waive_newest(place.work, "2024-01-03", reason=rng.choice(HOSTILE[:9]), who="<b>ines</b>")
                publish(place.work, who="ines")
        if rng.random() < 0.5:
            append_day(place.lake, "2024-01-02", {"c": rng.randrange(5)})
            replay(place, "2024-01-02", "2024-01-05")
        seen = crawl(clients("admin"), links.overview())
        assert len(seen) > 15
        wrong = {path: status for path, status in seen.items() if status != 200}
        assert not wrong, f"seed {seed}: {wrong}"


def test_a_held_slice_is_on_the_overview_the_card_and_its_page(clients: Clients, place: Place) -> None:
    request_id = held(place)
    client = clients("viewer")
    assert "1 slice held" in client.get(links.overview()).text
    (card,) = client.get(f"{links.PREFIX}/held.json").json()["held"]
    assert (card["pipeline"], card["path"]) == ("sales", links.request_page("sales", request_id))
    page = client.get(links.slice_page("sales", "2024-01-03")).text
    assert "Failed, readers do not see this run" in page
    assert "replayed" in client.get(links.request_page("sales", request_id[:8])).text
    waive_newest(place.work, "2024-01-03", reason="seen", who="ines")
    publish(place.work, who="ines")
    assert client.get(f"{links.PREFIX}/held.json").json()["held"] == []


def test_a_request_of_the_pages_opens_a_log_once(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the card on the Home page listed the files of a log of Parquet files several times."""
    replay(place, "2024-01-01", "2024-01-03")
    opened: list[int | None] = []
    open_ = DeltaPlace.open

    def open_log(log: DeltaPlace, version: int | None = None) -> LogTable:
        opened.append(version)
        return open_(log, version)

    monkeypatch.setattr(DeltaPlace, "open", open_log)
    client = clients("viewer")
    for path in (f"{links.PREFIX}/held.json", links.overview(), links.pipeline_page("sales")):
        for _ in range(2):
            opened.clear()
            assert client.get(path).status_code == 200
            assert opened == [None], path
    append_day(place.lake, "2024-01-02", {"late": 5})
    assert client.get(f"{links.PREFIX}/held.json").json()["held"][0]["badge"] == "changed", (
        "the next one reads it again"
    )


def test_a_key_has_no_window_while_readers_see_no_slice(clients: Clients, place: Place) -> None:
    held(place)
    answer = clients("viewer").get(f"{links.record_page('sales')}?key.key=a")
    assert answer.status_code == 200
    assert "/windows?" not in answer.text


@pytest.mark.parametrize("dag_id", ["alert_sales", "maintain_sales"])
def test_the_tabs_of_the_dags_without_requests_lead_to_the_pipeline(
    clients: Clients, place: Place, dag_id: str
) -> None:
    assert place.lake.is_dir()
    for tab in (f"dag?dag_id={dag_id}", f"dag-run?dag_id={dag_id}&run_id=r"):
        answer = clients("viewer").get(f"{links.PREFIX}/{tab}")
        assert (answer.status_code, answer.headers["location"]) == (303, links.pipeline_page("sales"))


def test_the_slice_that_the_schedule_waits_for_is_marked_on_every_page(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03")
    client = clients("viewer")
    pages = (links.overview(), links.pipeline_page("sales"))
    assert not any("The schedule <b>waits" in client.get(path).text for path in pages), "the next day is there"
    assert client.get(f"{links.PREFIX}/held.json").json() == {"held": [], "waits": []}
    held(place)
    waive_newest(place.work, "2024-01-03", reason="seen", who="ines")
    publish(place.work, who="ines")
    sentence = "The schedule <b>waits for 2024-01-05</b> since 2024-01-06 00:00:00 UTC: slice 2024-01-05 is "
    assert all(sentence in client.get(path).text for path in pages)
    text = client.get(links.pipeline_page("sales")).text
    assert 'class="c-awaited" href="/hindcast/pipelines/sales/slices/2024-01-05" title="2024-01-05: waits"' in text
    assert "<b>1 waits</b>" in text
    own = client.get(links.slice_page("sales", "2024-01-05")).text
    assert "The schedule waits for this slice since 2024-01-06 00:00:00 UTC: " in own
    assert "Never replayed" not in own
    (line,) = client.get(f"{links.PREFIX}/held.json").json()["waits"]
    assert (line["title"], line["path"]) == ("sales: waits for 2024-01-05", links.pipeline_page("sales"))
    assert line["why"].startswith("since 2024-01-06 00:00:00 UTC: ")
    for last, waits in (("2024-01-05", [line]), ("2024-01-04", [])):
        text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day, last: {last}}}")
        (place.pipelines / "sales.yaml").write_text(text, encoding="utf-8")
        assert client.get(f"{links.PREFIX}/held.json").json()["waits"] == waits, "the last slice is awaited, too"


def test_a_request_tells_warned_and_empty_slices_before_their_publication(clients: Clients, place: Place) -> None:
    def change(result: RunResult) -> RunResult:
        is_first = result.slice.slice_id == "2024-01-01"
        counts = replace(result.counts, read=0) if is_first else result.counts
        return replace(result, counts=counts, verdict=Verdict.WARN if is_first else result.verdict)

    replay(place, "2024-01-01", "2024-01-04", FakeReplayer(change=change))
    (request,) = place.work.ledger.view().open_requests()
    text = clients("viewer").get(links.request_page("sales", request.request_id)).text
    assert "2 not published (1 of them warned, 1 of them empty)" in text
    assert text.count("not published, warned, empty") == 1


def test_the_page_of_a_slice_tells_that_its_records_have_changed(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03")
    client, told = clients("viewer"), "The log has other records of this slice now"
    assert told not in client.get(links.slice_page("sales", "2024-01-02")).text
    append_day(place.lake, "2024-01-02", {"new": 1})
    assert told in client.get(links.slice_page("sales", "2024-01-02")).text
    assert told not in client.get(links.slice_page("sales", "2024-01-01")).text


def test_the_page_of_a_pipeline_tells_that_its_log_has_ended(clients: Clients, place: Place) -> None:
    sentence = "Its log ends with 2024-01-04 (log.slice.last), so the schedule replays no later slice"
    client = clients("viewer")
    assert sentence not in client.get(links.pipeline_page("sales")).text
    text = PIPELINE.replace("slice: {by: day}", "slice: {by: day, last: 2024-01-04}")
    (place.pipelines / "sales.yaml").write_text(text, encoding="utf-8")
    assert sentence in client.get(links.pipeline_page("sales")).text


def test_the_pages_tell_that_this_version_refuses_an_unchanged_pipeline_file(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: only `hindcast status` told it."""

    def refuse(*_: object) -> None:
        raise SpecError("no such trigger")

    client = clients("viewer")
    replay(place, "2024-01-01", "2024-01-03")
    pages, told = (links.overview(), links.pipeline_page("sales")), "this version of Hindcast does not accept that spec"
    assert not any(told in client.get(page).text for page in pages)
    monkeypatch.setattr(event_times, "log_engine", refuse)
    assert all(told in client.get(page).text for page in pages)
    [line] = client.get(links.PREFIX + "/held.json").json()["held"]
    assert (line["badge"], line["title"]) == ("stopped", "sales: chain stopped")
    assert "this version" in line["why"]


def test_the_page_of_a_pipeline_tells_which_slices_before_the_head_are_left_out(clients: Clients, place: Place) -> None:
    client, sentence = clients("viewer"), "left out, because the schedule goes on after the published head"
    replay(place, "2024-01-01", "2024-01-03")
    assert sentence not in client.get(links.pipeline_page("sales")).text
    append_day(place.lake, "2024-01-07", {"a": 1})
    from_ms, to_ms = day_ms("2024-01-07"), day_ms("2024-01-08")
    asked = Asked(from_ms=from_ms, to_ms=to_ms, who="me", reason="a test", is_fresh=True)
    run_request(place.work, asked, FakeReplayer())
    assert sentence in client.get(links.pipeline_page("sales")).text


def test_a_broken_file_and_a_missing_lake_do_not_hide_other_pipelines(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.pipelines / "other.yaml").write_text("pipeline: other\nlog: <b>3</b>\n", encoding="utf-8")
    client = clients("viewer")
    text = client.get(links.overview()).text
    assert "sales" in text
    assert "has an error" in text
    assert "<b>3" not in text
    assert client.get(links.pipeline_page("other")).status_code == 503
    monkeypatch.setenv("HINDCAST_LAKE", str(place.lake / "nothing"))
    assert "does not exist" in client.get(links.overview()).text
    assert client.get(links.pipeline_page("sales")).status_code == 503


def test_pages_need_the_permission_to_read_the_dag(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.airflow_ui import context

    held(place)
    monkeypatch.setattr(context, "may_read", lambda _user, name: name != "sales")
    client = clients("viewer")
    assert "sales" not in client.get(links.overview()).text
    assert client.get(f"{links.PREFIX}/held.json").json() == {"held": [], "waits": []}
    for path in (
        links.pipeline_page("sales"),
        links.slice_page("sales", "2024-01-03"),
        links.rows_page("sales", "2024-01-03", "window_outputs"),
        links.compare_page("sales"),
        links.digest_page("sales"),
        links.record_page("sales"),
        links.window_page("sales", {"key": "a"}, start="2024-01-01"),
        links.dag_page("replay_sales"),
    ):
        assert client.get(path).status_code == 403


def test_a_dag_that_is_not_ours_gets_a_page_that_says_so(clients: Clients, place: Place) -> None:
    held(place)
    client = clients("viewer")
    for dag_id in ("other", "replay_nothing", "sales", "<script>", "replay_"):
        answer = client.get(links.dag_page(dag_id))
        assert answer.status_code == 200
        assert "does not belong to a pipeline" in answer.text
        assert "<script" not in answer.text
    assert client.get(links.dag_page("replay_sales")).headers["location"] == links.pipeline_page("sales")
    run = client.get(links.dag_run_page("replay_sales", "manual<b>")).text
    assert "The plan of replay_sales manual&lt;b&gt;." in run
    assert "has not opened a request" in run


def test_rows_are_paged_filtered_and_sorted(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03", late(120))
    client = clients("viewer")
    path = links.rows_page("sales", "2024-01-02", "late_records")
    first = client.get(path).text
    assert "Rows 1 to 50 of 120" in first
    assert "Page 1 of 3" in first
    assert f'<td title="{"x" * 2_000}">' in first, "a long text is one line, so that its row is no taller than a page"
    assert "Rows 101 to 120 of 120" in client.get(f"{path}?page=3").text
    assert "Rows 101 to 120 of 120" in client.get(f"{path}?page=9999").text
    assert "Rows 1 to 10 of 10 that match, of 120" in client.get(f"{path}?column=record_id&value=%3Cscript").text
    assert "Rows 1 to 20 of 20 that match" in client.get(f"{path}?column=rank&how=at+least&value=100").text
    newest = client.get(f"{path}?sort=rank&order=desc").text
    assert newest.index(">119<") < newest.index(">118<")
    assert "No rows" in client.get(f"{path}?column=record_id&value=%27%3B+DROP+TABLE+rows%3B+--x").text
    for wrong in (
        "?page=0",
        "?page=99999999999999999999",
        "?how=like",
        "?order=up",
        "?format=xml",
        "?column=nope&value=1",
    ):
        assert client.get(f"{path}{wrong}").status_code in {404, 422}
    assert client.get(f"{path}?column=rank&how=at+least&value=abc").status_code == 404
    for table in ("ledger", "quality_results", "..%2fledger", "nothing"):
        assert client.get(links.rows_page("sales", "2024-01-02", table)).status_code == 404


def test_a_csv_file_has_all_rows_and_no_formula(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03", late(24))
    answer = clients("viewer").get(f"{links.rows_page('sales', '2024-01-02', 'late_records')}?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert 'filename="sales_2024-01-02_late_records.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 24
    assert {row["rank"] for row in rows} == {str(rank) for rank in range(24)}
    texts = {row["record_id"] for row in rows}
    assert "'=1+1" in texts
    assert not any(text.startswith(("=", "+", "@")) for text in texts)


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_in_addresses_are_escaped(clients: Clients, place: Place, value: str) -> None:
    held(place)
    client = clients("viewer")
    paths = [
        links.pipeline_page(value),
        links.slice_page("sales", value),
        links.slice_page("sales", "2024-01-03", run_id=value),
        links.rows_page("sales", "2024-01-03", value),
        links.request_page("sales", value),
        links.record_page("sales", value[:1_000]),
        links.record_page("sales", value),
        links.dag_run_page(value, value),
        f"{links.pipeline_page('sales')}?last={json.dumps(value)}",
    ]
    for path in paths:
        answer = client.get(path)
        assert answer.status_code in {200, 404, 422}, path[:200]
        assert "<script" not in answer.text
        assert "<img" not in answer.text
        assert "\x1b" not in answer.text
        assert "\u202e" not in answer.text
        assert len(answer.text) < 200_000


def test_an_address_with_a_slash_too_many_is_unknown_and_goes_to_no_other_host(clients: Clients) -> None:
    for path in (links.pipeline_page("sales"), f"{links.PREFIX}//example.com", f"{links.PREFIX}/static/pages.css"):
        answer = clients("viewer").get(f"{path}/", headers={"host": "example.com"})
        assert (answer.status_code, "location" in answer.headers) == (404, False)


def test_damaged_rows_are_told_and_never_shown(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03", late(5))
    files = [*(place.lake / "sales" / "late_records" / "slice_id=2024-01-02").rglob("*.parquet")]
    assert files
    for file in files:
        file.write_bytes(b"PAR1 nothing PAR1")
    client = clients("viewer")
    assert client.get(links.rows_page("sales", "2024-01-02", "late_records")).status_code == 503
    assert client.get(links.slice_page("sales", "2024-01-02")).status_code == 200


def test_a_page_that_begins_with_a_missing_slice_leads_to_the_slices_before(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.airflow_ui.routes.pipelines.SHOWN_SLICES", 2)
    replay(place, "2024-01-01", "2024-01-03")
    asked = Asked(from_ms=day_ms("2024-01-04"), to_ms=day_ms("2024-01-05"), who="ines", reason="r", is_fresh=True)
    run_request(place.work, asked, FakeReplayer())
    text = clients("viewer").get(links.pipeline_page("sales")).text
    assert "2024-01-03: missing" in text
    assert "last=2024-01-02" in text


def test_two_publications_are_compared(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03")
    append_day(place.lake, "2024-01-02", {"a": FAILS // 2})
    replay(place, "2024-01-02", "2024-01-03")
    text = clients("viewer").get(links.compare_page("sales")).text
    assert "windows changed" in text
    assert "total" in text
    assert clients("viewer").get(links.compare_page("sales", before=0, after=999)).status_code == 200
    assert clients("viewer").get(f"{links.compare_page('sales')}?before=-1").status_code == 422


def test_the_list_of_versions_names_no_slice_between_those_of_a_publication(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03")
    assert "2024-01-01 … 2024-01-02" in clients("viewer").get(links.compare_page("sales")).text
    view = place.work.ledger.view()
    apart = replace(view.slices["2024-01-02"], slice_id="2024-01-04", start_ms=day_ms("2024-01-04"), end_ms=NOW_MS)
    changes = dict.fromkeys(("2024-01-01", "2024-01-04"))
    view = replace(
        view,
        slices={**view.slices, "2024-01-04": apart},
        publications=(replace(view.publications[-1], changes=changes),),
    )
    from jobs.airflow_ui.routes.compare import _versions  # imports Airflow

    [(_, text)] = _versions(view)
    assert text.endswith(", 2024-01-01, 2024-01-04")


def test_every_page_answers_after_a_clean_up_and_tells_which_rows_are_gone(clients: Clients, place: Place) -> None:
    """The clean-up removes the rows that a publication replaced, and those of a cancelled request."""
    replay(place, "2024-01-01", "2024-01-03")
    append_day(place.lake, "2024-01-01", {"c": 1})
    replay(place, "2024-01-01", "2024-01-03")
    append_day(place.lake, "2024-01-02", {"c": 1})
    asked = Asked(from_ms=day_ms("2024-01-02"), to_ms=day_ms("2024-01-03"), who="ines", reason="because")
    staged = run_request(place.work, asked, FakeReplayer(), publish=False)
    cancel(place.work, staged.request_id, reason="no", by=By(who="ines", decision_id="1"))
    pipeline = sales(f"{PIPELINE}retention: {{superseded: 1d, unpublished: 1d}}\n")
    later = open_request_context(pipeline, place.work.lake, now_ms=lambda: NOW_MS + 2 * 86_400_000)
    removed = clean_lake(later, older_than_ms=0, who="ines", dry_run=False).rows
    assert {rows.why for rows in removed} == {Why.SUPERSEDED, Why.UNPUBLISHED}
    client = clients("admin")
    for path in (
        links.pipeline_page("sales"),
        links.compare_page("sales"),
        *(links.request_page("sales", request_id) for request_id in place.work.ledger.view().requests),
    ):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "removed by a clean-up of ines" in answer.text, path


def test_a_held_slice_tells_what_is_usual_where_it_comes_from_and_what_it_feeds(clients: Clients, place: Place) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        append_day(place.lake, day, {"c": 1})
    request_id = held(place)
    client = clients("viewer")
    page = client.get(links.slice_page("sales", "2024-01-03")).text
    assert "earlier published slice" in page
    assert "event_logs/sales</span>, version" in page
    assert "hindcast://sales/published" in page
    assert 'target="_top" href="/dags/after"' in page
    assert "no DAG run of Airflow has asked for this slice" in page
    listed = client.get(f"{links.slice_page('sales', '2024-01-03')}?files=true").text
    assert re.search(r"day=2024-01-03/[^<]*\.parquet</td>", listed)
    assert "day=2024-01-02" not in listed
    request = client.get(links.request_page("sales", request_id)).text
    assert "Checks that did not pass" in request
    assert "earlier published slice" in request


TOTALS = """
pipeline: totals
log: {pipeline: sales, key: [key], event_time: {column: window_time}}
watermark: {kind: ascending}
windows: {tumbling: {size: 1d}}
aggregates: {total: {sum: total}}
"""


@pytest.mark.slow
def test_slices_of_pipelines_that_read_each_other_are_linked(clients: Clients, place: Place) -> None:
    (place.pipelines / "totals.yaml").write_text(TOTALS, encoding="utf-8")
    reader = load_file(place.pipelines / "totals.yaml")
    works = place.work, open_request_context(reader, place.work.lake, now_ms=lambda: NOW_MS)
    for work in works:
        asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines", reason="a test")
        run_request(work, asked, lambda order: replay_chunk(threads(), order))
    client = clients("viewer")
    above = client.get(links.slice_page("sales", "2024-01-02")).text
    assert f'is read by</dt><dd>pipeline <a href="{links.slice_page("totals", "2024-01-02")}">totals</a>' in above
    below = client.get(links.slice_page("totals", "2024-01-02")).text
    made_of = [
        links.slice_page("sales", day, run_id=place.work.ledger.view().published[day])
        for day in ("2024-01-01", "2024-01-02")
    ]
    assert f'href="{made_of[0]}">2024-01-01</a>, <a href="{made_of[1]}">2024-01-02</a>' in below
    assert all(client.get(shown).status_code == 200 for shown in made_of)


def test_a_slice_links_the_longer_slices_of_its_readers(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the link led to a slice that the reader does not have."""
    clients("viewer")  # it imports what Airflow imports, without its warnings
    from jobs.airflow_ui import context

    (place.pipelines / "totals.yaml").write_text(TOTALS, encoding="utf-8")
    monkeypatch.setattr(context, "may_read", lambda _user, _name: True)
    morning = Slice(
        slice_id="2024-01-02T06", start_ms=day_ms("2024-01-02") + 6 * 3_600_000, end_ms=day_ms("2024-01-03")
    )
    assert context.readers_of("sales", morning, Mock()) == (("totals", "2024-01-02"),)


def test_dag_runs_are_linked_from_the_slice_and_the_request_out_of_the_frame(clients: Clients, place: Place) -> None:
    origin = DagRunOrigin(dag_id="backfill_sales", run_id="manual__1/+ä", slice_ids=("2024-01-01", "2024-01-02"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="i", reason="r", origin=origin)
    made = run_request(place.work, asked, FakeReplayer())
    client = clients("viewer")
    link = 'target="_top" class="wrap" href="/dags/backfill_sales/runs/manual__1%2F%2B%C3%A4"'
    assert link in client.get(links.slice_page("sales", "2024-01-02")).text
    assert link in client.get(links.request_page("sales", made.request_id)).text
    assert link not in client.get(links.slice_page("sales", "2024-01-03")).text
    back = client.get(links.dag_run_page("backfill_sales", "manual__1/+ä"))
    assert back.headers["location"] == links.request_page("sales", made.request_id)


def test_late_records_are_counted_by_reason_and_the_count_leads_to_them(clients: Clients, place: Place) -> None:
    replay(place, "2024-01-01", "2024-01-03", late(24, partly=4))
    client = clients("viewer")
    slice_page = client.get(links.slice_page("sales", "2024-01-02")).text
    assert "20, and 4 records that missed only some windows" in slice_page
    for page in (slice_page, client.get(links.rows_page("sales", "2024-01-02", "late_records")).text):
        [(target, count)] = re.findall(r'<a href="([^"]*column=reason[^"]*)">past_cleanup</a> <b>(\d+)</b>', page)
        assert count == "24"
        assert "Rows 1 to 24 of 24 that match" in client.get(html.unescape(target)).text


def test_a_record_is_found_by_a_part_of_its_id_and_the_page_tells_how_far_it_searched(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.airflow_ui.routes import records

    monkeypatch.setattr(records, "SEARCH_S", 60)
    held(place)
    client = clients("viewer")
    several = client.get(links.record_page("sales", "/A/")).text
    assert "4 records with <b>/A/</b> in the id" in several
    assert "Searched 4 of 4 slices with records" in several
    for target in re.findall(r'<a class="mono wrap" href="([^"]*)"', several):
        assert "is assigned" in client.get(html.unescape(target)).text
    assert "is assigned" in client.get(links.record_page("sales", "01-02/a")).text, "the only record is explained"
    nothing = client.get(links.record_page("sales", "<b>nothing")).text
    assert "No record of these slices has “&lt;b&gt;nothing” in the column id" in nothing
    assert client.get(f"{links.record_page('sales', 'a')}&slice=1999-01-01").status_code == 404


def test_a_record_is_found_by_its_id_where_the_slices_are_no_partitions(clients: Clients, place: Place) -> None:
    (place.pipelines / "sales.yaml").write_text(PIPELINE.replace("{by: day}", "{by: received_at}"), encoding="utf-8")
    pipeline = load_file(place.pipelines / "sales.yaml")
    shutil.rmtree(place.lake / "event_logs")
    rows = [
        {"id": f"{day} {hour}", "key": "a", "at_ms": day_ms(day), "amount": 1, "day": day}
        | {"received_at": datetime.fromisoformat(f"{day}T{hour}:00Z")}
        for day in ("2024-01-01", "2024-01-02")
        for hour in (10, 20)
    ]
    write_deltalake(place.lake / "event_logs" / "sales", pa.Table.from_pylist(rows))
    replay(replace(place, work=replace(place.work, pipeline=pipeline)), "2024-01-01", "2024-01-03")
    client = clients("viewer")
    for row in rows:
        page = client.get(links.record_page("sales", str(row["id"])))
        assert (page.status_code, f"arrived in slice {row['day']}" in page.text) == (200, True)
    page = client.get(links.record_page("sales", "2024"))
    assert (page.status_code, "has no record whose id is" in page.text) == (200, True)
    view, newest = place.work.ledger.view(), SearchLimits(slices=1)
    scope = search_scope(view, limits=newest)
    assert scope is not None
    problem = find(place.work.lake, pipeline, "2024-01-01 10", scope=scope).problem
    assert problem == "record 2024-01-01 10 is in slice 2024-01-01 of the log, which is not one of those searched"


def test_the_overview_tells_how_far_each_pipeline_is_behind_its_schedule(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.airflow_ui.context.now_ms", lambda: NOW_MS)
    replay(place, "2024-01-01", "2024-01-03")
    text = clients("viewer").get(links.overview()).text
    assert "newest record 2024-01-04, 26 days behind the schedule" in text
    assert "newest published slice 2024-01-02, 28 days behind the schedule" in text
    shutil.rmtree(place.lake / "event_logs")
    assert "freshness is not known: " in clients("viewer").get(links.overview()).text


def test_the_digest_is_a_page(clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.airflow_ui.context.now_ms", lambda: NOW_MS + 1)
    held(place)
    text = html.unescape(clients("viewer").get(links.digest_page("sales")).text)
    assert "Since 2024-01-31 00:00:00 UTC" in text
    assert '<dt>Published</dt><dd class="wrap">none</dd>' in text
    assert "2024-01-03 since 2024-02-01 00:00:00 UTC: window_outputs: total: failed" in text


@pytest.mark.slow
@pytest.mark.parametrize("edited", ["timezone: America/New_York", "timezone: Asia/Tokyo"])
def test_an_edited_cut_changes_no_page_until_it_is_adopted(
    clients: Clients, place: Place, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    """Neither of a pipeline that is up to date nor of its held request, and no gauge."""
    monkeypatch.setattr("jobs.airflow_ui.context.now_ms", lambda: day_ms("2024-01-05") + 8 * 3_600_000)
    replay(place, "2024-01-01", "2024-01-03")
    request_id = held(place)
    paths = [
        links.overview(),
        links.pipeline_page("sales"),
        links.digest_page("sales"),
        links.slice_page("sales", "2024-01-02"),
        links.request_page("sales", request_id),
    ]
    client = clients("viewer")
    before = [client.get(path).text for path in paths]
    text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day, {edited}}}")
    (place.pipelines / "sales.yaml").write_text(text, encoding="utf-8")
    for path, shown in zip(paths, before, strict=True):
        assert client.get(path).text == shown, path
    work = replace(place.work, pipeline=sales(text))
    view = work.ledger.view()
    assert gauges(work, view) == gauges(place.work, view)


@pytest.mark.slow
def test_a_window_is_explained_on_a_page_that_its_rows_link_to(clients: Clients, place: Place) -> None:
    """The rows are those of a real replay, because the page runs the operator again."""
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines", reason="")
    run_request(place.work, asked, lambda order: replay_chunk(threads(), order))
    client = clients("viewer")
    bounds = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"}
    path = links.window_page("sales", {"key": "a"}, **bounds)
    listed = client.get(links.rows_page("sales", "2024-01-02", "window_outputs")).text
    assert f'href="{path.replace("&", "&amp;")}"' in listed
    assert "/windows?" in client.get(f"{links.record_page('sales')}?key.key=a").text
    text = client.get(path).text
    assert "has 1 record of the log: 1 counted. Readers see total 1." in text
    assert "The operator ran again over these records, and gives the stored rows." in text
    assert links.record_page("sales", "2024-01-01/a/1", slice_id="2024-01-01").replace("&", "&amp;") in text
    assert "<pre>hindcast explain sales --window a 2024-01-01T00:00:00Z --end 2024-01-02T00:00:00Z</pre>" in text
    for value in HOSTILE:
        for hostile in (
            links.window_page("sales", {"key": value[:1_000]}, **bounds),
            links.window_page("sales", {"key": "a"}, start=value[:1_000], request_id=value[:1_000]),
        ):
            answer = client.get(hostile)
            assert answer.status_code == 200
            assert 'class="problem"' in answer.text
            assert "<script" not in answer.text
    assert client.get(links.window_page("sales", {"key": "a" * 2_000}, start="x" * 2_000)).status_code == 422
    few = WindowAsk(key={"key": "a"}, start="2024-01-01", most_read=1)
    found = window_page(place.work.lake, place.work.pipeline, few, view=place.work.ledger.view())
    assert found.explanation is None
    assert str(found.problem).startswith("The slices of this window have more than 1 record, and a page reads no more")


def test_the_page_of_a_request_plans_with_the_place_to_which_the_log_has_moved(place: Place, clients: Clients) -> None:
    """Defect: it looked for the log where it was when the request was opened, and told that it is missing."""
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines", reason="because")
    opened = open_request(place.work, asked)
    (place.lake / "event_logs" / "sales").rename(place.lake / "event_logs" / "moved")
    moved = PIPELINE.replace("table: event_logs/sales", "table: event_logs/moved")
    (place.pipelines / "sales.yaml").write_text(moved, encoding="utf-8")
    text = clients("viewer").get(f"/hindcast/pipelines/sales/requests/{opened.request_id}").text
    assert "cannot be made now" not in text
    assert "2024-01-01 … 2024-01-02" in text
