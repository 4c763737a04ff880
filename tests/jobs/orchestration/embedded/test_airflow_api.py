"""The requests to Airflow's REST interface, and its errors, against a simulated server."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import pytest

from jobs.orchestration.embedded.airflow_api import AirflowApi, AirflowRefused, TaskState

Answer = Callable[[httpx.Request], httpx.Response]


@contextmanager
def _api(answer: Answer) -> Iterator[AirflowApi]:
    api = AirflowApi(url="http://airflow", user="admin", password="p")  # noqa: S106
    with httpx.Client(base_url="http://airflow", transport=httpx.MockTransport(answer)) as client:
        api._client = client
        yield api


def test_a_backfill_has_one_active_run() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"id": 7})

    with _api(answer) as api:
        first, last = (datetime(2013, 2, day, 6, tzinfo=UTC) for day in (1, 3))
        assert api.create_backfill("replay_flights", first, last) == 7
    assert (seen[0].method, seen[0].url.path) == ("POST", "/api/v2/backfills")
    assert json.loads(seen[0].content) == {
        "dag_id": "replay_flights",
        "from_date": "2013-02-01T06:00:00+00:00",
        "to_date": "2013-02-03T06:00:00+00:00",
        "max_active_runs": 1,
        "reprocess_behavior": "none",
    }


def test_a_pool_keeps_the_slots_that_a_person_gave_it() -> None:
    """Defect: `make up` set the pools back to one slot each time."""
    slots = {"hindcast_daily": 5}

    def answer(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/api/v2/pools"), "no other call changes a pool"
        pool = json.loads(request.content)
        if pool["name"] == "default pool":
            return httpx.Response(422)
        is_there = pool["name"] in slots
        slots.setdefault(pool["name"], pool["slots"])
        return httpx.Response(409 if is_there else 201, json=pool)

    with _api(answer) as api:
        for name in ("hindcast_daily", "hindcast_backfill"):
            api.add_pool(name, "a test")
        with pytest.raises(AirflowRefused, match="422"):
            api.add_pool("default pool", "a test")
    assert slots == {"hindcast_daily": 5, "hindcast_backfill": 1}


def test_a_run_id_keeps_its_plus_sign() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v2/dags/d/dagRuns/backfill__2013-02-02T06:00:00+00:00/taskInstances"
        assert b"%2B" in request.url.raw_path
        return httpx.Response(200, json={"task_instances": [{"task_id": "plan", "state": None, "try_number": 0}]})

    with _api(answer) as api:
        assert api.tasks("d", "backfill__2013-02-02T06:00:00+00:00") == [
            TaskState(task_id="plan", state=None, try_number=0)
        ]


def test_an_error_names_the_request_and_the_answer() -> None:
    refusal = httpx.Response(409, text="There is already an active backfill")
    expected = r"http://airflow refused PATCH /api/v2/dags/d: 409 There is already"
    with _api(lambda _request: refusal) as api, pytest.raises(AirflowRefused, match=expected):
        api.unpause("d")


def test_no_answer_is_airflow_refused() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody there", request=request)

    with _api(answer) as api, pytest.raises(AirflowRefused, match="does not answer GET"):
        api.has_dag("d")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(301, headers={"location": "https://airflow/x"}), "redirects .* to https://airflow/x; give the"),
        (httpx.Response(302, headers={"location": "https://login/"}), "redirects .* to https://login/"),
        (httpx.Response(200, text="<html>login</html>"), "did not answer .* as Airflow does: 200 <html>login"),
        (httpx.Response(200, json=["a"]), "did not answer"),
        (httpx.Response(200, json={"detail": "ok"}), "without the field 'd"),
        (httpx.Response(200, json={"dags": [{}], "dag_runs": [{}]}), "without the field 'dag_"),
    ],
)
def test_an_answer_that_is_not_airflows_is_airflow_refused(answer: httpx.Response, why: str) -> None:
    calls: list[Callable[[AirflowApi], object]] = [
        lambda api: api.has_dag("d"),
        lambda api: api.dag_run("d", "r"),
        lambda api: api.dag_runs("d"),
    ]
    for call in calls:
        with _api(lambda _request: answer) as api, pytest.raises(AirflowRefused, match=why):
            call(api)
