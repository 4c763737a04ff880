"""Opens Delta tables through deltalake, with the storage options of their place. Every other module opens them here."""

from typing import TYPE_CHECKING

from jobs.storage import delta_options

if TYPE_CHECKING:
    from deltalake import DeltaTable


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
