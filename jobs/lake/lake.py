"""The places of a lake: `<lake>/<pipeline>/<table>` for Hindcast's tables, and the event log that the file names.

This module refuses paths and URIs that the Delta library would misread or answer with a panic.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.pipeline.models.log import CREDENTIALS
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped, shortened, without_credentials
from jobs.storage import canonical_uri, file_system, is_remote, is_s3, names_in, prepare_environment
from windowlib.errors import RequestError, SpecError
from windowlib.libraries import pafs

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "hdfs")
"""The allowed schemes of a URI. The Delta library treats other ones (ftp, http) as empty directories, or fails."""

CURRENT = "current_"
"""The names of current tables (`publish.current_tables`) begin so."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}", re.ASCII)
_MAX_NAME = 255
_OBJECT_URI = re.compile(r"s3://[A-Za-z0-9._=/-]+", re.ASCII)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# The Delta library panics on the first four in a path. It decodes or splits a path at the others.
_NOT_IN_A_PATH = re.compile(r"[\[\]|^\\\\]|%[0-9A-Fa-f]{2}")


def checked_place(text: str, what: str) -> str:
    """Return a path or URI that the Delta library reads correctly, in one spelling for each place.

    A `file:` URI becomes the path that it names, and `s3a://` becomes `s3://`. `what` names the setting or the key that
    has the text, for the message.
    Raises SpecError: the scheme is not allowed, the URI has credentials, or the Delta library would misread a
    character. The message has no credentials.
    """
    masked = without_credentials(text)
    if masked != text:
        raise SpecError(f"{what}: {shortened(masked)!r} {CREDENTIALS}")
    problem = f"{what} must be a directory or a URI, found {shortened(text)!r}"
    if not text.strip() or escaped(text) != text:
        raise SpecError(f"{problem}; write a path of UTF-8 text without control characters")
    match = _URI.match(text)
    if match is None and "://" not in text:
        return _checked_path(text, problem)
    scheme = match[1].lower() if match else ""
    if scheme == "file":
        return _checked_path(_path_of_file_uri(text, problem), problem)
    if scheme not in SCHEMES:
        raise SpecError(
            f"{problem}; allowed are paths and URIs of {', '.join(SCHEMES)} and file (a path with a colon begins "
            "with ./)"
        )
    if not _has_host(text):
        raise SpecError(f"{problem}; a URI names a bucket or host, such as {scheme}://bucket/path")
    place = canonical_uri(text).rstrip("/")
    if is_s3(place):
        _check_object_uri(place, problem)
        prepare_environment()
    return place


def _has_host(uri: str) -> bool:
    try:
        return bool(urlsplit(uri).netloc)
    except ValueError:
        return False


def _check_object_uri(uri: str, problem: str) -> None:
    """Refuse characters that deltalake, Arrow and Hadoop encode in different ways."""
    parts = uri.partition("://")[2].rstrip("/").split("/")
    if not _OBJECT_URI.fullmatch(uri) or any(part in {"", ".", ".."} for part in parts):
        raise SpecError(
            f"{problem}; in object storage, a bucket and a path have only letters, digits and . _ - = /, and no empty "
            "part, '.' or '..'"
        )


def _checked_path(path: str, problem: str) -> str:
    real = os.path.realpath(path)  # the Delta library follows links, too; Path.resolve() fails on a loop of links
    match = _NOT_IN_A_PATH.search(real)
    if match is not None:
        raise SpecError(
            f"{problem}; the Delta library cannot use {shortened(real)}: a directory may not have {match[0]} in its "
            "name. Rename the directory"
        )
    longest = max(len(os.fsencode(name)) for name in real.split("/"))
    if longest > _MAX_NAME:
        raise SpecError(f"{problem}; one of its names has {longest} bytes, and a file system allows {_MAX_NAME}")
    return path


