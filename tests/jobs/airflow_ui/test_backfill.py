"""The form of a backfill in the review pages: the plan before the start, refusals next to their fields, the start."""

import re
from html import unescape
from typing import Any

import pytest

from jobs.ledger.provenance import DagRunOrigin
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request
from jobs.publishing.decisions import resume, rollback
from jobs.review import links
from tests.jobs.airflow_ui.conftest import Clients, Place
from tests.jobs.airflow_ui.fake_airflow import RUN, FakeAirflow
from tests.support.fake_replay import FakeReplayer, append_day, day_ms

pytestmark = pytest.mark.dags

PATH = "/hindcast/pipelines/sales/backfill"
GOOD = {
    "from": "2024-01-01", "to": "2024-01-05", "reason": "late files", "if_open": "refuse", "publish": "on",
    "step": "plan",
}  # fmt: skip


@pytest.fixture
def airflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    assert place.lake.is_dir()
    from jobs.airflow_ui import backfill

    fake = FakeAirflow()
    monkeypatch.setattr(backfill, "UsersAirflow", fake)
    return fake


def fields_of(html: str, button: str) -> dict[str, Any]:
    """Return what a browser sends if a person presses a button of the form."""
    [form] = re.findall(r"<form.*?</form>", html, re.DOTALL)
    assert f'value="{button}"' in form, "the form has the button"
    fields: dict[str, Any] = {"step": button}
    for tag in re.findall(r"<input[^>]*>", form):
        attributes = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if attributes.get("type") == "checkbox" and not re.search(r"\schecked", tag):
            continue
        name, value = attributes["name"], attributes.get("value", "on")
        fields[name] = [*fields.get(name, []), value] if name == "replaces" else value
    [chosen] = re.findall(r'<option value="(\w+)" selected', form) or ["refuse"]
    return fields | {"if_open": chosen}


def problem_of(html: str, field: str) -> str:
    """Return the text next to a field, which the field names as its description."""
    found = re.search(rf'<span class="problem field" id="{field}-problem">(.*?)</span>', html, re.DOTALL)
    assert found is not None, html
    assert re.search(rf'id="{field}"[^>]*aria-describedby="{field}-note {field}-problem"', html)
    return unescape(re.sub("<.*?>", "", found[1]))


def held(place: Place) -> str:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-05"), who="ann", reason="<b>first</b>")
    return run_request(place.work, asked, FakeReplayer()).request_id


def test_a_person_sees_the_plan_and_starts_it_as_it_was_shown(
    clients: Clients, place: Place, airflow: FakeAirflow
) -> None:
    client = clients("admin")
    assert PATH in client.get("/hindcast/pipelines/sales").text
    empty = fields_of(client.get(PATH).text, "plan")
    assert (empty["from"], empty["to"], empty["publish"]) == ("2024-01-01", "2024-01-05", "on")
    shown = client.post(PATH, data=empty | {"reason": "late files"})
    assert shown.status_code == 200
    assert "4 of 4 slices to replay: 8 records." in shown.text
    assert "2024-01-01 … 2024-01-04 (4 slices)" in shown.text
    assert "missing (no run yet)" in shown.text
    assert airflow.calls == [], "the plan starts nothing"
    started = client.post(PATH, data=fields_of(shown.text, "start"))
    assert started.status_code == 303, started.text
    conf = {"from": "2024-01-01", "to": "2024-01-05", "reason": "late files", "if_open": "refuse"}
    assert airflow.calls == [("trigger", "backfill_sales")]
    version = place.work.ledger.view().version
    assert airflow.conf == conf | {"publish": True, "fresh": False, "replaces": [], "ledger_version": version}
    assert started.headers["location"].startswith(f"{PATH}/manual__")


def test_other_fields_than_those_of_the_plan_start_nothing(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    fields = fields_of(client.post(PATH, data=GOOD).text, "start") | {"to": "2024-01-03"}
    again = client.post(PATH, data=fields)
    assert again.status_code == 200
    assert "2 of 2 slices to replay" in again.text
    assert airflow.calls == []
    assert client.post(PATH, data=GOOD | {"step": "start"}).status_code == 200
    assert airflow.calls == [], "without a plan, the first step shows it"


def test_a_plan_from_before_a_rollback_starts_nothing(clients: Clients, place: Place, airflow: FakeAirflow) -> None:
    client, range_ = clients("admin"), {"from": "2024-01-01", "to": "2024-01-03"}
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="ann", reason="first")
    run_request(place.work, asked, FakeReplayer())
    append_day(place.lake, "2024-01-02", {"late": 5})
    stale = fields_of(client.post(PATH, data=GOOD | range_).text, "start")
    rollback(place.work, place.work.ledger.view().publications[-1].seq, reason="wrong rates", who="bob")
    again = client.post(PATH, data=stale)
    assert again.status_code == 200
    assert "bob rolled back" in again.text
    assert "which ends the hold of the chain" in again.text
    assert airflow.calls == []
    assert client.post(PATH, data=fields_of(again.text, "start")).status_code == 303


