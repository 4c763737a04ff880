"""The data files of a pinned event log, and the check that they have the records that were appended."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from jobs.lake.damage import log_errors
from jobs.lake.log_files import place_of
from jobs.lake.log_version import DataFile, LogVersion
from jobs.lake.rewrites import Rewrite, deleted_records
from jobs.lake.row_tracking import RowPlace
from jobs.plain_text import agreeing, counted
from jobs.storage import file_system
from windowlib.errors import LogError
from windowlib.libraries import pafs

BYTES_PER_RECORD: Final = 16
"""A file without a number of records is taken as one of many small ones, so that memory suffices for its chunk."""


class AppendPlace(NamedTuple):
    """Row i of a file, from 0, is at (commit, first + i) in the order of appending. Both are ascending.

    This is true only for files without the hidden columns that OPTIMIZE writes.
    """

    commit: int
    first: int


class SlicePart(NamedTuple):
    """The records of a file that belong to a slice: those with an instant from `start_ms` until before `end_ms`.

    The instants are those of the slice column, by `slice_instants`.
    """

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile(DataFile):
    """A data file of the pinned version whose records, or a `part` of them, belong to a slice.

    `value` is the value of the slice columns (`log_cut.slice_value`). `row_ids` are the ids that the Delta log gives
    its rows. `appended` is its place in the order of appending, which is another one if row tracking was switched on
    later. Both are None if the log was pinned without row ids. `part` is None if all records of the file belong to the
    slice; else `records` is the number of those that do.
    """

    slice_id: str
    value: str = ""
    row_ids: RowPlace | None = None
    appended: AppendPlace | None = None
    part: SlicePart | None = None

    @classmethod
    def of(cls, file: DataFile, *, slice_id: str, value: str = "") -> Self:
        """Return a file of the log whose records all belong to a slice."""
        return cls(**file.facts(), slice_id=slice_id, value=value)


def refuse_damage(log: LogVersion, files: Sequence[PinnedFile], *, accepted: Collection[Rewrite]) -> None:
    """Refuse files that the log still names, and whose records are not those that were appended.

    `accepted` are commits that removed or changed records, and that a person has accepted.
    Raises LogError: records were deleted or are not known, or a file was lost or has another size.
    """
    _refuse_unknown_records(log, files)
    _refuse_deleted_records(log, files, accepted)
    _refuse_lost_files(log, files)


def _refuse_unknown_records(log: LogVersion, files: Sequence[PinnedFile]) -> None:
    lost = log.lost()
    unknown = [file for file in files if file.path in lost]
    if unknown:
        file = unknown[0]
        raise LogError(
            f"the records of slice {file.slice_id} in event log {log.uri} are not known (file {file.path}): "
            f"{lost[file.path]}. Ranges without this slice can be replayed, and what readers see has not changed "
            "(docs/reference/logs.md)"
        )


def _refuse_deleted_records(log: LogVersion, files: Sequence[PinnedFile], accepted: Collection[Rewrite]) -> None:
    """Refuse files with deletion vectors of commits that are not accepted: log retention may have removed them."""
    for file in files:
        if file.deleted is not None and not any(rewrite.vectors.get(file.path) == file.vector for rewrite in accepted):
            raise deleted_records(log.uri, file.slice_id, file.path)


def _refuse_lost_files(log: LogVersion, files: Sequence[PinnedFile]) -> None:
    system, root = file_system(log.uri)
    with log_errors(log.uri, "listing its files"):
        infos = system.get_file_info([place_of(root, file.path) for file in files]) if files else []
    lost = [file for file, info in zip(files, infos, strict=True) if info.type != pafs.FileType.File]
    if lost:
        records = "" if lost[0].records is None else f", {counted(lost[0].records, 'record')}"
        raise LogError(
            f"version {log.version} of event log {log.uri} names {counted(len(lost), 'file')} of the range that "
            f"{agreeing(len(lost), 'do')} not exist, first {lost[0].path} (slice {lost[0].slice_id}{records}). "
            "VACUUM or a person removed them. Restore them from a backup, or replay a range that does not need them"
        )
    cut = [(file, info) for file, info in zip(files, infos, strict=True) if info.size != file.bytes]
    if cut:
        file, info = cut[0]
        raise LogError(
            f"version {log.version} of event log {log.uri} names {counted(len(cut), 'file')} of the range that "
            f"{agreeing(len(cut), 'have')} another size now, first {file.path} (slice {file.slice_id}): "
            f"{file.bytes:,} bytes were written, {info.size:,} were found. Restore them from a backup, "
            "or replay a range that does not need them"
        )
