"""Judges what no run alone shows, and records it in the ledger: changed settled windows, slices that have not arrived.

The judgement compares rows, so it is made outside of the ledger's write. It names its basis: the rule, the runs that
readers see, and the runs of the request. A publication needs a judgement with the basis of the view that it changes. So
if another request is published in between, the request is judged again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from jobs.durations import format_duration
from jobs.ledger.events import LedgerEvent, judged_event
from jobs.ledger.ledger import Decide
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.models.publish import SettledGrammar
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.planning.chains import newly_shown
from jobs.planning.request_context import RequestContext
from jobs.planning.stored_spec import settled_rule
from jobs.publishing.chain_rules import run_of_former_spec
from jobs.publishing.rules import NO_RULE, is_ready, settled_basis
from jobs.runs import ARRIVAL, BORDER, SETTLED, CheckResult, Verdict

if TYPE_CHECKING:
    from jobs.comparing.settled import SettledChange

CHECK: Final = "settled_windows"
ARRIVED: Final = "slice_has_arrived"
UNBROKEN: Final = "windows_over_the_border"
MAX_TRIES: Final = 20


def is_due(work: RequestContext, view: LedgerView, request: Request) -> bool:
    """Return whether a request has to be judged before it can be published: it is complete, and its basis is new."""
    return settled_basis(work, view, request).is_outdated and is_ready(work, view, request)


def judge_request(work: RequestContext, request_id: str) -> LedgerView:
    """Judge a request if that is due, and return the newest view. Without the rule, this costs one read of the ledger.

    Raises:
        StoreError: rows cannot be read, or differ from those that were written.
        SpecError: a column of the rule has no numbers.
    """
    view = work.ledger.view()
    for _ in range(MAX_TRIES):
        request = view.requests.get(request_id)
        if request is None or not is_due(work, view, request):
            break
        view = work.ledger.write(_recording(work, request_id, view))
    return view


def _recording(work: RequestContext, request_id: str, judged: LedgerView) -> Decide:
    """Judge a request in a view. Return what records the judgement, unless its basis has changed since."""
    basis = settled_basis(work, judged, judged.requests[request_id]).now
    event = judged_event(request_id, basis or NO_RULE, judged_checks_of(work, judged, judged.requests[request_id]))

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        request = view.requests[request_id]
        is_same = settled_basis(work, view, request).now == basis
        return [event] if is_same and is_due(work, view, request) else []

    return decide


def judged_checks_of(work: RequestContext, view: LedgerView, request: Request) -> Mapping[str, tuple[CheckResult, ...]]:
    """Return run id -> a failed check if its slice has not arrived, and a check if it changes a settled window.

    The first run of an adoption has a check of its border.
    """
    judged = newly_shown(view, request)  # the judgement of a run that readers see stays what it is
    checks: dict[str, tuple[CheckResult, ...]] = {
        run_id: (_not_arrived(slice_id, request.unarrived[slice_id]),) if slice_id in request.unarrived else ()
        for slice_id, run_id in judged.items()
    }
    before = run_of_former_spec(view, request)
    if before is not None and checks:
        first = next(iter(checks))
        checks[first] = (*checks[first], _at_border(work, view, request, before=before))
    rule = settled_rule(work.pipeline, request)
    if rule is None or not view.published or not checks:
        return checks
    from jobs.comparing.settled import Settled, settled_change  # imports Arrow and numpy
    from jobs.comparing.views import request_sides

    newest_ms = max(view.slices[slice_id].end_ms for slice_id in view.published)
    settled = Settled(until_ms=newest_ms - rule.after_ms, columns=tuple(rule.change_at_most.columns))
    sides = request_sides(view, request.request_id)
    change = settled_change(work.lake, work.pipeline.name, sides, settled=settled)
    for slice_id in change.by_slice:
        run_id = judged.get(slice_id, [*checks][-1])
        checks[run_id] = (*checks[run_id], _of_settled(rule, change, slice_id))
    return checks


def _at_border(work: RequestContext, view: LedgerView, request: Request, *, before: StagedRun) -> CheckResult:
    from jobs.comparing.border import border_change  # imports Arrow

    change, first = border_change(work.lake, view, request.request_id, before=before), min(request.runs)
    demand = f"readers lose no window, and see no record twice, where the slices of the new spec begin ({first})"
    names, arguments = (BORDER, UNBROKEN), {"demand": demand}
    if isinstance(change, str):
        observed = {"note": f"no way to know: {change}"}
        return _check(first, names, observed=observed, arguments=arguments, is_right=False)
    note = f"{counted(change.lost, 'window')} lost for good, {counted(change.repeated, 'window')} with repeated records"
    is_right = not change.lost and not change.repeated
    return _check(first, names, observed={**asdict(change), "note": note}, arguments=arguments, is_right=is_right)


def _check(
    slice_id: str, names: tuple[str, str], *, observed: Mapping[str, Any], arguments: Mapping[str, Any], is_right: bool
) -> CheckResult:
    """Return a critical check. `names` are those of its table and of itself. It has a `demand` and a `note`."""
    return CheckResult(
        slice_id=slice_id,
        table=names[0],
        check=names[1],
        severity="critical",
        verdict=Verdict.PASS if is_right else Verdict.FAIL,
        observed=json.dumps(observed, sort_keys=True),
        arguments=json.dumps(arguments, sort_keys=True),
        message=f"{arguments['demand']}: found {observed['note']}",
    )


def exceeds(rule: SettledGrammar, change: "SettledChange") -> bool:
    """Return whether a publication changes more of the settled windows than the rule allows."""
    limits = rule.change_at_most
    if limits.share is not None and change.share > limits.share:
        return True
    return any(change.column_share(name) > most for name, most in limits.columns.items())


def _not_arrived(slice_id: str, finding: str) -> CheckResult:
    """Return the failed check of a slice that is overdue. `finding` is what is known of it: `0 records 12 h …`."""
    demand = "the slice has arrived (log.ready, then: hold)"
    names, observed, arguments = (ARRIVAL, ARRIVED), {"note": finding}, {"demand": demand}
    return _check(slice_id, names, observed=observed, arguments=arguments, is_right=False)


def _of_settled(rule: SettledGrammar, change: "SettledChange", slice_id: str) -> CheckResult:
    count = change.by_slice[slice_id]
    columns = {name: change.column_share(name) for name in rule.change_at_most.columns}
    observed = {
        "changed_in_slice": count,
        "changed": change.changed,
        "seen": change.seen,
        "share": _plain(change.share),
        "columns": {name: _plain(part) for name, part in columns.items()},
        "windows": [*change.windows[slice_id]],
    }
    words = [f"{change.changed:,} of {counted(change.seen, 'window')} ({_percent(change.share)})"]
    words += [f"{name} by {_percent(part)}" for name, part in columns.items()]
    named = "; ".join(change.windows[slice_id])
    note = f"{', '.join(words)}; {count:,} of these windows in this slice, such as {named}"
    demand = _demand(rule, change.until_ms)
    limits = rule.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _check(
        slice_id,
        (SETTLED, CHECK),
        observed=observed | {"note": note},
        arguments=limits | {"demand": demand},
        is_right=not exceeds(rule, change),
    )


def _demand(rule: SettledGrammar, until_ms: int) -> str:
    limits = rule.change_at_most
    parts = [] if limits.share is None else [f"at most {_percent(limits.share)} of the windows may change"]
    parts += [f"{name} may change by at most {_percent(part)} of its sum" for name, part in limits.columns.items()]
    return (
        f"of the windows that ended by {show_instant(until_ms)} ({format_duration(rule.after_ms)} before the end of "
        f"the newest slice that readers see), {' and '.join(parts)}"
    )


def _percent(part: float) -> str:
    return f"{100 * part:,.3g} %"


def _plain(part: float) -> float | str:
    return part if part < float("inf") else "inf"