@pytest.mark.parametrize(
    ("wrong", "field", "complaint"),
    [
        ({"to": "2023-12-01"}, "to", "To 2023-12-01 is before From 2024-01-01. Right would be"),
        ({"reason": " "}, "reason", "Reason is empty"),
        ({"from": "<b>"}, "from", "From: '<b>' is not a date or time"),
        ({"from": "2024-01-02"}, "from", "Right would be From 2024-01-01, To 2024-01-05. Or set Fresh"),
        ({"to": "2024-01-20"}, "to", "no record after 2024-01-04, so 2024-01-05 to 2024-01-19 have not arrived. Right "
         "would be From 2024-01-01, To 2024-01-05."),
        ({"if_open": "never"}, "if_open", "Allowed are refuse, replace, wait"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_next_to_its_field_and_above_the_form(
    clients: Clients, airflow: FakeAirflow, wrong: dict[str, str], field: str, complaint: str
) -> None:
    answer = clients("admin").post(PATH, data=GOOD | wrong)
    assert answer.status_code == 422
    assert complaint in problem_of(answer.text, field)
    assert "<b>'" not in answer.text
    assert answer.text.index('id="refused"') < answer.text.index("<form")
    assert fields_of(answer.text, "plan")["reason"] == (GOOD | wrong)["reason"], "what was entered is kept"
    assert 'value="start"' not in answer.text
    assert airflow.calls == []


def test_a_range_of_an_open_request_offers_to_decide_to_replace_and_to_wait(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    first, client = held(place), clients("admin")
    refused = client.post(PATH, data=GOOD | {"to": "2024-01-04"})
    assert refused.status_code == 409
    problem = problem_of(refused.text, "if_open")
    assert f"request {first[:12]} of ann (<b>first</b>) is open" in problem
    assert "set If open to `replace`" in problem
    assert links.request_page("sales", first) in refused.text
    assert "<b>first" not in refused.text
    waits = client.post(PATH, data=GOOD | {"to": "2024-01-04", "if_open": "wait"})
    assert "The plan is made when the open requests have ended" in waits.text
    shown = client.post(PATH, data=GOOD | {"to": "2024-01-04", "if_open": "replace"})
    assert "Replaces request" in shown.text
    assert client.post(PATH, data=fields_of(shown.text, "start")).status_code == 303
    assert airflow.conf["replaces"] == [first]


def test_a_request_that_was_opened_after_the_plan_was_shown_is_not_replaced(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    client = clients("admin")
    shown = client.post(PATH, data=GOOD | {"if_open": "replace"})
    held(place)
    refused = client.post(PATH, data=fields_of(shown.text, "start"))
    assert refused.status_code == 409
    assert "was opened after you looked" in problem_of(refused.text, "if_open")
    assert airflow.calls == []


def test_a_corrected_log_is_replayed_without_a_question(clients: Clients, airflow: FakeAirflow, place: Place) -> None:
    held(place)
    client = clients("admin")
    assert client.post(PATH, data=GOOD).status_code == 409, "the log has not changed: it would be held again"
    append_day(place.lake, "2024-01-03", {"correction": -1_000})
    shown = client.post(PATH, data=GOOD)
    assert shown.status_code == 200, shown.text
    assert "input changed" in shown.text
    assert client.post(PATH, data=fields_of(shown.text, "start")).status_code == 303
    assert len(airflow.calls) == 1


def test_the_plan_names_published_slices_that_depend_on_the_range(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    append_day(place.lake, "2024-01-03", {"correction": -1_000})
    held(place)
    append_day(place.lake, "2024-01-01", {"late": 1})
    shown = clients("admin").post(PATH, data=GOOD | {"to": "2024-01-02"}).text
    assert "Readers see 2024-01-02 … 2024-01-04 (3 slices), computed from the state after this range" in shown
    assert "To would be 2024-01-05" in shown
    assert airflow.calls == []


def test_the_plan_tells_that_slices_were_rolled_back_and_are_published_again(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    append_day(place.lake, "2024-01-03", {"correction": -1_000})
    held(place)
    publication = place.work.ledger.view().publications[-1].seq
    rollback(place.work, publication, reason="too early", who="bob")
    client = clients("admin")
    shown = client.post(PATH, data=GOOD).text
    assert "Nothing is replayed: the range has 4 slices with a current run." in shown
    assert (
        "Readers do not see the current runs of 2024-01-01 … 2024-01-04 (4 slices): bob rolled back publication "
        f"{publication} (too early). The backfill does not replay them. If every check passes, it publishes them, "
        "which ends the hold of the chain."
    ) in shown
    assert "They stay staged." in client.post(PATH, data={**GOOD, "publish": ""}).text
    resume(place.work, reason="no more", who="bob")
    shown = client.post(PATH, data=GOOD | {"to": "2024-01-02"}).text
    assert f"the current runs of 2024-01-01: bob rolled back publication {publication}. The backfill" in shown
    assert "it publishes them.</p>" in shown
    run_request(
        place.work, Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-05"), who="i", reason="a"), FakeReplayer()
    )
    assert "Readers do not see" not in client.post(PATH, data=GOOD).text
    assert airflow.calls == []


def test_a_paused_dag_is_started_only_if_the_person_lets_it_run(clients: Clients, airflow: FakeAirflow) -> None:
    airflow.paused.add("backfill_sales")
    client = clients("admin")
    fields = fields_of(client.post(PATH, data=GOOD).text, "start")
    assert "unpause" not in fields
    assert client.post(PATH, data=fields).status_code == 200
    assert airflow.calls == []
    assert client.post(PATH, data=fields | {"unpause": "on"}).status_code == 303
    assert airflow.calls == [("unpause", "backfill_sales"), ("trigger", "backfill_sales")]


@pytest.mark.parametrize(("status", "shown"), [(403, 403), (409, 409), (500, 409)])
def test_a_refusal_of_airflow_is_shown(clients: Clients, airflow: FakeAirflow, status: int, shown: int) -> None:
    airflow.refuses["trigger"] = status
    client = clients("admin")
    answer = client.post(PATH, data=fields_of(client.post(PATH, data=GOOD).text, "start"))
    assert answer.status_code == shown
    assert "no &lt;b&gt;" in answer.text


def test_a_viewer_has_no_form_and_another_site_cannot_send_one(clients: Clients, airflow: FakeAirflow) -> None:
    viewer, admin = clients("viewer"), clients("admin")
    assert PATH not in viewer.get("/hindcast/pipelines/sales").text
    assert viewer.get(PATH).status_code == viewer.post(PATH, data=GOOD).status_code == 403
    assert clients(None).post(PATH, data=GOOD).status_code == 401
    assert admin.post(PATH, data=GOOD, headers={"origin": "https://evil.example"}).status_code == 403
    assert admin.post(PATH, data={f"x{index}": "" for index in range(100)}).status_code >= 400
    assert airflow.calls == []


def test_the_page_of_a_started_backfill_leads_to_its_request(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    client = clients("admin")
    waits = client.get(f"{PATH}/{RUN}")
    assert '<meta http-equiv="refresh" content="2">' in waits.text
    airflow.run_state, airflow.xcoms["plan", links.VERDICT_KEY] = "success", "nothing to replay: <b>"
    ended = client.get(f"{PATH}/{RUN}").text
    assert "nothing to replay: &lt;b&gt;" in ended
    assert "http-equiv" not in ended
    origin = DagRunOrigin(dag_id="backfill_sales", run_id=RUN, slice_ids=("2024-01-01",))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="ann", reason="", origin=origin)
    opened = open_request(place.work, asked)
    found = client.get(f"{PATH}/{RUN}")
    assert (found.status_code, found.headers["location"]) == (303, links.request_page("sales", opened.request_id))


def test_a_double_click_starts_one_backfill(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    fields = fields_of(client.post(PATH, data=GOOD).text, "start")
    assert client.post(PATH, data=fields).status_code == 303
    run_id = f"manual__2024-01-01_to_2024-01-05__{fields['mark']}"
    airflow.under_way.add(run_id)
    again = client.post(PATH, data=fields)
    assert (again.status_code, again.headers["location"]) == (303, links.backfill_page("sales", run_id))
    assert len(airflow.calls) == 1
    airflow.under_way.clear()
    assert client.post(PATH, data=fields).status_code == 303, "a form may be sent again when its run has ended"
    assert len(airflow.calls) == 2
