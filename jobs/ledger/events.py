"""The events of the ledger: one row each, with typed columns for queried fields and JSON for all others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache
from operator import attrgetter, index
from sys import intern
from typing import Any, Final, TypeVar

from jobs.ledger.chain import CANONICAL_JSON, CONTENT_ERRORS
from jobs.ledger.later import Cell, LaterSequence
from jobs.ledger.stored_details import StoredDetails
from jobs.runs import (
    OPTIONAL_FATES,
    CheckpointForm,
    CheckpointPart,
    CheckResult,
    Counts,
    LogCoordinates,
    RunResult,
    Slice,
    Verdict,
    optional_fates,
)
from windowlib.errors import LedgerError
from windowlib.libraries import pa

Value = TypeVar("Value")


class EventKind(Enum):
    """The kinds of events. The ledger stores the values. docs/decisions/002-one-ledger.md has a run's life."""

    REQUESTED = "requested"  # opens a request: its range, person, reason and spec
    LEASED = "leased"  # a holder takes or renews a lease of a request, or hands it on to the next task
    RELEASED = "released"  # a holder ends its lease
    STARTED = "started"  # an attempt at some slices begins
    STAGED = "staged"  # the rows of an attempt at one slice are committed and audited
    ADOPTED = "adopted"  # the request takes over a run that was staged before
    COMPLETED = "completed"  # each slice of the request's range has a run in the request, or readers see a current run
    CHECKED = "checked"  # the verdict on a run
    JUDGED = "judged"  # how much the publication of a request would change settled windows, by what readers see then
    WAIVED = "waived"  # a person lets a failed run pass and gives a reason
    PUBLISHED = "published"  # readers see this run of the slice from now on
    ROLLED_BACK = "rolled_back"  # readers see this earlier run again (null: no run), and the chain is held
    TOLD = "told"  # a task sends the asset events of a publication that a command has made
    RESUMED = "resumed"  # a person ends the hold of the chain
    CONDEMNED = "condemned"  # the attempt does not count any more (without a run: no run of it, and none is staged)
    REMOVED = "removed"  # a clean-up is going to delete rows that nothing needs any more
    MENDED = "mended"  # another attempt, with equal rows, counts for a run whose stored rows were damaged
    FAILED = "failed"  # an attempt ended with an error
    CLOSED = "closed"  # the request ended without publication
    LOOKED = "looked"  # the log was compared with what the published runs read
    VERIFIED = "verified"  # the records of a slice in the log were compared with the input of a run
    ACCEPTED = "accepted"  # a person accepts commits of the log that removed or changed records
    RECOVERED = "recovered"  # a person goes on without the last commits of the ledger, which were lost
    NOTE = "note"  # a comment or an assignee of a request, or free text; changes no rule, so older readers skip it


CACHE: Mapping[str, bool] = {"is_cache": True}
"""The metadata of a field of a fold that can be computed from the other fields. A snapshot leaves it out."""

STORAGE_KINDS = frozenset({EventKind.REMOVED, EventKind.MENDED})
"""The kinds that tell where rows are stored now. They are true of earlier versions of the ledger, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    """One row of the ledger. Fields that its kind does not use are None.

    `Ledger.write` sets `seq` (the ledger version of its commit), `ordinal` (its position in that commit) and `at_ms`
    (the time of writing).
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
        """The slice of the event. Raises LedgerError: the event has no slice."""
        if self.slice_id is None or self.slice_start_ms is None or self.slice_end_ms is None:
            raise LedgerError(f"ledger event {self.kind.value} (seq {self.seq}) has no slice; the ledger is damaged")
        return Slice(slice_id=self.slice_id, start_ms=self.slice_start_ms, end_ms=self.slice_end_ms)


_FIRST = ("seq", "ordinal", "at_ms", "event", "commit_id", "commit_events", "previous")
_OWN: Final = tuple(column.name for column in fields(LedgerEvent) if column.name != "kind")
"""The columns that are fields of an event."""
_OWN_OF: Final = attrgetter(*_OWN)
_COLUMNS: Final = (*_FIRST, *(name for name in _OWN if name not in _FIRST), "hash")
_WHOLE: Final = (
    "seq", "ordinal", "at_ms", "commit_events", "slice_start_ms", "slice_end_ms", "watermark_ms",
    "records_read", "assigned", "late", "unassigned", "invalid", "panes",
)  # fmt: skip
_NUMBERS: Final[Mapping[str, Callable[[Any], object]]] = {**dict.fromkeys(_WHOLE, index), "seconds": float}
"""What makes the value of a column of numbers the one that the table returns. All other columns are texts."""


