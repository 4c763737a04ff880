"""The days of an owner of a table in a real Airflow, with a real browser, by clicks.

A day comes late; a published day changes; a backfill is cancelled and runs again; one request replaces another; late
records are put into their windows.
`make test-ui` runs it.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from playwright.sync_api import Browser, Locator, expect

from jobs.ledger.leases import Lease
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView, RequestKind
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.review import links
from tests.ui.airflow_for_tests import Place, running_airflow
from tests.ui.person import PATIENCE_S, Person, browser, wait_until
from tests.ui.shop import Shop, days_ago

pytestmark = pytest.mark.ui
expect.set_options(timeout=PATIENCE_S * 1000)

FIRST, CHANGED, BAD, LATE = (days_ago(days) for days in (4, 3, 2, 1))
"""The log begins with FIRST. Records are added to CHANGED. Many orders of BAD have no customer."""
TODAY = days_ago(0)
FREE_WITHIN_S = 60


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The shop with the days up to BAD."""
    made = Shop(root=tmp_path_factory.mktemp("shop"))
    made.open()
    for day in (FIRST, CHANGED, BAD):
        made.append(day, 24, nameless=6 if day == BAD else 0)
    return made


@pytest.fixture(scope="module")
def place(shop: Shop) -> Iterator[Place]:
    with running_airflow(shop.root, pipelines=shop.pipelines) as found:
        yield found


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def airflow(place: Place) -> Iterator[AirflowApi]:
    login = place.login
    with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
        wanted = {
            f"{kind}_{name}" for kind in ("backfill", "decide") for name in ("orders", "plain", "checked", "repaired")
        }
        wait_until(lambda: all(map(api.has_dag, wanted)), what="Airflow has read the DAG file")
        yield api


@pytest.fixture
def owner(place: Place, running: Browser, airflow: AirflowApi) -> Person:
    """The owner of the tables, who has logged in."""
    assert airflow.url == place.login.url
    person = Person.arrives(running, place.login.url)
    person.log_in(place.login.user, place.login.password)
    return person


def test_a_late_day_is_waited_for_and_then_published(shop: Shop, owner: Person, airflow: AirflowApi) -> None:
    """The schedule publishes the days that are there, waits for yesterday, and publishes it when it has come."""
    _switch(owner, "replay_orders")
    wait_until(lambda: list(shop.published("orders")) == [FIRST, CHANGED, BAD], what="the three days are published")
    waits = f"waits for {LATE} since {TODAY} 00:00:00 UTC"
    lacks = f"slice {LATE} is complete with 10 records (ready.min_records), and has 0; no timeout"
    _see_pipeline(owner, "orders")
    expect(owner.pages.locator("body")).to_contain_text(f"The schedule {waits}: {lacks}")
    expect(owner.pages.locator("a.c-awaited")).to_have_attribute("title", re.compile(f"^{LATE}: waits"))
    expect(_card(owner)).to_contain_text(f"orders: waits for {LATE}")
    run_id = _waiting_run(airflow)
    _see_run(owner, "replay_orders", run_id)
    expect(owner.page.get_by_text("Deferred").first).to_be_visible()
    owner.click(owner.page.get_by_role("link", name="Hindcast").last)
    expect(owner.pages.locator("body")).to_contain_text(waits, ignore_case=True)
    shop.append(LATE, 24)
    wait_until(lambda: LATE in shop.published("orders"), what="yesterday is published")
    _see_pipeline(owner, "orders")
    expect(owner.pages.locator(f"a[title^='{LATE}: passed, published; 24 read']").first).to_be_visible()
    expect(owner.pages.locator("body")).not_to_contain_text(f"waits for {LATE}")
    expect(owner.pages.locator("body")).to_contain_text(f"Readers see 4 slices: {FIRST} to {LATE}")
    owner.page.goto(owner.url)
    owner.page.get_by_text("Failed Dags").wait_for()
    expect(owner.page.get_by_text(f"waits for {LATE}")).to_have_count(0)


