"""The form of a backfill by hand: its fields, the range that empty fields mean, and what is wrong with an input.

The plan task reads the form, and so does the API server before it creates a DAG run. The messages use the titles of the
form (`From`, `To`, `Reason`), and each of them has the input that would be right.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.slices import (
    SliceGrid,
    check_range,
    last_edge_ms,
    next_slice,
    parse_bound,
    previous_slice,
    show_instant,
    show_ms,
    slice_at,
    slice_grid,
)
from jobs.plain_text import shortened
from jobs.runs import Slice
from windowlib.errors import RangeError, RequestError

if TYPE_CHECKING:
    from jobs.ledger.provenance import DagRunOrigin
    from jobs.planning.request_context import Asked, IfOpen, RequestContext  # a parsed DAG file has no deltalake
    from jobs.review.pages.state import OpenRequest


FIELDS: Final = ("from", "to", "reason", "publish", "fresh", "if_open", "replaces", "request", "ledger_version")
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

    `open_requests` are the open requests that have slices of the range, if nothing else is wrong.
    """

    def __init__(self, *problems: Problem, open_requests: "Sequence[OpenRequest]" = ()) -> None:
        super().__init__(" ".join(problem.text for problem in problems))
        self.problems = problems
        self.open_requests = tuple(open_requests)


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
    `ledger_version` is the version of the ledger that the person has seen; None: not known.
    """

    from_ms: int
    to_ms: int
    reason: str
    publish: bool
    is_fresh: bool
    if_open: "IfOpen"
    replaces: frozenset[str] | None = None
    request: str | None = None
    ledger_version: int | None = None

    def asked(self, *, who: str = "", lease_id: str | None = None, origin: "DagRunOrigin | None" = None) -> "Asked":
        """Return the content of the request, with the DAG run that asks, if one does."""
        from jobs.planning.request_context import Asked

        return Asked(
            from_ms=self.from_ms, to_ms=self.to_ms, reason=self.reason, is_fresh=self.is_fresh, if_open=self.if_open,
            replaces=self.replaces, request_id=self.request, who=who, lease_id=lease_id, origin=origin,
        )  # fmt: skip


def replayable_range(work: "RequestContext") -> ReplayableRange | None:
    """Return the slices that can be replayed now; None if the log has no complete slice with records.

    Raises LogError, SpecError: the log is missing or does not fit the pipeline.
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
    pipeline: Pipeline, given: Mapping[str, Any], *, now_ms: int, replayable: Callable[[], ReplayableRange | None]
) -> BackfillForm:
    """Return the content of the form.

    `given` are the fields of the form, as in the configuration of a DAG run. `replayable` reads the slices that can be
    replayed. It is called if `from` or `to` is empty.
    Raises FormError: a field is wrong, or unknown.
    """
    from jobs.planning.request_context import IfOpen

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
    problems += _of_ledger(given)
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
        request=given.get("request"),
        ledger_version=given.get("ledger_version"),
    )


