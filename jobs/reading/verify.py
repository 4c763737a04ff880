"""Compares everything that is stored about a pipeline's runs with the ledger: rows, digests, states, files (law L9).

Readers check only the rows that they read. `verify` checks every row, without Spark. The ledger checks itself when it
is read (jobs.ledger.chain). `plan --verify` compares the event log with the records that the runs read.
"""

import errno
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any
from zlib import crc32

from jobs.durations import UNIT_MS
from jobs.engine.fingerprints import state_of
from jobs.lake.damage import refuse_outage
from jobs.lake.filtered_files import records_of
from jobs.lake.lake import Lake
from jobs.lake.store import attempt_batches, table_columns
from jobs.lake.table_files import Attempt
from jobs.ledger.run_projection import attempts_at
from jobs.ledger.view import LedgerView, StagedRun
from jobs.plain_text import counted
from jobs.reading.id_sums import add_sums
from jobs.reading.stored_rows import IDS, Finding, StoredRuns, run_attempt
from jobs.reading.stored_tables import written_tables
from jobs.runs import SHOWN_DIGITS, Slice
from windowlib.columnar.row_identity import RowIdentity
from windowlib.errors import HindcastError
from windowlib.keyed.snapshots import STATE_VERSION
from windowlib.libraries import pa
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import STATE_TABLES

