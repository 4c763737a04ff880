"""The object storage of `s3://` URIs: one setting, of which deltalake, Arrow and Spark each get their form.

The setting is the usual variables of AWS, which every process reads from its own environment. So no secret is in a
pickled task, in a configuration of Spark or in a command line. `s3a://` is another spelling of `s3://`.

A commit to a Delta table is a conditional put (`If-None-Match: *`): the store refuses the second of two commits of one
version. `storage_settings` refuses the variables that would replace it by something weaker.
"""

import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, SecretStr

from jobs.durations import parse_duration
from jobs.regular_file import read_regular
from windowlib.errors import RequestError
from windowlib.libraries import pa, pafs

SCHEMES: Final = ("s3", "s3a")
FileStamp = tuple[int, int, int, int]
"""Size, time of the last change of content and of the inode in ns, and inode of a file. Another content has another."""
RETRY: Final = "120s"
"""How long a request is tried again when the store does not answer, unless HINDCAST_STORAGE_RETRY states it."""

_ARROW_PAUSE_MS: Final = 25
"""Arrow's client waits so long after the first try, and twice as long after each further one."""
_S3A_PAUSE_MS: Final = 500
"""The same of Hadoop's S3A (fs.s3a.retry.interval)."""
_REGION: Final = "us-east-1"
"""Stores other than Amazon's have no regions. Their clients sign requests with this one by default."""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_ADDRESSING: Final = "HINDCAST_STORAGE_ADDRESSING"
_RETRY: Final = "HINDCAST_STORAGE_RETRY"
_CONDITIONAL_PUT: Final = ("AWS_CONDITIONAL_PUT", "CONDITIONAL_PUT")
_WEAKER: Final = (
    "AWS_COPY_IF_NOT_EXISTS",
    "COPY_IF_NOT_EXISTS",
    "AWS_S3_LOCKING_PROVIDER",
    "AWS_S3_ALLOW_UNSAFE_RENAME",
)
"""Variables with which deltalake does not commit by a conditional put."""

Addressing = Literal["path", "virtual"]


class StorageSettings(BaseModel):
    """Where the object storage is, and how to sign in there.

    Without keys, each client looks for credentials itself: in a profile, in a token of a service account, or at the
    metadata service of the machine. `endpoint` is the URL of a store that is not Amazon's; plain `http` is allowed
    because it is named. `addressing`: whether the bucket is in the path of a URL or in its host name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    region: str | None = None
    endpoint: str | None = None
    addressing: Addressing = "virtual"
    retry_ms: int

    @property
    def is_plain_http(self) -> bool:
        """Whether requests are not encrypted."""
        return self.endpoint is not None and self.endpoint.startswith("http://")

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Return the setting of an environment.

        Raises RequestError: a variable has a value that is not allowed. The message has no credential.
        """
        named = next(((name, environ[name]) for name in _ENDPOINTS if environ.get(name)), None)
        endpoint = None if named is None else _checked_endpoint(*named)
        _refuse_weaker_commits(environ)
        return cls(
            **_credentials(environ),
            region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or (endpoint and _REGION),
            endpoint=endpoint,
            addressing=_addressing(environ.get(_ADDRESSING) or ("virtual" if endpoint is None else "path")),
            retry_ms=_retry_ms(environ.get(_RETRY) or RETRY),
        )

    def for_delta(self, bucket: str) -> dict[str, str]:
        """Return the storage options of deltalake for a bucket."""
        options = {
            "aws_conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(self.addressing == "virtual").lower(),
            "allow_http": str(self.is_plain_http).lower(),
            "retry_timeout": f"{self.retry_ms}ms",
            "max_retries": "1000",
            "backoff_config.max_backoff": "5s",
        }
        names = ("access_key_id", "secret_access_key", "session_token")
        secrets = {f"aws_{name}": getattr(self, name) for name in names}
        options |= {name: secret.get_secret_value() for name, secret in secrets.items() if secret is not None}
        if self.access_key_id is None:
            # Else deltalake reads no profile at another store, and asks the metadata service. No other client takes it.
            options["AWS_FORCE_CREDENTIAL_LOAD"] = "true"
        if self.region is not None:
            options["aws_region"] = self.region
        if self.endpoint is not None:
            scheme, _, host = self.endpoint.partition("://")
            # For host names with the bucket, deltalake expects the bucket in the endpoint.
            options["aws_endpoint_url"] = self.endpoint if self.addressing == "path" else f"{scheme}://{bucket}.{host}"
        return options

    def for_arrow(self) -> "pafs.S3FileSystem":
        """Return the file system of Arrow. Paths in it are `bucket/key`."""
        scheme, _, host = (self.endpoint or "https://").partition("://")
        secrets = {
            name: None if secret is None else secret.get_secret_value()
            for name, secret in {
                "access_key": self.access_key_id,
                "secret_key": self.secret_access_key,
                "session_token": self.session_token,
            }.items()
        }
        return pafs.S3FileSystem(
            **secrets,
            region=self.region,
            scheme=scheme,
            endpoint_override=host or None,
            force_virtual_addressing=self.addressing == "virtual",
            allow_delayed_open=True,  # a small file is one request instead of three
            retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=1 + self._retries(_ARROW_PAUSE_MS)),
        )

    def _retries(self, first_pause_ms: int) -> int:
        """Return how many pauses, each twice as long as the one before it, take `retry_ms` or a little less."""
        return math.floor(math.log2(self.retry_ms / first_pause_ms + 1))

    def for_spark(self) -> dict[str, str]:
        """Return the settings of Spark's S3A file system. Its JVMs find credentials in their own environment."""
        prefix = "spark.hadoop.fs.s3a"
        settings = {
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            f"{prefix}.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
            f"{prefix}.path.style.access": str(self.addressing == "path").lower(),
            f"{prefix}.connection.ssl.enabled": str(not self.is_plain_http).lower(),
            f"{prefix}.retry.limit": str(self._retries(_S3A_PAUSE_MS)),
        }
        if self.region is not None:
            settings[f"{prefix}.endpoint.region"] = self.region
        if self.endpoint is not None:
            settings[f"{prefix}.endpoint"] = self.endpoint
        return settings


