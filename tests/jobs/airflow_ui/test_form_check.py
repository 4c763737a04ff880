"""The check of a backfill's form in front of Airflow's own API, and the note of a DAG run."""

import json
import logging
import warnings
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.orchestration.backfill_form import ReplayableRange
from jobs.orchestration.requests import run_request
from jobs.pipeline.slices import parse_bound, slice_at, slice_grid
from jobs.planning.request_context import Asked
from tests.jobs.airflow_ui.conftest import Place
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from windowlib.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi.testclient import TestClient

pytestmark = pytest.mark.dags

START = "/api/v2/dags/backfill_sales/dagRuns"
GOOD = {"from": "2024-01-01", "to": "2024-01-03", "reason": "late files", "publish": True, "fresh": False}


@pytest.fixture
def airflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> "Iterator[TestClient]":
    """A server behind the check. It answers with the body that it got, as a stand-in for Airflow's API."""
    assert place.pipelines.is_dir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi import FastAPI, Request
        from fastapi.testclient import TestClient

        from jobs.airflow_ui import form_check

    async def everybody(_request: Request, _name: str) -> bool:
        return True

    monkeypatch.setattr(form_check, "_may_start", everybody)
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def echo(request: Request) -> dict[str, Any]:
        body = await request.body()
        assert int(request.headers.get("content-length") or 0) == len(body)
        return {"got": body.decode()}

    app.add_middleware(form_check.BackfillFormCheck)
    with TestClient(app) as client:
        yield client


def start(client: "TestClient", conf: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401
    return client.post(START, json={"logical_date": None, "conf": conf} | more)


def test_a_right_form_goes_on_with_a_run_id_that_shows_its_range(airflow: "TestClient") -> None:
    answer = start(airflow, GOOD)
    assert answer.status_code == 200
    got = json.loads(answer.json()["got"])
    assert got["conf"] == GOOD
    assert got["dag_run_id"].startswith("manual__2024-01-01_to_2024-01-03__")
    own = json.loads(start(airflow, GOOD, dag_run_id="mine").json()["got"])
    assert own["dag_run_id"] == "mine"


def test_an_empty_range_becomes_the_first_gap(airflow: "TestClient") -> None:
    got = json.loads(start(airflow, {"reason": "catch up"}).json()["got"])
    assert got["conf"] == {"reason": "catch up", "from": "2024-01-01", "to": "2024-01-05"}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (
            {"to": "2023-12-01"},
            "To 2023-12-01 is before From 2024-01-01. Right would be From 2023-12-01, To 2024-01-01.",
        ),
        ({"reason": " "}, "Reason is empty"),
        ({"publsh": False}, "The form has no field 'publsh'. Did you mean 'publish'?"),
        ({"to": "2999-01-01"}, "is not over before"),
    ],
)
def test_a_wrong_form_makes_no_run(airflow: "TestClient", wrong: dict[str, Any], complaint: str) -> None:
    answer = start(airflow, GOOD | wrong)
    assert answer.status_code == 400
    assert complaint in answer.json()["detail"]


def test_a_range_after_the_end_of_the_log_makes_no_run(airflow: "TestClient") -> None:
    answer = start(airflow, GOOD | {"to": "2024-01-20"})
    assert answer.status_code == 400
    assert answer.json()["detail"] == (
        "To 2024-01-20: the log event_logs/sales has no record after 2024-01-04, so 2024-01-05 to 2024-01-19 have not "
        "arrived. Right would be From 2024-01-01, To 2024-01-05."
    )
    after = start(airflow, GOOD | {"from": "2024-01-10", "to": "2024-01-11", "fresh": True})
    assert "so 2024-01-10 has not arrived. The latest To is 2024-01-10." in after.json()["detail"]


@pytest.mark.parametrize(
    ("ready", "marked", "status"), [("after: 2h", (), 400), ('marker: "m/{slice_id}"', (), 400),
     ('marker: "m/{slice_id}"', ("2024-01-05", "2024-01-06"), 200), ('marker: "m/{slice_id}"', ("2024-01-06",), 400)],
)  # fmt: skip
def test_only_a_marker_tells_that_a_slice_after_the_last_record_has_arrived(
    airflow: "TestClient", place: Place, ready: str, marked: tuple[str, ...], status: int
) -> None:
    text = PIPELINE.replace("  order: [id]", f"  order: [id]\n  ready: {{{ready}}}")
    (place.pipelines / "sales.yaml").write_text(text, encoding="utf-8")
    (place.lake / "m").mkdir()
    for slice_id in marked:
        (place.lake / "m" / slice_id).touch()
    assert start(airflow, GOOD | {"to": "2024-01-07"}).status_code == status


def test_a_gap_before_the_last_record_is_replayed(airflow: "TestClient", place: Place) -> None:
    append_day(place.lake, "2024-01-08", {"a": 1})
    assert start(airflow, GOOD | {"to": "2024-01-08"}).status_code == 200


