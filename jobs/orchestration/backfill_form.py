"""The form of a backfill by hand: its fields, the range that empty fields mean, and what is wrong with an input.

The plan task reads the form, and so does the API server before it creates a DAG run. The messages use the titles of the
form (`From`, `To`, `Reason`), and each of them has the input that would be right.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jobs.orchestration.range_problems import range_problem
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.slices import (
    check_range,
    next_slice,
    parse_bound,
    previous_slice,
    show_ms,
    slice_at,
    slice_grid,
    slices_between,
)
from jobs.plain_text import shortened
from jobs.runs import Slice
from windowlib.errors import InvariantBroken, RangeError, RequestError

if TYPE_CHECKING:
    from jobs.orchestration.open_ranges import OpenRange
    from jobs.planning.chains import ChainGap
    from jobs.planning.workspace import IfOpen, Workspace  # a DAG file that is parsed does not import deltalake

FIELDS: Final = ("from", "to", "reason", "publish", "fresh", "if_open", "replaces", "request")
IF_OPEN_TEXTS: Final = {
    "refuse": "do not start, and name it",
    "replace": "replace it: it is closed, and its valid runs are used again",
    "wait": "wait until it has ended",
}
"""What becomes of a backfill if another open request has slices of its range, as the form tells it."""
MAX_REASON: Final = 500
_REQUEST: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
BOUND_TEXTS: Final = {
    "from": "The first slice of the range. Empty: the first slice that readers do not see.",
    "to": "The slice after the last slice of the range. Empty: the range ends with the last complete slice.",
}
"""What the form tells about the two ends of the range."""


class Problem(NamedTuple):
    """Why an input of the form is not valid, in one sentence or two, and the field that it is about."""

    text: str
    field: str


class FormError(RequestError):
    """The input of the form is not valid. `problems` has one for each field that is wrong.

    `open_ranges` are the open requests that have slices of the range, if nothing else is wrong.
    """

    def __init__(self, *problems: Problem, open_ranges: "Sequence[OpenRange]" = ()) -> None:
        super().__init__(" ".join(one.text for one in problems))
        self.problems = problems
        self.open_ranges = tuple(open_ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayableRange:
    """The first and the last slice of the log that can be replayed now. `gap` is the first that readers do not see."""

    first: Slice
    last: Slice
    gap: Slice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillForm:
    """A valid input of the form. The range is half-open, and its bounds are edges of slices.

    `replaces` are the open requests that the person has seen and wants to replace; None: any.
    `request` is the open request that the DAG run continues, with its own range; None: the DAG run opens one.
    """

    from_ms: int
    to_ms: int
    reason: str
    publish: bool
    is_fresh: bool
    if_open: "IfOpen"
    replaces: frozenset[str] | None = None
    request: str | None = None


def replayable_range(work: "Workspace") -> ReplayableRange | None:
    """Return the slices that can be replayed now; None if the log has no complete slice with records.

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    view, grid = work.ledger.view(), slice_grid(work.pipeline)
    log = work.log_state(view, ())
    first, last, now_ms = log.first_data, log.last_data, work.ledger.now_ms()
    while last is not None and last.end_ms > now_ms:
        last = previous_slice(grid, last)
    if first is None or last is None or last.start_ms < first.start_ms:
        return None
    gap: Slice | None = first
    while gap is not None and gap.slice_id in view.published:
        gap = next_slice(grid, gap)
    return ReplayableRange(first=first, last=last, gap=gap if gap and gap.start_ms <= last.start_ms else None)


