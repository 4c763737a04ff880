"""A client for the parts of Airflow's REST interface that Hindcast uses: of the embedded Airflow, or of another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from windowlib.errors import HindcastError

if TYPE_CHECKING:
    import httpx

FINISHED_STATES = frozenset({"success", "failed"})
_TIMEOUT_S = 60  # on two cores, a starting Spark delays the answers


class AirflowRefused(HindcastError):  # noqa: N818
    """Airflow answered with an error, or did not answer. The message has the request and the answer.

    `status` is the HTTP status; None if Airflow did not answer.
    """

    def __init__(self, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class _Fields(dict[str, Any]):
    """An object of an answer. A field that is missing is an error that a person understands."""

    def __missing__(self, name: str) -> Never:
        raise AirflowRefused(f"Airflow has answered without the field {name!r}; is this the address of an Airflow 3?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task of one DAG run. `state` is Airflow's name of the state; it is None before the task is scheduled."""

    task_id: str
    state: str | None
    try_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRunState:
    """One DAG run."""

    run_id: str
    state: str
    run_type: str
    interval_start: datetime | None
    interval_end: datetime | None


@dataclass(slots=True)
class AirflowApi:
    """A session with one Airflow, as a context manager: entering logs in.

    Attributes:
        url: the address of Airflow, such as `https://airflow.example.com`.
        user: the account; not used with a token.
        password: its password.
        token: a token of Airflow's API, instead of account and password.
        is_remote: whether the proxies of the environment are used. The embedded Airflow is on the loopback interface.

    Example:
        with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
            api.unpause("backfill_flights")
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    is_remote: bool = False
    _client: "httpx.Client" = field(init=False, repr=False)

    def __enter__(self) -> Self:
        """Log in. Raises AirflowRefused: no Airflow answers at the URL, or it does not have the account."""
        import httpx  # takes 0.2 s, and most decisions on the command line ask no Airflow

        # On the loopback interface, proxies and .netrc files of the machine are ignored.
        self._client = httpx.Client(base_url=self.url.rstrip("/"), timeout=_TIMEOUT_S, trust_env=self.is_remote)
        token = self.token
        if not token:
            answer = self._ask("POST", "/auth/token", {"username": self.user, "password": self.password})
            token = answer["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._client.close()

    def has_dag(self, dag_id: str) -> bool:
        """Return whether the DAG processor has parsed this DAG."""
        return any(dag["dag_id"] == dag_id for dag in self._ask("GET", "/api/v2/dags?limit=500")["dags"])

    def import_errors(self) -> Mapping[str, str]:
        """Return DAG file -> traceback, for the files that could not be imported."""
        errors = self._ask("GET", "/api/v2/importErrors?limit=100")["import_errors"]
        return {error["filename"]: error["stack_trace"] for error in errors}

    def add_pool(self, name: str, description: str) -> None:
        """Make a pool with one slot. A pool that exists keeps its slots."""
        body = {"name": name, "slots": 1, "description": description, "include_deferred": False}
        try:
            self._ask("POST", "/api/v2/pools", body)
        except AirflowRefused as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise

    def unpause(self, dag_id: str) -> None:
        """Let the runs of a DAG start. Airflow starts no run of a paused DAG, and reports no error for its backfill."""
        self._ask("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a DAG with these params, and return the id of the DAG run."""
        body = {"logical_date": None, "conf": dict(conf)}
        run_id: str = self._ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"]
        return run_id

    def create_backfill(self, dag_id: str, first: datetime, last: datetime) -> int:
        """Start a backfill of Airflow: one DAG run for each logical date in `[first, last]`. Return its id."""
        body = {
            "dag_id": dag_id,
            "from_date": first.isoformat(),
            "to_date": last.isoformat(),
            "max_active_runs": 1,
            "reprocess_behavior": "none",
        }
        backfill_id: int = self._ask("POST", "/api/v2/backfills", body)["id"]
        return backfill_id

    def dag_run(self, dag_id: str, run_id: str) -> DagRunState:
        return _dag_run(self._ask("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"))

    def dag_runs(self, dag_id: str) -> Sequence[DagRunState]:
        """Return the runs of a DAG, at most 500. The oldest interval comes first."""
        answer = self._ask("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=500&order_by=run_after")
        return [_dag_run(run) for run in answer["dag_runs"]]

    def clear_gate(self, dag_id: str, run_id: str) -> None:
        """Clear the failed gate of a DAG run and the tasks after it. A gate that has not failed is left alone."""
        self._ask("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", gate_clearing(run_id))

    def tasks(self, dag_id: str, run_id: str) -> Sequence[TaskState]:
        answer = self._ask("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        return [
            TaskState(task_id=task["task_id"], state=task["state"], try_number=task["try_number"])
            for task in answer["task_instances"]
        ]

    def submit(self, path: str, fields: Mapping[str, Any]) -> str:
        """Send a form to one of Hindcast's pages, as a browser does, and return the path of the page that follows.

        Raises AirflowRefused: the page refuses what was entered. The message has its text.
        """
        answer = self._send("POST", path, data=dict(fields), headers={"Accept": "text/html"})
        if not answer.has_redirect_location:
            raise AirflowRefused(
                f"Airflow at {self.url} refused POST {path}: {answer.status_code} {answer.text[:2000]}"
            )
        return answer.headers["location"]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> _Fields:
        quoted = path.replace("+", "%2B")  # a run id has a time zone, whose + means a space in a URL
        answer = self._send(method, quoted, json=body)
        request, status = f"{method} {path}", answer.status_code
        if answer.is_error:
            reason = f"{status} {answer.text[:2000]}"
            raise AirflowRefused(f"Airflow at {self.url} refused {request}: {reason}", status=status)
        if answer.has_redirect_location:
            to = f"{answer.headers['location']}; give the address that it redirects to"
            raise AirflowRefused(f"Airflow at {self.url} redirects {request} to {to}", status=status)
        try:
            content = answer.json(object_hook=_Fields)
        except ValueError:
            content = None
        if not isinstance(content, _Fields):
            text = f"{status} {answer.text[:200]}"
            raise AirflowRefused(f"{self.url} did not answer {request} as Airflow does: {text}", status=status)
        return content

    def _send(self, method: str, path: str, **content: Any) -> "httpx.Response":  # noqa: ANN401 - of httpx
        import httpx

        try:
            return self._client.request(method, path, **content)
        except httpx.HTTPError as error:
            raise AirflowRefused(f"Airflow at {self.url} does not answer {method} {path}: {error!r}") from error


def gate_clearing(run_id: str) -> dict[str, Any]:
    """Return the body of the call that clears the failed gate of a DAG run and the tasks after it."""
    return {
        "dry_run": False,
        "dag_run_id": run_id,
        "task_ids": ["gate"],
        "include_downstream": True,
        "only_failed": True,
        "reset_dag_runs": True,
    }


def _dag_run(fields: Mapping[str, Any]) -> DagRunState:
    return DagRunState(
        run_id=fields["dag_run_id"],
        state=fields["state"],
        run_type=fields["run_type"],
        interval_start=_instant(fields["data_interval_start"]),
        interval_end=_instant(fields["data_interval_end"]),
    )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
