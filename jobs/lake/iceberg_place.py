"""An event log that is an Iceberg table. Hindcast only reads it.

A version is the sequence number of a snapshot of the main branch. Its columns are those of the schema of the snapshot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyiceberg import types
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema, index_name_by_id, make_compatible_name
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType
from typing_extensions import override

from jobs.lake.covered_files import StoredDigests
from jobs.lake.footer_bounds import bounds_table
from jobs.lake.iceberg_table import (
    COPY,
    IcebergFiles,
    IcebergTable,
    file_bounds,
    iceberg_errors,
    iceberg_files,
    identity_columns,
    open_iceberg,
)
from jobs.lake.log_files import NO_DIGESTS
from jobs.lake.log_version import DataFile, LogTip, LogVersion, commit_digest, no_bounds
from windowlib.errors import LogError
from windowlib.libraries import pa
from windowlib.records.column_types import FIELD_ID, Node, field_node, spell_type

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile

_SIMPLE: Final[Mapping[type[IcebergType], str]] = {
    types.BooleanType: "boolean",
    types.IntegerType: "integer",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.DateType: "date",
    types.TimestampType: "timestamp_ntz",
    types.TimestamptzType: "timestamp",
    types.StringType: "string",
    types.BinaryType: "binary",
}
"""Types of both. The others are refused: uuid, time, fixed, and times in nanoseconds among them."""
_NAMES: Final = "schema.name-mapping.default"
"""A property of tables with files of other writers (migrated from Hive), which may lack the partition columns."""


def column_nodes(uri: str, schema: Schema, names: Iterable[tuple[int, str]]) -> dict[str, Node]:
    """Return column -> its type.

    `names` are (field id, whole name) of fields, as they are in this or in other schemas.
    Raises LogError: a log cannot have a column of this type, or the name of a column does not tell it in every file.
    """
    for problem in _problems(schema, names):
        raise LogError(f"the Iceberg table {uri} cannot be replayed: {problem}; {COPY}")
    nodes: dict[str, Node] = {}
    for column in schema.fields:
        node = _node(column.field_type)
        if node is None:
            raise LogError(
                f"column {column.name!r} of the Iceberg table {uri} has the type {column.field_type}, which no column "
                f"of a log can have; drop it, or write its values as another type: {COPY}"
            )
        nodes[column.name] = node
    return nodes


def widened_columns(schema: Schema, schemas: Iterable[Schema]) -> dict[str, str]:
    """Return column -> its first type in Spark's spelling, of the columns that have got a wider type."""
    widened: dict[str, str] = {}
    for old in sorted(schemas, key=lambda past: past.schema_id):
        for column in old.fields:
            name = schema.find_column_name(column.field_id)
            if name is None or name in widened or schema.find_type(column.field_id) == column.field_type:
                continue
            node = _node(column.field_type)
            if isinstance(node, str):
                widened[name] = spell_type(node)
    return widened


def past_names(schemas: Iterable[Schema], mapping: NameMapping | None) -> Iterator[tuple[int, str]]:
    """Yield (field id, whole name) of all fields of schemas, and of a mapping of names for files without field ids."""
    for schema in schemas:
        yield from index_name_by_id(schema).items()
    if mapping is not None:
        yield from _mapped_names(mapping.root)


def _mapped_names(fields: Iterable[MappedField], parent: str = "") -> Iterator[tuple[int, str]]:
    for mapped in fields:
        for name in mapped.names:
            if mapped.field_id is not None:
                yield mapped.field_id, parent + name
            yield from _mapped_names(mapped.fields, f"{parent}{name}.")


def _problems(schema: Schema, past: Iterable[tuple[int, str]]) -> Iterator[str]:
    names = index_name_by_id(schema)
    ids = {name.casefold(): field_id for field_id, name in names.items()}
    for field_id, name in names.items():
        own = schema.find_field(field_id)
        if make_compatible_name(own.name) != own.name:
            yield f"column {name!r} has characters that writers replace in the names of the files"
        if own.initial_default is not None:
            yield f"column {name!r} has a value for the files from before it was added ({own.initial_default!r})"
    for field_id, name in past:
        if names.get(field_id, name).casefold() != name.casefold():  # files without ids have names in any case
            yield f"column {names[field_id]!r} was renamed, and has the name {name!r} in some files"
        if ids.get(name.casefold(), field_id) != field_id:
            yield f"the name {name!r} is that of two columns, one of which was dropped, and some files have it"


def _node(kind: IcebergType) -> Node | None:
    """Return a type; None if a log cannot have it."""
    if isinstance(kind, types.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, types.ListType):
        element = _node(kind.element_type)
        return None if element is None else {"type": "array", "elementType": element, "containsNull": True}
    if isinstance(kind, types.MapType):
        key, value = _node(kind.key_type), _node(kind.value_type)
        if key is None or value is None:
            return None
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if isinstance(kind, types.StructType):
        fields = [
            field_node(member.name, node, {FIELD_ID: member.field_id})
            for member in kind.fields
            if (node := _node(member.field_type)) is not None
        ]
        return {"type": "struct", "fields": fields} if len(fields) == len(kind.fields) else None
    return _SIMPLE.get(type(kind))


