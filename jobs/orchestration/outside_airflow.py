"""Decisions of the command line and Airflow: the DAG runs that still show the old state, and how they are cleared.

A decision on the command line changes the ledger only. The DAG run whose gate had failed stays red, and no asset event
is sent, until somebody clears its task `gate` with the tasks after it: the gate then passes, and the publish task sends
the events. HINDCAST_AIRFLOW_URL names an Airflow in which this is done at once.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from jobs.ledger.provenance import DagRunOrigin
from jobs.orchestration.dag_leases import release_ended
from jobs.orchestration.embedded.airflow_api import FINISHED_STATES, AirflowApi, AirflowRefused
from jobs.planning.request_context import RequestContext
from windowlib.errors import RequestError

URL, TOKEN, USER, PASSWORD = (
    "HINDCAST_AIRFLOW_URL",
    "HINDCAST_AIRFLOW_TOKEN",
    "HINDCAST_AIRFLOW_USER",
    "HINDCAST_AIRFLOW_PASSWORD",
)
NOT_FOUND = 404
WAIT_S = 300.0
POLL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What became of one DAG run. `state` is its state in Airflow after the wait; None if nothing was done."""

    run: DagRunOrigin
    state: str | None
    why: str

    @property
    def is_right(self) -> bool:
        """Whether Airflow shows the DAG run as it is."""
        return self.state == "success"


def airflow_of_environment() -> AirflowApi | None:
    """Return the Airflow that the environment names; None if it names none. Secrets come from the environment only.

    Raises RequestError: an address is given without a token, or an account with its password.
    """
    url = os.environ.get(URL, "").strip()
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise RequestError(f"{URL} must begin with http:// or https://, as https://airflow.example.com does")
    token, user, password = (os.environ.get(name, "") for name in (TOKEN, USER, PASSWORD))
    if not token and not (user and password):
        raise RequestError(f"{URL} is set, but neither {TOKEN} nor both {USER} and {PASSWORD} are")
    return AirflowApi(url=url, user=user, password=password, token=token, is_remote=True)


def clear_gates(
    airflow: AirflowApi,
    runs: Sequence[DagRunOrigin],
    *,
    wait_s: float = WAIT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Cleared]:
    """Clear the gate of each failed DAG run, wait until it ends, and yield what became of it.

    It raises nothing, because the publication has been made: `why` tells what Airflow has refused, also the login.
    """
    with ExitStack() as session:
        try:
            api = session.enter_context(airflow)
        except AirflowRefused as error:
            yield from (Cleared(run=run, state=None, why=str(error)) for run in runs)
            return
        for run in runs:
            try:
                state = api.dag_run(run.dag_id, run.run_id).state
                if state == "failed":
                    api.clear_gate(run.dag_id, run.run_id)
                    state = _end_of(api, run, wait_s=wait_s, sleep=sleep)
            except AirflowRefused as error:
                yield Cleared(run=run, state=None, why=str(error))
                continue
            yield Cleared(run=run, state=state, why=f"Airflow shows the DAG run as {state}")


def _end_of(api: AirflowApi, run: DagRunOrigin, *, wait_s: float, sleep: Callable[[float], None]) -> str:
    """Return the state of a DAG run when it ends, or after `wait_s`."""
    waited = 0.0
    while True:
        state = api.dag_run(run.dag_id, run.run_id).state
        if state in FINISHED_STATES or waited >= wait_s:
            return state
        sleep(POLL_S)
        waited += POLL_S


def free_ended(airflow: AirflowApi, work: RequestContext) -> tuple[str, ...]:
    """Release the leases of DAG runs that have ended in Airflow, and return one sentence for each.

    Raises:
        AirflowRefused: Airflow does not answer, or refuses the login.
        LedgerError: the ledger cannot be read or written.
    """

    def state(dag_id: str, run_id: str) -> str | None:
        try:
            return api.dag_run(dag_id, run_id).state
        except AirflowRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise LookupError(str(error)) from error

    with airflow as api:
        return release_ended(work, state)


def advice(runs: Sequence[DagRunOrigin]) -> Iterator[str]:
    """Yield what a person has to do in Airflow for DAG runs that still show the old state."""
    for run in runs:
        yield (
            f"Airflow has sent no asset event for {run.dag_id} {run.run_id}, and shows it as failed if its gate had "
            "failed. To mend both, open this DAG run in Airflow, choose its task `gate`, and clear it with "
            f"`Downstream`. Or set {URL} and {TOKEN}, and give this command again"
        )
