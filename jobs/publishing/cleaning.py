"""Removes what killed processes have left: files of attempts that no commit of a table names.

Two rules decide, and age is a third one on top of them:

- An attempt that was staged has committed all its rows before. So its files that no commit names belong to nothing,
  unless a table has lost commits. So the rows of its runs are compared with the ledger before a file is removed.
- An attempt that was not staged is condemned in the ledger before its first file is removed. After that, no run of it
  can be staged, so no reader and no later slice ever needs its files. The attempts of a request that somebody holds
  are not condemned, and their files stay.

The order of the steps makes this safe against processes that work at the same time: list the files, read the ledger and
condemn in one compare-and-set, and then read which files the tables name. Committed rows are never removed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jobs.lake.leftover_files import PROBE, SCRATCH, AttemptFiles, LeftoverFile
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.view import LedgerView, StagedRun
from jobs.planning.request_context import RequestContext, holders

PROBE_MS: Final = 3_600_000
"""A file of `_probe` that is younger than this may belong to a process that makes its first commit now."""

CheckRows = Callable[[LedgerView, Sequence[StagedRun]], None]
"""Compares the stored rows of runs with the ledger; raises a `StoreError` if they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What a clean-up found.

    Attributes:
        pipeline: the name of the pipeline.
        files: the files that no commit names; removed unless it was a dry run.
        condemned: the ids of the attempts that were not staged; condemned unless it was a dry run.
        held: the ids of attempts whose requests somebody holds. Their files stay.
        young: the number of files that stay because they are too young.
        is_removed: whether the files were removed.
    """

    pipeline: str
    files: tuple[LeftoverFile, ...]
    condemned: tuple[str, ...]
    held: tuple[str, ...]
    young: int
    is_removed: bool

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.bytes for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the content as plain data."""
        return {
            "pipeline": self.pipeline,
            "files": [file.path for file in self.files],
            "bytes": self.bytes,
            "by_table": dict(sorted(Counter(file.table for file in self.files).items())),
            "condemned": list(self.condemned),
            "held": list(self.held),
            "young": self.young,
            "removed": self.is_removed,
        }


def clean(
    work: RequestContext,
    files: AttemptFiles,
    *,
    older_than_ms: int,
    who: str,
    check_rows: CheckRows,
    dry_run: bool = True,
) -> Leftovers:
    """Find the files of attempts that no commit names, and remove them unless it is a dry run.

    Args:
        work: the pipeline and its ledger.
        files: the files of the attempts at the pipeline.
        older_than_ms: a file that was written less than this time ago stays.
        who: the person, for the ledger.
        check_rows: is called for the runs of attempts of which a file is going to be removed.
        dry_run: whether nothing is written or removed.

    Raises:
        LedgerError: the ledger cannot be read or written.
        StoreError: the lake cannot be read, a file cannot be removed, or `check_rows` has found a difference. In the
            last case, nothing was removed.
    """
    now_ms = work.ledger.now_ms()
    limit_ms = now_ms - older_than_ms
    listed = files.listed()
    old = [file for file in listed if file.modified_ms <= limit_ms]
    view, condemned = _condemn(work, old, who=who, dry_run=dry_run)
    removable = view.staged_attempts | view.condemned_attempts | {*condemned}
    asked = [
        file
        for file in old
        if (file.modified_ms <= now_ms - PROBE_MS if file.attempt_id is None else file.attempt_id in removable)
    ]
    named = files.named(sorted({file.table for file in asked} - {SCRATCH, PROBE}))
    leftovers = tuple(file for file in asked if file.path not in named)
    if not dry_run:
        touched = {file.attempt_id for file in leftovers}
        check_rows(view, [run for run in view.runs.values() if run.result.attempt_id in touched])
        files.remove(file.path for file in leftovers)
    kept = {file.attempt_id for file in old if file.attempt_id is not None} - removable
    return Leftovers(
        pipeline=work.pipeline.name,
        files=leftovers,
        condemned=condemned,
        held=tuple(sorted(kept)),
        young=_young(listed, limit_ms, view=view),
        is_removed=not dry_run,
    )


def _condemn(
    work: RequestContext, old: Sequence[LeftoverFile], *, who: str, dry_run: bool
) -> tuple[LedgerView, tuple[str, ...]]:
    """Condemn the attempts of old files that nobody works on. Return the view, and the ids of these attempts."""
    if dry_run or not any(file.attempt_id for file in old):
        view = work.ledger.view()
        return view, _lost(work, view, old)
    condemned: tuple[str, ...] = ()

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal condemned
        condemned = _lost(work, view, old)
        return [_condemned(attempt_id, who) for attempt_id in condemned]

    return work.ledger.write(decide), condemned


def _lost(work: RequestContext, view: LedgerView, old: Iterable[LeftoverFile]) -> tuple[str, ...]:
    """Return the attempts with old files that nobody works on, that were not staged and are not condemned."""
    held = {
        attempt.attempt_id
        for request in view.requests.values()
        if holders(work, request)
        for attempt in request.attempts
    }
    owners = {file.attempt_id for file in old if file.attempt_id is not None}
    return tuple(sorted(owners - held - view.staged_attempts - view.condemned_attempts))


def _condemned(attempt_id: str, who: str) -> LedgerEvent:
    return LedgerEvent(
        kind=EventKind.CONDEMNED, attempt_id=attempt_id, who=who, reason="hindcast clean: it was never staged"
    )


def _young(listed: Iterable[LeftoverFile], limit_ms: int, *, view: LedgerView) -> int:
    """Return the number of files of attempts without a staged run, and of `_scratch`, that are too young."""
    return sum(
        file.modified_ms > limit_ms and (file.table == SCRATCH or file.attempt_id not in view.staged_attempts)
        for file in listed
    )
