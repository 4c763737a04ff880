"""The work of an on-call engineer in a real Airflow, with a real browser, by clicks: from a red run to its publication.

`make test-ui` runs it, and `make test-ui PICTURES=docs/images` takes the pictures of the documents.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, expect

from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.review import links
from tests.ui.airflow_for_tests import Place, running_airflow
from tests.ui.person import PATIENCE_S, Person, browser, wait_until

pytestmark = pytest.mark.ui

FIRST, FIRST_DAY, END = "2013-02-01", "2013-02-04", "2013-02-15"
"""The log has the flights of [FIRST, END). The days before FIRST_DAY are published before the story begins."""
BLIZZARD = ("2013-02-08", "2013-02-09")
REASON = "blizzard Nemo; the cancellations are real"
expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running_airflow(tmp_path_factory.mktemp("ui")) as found:
        found.hindcast("load-flights", "--from", FIRST, "--to", END)
        found.hindcast("run", "flights", "--from", FIRST, "--to", FIRST_DAY, "--reason", "the first days")
        yield found


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def airflow(place: Place) -> Iterator[AirflowApi]:
    login = place.login
    with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
        wait_until(lambda: api.has_dag("backfill_flights"), what="Airflow has read the DAG file")
        yield api


def test_from_a_red_run_to_its_publication_and_back(place: Place, running: Browser, airflow: AirflowApi) -> None:
    login = place.login
    engineer = Person.arrives(running, login.url, _pictures())
    engineer.log_in(login.user, login.password)
    _ask_for_a_backfill(engineer)
    run_id = _wait_for_run(airflow, "failed")
    _find_the_held_days(engineer)
    _look_at_the_slice(engineer)
    _open_the_tab_of_the_run(engineer, run_id)
    request = login.url + links.in_airflow(_request_path(place))
    _a_viewer_cannot_decide(place, running, request)
    colleague = Person.arrives(running, login.url)
    colleague.log_in(login.user, login.password)
    colleague.page.goto(request)
    expect(colleague.pages.get_by_role("button", name="Waive and publish")).to_be_visible()
    engineer.page.goto(request)
    _decide(engineer)
    _wait_for_run(airflow, "success")
    _colleague_is_refused(colleague)
    assert _published(place) == {f"2013-02-{day:02d}" for day in range(1, 15)}
    name = "hindcast_flights"
    assets = airflow._ask("GET", f"/api/v2/assets?name_pattern={name}&limit=500")["assets"]
    (asset,) = [asset["id"] for asset in assets if asset["name"] == name]
    events = airflow._ask("GET", f"/api/v2/assets/events?asset_id={asset}&limit=500")["asset_events"]
    assert sorted(event["partition_key"] for event in events) == [f"2013-02-{day:02d}" for day in range(4, 15)]
    _nothing_is_held(engineer)
    _roll_back(engineer, place)
    asked = {urlsplit(url).netloc for url in engineer.requests if url.startswith("http")}
    assert asked == {urlsplit(login.url).netloc}, "the browser asked another host"


def test_a_newcomer_decides_a_held_day_with_what_the_pages_show(
    place: Place, running: Browser, airflow: AirflowApi
) -> None:
    """As after `make demo`: only the address of Airflow is typed. Four clicks lead from the Home page back to it."""
    first, held, end = FIRST, BLIZZARD[0], BLIZZARD[1]
    place.hindcast("run", "carriers", "--from", first, "--to", end, "--reason", "the first days", status=1)
    airflow.unpause("decide_carriers")
    newcomer = Person.arrives(running, place.login.url, _pictures())
    newcomer.log_in(place.login.user, place.login.password)
    page, pages = newcomer.page, newcomer.pages
    newcomer.click(page.get_by_test_id("hindcast-held").get_by_role("link", name="carriers: 1 slice held"))
    expect(pages.locator("body")).to_contain_text("30.8 %")
    expect(pages.get_by_label(f"Waive {held}")).to_be_checked()
    pages.get_by_label(f"Reason for {held}").fill(REASON)
    page.set_viewport_size({"width": 390, "height": 844})
    newcomer.picture("request_phone", of=pages.get_by_role("button", name="Waive and publish"))
    page.set_viewport_size({"width": 1280, "height": 860})
    newcomer.click(pages.get_by_role("button", name="Waive and publish"))
    expect(pages.locator("h1")).to_contain_text("The decision is made")
    newcomer.click(pages.get_by_role("link", name="Pipeline carriers"))
    expect(pages.locator("body")).to_contain_text(f"Readers see 8 slices: {first} to {held}")
    newcomer.click(page.get_by_role("link", name="Home").first)
    page.get_by_text("Failed Dags").wait_for()
    expect(page.get_by_text("carriers: 1 slice held")).to_have_count(0)
    assert newcomer.clicks == 4


def test_without_a_login_every_address_is_refused(place: Place) -> None:
    slice_id = BLIZZARD[0]
    paths = [
        links.overview(), links.pipeline_page("flights"), links.slice_page("flights", slice_id),
        links.rows_page("flights", slice_id, "late_records"), links.record_page("flights"),
        links.compare_page("flights"), links.dag_page("backfill_flights"), f"{links.PREFIX}/held.json",
        f"{links.PREFIX}/static/shell.js",
    ]  # fmt: skip
    with httpx.Client(base_url=place.login.url, trust_env=False) as client:
        for path in paths:
            assert client.get(path).status_code == 401, path
            shown = client.get(path, headers={"accept": "text/html"})
            assert shown.status_code in {302, 303, 307}, path
            assert "login" in shown.headers["location"], path
        assert client.get(f"{links.PREFIX}/nothing").status_code in {401, 404}
        assert client.post(links.decisions_path("flights"), data={"action": "publish"}).status_code == 401


def _ask_for_a_backfill(engineer: Person) -> None:
    """Be refused by Airflow's form and by ours, where the eye is; then start the backfill from ours, by clicks."""
    page = engineer.page
    engineer.click(page.get_by_role("link", name="Dags").first)
    engineer.click(page.get_by_role("link", name="backfill_flights").first)
    page.get_by_text("Latest Dag Version").wait_for()
    engineer.click(page.get_by_role("button", name="Trigger").first)
    form = page.locator("[role=dialog][aria-modal=true]")
    form.locator("#element_from").wait_for()
    expect(form.locator("#element_from")).to_have_value(FIRST_DAY)  # the first gap
    expect(form.locator("#element_to")).to_have_value(END)
    engineer.picture("form")
    form.locator("#element_to").fill("2013-02-01")
    form.locator("#element_reason").fill("the first half of February")
    engineer.click(form.get_by_role("button", name="Trigger"))
    shown = page.locator("[data-scope=toast]", has_text="Right would be From 2013-02-01, To 2013-02-04").first
    expect(shown).to_be_in_viewport(ratio=1)
    engineer.picture("form_refused")
    _ask_in_our_form(engineer)


