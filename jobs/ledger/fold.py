"""From events to a view: a fold, the same for every reader of one version.

Rules that live here and nowhere else: a run has exactly one attempt, the first staged that was not condemned; a later
attempt with other digests makes the run an error; a waiver lets a failed run pass until checks fail that it did not
know; a rollback holds the chain until the next publication or until a person resumes it.

A `Fold` goes on from where it is, so a reader that looks again pays for the new events only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from jobs.ledger.events import EventKind, LedgerEvent, run_result, verified_sighting, with_checks
from jobs.ledger.leases import Lease, lease_from_details
from jobs.ledger.view import Attempt, Hold, LedgerView, Publication, Request, RequestState, StagedRun, Waiver
from jobs.runs import RunResult, Sighting, Slice, Verdict
from windowlib.errors import LedgerError


def fold(events: Iterable[LedgerEvent], *, version: int) -> LedgerView:
    """The view that events in ledger order add up to.

    Raises:
        LedgerError: an event lacks what its kind needs.
    """
    state = Fold()
    for event in events:
        state.add(event)
    return state.view(version)


@dataclass(slots=True)
class _Open:
    """A request while events come in; `request` is its frozen form, without what grows."""

    request: Request
    runs: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    frozen: Request | None = None

    def change(self, **changes: object) -> None:
        """Set fields of the frozen form."""
        self.request = replace(self.request, **changes)  # type: ignore[arg-type]
        self.frozen = None

    def end(self, state: RequestState, failure: str | None = None) -> None:
        """Take in that the request is over: nobody works on it any more."""
        self.leases.clear()
        self.change(state=state, failure=failure)

    def freeze(self) -> Request:
        """The request as it is now."""
        if self.frozen is None:
            self.frozen = replace(
                self.request,
                runs=dict(self.runs),
                attempts=tuple(self.attempts),
                leases=tuple(self.leases.values()),
            )
        return self.frozen


@dataclass(slots=True)
class _Flip:
    """A publication while its events come in."""

    publication: Publication
    changes: dict[str, str | None] = field(default_factory=dict)
    frozen: Publication | None = None

    def freeze(self) -> Publication:
        """The publication as it is now."""
        if self.frozen is None:
            self.frozen = replace(self.publication, changes=dict(self.changes))
        return self.frozen


class Fold:
    """The running state of a fold."""

    def __init__(self) -> None:
        self._requests: dict[str, _Open] = {}
        self._staged: dict[str, list[StagedRun]] = {}  # run -> every attempt, in ledger order
        self._checked: dict[str, LedgerEvent] = {}  # run -> its newest verdict
        self._waivers: dict[str, Waiver] = {}
        self._condemned: set[str] = set()  # "run/attempt"
        self._flips: dict[int, _Flip] = {}
        self._slices: dict[str, Slice] = {}
        self._hold: Hold | None = None
        self._sightings: dict[str, list[Sighting]] = {}  # run -> where its input was seen, in ledger order
        self._resolved: dict[str, StagedRun | None] = {}  # what stands for a run, until an event of it comes

    def add(self, event: LedgerEvent) -> None:  # noqa: C901  (one flat match over the kinds)
        """Take one event in.

        Raises:
            LedgerError: it lacks what its kind needs.
        """
        if event.slice_id is not None:
            self._slices.setdefault(event.slice_id, event.slice)
        if event.run_id is not None:
            self._resolved.pop(event.run_id, None)
        match event.kind:
            case EventKind.STAGED | EventKind.CHECKED | EventKind.WAIVED | EventKind.CONDEMNED:
                self._judge(event)
            case EventKind.PUBLISHED | EventKind.ROLLED_BACK | EventKind.RESUMED:
                self._show(event)
            case EventKind.REQUESTED:
                self._open(event)
            case EventKind.LEASED | EventKind.RELEASED:
                _hold(event, self._request(event))
            case EventKind.STARTED | EventKind.ADOPTED | EventKind.COMPLETED | EventKind.FAILED | EventKind.CLOSED:
                _progress(event, self._request(event))
            case EventKind.VERIFIED:
                self._sightings.setdefault(_text(event, "run_id"), []).append(verified_sighting(event))
            case EventKind.NOTE:
                pass

    def view(self, version: int) -> LedgerView:
        """What the events say so far."""
        for run_id in self._staged:
            if run_id not in self._resolved:
                self._resolved[run_id] = self._resolve(run_id)
        runs = {name: run for name in self._staged if (run := self._resolved[name]) is not None}
        by_slice: dict[str, list[StagedRun]] = {}
        for run in runs.values():
            by_slice.setdefault(run.result.slice.slice_id, []).append(run)
        seen: dict[str, str | None] = {}
        for flip in self._flips.values():
            seen.update(flip.changes)
        slices = dict(sorted(self._slices.items(), key=lambda item: item[1].start_ms))
        return LedgerView(
            version=version,
            requests={request_id: one.freeze() for request_id, one in self._requests.items()},
            runs=runs,
            published={name: shown for name in slices if (shown := seen.get(name)) is not None},
            publications=tuple(flip.freeze() for flip in self._flips.values()),
            slices=slices,
            condemned=frozenset(self._condemned),
            hold=self._hold,
            runs_by_slice={slice_id: tuple(found) for slice_id, found in by_slice.items()},
        )

    def _open(self, event: LedgerEvent) -> None:
        request_id, details = _text(event, "request_id"), event.details
        if request_id in self._requests:
            return  # a retry asked again; the first event counts
        self._requests[request_id] = _Open(
            Request(
                request_id=request_id,
                kind=details.get("kind", "range"),
                from_ms=details.get("from_ms"),
                to_ms=details.get("to_ms"),
                who=event.who or "",
                reason=event.reason or "",
                spec_json=details.get("spec", ""),
                spec_fingerprint=_text(event, "spec_fingerprint"),
                is_fresh=bool(details.get("fresh", False)),
                opened_at_ms=event.at_ms,
                opened_seq=event.seq,
            )
        )

    def _request(self, event: LedgerEvent) -> _Open:
        found = self._requests.get(_text(event, "request_id"))
        if found is None:
            raise LedgerError(
                f"ledger event {event.kind.value} (seq {event.seq}) is of an unknown request {event.request_id}"
            )
        return found

    def _judge(self, event: LedgerEvent) -> None:
        match event.kind:
            case EventKind.STAGED:
                self._stage(event)
            case EventKind.CHECKED:
                self._check(event)
            case EventKind.WAIVED:
                self._waive(event)
            case _:
                self._condemned.add(f"{event.run_id}/{event.attempt_id}")

    def _stage(self, event: LedgerEvent) -> None:
        result = run_result(event)
        run = StagedRun(
            result=result,
            request_id=_text(event, "request_id"),
            seq=event.seq,
            at_ms=event.at_ms,
            is_chain_start=bool(event.details.get("chain_start", False)),
            checks_attempt_id=result.attempt_id,
        )
        self._staged.setdefault(result.run_id, []).append(run)
        self._sightings.setdefault(result.run_id, []).append(Sighting(log=result.log, is_equal=True))
        request = self._requests.get(run.request_id)
        if request is not None:
            request.runs[result.slice.slice_id] = result.run_id
            request.frozen = None

    def _check(self, event: LedgerEvent) -> None:
        run_id = _text(event, "run_id")
        self._checked[run_id] = event
        waiver = self._waivers.get(run_id)
        if waiver is not None and not _failed_checks(event) <= waiver.failed:
            del self._waivers[run_id]

    def _waive(self, event: LedgerEvent) -> None:
        run_id = _text(event, "run_id")
        checked = self._checked.get(run_id)
        self._waivers[run_id] = Waiver(
            slice_id=_text(event, "slice_id"),
            run_id=run_id,
            who=event.who or "",
            reason=event.reason or "",
            at_ms=event.at_ms,
            failed=_failed_checks(checked) if checked is not None else frozenset(),
        )

    def _show(self, event: LedgerEvent) -> None:
        match event.kind:
            case EventKind.PUBLISHED:
                self._flip(event, undoes=None)
                self._hold = None  # publication is refused while the chain is held, but for a person's word
                request = self._requests.get(event.request_id or "")
                if request is not None:
                    request.end(RequestState.PUBLISHED)
            case EventKind.ROLLED_BACK:
                undoes = event.details.get("undoes")
                if not isinstance(undoes, int) or undoes not in self._flips:
                    raise LedgerError(
                        f"ledger event rolled_back (seq {event.seq}) undoes publication {undoes}, which does not exist"
                    )
                self._flip(event, undoes=undoes)
                self._hold = Hold(
                    seq=event.seq, undoes=undoes, who=event.who or "", reason=event.reason or "", at_ms=event.at_ms
                )
                request = self._requests.get(self._flips[undoes].publication.request_id or "")
                if request is not None:
                    request.end(RequestState.ROLLED_BACK)
            case _:
                self._hold = None

    def _flip(self, event: LedgerEvent, *, undoes: int | None) -> None:
        flip = self._flips.get(event.seq)
        if flip is None:
            flip = self._flips[event.seq] = _Flip(
                Publication(
                    seq=event.seq,
                    at_ms=event.at_ms,
                    request_id=event.request_id,
                    who=event.who or "",
                    undoes=undoes,
                    changes={},
                )
            )
        flip.frozen = None
        flip.changes[_text(event, "slice_id")] = event.run_id

    def _resolve(self, run_id: str) -> StagedRun | None:
        """The attempt that stands for a run, judged and waived."""
        attempts = [run for run in self._staged[run_id] if f"{run_id}/{run.result.attempt_id}" not in self._condemned]
        if not attempts:
            return None
        chosen = attempts[0]
        is_contradicted = any(_content(run.result) != _content(chosen.result) for run in attempts[1:])
        checked = self._checked.get(run_id)
        if checked is not None:
            chosen = replace(
                chosen,
                result=with_checks(chosen.result, checked),
                checks_attempt_id=checked.attempt_id or chosen.checks_attempt_id,
                checks_fingerprint=checked.details.get("checks_fingerprint"),
            )
        return replace(
            chosen,
            is_contradicted=is_contradicted,
            waiver=self._waivers.get(run_id),
            sightings=tuple(self._sightings[run_id]),
        )


def _hold(event: LedgerEvent, one: _Open) -> None:
    """A holder takes, renews or releases a lease of a request."""
    one.frozen = None
    if event.kind is EventKind.RELEASED:
        one.leases.pop(str(event.details.get("lease_id")), None)
    elif one.request.is_open:
        lease = _lease(event)
        one.leases[lease.lease_id] = lease


def _progress(event: LedgerEvent, one: _Open) -> None:
    """A request comes closer to its end."""
    one.frozen = None
    match event.kind:
        case EventKind.STARTED:
            slice_ids = tuple(event.details.get("slices", ()))
            attempt_id = _text(event, "attempt_id")
            one.attempts.append(Attempt(attempt_id=attempt_id, slice_ids=slice_ids, at_ms=event.at_ms))
            one.change(failure=None, is_complete=False)
        case EventKind.ADOPTED:
            one.runs[_text(event, "slice_id")] = _text(event, "run_id")
        case EventKind.COMPLETED:
            one.change(is_complete=True)
        case EventKind.FAILED:
            # The failure of an attempt that another one has followed says nothing of the request.
            is_newest = bool(one.attempts) and one.attempts[-1].attempt_id == event.attempt_id
            if is_newest and one.request.is_open:
                one.change(failure=event.reason)
        case _:
            one.end(RequestState.CLOSED, event.reason)


def _lease(event: LedgerEvent) -> Lease:
    try:
        return lease_from_details(event.details, event.at_ms)
    except (KeyError, TypeError) as error:
        raise LedgerError(f"ledger event leased (seq {event.seq}) cannot be read: {error!r}") from error


def _content(result: RunResult) -> tuple[object, ...]:
    """What two attempts at one run must agree on (law L1)."""
    return dict(result.digests), result.state_after, result.counts, result.watermark_ms


def _failed_checks(event: LedgerEvent) -> frozenset[tuple[str, str, str | None]]:
    stopping = {Verdict.FAIL.value, Verdict.ERROR.value}
    checks = event.details.get("checks", ())
    return frozenset((one["table"], one["check"], one["column"]) for one in checks if one["verdict"] in stopping)


def _text(event: LedgerEvent, column: str) -> str:
    value = getattr(event, column)
    if not isinstance(value, str):
        raise LedgerError(f"ledger event {event.kind.value} (seq {event.seq}) has no {column}; the ledger is damaged")
    return value
