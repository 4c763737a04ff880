"""What earlier readings of an event log have found, from the ledger: commits, and digests of its files."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobs.lake.covered_files import CoveredFile, Stamp, StoredDigests, check_file, refuse_other_stamp
from jobs.lake.damage import log_errors, refuse_outage
from jobs.lake.log_files import OTHER_HISTORY, LogFiles, place_of
from jobs.lake.log_version import LogVersion, commit_digest
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.rewrites import Rewrite
from jobs.runs import LogCoordinates
from jobs.storage import file_system, is_remote
from windowlib.errors import LogError

READERS: Final = 8
"""So many threads read files of an object store."""
REWRITE: Final = (
    "If it is right as it is now, write its records into a new file (a compaction with dataChange = false): Hindcast "
    "compares the records of a file with another path"
)
"""The way on if a data file differs from the digest that a run has stored."""


class SeenCommit(NamedTuple):
    """A commit of a table, and the digest of its file."""

    table_id: str
    version: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLog:
    """Results of earlier reads of the log, from the ledger. `pin_log` uses them to skip commits.

    `sound` maps a table's id to a version at which no slice had lost a record. `read` maps it to pairs of versions:
    the commits from the first to the second were read, and no slice had lost a record at the second. `seen` maps a
    slice to the coordinates at which its content was compared with a run. `log_digests` maps a table's id to texts of
    digests of files of `_delta_log`. `accepted` maps a table's id to the commits that removed or changed records and
    that a person has accepted, by version. `commits` are the newest commits that a look at the log, and a read of it a
    moment ago, have seen. `opened` is the table as it was read a moment ago by this thread.
    """

    sound: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    seen: Mapping[str, Sequence[LogCoordinates]] = field(default_factory=dict)
    log_digests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    accepted: Mapping[str, Mapping[int, Rewrite]] = field(default_factory=dict)
    commits: frozenset[SeenCommit] = frozenset()
    opened: LogVersion | None = field(default=None, compare=False, repr=False)

    def accepted_of(self, table_id: str) -> Mapping[int, Rewrite]:
        """Return version -> an accepted commit of a table."""
        return self.accepted.get(table_id, {})

    def file_digests(self, table_id: str, slice_id: str) -> tuple[str, ...]:
        """Return the texts of digests of the files of a slice, without doubles."""
        texts = (seen.file_digests for seen in self.seen.get(slice_id, ()) if seen.table_id == table_id)
        return tuple(dict.fromkeys(text for text in texts if text))

    def log_files(self, log: LogVersion) -> LogFiles:
        """Return the files of the log's commits, checked.

        Raises LogError: one is not as it was written, cannot be read, or is not the commit that a run or a look has
        read under its version.
        """
        files = log.log_files(stored=StoredDigests.of(self.log_digests.get(log.table_id, ())))
        with log_errors(log.uri, "comparing its commits with those that runs have read"):
            files.check_history()
        for seen in self.commits:
            if seen.table_id == log.table_id and commit_digest(files, seen.version) not in {"", seen.digest}:
                files.entries(seen.version)  # refuses a commit that is empty or damaged
                raise LogError(
                    f"commit {seen.version} of event log {log.uri} is not the one that an earlier look at the log has "
                    f"read. {OTHER_HISTORY}"
                )
        return files


def covered_files(log: LogVersion, files: Iterable[PinnedFile], *, known: KnownLog) -> tuple[CoveredFile, ...]:
    """Return data files in the order of their paths, with the digests that earlier readings of them have stored."""
    _system, root = file_system(log.uri)
    stored: dict[str, StoredDigests] = {}
    covered = []
    for file in sorted(files, key=lambda file: file.path):
        if file.slice_id not in stored:
            stored[file.slice_id] = StoredDigests.of(known.file_digests(log.table_id, file.slice_id))
        covered.append(
            CoveredFile(
                uri=log.uri,
                path=file.path,
                place=place_of(root, file.path),
                owner=f"slice {file.slice_id}",
                way_on=REWRITE,
                stored=stored[file.slice_id].of_path(file.digest_name),
                stamp=Stamp(file.bytes, file.modified_ms) if file.is_replaceable else None,
            )
        )
    return tuple(covered)


def refuse_replaced(files: Sequence[CoveredFile]) -> None:
    """Compare the data files of one log with their stamps; raises as `refuse_other_stamp` does."""
    stamped = [file for file in files if file.stamp is not None]
    if not stamped:
        return
    uri = stamped[0].uri
    with log_errors(uri, "listing its files"):
        infos = file_system(uri)[0].get_file_info([file.place for file in stamped])
    for file, info in zip(stamped, infos, strict=True):
        refuse_other_stamp(file, info)


def checked_files(files: Sequence[CoveredFile]) -> list[bytes | LogError | None]:
    """Check data files of one log: the digest of each that no checksum file covers, None of others, or what is wrong.

    Raises:
        RequestError: as for `jobs.storage.storage_settings`.
        StoreError: the object store of the log does not answer.
    """
    if not files:
        return []
    uri = files[0].uri
    system, _root = file_system(uri)

    def checked(file: CoveredFile) -> bytes | LogError | None:
        try:
            with log_errors(uri, f"reading {file.path} ({file.owner})"):
                return check_file(system, file)
        except LogError as error:
            refuse_outage(uri, error)
            return error

    if not is_remote(uri):  # the interpreter computes the checksums, so threads do not help
        return [checked(file) for file in files]
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        return [*pool.map(checked, files)]
