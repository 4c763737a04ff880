"""Opens an Iceberg table by its own metadata: its current metadata file, its snapshots, and their files as commits.

Nothing is ever written: `_Reader` can only open files. Source: the Iceberg table specification, versions 2 and 3.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.serializers import FromInputFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestampType, TimestamptzType
from typing_extensions import override

from jobs.lake.damage import table_errors
from jobs.lake.log_files import Entry, LogFiles, encoded_path
from jobs.plain_text import shortened
from jobs.storage import file_system, is_remote, is_s3
from windowlib.errors import LogError
from windowlib.libraries import pafs

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_METADATA: Final = re.compile(r"(?:v(?P<hadoop>\d+)|(?P<number>\d+)-[^/]+?)(?:\.gz)?\.metadata\.json(?:\.gz)?")
"""The names of metadata files: of a table of a directory (Hadoop), and of a table of a catalog."""
_S3: Final = ("s3://", "s3a://", "s3n://")
COPY: Final = (
    "append its records, in their order, to a new table, and name that in `log.table` (docs/reference/logs.md)"
)

TIMES: Final = (DateType, TimestampType, TimestamptzType)
_PARTITIONS: Final = (DateType, IntegerType, LongType, StringType)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is appended
REPLACE: Final = "replace"
_DATE_BYTES: Final = 4
_DAY_US: Final = 86_400_000_000


@contextmanager
def iceberg_errors(uri: str, doing: str) -> Iterator[None]:
    """Turn the exceptions of pyiceberg and Arrow about a damaged table into a `LogError` of one paragraph."""

    def make_error(error: BaseException) -> LogError:
        cause = shortened(str(error).partition("\n")[0].strip() or type(error).__name__)
        return LogError(
            f"event log {uri}: {doing} failed: {cause}. A file of the Iceberg table is missing, damaged or truncated. "
            "Restore it from a backup"
        )

    others = (ValueError, KeyError, IndexError, EOFError, AssertionError, NotImplementedError, struct.error)
    with table_errors(make_error, also=(*others, ValidationError)):
        yield


class _Reader(FileIO):
    """Opens the files that the metadata names, in the file system of the log."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.uri = uri
        self.system, self.root = file_system(uri)

    @override
    def new_input(self, location: str) -> PyArrowFile:
        return PyArrowFile(location, self.place(location), self.system)

    @override
    def new_output(self, location: str) -> NoReturn:
        raise NotImplementedError("Hindcast only reads Iceberg tables")

    @override
    def delete(self, location: object) -> NoReturn:
        raise NotImplementedError("Hindcast only reads Iceberg tables")

    def place(self, location: str) -> str:
        """Return the place of a file in the file system of the log. Raises LogError: the file is in another one."""
        if location.startswith("file:"):
            location = f"/{location.removeprefix('file:').lstrip('/')}"
        is_in_s3 = location.startswith(_S3)
        if is_in_s3 != is_s3(self.uri) or (not is_in_s3 and is_remote(location)):
            raise LogError(
                f"the Iceberg table {self.uri} has the file {location}, which is not in the file system of "
                "`log.table`; all files of the table must be on this machine, or in one S3 object store"
            )
        return location.partition("://")[2] if is_in_s3 else location


@dataclass(frozen=True, kw_only=True)
class IcebergTable:
    """An Iceberg table as one metadata file describes it."""

    uri: str
    metadata: "TableMetadata"
    reader: _Reader

    @cached_property
    def snapshots(self) -> Mapping[int, "Snapshot"]:
        """Sequence number -> snapshot, newest first: the newest one, and those that it follows from.

        Raises LogError: the table was rolled back, or the newest snapshot has no sequence number.
        """
        by_id = {snapshot.snapshot_id: snapshot for snapshot in self.metadata.snapshots}
        snapshots: dict[int, Snapshot] = {}
        ids = set()
        current = self.metadata.current_snapshot()
        while current is not None:
            ids.add(current.snapshot_id)
            if current.sequence_number:
                snapshots[current.sequence_number] = current
            current = by_id.get(current.parent_snapshot_id or -1)
        if ids and not snapshots:
            raise LogError(
                f"the newest snapshot of the Iceberg table {self.uri} has no sequence number (format version 1), so "
                "the order of its snapshots is not known. Set the table property 'format-version' to 2, and append to "
                "it"
            )
        for entry in self.metadata.snapshot_log:
            if entry.snapshot_id in by_id and entry.snapshot_id not in ids:
                raise LogError(
                    f"the Iceberg table {self.uri} was rolled back or replaced: snapshot {entry.snapshot_id} was the "
                    "newest one, and the table does not follow from it any more. Hindcast replays append-only logs. "
                    "Set the current snapshot to it again; or expire it, and the slices of its records are `input "
                    "changed`"
                )
        return snapshots

    @property
    def version(self) -> int:
        """The sequence number of the newest snapshot; 0 of a table without one."""
        return next(iter(self.snapshots), 0)

    @cached_property
    def others(self) -> frozenset[int]:
        """Sequence numbers that changed nothing: of snapshots of other branches, and 0 if the first snapshot is 1."""
        current_ids = {entry.snapshot_id for entry in self.metadata.snapshot_log}
        others = [snapshot for snapshot in self.metadata.snapshots if snapshot.snapshot_id not in current_ids]
        branches = {snapshot.sequence_number or 0 for snapshot in others}
        first = self.snapshots.get(1)
        is_whole = not self.snapshots or (first is not None and first.parent_snapshot_id is None)
        return frozenset(branches - {*self.snapshots, 0}) | ({0} if is_whole else frozenset())

    @cached_property
    def list_names(self) -> Mapping[str, str]:
        """The place of a manifest list -> the name of its digest: a sequence number has one list."""
        lists = {number: snapshot.manifest_list for number, snapshot in self.snapshots.items()}
        return {self.reader.place(manifest_list): f"snapshots/{number}" for number, manifest_list in lists.items()}

    def schema(self, version: int) -> "Schema":
        """Return the columns of a version: those that the table had at its snapshot."""
        snapshot = self.snapshots.get(version)
        own = None if snapshot is None else snapshot.schema_id
        schema = next((candidate for candidate in self.metadata.schemas if candidate.schema_id == own), None)
        return self.metadata.schema() if schema is None else schema

    def path(self, location: str) -> str:
        """Return the path of a file as a Delta log has it: URI-encoded, and relative to the table if it is below it."""
        place = self.reader.place(location)
        if place.startswith(f"{self.reader.root}/"):
            return encoded_path(place.removeprefix(f"{self.reader.root}/"))
        return f"{'s3://' if is_s3(self.uri) else ''}{encoded_path(place)}"