def test_a_changed_day_is_proposed_compared_and_published(shop: Shop, owner: Person, airflow: AirflowApi) -> None:
    """Six records come to a published day. The next scheduled run proposes to restate it; a person does so."""
    before = shop.published("orders")
    shop.append(CHANGED, 6, first=24)
    view = shop.request_context("orders").ledger
    wait_until(lambda: any(one.is_proposed for one in view.view().open_requests()), what="the restatement is proposed")
    _switch(owner, "replay_orders")  # no further run, so that this test reads a still page
    card = _card(owner)
    expect(card).to_contain_text(f"1 published day changed: {CHANGED}, 24 records then, 30 now")
    owner.click(card.get_by_role("link", name="orders: 1 slice changed"))
    pages = owner.pages
    expect(pages.locator("h1")).to_contain_text(f"[{CHANGED}, {TODAY})")
    expect(pages.locator("body")).to_contain_text("Open: is proposed: replay it, or decline it")
    expect(pages.locator("body")).to_contain_text("input changed (24 records then, 30 now")
    owner.click(pages.get_by_role("button", name="Replay"))
    pages.get_by_label("Let backfill_orders run: unpause it in Airflow").check()
    pages.get_by_role("button", name="Replay").dblclick()
    wait_until(lambda: _states(airflow, "orders") == ["success"], what="the one run of a double click has ended")
    expect(pages.get_by_role("button", name="Publish")).to_be_enabled()
    assert shop.published("orders") == before
    owner.picture("restatement")
    expect(pages.get_by_role("heading", name="Differences")).to_be_visible()
    expect(pages.locator(".before", has_text="8").first).to_be_visible()
    pages.get_by_role("button", name="Publish").dblclick()
    expect(pages.locator("h1")).to_contain_text("The decision is made")
    assert [run.state for run in airflow.dag_runs("decide_orders")] == ["success"]
    after = shop.published("orders")
    assert {one for one in after if before[one] != after[one]} >= {CHANGED}
    owner.click(pages.get_by_role("link", name="Pipeline orders"))
    expect(pages.locator("h2", has_text="Nothing waits for a decision")).to_be_visible()
    owner.click(pages.get_by_role("link", name="Compare"))
    expect(pages.locator("body")).to_contain_text(CHANGED)


def test_a_backfill_is_cancelled_and_runs_again(shop: Shop, owner: Person, airflow: AirflowApi) -> None:
    """A replay that runs is marked as failed in Airflow. Its range is free at once, and the same backfill publishes."""
    pages = owner.pages
    ledger = shop.request_context("plain").ledger
    _ask(owner, "plain", FIRST, BAD, reason="the first days")
    owner.click(pages.get_by_role("button", name="Start the backfill"))
    with _halted_driver(ledger):
        expect(pages.locator("body")).to_contain_text("Open: is being worked on by")
        [run] = airflow.dag_runs("backfill_plain")
        owner.click(pages.get_by_role("link", name=f"backfill_plain {run.run_id}"))
        owner.click(owner.page.get_by_test_id("mark-run-as-button"))
        owner.click(owner.page.get_by_test_id("mark-run-as-failed"))
        owner.click(owner.page.get_by_test_id("mark-run-as-confirm"))
        cancelled = time.monotonic()
        stopped = "cancelled by admin (marked failed)"
        wait_until(lambda: not _leases(ledger.view()), what="the request is free", most_s=FREE_WITHIN_S)
        assert time.monotonic() - cancelled < FREE_WITHIN_S
        told = f"{stopped}: 0 of 2 slices staged, nothing published"
        wait_until(lambda: _is_told_after_a_reload(owner, told), what="the note of the run tells it")
        owner.click(owner.page.get_by_role("link", name="Hindcast").last)
        expect(pages.locator("#state-title")).to_contain_text(f"Open: stopped: {stopped}")
    _ask(owner, "plain", FIRST, BAD, reason="the first days, again")
    owner.click(pages.get_by_role("button", name="Start the backfill"))
    wait_until(lambda: list(shop.published("plain")) == [FIRST, CHANGED], what="the second backfill is published")
    wait_until(lambda: _states(airflow, "plain") == ["success", "success"], what="both runs are green")


