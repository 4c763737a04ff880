"""The commits that appended the data files of a log, and the position of each file in its commit, from the commits.

This gives an order to a log without row tracking: commit, position of the file among the `add` actions, row. It is
stable because a commit file is never written again. The order inside a commit is the writer's: Spark and delta-rs list
the files in the order in which their tasks end, so this says nothing of the arrival of records inside a commit.

OPTIMIZE writes records of several commits into new files, which have no place in this order.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jobs.lake.log_files import Entry, LogFiles, commit_info, place_of
from jobs.lake.log_version import LogVersion
from jobs.lake.pinned_files import AppendPlace, PinnedFile
from windowlib.errors import LogError

POSITION_BITS: Final = 40
"""The bits of a row in the place of a file that was ordered by its commit; its position in the commit is above them."""
CLONE: Final = "CLONE"
RESTORE: Final = "RESTORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The commit that appended a file, the position of the file among its adds, and the `add`.

    `is_rewrite`: the commit has removed records of the same partition, so the file may have records of other commits.
    """

    version: int
    operation: str
    position: int
    add: Mapping[str, Any]
    is_rewrite: bool = False

    @property
    def is_append(self) -> bool:
        """Whether the commit appended the records of the file: it did not rewrite, restore or clone them."""
        is_copy = self.is_rewrite or self.operation in {CLONE, RESTORE}
        return bool(self.add.get("dataChange", True)) and not is_copy

    @property
    def place(self) -> AppendPlace:
        """The place of the first row of the file in the order of appending."""
        return AppendPlace(self.version, self.position << POSITION_BITS)


def operation_of(entries: Sequence[Entry]) -> str:
    """Return the operation of a commit, `?` if it does not name one."""
    return str(commit_info(entries).get("operation", "?"))


def origins_of(files: LogFiles, version: int) -> Iterator[tuple[str, Origin]]:
    """Yield the place in the file system of each file that a commit adds, and the commit as its origin."""
    entries = files.entries(version)
    operation = operation_of(entries)
    removed = {_partition(entry["remove"]) for entry in entries if _removes_records(entry)}
    for position, add in enumerate(entry["add"] for entry in entries if "add" in entry):
        yield (
            place_of(files.root, str(add["path"])),
            Origin(
                version=version,
                operation=operation,
                position=position,
                add=add,
                is_rewrite=None in removed or _partition(add) in removed,
            ),
        )


def _partition(action: Mapping[str, Any]) -> frozenset[tuple[str, Any]] | None:
    values = action.get("partitionValues")
    return None if values is None else frozenset(values.items())


def _removes_records(entry: Entry) -> bool:
    return "remove" in entry and bool(entry["remove"].get("dataChange", True))


def find_origins(files: LogFiles, places: Collection[str], *, version: int) -> dict[str, Origin]:
    """Return place -> origin of files of a version, as far as the commits can be read.

    The commits are read from the newest to older ones, until all files are found. A commit that adds a file again (a
    RESTORE, or new statistics) counts only if no older commit can be read that has appended the file.
    Raises LogError: a commit file is damaged.
    """
    origins: dict[str, Origin] = {}
    missing = set(places)
    while missing and version in files.commits:
        for place, origin in origins_of(files, version):
            if place in missing:
                origins[place] = origin
                if origin.is_append:
                    missing.discard(place)
        version -= 1
    return origins


def with_origins(log: LogVersion, files: Sequence[PinnedFile], log_files: LogFiles) -> tuple[PinnedFile, ...]:
    """Return files with their places in the order of appending (`order: appended`).

    Raises:
        LogError: a file was rewritten, so that the order of its records is lost, or the commit that added it is gone.
    """
    return tuple(_placed(log, file, origin) for file, origin in _with_origin(log, files, log_files))


def unordered(log: LogVersion, files: Sequence[PinnedFile], log_files: LogFiles) -> frozenset[str]:
    """Return the slices with a file for which `with_origins` raises. Raises LogError: a commit file is damaged."""
    origins = _with_origin(log, files, log_files)
    return frozenset(file.slice_id for file, origin in origins if origin is None or not origin.is_append)


def _with_origin(
    log: LogVersion, files: Sequence[PinnedFile], log_files: LogFiles
) -> list[tuple[PinnedFile, Origin | None]]:
    """Return files with their origins, as far as the commits can be read."""
    places = {file.path: place_of(log_files.root, file.path) for file in files}
    origins = find_origins(log_files, frozenset(places.values()), version=log.version)
    return [(file, origins.get(places[file.path])) for file in files]


def _placed(log: LogVersion, file: PinnedFile, origin: Origin | None) -> PinnedFile:
    if origin is not None and origin.is_append:
        return replace(file, appended=origin.place)
    if origin is None:
        why = (
            f"log retention has removed the commit that added file {file.path}. Set {log.retention} to "
            "more than the age of the records that you replay"
        )
    else:
        why = (
            f"commit {origin.version} ({origin.operation}) wrote file {file.path} from records that other commits had "
            "appended. Replay slices before you compact them"
        )
    raise LogError(
        f"the order in which the records of slice {file.slice_id} in event log {log.uri} were appended "
        f"(`order: appended`) is lost: {why}. To replay this slice, name in `log.order` the columns that order its "
        "records, or restore a version of the table before (docs/reference/logs.md)"
    )
