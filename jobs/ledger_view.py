"""What the ledger's events add up to: a pure fold, the same for every reader of one version.

Rules that live here and nowhere else: a run has exactly one attempt, the first staged that was not condemned; a later
attempt with other digests makes the run an error; a waiver lets a failed run pass until checks fail that it did not
know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jobs.ledger_events import EventKind, LedgerEvent, run_result, verified_sighting, with_checks
from jobs.runs import CheckpointRef, RunResult, Sighting, Slice, Verdict
from windowlib.errors import LedgerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's word that a failed run may pass. `failed` are the checks that had failed by then."""

    slice_id: str
    run_id: str
    who: str
    reason: str
    at_ms: int
    failed: frozenset[tuple[str, str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """A run and the one attempt that stands for it. `checks_attempt_id` is where its rows in quality_results are.

    `sightings` are the coordinates of the log at which an attempt at the run, or `plan --verify`, read its input.
    """

    result: RunResult
    request_id: str
    seq: int
    at_ms: int
    is_chain_start: bool
    checks_attempt_id: str
    checks_fingerprint: str | None = None
    is_contradicted: bool = False
    waiver: Waiver | None = None
    sightings: tuple[Sighting, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of the checks; error where two attempts differ, for then something is not deterministic."""
        return Verdict.ERROR if self.is_contradicted else self.result.verdict

    @property
    def is_publishable(self) -> bool:
        """Whether readers may see it: passed or warned, or failed and waived; never after an error."""
        return self.verdict in {Verdict.PASS, Verdict.WARN} or (
            self.verdict is Verdict.FAIL and self.waiver is not None
        )

    @property
    def checkpoint(self) -> CheckpointRef:
        """The state after it, where the next slice goes on."""
        one = self.result
        return CheckpointRef(
            slice_id=one.slice.slice_id, run_id=one.run_id, attempt_id=one.attempt_id, fingerprint=one.state_after
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An execution that was started. Without rows in the ledger, and without a live lease, it is garbage."""

    attempt_id: str
    slice_ids: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, and how far it got. `runs` maps each slice that it has to its run."""

    request_id: str
    kind: str
    from_ms: int | None
    to_ms: int | None
    who: str
    reason: str
    spec_json: str
    spec_fingerprint: str
    is_fresh: bool
    opened_at_ms: int
    opened_seq: int
    runs: Mapping[str, str] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    lease_until_ms: int | None = None
    holder: str | None = None
    failure: str | None = None
    state: str = "open"

    @property
    def is_open(self) -> bool:
        """Whether it may still stage and publish."""
        return self.state == "open"

    def is_live(self, now_ms: int) -> bool:
        """Whether somebody is working on it, as far as its lease says."""
        return self.is_open and self.lease_until_ms is not None and now_ms < self.lease_until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One flip of what readers see: slice -> run, or None where a slice is not published any more."""

    seq: int
    at_ms: int
    request_id: str | None
    who: str
    is_rollback: bool
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """The ledger at one version. All maps by slice are in slice order."""

    version: int
    requests: Mapping[str, Request] = field(default_factory=dict)
    runs: Mapping[str, StagedRun] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    publications: tuple[Publication, ...] = ()
    slices: Mapping[str, Slice] = field(default_factory=dict)
    condemned: frozenset[str] = frozenset()

    def run(self, run_id: str) -> StagedRun:
        """The run with this id.

        Raises:
            LedgerError: no attempt stands for it (any more).
        """
        found = self.runs.get(run_id)
        if found is None:
            raise LedgerError(
                f"run {run_id} has no attempt in the ledger; it was condemned or never staged; replay its slice"
            )
        return found

    def published_run(self, slice_id: str) -> StagedRun | None:
        """What readers see of a slice."""
        return self.run(self.published[slice_id]) if slice_id in self.published else None

    def published_pairs(self) -> tuple[tuple[str, str], ...]:
        """The (slice_id, attempt_id) pairs that readers see, in slice order."""
        return tuple((slice_id, self.run(run_id).result.attempt_id) for slice_id, run_id in self.published.items())

    @property
    def head(self) -> StagedRun | None:
        """The last published run, where the daily chain goes on."""
        return self.run(list(self.published.values())[-1]) if self.published else None

    def published_at(self, seq: int) -> dict[str, str]:
        """What readers saw at a ledger version, slice -> run."""
        seen: dict[str, str | None] = {}
        for publication in self.publications:
            if publication.seq <= seq:
                seen.update(publication.changes)
        return {slice_id: run_id for slice_id, run_id in seen.items() if run_id is not None}

    def open_requests(self, kind: str | None = None) -> tuple[Request, ...]:
        """Open requests, oldest first."""
        return tuple(one for one in self.requests.values() if one.is_open and (kind is None or one.kind == kind))

    def newest_run(self, slice_id: str) -> StagedRun | None:
        """The run that was staged last for a slice, published or not."""
        found = [run for run in self.runs.values() if run.result.slice.slice_id == slice_id]
        return max(found, key=lambda run: run.seq) if found else None


def fold(events: Iterable[LedgerEvent], *, version: int) -> LedgerView:
    """The view that events in ledger order add up to.

    Raises:
        LedgerError: an event lacks what its kind needs.
    """
    state = _Fold()
    for event in events:
        state.add(event)
    return state.view(version)


class _Fold:
    """The running state of a fold."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.staged: dict[str, list[StagedRun]] = {}  # run -> every attempt, in ledger order
        self.checked: dict[str, LedgerEvent] = {}  # run -> its newest verdict
        self.waivers: dict[str, Waiver] = {}
        self.condemned: set[str] = set()  # "run/attempt"
        self.publications: dict[int, Publication] = {}
        self.slices: dict[str, Slice] = {}
        self.sightings: dict[str, list[Sighting]] = {}  # run -> where its input was seen, in ledger order

    def add(self, event: LedgerEvent) -> None:  # noqa: C901  (one flat match over the kinds)
        """Take one event in."""
        if event.slice_id is not None:
            self.slices.setdefault(event.slice_id, event.slice)
        match event.kind:
            case EventKind.STAGED:
                self._stage(event)
            case EventKind.CHECKED:
                self._check(event)
            case EventKind.WAIVED:
                self._waive(event)
            case EventKind.CONDEMNED:
                self.condemned.add(f"{event.run_id}/{event.attempt_id}")
            case EventKind.PUBLISHED | EventKind.ROLLED_BACK:
                self._publish(event)
            case EventKind.REQUESTED:
                self._open(event)
            case EventKind.STARTED | EventKind.ADOPTED | EventKind.FAILED | EventKind.CLOSED:
                self._progress(event)
            case EventKind.VERIFIED:
                self.sightings.setdefault(_text(event, "run_id"), []).append(verified_sighting(event))
            case EventKind.NOTE:
                pass

    def _open(self, event: LedgerEvent) -> None:
        request_id, details = _text(event, "request_id"), event.details
        if request_id in self.requests:
            return  # a retry asked again; the first word counts
        self.requests[request_id] = Request(
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

    def _progress(self, event: LedgerEvent) -> None:
        request = self.requests.get(_text(event, "request_id"))
        if request is None:
            raise LedgerError(
                f"ledger event {event.kind.value} (seq {event.seq}) is of an unknown request {event.request_id}"
            )
        match event.kind:
            case EventKind.STARTED:
                attempt = Attempt(
                    attempt_id=_text(event, "attempt_id"),
                    slice_ids=tuple(event.details.get("slices", ())),
                    at_ms=event.at_ms,
                )
                request = replace(
                    request,
                    attempts=(*request.attempts, attempt),
                    lease_until_ms=event.details.get("lease_until_ms"),
                    holder=event.who,
                    failure=None,
                )
            case EventKind.ADOPTED:
                request = replace(request, runs={**request.runs, _text(event, "slice_id"): _text(event, "run_id")})
            case EventKind.FAILED:
                request = replace(request, lease_until_ms=None, failure=event.reason)
            case _:
                request = replace(request, state="closed", lease_until_ms=None, failure=event.reason)
        self.requests[request.request_id] = request

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
        self.staged.setdefault(result.run_id, []).append(run)
        self.sightings.setdefault(result.run_id, []).append(Sighting(log=result.log, is_equal=True))
        request = self.requests.get(run.request_id)
        if request is not None:
            runs = {**request.runs, result.slice.slice_id: result.run_id}
            self.requests[run.request_id] = replace(request, runs=runs, lease_until_ms=None)

    def _check(self, event: LedgerEvent) -> None:
        run_id = _text(event, "run_id")
        self.checked[run_id] = event
        waiver = self.waivers.get(run_id)
        if waiver is not None and not _failed_checks(event) <= waiver.failed:
            del self.waivers[run_id]

    def _waive(self, event: LedgerEvent) -> None:
        run_id = _text(event, "run_id")
        checked = self.checked.get(run_id)
        self.waivers[run_id] = Waiver(
            slice_id=_text(event, "slice_id"),
            run_id=run_id,
            who=event.who or "",
            reason=event.reason or "",
            at_ms=event.at_ms,
            failed=_failed_checks(checked) if checked is not None else frozenset(),
        )

    def _publish(self, event: LedgerEvent) -> None:
        publication = self.publications.get(event.seq) or Publication(
            seq=event.seq,
            at_ms=event.at_ms,
            request_id=event.request_id,
            who=event.who or "",
            is_rollback=event.kind is EventKind.ROLLED_BACK,
            changes={},
        )
        changes = {**publication.changes, _text(event, "slice_id"): event.run_id}
        self.publications[event.seq] = replace(publication, changes=changes)
        request = self.requests.get(event.request_id or "")
        if request is not None and event.kind is EventKind.PUBLISHED:
            self.requests[request.request_id] = replace(request, state="published", lease_until_ms=None)

    def view(self, version: int) -> LedgerView:
        runs = {run_id: run for run_id in self.staged if (run := self._resolve(run_id)) is not None}
        published: dict[str, str | None] = {}
        for publication in self.publications.values():
            published.update(publication.changes)
        slices = dict(sorted(self.slices.items(), key=lambda item: item[1].start_ms))
        return LedgerView(
            version=version,
            requests=self.requests,
            runs=runs,
            published={slice_id: run_id for slice_id in slices if (run_id := published.get(slice_id)) is not None},
            publications=tuple(self.publications.values()),
            slices=slices,
            condemned=frozenset(self.condemned),
        )

    def _resolve(self, run_id: str) -> StagedRun | None:
        """The attempt that stands for a run, judged and waived."""
        attempts = [run for run in self.staged[run_id] if f"{run_id}/{run.result.attempt_id}" not in self.condemned]
        if not attempts:
            return None
        chosen = attempts[0]
        is_contradicted = any(_content(run.result) != _content(chosen.result) for run in attempts[1:])
        checked = self.checked.get(run_id)
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
            waiver=self.waivers.get(run_id),
            sightings=tuple(self.sightings[run_id]),
        )


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
