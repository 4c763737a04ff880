"""The values that plan, replay, checks, ledger and report pass to each other: plain data without behaviour.

All `_ms` fields are epoch milliseconds in UTC. Every interval is half-open.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

from jobs.plain_text import counted

EMPTY_STATE = "empty"
"""The fingerprint of the state before a run that begins a chain."""

LogFields: TypeAlias = Sequence[Mapping[str, Any]]
"""Columns of a log with their types, as in Delta's schema JSON: `name`, `type`, and perhaps `id` (column_types)."""

NO_ID = "0" * 8
"""Stands for a column that the files know by its name (`LogCoordinates.columns`)."""
FORMERLY = "|"
"""What follows it are the columns that names were before column mapping was removed (`LogCoordinates.columns`)."""
LISTED = "parquet-"
"""The id of a directory of Parquet files begins with this text."""

_DATE_LENGTH = len("2013-02-08")

SHOWN_DIGITS = 12
"""Messages, tables and commands show so many digits of the id of a run."""


class Verdict(Enum):
    """The result of the checks of a run. ERROR: a check itself broke, or two attempts left different rows."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The records that arrived in `[start_ms, end_ms)`. `slice_id` is the start as a sortable ISO text."""

    slice_id: str
    start_ms: int
    end_ms: int

    @property
    def day(self) -> date | None:
        """The day that the slice is; None if it is no whole day, so that its id has a time."""
        return date.fromisoformat(self.slice_id) if len(self.slice_id) == _DATE_LENGTH else None

    def overlaps(self, other: "Slice") -> bool:
        """Return whether an instant is in both slices."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


OPTIONAL_FATES = ("filtered", "duplicate")
"""The fates of records that only some pipelines have. They are not shown where no record has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The records of a slice by fate, and the number of panes.

    `read = assigned + late + unassigned + invalid + filtered + duplicate`. `log.where` does not keep the filtered ones,
    and `log.distinct` not the duplicates.
    """

    read: int
    assigned: int
    late: int
    unassigned: int
    invalid: int
    panes: int
    filtered: int = 0
    duplicate: int = 0


def by_fate(counts: Counts) -> dict[str, int]:
    """Return fate -> number of records; `OPTIONAL_FATES` only if a record has one. Their sum is the records read."""
    fates = {name: getattr(counts, name) for name in ("assigned", "late", "unassigned", "invalid")}
    return fates | optional_fates(counts)


def optional_fates(counts: Counts) -> dict[str, int]:
    """Return the fates of `OPTIONAL_FATES` that records have -> their number."""
    return {name: count for name in OPTIONAL_FATES if (count := getattr(counts, name))}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCoordinates:
    """The position of a run's input in the log: table id, version read, and facts on the slice's files at that version.

    The commits `since..version` are known: they were read now, or by an earlier reader, and none removed records of the
    slice. `since` is -1 for a log without commits. `commits` are those that are known to have added records to it.
    `digest` is a hash of the entries of the slice's files in the Delta log (path, size, records, modification); it is
    empty in old ledgers. At version `sound`, no slice of the log had lost a record.

    `earlier_records` are the records of the slices before, in which `log.distinct` looks for earlier records. `commits`
    and `digest` cover the files of these slices, too; `files`, `records` and `bytes` do not. The numbers of records are
    those of the files with statistics. `uncounted` is the number of the others, also of those of the slices before;
    it is 0 in old ledgers. `files` does not count files that are known to have no record.

    `file_digests` has the digests of those files of the slice that no checksum covers whole (jobs.lake.covered_files);
    it is empty if a reading compared no byte. `log_digests` has those of files of `_delta_log` that no run before had
    stored; one slice of a chunk has them.

    `columns` tells which columns of the files have the names of the log's columns, as hashes
    (`LogVersion.column_hashes`): eight digits of the name and eight of the column, NO_ID in a log that maps no names.
    If column mapping was removed since an earlier reading, FORMERLY follows, and the columns that the names were there.
    It is empty in old ledgers.
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
    earlier_records: int = 0
    uncounted: int = 0
    file_digests: str = field(default="", compare=False)
    log_digests: str = field(default="", compare=False)
    columns: str = field(default="", compare=False)

    def has_other_column(self, now: "LogCoordinates") -> bool:
        """Return whether a name is that of another column now: it was renamed, or dropped and added again."""
        return self.columns != now.columns and _is_other(self.columns, now.columns)

    def keeps_columns(self, now: "LogCoordinates") -> bool:
        """Return whether each name is still that of its column."""
        return {*known_pairs(self.columns)} <= {*known_pairs(now.columns)}

    @property
    def is_listed(self) -> bool:
        """Whether the version is a digest of the listing of a directory, which tells no order."""
        return self.table_id.startswith(LISTED)

    @property
    def has_unknown_records(self) -> bool:
        """Whether a file has no statistics. In old ledgers: whether there are files, and none of them has any."""
        return self.uncounted > 0 or (self.files > 0 and not self.records)

    @property
    def named_version(self) -> str:
        """The version for people."""
        return f"listing {self.version:012x}" if self.is_listed else f"version {self.version}"


@lru_cache(maxsize=16)
def _is_other(then: str, now: str) -> bool:
    new: dict[str, set[str]] = {}  # two names may have the same hash
    for name, own in known_pairs(now):
        new.setdefault(name, set()).add(own)
    pairs = ((name, name if own == NO_ID else own) for name, own in known_pairs(then))
    return any(new.get(name, {NO_ID}).isdisjoint({own, NO_ID}) for name, own in pairs)


