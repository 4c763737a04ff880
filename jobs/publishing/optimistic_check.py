"""The compare-and-set of decisions: a person decides on what they saw, and is refused if that has changed since.

The person saw the ledger at one version. Later events on other requests do not matter. Pure functions over two views.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.ledger.provenance import Decided
from jobs.ledger.publications import Publication
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted, escaped
from jobs.planning.chains import newly_shown
from jobs.publishing.stop_reasons import listed, stop_reasons
from jobs.runs import Verdict
from windowlib.errors import RequestError

MAX_TOLD = 8


class OutdatedDecision(RequestError):  # noqa: N818
    """What the person looked at has changed since. The message tells what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who decides.

    `who` is recorded in the ledger. A second call with the same `decision_id` finds that the decision has been made.
    `seen` is the ledger that the person looked at; None: the decision is not compared with anything. `tells`: the
    caller sends asset events for a publication, as a task of Airflow does.
    """

    who: str
    decision_id: str
    seen: LedgerView | None = None
    tells: bool = False


def check_seen_request(view: LedgerView, request_id: str, by: By) -> None:
    """Check that a request is as the person saw it.

    Raises OutdatedDecision: another person has decided on it, or its state or one of its runs has changed.
    """
    if by.seen is None:
        return
    before, now = by.seen.requests.get(request_id), view.requests.get(request_id)
    if now is None:
        return  # the decision itself refuses an unknown request
    if before is None:
        raise _outdated(by, [f"request {request_id} was opened by {now.who}"])
    changes = [
        *(_told(decided) for decided in _decided_since(view, by) if decided.request_id == request_id),
        *_changes(by.seen, view, before=before, now=now),
    ]
    if changes:
        raise _outdated(by, changes)


def check_seen_readers(view: LedgerView, request: Request, by: By) -> None:
    """Check that readers see what the person saw of the slices of which the publication of a request shows other runs.

    Raises OutdatedDecision: a publication or a rollback has shown another run of one of them.
    """
    if by.seen is None:
        return
    before = by.seen.published
    moved = [name for name in newly_shown(view, request) if before.get(name) != view.published.get(name)]
    if moved:
        newest = next(past for past in reversed(view.publications) if {*past.changes} & {*moved})
        raise _outdated(by, [f"readers see other runs of {listed(moved)}, because {_made(newest)}"])


def check_seen_run(view: LedgerView, run_id: str, by: By) -> None:
    """Check that a run is as the person saw it.

    Raises OutdatedDecision: its attempt, verdict, failed checks or waiver has changed.
    """
    if by.seen is None:
        return
    change = _change(by.seen.runs.get(run_id), view.runs.get(run_id))
    if change is not None:
        raise _outdated(by, [f"there is {change[1]}; it was {change[0]}"])


def check_seen_chain(view: LedgerView, by: By) -> None:
    """Check that publications and the hold of the chain are as the person saw them, for a rollback or its end.

    Raises OutdatedDecision: there was another publication, rollback or end of a hold.
    """
    if by.seen is None:
        return
    changes = [_told(decided) for decided in _decided_since(view, by) if decided.request_id is None]
    told = {decided.seq for decided in _decided_since(view, by) if decided.request_id is None}
    later = (past for past in view.publications if past.seq > by.seen.version and past.seq not in told)
    changes += map(_made, later)
    if changes:
        raise _outdated(by, changes)


def _decided_since(view: LedgerView, by: By) -> Iterator[Decided]:
    assert by.seen is not None
    for decided in view.decisions.values():
        if decided.seq > by.seen.version and decided.decision_id != by.decision_id:
            yield decided


def _made(publication: Publication) -> str:
    what = f"rolled publication {publication.undoes} back" if publication.is_rollback else "published"
    return f"{publication.who} {what} at {show_instant(publication.at_ms)} (publication {publication.seq})"


def _told(decided: Decided) -> str:
    reason = f": {decided.reason}" if decided.reason else ""
    return f"{decided.who} decided {decided.action} at {show_instant(decided.at_ms)}{reason}"


def _changes(seen: LedgerView, view: LedgerView, *, before: Request, now: Request) -> Iterator[str]:
    if before.state is not now.state:
        why = f" ({now.failure})" if now.failure else ""
        yield f"the request is {now.state.value}{why}; it was {before.state.value}"
    if before.changes != now.changes:
        yield f"the restatement was changed: {now.reason}"
    for slice_id in sorted(now.runs.keys() | before.runs.keys()):
        change = _change(_run(seen, before.runs.get(slice_id)), _run(view, now.runs.get(slice_id)))
        if change is not None:
            yield f"slice {slice_id} has {change[1]}; it had {change[0]}"


def _run(view: LedgerView, run_id: str | None) -> StagedRun | None:
    return None if run_id is None else view.runs.get(run_id)


def _change(seen: StagedRun | None, now: StagedRun | None) -> tuple[str, str] | None:
    """Return in words what the person saw and what there is now; None if a decision on both is the same one."""
    if _decided_on(seen) == _decided_on(now):
        return None
    was, is_now = _shown(seen), _shown(now)
    return was, is_now if is_now != was else f"{is_now}, by checks with other arguments"


def _decided_on(run: StagedRun | None) -> tuple[object, ...] | None:
    """Return what a decision depends on: the run, its attempt that counts, its verdict, failed checks and waiver.

    The texts of two checks may be equal, so the checks are compared and not the texts.
    """
    if run is None:
        return None
    failed = frozenset(
        (check.table, check.check, check.column, check.arguments, check.observed)
        for check in run.result.checks
        if check.verdict in {Verdict.FAIL, Verdict.ERROR}
    )
    return run.result.run_id, run.result.attempt_id, run.verdict, failed, run.waiver


def _shown(run: StagedRun | None) -> str:
    if run is None:
        return "no run"
    waived = "" if run.waiver is None else f", waived by {run.waiver.who} at {show_instant(run.waiver.at_ms)}"
    result = run.result
    is_stopped = run.verdict in {Verdict.FAIL, Verdict.ERROR}
    reasons = f" ({'; '.join(stop_reasons(run))})" if is_stopped else ""
    return f"run {result.run_id[:12]} (attempt {result.attempt_id[:12]}): {run.verdict.value}{reasons}{waived}"


def _outdated(by: By, changes: list[str]) -> OutdatedDecision:
    assert by.seen is not None
    told = "; ".join(escaped(change) for change in changes[:MAX_TOLD])
    more = f"; and {counted(len(changes) - MAX_TOLD, 'more change')}" if len(changes) > MAX_TOLD else ""
    return OutdatedDecision(
        f"since you looked (ledger version {by.seen.version}): {told}{more}. Your decision has changed nothing. "
        "Look again, and decide again if it is still needed"
    )
