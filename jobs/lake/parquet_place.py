"""An event log that is a directory of Parquet files with Hive partitions. Hindcast only reads it.

It has no commits. Its version is a hash of the listing (path, size, time of modification), and a slice has changed if
its files are not those that its run has read. The order of the records is that of columns. A writer may replace a file,
so the digest of a file is stored for its path and its time of modification.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypedDict

from typing_extensions import override

from jobs.lake.covered_files import StoredDigests
from jobs.lake.log_files import NO_DIGESTS, LogFiles
from jobs.lake.log_version import DataFile, LogTip, LogVersion
from jobs.lake.parquet_listing import ParquetListing, list_parquet, typed_value
from jobs.runs import LISTED
from jobs.storage import is_remote
from windowlib.errors import LogError
from windowlib.records.column_types import Node, parse_type

NANOS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ParquetVersion(LogVersion):
    """The directory as it was listed. Its version is a hash of the listing. The footers of all files were read."""

    data_files: tuple[DataFile, ...]
    listing: ParquetListing = field(repr=False)
    has_commits: bool = False
    retention: str = ""
    why_not_accepted: str = (
        "a directory of Parquet files has no commits. If files are removed or replaced, their slices are `input "
        "changed` without a decision, and a replay reads what is left"
    )

    @override
    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> LogFiles:
        return self.listing.log_files(stored=stored)

    @override
    def files(self) -> tuple[DataFile, ...]:
        return self.data_files

    @override
    def removal(self, columns: Sequence[str]) -> str:
        return "remove the files without one"


class ListedFacts(TypedDict):
    """The fields of a `ParquetVersion` that the files tell."""

    uri: str
    nodes: Mapping[str, Node]
    widened: Mapping[str, str]
    partition_columns: tuple[str, ...]
    data_files: tuple[DataFile, ...]
    listing: ParquetListing


def listed_facts(
    listing: ParquetListing, *, partitions: Mapping[str, str] | None = None, is_replaceable: bool = True
) -> ListedFacts:
    """Return what files tell of a log. Their footers are read.

    `partitions` are the types of partition columns; others are texts. `is_replaceable`: a writer may replace a file.
    Raises LogError: a file cannot be read, or the files do not fit together.
    """
    from jobs.lake.parquet_schema import read_footers, united  # it imports Arrow

    footers = read_footers(listing)
    schema = united(listing, footers)
    kinds = {name: (partitions or {}).get(name, "string") for name in listing.partition_columns}
    return ListedFacts(
        uri=listing.uri,
        nodes={**schema.nodes, **{name: parse_type(kind) for name, kind in kinds.items()}},
        widened=schema.widened,
        partition_columns=listing.partition_columns,
        data_files=tuple(
            DataFile(
                path=file.path,
                partition={name: typed_value(listing.uri, file, name, kind=kind) for name, kind in kinds.items()},
                records=footer.records,
                bytes=file.bytes,
                modified_ms=file.mtime_ns // NANOS_PER_MS,
                is_replaceable=is_replaceable,
            )
            for file, footer in zip(listing.files, footers, strict=True)
        ),
        listing=listing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetPlace:
    """A directory of Parquet files as an event log (`LogPlace`). `partitions` has the types of partition columns."""

    uri: str
    partitions: Mapping[str, str] = field(default_factory=dict)

    def open(self, version: int | None = None) -> ParquetVersion:
        """Return the directory as it is now.

        Raises LogError: there is no file, the files do not fit together, or the directory has changed since `version`.
        """
        listing = list_parquet(self.uri)
        if version is not None and version != listing.version:
            raise LogError(
                f"the files of event log {self.uri} are not those that a run has listed any more, and a directory of "
                "Parquet files has only the files of now"
            )
        if not listing.files:
            raise LogError(
                f"event log {self.uri} has no Parquet file, so its columns are not known; load it first, or correct "
                "`log.table` (files whose names begin with _ or . are ignored)"
            )
        self._refuse_unknown_partitions(listing)
        # No file tells one log from another, so the place does. A relative path is the same place as the absolute one.
        is_whole = is_remote(self.uri) or Path(self.uri).is_absolute()
        whole = self.uri if is_whole else os.path.abspath(self.uri)  # noqa: PTH100 - links stay, and `..` does not
        place = whole.encode("utf-8", errors="surrogatepass")
        return ParquetVersion(
            version=listing.version,
            table_id=f"{LISTED}{blake2b(place, digest_size=8).hexdigest()}",
            **listed_facts(listing, partitions=self.partitions),
        )

    def is_newest(self, version: int) -> bool:
        return list_parquet(self.uri).version == version

    def tip(self) -> LogTip:
        """Return the listing. No file is read. Raises LogError: the directory cannot be listed."""
        listing = list_parquet(self.uri)
        return LogTip(version=listing.version, commit=listing.digest.hex(), files=listing.log_files())

    def _refuse_unknown_partitions(self, listing: ParquetListing) -> None:
        unknown = sorted({*self.partitions} - {*listing.partition_columns})
        if unknown:
            columns = ", ".join(listing.partition_columns) or "none"
            raise LogError(
                f"log.partitions names {', '.join(map(repr, unknown))}, but the files of event log {self.uri} are in "
                f"directories of other partition columns (found: {columns}); correct log.partitions"
            )
