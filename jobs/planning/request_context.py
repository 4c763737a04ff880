"""What a request works on (pipeline, lake, ledger), and how a request is opened, shared and resumed."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind, LedgerEvent, closed_event
from jobs.ledger.leases import HANDOVER_MS, LEASE_MS, Holder, IsAlive, Lease, is_alive, this_process
from jobs.ledger.ledger import Ledger
from jobs.ledger.looks import changes_details
from jobs.ledger.provenance import DagRunOrigin, comment_details, origin_details
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState
from jobs.pipeline.files import pipeline_from_json, pipeline_to_json
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_at, slice_grid
from jobs.plain_text import shortened
from jobs.planning.chains import begins_chain
from jobs.planning.log_state import LogState, read_log_state
from jobs.planning.plan import Plan, make_plan
from jobs.planning.steps import Ask
from jobs.planning.stored_spec import stored_pipeline
from jobs.runs import LogCoordinates, Slice, WarmUp
from windowlib.errors import RequestError

SHOWN_ID: Final = 8


ReadLog = Callable[..., LogState]
"""`read_log_state`, or another function with its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """A pipeline, its lake and its ledger.

    `checks` is the suite's fingerprint. `holder` is the process that works; None for a task of a DAG run that only
    opens a request for later tasks. `lease_ms` is the length of the lease of a process. Tests replace `is_alive`,
    `new_id` and `read_log`.
    """

    pipeline: Pipeline
    lake: Lake
    ledger: Ledger
    checks: str | None = None
    new_id: Callable[[], str] = field(default=lambda: uuid.uuid4().hex)
    holder: Holder | None = field(default_factory=this_process)
    is_alive: IsAlive = is_alive
    lease_ms: int = LEASE_MS
    read_log: ReadLog = read_log_state

    def plan(self, view: LedgerView, ask: Ask) -> Plan:
        """Return the plan for a view of the ledger. The plan of a request that has a warm-up begins with it.

        The suites are those of the context, if `ask` names none.

        Raises:
            LogError, SpecError: as for `read_log_state`.
            LogError, RequestError: as for `make_plan`.
        """
        request = view.requests.get(ask.request_id or "")
        if ask.warm_up is None and request is not None and request.warm_up is not None:
            longer = Ask.of_range(ask.slices, pipeline=self.pipeline, warm_up=request.warm_up)
            ask = replace(ask, slices=longer.slices, warm_up=longer.warm_up, from_ms=longer.from_ms)
        if request is not None and request.is_candidate:
            ask = replace(ask, is_candidate=True)
        if ask.checks is None:
            ask = replace(ask, checks=self.checks)
        return make_plan(self.pipeline, view, self.log_state(view, ask.slices), ask=ask)

    def log_state(self, view: LedgerView, slices: Sequence[Slice], *, before: LogState | None = None) -> LogState:
        """Return the state of the log for a range of slices; raises as `read_log_state` does."""
        now_ms = self.ledger.now_ms()
        return self.read_log(self.pipeline, self.lake, slices, view=view, before=before, now_ms=now_ms)


def open_request_context(pipeline: Pipeline, lake: Lake, *, now_ms: Callable[[], int]) -> RequestContext:
    """Return the context of a pipeline. The first write to the ledger creates its table."""
    return RequestContext(pipeline=pipeline, lake=lake, ledger=Ledger(lake.ledger(pipeline.name), now_ms=now_ms))


class IfOpen(Enum):
    """What becomes of a request for a range, if another open request has slices of that range."""

    REFUSE = "refuse"  # it is refused, and the person decides
    REPLACE = "replace"  # it closes the open ones. Their runs are used again where they are valid
    WAIT = "wait"  # it begins when the open ones have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The content of a request before it is opened: a half-open range, a person or DAG run, a reason.

    If the ledger has the request `request_id`, that one is continued. The tasks of a DAG run, and their retries, share
    one `lease_id`; the request that they open has the same id, unless the ledger has it already. A process gets a new
    one. `origin` is the DAG run that asks, if one does.
    `replaces` are the ids of the open requests that the person has seen and wants to replace, and `resumes` of those
    that may be continued; None: any.
    `unarrived` maps slices that have not arrived, and that a person is to decide on, to what is known of them.
    `warm_up` are slices before the range, from which a chain begins in the middle of the log.
    """

    from_ms: int | None
    to_ms: int | None
    who: str
    reason: str
    kind: RequestKind = RequestKind.RANGE
    is_fresh: bool = False
    request_id: str | None = None
    lease_id: str | None = None
    origin: DagRunOrigin | None = None
    if_open: IfOpen = IfOpen.REFUSE
    replaces: frozenset[str] | None = None
    resumes: frozenset[str] | None = None
    unarrived: Mapping[str, str] = field(default_factory=dict)
    warm_up: WarmUp | None = None

    def is_own(self, request: Request) -> bool:
        """Return whether the asking DAG run has opened or joined a request in an earlier try."""
        return self.lease_id is not None and (
            request.request_id == self.lease_id or any(run.lease_id == self.lease_id for run in request.origins)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A request that the caller works on, and the caller's lease of it."""

    request_id: str
    lease_id: str