def _ask_in_our_form(engineer: Person) -> None:
    """Fill in the form of the review pages: wrong on a phone, then right."""
    page, pages = engineer.page, engineer.pages
    page.goto(engineer.url + links.in_airflow(links.pipeline_page("flights")))
    engineer.click(pages.get_by_role("link", name="Backfill…"))
    expect(pages.locator("#from")).to_have_value(FIRST_DAY)
    page.set_viewport_size({"width": 390, "height": 844})
    pages.locator("#to").fill("2013-02-01")
    engineer.click(pages.get_by_role("button", name="Show the plan"))
    expect(pages.locator("#refused")).to_contain_text("Right would be From 2013-02-01, To 2013-02-04")
    for place in ("#refused", "#to-problem", "#reason-problem"):
        pages.locator(place).scroll_into_view_if_needed()
        expect(pages.locator(place)).to_be_in_viewport(ratio=0.99)  # a scrolled place may begin within a pixel
    pages.locator("#reason").fill("the first half of February")
    pages.locator("#to").fill("2013-02-20")
    engineer.click(pages.get_by_role("button", name="Show the plan"))
    expect(pages.locator("#refused")).to_contain_text("no record after 2013-02-14")
    page.set_viewport_size({"width": 1280, "height": 860})
    expect(pages.locator("#refused")).to_be_in_viewport(ratio=1)
    pages.locator("#to").fill(END)
    pages.locator("#reason").fill("the first half of February")
    engineer.click(pages.get_by_role("button", name="Show the plan"))
    expect(pages.locator("body")).to_contain_text("11 of 11 slices to replay")
    unpause = pages.get_by_label(re.compile("it is paused in Airflow"))
    if unpause.count():
        unpause.check()
    engineer.picture("backfill")
    engineer.click(pages.get_by_role("button", name="Start the backfill"))
    expect(pages.locator("h1")).to_contain_text("[2013-02-04, 2013-02-15)")  # the page of the request


def _wait_for_run(airflow: AirflowApi, state: str) -> str:
    """Wait until the backfill's run is in a state, and return its id."""

    def is_there() -> bool:
        return any(run.state == state for run in airflow.dag_runs("backfill_flights"))

    wait_until(is_there, what=f"the run of backfill_flights is {state}", most_s=600)
    [run] = airflow.dag_runs("backfill_flights")
    return run.run_id


