"""The messages to people about a pipeline, as plain data: what happened, to which slices, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jobs.ledger.view import LedgerView
from jobs.orchestration.gating import Gate
from jobs.orchestration.plan_outline import folded
from jobs.pipeline.slices import MAX_SLICES, local_midnight_ms, previous_slice, show_instant, slice_at, slice_grid
from jobs.plain_text import counted, escaped, shortened
from jobs.planning.workspace import Workspace, covers, is_live
from jobs.publishing.rules import describe_hold, listed, stop_reasons
from jobs.runs import Slice

MAX_REASONS = 10
MAX_ERROR = 500


class Event(Enum):
    """What a message is about."""

    FAILED = "failed"
    HELD = "held"
    NOT_PUBLISHED = "not published"


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
        """The whole message."""
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
    slices = tuple(one.slice_id for one in gate.held)
    reasons = [f"{one.slice_id}: {reason}" for one in gate.held for reason in one.reasons]
    return _alert(
        Event.HELD,
        pipeline,
        f"{counted(len(slices), 'slice')} held",
        slices=slices,
        what=("Checks that failed:", *_listed(reasons)),
        to_do="Look at the slices. Then waive them with a reason, or correct the log and run again",
        url=url,
    )


def failed_alert(pipeline: str, *, task: str, dag_run: str, error: str, slices: Sequence[str], url: str) -> Alert:
    """Return the message on a task that has failed after its last retry."""
    return _alert(
        Event.FAILED,
        pipeline,
        f"task {task} failed",
        slices=tuple(slices),
        what=(f"Task {task} of {escaped(dag_run)} failed:", f"  {shortened(escaped(error), MAX_ERROR)}"),
        to_do="Correct the cause, then clear the task in Airflow: it continues after the last staged slice",
        url=url,
    )


def overdue_alert(work: Workspace, *, url: str) -> Alert | None:
    """Return the message that readers do not see all slices of the days before today; None if they see them.

    Today is the day of the ledger's clock in the time zone of the slices.

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    view = work.ledger.view()
    missing = _overdue(work, view)
    if not missing:
        return None
    slices = tuple(one.slice_id for one in missing)
    return _alert(
        Event.NOT_PUBLISHED,
        work.pipeline.name,
        f"{folded(slices)} not visible to readers",
        slices=slices,
        what=(
            f"Readers do not see these slices at {show_instant(work.ledger.now_ms() // 1000 * 1000)}:",
            *_why(work, view, missing),
        ),
        to_do="Open the page: it shows what the slices wait for",
        url=url,
    )


def _alert(
    event: Event, pipeline: str, subject: str, *, slices: tuple[str, ...], what: tuple[str, ...], to_do: str, url: str
) -> Alert:
    which = listed(slices) if slices else "not known"
    lines = (f"Pipeline: {pipeline}", f"Slices: {which}", *what, f"What to do: {to_do}.")
    return Alert(event=event, pipeline=pipeline, subject=f"{pipeline}: {subject}", lines=lines, url=url, slices=slices)


def _listed(reasons: Sequence[str]) -> tuple[str, ...]:
    more = (f"  … and {len(reasons) - MAX_REASONS} more",) if len(reasons) > MAX_REASONS else ()
    return (*(f"  {escaped(one)}" for one in reasons[:MAX_REASONS]), *more)


def _overdue(work: Workspace, view: LedgerView) -> tuple[Slice, ...]:
    """Return the slices that end before today and that readers do not see, oldest first: those after the last seen."""
    grid = slice_grid(work.pipeline)
    log = work.log_state(view, ())
    midnight_ms = local_midnight_ms(grid, work.ledger.now_ms())
    one: Slice | None = slice_at(grid, midnight_ms - 1)
    if grid.last_ms is not None and one is not None and one.start_ms > grid.last_ms:
        one = slice_at(grid, grid.last_ms)
    first_ms = log.first_data.start_ms if log.first_data is not None else None
    if grid.first_ms is not None and first_ms is None:
        first_ms = grid.first_ms
    found: list[Slice] = []
    while one is not None and one.slice_id not in view.published and len(found) < MAX_SLICES:
        if first_ms is None or one.start_ms < first_ms:
            break
        found.append(one)
        one = previous_slice(grid, one)
    return tuple(reversed(found))


def _why(work: Workspace, view: LedgerView, missing: Sequence[Slice]) -> tuple[str, ...]:
    """Return what the slices wait for, as far as the ledger knows it."""
    if view.hold is not None:
        return _listed([describe_hold(view.hold)])
    wanted = {one.slice_id for one in missing}
    found: list[str] = []
    for request in view.open_requests():
        runs = [view.run(run_id) for slice_id, run_id in request.runs.items() if slice_id in wanted]
        held = [run for run in runs if not run.is_publishable]
        found += [f"{run.result.slice.slice_id}: {reason}" for run in held for reason in stop_reasons(run)]
        if not held and any(covers(request, one) for one in missing):
            state = "is replaying them" if is_live(work, request) else "has staged them, and nobody works on it"
            found.append(f"request {request.request_id} ({request.who}) {state}")
    return _listed(found or ["no request has replayed them; perhaps the DAG is paused, or the log has no new records"])