def find_resumable(work: RequestContext, view: LedgerView, asked: Asked) -> str | None:
    """Return the id of an open request with the same content and no other holder: a crash or a failed check left it.

    A request that is to replace the open ones resumes none of them but that of an earlier try.
    """
    if asked.request_id is not None and asked.request_id in view.requests:
        return asked.request_id
    spec = spec_fingerprint(work.pipeline)
    for request in reversed(view.open_requests(asked.kind)):
        if asked.if_open is IfOpen.REPLACE and not asked.is_own(request):
            continue
        if asked.resumes is not None and request.request_id not in asked.resumes:
            continue
        kind = request.is_fresh, request.unarrived, request.warm_up
        same = (request.from_ms, request.to_ms, *kind, request.spec_fingerprint)
        wanted = (asked.from_ms, asked.to_ms, asked.is_fresh, asked.unarrived, asked.warm_up, spec)
        if same == wanted and not _has_other_holder(work, request, asked):
            return request.request_id
    return None


def is_left_empty(work: RequestContext, request: Request, asked: Asked) -> bool:
    """Return whether an earlier try of the asking DAG run has opened a request, and was killed before it had a run."""
    is_empty = not request.runs and request.kind is not RequestKind.AIRFLOW_BACKFILL
    return is_empty and asked.is_own(request) and not _has_other_holder(work, request, asked)


def _has_other_holder(work: RequestContext, request: Request, asked: Asked) -> bool:
    return any(lease.lease_id != asked.lease_id for lease in holders(work, request))


def is_live(work: RequestContext, request: Request) -> bool:
    """Return whether a process or a DAG run works on a request now."""
    return bool(holders(work, request))


def holders(work: RequestContext, request: Request) -> tuple[Lease, ...]:
    """Return the leases of a request that are held now."""
    return request.holders(now_ms=work.ledger.now_ms(), is_alive=work.is_alive)


def refuse_other_holders(work: RequestContext, request: Request, *, lease_id: str | None) -> None:
    """Raise a RequestError if another holder works on a request than the one of a lease."""
    others = [lease for lease in holders(work, request) if lease.lease_id != lease_id]
    if others:
        who = ", ".join(str(lease.holder) if lease.holder else "a DAG run" for lease in others)
        raise RequestError(f"request {request.request_id} of pipeline {work.pipeline.name} is being worked on by {who}")


def is_overtaken(work: RequestContext, view: LedgerView, request: Request) -> bool:
    """Return whether a request was left after its begin, and the published chain has gone on without it.

    Nobody works on it, no person has stopped it or has to decide its checks, and it is not complete or leaves another
    state than the published slice after its range starts from.
    """
    is_left = request.is_open and not request.is_proposed and not is_live(work, request) and request.stopped_by is None
    if not is_left or request.to_ms is None or not all(view.run(id_).is_publishable for id_ in request.runs.values()):
        return False
    after = view.published_chain_run(slice_at(slice_grid(work.pipeline), request.to_ms).slice_id)
    if after is None or begins_chain(view, after):
        return False
    states = {view.run(id_).result.slice.end_ms: view.run(id_).result.state_after for id_ in request.runs.values()}
    return not request.is_complete or states.get(request.to_ms, after.result.state_before) != after.result.state_before


def not_in_upstream(work: RequestContext, view: LedgerView, *, staged: Collection[str] = ()) -> frozenset[str]:
    """Return the published and `staged` slices that the pipeline whose table is the log does not publish now."""
    if work.pipeline.log.pipeline is None:
        return frozenset()
    from jobs.reading.upstream_place import UpstreamPlace  # few pipelines need it

    return UpstreamPlace(lake=work.lake, pipeline=work.pipeline).lacking(view, {*view.published, *staged})