def read_form(
    pipeline: Pipeline,
    given: Mapping[str, Any],
    *,
    now_ms: int,
    replayable: Callable[[], ReplayableRange | None],
) -> BackfillForm:
    """Return the content of the form.

    Args:
        pipeline: the pipeline.
        given: the fields of the form, as in the configuration of a DAG run.
        now_ms: the current time.
        replayable: reads the slices that can be replayed. It is called if `from` or `to` is empty.

    Raises:
        FormError: a field is wrong, or unknown.
    """
    from jobs.planning.workspace import IfOpen

    problems = [_unknown(key) for key in given if key not in FIELDS]
    reason = given.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        why = "Reason is empty. Write why the range is replayed: the ledger stores it with your name."
        problems.append(Problem(why, "reason"))
    elif len(reason) > MAX_REASON:
        why = f"Reason has {len(reason):,} characters. At most {MAX_REASON} are allowed."
        problems.append(Problem(why, "reason"))
    flags = {name: given.get(name, name == "publish") for name in ("publish", "fresh")}
    problems += [
        Problem(f"{name.capitalize()} is {shortened(repr(value))}. Allowed are true and false.", name)
        for name, value in flags.items()
        if not isinstance(value, bool)
    ]
    if_open, replaces = given.get("if_open") or IfOpen.REFUSE.value, given.get("replaces")
    if if_open not in IF_OPEN_TEXTS:
        allowed = f"Allowed are {', '.join(IF_OPEN_TEXTS)}."
        problems.append(Problem(f"If open is {shortened(repr(if_open))}. {allowed}", "if_open"))
    if replaces is not None and not _is_ids(replaces):
        problems.append(Problem("Replaces is not a list of ids of requests.", "if_open"))
    request = given.get("request")
    if request is not None and not (isinstance(request, str) and _REQUEST.fullmatch(request)):
        text = f"Request is {shortened(repr(request))}. It must be the whole id of an open request, or empty."
        problems.append(Problem(text, "request"))
    try:
        from_ms, to_ms = _range(pipeline, given, now_ms=now_ms, replayable=replayable)
    except FormError as error:
        raise FormError(*problems, *error.problems) from None
    if problems:
        raise FormError(*problems)
    return BackfillForm(
        from_ms=from_ms,
        to_ms=to_ms,
        reason=str(reason).strip(),
        publish=flags["publish"],
        is_fresh=flags["fresh"],
        if_open=IfOpen(if_open),
        replaces=None if replaces is None else frozenset(replaces),
        request=request,
    )


def checked_form(work: "Workspace", given: Mapping[str, Any], *, now_ms: int) -> BackfillForm:
    """Return the content of the form if its range can be replayed now. `replaces` has the open requests of its range.

    Raises:
        FormError: a field is wrong; other requests are open; the data have not arrived; or the chain cannot begin.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    form = read_form(work.pipeline, given, now_ms=now_ms, replayable=lambda: replayable_range(work))
    if form.request is not None:  # it has its own range, and the plan task asks the ledger for it
        return form
    in_range = check_open(work, form)
    check_log_end(work, form)
    if not in_range or form.if_open.value != "wait":
        check_chain(work, form)
    return form if form.replaces is not None else replace(form, replaces=frozenset(in_range))


def check_open(work: "Workspace", form: BackfillForm) -> tuple[str, ...]:
    """Check that no other open request has slices of the range, or that the form tells what becomes of it.

    Returns:
        The ids of the open requests in the range, which the form replaces or waits for.

    Raises:
        FormError: another request has slices of the range, and the form neither replaces it nor waits for it; or a held
            request for this very range would be held again, because the log has not changed.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    from jobs.orchestration.open_ranges import RangeTaken, check_range_is_free, in_the_way, refuse_without_work
    from jobs.planning.plan import Ask
    from jobs.planning.workspace import Asked, IfOpen

    view = work.ledger.view()
    asked = Asked(
        from_ms=form.from_ms, to_ms=form.to_ms, who="", reason="", is_fresh=form.is_fresh, if_open=form.if_open,
        replaces=form.replaces,
    )  # fmt: skip
    resumed = None
    try:
        resumed = check_range_is_free(work, view, asked)
        if resumed is not None:
            slices = slices_between(work.pipeline, form.from_ms, form.to_ms)
            planned = work.plan(view, Ask(slices=slices, is_fresh=form.is_fresh, request_id=resumed))
            refuse_without_work(work, view, asked, resumed=resumed, planned=planned)
    except RangeTaken as error:
        if form.if_open is not IfOpen.WAIT:
            raise FormError(Problem(_sentence(str(error)), "if_open"), open_ranges=error.open_ranges) from None
    return tuple(one.request_id for one in in_the_way(work, view, asked) if one.request_id != resumed)


