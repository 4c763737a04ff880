"""The messages to people about a pipeline, as plain data: what happened, to which slices, and what to do.

`jobs.orchestration.deadlines` makes those of the DAG `alert_<name>`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jobs.folding import first_lines
from jobs.orchestration.gating import Gate
from jobs.plain_text import counted, escaped, shortened
from jobs.publishing.stop_reasons import listed, stop_reasons, what_to_do
from jobs.reading.verify import Verification

MAX_REASONS = 10
MAX_ERROR = 500


class Event(Enum):
    """What a message is about."""

    FAILED = "failed"
    HELD = "held"
    HELD_LONG = "held too long"
    NOT_THERE = "data not there"
    NOT_PUBLISHED = "not published"
    DIGEST = "digest"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One message. `subject` is one line; `lines` tell the pipeline, the slices, the reasons, and what to do."""

    event: Event
    pipeline: str
    subject: str
    lines: tuple[str, ...]
    url: str
    slices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join((*self.lines, self.url))

    def to_json(self) -> dict[str, Any]:
        """Return the message as plain data, for a webhook."""
        return {
            "event": self.event.value,
            "pipeline": self.pipeline,
            "subject": self.subject,
            "text": f"{self.subject}\n{self.text}",
            "slices": {"first": self.slices[0], "last": self.slices[-1], "count": len(self.slices)}
            if self.slices
            else None,
            "url": self.url,
        }


def held_alert(pipeline: str, gate: Gate, *, url: str) -> Alert:
    """Return the message on slices whose checks failed."""
    slices = tuple(run.result.slice.slice_id for run in gate.held)
    reasons = [f"{run.result.slice.slice_id}: {reason}" for run in gate.held for reason in stop_reasons(run)]
    return make_alert(
        Event.HELD,
        pipeline,
        f"{counted(len(slices), 'slice')} held",
        slices=slices,
        what=("Checks that failed:", *listed_lines(reasons)),
        to_do=what_to_do(run.verdict for run in gate.held),
        url=url,
    )


def failed_alert(pipeline: str, *, task: str, dag_run: str, error: str, slices: Sequence[str], url: str) -> Alert:
    """Return the message on a task that has failed after its last retry."""
    return make_alert(
        Event.FAILED,
        pipeline,
        f"task {task} failed",
        slices=tuple(slices),
        what=(f"Task {task} of {escaped(dag_run)} failed:", f"  {shortened(escaped(error), MAX_ERROR)}"),
        to_do="Correct the cause, then clear the task in Airflow: it continues after the last staged slice",
        url=url,
    )


def damaged_alert(report: Verification, *, to_do: str, url: str) -> Alert:
    """Return the message on stored rows or files that differ from what was written."""
    return make_alert(
        Event.DAMAGED,
        report.pipeline,
        f"{counted(len(report.findings), 'finding')} of damage",
        slices=report.mendable,
        what=("Stored rows differ from what was written:", *listed_lines([*map(str, report.findings)])),
        to_do=to_do,
        url=url,
    )


def make_alert(
    event: Event, pipeline: str, subject: str, *, slices: tuple[str, ...], what: tuple[str, ...], to_do: str, url: str
) -> Alert:
    """Return a message. `what` are the lines on what happened, and `to_do` is a sentence without its full stop."""
    which = listed(slices) if slices else "not known"
    lines = (f"Pipeline: {pipeline}", f"Slices: {which}", *what, f"What to do: {to_do}.")
    return Alert(event=event, pipeline=pipeline, subject=f"{pipeline}: {subject}", lines=lines, url=url, slices=slices)


def listed_lines(reasons: Sequence[str]) -> tuple[str, ...]:
    """Return the first reasons as lines, escaped, and how many more there are."""
    return tuple(f"  {escaped(line)}" for line in first_lines(reasons, MAX_REASONS))