def test_a_request_replaces_another(shop: Shop, owner: Person, airflow: AirflowApi) -> None:
    """A held range is asked again: the form shows what is open; the old request is closed, and both runs turn green."""
    _ask(owner, "checked", FIRST, LATE, reason="the first days")
    pages = owner.pages
    owner.click(pages.get_by_role("button", name="Start the backfill"))
    wait_until(lambda: _states(airflow, "checked") == ["failed"], what="the first run is red")
    expect(pages.locator("#state-title")).to_contain_text("Open: waits for a decision on 1 held slice")
    old = owner.page.url
    _ask(owner, "checked", FIRST, LATE, reason="the first days, again", is_open=True)
    refused = pages.locator("#refused")
    expect(refused).to_be_in_viewport(ratio=0.99)
    expect(refused).to_contain_text("is open for")
    expect(refused.get_by_role("link", name=re.compile("Decide request"))).to_be_visible()
    options = pages.locator("#if_open option")
    expect(options).to_have_count(3)
    pages.locator("#if_open").select_option("replace")
    owner.click(pages.get_by_role("button", name="Show the plan"))
    expect(pages.locator(".note").first).to_contain_text("Replaces request")
    owner.click(pages.get_by_role("button", name="Start the backfill"))
    wait_until(lambda: _states(airflow, "checked") == ["failed", "failed"], what="both runs are red")
    expect(pages.locator("#state-title")).to_contain_text("Open: waits for a decision on 1 held slice")
    new = owner.page.url
    assert new != old
    owner.page.goto(old)
    expect(pages.locator("body")).to_contain_text(re.compile("replaced by request [0-9a-f]{8}"))
    expect(pages.get_by_role("button", name="Waive and publish")).to_have_count(0)
    owner.page.goto(new)
    pages.get_by_label(f"Reason for {BAD}").fill("the register was broken")
    owner.click(pages.get_by_role("button", name="Waive and publish"))
    expect(pages.locator("h1")).to_contain_text("The decision is made")
    wait_until(lambda: _states(airflow, "checked") == ["success", "success"], what="both runs are green")
    assert list(shop.published("checked")) == [FIRST, CHANGED, BAD]


def test_late_records_are_put_into_their_windows(shop: Shop, owner: Person, airflow: AirflowApi) -> None:
    """Two orders of FIRST arrive days later. The schedule proposes their repair; a person replays and publishes it."""
    shop.append(LATE, 2, first=30, ordered=FIRST)
    _switch(owner, "replay_repaired")
    ledger = shop.request_context("repaired").ledger
    wait_until(lambda: bool(ledger.view().open_requests(RequestKind.REPAIR)), what="the repair is proposed")
    before = shop.published("repaired")
    _switch(owner, "replay_repaired")  # no further run, so that this test reads a still page
    assert LATE in before
    card = _card(owner)
    expect(card).to_contain_text("2 late records of 1 slice")
    owner.click(card.get_by_role("link", name="repaired: late repair proposed"))
    pages = owner.pages
    expect(pages.locator("h1")).to_contain_text(f"[{LATE}, {TODAY})")
    expect(pages.locator("body")).to_contain_text("Open: is proposed: replay it, or decline it")
    owner.click(pages.get_by_role("button", name="Replay"))
    pages.get_by_label("Let backfill_repaired run: unpause it in Airflow").check()
    pages.get_by_role("button", name="Replay").dblclick()
    wait_until(lambda: _states(airflow, "repaired") == ["success"], what="the run of the repair has ended")
    expect(pages.get_by_role("button", name="Publish")).to_be_enabled()
    assert shop.published("repaired") == before
    expect(pages.get_by_role("heading", name="Differences")).to_be_visible()
    owner.picture("repair")
    pages.get_by_role("button", name="Publish").dblclick()
    expect(pages.locator("h1")).to_contain_text("The decision is made")
    after = shop.published("repaired")
    assert {day for day in after if before[day] != after[day]} == {LATE}
    owner.click(pages.get_by_role("link", name="Pipeline repaired"))
    expect(pages.locator("h2", has_text="Nothing waits for a decision")).to_be_visible()


