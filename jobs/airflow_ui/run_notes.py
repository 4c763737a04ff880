"""Writes the verdict of a DAG run into its note, which Airflow shows in the list of runs and on the page of the run.

A task cannot write the note of its run: the execution API of Airflow 3.3 reads notes, and sets one only when a run is
triggered. So the tasks leave the verdict in XCom, and this listener copies it when the scheduler ends the run, in the
transaction of the scheduler. A note of a person stays, above the verdict.

If a person marks a run as failed, Airflow calls the listener in the api-server. It then releases the request of the run
in the ledger, and the note tells who has stopped it and what was staged.
"""

import logging
import re
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from jobs.plain_text import escaped
from jobs.review.links import VERDICT_KEY
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

MAX_NOTE = 1000
MARK = "Hindcast: "
"""How the line of a note begins that this listener wrote."""
_OURS = re.compile(rf"^{MARK}.*\n*", re.MULTILINE)
_MARKUP = re.compile(r"[\\\[<]")
"""The characters with which a link, an image or an element begins. Airflow shows notes as Markdown."""
BY_HAND = "manually set"
"""Airflow's words in the message of a listener when a person has set a state, in the interface or by REST."""
_KINDS = frozenset({"replay", "backfill"})
_CALLS = ("patch_dag_run", "bulk_dag_runs", "patch_task_instance", "bulk_task_instances", "patch_task_group_instances")
"""The names in Airflow's audit log of the calls that set a state."""


@hookimpl
def on_dag_run_success(dag_run: "DagRun", msg: str) -> None:  # noqa: ARG001 - the name is Airflow's
    """Copy the verdict of a run that has succeeded."""
    _write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: "DagRun", msg: str) -> None:
    """Copy the verdict of a run that has failed. If a person has marked it as failed, release its request."""
    _write_note(dag_run, is_by_hand=BY_HAND in msg)


@hookimpl
def on_task_instance_failed(
    previous_state: object,  # noqa: ARG001
    task_instance: "TaskInstance",
    error: object,
) -> None:
    """Release the request of a run of which a person has marked a task as failed."""
    if not isinstance(error, str) or BY_HAND not in error:
        return
    from sqlalchemy.orm import object_session

    try:
        session = object_session(task_instance)
        if session is not None:
            _stop(session, task_instance.dag_id, task_instance.run_id)
    except Exception:
        log.exception("the request of DAG run %s was not released", task_instance.run_id)


def _write_note(dag_run: "DagRun", *, is_by_hand: bool = False) -> None:
    """Write the note of a run of ours. A problem is logged: it must not stop the scheduler."""
    from sqlalchemy.orm import object_session

    try:
        session = object_session(dag_run)
        if session is None:
            return
        verdict = _stop(session, dag_run.dag_id, dag_run.run_id) if is_by_hand else None
        with session.no_autoflush:
            verdict = verdict or _verdict(session, dag_run)
            if verdict is not None:
                dag_run.note = note_with(dag_run.note, verdict)
    except Exception:
        log.exception("the verdict of DAG run %s of %s was not written into its note", dag_run.run_id, dag_run.dag_id)


def _stop(session: "Session", dag_id: str, run_id: str) -> str | None:
    """Release the request of a DAG run that a person has stopped; return the verdict, None if it has no open request.

    It runs in the api-server. If the ledger cannot be written there, the lease ends as it does without a listener: with
    its process, by its age, or when a plan task finds that the DAG run has ended.
    """
    kind, _, name = dag_id.partition("_")
    if kind not in _KINDS:
        return None
    from jobs.airflow_ui.context import Site
    from jobs.orchestration.dag_leases import stop

    site = Site.of_environment()
    pipeline = site.pipeline(name)
    if pipeline is None:
        return None
    work = site.request_context(pipeline)
    try:
        return stop(work, (dag_id, run_id), who=_person(session, dag_id, run_id))
    except HindcastError as error:
        log.warning("the request of DAG run %s of %s was not released: %s", run_id, dag_id, escaped(error))
        return None


def _person(session: "Session", dag_id: str, run_id: str) -> str:
    """Return the user whose call changes a DAG run now: Airflow writes it into its audit log before the change."""
    from airflow.models.log import Log
    from sqlalchemy import or_, select

    query = (
        select(Log.owner)
        .where(Log.event.in_(_CALLS), Log.dag_id == dag_id, or_(Log.run_id == run_id, Log.run_id.is_(None)))
        .order_by(Log.dttm.desc())
        .limit(1)
    )
    return session.scalar(query) or "somebody"


def note_with(present: str | None, verdict: str) -> str:
    """Return the note of a run: what a person wrote, then the verdict. An earlier verdict is replaced.

    The verdict may have values of the log. It shows no link and no image.
    """
    persons = _OURS.sub("", present or "").rstrip()
    room = MAX_NOTE - (len(persons) + 2 if persons else 0)
    ours = MARK + _MARKUP.sub(r"\\\g<0>", verdict)
    if room < len(MARK) + 20:
        return persons
    ours = ours if len(ours) <= room else f"{ours[: room - 1]}…"
    return f"{persons}\n\n{ours}" if persons else ours


def _verdict(session: "Session", dag_run: "DagRun") -> str | None:
    """Return the newest verdict that a task of the run has left in XCom; None if there is none."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    query = (
        select(XComModel.value)
        .where(XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == VERDICT_KEY)
        .order_by(XComModel.timestamp.desc())
        .limit(1)
    )
    value: object = session.scalar(query)
    return value if isinstance(value, str) else None
