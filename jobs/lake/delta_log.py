"""Opens an event log at one version: its columns, its data files, and where these files are.

This module reads Delta's metadata and file listings, never a record. All column names that it returns are logical.
`LogTable.physical` maps them to the names in the files and commits (Delta's column mapping).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from jobs.lake.arrow_types import arrow_table, texts_of, values_of
from jobs.lake.covered_files import StoredDigests
from jobs.lake.damage import log_errors
from jobs.lake.delta_tables import is_newest, open_delta, open_newest
from jobs.lake.log_files import NO_DIGESTS, LogFiles, checkpoint_entries, list_log_files, place_of
from jobs.lake.log_version import DataFile, DeletedRows, LogTip, LogVersion, column_hashes, commit_digest, no_bounds
from jobs.storage import file_system, is_remote
from windowlib.errors import LogError
from windowlib.libraries import pa, pc
from windowlib.records.column_types import FIELD_ID, PHYSICAL_NAME, spell_type

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MAPPING_MODE = "delta.columnMapping.mode"
_MAPPED: Final = ("name", "id")
"""Modes in which commits have physical names. Files have these in mode `name`; in mode `id` they have the field ids."""
_TYPE_CHANGES = "delta.typeChanges"
_DELETION_VECTORS = "deletionVectors"
_VECTORS: Final = ("add.path", "add.deletionVector.pathOrInlineDv", "add.deletionVector.offset")
_ANY_VERSION: Final = 10**20 - 1


def open_log(uri: str, version: int | None = None) -> "DeltaTable":
    """Return the log's Delta table, opened at a version (None: the newest).

    Raises LogError: the path does not exist, is not a Delta table, has lost the version, or is damaged.
    """
    from deltalake.exceptions import TableNotFoundError

    with log_errors(uri, f"opening version {'latest' if version is None else version}"):
        if not is_remote(uri) and not Path(uri).exists():
            raise LogError(f"event log {uri} does not exist; load it first, or correct `log.table` or the lake root")
        if not is_remote(uri) and Path(uri).is_file():
            raise LogError(f"event log {uri} is a file; name the directory of the table")
        try:
            return open_newest(uri).delta if version is None else open_delta(uri, version)
        except TableNotFoundError as error:
            raise LogError(
                f"event log {uri} {'' if is_remote(uri) else 'exists, but it '}is not a Delta table: it has no "
                "_delta_log with a commit. `log.table` must name the root of an append-only Delta table; or, with "
                "`format: parquet`, a directory of Parquet files; or, with `format: iceberg`, an Iceberg table "
                "(docs/reference/logs.md)"
            ) from error


@dataclass(frozen=True, kw_only=True)
class LogTable(LogVersion):
    """A Delta table as an event log, as the metadata of one version describes it."""

    table: "DeltaTable"
    is_read_by_spark: bool = True
    _digests: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @override
    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> LogFiles:
        """List the files of `_delta_log` up to this version, and check those that the version follows from.

        A file is checked once for each `LogTable`.
        Raises LogError: a file is not as it was written, or cannot be read.
        """
        system, root = file_system(self.uri)
        files = list_log_files(self.uri, system, root, version=self.version, stored=stored, digests=self._digests)
        with log_errors(self.uri, "reading the log of its commits"):
            files.check(files.current)
        return files

    @override
    def files(self) -> Sequence[DataFile]:
        return self._files

    @override
    def file(self, place: int) -> DataFile:
        return _file(self._rows[place])

    @override
    def partitions(self) -> Iterable[tuple[Mapping[str, str | None], int | None]]:
        return map(itemgetter(1, 2), self._rows)

    @cached_property
    def _files(self) -> list[DataFile]:
        return [*map(_file, self._rows)]

    @cached_property
    def _rows(self) -> list[tuple[Any, ...]]:
        """The values of each file, in the order of `_file`. A log of years has many files, and few are asked for."""
        with log_errors(self.uri, "reading the list of its files"):
            actions = arrow_table(self.table.get_add_actions(flatten=True))
            texts = {
                name: texts_of(actions[f"partition.{name}"])
                for name in self.partition_columns
                if self.nodes[name] != "binary"
            }
        listed = [actions[name] for name in ("path", "num_records", "size_bytes", "modification_time")]
        modified = listed[3].cast(pa.timestamp("ms")).cast(pa.int64()) if _is_time(listed[3]) else listed[3]
        paths, records, sizes, times = map(values_of, (*listed[:3], modified))
        values = zip(*texts.values(), strict=True) if texts else [()] * len(paths)
        partitions = [dict(zip(texts, own, strict=True)) for own in values]
        deleted: list[DeletedRows | None] = [None] * len(paths)
        if vectors := self._deletion_vectors():
            root = file_system(self.uri)[1]
            deleted = [vectors.get(place_of(root, path)) for path in paths]
            counts = [0 if rows is None else rows.count for rows in deleted]
            records = [None if own is None else own - gone for own, gone in zip(records, counts, strict=True)]
        return [*zip(paths, partitions, records, sizes, times, deleted, strict=True)]

    def _deletion_vectors(self) -> Mapping[str, DeletedRows]:
        """Return the place of a data file -> its deleted rows, for the files with a deletion vector."""
        from deltalake.exceptions import DeltaError

        if _DELETION_VECTORS not in (self.table.protocol().reader_features or ()):
            return {}
        with log_errors(self.uri, "reading its deletion vectors"):
            try:
                vectors = arrow_table(self.table.deletion_vectors())
            except DeltaError:  # for example a feature of the table, although no file has a vector
                if _has_vectors(self.log_files()):
                    raise
                return {}
            rows = (bits.values.to_numpy(zero_copy_only=False) for bits in vectors["selection_vector"])
            places = (place_of("", path) for path in vectors["filepath"].to_pylist())
            return {place: DeletedRows.of(is_kept) for place, is_kept in zip(places, rows, strict=True)}

    @override
    def bounds(self, column: str) -> "pa.Table":
        with log_errors(self.uri, "reading the statistics of its files"):
            actions = arrow_table(self.table.get_add_actions(flatten=True))
        stored = self.physical.get(column)
        names = {"low": f"min.{stored}", "high": f"max.{stored}", "nulls": f"null_count.{stored}"}
        if stored is None or not set(names.values()) <= set(actions.column_names):
            return no_bounds()
        bounds = [actions[name] for name in ("path", *names.values())]
        told = pa.Table.from_arrays(bounds, names=["path", *names]).drop_null()
        # INT96 statistics, as in Spark's checkpoints, have no year after 2262: that of 9999-12-31 is read as 1816.
        return told.filter(pc.less_equal(told["low"], told["high"])) if _is_time(told["low"]) else told

    @override
    def former(self, version: int) -> LogVersion | None:
        with suppress(LogError):
            return describe_log(self.uri, version)
        return None

    @override
    def removal(self, columns: Sequence[str]) -> str:
        """Return how a person removes the records that have no value of one of these partition columns."""
        where = " OR ".join(f"{name} IS NULL" for name in columns)
        return f"remove the records without one (DELETE … WHERE {where}, which changes no slice)"


def _file(row: tuple[Any, ...]) -> DataFile:
    path, partition, records, size, modified_ms, deleted = row
    return DataFile(
        path=path, partition=partition, records=records, bytes=size, modified_ms=modified_ms, deleted=deleted
    )


def describe_log(uri: str, version: int | None = None) -> LogTable:
    """Return the metadata of the log at a version (None: the newest).

    Raises LogError: as for `open_log`, or the log maps column names and its schema has no physical name of a column.
    """
    table = open_log(uri, version)
    with log_errors(uri, "reading its schema"):
        metadata = table.metadata()
        configuration = dict(metadata.configuration)
        mode = configuration.get(_MAPPING_MODE)
        schema = _schema(table.schema().to_json(), mode)
    fields = {field["name"]: field for field in schema["fields"]}
    names = mapped_names(fields.values(), configuration)
    unknown = sorted(name for name, physical in names.items() if physical is None)
    if unknown:
        raise LogError(
            f"event log {uri} maps columns (delta.columnMapping.mode = {mode}), but its schema gives no physical name "
            f"of {', '.join(map(repr, unknown))}; replay a copy of the table without column mapping"
        )
    return LogTable(
        uri=uri,
        table=table,
        version=table.version(),
        table_id=str(metadata.id),
        nodes={name: own["type"] for name, own in fields.items()},
        partition_columns=tuple(metadata.partition_columns),
        configuration=configuration,
        mapped=names,
        field_ids={name: own["metadata"][FIELD_ID] for name, own in fields.items()} if mode == "id" else {},
        widened={
            name: spell_type(changes[0]["fromType"]) for name, own in fields.items() if (changes := _type_changes(own))
        },
    )


def mapped_names(fields: Iterable[Mapping[str, Any]], configuration: Mapping[str, str | None]) -> dict[str, Any]:
    """Return column -> its physical name in the schema, None if it has none there; empty if no columns are mapped."""
    is_mapped = configuration.get(_MAPPING_MODE) in _MAPPED
    return {own["name"]: own.get("metadata", {}).get(PHYSICAL_NAME) for own in fields} if is_mapped else {}


def columns_of(metadata: Mapping[str, Any]) -> str:
    """Return the `columns` of `LogCoordinates` of a table with this metadata."""
    mode = (metadata.get("configuration") or {}).get(_MAPPING_MODE)
    return column_hashes(_schema(metadata["schemaString"], mode)["fields"], has_ids=mode in _MAPPED)


def _schema(text: str, mode: str | None) -> Any:  # noqa: ANN401 - JSON
    return json.loads(text, object_hook=None if mode == "id" else _without_id)


def _has_vectors(files: LogFiles) -> bool:
    """Return whether a data file of the version has a deletion vector, by the checkpoint and the commits after it."""
    live = {_marked(entry["add"]) for entry in checkpoint_entries(files, _VECTORS) if entry.get("add")}
    for version in range(0 if files.checkpoint is None else files.checkpoint.version + 1, max(files.commits) + 1):
        entries = files.entries(version)
        live -= {_marked(entry["remove"]) for entry in entries if "remove" in entry}
        live |= {_marked(entry["add"]) for entry in entries if "add" in entry}
    return any(vector is not None for _path, vector, _offset in live)


def _marked(action: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the path of a file and the place of its deletion vector, which identify what an action adds or removes."""
    vector = action.get("deletionVector") or {}
    return action.get("path"), vector.get("pathOrInlineDv"), vector.get("offset")


