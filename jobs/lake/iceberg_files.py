"""The snapshots of an Iceberg table as commits of a log: what each of them added and removed.

A version is the sequence number of a snapshot. Its `add` and `remove` are the entries of the manifests that it wrote,
in their order. A `replace` (compaction) moves records, and any other snapshot that removes a file removes records.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestampType, TimestamptzType
from typing_extensions import override

from jobs.lake.iceberg_table import IcebergTable, iceberg_errors
from jobs.lake.log_files import Entry, LogFiles
from windowlib.errors import LogError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

TIMES: Final = (DateType, TimestampType, TimestamptzType)
_PARTITIONS: Final = (DateType, IntegerType, LongType, StringType)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is appended
REPLACE: Final = "replace"


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
    def entries(self, version: int) -> Sequence[Entry]:
        if version not in self._read:
            with iceberg_errors(self.uri, f"reading snapshot {version}"):
                self._read[version] = tuple(self._actions(version)) if self.commits[version] else ()
        return self._read[version]

    def manifests(self, version: int, *, own: bool = False) -> "list[ManifestFile]":
        """Return the manifests of a snapshot, or only those that it has written itself. Their bytes were checked."""
        self.check([self.commits[version]])
        snapshot = self.table.snapshots[version]
        found = snapshot.manifests(self.table.reader)
        found = [one for one in found if not own or one.added_snapshot_id == snapshot.snapshot_id]
        self.check([self.table.reader.place(one.manifest_path) for one in found])
        return found

    def live(self, version: int) -> "Iterator[tuple[IcebergFile, Mapping[str, Any]]]":
        """Yield the files of a version, each with its `add`."""
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
    commits = {one: table.reader.place(snapshot.manifest_list) for one, snapshot in table.snapshots.items()}
    commits |= dict.fromkeys(table.others, "")
    return IcebergFiles(
        uri=table.uri,
        system=table.reader.system,
        root=table.reader.root,
        commits={one: commits[one] for one in sorted(commits) if one <= version},
        checkpoint=None,
        table=table,
        schema=table.schema(version),
        **others,
    )


def identity_columns(schema: "Schema", spec: "PartitionSpec") -> dict[str, int]:
    """Return column -> position in the spec, of the columns whose values are those of the partitions."""
    columns = {one.field_id: one.name for one in schema.fields if isinstance(one.field_type, _PARTITIONS)}
    return {
        columns[field.source_id]: position
        for position, field in enumerate(spec.fields)
        if field.source_id in columns and isinstance(field.transform, IdentityTransform)
    }


def partition_values(schema: "Schema", spec: "PartitionSpec", file: "IcebergFile") -> dict[str, str | None]:
    """Return column -> its value in a file as a text, of `identity_columns`."""
    found: dict[str, str | None] = {}
    for name, position in identity_columns(schema, spec).items():
        value = file.partition[position]
        if value is not None and isinstance(schema.find_type(name), DateType) and isinstance(value, int):
            value = date.fromordinal(_EPOCH.toordinal() + value)
        found[name] = None if value is None else str(value)
    return found


def file_bounds(file: "IcebergFile", schema: "Schema", column: str) -> tuple[int, int] | None:
    """Return the least and the greatest value of a column of times or whole numbers; None if they are not known."""
    field = schema.find_field(column)
    found = [(own or {}).get(field.field_id) for own in (file.lower_bounds, file.upper_bounds)]
    if None in found or not isinstance(field.field_type, (*TIMES, IntegerType, LongType)):
        return None
    # A file from before the column was widened has fewer bytes.
    low, high = (int.from_bytes(own or b"", "little", signed=True) for own in found)
    return low, high


def _statistics(schema: "Schema", file: "IcebergFile") -> str:
    """Return the statistics of an `add` as a Delta log has them: the records, and the bounds of times."""
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    for field in schema.fields:
        kind = field.field_type
        bounds = file_bounds(file, schema, field.name) if isinstance(kind, TIMES) else None
        if bounds is not None:
            texts = [_text(kind, one) for one in bounds]
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