def test_an_open_request_makes_no_run_unless_it_is_replaced_or_waited_for(airflow: "TestClient", place: Place) -> None:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-05"), who="ann", reason="first")
    first = run_request(place.work, asked, FakeReplayer()).request_id
    refused = start(airflow, GOOD)
    assert refused.status_code == 409
    told = f"request {first[:12]} of ann (first) is open for [2024-01-01, 2024-01-05), 4 slices staged"
    assert told in refused.json()["detail"]
    assert "(2024-01-03: " in refused.json()["detail"]
    assert "Or set If open to `replace`" in refused.json()["detail"]
    replaced = json.loads(start(airflow, GOOD | {"if_open": "replace"}).json()["got"])
    assert replaced["conf"] == GOOD | {"if_open": "replace", "replaces": [first]}
    waits = json.loads(start(airflow, GOOD | {"if_open": "wait"}).json()["got"])
    assert waits["conf"] == GOOD | {"if_open": "wait"}
    for wrong in ({"if_open": "x"}, {"if_open": 1}, {"replaces": "x"}, {"replaces": [1]}):
        assert start(airflow, GOOD | wrong).status_code == 400, wrong


def test_airflows_own_form_gets_a_status_with_which_it_shows_the_text(airflow: "TestClient") -> None:
    from jobs.airflow_ui.form_check import SHOWN_AT_THE_BUTTON

    browser = {"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"}
    wrong = {"logical_date": None, "conf": GOOD | {"to": "2023-12-01"}}
    answer = airflow.post(START, json=wrong, headers=browser)
    assert answer.status_code == SHOWN_AT_THE_BUTTON
    assert answer.json() == airflow.post(START, json=wrong).json()
    with pytest.raises(ValueError, match="is not a valid HTTPStatus"):
        HTTPStatus(SHOWN_AT_THE_BUTTON)


