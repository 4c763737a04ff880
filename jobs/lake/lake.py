"""Where things are in a lake: `<lake>/<pipeline>/<table>` for our tables, the log where the pipeline file says.

What the Delta library would misread, or end on with a panic, is refused here before it gets there.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped, shortened
from windowlib.errors import RequestError, SpecError

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "hdfs")
"""What a URI may begin with. The Delta library takes others for empty directories (ftp, http), or for none."""

_AMAZON = ("s3", "s3a")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}", re.ASCII)
_MAX_NAME = 255
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# The Delta library panics at the first four in a path, and decodes or splits at the others.
_NOT_IN_A_PATH = re.compile(r"[\[\]|^\\\\]|%[0-9A-Fa-f]{2}")


def checked_place(text: str, what: str) -> str:
    """A path or URI that the Delta library reads as it is meant; a `file:` URI as the path that it names.

    Args:
        text: what a person wrote.
        what: what it is to name, for errors.

    Raises:
        SpecError: another scheme, or characters that would be misread; what was found, and what to do.
    """
    said = f"{what} must be a directory or a URI, found {shortened(text)!r}"
    if not text.strip() or escaped(text) != text:
        raise SpecError(f"{said}; write a path without control characters")
    match = _URI.match(text)
    if match is None and "://" not in text:
        return _checked_path(text, said)
    scheme = match[1].lower() if match else ""
    if scheme == "file":
        return _checked_path(_path_of_file_uri(text, said), said)
    if scheme not in SCHEMES:
        raise SpecError(
            f"{said}; allowed are paths and URIs of {', '.join(SCHEMES)} and file (a path with a colon: ./…)"
        )
    try:
        has_host = bool(urlsplit(text).netloc)
    except ValueError:
        has_host = False
    if not has_host:
        raise SpecError(f"{said}; a URI names a bucket or host, such as {scheme}://bucket/path")
    if scheme in _AMAZON:
        # The SDK would ask the metadata service of the network for credentials. On a machine of Amazon that has some
        # there, AWS_EC2_METADATA_DISABLED=false allows it.
        os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    return text


def _checked_path(path: str, said: str) -> str:
    real = os.path.realpath(path)  # the library resolves links, too; Path.resolve() would fail on a loop
    found = _NOT_IN_A_PATH.search(real)
    if found is not None:
        raise SpecError(
            f"{said}; the Delta library cannot work at {shortened(real)}: a directory may not have {found[0]} in its "
            "name, so rename it"
        )
    longest = max(len(os.fsencode(name)) for name in real.split("/"))
    if longest > _MAX_NAME:
        raise SpecError(f"{said}; one of its names has {longest} bytes, and a file system takes {_MAX_NAME}")
    return path


def _path_of_file_uri(uri: str, said: str) -> str:
    rest = uri[len("file:") :]
    if not rest.startswith("///"):
        raise SpecError(f"{said}; a file URI has three slashes, such as file:///data/lake; or write the path itself")
    return unquote(rest[2:], errors="strict") if "%00" not in rest else rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A directory or a URI; paths below it are made of validated names, so nothing climbs out."""

    root: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", checked_place(self.root, "the lake root (--lake, HINDCAST_LAKE)"))

    @property
    def is_local(self) -> bool:
        """Whether the lake is a directory of this machine."""
        return "://" not in self.root

    def check(self, *, must_exist: bool) -> None:
        """Refuse a lake that is no directory, or cannot be read; what is not there is not an empty lake.

        Args:
            must_exist: for what only reads. The first run makes the lake.

        Raises:
            RequestError: names the lake, what it is, and what to do.
        """
        if not self.is_local:
            return  # an object store has no directories: what is missing there is missing table by table
        other = "name another one with --lake or HINDCAST_LAKE"
        try:
            os.scandir(self.root).close()
        except FileNotFoundError:
            if must_exist:
                raise RequestError(
                    f"the lake {self.root} does not exist; `hindcast run` makes it with the first run, or {other}"
                ) from None
        except NotADirectoryError:
            raise RequestError(f"the lake {self.root} is not a directory, or is below a file; {other}") from None
        except OSError as error:
            raise RequestError(f"the lake {self.root} cannot be read: {error.strerror}; {other}") from error

    def table(self, pipeline: str, table: str) -> str:
        """The path or URI of one table of a pipeline.

        Raises:
            SpecError: a name with anything but lower-case letters, digits and `_`.
        """
        for name in (pipeline, table):
            if not _NAME.fullmatch(name):
                raise SpecError(f"{name!r} is no name of a pipeline or table: lower-case letters, digits and _ only")
        return self._below(f"{pipeline}/{table}")

    def ledger(self, pipeline: str) -> str:
        """The path or URI of a pipeline's ledger."""
        return self.table(pipeline, "ledger")

    def event_log(self, pipeline: Pipeline) -> str:
        """The path or URI of the pipeline's event log: relative to the lake, or its own.

        Raises:
            SpecError: the Delta library would misread it.
        """
        table = pipeline.log.table
        own = "://" in table or Path(table).is_absolute()
        return checked_place(table if own else self._below(table), f"{pipeline.source}: log.table")

    def below(self, relative: str) -> str:
        """The path or URI of something that a pipeline file names relative to the lake, such as a marker.

        Raises:
            SpecError: the path climbs out of the lake.
        """
        if ".." in relative.split("/") or Path(relative).is_absolute() or "://" in relative:
            raise SpecError(f"{relative!r} must be a path below the lake, without '..'")
        return self._below(relative)

    def _below(self, relative: str) -> str:
        return str(Path(self.root) / relative) if self.is_local else f"{self.root.rstrip('/')}/{relative}"