def _path_of_file_uri(uri: str, problem: str) -> str:
    rest = uri[len("file:") :]
    if not rest.startswith("///"):
        raise SpecError(f"{problem}; a file URI has three slashes, such as file:///data/lake; or write the path itself")
    return unquote(rest[2:], errors="strict") if "%00" not in rest else rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The root of all tables: a directory or a URI. Paths below it have validated names and cannot leave the lake."""

    root: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", checked_place(self.root, "the lake root (--lake, HINDCAST_LAKE)"))

    @property
    def is_local(self) -> bool:
        """Whether the lake is a directory on this machine."""
        return not is_remote(self.root)

    def check(self, *, must_exist: bool) -> None:
        """Refuse a lake that is not a readable directory. A missing lake is not treated as an empty one.

        Commands that only read need an existing lake. The first run creates it.
        Raises RequestError: the lake does not exist, is not a directory, cannot be read, or is an object store without
        an object there.
        """
        other = "name another one with --lake or HINDCAST_LAKE"
        if not self.is_local:
            if must_exist and (missing := self._missing_in_store()) is not None:
                raise RequestError(f"the lake {self.root} {missing}, or {other}")
            return
        try:
            os.scandir(self.root).close()
        except FileNotFoundError:
            if must_exist:
                raise RequestError(
                    f"the lake {self.root} does not exist; the first `hindcast run` creates it, or {other}"
                ) from None
        except NotADirectoryError:
            raise RequestError(f"the lake {self.root} is not a directory, or is below a file; {other}") from None
        except OSError as error:
            raise RequestError(f"the lake {self.root} cannot be read: {error.strerror}; {other}") from error

    def _missing_in_store(self) -> str | None:
        """Return what an object store lacks, and what to do; None if it has an object below the root."""
        try:
            system, root = file_system(self.root)
            if system.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
                return None
            bucket = root.partition("/")[0]
            if is_s3(self.root) and system.get_file_info(bucket).type == pafs.FileType.NotFound:
                return f"does not exist: there is no bucket {bucket}; create it"
        except OSError as error:
            raise RequestError(f"the lake {self.root} cannot be read: {error}") from error
        return "has no object; the first `hindcast run` writes into it"

    def table(self, pipeline: str, table: str) -> str:
        """Return the path or URI of one table of a pipeline.

        Raises SpecError: a name does not begin with a lower-case letter, has other characters than lower-case letters,
        digits and `_`, or is longer than 128.
        """
        for name in (pipeline, table):
            if not _NAME.fullmatch(name):
                raise SpecError(
                    f"{name!r} is not a name of a pipeline or table; allowed are 1 to 128 lower-case letters, digits "
                    "and _, beginning with a letter"
                )
        return self._below(f"{pipeline}/{table}")

    def ledger(self, pipeline: str) -> str:
        return self.table(pipeline, "ledger")

    def pipelines(self) -> list[str]:
        """Return the names of the directories that may be those of pipelines."""
        return sorted(name for name in names_in(self.root) if _NAME.fullmatch(name))

    def scratch(self, pipeline: str, attempt_id: str) -> str:
        """Return the path or URI of the directory in which the tasks of an attempt leave rows for other tasks."""
        self.ledger(pipeline)  # refuses a name that could leave the lake
        return self._below(f"{pipeline}/_scratch/{attempt_id}")

    def event_log(self, pipeline: Pipeline) -> str:
        """Return the path or URI of the pipeline's event log; a relative `log.table` is below the lake.

        If the log is a table of another pipeline, it is the place of that table.
        Raises SpecError: the Delta library would misread the path.
        """
        table, upstream = pipeline.log.table, pipeline.log.pipeline
        if upstream is not None:
            return self.table(upstream, table)
        own = is_remote(table) or Path(table).is_absolute()
        return checked_place(table if own else self._below(table), f"{pipeline.source}: log.table")

    def below(self, relative: str) -> str:
        """Return the path or URI of a file that a pipeline file names relative to the lake, such as a marker.

        Raises SpecError: the path is absolute, is a URI, or has '..'.
        """
        if ".." in relative.split("/") or Path(relative).is_absolute() or "://" in relative:
            raise SpecError(f"{without_credentials(relative)!r} must be a path below the lake, without '..'")
        return self._below(relative)

    def _below(self, relative: str) -> str:
        return str(Path(self.root) / relative) if self.is_local else f"{self.root.rstrip('/')}/{relative}"