@cache
def ledger_schema() -> "pa.Schema":
    """Return the schema of the table: the columns of an event, of its commit, and of the hash chain."""
    kinds = {**dict.fromkeys(_WHOLE, pa.int64()), "ordinal": pa.int32(), "commit_events": pa.int32()}
    kinds["seconds"] = pa.float64()
    return pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in _COLUMNS])


def text_of(event: LedgerEvent, column: str) -> str:
    """Return a column of an event that its kind requires. Raises LedgerError: the event has no text there."""
    value = getattr(event, column)
    if not isinstance(value, str):
        raise LedgerError(f"ledger event {event.kind.value} (seq {event.seq}) has no {column}; the ledger is damaged")
    return value


def closed_event(request_id: str, why: str, *, who: str | None = None, by: str | None = None) -> LedgerEvent:
    """Return the event that closes a request; `by` is the request that settles or replaces it."""
    details = {} if by is None else {"by": by}
    return LedgerEvent(kind=EventKind.CLOSED, request_id=request_id, who=who, reason=why, details=details)


def columns_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass with slots
    """Return the fields of a value that has no dataclass inside. `asdict` takes ten times as long, to look for one."""
    return {name: getattr(value, name) for name in value.__slots__}


def changed(value: Value, **changes: Any) -> Value:  # noqa: ANN401 - the fields of a dataclass with slots
    """Return a value with other values of some fields. `dataclasses.replace` takes twice as long, and looks at each."""
    kind: Any = type(value)
    names, values_of = _fields_of(kind)
    new: Value = kind(**{**dict(zip(names, values_of(value), strict=True)), **changes})
    return new


@cache
def _fields_of(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(column.name for column in fields(kind))
    return names, attrgetter(*names)


def slice_columns(slice_: Slice) -> dict[str, Any]:
    """Return the columns of an event that name a slice."""
    return {"slice_id": slice_.slice_id, "slice_start_ms": slice_.start_ms, "slice_end_ms": slice_.end_ms}


def staged_event(request_id: str, result: RunResult, *, is_chain_start: bool, warms_up: bool = False) -> LedgerEvent:
    """Return the `staged` event of a run. `is_chain_start`: it starts from another state than the published run leaves.

    `warms_up`: its slice is before the range of the request, and the run is never published.
    """
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
            "log": columns_of(result.log),
            "warnings": list(result.warnings),
            "clamped": result.clamped,
            "extras": dict(result.extras),
            "chain_start": is_chain_start,
            "checkpoint": {
                "earlier": tuple(map(columns_of, result.checkpoint.earlier)),
                "stored_digests": dict(result.checkpoint.stored_digests),
            },
        }
        | ({"warms_up": True} if warms_up else {})
        | ({} if result.state_columns is None else {"state_columns": [*result.state_columns]})
        | optional_fates(result.counts),
    )


def mended_event(run: LedgerEvent, *, who: str, reason: str, owns_checks: bool) -> LedgerEvent:
    """Return the event by which another attempt counts for a run. `run` is the `staged` event of that attempt.

    `owns_checks`: the attempt stored the results of checks that the ledger has, so its rows of them count, too.
    """
    details = {**run.details, "owns_checks": owns_checks}
    return replace(run, kind=EventKind.MENDED, who=who, reason=reason, details=details)


def checked_event(request_id: str, result: RunResult) -> LedgerEvent:
    """Return the `checked` event of a run, with all its checks."""
    checks = [columns_of(check) | {"verdict": check.verdict.value} for check in result.checks]
    return LedgerEvent(
        kind=EventKind.CHECKED,
        request_id=request_id,
        **slice_columns(result.slice),
        run_id=result.run_id,
        attempt_id=result.attempt_id,
        verdict=result.verdict.value,
        details={"checks": checks, "checks_fingerprint": result.extras.get("checks_fingerprint")},
    )


def judged_event(request_id: str, basis: str, checks: Mapping[str, Sequence[CheckResult]]) -> LedgerEvent:
    """Return the `judged` event of a request. `checks` has the checks of each of its runs (run id -> checks)."""
    runs = {
        run_id: [columns_of(check) | {"verdict": check.verdict.value} for check in results]
        for run_id, results in checks.items()
    }
    return LedgerEvent(kind=EventKind.JUDGED, request_id=request_id, details={"basis": basis, "runs": runs})


def judged_checks(event: LedgerEvent) -> dict[str, tuple[CheckResult, ...]]:
    """Return the checks of each run that a `judged` event records."""
    return {run_id: tuple(map(_check, checks)) for run_id, checks in event.details["runs"].items()}


