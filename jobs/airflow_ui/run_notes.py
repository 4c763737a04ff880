"""Writes the verdict of a DAG run into its note, which Airflow shows in the list of runs and on the page of the run.

A task cannot write the note of its run: the execution API of Airflow 3.3 reads notes, and sets one only when a run is
triggered. So the tasks leave the verdict in XCom, and this listener copies it when the scheduler ends the run, in the
transaction of the scheduler. A note of a person stays, above the verdict.
"""

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from jobs.review.links import VERDICT_KEY

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

MAX_NOTE = 1000
MARK = "Hindcast: "
"""How the part of a note begins that this listener wrote."""


@hookimpl
def on_dag_run_success(dag_run: "DagRun", msg: str) -> None:  # noqa: ARG001 - the name is Airflow's
    """Copy the verdict of a run that has succeeded."""
    _write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: "DagRun", msg: str) -> None:  # noqa: ARG001
    """Copy the verdict of a run that has failed."""
    _write_note(dag_run)


def _write_note(dag_run: "DagRun") -> None:
    """Write the note of a run of ours. A problem is logged: it must not stop the scheduler."""
    from sqlalchemy.orm import object_session

    try:
        session = object_session(dag_run)
        if session is None:
            return
        with session.no_autoflush:
            verdict = _verdict(session, dag_run)
            if verdict is not None:
                dag_run.note = note_with(dag_run.note, verdict)
    except Exception:
        log.exception("the verdict of DAG run %s of %s was not written into its note", dag_run.run_id, dag_run.dag_id)


def note_with(present: str | None, verdict: str) -> str:
    """Return the note of a run: what a person wrote, then the verdict. An earlier verdict is replaced."""
    persons = (present or "").partition(MARK)[0].rstrip()
    room = MAX_NOTE - (len(persons) + 2 if persons else 0)
    ours = f"{MARK}{verdict}"
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