def hash_pairs(columns: str) -> Iterator[tuple[str, str]]:
    """Yield the hash of each name of `columns`, and that of its column in the files."""
    columns = columns.partition(FORMERLY)[0]
    return ((columns[first : first + 8], columns[first + 8 : first + 16]) for first in range(0, len(columns), 16))


def known_pairs(columns: str) -> Iterator[tuple[str, str]]:
    """Yield the hash of each name of `columns`, and that of the column that it was at first."""
    return hash_pairs(columns.rpartition(FORMERLY)[2])


def told_records(logs: Collection[LogCoordinates]) -> str:
    """Return the number of records at some coordinates, for people."""
    is_unknown = any(log.has_unknown_records for log in logs)
    return "an unknown number" if is_unknown else f"{sum(log.records for log in logs):,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A comparison of a slice's records at given coordinates with the input of a run.

    `seq` is the ledger version that has it; 0 if the ledger does not have it yet.
    """

    log: LogCoordinates
    is_equal: bool
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """An attempt that stored a part of a checkpoint: a full one, or the changes of one slice."""

    slice_id: str
    run_id: str
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointForm:
    """How a run stored its checkpoint: whole if `earlier` is empty, else as the changes of its slice.

    `earlier` has the parts before its own, in order; the first is full. `stored_digests` has the digests of the rows
    that the attempt stored, by table, if it stored changes.
    """

    earlier: tuple[CheckpointPart, ...] = ()
    stored_digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """The checkpoint after a slice: the attempt, the fingerprint of the state, and the digest of its rows by table.

    `earlier` is empty if the attempt stored the whole state. Else the attempt stored the changes of its slice, and
    `earlier` has the parts before it, in order; the first is full. The state was computed from `state_columns` of the
    log, which was read at the coordinates `log`.
    """

    slice_id: str
    run_id: str
    attempt_id: str
    fingerprint: str
    digests: Mapping[str, str] = field(default_factory=dict, compare=False)
    earlier: tuple[CheckpointPart, ...] = field(default=(), compare=False)
    state_columns: LogFields | None = field(default=None, compare=False)
    log: LogCoordinates | None = field(default=None, compare=False)

    @property
    def parts(self) -> tuple[CheckpointPart, ...]:
        """All parts, in order."""
        own = CheckpointPart(slice_id=self.slice_id, run_id=self.run_id, attempt_id=self.attempt_id)
        return (*self.earlier, own)

    @property
    def attempts(self) -> tuple[tuple[str, str], ...]:
        """The (slice_id, attempt_id) of all parts, in order."""
        return tuple((part.slice_id, part.attempt_id) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The slices from `first` up to a range. They are replayed so that its windows are whole, and never published.

    The chain starts at `first` without windows, from the clock and the watermarks of the log before it: `time` has the
    rows of table `watermarks` without ids, and is empty at the log's first slice. `fingerprint` is that of this state.
    """

    first: Slice
    time: tuple[Mapping[str, Any], ...] = ()
    fingerprint: str = EMPTY_STATE


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
    """The result of one attempt at one slice. The ledger's `staged` event stores it.

    `digests` maps a table to the hex digest of the run's rows in it; for a checkpoint's table, of the rows of the whole
    state. `checkpoint` tells how that is stored. `state_before` and `state_after` are fingerprints of checkpoints;
    `state_before` is `EMPTY_STATE` if the chain begins here. `clamped` records arrived outside the slice.
    `state_columns` are the columns of the log that the state was computed from; None if it has no rows, or in old
    ledgers.
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
    checks: Sequence[CheckResult] = ()
    warnings: tuple[str, ...] = ()
    clamped: int = 0
    extras: Mapping[str, str] = field(default_factory=dict)
    checkpoint: CheckpointForm = field(default_factory=CheckpointForm)
    state_columns: LogFields | None = None

    @property
    def stored_state(self) -> CheckpointRef:
        """The checkpoint after the slice, as the attempt stored it."""
        return CheckpointRef(
            slice_id=self.slice.slice_id,
            run_id=self.run_id,
            attempt_id=self.attempt_id,
            fingerprint=self.state_after,
            digests=self.digests,
            earlier=self.checkpoint.earlier,
            state_columns=self.state_columns,
            log=self.log,
        )


def warnings_of(slice_: Slice, *, clamped: int, clock: str | None) -> tuple[str, ...]:
    """Return the warnings on a run. `clamped` records arrived outside the slice, by the arrival time column `clock`."""
    if not clamped:
        return ()
    return (
        f"{counted(clamped, 'record')} of slice {slice_.slice_id} arrived outside of it, according to column "
        f"{clock!r}; for the replay's clock they arrived in its first or last millisecond",
    )


VERDICTS = (Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.ERROR)
"""All verdicts, from the best to the worst."""

SETTLED = "settled"
"""`CheckResult.table` of the check of settled windows, which depends on what readers see and is in no table."""

ARRIVAL = "arrival"
"""`CheckResult.table` of the check that a slice has arrived. It fails for an overdue slice (`ready: {then: hold}`)."""

BORDER = "border"
"""`CheckResult.table` of the check that readers lose or repeat no window where the slices of an adopted spec begin."""

JUDGED = frozenset({SETTLED, ARRIVAL, BORDER})
"""The tables of checks that a judgement of a request adds. No table has rows of them, so that no digest covers them."""

LAWS = "laws"
"""`CheckResult.table` of the checks that compare the counts of a run: conservation and the equations of the audit."""