def open_iceberg(uri: str) -> IcebergTable:
    """Return the table at a place: its directory, or one of its metadata files.

    Raises LogError: there is no table, its newest metadata file is not known, or it cannot be read.
    """
    if is_remote(uri) and not is_s3(uri):
        raise LogError(f"event log {uri} is neither a directory nor in an S3 object store; an Iceberg table must be")
    with iceberg_errors(uri, "opening its metadata"):
        reader = _Reader(uri)
        is_file = reader.system.get_file_info(reader.root).type == pafs.FileType.File
        location = reader.root if is_file else _newest_metadata(reader)
        metadata = FromInputFile.table_metadata(PyArrowFile(location, location, reader.system))
    return IcebergTable(uri=uri, metadata=metadata, reader=reader)


def _newest_metadata(reader: _Reader) -> str:
    """Return the place of the newest metadata file of a directory."""
    infos = reader.system.get_file_info(pafs.FileSelector(f"{reader.root}/metadata", allow_not_found=True))
    numbered: dict[int, list[str]] = {}
    for info in infos:
        if match := _METADATA.fullmatch(info.base_name):
            numbered.setdefault(int(match["hadoop"] or match["number"]), []).append(info.path)
    if not numbered:
        raise LogError(
            f"event log {reader.uri} is no Iceberg table: it has no metadata/*.metadata.json. `log.table` must name "
            "the directory of the table, or its metadata file; leave `format: iceberg` out for a Delta table"
        )
    newest = sorted(numbered[max(numbered)])
    if len(newest) > 1:
        names = ", ".join(path.rpartition("/")[2] for path in newest)
        raise LogError(
            f"the Iceberg table {reader.uri} has {len(newest)} newest metadata files ({names}): a writer commits, or a "
            "commit failed and its file is left. Remove the file that the catalog does not name, or name the other one "
            "in `log.table`"
        )
    return newest[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergFiles(LogFiles):
    """`LogFiles` whose commits are snapshots. The path of a commit is that of the snapshot's manifest list."""

    table: IcebergTable
    schema: "Schema"

    @override
    def _name(self, path: str) -> str:
        """Return the name of a digest. No file is written again, and one sequence number has one manifest list."""
        return self.table.list_names.get(path) or path.removeprefix(f"{self.root}/")

    @override
    def table_entries(self, version: int) -> Sequence[Entry]:
        if version not in self._read:
            with iceberg_errors(self.uri, f"reading snapshot {version}"):
                self._read[version] = tuple(self._actions(version)) if self.commits[version] else ()
        return self._read[version]

    def manifests(self, version: int, *, own: bool = False) -> "list[ManifestFile]":
        """Return the manifests of a snapshot, or only those that it has written itself. Their bytes were checked."""
        self.check([self.commits[version]])
        snapshot = self.table.snapshots[version]
        listed = snapshot.manifests(self.table.reader)
        manifests = [manifest for manifest in listed if not own or manifest.added_snapshot_id == snapshot.snapshot_id]
        self.check([self.table.reader.place(manifest.manifest_path) for manifest in manifests])
        return manifests

    def live(self, version: int) -> "Iterator[tuple[IcebergFile, Mapping[str, Any]]]":
        for manifest in self.manifests(version):
            for entry in manifest.fetch_manifest_entry(self.table.reader):
                yield entry.data_file, self._action(manifest, entry.data_file)

    def _actions(self, version: int) -> Iterator[Entry]:
        snapshot = self.table.snapshots[version]
        operation = "?" if snapshot.summary is None else snapshot.summary.operation.value
        yield {"commitInfo": {"operation": operation, "timestamp": snapshot.timestamp_ms}}
        for manifest in self.manifests(version, own=True):
            for entry in manifest.fetch_manifest_entry(self.table.reader, discard_deleted=False):
                if entry.snapshot_id != snapshot.snapshot_id or entry.status == ManifestEntryStatus.EXISTING:
                    continue
                action = self._action(manifest, entry.data_file) | {"dataChange": operation != REPLACE}
                is_add = entry.status == ManifestEntryStatus.ADDED
                if manifest.content != ManifestContent.DELETES:
                    yield {"add" if is_add else "remove": action}
                elif is_add:  # the file takes records away from others
                    yield {"remove": action | {"dataChange": True}}

    def _action(self, manifest: "ManifestFile", file: "IcebergFile") -> dict[str, Any]:
        if file.content == DataFileContent.DATA and file.file_format != FileFormat.PARQUET:
            raise LogError(
                f"the Iceberg table {self.uri} has the file {file.file_path} of the format {file.file_format}; only "
                "Parquet files can be replayed"
            )
        schema, spec = self.schema, self.table.metadata.specs()[manifest.partition_spec_id]
        return {
            "path": self.table.path(file.file_path),
            "partitionValues": partition_values(schema, spec, file),
            "size": file.file_size_in_bytes,
            "stats": _statistics(schema, file),
        }


def iceberg_files(table: IcebergTable, *, version: int, **others: Any) -> IcebergFiles:  # noqa: ANN401 - of `LogFiles`
    """Return the snapshots up to a version. No file is read."""
    commits = {number: table.reader.place(snapshot.manifest_list) for number, snapshot in table.snapshots.items()}
    commits |= dict.fromkeys(table.others, "")
    return IcebergFiles(
        uri=table.uri,
        system=table.reader.system,
        root=table.reader.root,
        commits={number: commits[number] for number in sorted(commits) if number <= version},
        checkpoint=None,
        table=table,
        schema=table.schema(version),
        **others,
    )


def identity_columns(schema: "Schema", spec: "PartitionSpec") -> dict[str, int]:
    """Return column -> position in the spec, of the columns whose values are those of the partitions."""
    columns = {field.field_id: field.name for field in schema.fields if isinstance(field.field_type, _PARTITIONS)}
    return {
        columns[field.source_id]: position
        for position, field in enumerate(spec.fields)
        if field.source_id in columns and isinstance(field.transform, IdentityTransform)
    }


def partition_values(schema: "Schema", spec: "PartitionSpec", file: "IcebergFile") -> dict[str, str | None]:
    """Return column -> its value in a file as a text, of `identity_columns`."""
    values: dict[str, str | None] = {}
    for name, position in identity_columns(schema, spec).items():
        value = file.partition[position]
        if value is not None and isinstance(schema.find_type(name), DateType) and isinstance(value, int):
            value = date.fromordinal(_EPOCH.toordinal() + value)
        values[name] = None if value is None else str(value)
    return values


def file_bounds(file: "IcebergFile", schema: "Schema", column: str) -> tuple[int, int] | None:
    """Return the least and the greatest value of a column of times or whole numbers; None if they are not known."""
    field = schema.find_field(column)
    kind = field.field_type
    low, high = ((own or {}).get(field.field_id) for own in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None or not isinstance(kind, (*TIMES, IntegerType, LongType)):
        return None
    # A file from before the column was widened has fewer bytes. Those of a TIMESTAMP that was a DATE are days.
    unit = _DAY_US if isinstance(kind, TimestampType) and len(low) == _DATE_BYTES else 1
    return unit * int.from_bytes(low, "little", signed=True), unit * int.from_bytes(high, "little", signed=True)


def _statistics(schema: "Schema", file: "IcebergFile") -> str:
    """Return the statistics of an `add` as a Delta log has them: the records, and the bounds of times."""
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    for field in schema.fields:
        kind = field.field_type
        bounds = file_bounds(file, schema, field.name) if isinstance(kind, TIMES) else None
        if bounds is not None:
            texts = [_text(kind, bound) for bound in bounds]
            if None not in texts:
                low[field.name], high[field.name] = map(str, texts)
    return json.dumps({"numRecords": file.record_count, "minValues": low, "maxValues": high})


def _text(kind: object, value: int) -> str | None:
    try:
        if isinstance(kind, DateType):
            return date.fromordinal(_EPOCH.toordinal() + value).isoformat()
        at = _EPOCH + timedelta(microseconds=value)
        return (at.replace(tzinfo=UTC) if isinstance(kind, TimestamptzType) else at).isoformat()
    except (OverflowError, ValueError):  # a year that Python does not have
        return None
