"""Decisions on the pages: who may, what is refused and how, what Airflow is asked to do, and the page of a decision."""

import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from random import Random
from typing import Any

import pytest

from jobs.ledger.events import checked_event
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import RequestKind
from jobs.orchestration import decisions
from jobs.orchestration.decision_actions import Action
from jobs.orchestration.decision_fields import read_decision
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import Asked
from jobs.publishing.optimistic_check import By
from tests.jobs.airflow_ui.conftest import Clients, Place
from tests.jobs.airflow_ui.fake_airflow import RUN, FakeAirflow
from tests.support.fake_replay import PIPELINE, FakeReplayer, day_ms, sales
from tests.support.fuzzing import seeds

pytestmark = pytest.mark.dags

HELD = "2024-01-03"
DAYS = ("2024-01-01", "2024-01-02", HELD, "2024-01-04")
POST = "/hindcast/pipelines/sales/decisions"


@pytest.fixture
def airflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    """Airflow over the lake, in which a DAG run has staged four days, one of which is held. It decides at once."""
    from jobs.airflow_ui.decide import routes

    def decide(dag_id: str, conf: Mapping[str, Any]) -> None:
        file, lake = str(place.pipelines / "sales.yaml"), str(place.lake)
        decider = By(who="ines (Airflow)", decision_id=f"{dag_id}/{len(fake.calls)}")
        decided = decisions.decide(file, read_decision(conf), decider, lake=lake)
        decisions.publish_decided(file, decided, decider, lake=lake)

    fake = FakeAirflow(run_state="success", on_trigger=decide)
    monkeypatch.setattr(routes, "UsersAirflow", fake)
    origin = DagRunOrigin(dag_id="backfill_sales", run_id="manual__1", slice_ids=DAYS)
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-05"), who="ines", reason="a test", origin=origin)
    fake.xcoms["request", "id"] = run_request(place.work, asked, FakeReplayer(), publish=False).request_id
    return fake


def request_id(airflow: FakeAirflow) -> str:
    return str(airflow.xcoms[("request", "id")])


def fields_of(html: str, button: str) -> dict[str, str]:
    """Return what a browser sends if a person presses a button of a form, with all boxes as they are."""
    [form] = [one for one in re.findall(r"<form.*?</form>", html, re.DOTALL) if f'value="{button}"' in one]
    fields = {"action": button}
    for tag in re.findall(r"<input[^>]*>", form):
        attributes = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if attributes.get("type") != "checkbox" or re.search(r"\schecked", tag):
            fields[attributes["name"]] = attributes.get("value", "on")
    return fields