def storage_settings() -> StorageSettings:
    """Return the setting of this process. Raises RequestError: as for `StorageSettings.read`."""
    prepare_environment()
    return StorageSettings.read(os.environ)


def prepare_environment() -> None:
    """Remove empty AWS_* variables, and let no client ask the network's metadata service for credentials.

    Clients in Rust take empty variables as keys. Processes that are started here inherit both. On a machine with
    credentials at the service, the operator allows it with AWS_EC2_METADATA_DISABLED=false.
    """
    for name in [name for name, value in os.environ.items() if name.startswith("AWS_") and not value]:
        del os.environ[name]
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")


def is_remote(uri: str) -> bool:
    """Return whether a place is a URI, and not a path on this machine."""
    return "://" in uri


def is_s3(uri: str) -> bool:
    """Return whether a place is in an S3 object store."""
    return uri.partition("://")[0] in SCHEMES if is_remote(uri) else False


def canonical_uri(uri: str) -> str:
    """Return the one spelling of a URI, which ledger and errors use: `s3` for `s3a`, and a lower-case scheme."""
    scheme, _, rest = uri.partition("://")
    return f"{'s3' if scheme.lower() in SCHEMES else scheme.lower()}://{rest}"


def spark_uri(uri: str) -> str:
    """Return the spelling of a place that Spark reads: its S3 file system has the scheme `s3a`."""
    return f"s3a://{uri.partition('://')[2]}" if is_s3(uri) else uri


def delta_options(uri: str) -> dict[str, str] | None:
    """Return deltalake's storage options for a place; None if it needs none.

    Raises RequestError: as for `storage_settings`.
    """
    return storage_settings().for_delta(urlsplit(uri).netloc) if is_s3(uri) else None


def file_system(uri: str) -> "tuple[pafs.FileSystem, str]":
    """Return Arrow's file system for a place, and the place in that file system.

    Raises RequestError: as for `storage_settings`.
    """
    if is_s3(uri):
        return _s3_file_system(storage_settings()), uri.partition("://")[2].rstrip("/")
    if is_remote(uri):
        system, root = pafs.FileSystem.from_uri(uri)
        return system, root.rstrip("/")
    return pafs.LocalFileSystem(), str(Path(uri).resolve())


def open_input(place: str) -> "pa.NativeFile":
    """Open a file to read it at any position. A file on this machine is mapped into memory."""
    if not is_remote(place):
        return pa.memory_map(place)
    system, path = file_system(place)
    return system.open_input_file(path)


def open_output(place: str) -> "pa.NativeFile":
    """Open a new file to write it. Its directory exists. An object store shows the file when it is closed."""
    if not is_remote(place):
        return pa.OSFile(place, "wb")
    system, path = file_system(place)
    return system.open_output_stream(path)