def _is_told_after_a_reload(owner: Person, text: str) -> bool:
    """Return whether the page of a DAG run has a text. Airflow's page does not look again at a run that has ended."""
    owner.page.reload()
    owner.page.get_by_test_id("mark-run-as-button").wait_for()
    owner.page.wait_for_timeout(1_000)
    return owner.page.get_by_text(text).count() > 0


def _switch(owner: Person, dag_id: str) -> None:
    """Unpause a DAG, or pause it, with its switch."""
    owner.page.goto(f"{owner.url}/dags/{dag_id}")
    owner.click(owner.page.get_by_test_id("toggle-pause").first)
    owner.page.wait_for_timeout(1000)  # the switch sends its request


def _see_pipeline(owner: Person, name: str) -> None:
    owner.page.goto(owner.url + links.in_airflow(links.pipeline_page(name)))
    expect(owner.pages.locator("h1")).to_contain_text(name)


def _see_run(owner: Person, dag_id: str, run_id: str) -> None:
    owner.page.goto(f"{owner.url}/dags/{dag_id}/runs/{run_id.replace('+', '%2B')}")


def _card(owner: Person) -> Locator:
    """Go to the Home page and return the card of Hindcast."""
    owner.page.goto(owner.url)
    return owner.page.get_by_test_id("hindcast-held")


def _waiting_run(airflow: AirflowApi) -> str:
    """Return the run of `replay_orders` whose plan task is deferred."""

    def waiting() -> list[str]:
        runs = [run.run_id for run in airflow.dag_runs("replay_orders") if run.state == "running"]
        return [one for one in runs if any(task.state == "deferred" for task in airflow.tasks("replay_orders", one))]

    wait_until(lambda: bool(waiting()), what="a run of replay_orders waits")
    return waiting()[-1]


def _ask(owner: Person, name: str, start: str, end: str, *, reason: str, is_open: bool = False) -> None:
    """Fill in the form of a backfill, which shows its plan, or why it is refused (`is_open`)."""
    pages = owner.pages
    _see_pipeline(owner, name)
    owner.click(pages.get_by_role("link", name="Backfill…"))
    pages.locator("#from").fill(start)
    pages.locator("#to").fill(end)
    pages.locator("#reason").fill(reason)
    owner.click(pages.get_by_role("button", name="Show the plan"))
    if is_open:
        return
    expect(pages.get_by_role("button", name="Start the backfill")).to_be_visible()
    unpause = pages.get_by_label(re.compile("it is paused in Airflow"))
    if unpause.count():
        unpause.check()


def _states(airflow: AirflowApi, name: str) -> list[str]:
    """Return the states of the runs by hand of a pipeline."""
    return [run.state for run in airflow.dag_runs(f"backfill_{name}")]


@contextmanager
def _halted_driver(ledger: Ledger) -> Iterator[None]:
    """Wait for the driver of a replay, and halt it during the body of a `with` statement, as if its storage hung."""
    deadline, pids = time.monotonic() + 600, list[int]()
    while not pids:
        assert time.monotonic() < deadline, "no driver works"
        time.sleep(0.02)
        pids = [one.holder.pid for one in _leases(ledger.view()) if one.holder is not None]
    os.kill(pids[0], signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)


def _leases(view: LedgerView) -> list[Lease]:
    """Return the leases of all open requests."""
    return [lease for request in view.open_requests() for lease in request.leases]
