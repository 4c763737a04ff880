"""Proves, before a ledger is created in an object store, that the store refuses a second put of one name.

Delta commits a version with such a put (`If-None-Match: *`), and so does the proof, with the same library of Rust.
Some stores ignore the condition. There, two writers would lose events of each other without an error.
"""

from contextlib import suppress
from typing import Final
from uuid import uuid4

from jobs.lake.damage import one_line
from jobs.storage import delta_options, remove_directory
from windowlib.errors import LedgerError

_OBJECT: Final = "once"
_STORES: Final = ("s3", "gs", "az", "abfs", "abfss")
"""The schemes of stores with puts. A rename of HDFS never replaces a file."""


def prove_conditional_put(uri: str) -> None:
    """Put one small object twice if the store has objects, and remove it.

    Args:
        uri: the place of the ledger; the object is below `_probe` beside it.

    Raises:
        LedgerError: the store accepted both puts, or does not know the condition.
    """
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

    if uri.partition("://")[0] not in _STORES:
        return
    place = f"{uri.rpartition('/')[0]}/_probe/{uuid4().hex}"
    try:
        with suppress(AlreadyExistsError):  # the answer to the first try was lost
            _put(place)
        _put(place)
    except AlreadyExistsError:
        return
    except NotSupportedError as error:
        raise LedgerError(f"the store of {uri} has no conditional puts: {one_line(error)}") from error
    except BaseError as error:
        raise LedgerError(f"the store of {uri} cannot be written: {one_line(error)}") from error
    finally:
        remove_directory(place)
    raise LedgerError(
        f"the store of {uri} accepted two commits of one version. It ignores `If-None-Match: *`, so processes would "
        "lose commits of each other. Use a store with conditional puts (docs/how-to/storage.md), or a directory"
    )


def _put(place: str) -> None:
    """Put the object unless it exists.

    Raises:
        AlreadyExistsError: it does.
    """
    import obstore
    from obstore.store import from_url

    options = delta_options(place) or {}
    config = {name: value for name, value in options.items() if name.startswith("aws_")}
    client = {"allow_http": options.get("allow_http") == "true"}
    obstore.put(from_url(place, config=config, client_options=client), _OBJECT, b"1", mode="create")  # type: ignore[call-overload]
