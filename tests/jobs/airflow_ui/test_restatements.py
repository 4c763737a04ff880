"""Changed slices on the pages: the card, the overview, the page of the proposal, its button, and declining it."""

import re

import pytest

from jobs.engine import fingerprints
from jobs.ledger.view import Request, RequestKind
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.restate import RestateGrammar
from jobs.planning.request_context import Asked, requested_event
from jobs.planning.restating import propose
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.review import links
from tests.jobs.airflow_ui.conftest import Clients, Place
from tests.jobs.airflow_ui.fake_airflow import RUN, FakeAirflow
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms

pytestmark = pytest.mark.dags


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    from jobs.airflow_ui.decide import routes

    fake = FakeAirflow()
    monkeypatch.setattr(routes, "UsersAirflow", fake)
    return fake


@pytest.fixture
def proposal(place: Place) -> Request:
    """Two published days, of which the first has another record now."""
    (place.pipelines / "sales.yaml").write_text(f"{PIPELINE}restate: {{at_most_age: 9999d}}\n", encoding="utf-8")
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines", reason="a test")
    run_request(place.work, asked, FakeReplayer())
    append_day(place.lake, "2024-01-01", {"late": 1})
    found = propose(place.work, rule=RestateGrammar(), who="schedule").proposal
    assert found is not None
    return found


TOLD = "1 published day changed: 2024-01-01, 2 records then, 3 now"


def test_the_card_and_the_overview_tell_the_change_and_lead_to_the_proposal(
    clients: Clients, proposal: Request
) -> None:
    client = clients("viewer")
    (card,) = client.get(f"{links.PREFIX}/held.json").json()["held"]
    path = links.request_page("sales", proposal.request_id)
    assert (card["badge"], card["title"], card["path"]) == ("changed", "sales: 1 slice changed", path)
    assert card["why"] == f"{TOLD}. 2024-01-01: proposed as request {proposal.request_id[:8]}"
    for page in (links.overview(), links.pipeline_page("sales")):
        html = client.get(page).text
        assert TOLD in html
        assert path in html


def test_the_card_tells_how_many_of_the_changed_slices_wait(clients: Clients, proposal: Request, place: Place) -> None:
    """A person has declined one of two, and the sentence on the card counts both."""
    cancel(place.work, proposal.request_id, reason="a test sale", by=By(who="ines", decision_id="1"))
    append_day(place.lake, "2024-01-02", {"late": 1})
    (card,) = clients("viewer").get(f"{links.PREFIX}/held.json").json()["held"]
    assert card["title"] == "sales: 1 of 2 changed slices to decide"
    assert card["why"].startswith("2 published days changed: 2024-01-01 … 2024-01-02")


def test_the_page_of_a_proposal_tells_that_its_reason_is_of_the_time_when_it_was_opened(
    clients: Clients, proposal: Request, place: Place
) -> None:
    append_day(place.lake, "2024-01-02", {"late": 1})
    html = clients("viewer").get(links.request_page("sales", proposal.request_id)).text
    assert f"When it was opened: {TOLD}" in html
    assert "2 of 2 slices to replay" in html


def test_the_page_of_the_proposal_shows_its_plan_and_a_click_replays_it_as_the_user(
    clients: Clients, proposal: Request, airflow: FakeAirflow
) -> None:
    client = clients("admin")
    html = client.get(links.request_page("sales", proposal.request_id)).text
    assert "Open: is proposed: replay it, or decline it" in html
    assert "1 of 2 slices to replay for certain, and at most 1 more: 3 to 5 records" in html
    assert "input changed (2 records then, 3 now" in html
    assert "perhaps: state before changed" in html
    assert ">Publish<" not in html
    [action] = re.findall(r'action="([^"]*/replay)"', html)
    assert action == links.replay_path("sales", proposal.request_id)
    answer = client.post(action, data={})
    assert (answer.status_code, answer.headers["location"]) == (303, links.backfill_page("sales", RUN))
    conf = {"from": "2024-01-01", "to": "2024-01-03", "reason": TOLD, "publish": False, "request": proposal.request_id}
    assert (airflow.calls, airflow.conf) == ([("trigger", "backfill_sales")], conf)


