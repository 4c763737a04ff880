"""The review pages in a real browser, without Airflow around them: on a phone, on paper, and with the pointer."""

import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from jobs.lake.lake import Lake
from jobs.ledger.provenance import DagRunOrigin
from jobs.orchestration.requests import run_request
from jobs.pipeline.files import load_pipeline
from jobs.planning.request_context import Asked, open_request_context
from jobs.replay.replayer import replay_chunk
from jobs.review import links
from jobs.review.report.model import build_model
from jobs.review.report.page import render
from jobs.review.report.rows import ReportRows
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.no_spark import threads
from tests.support.report_rows import blizzard, many_days
from tests.ui.person import browser

pytestmark = pytest.mark.ui

HELD = "2024-01-03"
PHONE: ViewportSize = {"width": 390, "height": 844}
CUT_OFF = """() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > width) found.push(`page: ${document.documentElement.scrollWidth}`);
  for (const one of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a.button")) {
    const own = one.getBoundingClientRect(), around = one.closest(".scroll")?.getBoundingClientRect();
    const right = Math.min(width, around ? around.right : width);
    if (own.width && (own.left < -1 || own.right > right + 1)) found.push(`${one.tagName} ${one.name}: ${own.right}`);
  }
  return found;
}"""
"""Returns what is wider than the screen, and the fields that are not in view without scrolling to the side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The address of the pages, and a request that is held."""

    url: str
    request_id: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the pages of a lake whose third day is held, for an admin."""
    root = tmp_path_factory.mktemp("pages")
    (root / "pipelines").mkdir()
    (root / "pipelines" / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    for day, amount in (("2024-01-01", 1), ("2024-01-02", 2), (HELD, FAILS), ("2024-01-04", 4)):
        append_day(root, day, {"a": amount, "b": 1})
    work = open_request_context(sales(), Lake(root=str(root)), now_ms=lambda: day_ms("2024-02-01"))
    run_request(work, _asked("2024-01-01", "2024-01-03"), FakeReplayer())
    origin = DagRunOrigin(dag_id="backfill_sales", run_id="manual__1", slice_ids=(HELD, "2024-01-04"))
    made = run_request(work, _asked(HELD, "2024-01-05", origin=origin), FakeReplayer())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(root / "airflow"))
        patch.setenv("HINDCAST_LAKE", str(root))
        patch.setenv("HINDCAST_PIPELINES", str(root / "pipelines"))
        with _served() as url:
            yield Site(url=url, request_id=made.request_id)


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as found:
        yield found


def _asked(start: str, end: str, *, origin: DagRunOrigin | None = None) -> Asked:
    return Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="ines", reason="a long reason " * 20, origin=origin)


def _paths(site: Site) -> tuple[str, ...]:
    return (
        links.overview(),
        links.pipeline_page("sales"),
        links.request_page("sales", site.request_id),
        links.slice_page("sales", HELD),
        links.rows_page("sales", HELD, "window_outputs"),
        links.record_page("sales", "2024"),
        links.compare_page("sales"),
    )


def test_on_a_phone_nothing_is_wider_than_the_screen_and_no_field_is_cut_off(site: Site, running: Browser) -> None:
    page = running.new_page(viewport=PHONE)
    found = {path: cut for path in _paths(site) if (cut := _opened(page, site, path).evaluate(CUT_OFF))}
    page.close()
    assert found == {}


SMALL = """() => [...document.querySelectorAll("svg text:not(.sign)")]
  .map(one => [one.textContent, parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a])
  .filter(([_, size]) => size < 10)"""
"""Returns the texts of drawings that are too small to be read, and their size. A sign in a cell is also its colour."""


@pytest.mark.parametrize("rows", [blizzard(), many_days(900), many_days(400, every_ms=3_600_000)])
def test_the_report_fits_a_phone_and_its_drawings_can_be_read(
    running: Browser, tmp_path: Path, rows: ReportRows
) -> None:
    """Days of a month, days of years, and slices of an hour."""
    file = tmp_path / "report.html"
    file.write_text(render(build_model(rows)), encoding="utf-8")
    page = running.new_page(viewport=PHONE)
    page.goto(file.as_uri())
    assert (page.evaluate(CUT_OFF), page.evaluate(SMALL)) == ([], [])
    curves = page.evaluate("[...document.querySelectorAll('svg.spark')].map(one => one.getBoundingClientRect().width)")
    assert min(curves) >= 200
    page.close()


@pytest.mark.parametrize("theme", ["dark", "light", None])
def test_paper_is_white_in_every_theme(site: Site, running: Browser, theme: str | None) -> None:
    page = running.new_page(color_scheme="dark")
    for path in _paths(site):
        _opened(page, site, path).evaluate(
            "theme => { if (theme) document.documentElement.dataset.theme = theme }", theme
        )
        page.emulate_media(media="print", color_scheme="dark")
        colours = page.evaluate(
            "[document.body, ...document.querySelectorAll('section')].map(one => getComputedStyle(one).backgroundColor)"
        )
        assert set(colours) == {"rgb(255, 255, 255)"}, path
        page.emulate_media(media="screen")
    page.close()


def test_the_columns_under_the_pointer_tell_values_and_a_dag_run_is_linked(site: Site, running: Browser) -> None:
    page = running.new_page()
    _opened(page, site, links.slice_page("sales", HELD))
    column = page.locator("svg.plot rect.hover").first
    column.hover()
    assert "2024-01-03" in (column.locator("title").text_content() or "")
    page.get_by_role("link", name="backfill_sales manual__1").first.click()
    page.wait_for_url("**/dags/backfill_sales/runs/manual__1")
    page.close()


TOTALS = """
pipeline: totals
log: {pipeline: sales, key: [key], event_time: {column: window_time}}
watermark: {kind: ascending}
windows: {tumbling: {size: 1d}}
aggregates: {total: {sum: total}}
"""


def test_a_slice_leads_to_what_it_was_made_of_and_that_to_what_reads_it(
    running: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    for name, text in (("sales", PIPELINE), ("totals", TOTALS)):
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(text, encoding="utf-8")
    for day in ("2024-01-01", "2024-01-02"):
        append_day(tmp_path, day, {"a": 1})
    for name in ("sales", "totals"):
        spec = load_pipeline(name, tmp_path / "pipelines")
        work = open_request_context(spec, Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))
        run_request(work, _asked("2024-01-01", "2024-01-03"), lambda order: replay_chunk(threads(), order))
    for variable, value in (("AIRFLOW_HOME", "airflow"), ("HINDCAST_LAKE", "."), ("HINDCAST_PIPELINES", "pipelines")):
        monkeypatch.setenv(variable, str(tmp_path / value))
    page = running.new_page()
    with _served() as url:
        page.goto(url + links.slice_page("totals", "2024-01-02"))
        lineage = page.locator("section", has=page.get_by_role("heading", name="What it reads, what it feeds"))
        lineage.get_by_role("link", name="2024-01-02", exact=True).first.click()
        page.wait_for_url(f"**{links.slice_page('sales', '2024-01-02')}?**")
        lineage.get_by_role("link", name="totals").click()
        page.wait_for_url(f"**{links.slice_page('totals', '2024-01-02')}")
        page.close()


def _opened(page: Page, site: Site, path: str) -> Page:
    answer = page.goto(site.url + path)
    assert answer is not None
    assert answer.ok, path
    return page


class _served:  # noqa: N801 -- a context manager
    """Serves the pages on a free port of this machine."""

    def __enter__(self) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Airflow imports deprecated modules
            import uvicorn
            from airflow.api_fastapi.app import create_auth_manager
            from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
            from airflow.api_fastapi.core_api.security import get_user
            from fastapi import FastAPI

            from jobs.airflow_ui.app import make_app
            from jobs.airflow_ui.feeds import Feeds, feeds_of
        create_auth_manager()
        app = make_app()
        app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="ines", role="admin")
        app.dependency_overrides[feeds_of] = lambda: Feeds(uri=links.asset_uri("sales"))
        site = FastAPI()
        site.mount(links.PREFIX, app)
        self.server = uvicorn.Server(uvicorn.Config(site, host="127.0.0.1", port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.05)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_error: object) -> None:
        self.server.should_exit = True
        self.thread.join()
