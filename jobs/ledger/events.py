"""What happened to runs, one event per row of the ledger: typed columns for what is queried, JSON for the rest."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from jobs.runs import CheckResult, Counts, LogCoordinates, RunResult, Sighting, Slice, Verdict
from windowlib.errors import LedgerError


class EventKind(Enum):
    """What an event says. DESIGN.md, section 3, has the life of a run."""

    REQUESTED = "requested"  # a range, who, why, the spec; opens a request
    LEASED = "leased"  # a holder works on a request: taken, renewed, or handed on to the next task
    RELEASED = "released"  # a holder does not work on a request any more
    STARTED = "started"  # an attempt at some slices
    STAGED = "staged"  # an attempt's rows are committed and audited
    ADOPTED = "adopted"  # the request takes a run that was staged before
    COMPLETED = "completed"  # each slice of the request's range has a run in it, or is current for readers
    CHECKED = "checked"  # the verdict on a run
    WAIVED = "waived"  # a person lets a failed run pass, and says why
    PUBLISHED = "published"  # readers see this run for this slice from here on
    ROLLED_BACK = "rolled_back"  # readers see this earlier run again; none where run_id is null; the chain is held
    RESUMED = "resumed"  # a person lets the chain go on after a rollback
    CONDEMNED = "condemned"  # this attempt does not count any more
    FAILED = "failed"  # an attempt broke
    CLOSED = "closed"  # the request is over without publication
    VERIFIED = "verified"  # the log's records of a slice were compared with what a run read
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    """One row.

    `seq` is the ledger version that brought it, `ordinal` its place in that commit, `at_ms` when; all set on writing.
    """

    kind: EventKind
    request_id: str | None = None
    slice_id: str | None = None
    slice_start_ms: int | None = None
    slice_end_ms: int | None = None
    run_id: str | None = None
    attempt_id: str | None = None
    verdict: str | None = None
    who: str | None = None
    reason: str | None = None
    spec_fingerprint: str | None = None
    input_fingerprint: str | None = None
    state_before: str | None = None
    state_after: str | None = None
    watermark_ms: int | None = None
    records_read: int | None = None
    assigned: int | None = None
    late: int | None = None
    unassigned: int | None = None
    invalid: int | None = None
    panes: int | None = None
    seconds: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    ordinal: int = 0
    at_ms: int = 0

    @property
    def slice(self) -> Slice:
        """The slice that the event is about.

        Raises:
            LedgerError: it is about none.
        """
        if self.slice_id is None or self.slice_start_ms is None or self.slice_end_ms is None:
            raise LedgerError(f"ledger event {self.kind.value} (seq {self.seq}) names no slice; the ledger is damaged")
        return Slice(slice_id=self.slice_id, start_ms=self.slice_start_ms, end_ms=self.slice_end_ms)


def slice_columns(one: Slice) -> dict[str, Any]:
    """The columns of an event that name a slice."""
    return {"slice_id": one.slice_id, "slice_start_ms": one.start_ms, "slice_end_ms": one.end_ms}


def staged_event(request_id: str, result: RunResult, *, is_chain_start: bool) -> LedgerEvent:
    """The event that an attempt's rows are committed. `is_chain_start`: it began from nothing, rightly."""
    return LedgerEvent(
        kind=EventKind.STAGED,
        request_id=request_id,
        **slice_columns(result.slice),
        run_id=result.run_id,
        attempt_id=result.attempt_id,
        spec_fingerprint=result.spec_fingerprint,
        input_fingerprint=result.input_fingerprint,
        state_before=result.state_before,
        state_after=result.state_after,
        watermark_ms=result.watermark_ms,
        records_read=result.counts.read,
        assigned=result.counts.assigned,
        late=result.counts.late,
        unassigned=result.counts.unassigned,
        invalid=result.counts.invalid,
        panes=result.counts.panes,
        seconds=result.seconds,
        details={
            "digests": dict(result.digests),
            "log": asdict(result.log),
            "warnings": list(result.warnings),
            "clamped": result.clamped,
            "extras": dict(result.extras),
            "chain_start": is_chain_start,
        },
    )


