"""Airflow's own API, called inside the api-server with the token of the user.

So Airflow checks the permissions of the person, and records who has started a DAG run. No address is needed.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
from airflow.api_fastapi.app import cached_app
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from fastapi import Request

from jobs.orchestration.embedded.airflow_api import gate_clearing
from jobs.plain_text import escaped, shortened

UNDER_WAY = frozenset({"queued", "running"})
"""The states of a DAG run that has not ended."""
_TIMEOUT_S = 60
_MARK = re.compile(r"[0-9a-f]{16}", re.ASCII)
_NOT_IN_A_RUN_ID = re.compile(r"[^A-Za-z0-9_.~:+-]")
_MAX_DETAIL = 500


class Refused(Exception):  # noqa: N818
    """Airflow refused a call. `status` is the HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def token_of(request: Request) -> str:
    """Return the token of the user: of the header, as for programs, else of the cookie."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return token.strip()
    return request.cookies.get(COOKIE_NAME_JWT_TOKEN, "")


def run_id_of(mark: object, name: str = "") -> str | None:
    """Return the id of the DAG run that a form starts, by its mark (`form_mark`); None without a mark.

    Every click on a button of the form has the same mark, so a double click starts one DAG run. `name` is a part of it.
    """
    is_mark = isinstance(mark, str) and _MARK.fullmatch(mark)
    return manual_run_id(name, str(mark)) if is_mark else None


def manual_run_id(*parts: str) -> str:
    """Return the id of a DAG run that a person starts, of those of these texts that are not empty."""
    return _NOT_IN_A_RUN_ID.sub("-", "__".join(["manual", *filter(None, parts)]))


@dataclass(slots=True)
class UsersAirflow:
    """Airflow's API as one user, as an asynchronous context manager. Every call raises `Refused` if Airflow refuses."""

    token: str
    _client: httpx.AsyncClient = field(init=False)

    async def __aenter__(self) -> Self:
        # The same arguments as in airflow.api_fastapi.main, so that it is the app of this process.
        app = cached_app(apps=os.environ.get("AIRFLOW_API_APPS", "all"))
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://airflow",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=_TIMEOUT_S,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._client.aclose()

    async def is_paused(self, dag_id: str) -> bool:
        """Return whether a DAG is paused: its runs do not start."""
        return bool((await self._ask("GET", f"/dags/{_part(dag_id)}"))["is_paused"])

    async def unpause(self, dag_id: str) -> None:
        """Let the runs of a DAG start."""
        await self._ask("PATCH", f"/dags/{_part(dag_id)}", {"is_paused": False})

    async def trigger(self, dag_id: str, conf: Mapping[str, Any], *, run_id: str | None = None) -> str:
        """Start a DAG and return the id of its run. Airflow records the user.

        If a run with the given id is under way, a second click has come: it starts nothing. If it has ended, Airflow
        chooses another id.
        """
        body = {"logical_date": None, "conf": dict(conf)}
        place = f"/dags/{_part(dag_id)}/dagRuns"
        if run_id is not None:
            try:
                return str((await self._ask("POST", place, body | {"dag_run_id": run_id}))["dag_run_id"])
            except Refused as error:
                if error.status != 409:  # noqa: PLR2004 -- Conflict
                    raise
            if await self.is_under_way(dag_id, run_id):
                return run_id
        return str((await self._ask("POST", place, body))["dag_run_id"])

    async def is_under_way(self, dag_id: str, run_id: str) -> bool:
        """Return whether the user sees a DAG run with this id that has not ended."""
        try:
            return await self.state(dag_id, run_id) in UNDER_WAY
        except Refused:
            return False

    async def state(self, dag_id: str, run_id: str) -> str | None:
        """Return the state of a DAG run; None if there is no such run."""
        dag_run = await self._ask_if_there(f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}")
        return None if dag_run is None else str(dag_run["state"])

    async def run(self, dag_id: str, run_id: str) -> Mapping[str, Any]:
        dag_run: Mapping[str, Any] = await self._ask("GET", f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}")
        return dag_run

    async def tasks(self, dag_id: str, run_id: str) -> Mapping[str, str | None]:
        answer = await self._ask("GET", f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}/taskInstances")
        return {task["task_id"]: task["state"] for task in answer["task_instances"]}

    async def xcom(self, dag_id: str, run_id: str, *, task_id: str, key: str = "return_value") -> Any:  # noqa: ANN401
        """Return a value that a task has left; None if it has left none."""
        place = f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}/taskInstances/{_part(task_id)}/xcomEntries"
        answer = await self._ask_if_there(f"{place}/{_part(key)}?deserialize=false&stringify=false")
        return None if answer is None else answer["value"]

    async def asset(self, name: str) -> Mapping[str, Any] | None:
        """Return the asset with a name as Airflow describes it; None if it has none."""
        answer = await self._ask("GET", f"/assets?limit=100&name_pattern={_part(name)}")
        return next((asset for asset in answer["assets"] if asset["name"] == name), None)

    async def clear_gate(self, dag_id: str, run_id: str) -> None:
        """Clear the failed gate of a DAG run and the tasks after it. A gate that has not failed is left alone."""
        await self._ask("POST", f"/dags/{_part(dag_id)}/clearTaskInstances", gate_clearing(run_id))

    async def _ask_if_there(self, path: str) -> Any:  # noqa: ANN401
        try:
            return await self._ask("GET", path)
        except Refused as error:
            if error.status == 404:  # noqa: PLR2004 -- Not Found
                return None
            raise

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        answer = await self._client.request(method, f"/api/v2{path}", json=body)
        if answer.is_error:
            raise Refused(answer.status_code, _detail(answer))
        return answer.json()


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.text
    return shortened(escaped(detail), _MAX_DETAIL)


def _part(text: str) -> str:
    return quote(text, safe="")