def test_the_form_of_the_request_waives_and_publishes_and_clears_the_gate(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    client = clients("admin")
    html = client.get(f"/hindcast/pipelines/sales/requests/{request_id(airflow)}").text
    fields = fields_of(html, "waive_and_publish")
    assert fields["slice"] == HELD
    assert fields["request_id"] == request_id(airflow)
    answer = client.post(POST, data=fields | {"reason": " a real sale "})
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == f"{POST}/manual__2024-02-01T00%3A00%3A00%2B00%3A00"
    assert airflow.calls == [("trigger", "decide_sales"), ("clear_gate", "backfill_sales", "manual__1")]
    view = place.work.ledger.view()
    assert set(view.published) == set(DAYS)
    assert view.run(view.published[HELD]).waiver.reason == "a real sale"  # type: ignore[union-attr]
    shown = client.get(answer.headers["location"]).text
    assert "The decision is made" in shown
    assert "waive and publish" in shown
    assert "clear_gate" not in shown, "the page cleared the gate, so the task had nothing to do"
    assert "by <b" in shown
    assert "a real sale" in shown
    assert "manual__1" in shown


def test_the_page_of_a_slice_decides_on_the_run_that_it_shows(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    """A candidate of an edited spec has staged the same day later, and that run failed, too."""
    edited = replace(place.work, pipeline=sales(PIPELINE.replace("size: 1d", "size: 2d")))
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-04"), who="ines", reason="a test",
                  kind=RequestKind.CANDIDATE)  # fmt: skip
    candidate = run_request(edited, asked, FakeReplayer(), staging=Staging()).request_id
    view, client = place.work.ledger.view(), clients("admin")
    seen = {}
    for request in (candidate, request_id(airflow)):
        run_id = view.requests[request].runs[HELD]
        html = client.get(f"/hindcast/pipelines/sales/slices/{HELD}?run={run_id}").text
        seen[request] = fields_of(html, "waive_and_publish")
        assert (seen[request]["request_id"], seen[request][f"run.{HELD}"]) == (request, run_id)
        assert f"request {request}" in html
    passed = view.requests[request_id(airflow)].runs[DAYS[0]]
    html = client.get(f"/hindcast/pipelines/sales/slices/{DAYS[0]}?run={passed}").text
    assert "Waive" not in html, "this run stops nothing"
    fields = seen[request_id(airflow)]
    again = fields_of(client.post(POST, data=fields).text, "waive_and_publish")
    assert again["request_id"] == request_id(airflow), "without a reason the form comes back for the same run"
    assert client.post(POST, data=fields | {f"reason.{HELD}": "a real sale"}).status_code == 303
    assert place.work.ledger.view().published[HELD] == fields[f"run.{HELD}"]


def test_a_published_slice_that_fails_a_stricter_suite_is_waived_on_its_pages(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    client, path = clients("admin"), f"/hindcast/pipelines/sales/requests/{request_id(airflow)}"
    fields = fields_of(client.get(path).text, "waive_and_publish") | {"reason": "snow"}
    assert client.post(POST, data=fields).status_code == 303
    view = place.work.ledger.view()
    result = view.run(view.published[HELD]).result
    stricter = replace(result, checks=tuple(replace(check, check="stricter") for check in result.checks))
    place.work.ledger.write(lambda _view: [checked_event(request_id(airflow), stricter)])
    for page in (path, f"/hindcast/pipelines/sales/slices/{HELD}"):
        html = client.get(page).text
        assert "Published slices with a failed check" in html
        assert "waive_and_publish" not in html, "readers see it already"
        fields = fields_of(html, "waive")
    assert client.post(POST, data=fields | {f"reason.{HELD}": "snow, too"}).status_code == 303
    assert place.work.ledger.view().run(result.run_id).waiver.reason == "snow, too"  # type: ignore[union-attr]
    assert "Published slices with a failed check" not in client.get(path).text


def test_a_viewer_sees_no_form_and_cannot_decide(clients: Clients, airflow: FakeAirflow, place: Place) -> None:
    page = clients("viewer").get(f"/hindcast/pipelines/sales/requests/{request_id(airflow)}")
    assert page.status_code == 200
    assert "<form" not in page.text
    assert "does not let you start" in page.text
    answer = clients("viewer").post(POST, data={"action": "publish", "request_id": request_id(airflow)})
    assert answer.status_code == 403
    assert "does not let you start decide_sales" in answer.text
    assert airflow.calls == []
    assert not place.work.ledger.view().decisions


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_a_post_of_another_site_is_refused(clients: Clients, airflow: FakeAirflow, headers: dict[str, str]) -> None:
    data = {"action": "cancel", "request_id": request_id(airflow), "reason": "x"}
    assert clients("admin").post(POST, data=data, headers=headers).status_code == 403
    assert airflow.calls == []


def test_without_a_login_nothing_is_decided(clients: Clients, airflow: FakeAirflow) -> None:
    assert clients(None).post(POST, data={"action": "publish"}).status_code == 401
    assert clients(None).get(f"{POST}/{RUN}", headers={"sec-fetch-dest": "iframe"}).status_code == 401
    assert airflow.calls == []


def test_a_refused_form_comes_back_with_what_was_entered(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    html = client.get(f"/hindcast/pipelines/sales/requests/{request_id(airflow)}").text
    fields = fields_of(html, "waive_and_publish")
    assert "reason" not in fields, "one held slice has one field for the reason"
    answer = client.post(POST, data=fields)
    assert answer.status_code == 422
    assert "no reason" in answer.text
    again = fields_of(answer.text, "waive_and_publish")
    assert again["slice"] == HELD
    del fields["slice"]
    answer = client.post(POST, data=fields | {f"reason.{HELD}": 'snow & "ice" <b>'})
    assert (answer.status_code, "no slice is chosen" in answer.text) == (422, True)
    again = fields_of(answer.text, "waive_and_publish")
    assert again[f"reason.{HELD}"] == 'snow & "ice" <b>'
    assert "slice" not in again, "the box is as it was left"
    assert "<b>&#34;" not in answer.text
    assert airflow.calls == []


def test_the_second_of_two_browsers_is_told_what_the_first_did(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    html = client.get(f"/hindcast/pipelines/sales/requests/{request_id(airflow)}").text
    fields = fields_of(html, "waive_and_publish") | {"reason": "snow"}
    assert client.post(POST, data=fields).status_code == 303
    answer = client.post(POST, data=fields)
    assert answer.status_code == 422
    assert "ines (Airflow) decided waive" in answer.text
    assert "Look again" in answer.text


def test_a_double_click_decides_once(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    html = client.get(f"/hindcast/pipelines/sales/requests/{request_id(airflow)}").text
    fields = fields_of(html, "waive_and_publish") | {"reason": "snow"}
    assert client.post(POST, data=fields).status_code == 303
    run_id = f"manual__{fields['mark']}"
    airflow.under_way.add(run_id)
    answer = client.post(POST, data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{POST}/{run_id}")
    assert airflow.calls.count(("trigger", "decide_sales")) == 1


def test_a_paused_dag_is_told_and_unpaused_only_if_asked(clients: Clients, airflow: FakeAirflow) -> None:
    airflow.paused.add("decide_sales")
    client = clients("admin")
    fields = {"action": "cancel", "request_id": request_id(airflow), "reason": "no"}
    answer = client.post(POST, data=fields)
    assert (answer.status_code, airflow.calls) == (409, [])
    assert "decide_sales is paused in Airflow" in answer.text
    assert 'name="unpause"' in answer.text
    assert client.post(POST, data=fields | {"unpause": "on"}).status_code == 303
    assert airflow.calls[0] == ("unpause", "decide_sales")


def test_what_airflow_refuses_is_shown(clients: Clients, airflow: FakeAirflow, place: Place) -> None:
    fields = {"action": "cancel", "request_id": request_id(airflow), "reason": "no"}
    airflow.refuses.update(trigger=403)
    assert clients("admin").post(POST, data=fields).status_code == 403
    airflow.refuses.update(trigger=409)
    answer = clients("admin").post(POST, data=fields)
    assert (answer.status_code, "no &lt;b&gt;" in answer.text) == (409, True)
    assert not place.work.ledger.view().decisions
    airflow.refuses.clear()
    airflow.refuses.update(clear_gate=403)
    view = place.work.ledger.view()
    run_id = view.requests[request_id(airflow)].runs[HELD]
    good = {"action": "waive_and_publish", "request_id": request_id(airflow), "slice": HELD, f"run.{HELD}": run_id,
            f"reason.{HELD}": "x"}  # fmt: skip
    assert clients("admin").post(POST, data=good).status_code == 303, "the task clear_gate does it instead"


def test_the_page_of_a_decision_tells_how_far_it_is_and_why_it_was_refused(
    clients: Clients, airflow: FakeAirflow
) -> None:
    client = clients("viewer")
    airflow.conf = {"action": "publish", "request_id": request_id(airflow)}
    for state, title in (("queued", "waits"), ("running", "is being made")):
        airflow.run_state = state
        page = client.get(f"{POST}/{RUN}").text
        assert title in page
        assert 'http-equiv="refresh"' in page
    airflow.run_state = "failed"
    page = client.get(f"{POST}/{RUN}").text
    assert "has failed" in page
    assert 'http-equiv="refresh"' not in page
    airflow.xcoms["decide", "refused"] = "bob <i> was first"
    page = client.get(f"{POST}/{RUN}").text
    assert "was refused" in page
    assert "bob &lt;i&gt; was first" in page
    airflow.conf = {"action": ["x"], "slices": ["a", {"slice_id": 3}], "<b>": {"reason": None}, "request_id": 7}
    assert client.get(f"{POST}/{RUN}").status_code == 200
    airflow.refuses.update(run=404)
    assert client.get(f"{POST}/{RUN}").status_code == 404


def test_roll_back_and_resume_from_the_page_of_the_pipeline(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    html = client.get(f"/hindcast/pipelines/sales/requests/{request_id(airflow)}").text
    assert client.post(POST, data=fields_of(html, "waive_and_publish") | {"reason": "snow"}).status_code == 303
    html = client.get("/hindcast/pipelines/sales").text
    assert client.post(POST, data=fields_of(html, "roll_back") | {"reason": "early"}).status_code == 303
    html = client.get("/hindcast/pipelines/sales").text
    assert "rolled publication" in html
    assert client.post(POST, data=fields_of(html, "resume") | {"reason": "go"}).status_code == 303
    assert "decide_sales" in str(airflow.calls)


HOSTILE = [
    "", " ", "\x00", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "<script>", "../..", "x" * 9_999,
    "-1", "9" * 400, "1e3", "\u202e", "' OR 1=1 --",
]  # fmt: skip


def test_hostile_fields_are_refused_and_change_nothing(clients: Clients, airflow: FakeAirflow, place: Place) -> None:
    version = place.work.ledger.view().version
    names = ["action", "request_id", "publication", "ledger_version", "reason", "slice", f"run.{HELD}", "unpause",
             f"reason.{HELD}", "place_run", "extra"]  # fmt: skip
    client = clients("admin")
    for seed in seeds(40):
        rng = Random(seed)
        data = {name: rng.choice(HOSTILE) for name in rng.sample(names, rng.randint(0, 6))}
        data.setdefault("action", rng.choice([*(one.value for one in Action), *HOSTILE]))
        answer = client.post(POST, data=data)
        assert answer.status_code in {404, 409, 422}, (seed, data, answer.status_code, answer.text[:500])
        assert "<script>" not in answer.text, seed
    assert place.work.ledger.view().version == version
    assert airflow.calls == []


def test_too_many_fields_and_files_are_refused(clients: Clients, airflow: FakeAirflow) -> None:
    client = clients("admin")
    many = {f"reason.{index}": "x" for index in range(4_000)}
    assert client.post(POST, data={"action": "publish"} | many).status_code in {400, 422}
    assert client.post(POST, data={"action": "publish"}, files={"request_id": b"x"}).status_code == 422
    assert airflow.calls == []


@pytest.mark.slow
def test_a_comment_and_an_assignment_are_written_by_the_dag_and_shown_escaped(
    clients: Clients, airflow: FakeAirflow, place: Place
) -> None:
    client, page = clients("admin"), f"/hindcast/pipelines/sales/requests/{request_id(airflow)}"
    text = "<script>alert(1)</script>\nsecond \u202eline"
    seen = fields_of(client.get(page).text, "waive_and_publish")
    for fields in (
        fields_of(client.get(page).text, "comment") | {"reason": text},
        fields_of(client.get(page).text, "assign") | {"assignee": "<b>bob"},
    ):
        answer = client.post(POST, data=fields)
        assert answer.status_code == 303, answer.text
        shown = client.get(answer.headers["location"])
        assert shown.headers["location"] == f"{page}#comments", "a comment that is written leads back to the thread"
    html = client.get(page).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;<br>second \\u202eline" in html
    assert "Assigned to <b>&lt;b&gt;bob</b>" in html
    assert "assigned to <b>&lt;b&gt;bob</b>" in client.get("/hindcast/pipelines/sales").text
    assert "2 comments" in client.get("/hindcast/").text
    answer = client.post(POST, data=seen | {"reason": "a real sale"})  # the comments do not make it outdated
    assert answer.status_code == 303, answer.text
    assert set(place.work.ledger.view().published) == set(DAYS)
    assert 'value="comment"' in client.get(page).text, "a request that is published may be commented on"


def test_a_viewer_reads_the_thread_and_gets_no_form(
    clients: Clients, airflow: FakeAirflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.airflow_ui import context

    monkeypatch.setattr(context, "may_decide", lambda _user, _name: False)
    client, page = clients("viewer"), f"/hindcast/pipelines/sales/requests/{request_id(airflow)}"
    html = client.get(page).text
    assert "No comment yet" in html
    assert 'value="comment"' not in html
    fields = {"action": "comment", "request_id": request_id(airflow), "reason": "x"}
    assert client.post(POST, data=fields).status_code == 403


@pytest.mark.parametrize("reason", ["", "  ", "x" * 2_001])
def test_a_comment_that_is_refused_shows_the_form_again(clients: Clients, airflow: FakeAirflow, reason: str) -> None:
    client, page = clients("admin"), f"/hindcast/pipelines/sales/requests/{request_id(airflow)}"
    answer = client.post(POST, data=fields_of(client.get(page).text, "comment") | {"reason": reason})
    assert answer.status_code == 422
    assert "Not decided" in answer.text
    assert 'value="comment"' in answer.text
    assert airflow.calls == []
