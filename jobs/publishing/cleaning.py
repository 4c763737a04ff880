"""Removes what nothing needs any more: files of killed processes, and the rows of attempts past their retention.

Files that no commit of a table names. Two rules decide, and age is a third one on top of them:

- An attempt that was staged has committed all its rows before. So its files that no commit names belong to nothing,
  unless a table has lost commits. So the rows of its runs are compared with the ledger before a file is removed.
- An attempt that was not staged is condemned in the ledger before its first file is removed. After that, no run of it
  can be staged, so no reader and no later slice ever needs its files. The attempts of a request that somebody holds
  are not condemned, and their files stay.

Rows (`retention` of the pipeline file, jobs.publishing.retention). The ledger records what is going to be removed, then
commits of each table delete the rows. Their files stay for readers of the table's version before that commit, and
are removed when the commit is older than the given age. If a clean-up is killed, the next one finds the rows that the
ledger records as removed, and deletes them.

The order of the steps makes this safe against processes that work at the same time: list the files and rows, read the
ledger and record in one compare-and-set, delete rows, and then read which files the tables name.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jobs.durations import UNIT_MS
from jobs.lake.damage import table_errors
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import NO_TABLES, SCRATCH, CommittedFile, LakeFiles, LeftoverFile
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.removals import StoredAttempt, Why, removed_event
from jobs.ledger.snapshot import remove_old_snapshots
from jobs.ledger.view import LedgerView, StagedRun
from jobs.planning.request_context import RequestContext, holders
from jobs.publishing.replaced_files import replaced_files
from jobs.publishing.retention import Need
from jobs.reading.stored_rows import digest_of, run_attempt
from jobs.reading.verify import Span, verify
from windowlib.errors import StoreError
from windowlib.records.row_ids import NO_ROWS
from windowlib.records.tables import QUALITY_RESULTS, STATE_TABLES, WINDOW_OUTPUTS

PROBE_MS: Final = 3_600_000
"""A file without an attempt that is younger than this may belong to a process that makes a commit now."""

OLDER_THAN_MS: Final = 7 * UNIT_MS["d"]
"""By default, files stay that were written, or whose rows were deleted, later than this time ago."""

CheckRows = Callable[[LedgerView, Sequence[StagedRun]], None]
"""Compares the stored rows of runs with the ledger; raises a `StoreError` if they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRows:
    """The rows of one table that a clean-up deletes for one reason: of how many attempts at slices, and their bytes."""

    table: str
    why: Why
    attempts: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "why": self.why.value, "attempts": self.attempts, "bytes": self.bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What a clean-up found.

    No commit names the `files`, and the attempts `condemned` were not staged. Somebody holds the requests of the
    attempts `held`, so their files stay, as do the `young` ones. `rows` are past their retention, by table and reason.
    `expired` are files of rows that earlier clean-ups deleted, `replaced` those of current tables and of the cache of
    the log that nothing needs, and `snapshots` those of the ledger that no reader uses any more. In a dry run, nothing
    of this is removed (`is_removed`).
    """

    pipeline: str
    files: tuple[LeftoverFile, ...]
    condemned: tuple[str, ...]
    held: tuple[str, ...]
    young: int
    is_removed: bool
    rows: tuple[RemovedRows, ...] = ()
    expired: tuple[LeftoverFile, ...] = ()
    replaced: tuple[LeftoverFile, ...] = ()
    snapshots: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.files or self.rows or self.expired or self.replaced or self.snapshots)

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "files": [file.path for file in self.files],
            "bytes": self.bytes,
            "by_table": dict(sorted(Counter(file.table for file in self.files).items())),
            "condemned": list(self.condemned),
            "held": list(self.held),
            "young": self.young,
            "rows": [rows.to_json() for rows in self.rows],
            "expired_files": len(self.expired),
            "expired_bytes": sum(file.bytes for file in self.expired),
            "replaced_files": dict(sorted(Counter(file.table for file in self.replaced).items())),
            "replaced_bytes": sum(file.bytes for file in self.replaced),
            "ledger_snapshots": list(self.snapshots),
            "removed": self.is_removed,
        }


def clean(
    work: RequestContext, files: LakeFiles, *, older_than_ms: int, who: str, check_rows: CheckRows, dry_run: bool = True
) -> Leftovers:
    """Find the files of attempts that no commit names, and rows past their retention; remove them unless a dry run.

    The pipeline's `retention` tells which rows are kept; without it, all are. A file that was written, or whose rows
    were deleted, less than `older_than_ms` ago stays. `check_rows` is called for the runs of attempts of which a file
    is going to be removed.

    Raises:
        LedgerError: the ledger cannot be read or written.
        StoreError: the lake cannot be read, a file cannot be removed, or `check_rows` has found a difference. In the
            last case, no file was removed.
    """
    limit_ms, listed = (now_ms := work.ledger.now_ms()) - older_than_ms, files.listed()
    old = [file for file in listed if file.modified_ms <= limit_ms]
    tables = sorted({file.table for file in listed} - NO_TABLES)
    view = work.ledger.view()
    has_removed = bool(view.removed or view.removed_checkpoints)
    committed = files.committed(tables) if work.pipeline.retention is not None or has_removed else ()
    view, recorded = _record(work, old, committed, who=who, dry_run=dry_run)
    deleted = _rows_to_delete(view, recorded.removed, committed)
    _delete(work, files, {} if dry_run else deleted)
    paths = files.expired(tables, older_than_ms=older_than_ms) if has_removed else frozenset()
    expired = tuple(file for file in listed if file.path in paths)
    removable = view.staged_attempts | view.condemned_attempts | {*recorded.condemned}
    asked = [
        file
        for file in old
        if (file.modified_ms <= now_ms - PROBE_MS if file.attempt_id is None else file.attempt_id in removable)
    ]
    named = files.named(sorted({file.table for file in asked} - NO_TABLES))
    leftovers = tuple(file for file in asked if file.path not in named)
    if not dry_run:
        touched = {file.attempt_id for file in leftovers}
        check_rows(view, [run for run in view.runs.values() if run.result.attempt_id in touched])
        files.remove(file.path for file in (*leftovers, *expired))
    kept = {file.attempt_id for file in old if file.attempt_id is not None} - removable
    return Leftovers(
        pipeline=work.pipeline.name,
        files=leftovers,
        condemned=recorded.condemned,
        held=tuple(sorted(kept)),
        young=_young(listed, limit_ms, view=view),
        rows=_by_table(deleted),
        expired=expired,
        is_removed=not dry_run,
    )


def clean_lake(work: RequestContext, *, older_than_ms: int, who: str, dry_run: bool) -> Leftovers:
    """Clean the lake of a pipeline, as `clean` does, and remove the files of copies that nothing needs.

    Before a file of an attempt is removed, rows are compared as by `verify`.
    Raises LedgerError, StoreError: as for `clean`.
    """
    files = LakeFiles(lake=work.lake, pipeline=work.pipeline.name)
    check = rows_checker(work.lake, work.pipeline.name)
    leftovers = clean(work, files, older_than_ms=older_than_ms, who=who, check_rows=check, dry_run=dry_run)
    replaced = replaced_files(work, files, older_than_ms=older_than_ms)
    if not dry_run:
        files.remove(file.path for file in replaced)
    problem = f"old snapshots of ledger {work.ledger.uri} cannot be removed"
    with table_errors(lambda error: StoreError(f"{problem}: {error}")):
        snapshots = remove_old_snapshots(work.ledger.uri, dry_run=dry_run)
    return replace(leftovers, replaced=replaced, snapshots=snapshots)


def delete_removed(work: RequestContext, files: LakeFiles) -> None:
    """Delete the rows that the ledger records as removed and that the tables still have.

    Raises LedgerError, StoreError: as for `clean`.
    """
    tables = sorted({file.table for file in files.listed()} - NO_TABLES)
    _delete(work, files, _rows_to_delete(work.ledger.view(), {}, files.committed(tables)))


def rows_checker(lake: Lake, pipeline: str) -> CheckRows:
    """Return a function that compares the stored rows of runs with the ledger, as `hindcast verify` does."""

    def check(view: LedgerView, runs: Sequence[StagedRun]) -> None:
        for run in runs:
            slice_ = run.result.slice
            findings = verify(lake, pipeline, view, span=Span(from_ms=slice_.start_ms, to_ms=slice_.end_ms)).findings
            if findings:
                raise StoreError(
                    f"the rows of slice {slice_.slice_id} are not those that the ledger names ({findings[0]}), so its "
                    f"other files may be needed, and no file was removed. Run `hindcast verify {pipeline}`"
                )

    return check


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What a clean-up records in the ledger before it removes anything."""

    condemned: tuple[str, ...] = ()
    removed: Mapping[StoredAttempt, Why]

    def events(self, who: str) -> list[LedgerEvent]:
        never = LedgerEvent(kind=EventKind.CONDEMNED, who=who, reason="hindcast clean: it was never staged")
        events = [replace(never, attempt_id=attempt_id) for attempt_id in self.condemned]
        if self.removed:
            events.append(removed_event(self.removed, who=who, reason="hindcast clean: past the retention"))
        return events