def checked_event(request_id: str, result: RunResult) -> LedgerEvent:
    """The event that a run was judged; the checks of it in full."""
    checks = [asdict(check) | {"verdict": check.verdict.value} for check in result.checks]
    return LedgerEvent(
        kind=EventKind.CHECKED,
        request_id=request_id,
        **slice_columns(result.slice),
        run_id=result.run_id,
        attempt_id=result.attempt_id,
        verdict=result.verdict.value,
        details={"checks": checks, "checks_fingerprint": result.extras.get("checks_fingerprint")},
    )


def verified_event(result: RunResult, sighting: Sighting, *, found: str, who: str) -> LedgerEvent:
    """The event that the log's records of a run's slice were read again; `found` is their fingerprint."""
    return LedgerEvent(
        kind=EventKind.VERIFIED,
        **slice_columns(result.slice),
        run_id=result.run_id,
        attempt_id=result.attempt_id,
        who=who,
        input_fingerprint=found,
        details={"log": asdict(sighting.log), "equal": sighting.is_equal},
    )


def verified_sighting(event: LedgerEvent) -> Sighting:
    """What a `verified` event saw.

    Raises:
        LedgerError: the row lacks what such an event has.
    """
    try:
        return Sighting(log=_coordinates(event.details["log"]), is_equal=bool(event.details["equal"]))
    except (KeyError, TypeError) as error:
        raise LedgerError(
            f"ledger event verified (seq {event.seq}, slice {event.slice_id}) cannot be read: {error!r}"
        ) from error


def run_result(event: LedgerEvent) -> RunResult:
    """The result that a `staged` event was made of; verdict and checks come with `with_checks`.

    Raises:
        LedgerError: the row lacks what a staged event has.
    """
    try:
        details = event.details
        return RunResult(
            slice=event.slice,
            run_id=_required(event, "run_id"),
            attempt_id=_required(event, "attempt_id"),
            spec_fingerprint=_required(event, "spec_fingerprint"),
            input_fingerprint=_required(event, "input_fingerprint"),
            state_before=_required(event, "state_before"),
            state_after=_required(event, "state_after"),
            digests=details["digests"],
            counts=Counts(
                read=event.records_read or 0,
                assigned=event.assigned or 0,
                late=event.late or 0,
                unassigned=event.unassigned or 0,
                invalid=event.invalid or 0,
                panes=event.panes or 0,
            ),
            watermark_ms=event.watermark_ms,
            log=_coordinates(details["log"]),
            seconds=event.seconds or 0.0,
            verdict=Verdict.ERROR,  # staged without a verdict: what was never checked is never published
            warnings=tuple(details["warnings"]),
            clamped=details["clamped"],
            extras=details["extras"],
        )
    except (KeyError, TypeError) as error:
        raise LedgerError(
            f"ledger event staged (seq {event.seq}, slice {event.slice_id}) cannot be read: {error!r}"
        ) from error


def with_checks(result: RunResult, event: LedgerEvent) -> RunResult:
    """The result with the verdict and checks of a `checked` event.

    Raises:
        LedgerError: the row lacks what a checked event has.
    """
    try:
        checks = tuple(
            CheckResult(**check | {"verdict": Verdict(check["verdict"])}) for check in event.details["checks"]
        )
        return replace(result, verdict=Verdict(event.verdict), checks=checks)
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"ledger event checked (seq {event.seq}, slice {event.slice_id}) cannot be read: {error!r}"
        ) from error


def encode_details(details: Mapping[str, Any]) -> str:
    """The JSON text of an event's details."""
    return json.dumps(details, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _coordinates(log: Mapping[str, Any]) -> LogCoordinates:
    """Older ledgers lack the fields that have defaults."""
    return LogCoordinates(**{**log, "commits": tuple(log["commits"])})


def _required(event: LedgerEvent, column: str) -> str:
    value = getattr(event, column)
    if not isinstance(value, str):
        raise TypeError(f"{column} is {value!r}")
    return value
