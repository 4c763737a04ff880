"""The decisions of a person: waive a failed run, roll a publication back, resume the chain."""

from collections.abc import Mapping, Sequence

from jobs.ledger.events import EventKind, LedgerEvent, slice_columns
from jobs.ledger.view import Hold, LedgerView, StagedRun
from jobs.pipeline.slices import slice_of_id
from jobs.planning.workspace import Workspace
from jobs.publishing.rules import Publication, describe_stop, listed
from jobs.runs import Slice, Verdict
from windowlib.errors import RequestError


def waive(work: Workspace, slice_id: str, *, reason: str, who: str, run_id: str | None = None) -> StagedRun:
    """Let a failed run of a slice pass, and return it. It is not published by this call.

    Args:
        work: the workspace of the pipeline.
        slice_id: the slice.
        reason: why the run may pass; the ledger stores it.
        who: the person.
        run_id: the run that the person has examined, or the first digits of its id. None: the newest staged run.

    Raises:
        RequestError: the reason is empty; no open request has the run; or the run did not fail. A run that passed needs
            no waiver, and a run whose checks broke cannot be waived.
    """
    if not reason.strip():
        raise RequestError("a waiver needs a reason that is not empty; the ledger stores it with your name")
    one = slice_of_id(work.pipeline, slice_id)
    looked_at = run_id or _run_to_waive(work, work.ledger.view(), one).result.run_id
    waived = looked_at

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal waived
        run = _run_to_waive(work, view, one, looked_at=looked_at)
        waived = run.result.run_id
        return [
            LedgerEvent(
                kind=EventKind.WAIVED,
                request_id=run.request_id,
                **slice_columns(one),
                run_id=waived,
                attempt_id=run.result.attempt_id,
                who=who,
                reason=reason.strip(),
            )
        ]

    return work.ledger.write(decide).run(waived)


def rollback(work: Workspace, publication: int, *, reason: str, who: str) -> Publication:
    """Show readers what they saw before a publication, and hold the chain until a person publishes or resumes.

    Args:
        work: the workspace of the pipeline.
        publication: the ledger version that names the publication. It must be the newest that is not rolled back.
        reason: the ledger stores it.
        who: the person.

    Raises:
        RequestError: the reason is empty, or there is a newer publication.
    """
    if not reason.strip():
        raise RequestError("a rollback needs a reason that is not empty; the ledger stores it with your name")
    changes: Mapping[str, str | None] = {}

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal changes
        changes = _undo(work, view, publication)
        return [
            LedgerEvent(
                kind=EventKind.ROLLED_BACK,
                **slice_columns(view.slices[slice_id]),
                run_id=run_id,
                attempt_id=view.run(run_id).result.attempt_id if run_id else None,
                who=who,
                reason=reason.strip(),
                details={"undoes": publication},
            )
            for slice_id, run_id in changes.items()
        ]

    view = work.ledger.write(decide)
    return Publication(
        request_id="",
        is_published=True,
        why=f"{len(changes)} slices are as before publication {publication}; the chain is held until a person "
        "publishes or resumes it",
        changed=tuple(changes),
        ledger_version=view.version,
    )


def resume(work: Workspace, *, reason: str, who: str) -> Hold:
    """End the hold after a rollback: the schedule again replays and publishes the slices after the published head.

    Returns:
        The hold that has ended.

    Raises:
        RequestError: the reason is empty, or the chain is not held.
    """
    if not reason.strip():
        raise RequestError("resuming needs a reason that is not empty; the ledger stores it with your name")
    ended: Hold | None = None

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal ended
        ended = view.hold
        if ended is None:
            raise RequestError(f"the chain of pipeline {work.pipeline.name} is not held, so there is nothing to resume")
        return [LedgerEvent(kind=EventKind.RESUMED, who=who, reason=reason.strip(), details={"ends": ended.seq})]

    work.ledger.write(decide)
    assert ended is not None, "decide() has raised"
    return ended


def _undo(work: Workspace, view: LedgerView, publication: int) -> dict[str, str | None]:
    """Return the changes that revert the newest publication that is not rolled back: slice -> run, or None."""
    standing = view.standing
    if not standing:
        raise RequestError(f"pipeline {work.pipeline.name} has no publication to roll back")
    newest = standing[-1]
    if newest.seq != publication:
        raise RequestError(
            f"publication {publication} of pipeline {work.pipeline.name} is not the newest that readers see. Only the "
            f"newest can be rolled back: publication {newest.seq}, by {newest.who}, of "
            f"{listed(tuple(newest.changes))}"
        )
    earlier = view.published_at(publication - 1)
    changed = newest.changes
    return {slice_id: earlier.get(slice_id) for slice_id in view.slices if slice_id in changed}


def _run_to_waive(work: Workspace, view: LedgerView, one: Slice, *, looked_at: str | None = None) -> StagedRun:
    """Return the run that a waiver is for: the one that the person has examined, else that of the newest request."""
    held = [request.runs[one.slice_id] for request in view.open_requests() if one.slice_id in request.runs]
    name = f"slice {one.slice_id} of pipeline {work.pipeline.name}"
    if not held:
        state = "is published" if view.published_run(one.slice_id) else "has no run"
        raise RequestError(f"{name} {state}, and no open request has a failed run of it; there is nothing to waive")
    chosen = held[-1:] if looked_at is None else [run_id for run_id in held if run_id.startswith(looked_at)]
    if not chosen:
        raise RequestError(
            f"the waiver names run {str(looked_at)[:12]} of {name}, but another run was staged since: "
            f"{held[-1][:12]} would be published now. Examine that run, and waive it if it may pass"
        )
    run = view.run(chosen[-1])
    if run.verdict is Verdict.ERROR:
        raise RequestError(
            f"{name} has the verdict error: {describe_stop(run)}. An error cannot be waived; run the slice again"
        )
    if run.verdict is not Verdict.FAIL:
        raise RequestError(f"{name} did not fail: its verdict is {run.verdict.value}; there is nothing to waive")
    if run.waiver is not None:
        raise RequestError(f"{name} is already waived, by {run.waiver.who}: {run.waiver.reason}")
    return run
