"""How far a decision is: the state of its DAG run, and of the DAG runs that it lets go on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobs.airflow_ui.decide.airflow import UNDER_WAY, UsersAirflow
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView

Outcome = Literal["waiting", "working", "made", "refused", "failed"]
MAX_RUNS = 20
_TITLES: Mapping[Outcome, str] = {
    "waiting": "The decision waits for Airflow's scheduler",
    "working": "The decision is being made",
    "made": "The decision is made",
    "refused": "The decision was refused",
    "failed": "The decision has failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRun:
    """A DAG run that waited for the decision, and its state now. None: it was deleted."""

    origin: DagRunOrigin
    state: str | None
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A decision as its page shows it.

    `dag_id` and `run_id` name the DAG run that makes it. `started` is as Airflow writes it, and `given` are the params.
    `steps` are (task, state, what it has done), in order. `refused` tells why it was refused; empty if it was not.
    `runs` are the DAG runs that waited for it.
    """

    dag_id: str
    run_id: str
    outcome: Outcome
    who: str
    started: str
    given: Mapping[str, Any]
    steps: tuple[tuple[str, str, str], ...]
    refused: str
    runs: tuple[StoppedRun, ...]

    @property
    def title(self) -> str:
        return _TITLES[self.outcome]

    @property
    def refresh_s(self) -> int | None:
        """After how many seconds the page loads again; None: nothing changes any more."""
        goes_on = self.outcome in {"waiting", "working"} or any(run.state in UNDER_WAY for run in self.runs)
        return 2 if goes_on else None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What was decided: name and value of each param that is set, besides the slices."""
        words = {"action": str(self.given.get("action", "")).replace("_", " ")}
        given = ((name, words.get(name, str(value))) for name, value in self.given.items() if name != "slices")
        return tuple((name.replace("_", " "), text) for name, text in given)

    @property
    def waived(self) -> tuple[tuple[str, str, str], ...]:
        """The slices that the decision waives: slice, run and reason. Anybody may start the DAG with any params."""
        common = self.given.get("reason") or ""
        return tuple(
            (str(waived.get("slice_id", "")), str(waived.get("run_id", "")), str(waived.get("reason") or common))
            for waived in _dicts(self.given.get("slices"))
        )

    @property
    def request_id(self) -> str | None:
        """The request, if the decision is on one."""
        request_id = self.given.get("request_id")
        return request_id if isinstance(request_id, str) else None


async def progress_of(airflow: UsersAirflow, view: LedgerView, *, dag_id: str, run_id: str) -> Progress:
    """Return how far a decision is. Raises Refused: Airflow does not show the DAG run to the user, or there is none."""
    run = await airflow.run(dag_id, run_id)
    states = await airflow.tasks(dag_id, run_id)
    refused, steps = "", []
    for task in ("decide", "publish", "clear_gate"):
        state = states.get(task)
        if state == "skipped":  # there was nothing to do for it
            continue
        done = await airflow.xcom(dag_id, run_id, task_id=task) if state == "success" else None
        if state in {"failed", "up_for_retry"} and not refused:
            refused = str(await airflow.xcom(dag_id, run_id, task_id=task, key="refused") or "")
        steps.append((task, state or "waiting", _told(done)))
    given = run["conf"] if isinstance(run.get("conf"), dict) else {}
    return Progress(
        dag_id=dag_id,
        run_id=run_id,
        outcome=_outcome(str(run["state"]), refused=refused),
        who=str(run.get("triggering_user_name") or ""),
        started=str(run.get("start_date") or run.get("queued_at") or ""),
        given=given,
        steps=tuple(steps),
        refused=refused,
        runs=await _stopped(airflow, view, given),
    )


async def _stopped(airflow: UsersAirflow, view: LedgerView, given: Mapping[str, Any]) -> tuple[StoppedRun, ...]:
    if str(given.get("action")) not in {"publish", "waive_and_publish"}:
        return ()
    request = view.requests.get(str(given.get("request_id")))
    chosen = {str(chosen_slice.get("slice_id")) for chosen_slice in _dicts(given.get("slices"))}
    stopped: list[StoppedRun] = []
    for origin in request.origins if request is not None else ():
        if len(stopped) < MAX_RUNS and (not chosen or chosen & set(origin.slice_ids)):
            state = await airflow.state(origin.dag_id, origin.run_id)
            is_paused = state in UNDER_WAY and await airflow.is_paused(origin.dag_id)
            stopped.append(StoppedRun(origin=origin, state=state, is_paused=is_paused))
    return tuple(stopped)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _outcome(state: str, *, refused: str) -> Outcome:
    match state:
        case "queued":
            return "waiting"
        case "running":
            return "working"
        case "success":
            return "made"
        case _:
            return "refused" if refused else "failed"


def _told(done: object) -> str:
    """Return what a task has done: the sentence of its result, or the DAG runs that it has cleared."""
    if isinstance(done, dict):
        return str(done.get("why", ""))
    if isinstance(done, list):
        return f"cleared {', '.join(map(str, done))}"
    return ""