def _find_the_held_days(engineer: Person) -> None:
    """Log in again, see that two slices are held, and go to the reason. Two clicks are allowed."""
    engineer.page.goto(engineer.url)
    engineer.clicks = 0
    card = engineer.page.get_by_test_id("hindcast-held")
    expect(card).to_contain_text("flights: 2 slices held")
    engineer.picture("home")
    engineer.click(card.get_by_role("link"))
    expect(engineer.pages.locator("body")).to_contain_text("30.8 %")
    assert engineer.clicks <= 2
    assert "/plugin/hindcast/hindcast/pipelines/flights" in engineer.page.url, "the address can be sent to a colleague"
    engineer.click(engineer.pages.get_by_role("link", name="flights").first)
    expect(engineer.pages.locator("h1")).to_contain_text("flights")
    engineer.picture("pipeline")


def _a_viewer_cannot_decide(place: Place, running: Browser, request: str) -> None:
    """Log in as the viewer, who sees the request and no form."""
    viewer = Person.arrives(running, place.login.url)
    viewer.log_in(place.login.viewer, place.login.viewer_password)
    viewer.page.goto(request)
    expect(viewer.pages.locator("body")).to_contain_text("You may look at this, and not decide")
    assert viewer.pages.get_by_role("button", name="Waive and publish").count() == 0


def _nothing_is_held(engineer: Person) -> None:
    """See that the card tells no decision, and that the schedule waits for the day after the last one of the log."""
    engineer.page.goto(engineer.url)
    card = engineer.page.get_by_test_id("hindcast-held")
    expect(card).to_contain_text("flights: waits for 2013-02-15")
    expect(card).not_to_contain_text("held")


def _look_at_the_slice(engineer: Person) -> None:
    """Open the slice of the first bad day, its late records, and the explanation of one of them."""
    pages = engineer.pages
    engineer.click(pages.get_by_role("link", name=BLIZZARD[0]).first)
    expect(pages.locator("h1")).to_contain_text(BLIZZARD[0])
    expect(pages.locator("body")).to_contain_text("332")
    engineer.picture("slice")
    engineer.click(pages.get_by_role("link", name="late records").first)
    expect(pages.locator("table").first).to_contain_text("HNL")
    engineer.picture("late_records")
    engineer.page.go_back()


def _open_the_tab_of_the_run(engineer: Person, run_id: str) -> None:
    """Open the tab of a DAG run, which shows the request of the run."""
    engineer.page.goto(f"{engineer.url}/dags/backfill_flights/runs/{quote(run_id, safe='')}")
    engineer.click(engineer.page.get_by_role("link", name="Hindcast").last)
    expect(engineer.pages.locator("body")).to_contain_text("30.8 %")
    engineer.picture("dag_run")


def _decide(engineer: Person) -> None:
    """Waive both days, each with a reason, and publish."""
    pages = engineer.pages
    engineer.clicks = 0
    for day in BLIZZARD:
        pages.get_by_label(f"Reason for {day}").fill(f"{REASON}: {day}")
    engineer.picture("request", of=pages.get_by_role("button", name="Waive and publish"))
    expect(pages.locator("body")).to_contain_text(re.compile(r"only after\s*2,343"))
    engineer.click(pages.get_by_role("button", name="Waive and publish"))
    expect(pages.locator("h1")).not_to_contain_text("2013")
    expect(pages.locator("body")).to_contain_text(re.compile("11 slices published together"))
    engineer.picture("decision")
    assert engineer.clicks == 1


def _colleague_is_refused(colleague: Person) -> None:
    """Decide the same in a window that was opened before the decision."""
    pages = colleague.pages
    pages.get_by_label(re.compile("Reason for the chosen slices")).fill("me too")
    colleague.click(pages.get_by_role("button", name="Waive and publish"))
    expect(pages.locator("body")).to_contain_text("since you looked")
    expect(pages.locator("body")).to_contain_text("Your decision has changed nothing")


def _roll_back(engineer: Person, place: Place) -> None:
    """Take the publication back on the page of the pipeline."""
    engineer.page.goto(place.login.url + links.in_airflow(links.pipeline_page("flights")))
    pages = engineer.pages
    engineer.click(pages.get_by_text(re.compile("Roll publication .* back")))
    form = pages.locator("details[open] form.decide")
    form.locator("input[name=reason]").fill("published too early")
    engineer.click(form.get_by_role("button", name="Roll back"))
    wait_until(
        lambda: _published(place) == {"2013-02-01", "2013-02-02", "2013-02-03"}, what="the publication is rolled back"
    )


def _request_path(place: Place) -> str:
    """Return the path of the page of the request that is held."""
    status = place.hindcast("status", "flights", "--json")
    found = re.search(r'"request_id": ?"([0-9a-f-]{12,36})"', status)
    assert found, status
    return links.request_page("flights", found[1])


def _published(place: Place) -> set[str]:
    """Return the slices that readers see."""
    return set(re.findall(r'"slice_id": ?"([0-9-]+)"', place.hindcast("show", "flights", "--json")))


def _pictures() -> Path | None:
    asked = os.environ.get("HINDCAST_PICTURES")
    if not asked:
        return None
    path = Path(asked)
    path.mkdir(parents=True, exist_ok=True)
    return path