_OF_THIS_PROCESS = (errno.EACCES, errno.EPERM, errno.EMFILE)
"""The errors of a process that may not read a file, or not so many: the file need not be made again."""
ROWS_AT_ONCE = 250_000
"""At most so many rows of a table are in memory at a time. A state of which ids need all rows of a key has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The slices that start in [from_ms, to_ms), the one of a name, or some shares of them. None is no bound.

    Slices of several time zones may have one name. The slices are dealt into `shares` by a hash of their id, so that
    each is always in the same one; `chosen` are the numbers of these shares.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    slice_id: str | None = None
    shares: int = 1
    chosen: frozenset[int] = frozenset({0})

    def holds(self, slice_: Slice) -> bool:
        start_ms = slice_.start_ms
        is_between = (self.from_ms is None or start_ms >= self.from_ms) and (
            self.to_ms is None or start_ms < self.to_ms
        )
        is_named = self.slice_id is None or slice_.slice_id == self.slice_id
        return is_named and is_between and crc32(slice_.slice_id.encode()) % self.shares in self.chosen

    @property
    def has_copies(self) -> bool:
        """Whether copies of published rows, which are compared as a whole, belong to it: with the first share."""
        return self == Span(shares=self.shares, chosen=self.chosen) and 0 in self.chosen

    def of_days(self, shares: int, *, now_ms: int, days: int = 1) -> "Span":
        """Return the shares of the last days (UTC) up to today. So many days in a row have each share once."""
        today = now_ms // UNIT_MS["d"]
        chosen = frozenset((today - ago) % shares for ago in range(min(days, shares)))
        return replace(self, shares=shares, chosen=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of `verify`: how many runs and rows were checked, and every difference that was found.

    `unknown_files` is the number of files of the log that could not be compared with anything.
    """

    pipeline: str
    ledger_version: int
    runs: int
    rows: int
    findings: tuple[Finding, ...]
    unknown_files: int = 0

    @property
    def mendable(self) -> tuple[str, ...]:
        """The slices of which `hindcast mend` can make stored rows again."""
        places = ((finding.slice_id, finding.attempt_id) for finding in self.findings)
        return tuple(sorted({slice_id for slice_id, attempt_id in places if slice_id is not None and attempt_id}))

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if self.findings:
            return counted(len(self.findings), "finding")
        if not self.runs:
            return "no run is of these slices, so no row was compared"
        if self.unknown_files:
            could_not = f"{counted(self.unknown_files, 'file')} of the log could not"
            return f"everything that could be compared is as it was written, and {could_not}"
        return "everything is as it was written"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `hindcast verify --json` prints."""
        return {
            "pipeline": self.pipeline,
            "ledger_version": self.ledger_version,
            "runs": self.runs,
            "rows": self.rows,
            "findings": [asdict(finding) for finding in self.findings],
            "mendable": list(self.mendable),
        }


def verify(
    lake: Lake, pipeline: str, view: LedgerView, *, span: Span | None = None, rows_at_once: int = ROWS_AT_ONCE
) -> Verification:
    """Compare all rows of the attempts that count, published or staged, with their ids, checks and digests.

    States of these attempts may have parts of attempts that do not count. The state rows of those are compared as well.
    A published run without an attempt that counts is a finding. Rows of other runs that a clean-up has removed are not
    missed. `span` are the slices to check; all when None. At most `rows_at_once` rows of a table are in memory at a
    time.
    Raises StoreError: the object store does not answer.
    """
    wanted = span or Span()
    runs = sorted(
        (run for run in view.runs.values() if wanted.holds(run.result.slice)), key=lambda run: run.result.slice.start_ms
    )
    stored = StoredRuns(lake, pipeline, view, None)
    findings = [*_without_rows(view, wanted), *(finding for run in runs for finding in _state(run))]
    rows, parts = 0, _other_parts(view, wanted)
    for table in written_tables([*runs, *parts]):
        kept = [run for run in runs if not (table in STATE_TABLES and run_attempt(run) in view.removed_checkpoints)]
        kept += parts if table in STATE_TABLES else []
        problem = _of_log(stored.lake.table(pipeline, table), table) if kept else None
        if problem is not None:
            findings.append(problem)
            continue
        count, wrong = _compared(stored, table, kept, at_once=rows_at_once) if kept else (0, [])
        rows += count
        findings += wrong
    distinct = tuple(dict.fromkeys(findings))  # if the table itself cannot be read, each of its runs has the same
    return Verification(pipeline=pipeline, ledger_version=view.version, runs=len(runs), rows=rows, findings=distinct)


def _compared(
    stored: StoredRuns, table: str, runs: Sequence[StagedRun], *, at_once: int
) -> tuple[int, list[Finding]]:  # fmt: skip
    """Return the number of rows of some runs in a table, and their differences.

    If these are many rows, or a file cannot be read, each half of the runs is compared by itself. So the other runs are
    compared as well.
    Raises StoreError: the object store does not answer.
    """
    uri = stored.lake.table(stored.pipeline, table)
    try:
        is_much = records_of(uri, (run_attempt(run, table) for run in runs)) > at_once
        if is_much and len(runs) == 1:
            return _compared_in_batches(stored, table, runs[0], at_once=at_once)
        if not is_much:
            rows, findings = stored.checked(table, runs)
            return rows.num_rows, list(findings)
    except HindcastError as error:
        refuse_outage(uri, error)
        if len(runs) == 1:
            slice_id, attempt_id = run_attempt(runs[0], table)
            is_damaged = getattr(error.__cause__, "errno", None) not in _OF_THIS_PROCESS
            is_own = is_damaged and f"attempt_id={attempt_id}" in str(error)  # else the table's log is damaged
            place = {"slice_id": slice_id, "attempt_id": attempt_id} if is_own else {}
            return 0, [Finding(table=table, what=str(error), **place)]
    middle = len(runs) // 2
    halves = [_compared(stored, table, part, at_once=at_once) for part in (runs[:middle], runs[middle:])]
    return sum(count for count, _ in halves), [finding for _, wrong in halves for finding in wrong]


def _of_log(uri: str, table: str) -> Finding | None:
    """Return the damage of the log of a table, which all its runs have; None if it can be read.

    Raises StoreError: the object store does not answer.
    """
    try:
        records_of(uri, ())
    except HindcastError as error:
        refuse_outage(uri, error)
        return Finding(table=table, what=str(error))
    return None


def _compared_in_batches(
    stored: StoredRuns, table: str, run: StagedRun, *, at_once: int
) -> tuple[int, list[Finding]]:  # fmt: skip
    """Return the number of rows of one run in a table, and the first difference of their content and of their sum."""
    uri, attempt = stored.lake.table(stored.pipeline, table), run_attempt(run, table)
    columns = table_columns(uri)
    written = stored.described(uri, {attempt: run}, table=table, attempts=[attempt], columns=columns)
    if RowIdentity(written.table).holds_positions or not {*IDS, "run_id"} <= columns.keys():
        rows, findings = stored.checked(table, [run])
        return rows.num_rows, list(findings)
    sums, count, wrong = dict[Attempt, IdSum | None](), 0, list[Finding]()
    for batch in attempt_batches(uri, [attempt], [*columns], rows=at_once):
        add_sums(sums, batch)
        count += batch.num_rows
        wrong = wrong or [*islice(written.content_findings(pa.Table.from_batches([batch])), 1)]
    return count, [*written.sum_findings(sums), *wrong]


def _without_rows(view: LedgerView, span: Span) -> Iterator[Finding]:
    """Yield the published slices whose run, or that of the chain in its place, has no attempt that counts."""
    for slice_id, seen in view.published.items():
        for run_id in dict.fromkeys((seen, view.chain_run_id(seen))):
            if run_id not in view.runs and span.holds(view.slices[slice_id]):
                what = (
                    f"no attempt at the published run {run_id[:SHOWN_DIGITS]} counts any more: all were condemned, or "
                    "their rows were removed. Replay the slice with --warm-up"
                )
                yield Finding(table=tables.LEDGER, slice_id=slice_id, what=what)


def _other_parts(view: LedgerView, span: Span) -> list[StagedRun]:
    """Return the attempts at slices that do not count and that stored a part of the state after a run that counts."""
    parts = {part for run in view.runs.values() if run.checkpoint_removal is None for part in run.checkpoint.earlier}
    attempts = [
        next((other for other in attempts_at(view, part.run_id) if other.result.attempt_id == part.attempt_id), run)
        for part in sorted(parts, key=lambda part: (part.slice_id, part.attempt_id))
        if (run := view.runs.get(part.run_id)) is not None and run.result.attempt_id != part.attempt_id
    ]
    return [attempt for attempt in attempts if span.holds(attempt.result.slice)]


def _state(run: StagedRun) -> Iterator[Finding]:
    """Compare the fingerprint of the state after a run with the digests of the tables that hold it.

    An earlier version of Hindcast may have written the state. No run of this version starts from it.
    """
    result = run.result
    fingerprints = (state_of(result.digests, version=version) for version in range(STATE_VERSION, 0, -1))
    if tables.WINDOW_STATE in result.digests and result.state_after not in fingerprints:
        yield Finding(
            table=tables.LEDGER,
            slice_id=result.slice.slice_id,
            attempt_id=result.attempt_id,
            what=f"the digests of the checkpoint's tables do not give its state {result.state_after[:12]}",
        )
