"""Readiness of slices for the schedule: the conditions of a pipeline's `log.ready`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.durations import human_duration
from jobs.pipeline.slices import show_instant
from jobs.planning.log_state import LogState
from jobs.planning.workspace import Workspace
from jobs.runs import Slice
from jobs.storage import file_system
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPrefix:
    """The slices before the first that is not ready. `missing` is the condition that this one waits for."""

    slices: tuple[Slice, ...]
    missing: str = ""


def ready_prefix(work: Workspace, slices: Sequence[Slice], log: LogState) -> ReadyPrefix:
    """Return the slices up to the first that is not ready.

    Raises:
        RequestError: a slice did not become ready within `ready.timeout` after its end.
    """
    for index, one in enumerate(slices):
        missing = _missing(work, one, log)
        if missing is not None:
            _refuse_overdue(work, one, missing)
            return ReadyPrefix(slices=tuple(slices[:index]), missing=missing)
    return ReadyPrefix(slices=tuple(slices))


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
        return f"slice {one.slice_id} has {found.records:,} records, and is complete with {least}"
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


def _refuse_overdue(work: Workspace, one: Slice, missing: str) -> None:
    ready = work.pipeline.log.ready
    if ready is not None and ready.timeout_ms is not None and work.ledger.now_ms() >= one.end_ms + ready.timeout_ms:
        raise RequestError(
            f"{missing}; that did not happen within {human_duration(ready.timeout_ms)} after its end (ready.timeout). "
            f"Check the job that writes the log {work.pipeline.log.table}, or run the slice by hand"
        )