def run_result(event: LedgerEvent) -> RunResult:
    """Return the result that a `staged` event records, without checks and with verdict ERROR: see `with_checks`."""
    details = event.details
    return RunResult(
        slice=event.slice,
        run_id=text_of(event, "run_id"),
        attempt_id=text_of(event, "attempt_id"),
        spec_fingerprint=text_of(event, "spec_fingerprint"),
        input_fingerprint=text_of(event, "input_fingerprint"),
        state_before=text_of(event, "state_before"),
        state_after=text_of(event, "state_after"),
        digests=details["digests"],
        counts=Counts(
            read=event.records_read or 0,
            **{name: details.get(name, 0) for name in OPTIONAL_FATES},
            **{name: getattr(event, name) or 0 for name in ("assigned", "late", "unassigned", "invalid", "panes")},
        ),
        watermark_ms=event.watermark_ms,
        log=coordinates_of(details["log"]),
        seconds=event.seconds or 0.0,
        verdict=Verdict.ERROR,  # a run without a `checked` event must not be published
        warnings=tuple(details["warnings"]),
        clamped=details["clamped"],
        extras=details["extras"],
        state_columns=None if (columns := details.get("state_columns")) is None else tuple(columns),
        checkpoint=_checkpoint(details.get("checkpoint", {"earlier": (), "stored_digests": {}})),
    )


_VERDICTS: Mapping[object, Verdict] = {verdict.value: verdict for verdict in Verdict}
"""A look-up takes a tenth of the time of `Verdict(text)`, and a year of slices has ten thousand checks."""


def with_checks(result: RunResult, event: LedgerEvent) -> RunResult:
    """Return the result with the verdict and checks of a `checked` event."""
    return changed(result, verdict=_VERDICTS[event.verdict], checks=later_checks(event))


def later_checks(event: LedgerEvent) -> Sequence[CheckResult]:
    """Return the checks of a `checked` event, which are made when the first of them is read."""
    return LaterSequence(Cell([(event, _checks_of)]))


def checks_fingerprint_of(event: LedgerEvent) -> str | None:
    """Return the fingerprint of the suites of a `checked` event; None if it has none."""
    name, details = "checks_fingerprint", event.details
    stored: str | None = details.last(name) if isinstance(details, StoredDetails) else details.get(name)
    return stored


def _checks_of(event: LedgerEvent) -> tuple[CheckResult, ...]:
    """Return the checks of a `checked` event. Raises a LedgerError, because they are read after the fold."""
    try:
        return tuple(map(_check, event.details["checks"]))
    except CONTENT_ERRORS as error:
        if isinstance(event.details, StoredDetails):
            raise event.details.wrong(f"{error!r:.300}") from error
        raise LedgerError(
            f"ledger event checked (seq {event.seq}, slice {event.slice_id}) cannot be read: {error!r:.300}"
        ) from error


def _check(stored: Mapping[str, Any]) -> CheckResult:
    return CheckResult(**{**stored, "verdict": _VERDICTS[stored["verdict"]]})


def encode_details(details: Mapping[str, Any]) -> str:
    """Return the canonical JSON text of an event's details."""
    return CANONICAL_JSON.encode(dict(details))


def event_rows(events: Sequence[LedgerEvent], *, commit_id: str) -> list[dict[str, Any]]:
    """Return the events of one commit as rows, with values as the table returns them, without the hash chain.

    Raises TypeError: a number is of another type than its column.
    """
    rows = []
    for event in events:
        row: dict[str, Any] = dict.fromkeys(_COLUMNS)
        row.update(zip(_OWN, _OWN_OF(event), strict=True))
        row["event"], row["details"] = event.kind.value, encode_details(event.details)
        row["commit_id"], row["commit_events"] = commit_id, len(events)
        for name, turn in _NUMBERS.items():
            if (value := row[name]) is not None:
                row[name] = turn(value)
        rows.append(row)
    return rows


def _checkpoint(stored: Mapping[str, Any]) -> CheckpointForm:
    # The ledgers of versions without incremental checkpoints do not have this entry.
    return CheckpointForm(
        earlier=tuple(CheckpointPart(**part) for part in stored["earlier"]), stored_digests=stored["stored_digests"]
    )


def coordinates_of(log: Mapping[str, Any]) -> LogCoordinates:
    """Return stored coordinates. Older ledgers lack the fields that have defaults. Equal columns are one text."""
    return LogCoordinates(**{**log, "commits": tuple(log["commits"]), "columns": intern(log.get("columns", ""))})