def _without_id(node: dict[str, Any]) -> dict[str, Any]:
    """Remove the field id from a part of the schema: in other modes than `id`, ids do not tell the columns of files."""
    node.pop(FIELD_ID, None)
    return node


def _type_changes(field: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the type changes of a column, oldest first, without those of its nested fields (they have a path)."""
    changes = field.get("metadata", {}).get(_TYPE_CHANGES) or ()
    return [change for change in changes if "fieldPath" not in change]


def _is_time(column: "pa.ChunkedArray") -> bool:
    return bool(pa.types.is_timestamp(column.type))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlace:
    """A Delta table as an event log (`LogPlace`)."""

    uri: str

    def open(self, version: int | None = None) -> LogTable:
        return describe_log(self.uri, version)

    def is_newest(self, version: int) -> bool:
        return is_newest(self.uri, version)

    def tip(self) -> LogTip | None:
        """Return the newest commit; None if there is no commit file. One directory is listed, one file is read.

        Raises LogError: the log cannot be read, or there is none.
        """
        with log_errors(self.uri, "listing its commits"):
            system, root = file_system(self.uri)
            files = list_log_files(self.uri, system, root, version=_ANY_VERSION)
        if not files.commits:
            open_log(self.uri)  # raises if there is no table
            return None
        version = max(files.commits)
        return LogTip(version=version, commit=commit_digest(files, version), files=files)