def _record(
    work: RequestContext, old: Sequence[LeftoverFile], committed: Sequence[CommittedFile], *, who: str, dry_run: bool
) -> tuple[LedgerView, _Record]:
    """Condemn the attempts of `old` files that nobody works on, and record which rows are going to be deleted."""
    owners = {file.attempt_id for file in old if file.attempt_id is not None}
    record = _Record(removed={})
    if dry_run or not (committed or owners):
        view = work.ledger.view()
        return view, _recorded(work, view, owners=owners, committed=committed)

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal record
        record = _recorded(work, view, owners=owners, committed=committed)
        return record.events(who)

    return work.ledger.write(decide), record


def _recorded(
    work: RequestContext, view: LedgerView, *, owners: set[str], committed: Sequence[CommittedFile]
) -> _Record:
    busy = _busy(work, view)
    removed = _unneeded(work, view, committed, busy=busy)
    # Rows of an attempt that was never staged: it must not be staged after they are gone.
    condemned = (
        (owners | {attempt_id for _slice_id, attempt_id in removed})
        - busy
        - view.staged_attempts
        - view.condemned_attempts
    )
    return _Record(condemned=tuple(sorted(condemned)), removed=removed)


def _busy(work: RequestContext, view: LedgerView) -> set[str]:
    """Return the attempts of the requests that somebody holds."""
    return {
        attempt.attempt_id
        for request in view.requests.values()
        if holders(work, request)
        for attempt in request.attempts
    }