def declined_requests(view: LedgerView) -> dict[str, list[tuple[Request, str]]]:
    """Return slice -> the requests that a person has declined or rolled back, newest first, and why."""
    newest = {decided.request_id: decided for decided in view.decisions.values()}
    declined: dict[str, list[tuple[Request, str]]] = {}
    for request in reversed(list(view.requests.values())):
        decided, slices = newest.get(request.request_id), {*request.changes}
        if request.state is RequestState.ROLLED_BACK and not request.is_candidate:
            slices |= request.runs.keys()
            why = f"its restatement by request {request.request_id[:SHOWN_ID]} was rolled back"
        elif request.state is RequestState.CLOSED and decided is not None and decided.action == "cancel":
            why = shortened(decided.reason)
        else:
            continue
        for slice_id in slices:
            declined.setdefault(slice_id, []).append((request, why))
    return declined


def covers(request: Request, slice_: Slice) -> bool:
    """Return whether a slice is in the range of a request. Without a range: whether the request has begun the slice."""
    if request.from_ms is None or request.to_ms is None:
        return slice_.slice_id in request.slice_ids
    return request.from_ms <= slice_.start_ms < request.to_ms


MakeRoom = Callable[[LedgerView, str], Sequence[LedgerEvent]]
"""The ledger and the id of a new request -> the events that close others for it. It may refuse with a RequestError."""


def open_request(work: RequestContext, asked: Asked, *, make_room: MakeRoom = lambda _view, _request_id: ()) -> Opened:
    """Write a request with its spec into the ledger, or resume one; take a lease of it.

    An open request with the same content and no holder is resumed. A request of kind `airflow-backfill` is shared: an
    open one of the same spec is used even while others work on it. If an earlier try of the DAG run has left an empty
    request with other content, that one is closed. `make_room` is called if a new request is opened, and its events are
    part of the same commit. A reason with which another request is continued becomes a comment on it.
    Raises RequestError: the request with the given id is closed, another holder works on it, or `make_room` refuses.
    """
    lease_id = asked.lease_id or work.new_id()
    chosen = ""

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal chosen
        known = view.requests.get(asked.request_id or "")
        if known is not None and not known.is_open:
            raise RequestError(
                f"request {known.request_id} of pipeline {work.pipeline.name} is {known.state.value}; make a new one"
            )
        if known is not None:
            refuse_other_holders(work, known, lease_id=asked.lease_id)
        fitting = _fitting(work, view, asked) if known is None else known.request_id
        chosen = fitting or _new_id(work, view, asked)
        left = [
            request
            for request in view.open_requests(asked.kind)
            if request.request_id != chosen and is_left_empty(work, request, asked)
        ]
        why = f"a later try of its DAG run opened request {chosen[:SHOWN_ID]}, because its slices had changed"
        events = [closed_event(request.request_id, why, who=asked.who, by=chosen) for request in left]
        if fitting:
            events += _further_reason(work, view.requests[fitting], asked)
        else:
            events += [*make_room(view, chosen), requested_event(work, asked, request_id=chosen)]
        return [*events, leased_event(work, Opened(request_id=chosen, lease_id=lease_id), origin=asked.origin)]

    work.ledger.write(decide)
    return Opened(request_id=chosen, lease_id=lease_id)


def _further_reason(work: RequestContext, request: Request, asked: Asked) -> Sequence[LedgerEvent]:
    """Return the comment that stores the reason with which a request is continued; none if it is stored already."""
    is_given = asked.origin is None or asked.request_id is None  # else the DAG run repeats a part of the own reason
    if not (is_given and asked.reason) or asked.reason in {request.reason, *(note.text for note in request.comments)}:
        return []
    note = LedgerEvent(kind=EventKind.NOTE, request_id=request.request_id, who=asked.who, reason=asked.reason)
    return [replace(note, details=comment_details(work.new_id(), assignee=None))]


def _new_id(work: RequestContext, view: LedgerView, asked: Asked) -> str:
    """Return the id of a new request. A DAG run with the same run id may have used the wanted one: it was deleted."""
    wanted = asked.request_id or asked.lease_id
    return work.new_id() if wanted is None or wanted in view.requests else wanted


def _fitting(work: RequestContext, view: LedgerView, asked: Asked) -> str | None:
    if asked.kind is not RequestKind.AIRFLOW_BACKFILL:
        return find_resumable(work, view, asked)
    shared = shared_request(work, view)
    return None if shared is None else shared.request_id


def request_in(work: RequestContext, view: LedgerView, request_id: str) -> Request:
    """Return a request of the ledger. Raises RequestError: there is no such request."""
    request = view.requests.get(request_id)
    if request is None:
        raise RequestError(
            f"pipeline {work.pipeline.name} has no request {request_id} in the ledger {work.ledger.uri}; "
            f"`hindcast status {work.pipeline.name}` lists the open ones"
        )
    return request


