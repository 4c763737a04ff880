"""Opens Delta tables through deltalake, with the storage options of their place. Every other module opens them here.

Opening a table reads all commits since the last checkpoint of Delta: 3 to 10 ms here for a table with a year of slices,
and a request for each commit in an object store. So a thread keeps the tables that it has opened, and `open_newest`
reads only new commits. A kept table is used if the commit file of its version is the file that it has read.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.storage import FileStamp, delta_options, file_stamp, file_system, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMITS = 50
_REMOTE_COMMITS = 10
MOST_KEPT = 32
"""So many tables a thread keeps: those of two pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A table, the version that it had when it was kept, and what its commit file was then (None: not known)."""

    table: "DeltaTable"
    version: int
    stamp: FileStamp | None


class _KeptTables(threading.local):
    """The tables that this thread has opened. The one that was used least recently is dropped first."""

    def __init__(self) -> None:
        self.tables: OrderedDict[str, _Kept] = OrderedDict()


_KEPT = _KeptTables()


def checkpoint_interval(uri: str) -> dict[str, str]:
    """Return the property of a new table that states after how many commits Delta writes a checkpoint."""
    return {"delta.checkpointInterval": str(_REMOTE_COMMITS if is_remote(uri) else _COMMITS)}


def open_delta(uri: str, version: int | None = None) -> "DeltaTable":
    """Return a table at a version (None: the newest).

    Raises:
        TableNotFoundError: there is no table. Other errors of deltalake: the table cannot be read.
    """
    from deltalake import DeltaTable

    return DeltaTable(uri, version=version, storage_options=delta_options(uri))


def open_newest(uri: str) -> "DeltaTable":
    """Return a table at its newest version. The next call in this thread may move the returned table forward.

    Raises:
        TableNotFoundError: there is no table. Other errors of deltalake: the table cannot be read.
    """
    kept = _KEPT.tables.pop(uri, None)
    if kept is None or not _is_same(uri, kept):
        table = open_delta(uri)
    else:
        table = kept.table
        read_new_commits(uri, table)
    keep(uri, table)
    return table


def read_new_commits(uri: str, table: "DeltaTable") -> None:
    """Move a table to its newest version.

    Raises:
        Errors of deltalake: a commit cannot be read. The table may then be at any version.
    """
    if is_remote(uri) or not is_newest(uri, table.version()):
        table.update_incremental()


def keep(uri: str, table: "DeltaTable") -> None:
    """Keep a table for the next `open_newest` of this thread: after it was opened, read again, or committed through.

    Without this call, a table that has moved to another version is opened anew.
    """
    version = table.version()
    _KEPT.tables[uri] = _Kept(table=table, version=version, stamp=_stamp(uri, version))
    _KEPT.tables.move_to_end(uri)
    while len(_KEPT.tables) > MOST_KEPT:
        _KEPT.tables.popitem(last=False)


def drop_kept(uri: str) -> None:
    """Open a table anew the next time: after a failed commit, it may be ahead of the stored one."""
    _KEPT.tables.pop(uri, None)


def _is_same(uri: str, kept: _Kept) -> bool:
    """Return whether a kept table is still what is stored. In an object store, no table is made anew at a place."""
    if is_remote(uri):
        return True
    is_known = kept.stamp is not None and kept.table.version() == kept.version
    return is_known and _stamp(uri, kept.version) == kept.stamp


def _stamp(uri: str, version: int) -> FileStamp | None:
    """Return the stamp of the commit file of a version; None without such a file on this machine."""
    if is_remote(uri):
        return None
    try:
        return file_stamp(_commit_file(uri, version))
    except OSError:
        return None


def is_delta(uri: str) -> bool:
    """Return whether a place has a Delta table."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(uri, storage_options=delta_options(uri))


def is_newest(uri: str, version: int) -> bool:
    """Return whether a table has the commit file of a version and none of the next version. No file is read."""
    if not is_remote(uri):
        own, following = (_commit_file(uri, one) for one in (version, version + 1))
        return own.exists() and not following.exists()
    import pyarrow.fs as pafs

    system, root = file_system(uri)
    infos = system.get_file_info([f"{root}/_delta_log/{one:020}.json" for one in (version, version + 1)])
    return bool(infos[0].type != pafs.FileType.NotFound and infos[1].type == pafs.FileType.NotFound)


def _commit_file(uri: str, version: int) -> Path:
    return Path(uri, "_delta_log", f"{version:020}.json")