def _unneeded(
    work: RequestContext, view: LedgerView, committed: Iterable[CommittedFile], *, busy: Iterable[str]
) -> dict[StoredAttempt, Why]:
    """Return the attempts at slices whose rows are past the retention, and that the ledger does not record yet.

    The tables may not have these rows any more: a ledger that was restored from a backup lacks later clean-ups.
    """
    retention = work.pipeline.retention
    if retention is None:
        return {}
    runs = view.runs.values()
    written = {run_attempt(run, table): 0 for run in runs for table in (WINDOW_OUTPUTS, QUALITY_RESULTS)}
    with_state = {file.attempt for file in committed if file.table in STATE_TABLES}
    with_state |= {run_attempt(run) for run in runs if any(digest_of(run, table) != NO_ROWS for table in STATE_TABLES)}
    for file in committed:
        written[file.attempt] = max(written.get(file.attempt, 0), file.modified_ms)
    unneeded = Need(view=view, retention=retention, now_ms=work.ledger.now_ms()).unneeded(written, busy=busy)
    return {
        place: why
        for place, why in unneeded.items()
        if place not in view.removed
        and (why is not Why.CHECKPOINTS or (place in with_state and place not in view.removed_checkpoints))
    }


_Deleted = Mapping[tuple[str, Why], Mapping[StoredAttempt, int]]
"""Table and reason -> the attempts at slices whose rows are deleted, with the bytes of their files."""


def _rows_to_delete(
    view: LedgerView, removed: Mapping[StoredAttempt, Why], committed: Iterable[CommittedFile]
) -> _Deleted:
    """Return the rows that the ledger records as removed, or that are `removed` now, and that the tables still have."""
    states = {place: removal.why for place, removal in view.removed_checkpoints.items()}
    whole = {place: removal.why for place, removal in view.removed.items()}
    reasons = states | {**removed} | whole
    deleted: dict[tuple[str, Why], dict[StoredAttempt, int]] = defaultdict(lambda: defaultdict(int))
    for file in committed:
        why = reasons.get(file.attempt)
        if why is not None and (why is not Why.CHECKPOINTS or file.table in STATE_TABLES):
            deleted[file.table, why][file.attempt] += file.bytes
    return deleted


def _delete(work: RequestContext, files: LakeFiles, deleted: _Deleted) -> None:
    head = work.ledger.newest()
    by_table: dict[str, set[StoredAttempt]] = defaultdict(set)
    for (table, _why), attempts in deleted.items():
        by_table[table] |= attempts.keys()
    for table, places in sorted(by_table.items()):
        files.delete_rows(table, places, metadata={} if head is None else head.metadata())


def _by_table(deleted: _Deleted) -> tuple[RemovedRows, ...]:
    rows = [
        RemovedRows(table=table, why=why, attempts=len(attempts), bytes=sum(attempts.values()))
        for (table, why), attempts in deleted.items()
    ]
    return tuple(sorted(rows, key=lambda each: (each.table, each.why.value)))


def _young(listed: Iterable[LeftoverFile], limit_ms: int, *, view: LedgerView) -> int:
    """Return the number of files of attempts without a staged run, and of `_scratch`, that are too young."""
    return sum(
        file.modified_ms > limit_ms and (file.table == SCRATCH or file.attempt_id not in view.staged_attempts)
        for file in listed
    )