def test_a_range_with_which_the_chain_cannot_begin_makes_no_run(airflow: "TestClient") -> None:
    answer = start(airflow, GOOD | {"from": "2024-01-02"})
    assert answer.status_code == 400
    assert "Right would be From 2024-01-01, To 2024-01-03. Or set Fresh" in answer.json()["detail"]
    assert start(airflow, GOOD | {"from": "2024-01-02", "fresh": True}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v2/dags/replay_sales/dagRuns", '{"conf": {"x": 1}}'),
        ("/api/v2/dags/backfill_other/dagRuns", '{"conf": {"x": 1}}'),
        ("/api/v2/dags/backfill_sales/dagRuns/list", '{"conf": {"x": 1}}'),
        (START, "not JSON"),
        (START, "[1]"),
        (START, "[" * 50_000),
        (START, '{"conf": [1]}'),
        (START, '{"conf": "' + "x" * 200_000 + '"}'),
    ],
)
def test_other_requests_go_through_unchanged(
    airflow: "TestClient", path: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert airflow.post(path, content=body).json() == {"got": body}
    assert not caplog.records, "the body of a stranger is no bug"


@pytest.mark.parametrize("kind", ["replay", "backfill", "decide", "maintain", "alert"])
def test_a_run_by_hand_has_no_date(airflow: "TestClient", kind: str) -> None:
    """Airflow makes no task of a run after the end of a schedule, and a run in the future blocks its DAG until then."""
    body = {"logical_date": "2030-01-01T00:00:00Z", "conf": GOOD if kind == "backfill" else {}}
    got = json.loads(airflow.post(f"/api/v2/dags/{kind}_sales/dagRuns", json=body).json()["got"])
    assert got["logical_date"] is None
    assert got["conf"] == body["conf"]
    foreign = airflow.post(f"/api/v2/dags/{kind}_other/dagRuns", json=body).json()["got"]
    assert json.loads(foreign) == body


def test_a_stranger_is_told_nothing(place: Place) -> None:
    """Without a valid token, the request goes on to Airflow, which refuses it."""
    assert place.lake.is_dir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.api_fastapi.app import create_auth_manager
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from jobs.airflow_ui.form_check import BackfillFormCheck

    create_auth_manager()
    app = FastAPI()
    app.add_middleware(BackfillFormCheck)
    with TestClient(app) as client:
        for headers in ({}, {"authorization": "Bearer no-token"}, {"cookie": "_token=x"}):
            assert client.post(START, json={"conf": {"reason": ""}}, headers=headers).status_code == 404


def test_a_lake_that_cannot_be_read_leaves_the_answer_to_the_plan_task(
    airflow: "TestClient", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_LAKE", str(tmp_path / "nowhere"))
    assert start(airflow, {"reason": "catch up"}).status_code == 200


def test_an_error_with_a_value_of_the_log_is_one_line_of_the_log_of_airflow(
    airflow: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.airflow_ui import form_check

    lines: list[str] = []

    def fails(*_given: object, **_named: object) -> None:
        raise StoreError("slice x\nFORGED\x1b[2J")

    monkeypatch.setattr(form_check, "checked_form", fails)
    monkeypatch.setattr(form_check.log, "warning", lambda text, *values: lines.append(text % values))
    assert start(airflow, {"reason": "catch up"}).status_code == 200
    assert lines == [r"the form of backfill_sales was not checked: slice x\nFORGED\x1b[2J"]


def test_the_verdict_is_below_what_a_person_wrote_and_replaces_an_earlier_one() -> None:
    from jobs.airflow_ui.run_notes import MAX_NOTE, note_with

    assert note_with(None, "3 slices published") == "Hindcast: 3 slices published"
    first = note_with("asked by ann\n", "1 slice held")
    assert first == "asked by ann\n\nHindcast: 1 slice held"
    assert note_with(first, "published") == "asked by ann\n\nHindcast: published"
    below = "Ask bob first.\nSee wiki Hindcast: rerun only after 9."
    assert note_with(f"{first}\n{below}", "published") == f"asked by ann\n\n{below}\n\nHindcast: published"
    assert len(note_with("x" * 500, "y" * 2_000)) == MAX_NOTE
    assert note_with("x" * MAX_NOTE, "published") == "x" * MAX_NOTE
    hostile = r"among them ![x](//evil/x.png), \[y](//evil), <b>, &#104;ttp"
    assert note_with(None, hostile) == r"Hindcast: among them !\[x](//evil/x.png), \\\[y](//evil), \<b>, \&#104;ttp"
    bare = "<http://evil.example>, HTTPS://evil.example, www.evil.example"  # links of Airflow, also without brackets
    assert "\\<http:\u2060//evil.example>, HTTPS:\u2060//evil.example, www\u2060.evil" in note_with(None, bare)


@pytest.fixture
def details(place: Place) -> "Iterator[Callable[[dict[str, Any] | None], Any]]":
    """Return a function: what Airflow answers for the details of a DAG (None: status 404) -> what the browser gets."""
    assert place.lake.is_dir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi import FastAPI
        from fastapi.middleware.gzip import GZipMiddleware
        from fastapi.responses import JSONResponse
        from fastapi.testclient import TestClient

        from jobs.airflow_ui.form_defaults import BackfillFormDefaults

    answers: list[dict[str, Any] | None] = []
    app = FastAPI()

    @app.get("/{path:path}")
    def answer() -> JSONResponse:
        return JSONResponse(answers[-1], 404 if answers[-1] is None else 200)

    app.add_middleware(GZipMiddleware, minimum_size=10)
    app.add_middleware(BackfillFormDefaults)
    with TestClient(app) as client:

        def get(given: dict[str, Any] | None) -> Any:  # noqa: ANN401
            answers.append(given)
            return client.get("/api/v2/dags/backfill_sales/details").json()

        yield get


def test_the_form_has_the_dates_of_the_first_gap(details: "Callable[[dict[str, Any] | None], Any]") -> None:
    field: dict[str, Any] = {
        "value": None,
        "schema": {"type": ["null", "string"], "description_md": "The first slice."},
    }
    given: dict[str, Any] = {
        "dag_id": "backfill_sales",
        "params": {"from": field, "to": field, "reason": {"value": None, "schema": {}}},
    }
    got = details(given)
    assert (got["params"]["from"]["value"], got["params"]["to"]["value"]) == ("2024-01-01", "2024-01-05")
    assert got["params"]["from"]["schema"]["description_md"] == (
        "The first slice of the range. Empty: the first slice that readers do not see. "
        "The log has complete slices from **2024-01-01** to **2024-01-04**. "
        "Readers do not see 2024-01-01."
    )
    assert got["params"]["reason"] == given["params"]["reason"]


def test_times_of_the_form_have_an_offset_because_airflows_field_reads_others_in_the_browsers_zone() -> None:
    from jobs.airflow_ui.form_defaults import with_defaults

    pipeline = sales(PIPELINE.replace("slice: {by: day}", "slice: {by: at, every: 1h}"))
    grid = slice_grid(pipeline)
    first, last = (slice_at(grid, day_ms("2024-01-01") + hour * 3_600_000) for hour in (5, 7))
    field: dict[str, Any] = {"value": None, "schema": {}}
    params = with_defaults(
        {"params": {"from": field, "to": field}}, pipeline, ReplayableRange(first=first, last=last, gap=first)
    )["params"]
    values = [params[name]["value"] for name in ("from", "to")]
    assert values == ["2024-01-01T05:00:00+00:00", "2024-01-01T08:00:00+00:00"]
    assert [parse_bound(pipeline, value) for value in values] == [first.start_ms, last.end_ms]


@pytest.mark.parametrize("given", [None, {"params": {}}, {"params": {"from": 1}}, {}])
def test_an_answer_without_the_fields_goes_on_unchanged(
    details: "Callable[[dict[str, Any] | None], Any]", given: dict[str, Any] | None
) -> None:
    assert details(given) == given


def test_a_lake_that_cannot_be_read_leaves_the_form_empty(
    details: "Callable[[dict[str, Any] | None], Any]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_LAKE", str(tmp_path / "nowhere"))
    given: dict[str, Any] = {"params": {"from": {"value": None, "schema": {}}, "to": {"value": None, "schema": {}}}}
    assert details(given) == given
