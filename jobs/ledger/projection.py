"""The fold from ledger events to a `LedgerView`. All readers of one version get the same view.

Only this module implements these rules:

- One attempt counts for a run (jobs.ledger.attempt_choice).
- If a later attempt at the run left other content, the run's verdict is ERROR.
- A waiver lets a failed run pass until checks fail that had not failed when the person waived it.
- The newest judgement of a run adds its checks to those of the suite.
- A rollback holds the chain until the next publication, or until a person resumes the chain.
- A restatement that is only proposed is what its newest `requested` event says. Of other requests, the first counts.

A `Projection` is incremental: a reader that reads again folds the new events only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from jobs.ledger.acceptances import AcceptedRewrite
from jobs.ledger.attempt_choice import AttemptChoice
from jobs.ledger.events import CACHE, EventKind, LedgerEvent, checks_fingerprint_of, judged_checks, with_checks
from jobs.ledger.looks import Look, look_of, verified_sighting
from jobs.ledger.provenance import Decided, decision_of
from jobs.ledger.publications import Hold, Publication
from jobs.ledger.request_projection import (
    RequestProjection,
    add_comment,
    add_lease,
    end_lease,
    fail_attempt,
    opened_request,
    start_attempt,
    text_of,
)
from jobs.ledger.view import Judgement, LedgerView, RequestState, StagedRun, Waiver
from jobs.runs import Sighting, Slice, Verdict
from windowlib.errors import LedgerError


def project(events: Iterable[LedgerEvent], *, version: int) -> LedgerView:
    """Return the view of events that are given in ledger order.

    Raises:
        LedgerError: an event lacks a field that its kind requires.
    """
    state = Projection()
    for event in events:
        state.add(event)
    return state.view(version)


@dataclass(slots=True)
class _PublicationProjection:
    """A publication during the fold: its events add to `changes`."""

    publication: Publication
    changes: dict[str, str | None] = field(default_factory=dict)
    frozen: Publication | None = field(default=None, metadata=CACHE)

    def freeze(self) -> Publication:
        if self.frozen is None:
            self.frozen = replace(self.publication, changes=dict(self.changes))
        return self.frozen

    def copy(self) -> "_PublicationProjection":
        return replace(self, changes=self.changes.copy())


@dataclass(slots=True, eq=False)
class Projection:
    """The state of a fold: `add` takes one event, `view` returns the view of the events so far.

    A snapshot (jobs.ledger.snapshot) stores all fields but the caches, by their annotations.
    """

    _requests: dict[str, RequestProjection] = field(default_factory=dict)
    _attempts: AttemptChoice = field(default_factory=AttemptChoice)
    _checked: dict[str, LedgerEvent] = field(default_factory=dict)  # run -> its newest `checked` event
    _judgements: dict[str, Judgement] = field(default_factory=dict)  # run -> its newest judgement
    _waivers: dict[str, Waiver] = field(default_factory=dict)
    _publications: dict[int, _PublicationProjection] = field(default_factory=dict)
    _slices: dict[str, Slice] = field(default_factory=dict)
    _hold: Hold | None = None
    _look: Look | None = None
    _accepted: tuple[AcceptedRewrite, ...] = ()
    _decisions: dict[str, Decided] = field(default_factory=dict)
    _repairs: dict[str, str] = field(default_factory=dict)  # run of a repair -> run of the chain
    _sightings: dict[str, list[Sighting]] = field(default_factory=dict)  # run -> in ledger order
    _resolved: dict[str, StagedRun | None] = field(default_factory=dict, metadata=CACHE)  # run -> attempt that counts
    _view: LedgerView | None = field(default=None, metadata=CACHE)  # the view of the events so far

    def add(self, event: LedgerEvent) -> None:  # noqa: C901, PLR0912, PLR0915  (one flat match over the kinds)
        """Take one event in.

        Raises:
            LedgerError: the event lacks a field that its kind requires.
        """
        self._view = None
        if event.slice_id is not None:
            self._slices.setdefault(event.slice_id, event.slice)
        if event.run_id is not None:
            self._resolved.pop(event.run_id, None)
        if (decided := decision_of(event)) is not None:
            self._decisions.setdefault(decided.decision_id, decided)
        match event.kind:
            case EventKind.REQUESTED:
                self._open(event)
            case EventKind.LEASED:
                add_lease(event, self._request(event))
            case EventKind.RELEASED:
                end_lease(event, self._request(event))
            case EventKind.STARTED:
                start_attempt(event, self._request(event))
            case EventKind.STAGED:
                self._stage(event)
            case EventKind.ADOPTED:
                self._take_over(event)
            case EventKind.COMPLETED:
                self._complete(event)
            case EventKind.CHECKED:
                self._check(event)
            case EventKind.JUDGED:
                self._judge(event)
            case EventKind.WAIVED:
                self._waive(event)
            case EventKind.PUBLISHED:
                self._publish(event)
            case EventKind.ROLLED_BACK:
                self._roll_back(event)
            case EventKind.RESUMED:
                self._hold = None
            case EventKind.CONDEMNED | EventKind.REMOVED | EventKind.MENDED:
                self._choose_again(event)
            case EventKind.FAILED:
                fail_attempt(event, self._request(event))
            case EventKind.CLOSED:
                self._request(event).end(RequestState.CLOSED, event.reason, ended_by=event.details.get("by"))
            case EventKind.VERIFIED | EventKind.LOOKED | EventKind.ACCEPTED:
                self._see_log(event)
            case EventKind.TOLD:
                self._tell(event)
            case EventKind.NOTE:
                add_comment(event, self._requests.get(event.request_id or ""))
            case EventKind.RECOVERED:
                pass
            case _:
                assert_never(event.kind)

    def _see_log(self, event: LedgerEvent) -> None:
        """Take in what somebody has seen of the event log, or accepted there."""
        if event.kind is EventKind.VERIFIED:
            self._sightings.setdefault(text_of(event, "run_id"), []).append(verified_sighting(event))
        elif event.kind is EventKind.LOOKED:
            self._look = look_of(event)
        else:
            self._accepted += AcceptedRewrite.of(event)

    def copy(self) -> "Projection":
        """Return a fold with the same events, which takes further events of its own."""
        made = Projection()
        made._requests = {name: request.copy() for name, request in self._requests.items()}
        made._publications = {seq: publication.copy() for seq, publication in self._publications.items()}
        made._attempts = self._attempts.copy()
        made._sightings = {name: sightings.copy() for name, sightings in self._sightings.items()}
        made._checked = self._checked.copy()
        made._judgements = self._judgements.copy()
        made._waivers = self._waivers.copy()
        made._slices = self._slices.copy()
        made._hold = self._hold
        made._look = self._look
        made._accepted = self._accepted
        made._repairs = self._repairs
        made._decisions = self._decisions.copy()
        made._resolved = self._resolved.copy()
        made._view = self._view
        return made

    def view(self, version: int) -> LedgerView:
        """Return the view of the events so far; `version` is the version of the ledger that they reach."""
        if self._view is None or self._view.version != version:
            self._view = self._make_view(version)
        return self._view

    def _make_view(self, version: int) -> LedgerView:
        staged = self._attempts.staged
        for run_id in staged:
            if run_id not in self._resolved:
                self._resolved[run_id] = self._resolve(run_id)
        runs = {name: run for name in staged if (run := self._resolved[name]) is not None}
        seen: dict[str, str | None] = {}
        for publication in self._publications.values():
            seen.update(publication.changes)
        slices = dict(sorted(self._slices.items(), key=lambda item: item[1].start_ms))
        return LedgerView(
            version=version,
            requests={request_id: request.freeze() for request_id, request in self._requests.items()},
            runs=runs,
            published={name: shown for name in slices if (shown := seen.get(name)) is not None},
            publications=tuple(publication.freeze() for publication in self._publications.values()),
            slices=slices,
            condemned=frozenset(self._attempts.condemned),
            staged_attempts=frozenset(self._attempts.staged_attempts),
            condemned_attempts=frozenset(self._attempts.condemned_attempts),
            hold=self._hold,
            decisions=dict(self._decisions),
            look=self._look,
            accepted=self._accepted,
            repairs=self._repairs,
            removed=dict(self._attempts.removed),
            removed_checkpoints=dict(self._attempts.removed_checkpoints),
            removed_runs=self._attempts.gone(),
        )

    def _open(self, event: LedgerEvent) -> None:
        known = self._requests.get(text_of(event, "request_id"))
        if known is None:
            made = RequestProjection(opened_request(event))
            self._requests[made.request.request_id] = made
        elif known.freeze().is_proposed:
            known.propose_again(opened_request(event))
        # else a retried task wrote the request again: the first event counts

    def _request(self, event: LedgerEvent) -> RequestProjection:
        request = self._requests.get(text_of(event, "request_id"))
        if request is None:
            raise LedgerError(
                f"ledger event {event.kind.value} (seq {event.seq}) names request {event.request_id}, which no earlier "
                "event opens; the ledger is damaged"
            )
        return request

    def _stage(self, event: LedgerEvent) -> None:
        run = self._attempts.stage(event)
        result = run.result
        self._sightings.setdefault(result.run_id, []).append(Sighting(log=result.log, is_equal=True))
        request = self._requests.get(run.request_id)
        if request is not None and not event.details.get("warms_up", False):
            request.add_run(result.slice.slice_id, result.run_id)

    def _take_over(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        self._request(event).add_run(text_of(event, "slice_id"), run_id)
        if event.details.get("chain_start", False):
            self._attempts.begin_chain(run_id)

    def _complete(self, event: LedgerEvent) -> None:
        request = self._request(event)
        request.change(is_complete=True)
        compared_with = event.details.get("compared_with")
        if compared_with is not None:
            request.change(compared_with=compared_with)
        repairs = event.details.get("repairs")
        if repairs is not None:
            request.keep_runs(repairs)
            self._repairs = {**self._repairs, **repairs}

    def _check(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        Verdict(event.verdict)  # a view reads both values, and does not know the ledger's place
        checks_fingerprint_of(event)
        self._checked[run_id] = event
        waiver = self._waivers.get(run_id)
        if waiver is not None and not _failed_checks(event) <= waiver.failed:
            del self._waivers[run_id]

    def _judge(self, event: LedgerEvent) -> None:
        for run_id, checks in judged_checks(event).items():
            judgement = Judgement(basis=str(event.details.get("basis")), checks=checks)
            self._judgements[run_id] = judgement
            self._resolved.pop(run_id, None)
            waiver = self._waivers.get(run_id)
            if waiver is not None and not judgement.failed <= waiver.failed:
                del self._waivers[run_id]

    def _waive(self, event: LedgerEvent) -> None:
        run_id = text_of(event, "run_id")
        checked, judgement = self._checked.get(run_id), self._judgements.get(run_id)
        failed = _failed_checks(checked) if checked is not None else frozenset()
        self._waivers[run_id] = Waiver(
            slice_id=text_of(event, "slice_id"),
            run_id=run_id,
            who=event.who or "",
            reason=event.reason or "",
            at_ms=event.at_ms,
            failed=failed | judgement.failed if judgement is not None else failed,
        )

    def _publish(self, event: LedgerEvent) -> None:
        self._change_what_readers_see(event, undoes=None)
        self._hold = None  # while the chain is held, only a person's publication is written, and it ends the hold
        request = self._requests.get(event.request_id or "")
        if request is not None:
            request.end(RequestState.PUBLISHED)

    def _roll_back(self, event: LedgerEvent) -> None:
        undoes = event.details.get("undoes")
        if not isinstance(undoes, int) or undoes not in self._publications:
            raise LedgerError(
                f"ledger event rolled_back (seq {event.seq}) reverts publication {undoes}, which does not exist; the "
                "ledger is damaged"
            )
        self._change_what_readers_see(event, undoes=undoes)
        self._hold = Hold(
            seq=event.seq, undoes=undoes, who=event.who or "", reason=event.reason or "", at_ms=event.at_ms
        )
        request = self._requests.get(self._publications[undoes].publication.request_id or "")
        if request is not None:
            request.end(RequestState.ROLLED_BACK)

    def _tell(self, event: LedgerEvent) -> None:
        told = self._publications.get(event.details.get("publication", 0))
        if told is not None and told.publication.told_by is None:
            told.publication = replace(told.publication, told_by=event.details.get("told_by"))
            told.frozen = None

    def _change_what_readers_see(self, event: LedgerEvent, *, undoes: int | None) -> None:
        publication = self._publications.get(event.seq)
        if publication is None:
            publication = self._publications[event.seq] = _PublicationProjection(
                Publication(
                    seq=event.seq,
                    at_ms=event.at_ms,
                    request_id=event.request_id,
                    who=event.who or "",
                    undoes=undoes,
                    decision_id=event.details.get("published_by"),
                    told_by=event.details.get("told_by", ""),
                )
            )
        publication.frozen = None
        publication.changes[text_of(event, "slice_id")] = event.run_id

    def _choose_again(self, event: LedgerEvent) -> None:
        """Take in that other attempts count: some were condemned or removed, or one has mended a run."""
        self._attempts.change(event)
        if event.kind is not EventKind.CONDEMNED or event.run_id is None:
            self._resolved.clear()  # the checkpoints of other runs may have parts of the attempt
        if event.kind is EventKind.MENDED and event.details.get("owns_checks", False):
            run_id = text_of(event, "run_id")
            checked = self._checked.get(run_id)
            if checked is not None:
                self._checked[run_id] = replace(checked, attempt_id=event.attempt_id)

    def _resolve(self, run_id: str) -> StagedRun | None:
        """Return the attempt that counts for a run, with its verdict and waiver; None if none does."""
        chosen = self._attempts.chosen(run_id)
        if chosen is None:
            return None
        checked = self._checked.get(run_id)
        checks: dict[str, Any] = {}
        if checked is not None:
            checks = {
                "result": with_checks(chosen.result, checked),
                "checks_attempt_id": checked.attempt_id or chosen.checks_attempt_id,
                "checks_fingerprint": checks_fingerprint_of(checked),
            }
        judgement = self._judgements.get(run_id)
        if judgement is not None:
            checks["result"] = judgement.added_to(checks.get("result", chosen.result))
        return replace(
            chosen,
            **checks,
            judgement=judgement,
            waiver=self._waivers.get(run_id),
            sightings=tuple(self._sightings[run_id]),
        )


def _failed_checks(event: LedgerEvent) -> frozenset[tuple[str, str, str | None]]:
    stopping = {Verdict.FAIL.value, Verdict.ERROR.value}
    checks = event.details.get("checks", ())
    return frozenset((row["table"], row["check"], row["column"]) for row in checks if row["verdict"] in stopping)
