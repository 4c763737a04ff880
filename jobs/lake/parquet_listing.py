"""Lists a directory of Parquet files with Hive partitions, such as `dt=2026-03-01/part-0.parquet`. No file is read.

As in Spark, names that begin with `_` or `.` are ignored, except `_NAME=VALUE`. All other files belong to the log.
Values in paths are URL-encoded; `__HIVE_DEFAULT_PARTITION__` is a null.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final
from urllib.parse import unquote

from jobs.lake.covered_files import StoredDigests
from jobs.lake.damage import log_errors
from jobs.lake.log_files import NO_DIGESTS, LogFiles, encoded_path
from jobs.plain_text import shortened
from jobs.storage import file_system, is_remote, is_s3
from windowlib.errors import LogError
from windowlib.libraries import pafs

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_OTHERS: Final = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
"""Directories of tables, whose data files are not all valid. An Iceberg table has `metadata/*.metadata.json`."""
_NUMBER_BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_VERSION_BYTES: Final = 6
"""A version is a number of 48 bits, which JSON keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedParquet:
    """A file of the log. `path` is relative to the directory and URI-encoded, as the paths of a Delta log are.

    `values` are the texts of the partition columns in the order of the directories; None is a null.
    """

    path: str
    place: str
    values: Mapping[str, str | None]
    bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetListing:
    """The files of a directory in the order of their paths."""

    uri: str
    system: "pafs.FileSystem"
    root: str
    files: tuple[ListedParquet, ...]

    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> LogFiles:
        """Return the files of no commit."""
        return LogFiles(uri=self.uri, system=self.system, root=self.root, commits={}, checkpoint=None, stored=stored)

    @property
    def digest(self) -> bytes:
        """A hash over path, size and time of modification of all files."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            digest.update(f"{file.path}\0{file.bytes}\0{file.mtime_ns}\n".encode("utf-8", errors="surrogatepass"))
        return digest.digest()

    @property
    def version(self) -> int:
        """A number that is equal for equal listings. It tells no order."""
        return int.from_bytes(self.digest[:_VERSION_BYTES], "big")

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns, in the order of the directories."""
        return tuple(self.files[0].values) if self.files else ()


def list_parquet(uri: str) -> ParquetListing:
    """Return the files of a directory.

    Raises:
        LogError: the directory does not exist, is a table of another format, or has files with other partition columns.
    """
    if is_remote(uri) and not is_s3(uri):
        raise LogError(
            f"event log {uri} is neither a directory nor in an S3 object store; a log of Parquet files must be in one "
            "of them"
        )
    with log_errors(uri, "listing its files"):
        system, root = file_system(uri)
        if system.get_file_info(root).type == pafs.FileType.File:
            raise LogError(f"event log {uri} is a file; `log.table` must name the directory of the Parquet files")
        infos = system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    _refuse_other_formats(uri, root, infos)
    # Some stores list the milliseconds of a time. When a single object is asked for, HTTP tells whole seconds.
    files = tuple(_listed(root, infos, step_ns=10**9 if is_remote(uri) else 1))
    if not files and not infos:
        raise LogError(f"event log {uri} does not exist; load it first, or correct `log.table` or the lake root")
    listing = ParquetListing(uri=uri, system=system, root=root, files=tuple(sorted(files, key=lambda file: file.path)))
    _refuse_mixed_partitions(listing)
    return listing


def typed_value(uri: str, file: ListedParquet, name: str, *, kind: str) -> str | None:
    """Return the value of a partition column of a file as the text that a Delta log would have of it.

    Raises LogError: the value is not of the type.
    """
    text = file.values[name]
    if text is None or kind == "string":
        return text
    try:
        return date.fromisoformat(text).isoformat() if kind == "date" else str(_whole_number(text, kind))
    except ValueError:
        raise LogError(
            f"partition column {name!r} of event log {uri} has the value {shortened(text)!r} (file "
            f"{file.path}), which is no {kind}; correct the name of the directory, or write "
            f"`partitions: {{{name}: string}}`"
        ) from None


def _whole_number(text: str, kind: str) -> int:
    """Return the number of a text; raises a ValueError if the type does not have it."""
    number = int(text)
    if (number if number >= 0 else ~number).bit_length() > _NUMBER_BITS[kind]:
        raise ValueError(text)
    return number


def _refuse_other_formats(uri: str, root: str, infos: "list[pafs.FileInfo]") -> None:
    for info in infos:
        name = info.path.removeprefix(f"{root}/")
        parent, _, own = name.rpartition("/")
        is_iceberg = parent.rpartition("/")[2] == "metadata" and own.endswith(".metadata.json")
        if not is_iceberg and own not in _OTHERS:
            continue
        where = "is" if parent in {"", "metadata"} else f"has in {parent.removesuffix('/metadata')}"
        way_on = "name another directory" if where != "is" else "write its records into a Delta table"
        if own == "_delta_log" and where == "is":
            way_on = "leave `format: parquet` out"
        raise LogError(
            f"event log {uri} {where} {_OTHERS.get(own, 'an Iceberg table')} (it has {name}), and not all Parquet "
            f"files of a table belong to its newest version; {way_on}"
        )


def _listed(root: str, infos: "list[pafs.FileInfo]", *, step_ns: int) -> Iterator[ListedParquet]:
    for info in infos:
        name = info.path.removeprefix(f"{root}/")
        if info.type != pafs.FileType.File or any(map(_is_hidden, name.split("/"))):
            continue
        yield ListedParquet(
            path=encoded_path(name),
            place=info.path,
            values=dict(_partition(part) for part in name.split("/")[:-1] if "=" in part),
            bytes=info.size,
            mtime_ns=(info.mtime_ns or 0) // step_ns * step_ns,
        )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _partition(part: str) -> tuple[str, str | None]:
    name, _, text = part.partition("=")
    return unquote(name), None if text == NULL_PARTITION else unquote(text)


def _refuse_mixed_partitions(listing: ParquetListing) -> None:
    for file in listing.files:
        if tuple(file.values) != listing.partition_columns:
            first = listing.files[0]
            raise LogError(
                f"the files of event log {listing.uri} are in directories of different partition columns: "
                f"{first.path} has {list(first.values)}, {file.path} has {list(file.values)}. Move the files into "
                "directories of the same columns in the same order"
            )
