"""Opens Delta tables through deltalake, and keeps them: the one cache of tables. Every other module opens them here.

Opening a table reads its newest checkpoint and all commits after it: 3 to 10 ms here for a table with a year of slices,
and a request for each commit in an object store. Reading the new commits takes 1 ms. So a thread keeps its tables:

- `open_newest` uses a kept table if the commit file of its version is the file that it has read, and reads new commits.
- In `opening_tables_once` (the replay of a chunk, a request of the review pages), `open_table` does this once for a
  table, and again after `expect_commits`.
- The list of files is read once for each version of a kept table (`OpenedTable.listing`).

The log that a plan has opened is no entry of this cache. The plan gives it to its replay (`KnownLog.opened`). The files
of `_delta_log` are checked once for each opened log, and a process may run for weeks.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from cachetools import LRUCache

from jobs.durations import UNIT_MS
from jobs.lake.table_files import Listing
from jobs.storage import FileStamp, delta_options, file_stamp, file_system, is_remote
from windowlib.libraries import pafs

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMITS = 50
_REMOTE_COMMITS = 10
MAX_ATTEMPTS = 50
"""How many times a commit to a table is tried. A try fails if another process committed first."""
MOST_KEPT = 32
"""So many tables a thread keeps: those of two pipelines."""
_JITTER = SystemRandom()


def pause_s(attempt: int) -> float:
    """Return how long to wait after try `attempt` of a commit, from 0 on, because another process committed first."""
    return float(min(0.002 * 2 ** min(attempt, 6), 0.1) * (0.5 + _JITTER.random()))


@dataclass(slots=True)
class OpenedTable:
    """A table that this thread has opened. The next opening in this thread may move it to a newer version.

    `version` is the version at the last opening, and `stamp` what its commit file was then (None: not known). After a
    commit through `delta`, the version is another one.
    """

    uri: str
    delta: "DeltaTable"
    version: int = -1
    stamp: FileStamp | None = None
    _listing: tuple[int, Listing] | None = None

    def listing(self) -> Listing:
        version = self.delta.version()
        if self._listing is None or self._listing[0] != version:
            self._listing = version, Listing(self.delta)
        return self._listing[1]

    def is_same(self) -> bool:
        """Return whether it is still what is stored, and no table that was made anew at its place."""
        is_known = self.stamp is not None and self.delta.version() == self.version
        return is_known and commit_stamp(self.uri, self.version) == self.stamp

    def read_new_commits(self) -> None:
        """Move it to the newest version. If this raises, it may be at any version."""
        if is_remote(self.uri) or not is_newest(self.uri, self.delta.version()):
            self.delta.update_incremental()


class _KeptTables(threading.local):
    """The tables of this thread. Those in `current` are used without a look at the table; None is no table."""

    def __init__(self) -> None:
        self.tables: LRUCache[str, OpenedTable] = LRUCache(MOST_KEPT)
        self.current: dict[str, OpenedTable | None] | None = None


_KEPT = _KeptTables()


@contextmanager
def opening_tables_once() -> Iterator[None]:
    """Let readers of this thread open each table once.

    Inside, `open_table` returns a table as it was at its first read, with the commits that this thread has made since.
    """
    before, _KEPT.current = _KEPT.current, {}
    try:
        yield
    finally:
        _KEPT.current = before


def expect_commits(uri: str | None = None) -> None:
    """Let the next reader of a table (None: of each table) read the commits since it was opened."""
    current = _KEPT.current or {}
    for opened in [*current] if uri is None else [uri]:
        current.pop(opened, None)


def forget_table(uri: str) -> None:
    """Let the next reader open a table anew: a commit to it has failed, or has changed its columns."""
    _KEPT.tables.pop(uri, None)
    expect_commits(uri)


def open_table(uri: str) -> OpenedTable | None:
    """Return a table at its newest version, or as `opening_tables_once` tells; None if there is none."""
    from deltalake.exceptions import TableNotFoundError

    current = {} if _KEPT.current is None else _KEPT.current
    if uri not in current:
        try:
            current[uri] = open_newest(uri)
        except TableNotFoundError:
            current[uri] = None
    return current[uri]


def open_newest(uri: str) -> OpenedTable:
    """Return a table at its newest version.

    Raises TableNotFoundError: there is no table. Other errors of deltalake: the table cannot be read.
    """
    table = _KEPT.tables.pop(uri, None)
    if table is None or not table.is_same():
        table = OpenedTable(uri, open_delta(uri))
    else:
        table.read_new_commits()
    if table.version != table.delta.version():  # else it has the stamp of what was read: the stored one may be newer
        table.version = table.delta.version()
        table.stamp = commit_stamp(uri, table.version)
    _KEPT.tables[uri] = table
    return table


def open_delta(uri: str, version: int | None = None) -> "DeltaTable":
    """Return a table at a version (None: the newest).

    Raises TableNotFoundError: there is no table. Other errors of deltalake: the table cannot be read.
    """
    from deltalake import DeltaTable

    return DeltaTable(uri, version=version, storage_options=delta_options(uri))


def is_delta(uri: str) -> bool:
    """Return whether a place has a Delta table."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(uri, storage_options=delta_options(uri))


def checkpoint_interval(uri: str) -> dict[str, str]:
    """Return the property of a new table that states after how many commits Delta writes a checkpoint."""
    return {"delta.checkpointInterval": str(_REMOTE_COMMITS if is_remote(uri) else _COMMITS)}


def removed_paths(table: "DeltaTable", *, older_than_ms: int) -> list[str]:
    """Return the paths of the files that commits longer ago have removed, as far as the table's log still names them.

    They are relative to the table, and encoded as in the log or not, depending on the store.
    """
    hours = -(-older_than_ms // UNIT_MS["h"])
    return list(table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False))


def is_newest(uri: str, version: int) -> bool:
    """Return whether a table has the commit file of a version and none of the next version. No file is read."""
    if not is_remote(uri):
        own, following = (commit_file(uri, number) for number in (version, version + 1))
        return own.exists() and not following.exists()
    stored, later = _commit_objects(uri, version, version + 1)
    return bool(stored.is_file and not later.is_file)


def commit_stamp(uri: str, version: int) -> FileStamp | None:
    """Return the stamp of the commit file of a version, in a store its size and time; None if it cannot be asked."""
    try:
        if not is_remote(uri):
            return file_stamp(commit_file(uri, version))
        [stored] = _commit_objects(uri, version)
    except OSError:
        return None
    return (stored.size, stored.mtime_ns, 0, 0) if stored.is_file else None


def _commit_objects(uri: str, *versions: int) -> "list[pafs.FileInfo]":
    system, root = file_system(uri)
    return list(system.get_file_info([commit_path(root, version) for version in versions]))


def commit_path(uri: str, version: int) -> str:
    """Return the place of the commit file of a version of a table."""
    return f"{uri}/_delta_log/{version:020}.json"


def commit_file(uri: str, version: int) -> Path:
    """Return the place of the commit file of a version of a table on this machine."""
    return Path(commit_path(uri, version))
