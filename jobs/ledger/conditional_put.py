"""Proves, before the first write of a ledger in an object store, that the store refuses a second put of one name.

Delta commits a version with such a put (`If-None-Match: *`), and so does the proof, with the same library of Rust.
Some stores ignore the condition. There, two writers would lose events of each other without an error. An object
`_proof/<digest of the store>` in the directory of the ledger tells that it was proven there. In a copy in another
bucket, or behind another endpoint, the digest is another one.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from uuid import uuid4

from jobs.lake.damage import one_line
from jobs.storage import delta_options, is_s3, make_directory, names_in, remove_directory, storage_settings, write_bytes
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from obstore.store import RetryConfig

DIRECTORY: Final = "_proof"
_OBJECT: Final = "once"
_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_STORES: Final = ("s3", "gs", "az", "abfs", "abfss")
"""The schemes of stores with puts. A rename of HDFS never replaces a file."""


def prove_conditional_put(uri: str) -> None:
    """Put one small object twice, and remove it, if the store has objects and was not proven for this ledger.

    The object is below `_probe` beside the ledger.
    Raises LedgerError: the store accepted both puts, or does not know the condition.
    """
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

    if uri.partition("://")[0] not in _STORES:
        return
    store, proofs = _store_digest(uri), f"{uri}/{DIRECTORY}"
    if store in names_in(proofs):
        return
    place = f"{uri.rpartition('/')[0]}/_probe/{uuid4().hex}"
    try:
        with suppress(AlreadyExistsError):  # the answer to the first try was lost
            _put(place)
        _put(place)
    except AlreadyExistsError:
        make_directory(proofs)
        write_bytes(f"{proofs}/{store}", b"")
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


def _store_digest(uri: str) -> str:
    """Return a digest of the bucket and the endpoint of a place."""
    parts, options = urlsplit(uri), delta_options(uri) or {}
    named = [parts.scheme, parts.netloc, options.get("aws_endpoint_url", "")]
    return hashlib.blake2b(json.dumps(named).encode(), digest_size=8).hexdigest()


def _put(place: str) -> None:
    """Put the object unless it exists. Raises AlreadyExistsError: it does."""
    import obstore
    from obstore.store import from_url

    options = delta_options(place) or {}
    config = {name: value for name, value in options.items() if name.startswith("aws_")}
    if is_s3(place) and "aws_access_key_id" not in config:
        config |= _profile_keys(os.environ)
    retry: RetryConfig = {"retry_timeout": timedelta(milliseconds=storage_settings().retry_ms)}
    client = {"allow_http": options.get("allow_http") == "true"}
    store = from_url(place, config=config, client_options=client, retry_config=retry)  # type: ignore[call-overload]
    obstore.put(store, _OBJECT, b"1", mode="create")


def _profile_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys in the profile of AWS that the environment names; empty without keys. Obstore reads no profile.

    The file of credentials comes before the one of settings, as in all clients of AWS.
    """
    from configparser import ConfigParser, Error as ConfigParserError  # only the proof in a store of Amazon needs it

    profile = environ.get("AWS_PROFILE", "default")
    files = {
        environ.get("AWS_CONFIG_FILE", "~/.aws/config"): profile if profile == "default" else f"profile {profile}",
        environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"): profile,
    }
    keys = dict[str, str]()
    for file, section in files.items():
        parser = ConfigParser(interpolation=None, strict=False)
        with suppress(OSError, ConfigParserError, UnicodeDecodeError):  # the other clients tell what is wrong
            parser.read_string(Path(os.path.expanduser(file)).read_text("utf-8"))  # noqa: PTH111 - needs no home
        keys |= {name: parser.get(section, name, fallback=keys.get(name, "")) for name in _KEYS}
    return {name: value for name, value in keys.items() if value}