def check_log_end(work: "Workspace", form: BackfillForm) -> None:
    """Check that the data of the range have arrived: a later slice has a record, or `log.ready` says so.

    Raises:
        FormError: slices at the end of the range have no record, and no later slice has one. It has the right input.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    from jobs.planning.readiness import ready_prefix

    pipeline, grid = work.pipeline, slice_grid(work.pipeline)
    view = work.ledger.view()
    last = work.log_state(view, ()).last_data
    slices = slices_between(pipeline, form.from_ms, form.to_ms)
    late = tuple(one for one in slices if last is None or one.start_ms > last.start_ms)
    if late and pipeline.log.ready is not None:
        late = late[len(ready_prefix(work, view, late, log=work.log_state(view, late)).slices) :]
    if not late:
        return
    which = late[0].slice_id if len(late) == 1 else f"{late[0].slice_id} to {late[-1].slice_id}"
    has, not_there = (
        f"The log {pipeline.log.table} has",
        f"so {which} {'has' if len(late) == 1 else 'have'} not arrived",
    )
    if last is None:
        raise FormError(Problem(f"{has} no record, {not_there}.", "to"))
    right = f"Right would be From {show_ms(grid, form.from_ms)}, To {show_ms(grid, late[0].start_ms)}."
    if late[0].start_ms <= form.from_ms:
        right = f"The latest To is {show_ms(grid, late[0].start_ms)}."
    problem = f"To {show_ms(grid, form.to_ms)}: {has[0].lower()}{has[1:]} no record after {last.slice_id}, {not_there}."
    raise FormError(Problem(f"{problem} {right}", "to"))


def check_chain(work: "Workspace", form: BackfillForm, *, request_id: str | None = None) -> None:
    """Check that the chain can begin with the first slice of a form.

    Args:
        work: the workspace of the pipeline.
        form: a valid form.
        request_id: the request of the DAG run, if it has one already. Its own runs count.

    Raises:
        FormError: the slice before the range has no published run of the same spec. It has the input that is right.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    from jobs.planning.chains import ChainError, chain_before

    view, first = work.ledger.view(), slice_at(slice_grid(work.pipeline), form.from_ms)
    log = work.log_state(view, ())
    try:
        chain_before(work.pipeline, view, log, first=first, is_fresh=form.is_fresh, request_id=request_id)
    except ChainError as error:
        raise FormError(Problem(_chain_problem(work, error.gap, form), "from")) from None


def _chain_problem(work: "Workspace", gap: "ChainGap", form: BackfillForm) -> str:
    grid, staged = slice_grid(work.pipeline), ""
    if gap.staged_by:
        request = gap.staged_by[-1]
        staged = (
            f" Request {request.request_id} of {request.who} ({shortened(request.reason)}) has {gap.before.slice_id} "
            "staged. If it has ended, publish it on its page (Hindcast, Requests), and trigger this backfill again."
        )
    right = f"From {show_ms(grid, gap.nearest.start_ms)}, To {show_ms(grid, form.to_ms)}"
    would_be = f"Otherwise right would be {right}, and If open replace" if staged else f"Right would be {right}"
    return (
        f"From {show_ms(grid, form.from_ms)}: {gap.why}.{staged} {would_be}. Or set Fresh: a new chain then begins at "
        "From, and its windows do not contain earlier records."
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _is_ids(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)


def _unknown(key: str) -> Problem:
    hint = did_you_mean(key, FIELDS).removeprefix("; ")
    suggestion = f" {hint[0].upper()}{hint[1:]}" if hint else ""
    return Problem(f"The form has no field {shortened(key)!r}.{suggestion} Its fields are {', '.join(FIELDS)}.", key)


def _range(
    pipeline: Pipeline,
    given: Mapping[str, Any],
    *,
    now_ms: int,
    replayable: Callable[[], ReplayableRange | None],
) -> tuple[int, int]:
    from_ms, to_ms = (_bound(pipeline, name, given.get(name)) for name in ("from", "to"))
    if from_ms is None or to_ms is None:
        found = replayable()
        if found is None:
            raise FormError(
                Problem(f"The log {pipeline.log.table} has no complete slice that could be replayed.", "from")
            )
        to_ms = found.last.end_ms if to_ms is None else to_ms
        if from_ms is None and found.gap is None:
            again = f"From is empty, and readers see every slice up to {found.last.slice_id}."
            raise FormError(Problem(f"{again} To replay slices again, give From and To.", "from"))
        if from_ms is None and found.gap is not None:
            from_ms = found.gap.start_ms
    if from_ms is None:
        raise InvariantBroken("a range without a start was not refused; please report this")
    problem = range_problem(slice_grid(pipeline), from_ms, to_ms, now_ms=now_ms)
    if problem is not None:
        raise FormError(Problem(problem, "to" if problem.startswith(("To ", "Slice ")) else "from"))
    try:
        check_range(pipeline, from_ms, to_ms, now_ms=now_ms)
    except RequestError as error:
        raise FormError(Problem(f"From and To: {error}.", "from")) from None
    return from_ms, to_ms


def _bound(pipeline: Pipeline, name: str, value: object) -> int | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise FormError(Problem(f"{name.capitalize()} is {shortened(repr(value))}. It must be a date or a time.", name))
    try:
        return parse_bound(pipeline, value)
    except RangeError as error:
        raise FormError(Problem(f"{name.capitalize()}: {error}.", name)) from None
