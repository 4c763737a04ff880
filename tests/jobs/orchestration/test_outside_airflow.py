"""The command line and Airflow: which DAG runs are cleared, what is said, and that no secret is shown."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.provenance import DagRunOrigin
from jobs.orchestration import outside_airflow
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.planning.request_context import Asked, holders, open_request, open_request_context
from tests.support.fake_replay import append_day, sales
from windowlib.errors import RequestError

RUN = DagRunOrigin(dag_id="backfill_sales", run_id="manual__2024+00:00", slice_ids=("2024-01-01",))
SECRET = "s3cret"  # noqa: S105


class Airflow:
    """Answers as Airflow does: a login, a failed DAG run, and what happens when its gate is cleared."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.state, self.after = "failed", ["running", "success"]
        airflow = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                airflow.calls.append((self.command, self.path, body))
                is_known = self.headers.get("authorization") == f"Bearer {SECRET}"
                status, found = airflow.answer(self.path, body, is_known=is_known)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer  # noqa: N815 - names of the base class

            def log_message(self, *_arguments: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str, body: Any, *, is_known: bool) -> tuple[int, Any]:  # noqa: ANN401
        if path == "/auth/token":
            return (201, {"access_token": SECRET}) if body["password"] == SECRET else (401, {"detail": "no"})
        if not is_known:
            return 401, {"detail": "no"}
        if path.endswith("/clearTaskInstances"):
            self.state = "queued"
            return 200, {"task_instances": []}
        state = self.state
        if state != "failed" and self.after:
            self.state = self.after.pop(0)
        interval = {"data_interval_start": None, "data_interval_end": None}
        return 200, {"dag_run_id": RUN.run_id, "state": state, "run_type": "manual", **interval}


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    made = Airflow()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.mark.parametrize("is_token", [True, False])
def test_a_failed_run_is_cleared_and_followed_to_its_end(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, *, is_token: bool
) -> None:
    monkeypatch.setenv(outside_airflow.URL, f"{airflow.url}/")
    given = (
        {outside_airflow.TOKEN: SECRET} if is_token else {outside_airflow.USER: "ann", outside_airflow.PASSWORD: SECRET}
    )
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    api = outside_airflow.airflow_of_environment()
    assert api is not None
    assert SECRET not in repr(api)
    [found] = outside_airflow.clear_gates(api, [RUN], sleep=lambda _s: None)
    assert (found.state, found.is_right) == ("success", True)
    [body] = [body for _, path, body in airflow.calls if path.endswith("clearTaskInstances")]
    assert (body["task_ids"], body["include_downstream"], body["only_failed"], body["dry_run"]) == (
        ["gate"], True, True, False,
    )  # fmt: skip
    assert body["dag_run_id"] == RUN.run_id
    assert any("manual__2024%2B00:00" in path for _, path, _ in airflow.calls)


def test_a_green_run_is_left_alone_and_a_slow_one_is_not_awaited_for_ever(airflow: Airflow) -> None:
    airflow.state, airflow.after = "success", []
    api = AirflowApi(url=airflow.url, token=SECRET)
    [found] = outside_airflow.clear_gates(api, [RUN])
    assert found.is_right
    assert not [path for _, path, _ in airflow.calls if "clear" in path]
    airflow.state = "failed"
    [found] = outside_airflow.clear_gates(AirflowApi(url=airflow.url, token=SECRET), [RUN], wait_s=0.0)
    assert (found.state, found.is_right) == ("queued", False)


def test_a_wrong_secret_is_refused_and_not_shown(airflow: Airflow) -> None:
    [refused] = outside_airflow.clear_gates(AirflowApi(url=airflow.url, user="ann", password="wr0ng"), [RUN])  # noqa: S106
    assert (refused.state, refused.is_right) == (None, False)
    assert "refused POST /auth/token: 401" in refused.why
    assert "wr0ng" not in refused.why
    [found] = outside_airflow.clear_gates(AirflowApi(url=airflow.url, token="t0ken"), [RUN])  # noqa: S106
    assert found.state is None
    assert "t0ken" not in found.why


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (outside_airflow.URL, outside_airflow.TOKEN, outside_airflow.USER, outside_airflow.PASSWORD):
        monkeypatch.delenv(name, raising=False)
    assert outside_airflow.airflow_of_environment() is None
    monkeypatch.setenv(outside_airflow.URL, "ftp://x")
    with pytest.raises(RequestError, match="must begin with http"):
        outside_airflow.airflow_of_environment()
    monkeypatch.setenv(outside_airflow.URL, "https://x")
    with pytest.raises(RequestError, match="neither HINDCAST_AIRFLOW_TOKEN nor both"):
        outside_airflow.airflow_of_environment()


def test_the_advice_names_the_run_and_the_clicks() -> None:
    [line] = outside_airflow.advice([RUN])
    assert "backfill_sales manual__2024+00:00" in line
    assert "`gate`" in line
    assert "`Downstream`" in line


@pytest.mark.parametrize(
    ("status", "state", "is_free"), [(200, "failed", True), (200, "running", False), (404, "", True), (503, "", False)]
)
def test_the_lease_of_a_dag_run_ends_with_the_dag_run(
    airflow: Airflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, status: int, state: str, is_free: bool
) -> None:
    """`hindcast cancel` asks Airflow, so it works at once after a DAG run was stopped or deleted."""
    work = replace(open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: 1), holder=None)
    append_day(tmp_path, "2024-01-01", {"a": 1})
    open_request(work, Asked(from_ms=0, to_ms=1, who="ann", reason="x", request_id="r", origin=RUN))
    airflow.state = state
    if status != 200:
        monkeypatch.setattr(airflow, "answer", lambda *_asked, **_more: (status, {"detail": "no"}))
    api = AirflowApi(url=airflow.url, token=SECRET)
    found = outside_airflow.free_ended(api, work)
    assert bool(found) is is_free
    assert bool(holders(work, work.ledger.view().requests["r"])) is not is_free
