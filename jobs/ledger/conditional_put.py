"""Proves, before a ledger is created in an object store, that the store refuses a second commit of one version.

Some stores ignore the header `If-None-Match`. There, two writers would lose events of each other without an error.
"""

from typing import TYPE_CHECKING
from uuid import uuid4

from jobs.lake.delta_tables import open_delta
from jobs.storage import delta_options, remove_directory
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from deltalake import DeltaTable


def prove_conditional_put(uri: str) -> None:
    """Commit one version of a small table twice, and remove the table.

    Args:
        uri: the place of the ledger; the table is beside it.

    Raises:
        LedgerError: the store accepted both commits.
    """
    from deltalake.exceptions import CommitFailedError

    place = f"{uri.rpartition('/')[0]}/_probe/{uuid4().hex}"
    try:
        _create(place)
        first, second = open_delta(place), open_delta(place)
        _append(first)
        try:
            _append(second)
        except CommitFailedError:
            return
    finally:
        remove_directory(place)
    raise LedgerError(
        f"the store of {uri} accepted two commits of one version. It ignores `If-None-Match: *`, so processes would "
        "lose commits of each other. Use a store with conditional puts (docs/how-to/storage.md), or a directory"
    )


def _create(place: str) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable

    DeltaTable.create(place, schema=pa.schema([("number", pa.int64())]), storage_options=delta_options(place))


def _append(table: "DeltaTable") -> None:
    import pyarrow as pa
    from deltalake import CommitProperties, write_deltalake

    once = CommitProperties(max_commit_retries=0)
    write_deltalake(table, pa.table({"number": [1]}), mode="append", commit_properties=once)
