"""The spec of the published chain: the schedule uses it until a person adopts the pipeline file.

The ledger stores the pipeline of each request, and not the code of its functions. After an edit of a function, or an
upgrade of Hindcast that computes other rows or refuses the spec, it is lost: nothing may be computed in its name.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Final

from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.chains import CODE_CHANGED, adoption, begins_chain
from jobs.planning.request_context import RequestContext
from jobs.planning.spec_changes import fingerprint_now, in_one_sentence, spec_changes
from jobs.planning.stored_spec import stored_pipeline
from jobs.reading.log_places import log_place
from jobs.runs import Slice
from windowlib.errors import HindcastError, RequestError, SpecError

FORMER_SPEC: Final = "the published chain goes on with another spec since it was opened"
"""Why a proposed restatement is closed by a publication, or a restatement is neither replayed nor published."""
LOST: Final = "a function or Hindcast itself has changed since it was opened"
"""Why a request, such as a proposal, cannot be replayed, and why a repair was closed that nobody has declined."""


def is_lost(work: RequestContext, request: Request) -> bool:
    """Return whether the spec of a request cannot be computed any more."""
    return fingerprint_now(stored_pipeline(work.pipeline, request)) != request.spec_fingerprint


def replaced_since(view: LedgerView, request: Request, *, end_ms: int | None) -> tuple[str, ...]:
    """Return the slices of which the published chain has other runs than when a request was opened.

    They are those up to `end_ms`, from the warm-up of the request or else from its range on.
    """
    then, from_ms = view.published_at(request.opened_seq), request.from_ms
    first_ms = from_ms if request.warm_up is None else request.warm_up.first.start_ms
    return tuple(
        slice_id
        for slice_id, run_id in view.published.items()
        if (first_ms or 0) <= view.slices[slice_id].start_ms < (end_ms or 0)
        and view.chain_run_id(then.get(slice_id, "")) != view.chain_run_id(run_id)
    )


def of_other_spec_since(view: LedgerView, seq: int, names: Iterable[str], *, spec: str) -> tuple[str, ...]:
    """Return those of some slices of which the published chain got a run of another spec after a ledger version.

    The spec that readers saw at that version does not count: that of the slice, or of the head for a new slice. A
    request of another spec is to replace it.
    """
    since = takewhile(lambda past: past.seq > seq, reversed(view.publications))
    shown = {name for past in since for name in past.changes}
    if not shown:
        return ()  # `names` may read every slice
    shown.intersection_update(names)
    runs = {name: view.chain_run_id(id_) for name, id_ in view.published.items() if name in shown}
    other = {name: view.past_run(id_).result.spec_fingerprint for name, id_ in runs.items()}
    other = {name: published for name, published in other.items() if published != spec}
    then = view.published_at(seq) if other else {}
    head = max(then, key=lambda name: view.slices[name].end_ms, default="")
    return tuple(
        name for name, published in other.items() if published != _chain_spec(view, then.get(name) or then.get(head))
    )


def _chain_spec(view: LedgerView, run_id: str | None) -> str | None:
    """Return the spec of the run of the chain, for a run that readers saw once; None if the ledger has no such run."""
    run = view.known_run(view.chain_run_id(run_id or ""))
    return None if run is None else run.result.spec_fingerprint


def why_replaced(view: LedgerView, repair: Request) -> str:
    """Return that slices of a late repair, or of its warm-up, were published again since it was opened; else empty."""
    replaced = replaced_since(view, repair, end_ms=repair.to_ms)
    return f"slices were published again after it was opened, first {replaced[0]}" if replaced else ""


def why_not_replayed(work: RequestContext, view: LedgerView, request: Request) -> str:
    """Return why a request, such as a proposal, is not to be replayed any more; empty if it may be."""
    if is_lost(work, request):
        return LOST
    if request.is_repair:
        return why_replaced(view, request)
    return FORMER_SPEC if is_of_former_spec(view, request) else ""


def is_of_former_spec(view: LedgerView, request: Request) -> bool:
    """Return whether a request is a restatement that would undo an adoption.

    A restatement has the spec of the published chain.
    """
    is_restatement, head = request.kind is RequestKind.RESTATEMENT, view.head
    return is_restatement and head is not None and head.result.spec_fingerprint != request.spec_fingerprint


def why_lost(work: RequestContext, view: LedgerView) -> str:
    """Return why the context of `on_published_spec` cannot compute the published chain any more; empty if it can."""
    head = view.head
    why = "" if head is None else why_uncomputable(work, head.result.spec_fingerprint)
    if head is None or not why:
        return ""
    name = work.pipeline.name
    fresh = f", or a new chain, which has no earlier records (`hindcast run {name} --from .. --to .. --fresh`)"
    fresh = "" if work.pipeline.may_have_restart_point else fresh
    return (
        f"the published chain of pipeline {name} is spec {head.result.spec_fingerprint[:12]}, and {why}. Restore what "
        f"has changed, or {going_on(work.pipeline, why)}{fresh}"
    )


def why_stopped(work: RequestContext, view: LedgerView) -> str:
    """Return why the published chain cannot go on: it is lost (`why_lost`), or its suite is refused; else empty."""
    why = why_lost(work, view)
    if not why and work.pipeline.quality is not None:
        from jobs.planning.suites import suite_fingerprint  # the other functions need no suite

        try:
            suite_fingerprint(work.pipeline)
        except SpecError as error:
            return f"nothing is replayed until the suite is right: {error}"
    return why


def going_on(pipeline: Pipeline, why: str, *, first: str | None = None) -> str:
    """Return how a chain that cannot be computed any more goes on, from a slice or the head on."""
    file = "the pipeline file" if why == CODE_CHANGED else "a pipeline file that fits"
    return f"go on with {file}: {adoption(pipeline, first)}"


def why_uncomputable(work: RequestContext, spec: str) -> str:
    """Return why the pipeline of a context cannot be computed as a spec any more; empty if it can.

    One with users' functions is not compiled: pages and the schedule import no code of users.
    """
    if fingerprint_now(work.pipeline) != spec:
        return CODE_CHANGED
    if work.pipeline.functions():
        return ""
    from jobs.planning.event_times import log_engine  # imports Arrow, and most commands compile nothing

    refusing = "the log does not fit"
    try:
        log = log_place(work.lake, work.pipeline).open()
        validate_against_schema(work.pipeline, log.columns)
        refusing = "this version of Hindcast does not accept"
        log_engine(work.pipeline, log)
    except SpecError as error:
        return f"{refusing} that spec any more ({error})"
    except HindcastError:  # the log, or the ledger of the pipeline whose table it is, is damaged: its reader tells it
        return ""
    return ""


def refuse_lost(work: RequestContext, view: LedgerView) -> None:
    """Raise a RequestError if the published chain cannot be computed any more (`why_lost`)."""
    if why := why_lost(work, view):
        raise RequestError(why)


def _slices(stored: Pipeline, now: Pipeline) -> SliceGrammar:
    """Return how a stored spec cuts the log, from the first to the last slice of the file if both cut it alike."""
    own, given = stored.log.slice, now.log.slice
    return own.model_copy(update={"first": given.first, "last": given.last}) if own.cut == given.cut else own


def on_published_spec(work: RequestContext, view: LedgerView | None = None) -> tuple[RequestContext, tuple[str, ...]]:
    """Return the context with the spec of the published chain, and a warning if the pipeline file differs from it.

    The chain is that of `view`; None: of the newest view.
    When a slice counts as complete, which slices there are, and what becomes of changed slices and late records, is
    told by the file: `log.ready`, `log.slice.first` and `last` (unless it cuts the log in another way), `schedule`,
    `restate`, `repair`, and what `stored_pipeline` takes from it. Requests are stored with its `alerts`, which are used
    while it is broken. No log is read: `why_lost` tells whether the spec can still be computed.
    """
    view = view or work.ledger.view()
    head = view.head
    try:
        spec = spec_fingerprint(work.pipeline)
    except SpecError as error:  # a function is gone; pages and alerts go on
        return work, (str(error),)
    if head is None or head.result.spec_fingerprint == spec:
        return work, ()
    request = view.requests.get(head.request_id)
    if request is None:
        return work, ()
    stored = stored_pipeline(work.pipeline, request)
    changes = in_one_sentence(spec_changes(stored, work.pipeline, spec=head.result.spec_fingerprint))
    rules = {key: getattr(work.pipeline, key) for key in ("restate", "repair", "alerts", "schedule")}
    own = {"slice": _slices(stored, work.pipeline), "ready": work.pipeline.log.ready}
    log = stored.log.model_copy(update=own)
    checks = "" if stored.quality == work.pipeline.quality else ", and has the checks of its `quality` from then on"
    warning = (
        f"{work.pipeline.source} is spec {spec[:12]}, but the published chain is spec "
        f"{head.result.spec_fingerprint[:12]} ({changes}). The chain goes on with the file after "
        f"{adoption(work.pipeline)}{checks}"
    )
    return replace(work, pipeline=stored.model_copy(update={"log": log, **rules})), (warning,)


def chain_ends(view: LedgerView, *, without: Collection[str] = ()) -> dict[str, Slice]:
    """Return the last slice of the published chain of each published slice, or the last before one of `without`."""
    ends: dict[str, Slice] = {}
    after: Slice | None = None
    for slice_id in reversed(list(view.published)):
        slice_ = view.slices[slice_id]
        goes_on = after is not None and after.start_ms == slice_.end_ms and after.slice_id not in without
        run = None if after is None else view.runs.get(view.chain_run_id(view.published[after.slice_id]))
        goes_on = goes_on and run is not None and not begins_chain(view, run)
        ends[slice_id] = ends[after.slice_id] if goes_on and after is not None else slice_
        after = slice_
    return ends


def was_begun_fresh(view: LedgerView, run: StagedRun) -> bool:
    """Return whether a person has begun a chain without earlier records at the slice of a run (`--fresh`)."""
    slice_id = run.result.slice.slice_id
    makers = {past.request_id for past in view.standing if past.changes.get(slice_id) is not None} | {run.request_id}
    return any(maker.is_fresh for maker in map(view.requests.get, filter(None, makers)) if maker is not None)
