"""Opens Delta tables through deltalake, with the storage options of their place. Every other module opens them here.

Opening a table reads all commits since the last checkpoint of Delta. In an object store each is a request. So a thread
keeps the tables that it has opened there, and `open_newest` reads only new commits.
"""

import threading
from typing import TYPE_CHECKING

from jobs.storage import delta_options, file_system, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMITS = 50
_REMOTE_COMMITS = 10


class _Kept(threading.local):
    """The tables in object stores that this thread has opened."""

    def __init__(self) -> None:
        self.tables: dict[str, DeltaTable] = {}


_KEPT = _Kept()


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
    if not is_remote(uri):
        return open_delta(uri)
    kept = _KEPT.tables.pop(uri, None)
    if kept is None:
        kept = open_delta(uri)
    else:
        kept.update_incremental()
    _KEPT.tables[uri] = kept
    return kept


def drop_kept(uri: str) -> None:
    """Open a table anew the next time: after a failed commit, it may be ahead of the stored one."""
    _KEPT.tables.pop(uri, None)


def is_delta(uri: str) -> bool:
    """Return whether a place has a Delta table."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(uri, storage_options=delta_options(uri))


def is_newest(uri: str, version: int) -> bool:
    """Return whether a table has the commit file of a version and none of the next version. No file is read."""
    import pyarrow.fs as pafs

    system, root = file_system(uri)
    own, following = system.get_file_info([f"{root}/_delta_log/{one:020}.json" for one in (version, version + 1)])
    return bool(own.type != pafs.FileType.NotFound and following.type == pafs.FileType.NotFound)
