"""The fold from ledger events to a `LedgerView`. All readers of one version get the same view.

Only this module implements these rules:

- One attempt counts for a run (jobs.ledger.attempt_choice).
- If a later attempt at the run left other content, the run's verdict is ERROR.
- A waiver lets a failed run pass while no check fails that had not failed when the person waived it, until a person
  cancels a request that has the run, or rolls its publication back. A run that readers still see keeps its waiver, and
  so does a run of another open request if the person has decided on that one.
- The newest judgement of a run adds its checks to those of the suite.
- A rollback holds the chain until the next publication, or until a person resumes the chain.
- A restatement that is only proposed is what its newest `requested` event says. Of other requests, the first counts.

A `Projection` is incremental: a reader that reads again folds the new events only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, assert_never

from jobs.ledger.acceptances import AcceptedRewrite
from jobs.ledger.chain import CONTENT_ERRORS
from jobs.ledger.events import CACHE, EventKind, LedgerEvent, changed, text_of
from jobs.ledger.later import Later, cells
from jobs.ledger.looks import Look, look_of, verified_sighting
from jobs.ledger.provenance import Decided, decision_of
from jobs.ledger.publications import Hold, Publication
from jobs.ledger.request_projection import (
    opened_request,
    proposed_again,
    with_attempt,
    with_comment,
    with_failure,
    with_lease,
    without_lease,
)
from jobs.ledger.run_projection import RunsProjection, fields_of_view
from jobs.ledger.view import LedgerView, Request, RequestState
from jobs.runs import Slice
from windowlib.errors import LedgerError

_SHOWS = (EventKind.PUBLISHED, EventKind.ROLLED_BACK)
_CHANGE_NO_RUN = frozenset({
    EventKind.REQUESTED, EventKind.LEASED, EventKind.RELEASED, EventKind.STARTED, EventKind.COMPLETED, EventKind.FAILED,
    EventKind.RESUMED, EventKind.LOOKED, EventKind.ACCEPTED, EventKind.TOLD, EventKind.NOTE, EventKind.RECOVERED,
})  # fmt: skip
"""The kinds of events that leave `Projection.runs` as it is."""


def project(events: Iterable[LedgerEvent], *, version: int) -> LedgerView:
    """Return the view of events that are given in ledger order.

    Raises LedgerError: an event lacks a field that its kind requires.
    """
    state = Projection()
    for event in events:
        state.add(event)
    return state.view(version)


@dataclass(slots=True, eq=False)
class Projection:
    """The state of a fold: `add` takes one event, `view` returns the view of the events so far.

    A snapshot (jobs.ledger.snapshot) stores all fields but the caches, by their annotations.
    """

    _requests: Later[str, Request] = field(default_factory=Later)
    _open: dict[str, bool] = field(default_factory=dict)  # the ids of the open requests, oldest first
    runs: RunsProjection = field(default_factory=RunsProjection)
    _publications: Later[int, Publication] = field(default_factory=Later)
    _seen: dict[str, str | None] = field(default_factory=dict)  # slice -> the run that readers see
    _slices: dict[str, list[int]] = field(default_factory=dict)  # slice -> its start and its end
    _hold: Hold | None = None
    _look: Look | None = None
    _accepted: tuple[AcceptedRewrite, ...] = ()
    _decisions: Later[str, Decided] = field(default_factory=Later)
    _repairs: dict[str, str] = field(default_factory=dict)  # run of a repair -> that of the chain
    _chain: dict[str, str] = field(default_factory=dict)  # slice with a repair -> run of the chain
    _ordered: Later[str, Slice] | None = field(default=None, metadata=CACHE)  # `_slices`, in their order
    _view: LedgerView | None = field(default=None, metadata=CACHE)  # the view of the events so far
    _published: dict[str, str] | None = field(default=None, metadata=CACHE)  # `_seen` in slice order
    _of_runs: dict[str, Any] = field(default_factory=dict, metadata=CACHE)  # the fields of a view that tell of `runs`
    # The mappings of requests and publications that no view has, so that they may grow in their place.
    _runs_of: dict[str, dict[str, str]] = field(default_factory=dict, metadata=CACHE)
    _shown_by: dict[int, tuple[dict[str, str | None], dict[str, str]]] = field(default_factory=dict, metadata=CACHE)

    def add(self, event: LedgerEvent) -> None:
        """Take one event in. Raises LedgerError: the event lacks a field that its kind requires."""
        self._view = None
        if event.kind not in _CHANGE_NO_RUN:
            self._of_runs = {}
        try:
            self._add(event)
        except CONTENT_ERRORS as error:
            place = f"seq {event.seq}, slice {event.slice_id}" if event.slice_id else f"seq {event.seq}"
            raise LedgerError(f"ledger event {event.kind.value} ({place}) cannot be read: {error!r}") from error

    def _add(self, event: LedgerEvent) -> None:  # noqa: C901, PLR0912, PLR0915  (one flat match over the kinds)
        # Slices of another time zone have the same names. The bounds are those of the run that readers see.
        if event.slice_id is not None and (event.kind in _SHOWS or event.slice_id not in self._slices):
            bounds = [event.slice.start_ms, event.slice.end_ms]
            self._ordered = self._ordered if self._slices.get(event.slice_id) == bounds else None
            self._slices[event.slice_id] = bounds
        if (decided := decision_of(event)) is not None:
            self._decisions.setdefault(decided.decision_id, decided)
        match event.kind:
            case EventKind.REQUESTED:
                self._open_request(event)
            case EventKind.LEASED:
                self._put(with_lease(event, self._request(event)))
            case EventKind.RELEASED:
                self._put(without_lease(event, self._request(event)))
            case EventKind.STARTED:
                self._put(with_attempt(event, self._request(event)))
            case EventKind.STAGED:
                self._stage(event)
            case EventKind.ADOPTED:
                self._take_over(event)
            case EventKind.COMPLETED:
                self._complete(event)
            case EventKind.CHECKED:
                self.runs.check(event)
            case EventKind.JUDGED:
                self.runs.judge(event)
            case EventKind.WAIVED:
                self.runs.waive(event)
            case EventKind.PUBLISHED:
                self._publish(event)
            case EventKind.ROLLED_BACK:
                self._roll_back(event)
            case EventKind.RESUMED:
                self._hold = None
            case EventKind.CONDEMNED | EventKind.REMOVED | EventKind.MENDED:
                self._choose_again(event)
            case EventKind.FAILED:
                self._put(with_failure(event, self._request(event)))
            case EventKind.CLOSED:
                self._close(event, is_cancelled=decided is not None and decided.action == "cancel")
            case EventKind.VERIFIED | EventKind.LOOKED | EventKind.ACCEPTED:
                self._see_log(event)
            case EventKind.TOLD:
                self._tell(event)
            case EventKind.NOTE:
                if (noted := self._requests.get(event.request_id or "")) is not None:
                    self._put(with_comment(event, noted))
            case EventKind.RECOVERED:
                pass
            case _:
                assert_never(event.kind)

    def _see_log(self, event: LedgerEvent) -> None:
        """Take in what somebody has seen of the event log, or accepted there."""
        if event.kind is EventKind.VERIFIED:
            run_id = text_of(event, "run_id")
            self.runs.change(run_id, sightings=(*self.runs.of(run_id).sightings, verified_sighting(event)))
        elif event.kind is EventKind.LOOKED:
            self._look = look_of(event, self._look)
        else:
            self._accepted += AcceptedRewrite.of(event)

    def copy(self) -> "Projection":
        """Return a fold with the same events, which takes further events of its own."""
        self._share()
        return replace(
            self,
            _requests=self._requests.copy(),
            _open=self._open.copy(),
            runs=self.runs.copy(),
            _publications=self._publications.copy(),
            _seen=self._seen.copy(),
            _slices=self._slices.copy(),
            _chain=self._chain.copy(),
            _decisions=self._decisions.copy(),
            _runs_of={},
            _shown_by={},
        )

    def _share(self) -> None:
        """Let nothing of this fold grow in its place any more: a view or another fold has it, too."""
        self._runs_of.clear()
        self._shown_by.clear()

    def view(self, version: int) -> LedgerView:
        """Return the view of the events so far; `version` is the version of the ledger that they reach."""
        if self._view is None or self._view.version != version:
            self._view = self._make_view(version)
        return self._view

    def _make_view(self, version: int) -> LedgerView:
        self._share()
        if self._ordered is None:
            self._published = None  # first: another thread may copy this fold meanwhile
            items = sorted(self._slices.items(), key=lambda item: item[1][0])
            self._ordered = Later(zip(map(itemgetter(0), items), cells(items, _slice), strict=True))
        if self._published is None:
            self._published = {name: shown for name in self._ordered if (shown := self._seen.get(name)) is not None}
        self._of_runs = self._of_runs or fields_of_view(self.runs.copy())
        return LedgerView(
            version=version,
            requests=self._requests.copy(),
            open_ids=tuple(self._open),
            published=self._published,
            publications=self._publications.sequence(),
            slices=self._ordered,
            decisions=self._decisions.copy(),
            hold=self._hold,
            look=self._look,
            accepted=self._accepted,
            repairs=self._shown_repairs(),
            **self._of_runs,
        )

    def _shown_repairs(self) -> dict[str, str]:
        """Return run of a repair -> run of the chain. A run that readers see as one of the chain is no longer one."""
        if not self._repairs:
            return {}
        shown = {run_id: self._chain.get(name) for name, run_id in self._seen.items() if run_id in self._repairs}
        return {run_id: chain for run_id, chain in {**self._repairs, **shown}.items() if chain is not None}

    def _open_request(self, event: LedgerEvent) -> None:
        known = self._requests.get(text_of(event, "request_id"))
        if known is None:
            made = opened_request(event)
            self._put(made)
            self._open[made.request_id] = True
        elif known.is_proposed:
            self._put(proposed_again(known, opened_request(event)))
        # else a retried task wrote the request again: the first event counts

    def _put(self, request: Request) -> None:
        self._requests[request.request_id] = request

    def _add_run(self, request: Request, slice_id: str, run_id: str) -> None:
        own = self._runs_of.get(request.request_id)
        if own is None:
            own = self._runs_of[request.request_id] = dict(request.runs)
            self._put(changed(request, runs=own))
        own[slice_id] = run_id

    def _request(self, event: LedgerEvent) -> Request:
        request: Request | None = self._requests.get(text_of(event, "request_id"))
        if request is None:
            raise LedgerError(
                f"ledger event {event.kind.value} (seq {event.seq}) names request {event.request_id}, which no earlier "
                "event opens; the ledger is damaged"
            )
        return request

    def _end(
        self, request_id: str | None, state: RequestState, failure: str | None = None, *, ended_by: str | None = None
    ) -> None:
        """Set the final state of a request, if the ledger has it."""
        request = self._requests.get(request_id or "")
        if request is not None:
            self._put(changed(request, leases=(), state=state, failure=failure, ended_by=ended_by))
            self._open.pop(request.request_id, None)

    def _stage(self, event: LedgerEvent) -> None:
        run = self.runs.stage(event)
        result = run.result
        request = self._requests.get(run.request_id)
        if request is not None and not event.details.get("warms_up", False):
            self._add_run(request, result.slice.slice_id, result.run_id)

    def _take_over(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        self._add_run(self._request(event), text_of(event, "slice_id"), run_id)
        if event.details.get("chain_start", False):
            self.runs.let_begin(run_id)

    def _complete(self, event: LedgerEvent) -> None:
        request = changed(self._request(event), is_complete=True)
        compared_with = event.details.get("compared_with")
        if compared_with is not None:
            request = changed(request, compared_with=compared_with)
        repairs = event.details.get("repairs")
        if repairs is not None:
            kept = {name: run_id for name, run_id in request.runs.items() if run_id in repairs}
            request = changed(request, runs=kept)
            self._runs_of.pop(request.request_id, None)
            self._repairs = {**self._repairs, **repairs}
        self._put(request)

    def _end_waivers(self, runs: Iterable[tuple[str, str | None]], *, of: str | None) -> None:
        """End the waivers of runs (slice, run) that readers do not see, and that were not for an open request.

        If readers see a repair in place of a run, its waiver ends only if it was for the request `of`.
        """
        for slice_id, run_id in runs:
            if run_id is None or run_id == self._seen.get(slice_id):
                continue
            waiver = self.runs.of(run_id).waiver
            if waiver is None or (run_id == self._chain.get(slice_id) and waiver.request_id != of):
                continue
            if not self._is_open_with(waiver.request_id, slice_id, run_id):
                self.runs.end_waiver(run_id)

    def _is_open_with(self, request_id: str, slice_id: str, run_id: str) -> bool:
        return request_id in self._open and self._requests[request_id].runs.get(slice_id) == run_id

    def _close(self, event: LedgerEvent, *, is_cancelled: bool) -> None:
        request = self._request(event)
        self._end(event.request_id, RequestState.CLOSED, event.reason, ended_by=event.details.get("by"))
        if is_cancelled:
            self._end_waivers([*request.runs.items(), *self._chain.items()], of=event.request_id)

    def _publish(self, event: LedgerEvent) -> None:
        self.runs.publish(text_of(event, "run_id"))
        self._change_what_readers_see(event, undoes=None)
        self._hold = None  # while the chain is held, only a person's publication is written, and it ends the hold
        self._end(event.request_id, RequestState.PUBLISHED)

    def _roll_back(self, event: LedgerEvent) -> None:
        undoes = event.details.get("undoes")
        if not isinstance(undoes, int) or undoes not in self._publications:
            raise LedgerError(
                f"ledger event rolled_back (seq {event.seq}) reverts publication {undoes}, which does not exist; the "
                "ledger is damaged"
            )
        self._change_what_readers_see(event, undoes=undoes)
        slice_id = text_of(event, "slice_id")
        undone = self._publications[undoes]
        self._end_waivers([(slice_id, undone.changes.get(slice_id))], of=undone.request_id)
        if event.run_id is not None:  # the publication that showed it before stands
            self.runs.show_again(event.run_id)
        self._hold = Hold(
            seq=event.seq, undoes=undoes, who=event.who or "", reason=event.reason or "", at_ms=event.at_ms
        )
        self._end(undone.request_id, RequestState.ROLLED_BACK)

    def _tell(self, event: LedgerEvent) -> None:
        seq = event.details.get("publication", 0)
        told = self._publications.get(seq)
        if told is not None and told.told_by is None:
            self._publications[seq] = changed(told, told_by=event.details.get("told_by"))

    def _change_what_readers_see(self, event: LedgerEvent, *, undoes: int | None) -> None:
        if event.seq not in self._publications:
            self._publications[event.seq] = Publication(
                seq=event.seq,
                at_ms=event.at_ms,
                request_id=event.request_id,
                who=event.who or "",
                undoes=undoes,
                decision_id=event.details.get("published_by"),
                told_by=event.details.get("told_by", ""),
            )
        if event.seq not in self._shown_by:
            publication = self._publications[event.seq]
            own = self._shown_by[event.seq] = dict(publication.changes), dict(publication.chain_before)
            self._publications[event.seq] = changed(publication, changes=own[0], chain_before=own[1])
        changes, chain_before = self._shown_by[event.seq]
        self._published = None
        slice_id = text_of(event, "slice_id")
        changes[slice_id] = self._seen[slice_id] = event.run_id
        before = self._chain.pop(slice_id, None)
        if before is not None:
            chain_before.setdefault(slice_id, before)
        chain = self._chain_of(event) if undoes is None else self._publications[undoes].chain_before.get(slice_id)
        if chain is not None:
            self._chain[slice_id] = chain

    def _chain_of(self, event: LedgerEvent) -> str | None:
        """Return the run of the chain in whose place a publication shows the run of a repair; None: it is no repair."""
        request = self._requests.get(event.request_id or "")
        is_repair = request is not None and request.is_repair
        return self._repairs.get(event.run_id or "") if is_repair else None

    def _choose_again(self, event: LedgerEvent) -> None:
        """Take in that other attempts count: some were condemned or removed, or one has mended a run."""
        if event.kind is EventKind.MENDED:
            self._mend(event)
        elif event.kind is EventKind.CONDEMNED:
            self.runs.attempts.condemn(event)
        else:
            self.runs.attempts.remove(event)
        self.runs.renew_all()  # the checkpoints of other runs may have parts of the attempt

    def _mend(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        self.runs.mend(event)
        checked = self.runs.of(run_id).checked
        if event.details.get("owns_checks", False) and checked is not None:
            self.runs.change(run_id, checked=changed(checked, attempt_id=event.attempt_id))


def _slice(item: tuple[str, list[int]]) -> Slice:
    slice_id, (start_ms, end_ms) = item
    return Slice(slice_id=slice_id, start_ms=start_ms, end_ms=end_ms)
