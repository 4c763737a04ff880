"""Opens Delta tables through deltalake, with the storage options of their place. Every other module opens them here."""

from typing import TYPE_CHECKING

from jobs.storage import delta_options, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMITS = 50
_REMOTE_COMMITS = 10
"""Opening a table reads all commits since Delta's last checkpoint, and in an object store each is a request."""


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


def is_delta(uri: str) -> bool:
    """Return whether a place has a Delta table."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(uri, storage_options=delta_options(uri))
