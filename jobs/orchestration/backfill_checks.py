"""What a valid form of a backfill still has to be checked against: open requests, the end of the log, and the chain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.orchestration.backfill_form import BackfillForm, FormError, Problem, read_form, replayable_range
from jobs.orchestration.open_ranges import RangeTaken, check_range_is_free, in_the_way, refuse_without_work
from jobs.pipeline.slices import show_ms, slice_at, slice_grid, slices_between
from jobs.plain_text import shortened, with_capital
from jobs.planning.chains import ChainError, ChainGap, chain_before
from jobs.planning.readiness import ready_prefix
from jobs.planning.request_context import IfOpen, RequestContext, with_cut_of
from jobs.planning.steps import Ask
from jobs.planning.suites import with_checks
from jobs.runs import Slice


def form_of(work: RequestContext, given: Mapping[str, Any], *, now_ms: int) -> BackfillForm:
    """Return the content of the form. A DAG run that continues a request has the slices of the request.

    Raises FormError: a field is wrong.
    """
    request_id = given.get("request")
    request = None if request_id is None else work.ledger.view().requests.get(str(request_id))
    cut = work if request is None else with_cut_of(work, request)
    return read_form(cut.pipeline, given, now_ms=now_ms, replayable=lambda: replayable_range(cut))


def checked_form(work: RequestContext, given: Mapping[str, Any], *, now_ms: int) -> BackfillForm:
    """Return the content of the form if its range can be replayed now. `replaces` has the open requests of its range.

    Raises:
        FormError: a field is wrong; other requests are open; the data have not arrived; or the chain cannot begin.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    form = form_of(work, given, now_ms=now_ms)
    if form.request is not None:  # it has its own range, and the plan task asks the ledger for it
        return form
    in_range = check_open(work, form)
    check_log_end(work, form)
    if not in_range or form.if_open is not IfOpen.WAIT:
        check_chain(work, form, request_id=form.request)
    return form if form.replaces is not None else replace(form, replaces=frozenset(in_range))


def check_open(work: RequestContext, form: BackfillForm) -> tuple[str, ...]:
    """Check that no other open request has slices of the range, or that the form tells what becomes of it.

    Returns the ids of the open requests in the range, which the form replaces or waits for.

    Raises:
        FormError: another request has slices of the range, and the form neither replaces it nor waits for it; or a held
            request for this very range would be held again, because neither the log nor the suite has changed.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    view, asked, resumed = work.ledger.view(), form.asked(), None
    try:
        resumed = check_range_is_free(work, view, asked)
        if resumed is not None:
            slices = slices_between(work.pipeline, form.from_ms, form.to_ms)
            planned = with_checks(work).plan(view, Ask(slices=slices, is_fresh=form.is_fresh, request_id=resumed))
            refuse_without_work(work, view, asked, resumed=resumed, planned=planned)
    except RangeTaken as error:
        if form.if_open is not IfOpen.WAIT:
            raise FormError(
                Problem(f"{with_capital(str(error))}.", "if_open"), open_requests=error.open_requests
            ) from None
    return tuple(request.request_id for request in in_the_way(work, view, asked) if request.request_id != resumed)


def check_log_end(work: RequestContext, form: BackfillForm) -> None:
    """Check that the data of the range have arrived: a later slice has a record, or `log.ready` says so.

    Raises:
        FormError: slices at the end of the range have no record, and no later slice has one. It has the right input.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    pipeline, grid = work.pipeline, slice_grid(work.pipeline)
    log = work.log_state(work.ledger.view(), ())
    last, late = log.last_data, log.after_data(slices_between(pipeline, form.from_ms, form.to_ms))
    late = late[_arrived(work, late) :]
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


def check_chain(work: RequestContext, form: BackfillForm, *, request_id: str | None = None) -> None:
    """Check that the chain can begin with the first slice of a form.

    `request_id` is the request of the DAG run, if it has one already. Its own runs count.

    Raises:
        FormError: the slice before the range has no published run of the same spec. It has the input that is right.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    view, first = work.ledger.view(), slice_at(slice_grid(work.pipeline), form.from_ms)
    log = work.log_state(view, ())
    try:
        chain_before(work.pipeline, view, log, first=first, is_fresh=form.is_fresh, request_id=request_id)
    except ChainError as error:
        raise FormError(Problem(_chain_problem(work, error.gap, form), "from")) from None


def _arrived(work: RequestContext, late: Sequence[Slice]) -> int:
    """Return how many of the slices after the last record have arrived: the first ones, as `log.ready` tells."""
    view = work.ledger.view()
    return len(ready_prefix(work, view, late, log=work.log_state(view, late)).slices) if late else 0


def _chain_problem(work: RequestContext, gap: ChainGap, form: BackfillForm) -> str:
    grid, staged = slice_grid(work.pipeline), ""
    if gap.staged_by:
        request = gap.staged_by[-1]
        staged = (
            f" Request {request.request_id} of {request.who} ({shortened(request.reason)}) has {gap.before.slice_id} "
            "staged. If it has ended, publish it on its page (Hindcast, Requests), and trigger this backfill again."
        )
    right = f"From {show_ms(grid, gap.nearest.start_ms)}, To {show_ms(grid, form.to_ms)}"
    would_be = f"Otherwise right would be {right}, and If open replace" if staged else f"Right would be {right}"
    warm_up = f" Or run `hindcast run {work.pipeline.name} --warm-up` for the range." if gap.is_warm_up else ""
    or_set = "Set" if gap.nearest == gap.first else f"{would_be}. Or set"
    if gap.adoption:
        or_set = f"Run {gap.adoption}, or restore that version. {or_set}"
    return (
        f"From {show_ms(grid, form.from_ms)}: {gap.why}.{staged} {or_set} Fresh: a new chain then begins at "
        f"From, and its windows do not contain earlier records.{warm_up}"
    )