def read_bytes(place: str) -> bytes:
    """Return the content of a file, or raise OSError. On this machine, Arrow is not imported."""
    if not is_remote(place):
        return read_regular(Path(place))
    system, path = file_system(place)
    with system.open_input_stream(path) as stream:
        return bytes(stream.read())


def write_bytes(place: str, content: bytes) -> None:
    """Write a file in an existing directory, or raise OSError. On this machine, Arrow is not imported."""
    with open_output(place) if is_remote(place) else Path(place).open("wb") as stream:
        stream.write(content)


def names_in(place: str) -> list[str]:
    """Return the names in a directory; none if it does not exist. On this machine, no file is asked for its size."""
    if not is_remote(place):
        try:
            return os.listdir(place)  # noqa: PTH208 - a Path for each name would take most of the time
        except (FileNotFoundError, NotADirectoryError):
            return []
    system, path = file_system(place)
    return [info.base_name for info in system.get_file_info(pafs.FileSelector(path, allow_not_found=True))]


@contextmanager
def hidden_file(place: str) -> Iterator[str]:
    """Give the path at which to write a new file, which gets its name at the end of the context, if that succeeds.

    So readers see it whole or not at all. An object store shows a file when it is closed: the path is the place itself.
    """
    if is_remote(place):
        yield place
        return
    hidden = Path(place).with_name(f".{Path(place).name}.{uuid4().hex}")
    try:
        yield str(hidden)
        hidden.replace(place)
    finally:
        hidden.unlink(missing_ok=True)


def file_stamp(file: Path) -> FileStamp:
    """Return the stamp of a file on this machine. Raises OSError: there is no such file."""
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def make_directory(place: str) -> None:
    """Create a directory and its parents. An object store has no directories."""
    if not is_remote(place):
        Path(place).mkdir(parents=True, exist_ok=True)


def remove_file(place: str) -> None:
    """Remove a file, or raise OSError. It may be gone already."""
    if is_remote(place):
        system, path = file_system(place)
        with suppress(FileNotFoundError):
            system.delete_file(path)
    else:
        Path(place).unlink(missing_ok=True)


def remove_directory(place: str) -> None:
    """Remove all files below a place. Files that cannot be removed stay there, and no table names them."""
    if not is_remote(place):
        shutil.rmtree(place, ignore_errors=True)
        return
    system, path = file_system(place)
    with suppress(OSError):
        system.delete_dir(path)


@lru_cache(maxsize=4)
def _s3_file_system(settings: StorageSettings) -> "pafs.FileSystem":
    """Return one file system for all tables of a process, because it holds open connections."""
    return settings.for_arrow()


def _checked_endpoint(name: str, value: str) -> str:
    problem = f"{name} must be the URL of an object store, such as http://127.0.0.1:9000 or https://s3.example.org"
    try:
        parts = urlsplit(value)
        has_secret = parts.username is not None or parts.password is not None
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise RequestError(f"{problem}; the value of {name} is not a URL") from None
    if has_secret:
        raise RequestError(
            f"{problem}; it contains a user or a password: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not is_url or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise RequestError(f"{problem}, without a path; found {value!r}")
    return f"{parts.scheme}://{parts.netloc}"


def _credentials(environ: Mapping[str, str]) -> dict[str, SecretStr | None]:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    given = [name for name in names if environ.get(name)]
    if given and not {*names[:2]}.issubset(given):
        missing = next(name for name in names[:2] if name not in given)
        raise RequestError(
            f"{given[0]} is set and {missing} is not; set both, or none to use the usual AWS credentials"
        )
    return {name.removeprefix("AWS_").lower(): SecretStr(environ[name]) if name in given else None for name in names}


def _addressing(value: str) -> Addressing:
    match value:
        case "path" | "virtual":
            return value
        case _:
            raise RequestError(
                f"{_ADDRESSING} must be path (http://host/bucket) or virtual (http://bucket.host), found {value!r}"
            )


def _retry_ms(value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise RequestError(f"{_RETRY}: {error}") from None


def _refuse_weaker_commits(environ: Mapping[str, str]) -> None:
    for name in _WEAKER:
        value = environ.get(name, "")
        if value.lower() not in {"", "0", "false", "no"}:
            raise RequestError(
                f"{name} is set. With it, two processes could lose commits, or exclude each other by other "
                "means than Hindcast. Unset it: commits are conditional puts (docs/how-to/storage.md)"
            )
    for name in _CONDITIONAL_PUT:
        if environ.get(name, "etag").lower() not in {"", "etag"}:
            raise RequestError(f"{name} must be etag or unset: commits are conditional puts (docs/how-to/storage.md)")
