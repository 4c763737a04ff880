"""What every kind of event log offers: where it is, and its columns and data files at one version.

A Delta table (`delta_place`) has commits, and so has an Iceberg table (`iceberg_place`): its snapshots. A directory of
Parquet files (`parquet_place`) has none: its version is a hash of its listing, and its `LogFiles` have no commit. The
planner and the replay use only these protocols.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from jobs.lake.covered_files import StoredDigests
from jobs.lake.deleted_rows import DeletedRows
from jobs.lake.delta_log import DataFile, log_errors
from jobs.lake.log_files import NO_DIGESTS, LogFiles
from windowlib.records.column_types import Node

if TYPE_CHECKING:
    import pyarrow as pa

NO_COMMITS: Final = -1
"""`LogCoordinates.since` of a log without commits: only equal files are known to have equal records."""


class LogVersion(Protocol):
    """An event log at one version. All column names are logical; `physical` maps them to the names in the files.

    `widened` maps a column that has several types in the files of the log to the narrowest one, in Spark's spelling.
    `is_read_by_spark` tells whether Spark can read the log where tasks cannot.
    """

    @property
    def uri(self) -> str:
        """The place of the log."""
        ...

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def table_id(self) -> str:
        """Tells this log from another one that is at the same place later."""
        ...

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Column -> its type, in the order of the columns."""
        ...

    @property
    def columns(self) -> Mapping[str, str]:
        """Column -> its type in Spark's spelling."""
        ...

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are in the paths of the files, or in the commits."""
        ...

    @property
    def configuration(self) -> Mapping[str, str | None]:
        """The settings of the table; none of a log that is no table."""
        ...

    @property
    def physical(self) -> Mapping[str, str]:
        """Column -> its name in the files."""
        ...

    @property
    def is_mapped(self) -> bool:
        """Whether `physical` has other names than the columns."""
        ...

    @property
    def widened(self) -> Mapping[str, str]:
        """Column -> its narrowest type, if it has several."""
        ...

    @property
    def has_commits(self) -> bool:
        """Whether the log has a history: commits that tell what was added and removed."""
        ...

    @property
    def is_read_by_spark(self) -> bool:
        """Whether Spark can read the log."""
        ...

    @property
    def retention(self) -> str:
        """The setting of the table that says how long commits are kept."""
        ...

    @property
    def why_not_accepted(self) -> str:
        """Why a person cannot accept commits that removed or changed records; empty if a person can."""
        ...

    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> LogFiles:
        """Return the files of the commits, checked; raises a LogError if one is damaged."""
        ...

    def files(self) -> Sequence[DataFile]:
        """Return the data files; raises a LogError if they cannot be listed."""
        ...

    def upper_bounds(self, column: str, paths: Collection[str]) -> "Mapping[str, pa.Scalar[Any]]":
        """Return path -> the greatest value of a column, where the log tells it."""
        ...

    def bounds(self, column: str) -> "pa.Table":
        """Return `path`, `low`, `high` and `nulls` of the files of which the log tells all three of a column."""
        ...

    def deleted_rows(self) -> Mapping[str, DeletedRows]:
        """Return the path of each file that has rows which do not belong to the log any more -> these rows."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Return path -> why it is not known which records of a file belong to the log."""
        ...

    def removal(self, columns: Sequence[str]) -> str:
        """Return how a person removes the records that have no value of one of these columns."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTip:
    """The newest state of a log: its version, and a digest of what makes it, which tells another log at that place.

    Of a table, `commit` is the digest of the file of the newest commit. `files` are its commits.
    """

    version: int
    commit: str
    files: LogFiles


def commit_digest(files: LogFiles, version: int) -> str:
    """Return the digest of the file of a commit; empty if that is gone.

    Raises:
        LogError: the file cannot be read.
    """
    path = files.commits.get(version)
    if path is None:
        return ""
    with log_errors(files.uri, f"reading commit {version}"), files.system.open_input_stream(path) as stream:
        return hashlib.blake2b(stream.read(), digest_size=16).hexdigest()


class LogPlace(Protocol):
    """Where an event log is, and how it is opened."""

    @property
    def uri(self) -> str:
        """The place."""
        ...

    def open(self, version: int | None = None) -> LogVersion:
        """Return a version of the log (None: the newest); raises a LogError if it cannot be opened."""
        ...

    def is_newest(self, version: int) -> bool:
        """Return whether the log has this version, and no newer one. No record is read."""
        ...

    def tip(self) -> LogTip | None:
        """Return the newest state; None if the log has no commit that can be read. Raises a LogError."""
        ...
