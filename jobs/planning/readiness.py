"""Readiness of slices for the schedule: the conditions of a pipeline's `log.ready`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.durations import human_duration
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.planning.log_state import LogState
from jobs.planning.workspace import Workspace
from jobs.runs import Slice
from jobs.storage import file_system
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The first slice that is over and not ready.

    Attributes:
        slice: the slice.
        missing: the condition that it waits for, as a sentence.
        since_ms: since when it waits: its end.
        until_ms: when it counts as overdue; None: never.
    """

    slice: Slice
    missing: str
    since_ms: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPrefix:
    """The slices before the first that is not ready, and this one; None if all are ready."""

    slices: tuple[Slice, ...]
    waiting: Waiting | None = None


def ready_prefix(work: Workspace, slices: Sequence[Slice], log: LogState) -> ReadyPrefix:
    """Return the slices up to the first that is not ready."""
    for index, one in enumerate(slices):
        missing = _missing(work, one, log)
        if missing is not None:
            ready = work.pipeline.log.ready
            until_ms = None if ready is None or ready.timeout_ms is None else one.end_ms + ready.timeout_ms
            waiting = Waiting(slice=one, missing=missing, since_ms=one.end_ms, until_ms=until_ms)
            return ReadyPrefix(slices=tuple(slices[:index]), waiting=waiting)
    return ReadyPrefix(slices=tuple(slices))


def refuse_overdue(work: Workspace, waiting: Waiting) -> None:
    """Refuse to wait longer for a slice.

    Raises:
        RequestError: the slice did not become ready within `ready.timeout` after its end.
    """
    if waiting.until_ms is not None and work.ledger.now_ms() >= waiting.until_ms:
        within = human_duration(waiting.until_ms - waiting.since_ms)
        raise RequestError(
            f"{waiting.missing}; that did not happen within {within} after its end (ready.timeout). Check the job that "
            f"writes the log {work.pipeline.log.table}, or run the slice by hand"
        )


def _missing(work: Workspace, one: Slice, log: LogState) -> str | None:
    """Return the first condition of `log.ready` that a slice does not meet, as a sentence; None if it is ready."""
    ready = work.pipeline.log.ready
    if ready is None:
        return None
    if ready.after_ms is not None and work.ledger.now_ms() < one.end_ms + ready.after_ms:
        at = show_instant(one.end_ms + ready.after_ms)
        return f"slice {one.slice_id} is complete {human_duration(ready.after_ms)} after its end, at {at} (ready.after)"
    found = log.coordinates[one.slice_id]
    if ready.min_records is not None and found.records < ready.min_records:
        least = f"{ready.min_records:,} (ready.min_records)"
        return f"slice {one.slice_id} has {counted(found.records, 'record')}, and is complete with {least}"
    if ready.newer_commit and (log.last_data is None or log.last_data.start_ms <= one.start_ms):
        return f"slice {one.slice_id} is complete when the log holds records of a later slice (ready.newer_commit)"
    if ready.marker is not None and not _marker_exists(work, ready.marker, one):
        marker = ready.marker.replace("{slice_id}", one.slice_id)
        return f"slice {one.slice_id} is complete when {marker} exists (ready.marker)"
    return None


def _marker_exists(work: Workspace, marker: str, one: Slice) -> bool:
    path = work.lake.below(marker.replace("{slice_id}", one.slice_id))
    if work.lake.is_local:
        return Path(path).exists()
    import pyarrow.fs as pafs

    system, name = file_system(path)
    return bool(system.get_file_info(name).type != pafs.FileType.NotFound)