def shared_request(work: RequestContext, view: LedgerView) -> Request | None:
    """Return the newest open request of Airflow's backfill with the same spec, which its DAG runs share."""
    spec = spec_fingerprint(work.pipeline)
    fitting = [
        request for request in view.open_requests(RequestKind.AIRFLOW_BACKFILL) if request.spec_fingerprint == spec
    ]
    return fitting[-1] if fitting else None


def leased_event(work: RequestContext, opened: Opened, *, origin: DagRunOrigin | None = None) -> LedgerEvent:
    """Return the event by which the holder of the context takes or renews a lease. `origin`: the DAG run that joins."""
    length_ms = HANDOVER_MS if work.holder is None else work.lease_ms
    lease = Lease(lease_id=opened.lease_id, holder=work.holder, renewed_at_ms=0, length_ms=length_ms)
    details = lease.to_details()
    if origin is not None:
        details |= origin_details(origin)
    return LedgerEvent(kind=EventKind.LEASED, request_id=opened.request_id, details=details)


def requested_event(
    work: RequestContext, asked: Asked, *, request_id: str, changes: Mapping[str, LogCoordinates] = MappingProxyType({})
) -> LedgerEvent:
    """Return the event that opens a request with the spec of the context. `changes` are the slices of a restatement."""
    return LedgerEvent(
        kind=EventKind.REQUESTED,
        request_id=request_id,
        who=asked.who,
        reason=asked.reason,
        spec_fingerprint=spec_fingerprint(work.pipeline),
        details={
            "kind": asked.kind.value,
            "from_ms": asked.from_ms,
            "to_ms": asked.to_ms,
            "fresh": asked.is_fresh,
            "spec": pipeline_to_json(work.pipeline),
        }
        | ({"unarrived": dict(asked.unarrived)} if asked.unarrived else {})
        | (changes_details(changes) if changes else {})
        | ({} if asked.warm_up is None else {"warm_up": asdict(asked.warm_up)}),
    )


def context_of(work: RequestContext, request_id: str) -> tuple[RequestContext, Request]:
    """Return the request, and the context with the spec of the request.

    Raises RequestError: there is no such request, or its spec has another fingerprint now.
    """
    request = request_in(work, work.ledger.view(), request_id)
    if request.spec_fingerprint == spec_fingerprint(work.pipeline):
        return work, request
    stored = stored_pipeline(work.pipeline, request)
    if spec_fingerprint(stored) != request.spec_fingerprint:
        cancel = f"cancel it (`hindcast cancel {work.pipeline.name} --request {request_id} --reason ..`), and "
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} has spec {request.spec_fingerprint[:12]}, and the "
            f"same pipeline is spec {spec_fingerprint(stored)[:12]} now: a function, or Hindcast, has changed since. "
            f"Restore that version, or {cancel if request.is_open else ''}make a new one"
        )
    return replace(work, pipeline=stored), request


def from_the_beginning(work: RequestContext) -> RequestContext:
    """Return the context without `log.slice.first`, which leaves out slices that the published chain may have read."""
    log = work.pipeline.log
    log = log.model_copy(update={"slice": log.slice.model_copy(update={"first": None})})
    return replace(work, pipeline=work.pipeline.model_copy(update={"log": log}))


def with_cut_of(work: RequestContext, request: Request) -> RequestContext:
    """Return the context with the `log.slice` of a request, which the pipeline file may have changed since."""
    if request.spec_fingerprint == spec_fingerprint(work.pipeline):
        return work
    cut = stored_pipeline(work.pipeline, request).log.slice
    log = work.pipeline.log.model_copy(update={"slice": cut})
    return replace(work, pipeline=work.pipeline.model_copy(update={"log": log}))


def published_pipeline(lake: Lake, name: str, *, functions_dir: Path, now_ms: Callable[[], int]) -> Pipeline | None:
    """Return the pipeline of the newest published slice as the ledger stores it; None if no slice is published."""
    view = Ledger(lake.ledger(name), now_ms=now_ms).view()
    request = None if view.head is None else view.requests.get(view.head.request_id)
    if request is None:
        return None
    source = f"request {request.request_id} in the ledger"
    stored = pipeline_from_json(request.spec_json, source=source, functions_dir=functions_dir)
    return stored.model_copy(update={"name": name})  # the directory may have been renamed since