@dataclass(frozen=True, kw_only=True)
class IcebergVersion(LogVersion):
    """An Iceberg table at one snapshot. Its settings are the table properties."""

    table: IcebergTable = field(repr=False)
    schema: Schema = field(repr=False)
    retention: str = "history.expire.max-snapshot-age-ms"
    _digests: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @override
    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> IcebergFiles:
        """Return the snapshots up to this version, and check the manifests of it.

        Raises LogError: a file is not as it was written, or cannot be read.
        """
        files = iceberg_files(self.table, version=self.version, stored=stored, digests=self._digests)
        if self.version:
            with iceberg_errors(self.uri, "reading its manifests"):
                files.manifests(self.version)
        return files

    @override
    def files(self) -> Sequence[DataFile]:
        return [file for file, _ in self._live]

    @cached_property
    def _live(self) -> "list[tuple[DataFile, IcebergFile]]":
        if not self.version:
            return []
        files = iceberg_files(self.table, version=self.version, digests=self._digests)
        with iceberg_errors(self.uri, "reading the list of its files"):
            return [
                (
                    DataFile(
                        path=add["path"],
                        partition={name: add["partitionValues"][name] for name in self.partition_columns},
                        records=file.record_count,
                        bytes=file.file_size_in_bytes,
                        modified_ms=0,  # an Iceberg table does not tell it
                    ),
                    file,
                )
                for file, add in files.live(self.version)
                if file.content == DataFileContent.DATA
            ]

    @override
    def bounds(self, column: str) -> "pa.Table":
        if column not in self.nodes:  # a part of a column, or a derived one
            return no_bounds()
        number = self.schema.find_field(column).field_id
        rows = [
            (live.path, *own, nulls[number])
            for live, file in self._live
            if (own := file_bounds(file, self.schema, column)) and number in (nulls := file.null_value_counts or {})
        ]
        return bounds_table(rows, self.nodes[column])

    @override
    def removal(self, columns: Sequence[str]) -> str:
        where = " OR ".join(f"{name} IS NULL" for name in columns)
        return f"remove the files without one (DELETE … WHERE {where}, which changes no slice)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPlace:
    """An Iceberg table as an event log (`LogPlace`): its directory, or a metadata file of it."""

    uri: str

    def open(self, version: int | None = None) -> IcebergVersion:
        """Return the table at a snapshot (None: the newest of the main branch).

        Raises LogError: there is no table, it cannot be read, the snapshot has expired, or the table has something that
        a log cannot have: delete files, or columns whose types or names are refused.
        """
        table = open_iceberg(self.uri)
        wanted = table.version if version is None else version
        snapshot = table.snapshots.get(wanted)
        if snapshot is None and wanted:
            raise LogError(
                f"snapshot {wanted} of the Iceberg table {self.uri} does not exist; those from "
                f"{min(table.snapshots, default=0)} to {table.version} can be read. Older ones have expired: raise the "
                "table property history.expire.max-snapshot-age-ms before the first replay"
            )
        schema, schemas = table.schema(wanted), table.metadata.schemas
        return IcebergVersion(
            uri=self.uri,
            version=wanted,
            table_id=str(table.metadata.table_uuid),
            configuration=table.metadata.properties,
            nodes=column_nodes(self.uri, schema, past_names(schemas, table.metadata.name_mapping())),
            field_ids={column.name: column.field_id for column in schema.fields},
            may_lack_ids=_NAMES in table.metadata.properties,
            widened=widened_columns(schema, schemas),
            partition_columns=self._partition_columns(table, wanted, schema),
            table=table,
            schema=schema,
        )

    def is_newest(self, version: int) -> bool:
        return open_iceberg(self.uri).version == version

    def tip(self) -> LogTip | None:
        table = open_iceberg(self.uri)
        files = iceberg_files(table, version=table.version)
        if not table.version:
            return None
        return LogTip(version=table.version, commit=commit_digest(files, table.version), files=files)

    def _partition_columns(self, table: IcebergTable, version: int, schema: "Schema") -> tuple[str, ...]:
        """Return the columns by whose values all files of a version are divided. Delete files are refused."""
        specs = table.metadata.specs()
        with iceberg_errors(self.uri, "reading its manifests"):
            manifests = table.snapshots[version].manifests(table.reader) if version else []
        filled = [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]
        if any(manifest.content == ManifestContent.DELETES for manifest in filled):
            raise LogError(
                f"the Iceberg table {self.uri} has delete files or deletion vectors (snapshot {version}): records were "
                "deleted or updated without writing their files again (merge on read). Hindcast replays append-only "
                f"logs; {COPY}"
            )
        used = {manifest.partition_spec_id for manifest in filled} or {table.metadata.default_spec_id}
        named = [identity_columns(schema, specs[spec_id]) for spec_id in sorted(used)]
        columns = tuple(name for name in named[0] if all(name in names for names in named))
        if _NAMES in table.metadata.properties and any(len(specs[spec_id].fields) > len(columns) for spec_id in used):
            raise LogError(
                f"the Iceberg table {self.uri} has files of other writers ({_NAMES}), which may lack partition "
                f"columns, and is not partitioned by whole columns of the types date, string and integers alone; {COPY}"
            )
        return columns