def _of_ledger(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with the fields that name requests and a version of the ledger."""
    replaces, request, version = (given.get(name) for name in ("replaces", "request", "ledger_version"))
    if replaces is not None and not _is_ids(replaces):
        yield Problem("Replaces is not a list of ids of requests.", "if_open")
    if request is not None and not (isinstance(request, str) and _REQUEST.fullmatch(request)):
        text = f"Request is {shortened(repr(request))}. It must be the whole id of an open request, or empty."
        yield Problem(text, "request")
    if version is not None and type(version) is not int:
        yield Problem(f"Ledger version is {shortened(repr(version))}. It must be a whole number.", "ledger_version")


def _is_ids(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)


def _unknown(key: str) -> Problem:
    hint = did_you_mean(key, FIELDS).removeprefix("; ")
    suggestion = f" {hint[0].upper()}{hint[1:]}" if hint else ""
    return Problem(f"The form has no field {shortened(key)!r}.{suggestion} Its fields are {', '.join(FIELDS)}.", key)


def _range(
    pipeline: Pipeline, given: Mapping[str, Any], *, now_ms: int, replayable: Callable[[], ReplayableRange | None]
) -> tuple[int, int]:
    from_ms, to_ms = (_bound(pipeline, name, given.get(name)) for name in ("from", "to"))
    if from_ms is None or to_ms is None:
        span = replayable()
        if span is None:
            raise FormError(
                Problem(f"The log {pipeline.log.table} has no complete slice that could be replayed.", "from")
            )
        to_ms = span.last.end_ms if to_ms is None else to_ms
        if from_ms is None:
            if span.gap is None:
                again = f"From is empty, and readers see every slice up to {span.last.slice_id}."
                raise FormError(Problem(f"{again} To replay slices again, give From and To.", "from"))
            from_ms = span.gap.start_ms
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


def range_problem(grid: SliceGrid, from_ms: int, to_ms: int, *, now_ms: int) -> str | None:
    """Return what is wrong with a range, and the range that would be right; None if it is right."""
    least_ms, most_ms = min(from_ms, to_ms), max(from_ms, to_ms) + (from_ms == to_ms)
    wrong = _order_problem(grid, from_ms, to_ms) or _edge_problem(grid, from_ms, to_ms)
    wrong = wrong or _outside(grid, from_ms, to_ms, now_ms=now_ms)
    return None if wrong is None else f"{wrong} {_right(grid, least_ms, most_ms, now_ms=now_ms)}"


def _order_problem(grid: SliceGrid, from_ms: int, to_ms: int) -> str | None:
    if from_ms == to_ms:
        return f"From and To are both {show_ms(grid, from_ms)}, so the range is empty: To is not included."
    if from_ms > to_ms:
        return f"To {show_ms(grid, to_ms)} is before From {show_ms(grid, from_ms)}."
    return None


def _edge_problem(grid: SliceGrid, from_ms: int, to_ms: int) -> str | None:
    for name, bound_ms in (("From", from_ms), ("To", to_ms)):
        if bound_ms != last_edge_ms(grid) and slice_at(grid, bound_ms).start_ms != bound_ms:
            inside = slice_at(grid, bound_ms).slice_id
            return f"{name} {show_ms(grid, bound_ms)} is inside slice {inside}, not at one of its ends."
    return None


def _outside(grid: SliceGrid, from_ms: int, to_ms: int, *, now_ms: int) -> str | None:
    if grid.first_ms is not None and from_ms < grid.first_ms:
        return f"From {show_ms(grid, from_ms)} is before the first slice, {show_ms(grid, grid.first_ms)}."
    if grid.last_ms is not None and to_ms > slice_at(grid, grid.last_ms).end_ms:
        return f"To {show_ms(grid, to_ms)} is after the end of the last slice, {show_ms(grid, grid.last_ms)}."
    if to_ms > _end_ms(grid, now_ms):
        last = slice_at(grid, to_ms - 1)
        return f"Slice {last.slice_id} is not over before {show_instant(last.end_ms)}."
    return None


def _right(grid: SliceGrid, from_ms: int, to_ms: int, *, now_ms: int) -> str:
    """Return the range that is nearest to a wrong one, as a sentence."""
    end_ms = _end_ms(grid, now_ms)
    first_ms = from_ms if grid.first_ms is None else max(from_ms, grid.first_ms)
    first_ms = slice_at(grid, first_ms).start_ms
    last = slice_at(grid, to_ms - 1)
    last_ms = min(last.end_ms, end_ms)
    if first_ms < last_ms:
        return f"Right would be From {show_ms(grid, first_ms)}, To {show_ms(grid, last_ms)}."
    least = "" if grid.first_ms is None else f"The earliest From is {show_ms(grid, grid.first_ms)}. "
    return f"{least}The latest To is {show_ms(grid, end_ms)}."


def _end_ms(grid: SliceGrid, now_ms: int) -> int:
    """Return the end of the last slice that is over."""
    over_ms = slice_at(grid, now_ms).start_ms
    return over_ms if grid.last_ms is None else min(over_ms, slice_at(grid, grid.last_ms).end_ms)
