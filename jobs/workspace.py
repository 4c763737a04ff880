"""What every step of a request works on, and how requests come into the ledger: opened, shared, resumed."""

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from jobs.fingerprints import spec_fingerprint
from jobs.lake import Lake
from jobs.ledger import Ledger
from jobs.ledger_events import EventKind, LedgerEvent
from jobs.ledger_view import LedgerView, Request
from jobs.pipeline import pipeline_from_json, pipeline_to_json
from jobs.pipeline_models import Pipeline
from windowlib.errors import RequestError

RANGE, SCHEDULED, AIRFLOW_BACKFILL = "range", "scheduled", "airflow-backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A pipeline, its lake and its ledger: what a request works on. `checks` is the suite's fingerprint."""

    pipeline: Pipeline
    lake: Lake
    ledger: Ledger
    checks: str | None = None
    new_id: Callable[[], str] = field(default=lambda: uuid.uuid4().hex)
    holder: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")


def open_workspace(
    pipeline: Pipeline, lake: Lake, *, now_ms: Callable[[], int], checks: str | None = None
) -> Workspace:
    """The workspace of a pipeline; the ledger is created by the first write."""
    return Workspace(
        pipeline=pipeline, lake=lake, ledger=Ledger(lake.ledger(pipeline.name), now_ms=now_ms), checks=checks
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asked for: a half-open range, who, why. An existing `request_id` is gone on with."""

    from_ms: int | None
    to_ms: int | None
    who: str
    reason: str
    kind: str = RANGE
    is_fresh: bool = False
    request_id: str | None = None


def find_resumable(work: Workspace, view: LedgerView, asked: Asked) -> str | None:
    """The open request for exactly this that nobody works on: left behind by a crash, or held by a check."""
    if asked.request_id is not None:
        return asked.request_id if asked.request_id in view.requests else None
    spec = spec_fingerprint(work.pipeline)
    for request in reversed(view.open_requests(asked.kind)):
        same = (request.from_ms, request.to_ms, request.is_fresh, request.spec_fingerprint)
        if same == (asked.from_ms, asked.to_ms, asked.is_fresh, spec) and not is_live(work, request):
            return request.request_id
    return None


def is_live(work: Workspace, request: Request) -> bool:
    """Whether somebody works on a request: its lease holds, and its process is not known to be gone."""
    return request.is_live(work.ledger.now_ms()) and not _is_gone(request.holder)


def _is_gone(holder: str | None) -> bool:
    """Whether the holder was a process of this host that has ended; kill -9 leaves a lease behind."""
    host, _, pid = (holder or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def open_request(work: Workspace, asked: Asked) -> str:
    """Write the request into the ledger, with its spec; return its id.

    A request of kind `airflow-backfill` is shared: an open one of the same spec is returned instead of a second.

    Raises:
        RequestError: the request with the given id is over.
    """
    request_id = asked.request_id or work.new_id()
    spec = spec_fingerprint(work.pipeline)
    chosen = request_id

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal chosen
        chosen = request_id
        known = view.requests.get(request_id)
        if known is not None and not known.is_open:
            raise RequestError(
                f"request {request_id} of pipeline {work.pipeline.name} is {known.state}; make a new one"
            )
        shared = (
            view.open_requests(AIRFLOW_BACKFILL) if asked.kind == AIRFLOW_BACKFILL and asked.request_id is None else ()
        )
        fitting = [request for request in shared if request.spec_fingerprint == spec]
        if known is not None or fitting:
            chosen = fitting[-1].request_id if fitting else request_id
            return []
        return [_requested(work, asked, request_id=request_id, spec=spec)]

    work.ledger.write(decide)
    return chosen


def _requested(work: Workspace, asked: Asked, *, request_id: str, spec: str) -> LedgerEvent:
    return LedgerEvent(
        kind=EventKind.REQUESTED,
        request_id=request_id,
        who=asked.who,
        reason=asked.reason,
        spec_fingerprint=spec,
        details={
            "kind": asked.kind,
            "from_ms": asked.from_ms,
            "to_ms": asked.to_ms,
            "fresh": asked.is_fresh,
            "spec": pipeline_to_json(work.pipeline),
        },
    )


def request_workspace(work: Workspace, request_id: str) -> tuple[Workspace, Request]:
    """The workspace with the spec that the request was opened with, and the request.

    Raises:
        RequestError: there is no such request.
    """
    request = work.ledger.view().requests.get(request_id)
    if request is None:
        raise RequestError(f"pipeline {work.pipeline.name} has no request {request_id} in the ledger {work.ledger.uri}")
    if request.spec_fingerprint == spec_fingerprint(work.pipeline):
        return work, request
    stored = _stored_pipeline(work, request)
    if spec_fingerprint(stored) != request.spec_fingerprint:
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} was made as spec {request.spec_fingerprint[:12]}, "
            f"and the same pipeline is spec {spec_fingerprint(stored)[:12]} now: a function of yours, or Hindcast, "
            "has changed since. Bring that version back, or make a new request"
        )
    return replace(work, pipeline=stored), request


def _stored_pipeline(work: Workspace, request: Request) -> Pipeline:
    """The pipeline of a request, as the ledger keeps it; users' functions are where the pipeline's file is."""
    source = f"request {request.request_id} in the ledger"
    return pipeline_from_json(request.spec_json, source=source, functions_dir=work.pipeline.functions_dir)


def on_published_spec(work: Workspace) -> tuple[Workspace, tuple[str, ...]]:
    """The workspace with the spec that the chain keeps to, and a warning where the file says something else."""
    view = work.ledger.view()
    head = view.head
    spec = spec_fingerprint(work.pipeline)
    if head is None or head.result.spec_fingerprint == spec:
        return work, ()
    request = view.requests.get(head.request_id)
    if request is None:
        return work, ()
    stored = _stored_pipeline(work, request)
    warning = (
        f"{work.pipeline.source} is spec {spec[:12]}, the published chain is spec "
        f"{head.result.spec_fingerprint[:12]} and is kept to; "
        "publish a request with the new spec to change it"
    )
    return replace(work, pipeline=stored), (warning,)