def test_a_proposal_that_cannot_be_replayed_has_no_button_and_tells_why(
    clients: Clients, proposal: Request, airflow: FakeAirflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the button started a DAG run that was refused."""
    monkeypatch.setattr(fingerprints, "SEMANTICS_VERSION", fingerprints.SEMANTICS_VERSION + 1)
    client = clients("admin")
    html = client.get(links.request_page("sales", proposal.request_id)).text
    why = "cannot be replayed, because a function or Hindcast itself has changed since it was opened"
    assert f"Not possible: the request {why}. Decline it." in html
    assert "<button disabled>Replay</button>" in html
    answer = client.post(links.replay_path("sales", proposal.request_id), data={})
    assert answer.status_code == 409
    assert f"The request {why}. Decline it." in answer.text
    assert not airflow.calls


def test_a_paused_backfill_is_told_and_unpaused_by_the_box(
    clients: Clients, proposal: Request, airflow: FakeAirflow
) -> None:
    airflow.paused.add("backfill_sales")
    client, path = clients("admin"), links.replay_path("sales", proposal.request_id)
    answer = client.post(path, data={})
    assert answer.status_code == 409
    assert "backfill_sales is paused in Airflow" in answer.text
    assert 'name="unpause"' in answer.text
    assert not airflow.calls
    assert client.post(path, data={"unpause": "on"}).status_code == 303
    assert not airflow.paused


def test_what_airflow_does_not_let_the_user_start_is_not_started(
    clients: Clients, proposal: Request, airflow: FakeAirflow
) -> None:
    path = links.replay_path("sales", proposal.request_id)
    assert clients("viewer").get(links.request_page("sales", proposal.request_id)).text.count("<form") == 0
    airflow.refuses["trigger"] = 403
    assert clients("viewer").post(path, data={}).status_code == 403
    airflow.refuses["trigger"] = 409
    answer = clients("admin").post(path, data={})
    assert answer.status_code == 409
    assert "Airflow refused to start backfill_sales: no &lt;b&gt;" in answer.text
    assert clients("admin").post(links.replay_path("sales", "0" * 32), data={}).status_code == 409


def test_a_proposal_is_declined_by_the_form_of_a_decision(
    clients: Clients, proposal: Request, place: Place, airflow: FakeAirflow
) -> None:
    client = clients("admin")
    html = client.get(links.request_page("sales", proposal.request_id)).text
    assert "Decline the proposal" in html
    data = {"action": "cancel", "request_id": proposal.request_id, "reason": "a test sale"}
    answer = client.post(
        links.decisions_path("sales"), data=data | {"ledger_version": place.work.ledger.view().version}
    )
    assert answer.status_code == 303, answer.text
    assert airflow.calls == [("trigger", "decide_sales")]


@pytest.mark.slow
def test_a_double_click_replays_once(clients: Clients, proposal: Request, airflow: FakeAirflow) -> None:
    client, path = clients("admin"), links.replay_path("sales", proposal.request_id)
    html = client.get(links.request_page("sales", proposal.request_id)).text
    [form] = [one for one in re.findall(r"<form.*?</form>", html, re.DOTALL) if path in one]
    [mark] = re.findall(r'name="mark" value="([0-9a-f]{16})"', form)
    assert client.post(path, data={"mark": mark}).status_code == 303
    airflow.under_way.add(f"manual__{mark}")
    answer = client.post(path, data={"mark": mark})
    assert (answer.status_code, answer.headers["location"]) == (303, links.backfill_page("sales", f"manual__{mark}"))
    assert len(airflow.calls) == 1


def test_the_card_and_the_overview_tell_a_proposed_repair_and_lead_to_it(clients: Clients, place: Place) -> None:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ines", reason="a test")
    run_request(place.work, asked, FakeReplayer())
    repair = Asked(
        from_ms=day_ms("2024-01-01"),
        to_ms=day_ms("2024-01-02"),
        who="schedule",
        reason="late repair: 2 late records of 1 slice",
        kind=RequestKind.REPAIR,
    )
    event = requested_event(place.work, repair, request_id=(request_id := "a" * 32))
    place.work.ledger.write(lambda _view: [event])
    client = clients("viewer")
    (card,) = client.get(f"{links.PREFIX}/held.json").json()["held"]
    path = links.request_page("sales", request_id)
    assert (card["badge"], card["title"], card["path"]) == ("late", "sales: late repair proposed", path)
    assert card["why"] == "late repair: 2 late records of 1 slice"
    assert "late repair proposed" in client.get(links.overview()).text
    assert "late repair proposed" in client.get(links.pipeline_page("sales")).text
