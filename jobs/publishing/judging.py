"""Judges what no run alone shows, and records it in the ledger: changed settled windows, slices that have not arrived.

The judgement compares rows, so it is made outside of the ledger's write. It names its basis: the rule, the runs that
readers see, and the runs of the request. A publication needs a judgement with the basis of the view that it changes. So
if another request is published in between, the request is judged again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from jobs.durations import format_duration
from jobs.ledger.events import LedgerEvent, judged_event
from jobs.ledger.view import LedgerView, Request
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.publish import SettledGrammar
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext
from jobs.publishing.chain_rules import specs_at_border
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
        view = work.ledger.write(_Recording(work, request_id, view))
    return view


class _Recording:
    """Records a judgement that was made in a view, unless its basis has changed since."""

    def __init__(self, work: RequestContext, request_id: str, view: LedgerView) -> None:
        self._work, self._request_id = work, request_id
        request = view.requests[request_id]
        self._basis = settled_basis(work, view, request).now
        self._event = judged_event(request_id, self._basis or NO_RULE, judged_checks_of(work, view, request))

    def __call__(self, view: LedgerView) -> Sequence[LedgerEvent]:
        request = view.requests[self._request_id]
        is_same = settled_basis(self._work, view, request).now == self._basis
        return [self._event] if is_same and is_due(self._work, view, request) else []


def judged_checks_of(work: RequestContext, view: LedgerView, request: Request) -> Mapping[str, tuple[CheckResult, ...]]:
    """Return run id -> a failed check if its slice has not arrived, and a check if it changes a settled window.

    The first run of an adoption has a check of its border.
    """
    checks: dict[str, tuple[CheckResult, ...]] = {
        run_id: (_not_arrived(slice_id, request.unarrived[slice_id]),) if slice_id in request.unarrived else ()
        for slice_id, run_id in request.runs.items()
        if view.published.get(slice_id) != run_id  # the judgement of a run that readers see stays what it is
    }
    specs = specs_at_border(view, request)
    if specs and checks:
        first = next(iter(checks))
        checks[first] = (*checks[first], _at_border(work, view, request, specs=specs))
    rule = work.pipeline.publish.settled if work.pipeline.publish is not None else None
    if rule is None or not view.published or not checks:
        return checks
    from jobs.comparing.settled import Settled, settled_change  # imports Arrow and numpy
    from jobs.comparing.views import request_sides

    newest_ms = max(view.slices[slice_id].end_ms for slice_id in view.published)
    settled = Settled(until_ms=newest_ms - rule.after_ms, columns=tuple(rule.change_at_most.columns))
    sides = request_sides(view, request.request_id)
    change = settled_change(work.lake, work.pipeline.name, sides, settled=settled)
    for slice_id in change.by_slice:
        run_id = request.runs.get(slice_id)
        judged = run_id if run_id in checks else [*checks][-1]  # the publication may also end a repair at other slices
        checks[judged] = (*checks[judged], _check(rule, change, slice_id))
    return checks


def _at_border(work: RequestContext, view: LedgerView, request: Request, *, specs: Sequence[Pipeline]) -> CheckResult:
    from jobs.comparing.border import border_change  # imports Arrow

    change, first = border_change(work.lake, view, request.request_id, specs=specs), min(request.runs)
    note = f"{counted(change.lost, 'window')} lost for good, {counted(change.repeated, 'window')} with repeated records"
    demand = f"readers lose no window, and see no record twice, where the slices of the new spec begin ({first})"
    is_right = not change.lost and not change.repeated
    return CheckResult(
        slice_id=first,
        table=BORDER,
        check=UNBROKEN,
        severity="critical",
        verdict=Verdict.PASS if is_right else Verdict.FAIL,
        observed=json.dumps({**asdict(change), "note": note}, sort_keys=True),
        arguments=json.dumps({"demand": demand}, sort_keys=True),
        message=f"{demand}: found {note}",
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
    return CheckResult(
        slice_id=slice_id,
        table=ARRIVAL,
        check=ARRIVED,
        severity="critical",
        verdict=Verdict.FAIL,
        observed=json.dumps({"note": finding}, sort_keys=True),
        arguments=json.dumps({"demand": demand}, sort_keys=True),
        message=f"{demand}: found {finding}",
    )


def _check(rule: SettledGrammar, change: "SettledChange", slice_id: str) -> CheckResult:
    count = change.by_slice[slice_id]
    columns = {name: change.column_share(name) for name in rule.change_at_most.columns}
    observed = {
        "changed_in_slice": count,
        "changed": change.changed,
        "seen": change.seen,
        "share": _plain(change.share),
        "columns": {name: _plain(part) for name, part in columns.items()},
        "windows": list(change.windows),
    }
    words = [f"{change.changed:,} of {counted(change.seen, 'window')} ({_percent(change.share)})"]
    words += [f"{name} by {_percent(part)}" for name, part in columns.items()]
    note = f"{', '.join(words)}; {count:,} of these windows in this slice, such as {'; '.join(change.windows)}"
    demand = _demand(rule, change.until_ms)
    limits = rule.model_dump(mode="json", by_alias=True, exclude_none=True)
    return CheckResult(
        slice_id=slice_id,
        table=SETTLED,
        check=CHECK,
        severity="critical",
        verdict=Verdict.FAIL if exceeds(rule, change) else Verdict.PASS,
        observed=json.dumps(observed | {"note": note}, sort_keys=True),
        arguments=json.dumps(limits | {"demand": demand}, sort_keys=True),
        message=f"{demand}: found {note}",
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
