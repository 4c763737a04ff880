"""The values that travel between plan, replay, checks, ledger and report. Plain data, no behaviour.

All `_ms` fields are epoch milliseconds in UTC; every interval is half-open.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """What the checks of one run say. `ERROR`: a check itself broke, or the run contradicts an equal one."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The records that arrived in `[start_ms, end_ms)`; `slice_id` is its start as a sortable ISO text."""

    slice_id: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many records of a slice had which fate: `read = assigned + late + unassigned + invalid`; `panes` went out."""

    read: int
    assigned: int
    late: int
    unassigned: int
    invalid: int
    panes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCoordinates:
    """Where the input of a run stood in the log: table id, version read, and what the log said of its files there.

    `commits` are those that brought records to the slice, as far as they are known: those of `since..version`, and
    those that earlier readers have found. `digest` is the hash of what the log says of the slice's files (path, size,
    records, modification; empty in old ledgers). At the version `sound` no slice of the log had lost a record.
    """

    table_id: str
    version: int
    commits: tuple[int, ...]
    files: int
    records: int
    bytes: int
    digest: str = ""
    since: int = 0
    sound: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Coordinates at which the records of a slice were compared with what a run read: whether they were equal."""

    log: LogCoordinates
    is_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """Which attempt's rows are the state after a slice, the fingerprint of their content, and its digest by table."""

    slice_id: str
    run_id: str
    attempt_id: str
    fingerprint: str
    digests: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check of one run.

    `observed` and `arguments` are JSON texts. `message` is the result as one sentence, for people. The fields
    `description` (the suite's own words) and `error` (the exception, if the check itself failed) are in the ledger and
    not in `quality_results`. A ledger that an older Hindcast wrote does not have them: both are None.
    """

    slice_id: str
    table: str
    check: str
    severity: str
    verdict: Verdict
    column: str | None = None
    observed: str | None = None
    arguments: str = "{}"
    message: str = ""
    description: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What one attempt at one slice left behind; the ledger's `staged` event is made of it.

    `digests` maps a table to the hex digest of the run's rows there; `state_before` and `state_after` are fingerprints
    of checkpoints (`EMPTY_STATE` where a chain begins).
    """

    slice: Slice
    run_id: str
    attempt_id: str
    spec_fingerprint: str
    input_fingerprint: str
    state_before: str
    state_after: str
    digests: Mapping[str, str]
    counts: Counts
    watermark_ms: int | None
    log: LogCoordinates
    seconds: float
    verdict: Verdict
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    clamped: int = 0
    extras: Mapping[str, str] = field(default_factory=dict)


def warnings_of(one: Slice, *, clamped: int, clock: str | None) -> tuple[str, ...]:
    """What a person should know of a run that no check is about: `clamped` arrivals lie outside the slice.

    `clock` is the column of the arrival time.
    """
    if not clamped:
        return ()
    return (
        f"{clamped:,} records of slice {one.slice_id} arrived outside of it, according to column {clock!r}; for the "
        "replay's clock they arrived in its first or last millisecond",
    )


EMPTY_STATE = "empty"

VERDICTS = (Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.ERROR)
"""All verdicts, from the best to the worst."""

LAWS = "laws"
"""`CheckResult.table` of the checks that compare the counts of a run: conservation and the equations of the audit."""
