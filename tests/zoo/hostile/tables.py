"""Writes a hostile log as a Delta table: by deltalake, or by hand with Arrow's Parquet files and commits of JSON.

The files written by hand differ in their row groups, pages, codecs, encodings, types and columns, as those of several
writers do.
"""

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, write_deltalake

from jobs.lake.json_lines import json_lines
from tests.support.delta_logs import clean_commits, commits_of, mark_deleted, track_rows
from tests.support.latin_texts import as_texts, with_bytes
from tests.zoo.hostile.logs import HostileLog, Row
from tests.zoo.hostile.values import Broken

_FEATURES: Final[Mapping[str, tuple[list[str], list[str]]]] = {
    "mapped by name": (["columnMapping"], ["columnMapping"]),
    "mapped by id": (["columnMapping"], ["columnMapping"]),
    "v2 checkpoint": (["v2Checkpoint"], ["v2Checkpoint"]),
    "clustered": ([], ["clustering", "domainMetadata"]),
    "widened column": (["typeWidening"], ["typeWidening"]),
}
"""Form -> the features of readers and of writers that its table needs."""


def arrow_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return records as a table. A text of `Broken` bytes becomes a text that is not UTF-8."""
    arrays = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if any(isinstance(value, Broken) for value in values):
            own = [value.encode() if isinstance(value, str) else value for value in values]
            arrays.append(as_texts(pa.array(own, with_bytes(field.type)), field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def write_table(log: HostileLog, table: Path) -> None:
    """Write the table in the form of the log."""
    if log.writer == "deltalake":
        _write_by_delta_rs(log, table)
    else:
        _HandWriter(log, table).write()
    if (after := _AFTER.get(log.form)) is not None:
        after(log, table)


def _write_by_delta_rs(log: HostileLog, table: Path) -> None:
    for rows in log.commits or ((),):
        write_deltalake(
            str(table), arrow_table(rows, log.schema), mode="append", partition_by=[log.of("day").name]
        )  # fmt: skip


class _HandWriter:
    """Writes one Parquet file for each commit and day."""

    def __init__(self, log: HostileLog, table: Path) -> None:
        self._log, self._table, self._files = log, table, 0
        self._is_mapped = log.form.startswith("mapped")
        self._partitions = [column.name for column in log.partitions]
        self._chance = random.Random(f"files of {log.seed}")
        self._is_odd = self._chance.random() < 0.6

    def write(self) -> None:
        if self._log.form == "Parquet":
            self._table.mkdir()
            for rows in self._log.commits or ((),):
                self._adds(rows, self._log.schema)
            return
        (self._table / "_delta_log").mkdir(parents=True)
        schema = self._log.schema
        late = self._late_column()
        first = schema.remove(schema.get_field_index(late)) if self._log.form == "added column" and late else schema
        if self._log.form == "widened column" and late:
            first = schema.set(schema.get_field_index(late), pa.field(late, pa.int32()))
        self._commit([{"protocol": self._protocol()}, {"metaData": self._metadata(first)}, *self._clustering()])
        for number, rows in enumerate(self._log.commits):
            is_early = number < len(self._log.commits) // 2 and all(self._fits(row, late) for row in rows)
            changed = []
            if not is_early and first != schema:
                changed = [{"metaData": self._metadata(schema, widened=late)}]
                first = schema
            self._commit([*changed, *({"add": add} for add in self._adds(rows, first))])
        if first != schema:
            self._commit([{"metaData": self._metadata(schema, widened=late)}])

    def _late_column(self) -> str | None:
        return next((one.name for one in self._log.columns if one.role == "payload"), None)

    def _fits(self, row: Row, late: str | None) -> bool:
        """Return whether a record can be written before the column is added or widened."""
        if self._log.form == "added column":
            return late is None or row[late] is None
        return self._log.form != "widened column" or late is None or abs(row[late] or 0) < 2**31

    def _commit(self, entries: Sequence[Mapping[str, Any]]) -> None:
        version = len(commits_of(self._table))
        info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
        text = "\n".join(map(json.dumps, [info, *entries]))
        (self._table / "_delta_log" / f"{version:020}.json").write_text(text, "utf-8")

    def _adds(self, rows: Sequence[Row], schema: pa.Schema) -> list[dict[str, Any]]:
        parts: dict[tuple[str | None, ...], list[Row]] = {}
        for row in rows:
            parts.setdefault(tuple(_text(row[name], schema.field(name).type) for name in self._partitions), []).append(
                row
            )
        adds = [self._add(texts, own, schema) for texts, own in sorted(parts.items(), key=repr)]
        if self._log.form == "empty files":
            adds += [self._add(texts, [], schema) for texts in parts]
        return adds

    def _add(self, texts: Sequence[str | None], rows: Sequence[Row], schema: pa.Schema) -> dict[str, Any]:
        records = arrow_table(rows, pa.schema([field for field in schema if field.name not in self._partitions]))
        if self._is_mapped:
            records = pa.Table.from_arrays(records.columns, schema=pa.schema([*map(self._physical, records.schema)]))
        name = f"part-{self._files}.parquet"
        self._files += 1
        if self._log.form == "Parquet" and texts:
            name = f"{quote(self._partitions[0], safe='')}={texts[0]}/{name}"
            (self._table / name).parent.mkdir(exist_ok=True)
        _write_file(self._chance, records, self._table / name, is_odd=self._is_odd)
        values = {self._physical_name(column): text for column, text in zip(self._partitions, texts, strict=True)}
        return {
            "path": name, "partitionValues": values, "size": (self._table / name).stat().st_size,
            "modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": len(rows)}),
        }  # fmt: skip

    def _number(self, name: str) -> int:
        return int(self._log.schema.get_field_index(name)) + 1

    def _physical_name(self, name: str) -> str:
        return f"col-{self._number(name)}" if self._is_mapped else name

    def _physical(self, field: pa.Field) -> pa.Field:
        ids = {"PARQUET:field_id": str(self._number(field.name))}
        return pa.field(self._physical_name(field.name), self._numbered()[field.name], metadata=ids)

    def _numbered(self) -> dict[str, pa.DataType]:
        """Return column -> its type with the ids that `_map_nested` gives the fields inside of it."""
        ids = itertools.count(100)
        return {field.name: _numbered(field.type, ids) for field in self._log.schema if next(ids)}

    def _protocol(self) -> dict[str, Any]:
        readers, writers = map(list, _FEATURES.get(self._log.form, ([], [])))
        if "timestamp_ntz" in {one.kind.name for one in self._log.columns}:
            readers, writers = [*readers, "timestampNtz"], [*writers, "timestampNtz"]
        if readers:
            return {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers,
            }  # fmt: skip
        if writers:
            return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writers}
        return {"minReaderVersion": 1, "minWriterVersion": 2}

    def _metadata(self, schema: pa.Schema, *, widened: str | None = None) -> dict[str, Any]:
        # deltalake refuses names that differ only in case.
        numbered = pa.schema([field.with_name(f"c{number}") for number, field in enumerate(schema)])
        fields = json.loads(Schema.from_arrow(numbered).to_json())
        for field, name in zip(fields["fields"], schema.names, strict=True):
            field["name"] = name
        if self._is_mapped:
            _map_nested(fields, itertools.count(100))
        for field in fields["fields"]:
            if self._is_mapped:
                field["metadata"] = {
                    "delta.columnMapping.id": self._number(field["name"]),
                    "delta.columnMapping.physicalName": self._physical_name(field["name"]),
                }
            if widened is not None and field["name"] == widened and self._log.form == "widened column":
                field["metadata"] = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
        odd = {"void column": "void", "interval column": "interval day to second"}.get(self._log.form)
        if odd is not None:
            fields["fields"].append({"name": "odd", "type": odd, "nullable": True, "metadata": {}})
        mode = {"mapped by name": "name", "mapped by id": "id"}.get(self._log.form)
        settings = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "999"} if mode else {}
        if self._log.form == "widened column":
            settings = {"delta.enableTypeWidening": "true"}
        return {
            "id": f"00000000-0000-4000-8000-{self._log.seed:012x}", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(fields), "partitionColumns": self._partitions,
            "configuration": settings, "createdTime": 0,
        }  # fmt: skip

    def _clustering(self) -> list[dict[str, Any]]:
        if self._log.form != "clustered":
            return []
        configuration = json.dumps({"clusteringColumns": [[self._log.of("seq").name]]})
        domain = {"domain": "delta.clustering", "configuration": configuration, "removed": False}
        return [{"domainMetadata": domain}]


def _text(value: Any, kind: pa.DataType) -> str | None:  # noqa: ANN401 - a value of any type
    """Return a value as commits have it, by the protocol of Delta."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:.{kind.scale}f}"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity")
    if isinstance(value, datetime):
        local = value.replace(tzinfo=None)
        return local.isoformat(" ") if value.tzinfo is None else f"{local.isoformat(timespec='microseconds')}Z"
    return str(value)


def _write_file(chance: random.Random, records: pa.Table, path: Path, *, is_odd: bool) -> None:
    """Write a file as Arrow does, or in a random form: other types, columns, row groups, pages, codecs, encodings."""
    if not is_odd:
        pq.write_table(records, path, write_page_checksum=True)
        return
    columns = [(field, column) for field, column in zip(records.schema, records.columns, strict=True)]
    kept = [(field, column) for field, column in columns if column.null_count < len(column) or chance.random() < 0.5]
    stored = [_stored(chance, field, column) for field, column in chance.sample(kept or columns, len(kept or columns))]
    schema = pa.schema([field for field, _ in stored])
    codings = {field.name: coding for field in schema if (coding := _coding(field.type)) and chance.random() < 0.5}
    others = [field.name for field in schema if field.name not in codings]
    pq.write_table(
        pa.Table.from_arrays([column for _, column in stored], schema=schema), path,
        row_group_size=chance.choice((1, 2, 7, 1_000)), data_page_size=chance.choice((1, 100, 1 << 20)),
        write_batch_size=chance.choice((1, 1_024)), dictionary_pagesize_limit=chance.choice((1, 100, 1 << 20)),
        compression=chance.choice(("NONE", "SNAPPY", "ZSTD", "GZIP", "LZ4", "BROTLI")),
        use_dictionary=chance.choice((False, others)), column_encoding=codings or None,
        data_page_version=chance.choice(("1.0", "2.0")), version=chance.choice(("1.0", "2.4", "2.6")),
        write_statistics=chance.random() < 0.5, write_page_index=chance.random() < 0.5,
        write_page_checksum=chance.random() < 0.5, store_schema=chance.random() < 0.7,
        use_deprecated_int96_timestamps=chance.random() < 0.2,
    )  # fmt: skip


def _stored(chance: random.Random, field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    """Return a column with another type of Arrow that has the same values, or as it is."""
    kind = field.type
    if pa.types.is_string(kind) and chance.random() < 0.3:
        column = column.cast(pa.large_string()) if chance.random() < 0.5 else column.dictionary_encode()
    if pa.types.is_timestamp(kind) and chance.random() < 0.3:
        micros = column.cast(pa.int64())
        whole = pc.all(pc.equal(pc.multiply(pc.divide(micros, 1_000), 1_000), micros), min_count=0).as_py()
        column = column.cast(pa.timestamp("ms", kind.tz)) if whole else column
    return (field if column.type == kind else field.with_type(column.type)), column


def _coding(kind: pa.DataType) -> str | None:
    """Return an encoding of Parquet 2 for a type; None if there is none."""
    if pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    return "DELTA_BYTE_ARRAY" if pa.types.is_string(kind) or pa.types.is_binary(kind) else None


def _numbered(kind: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                pa.field(field.name, _numbered(field.type, ids), metadata={"PARQUET:field_id": str(number)})
                for field, number in zip(kind, ids, strict=False)
            ]
        )
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_type, ids), _numbered(kind.item_type, ids))
    return pa.list_(_numbered(kind.value_type, ids)) if pa.types.is_list(kind) else kind


def _map_nested(node: Any, ids: Iterator[int]) -> None:  # noqa: ANN401 - a part of a schema
    """Give each field inside a type its own name as the physical one."""
    if isinstance(node, list):
        for part in node:
            _map_nested(part, ids)
    if isinstance(node, dict):
        if "name" in node:
            numbered = {"delta.columnMapping.id": next(ids), "delta.columnMapping.physicalName": node["name"]}
            node["metadata"] = numbered
        for part in (*node.values(),):
            _map_nested(part, ids)


def _compact(_log: HostileLog, table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()


def _z_order(log: HostileLog, table: Path) -> None:
    DeltaTable(str(table)).optimize.z_order([log.of("seq").name])


def _restore(_log: HostileLog, table: Path) -> None:
    """Delete all records and bring them back. deltalake writes no version for the deletion of no record."""
    version = DeltaTable(str(table)).version()
    DeltaTable(str(table)).delete()
    if DeltaTable(str(table)).version() > version:
        DeltaTable(str(table)).restore(version)


def _delete(_log: HostileLog, table: Path) -> None:
    DeltaTable(str(table)).delete()


def _track(_log: HostileLog, table: Path) -> None:
    track_rows(table)


def _checkpoint(_log: HostileLog, table: Path) -> None:
    clean_commits(table)


def _v2_checkpoint(_log: HostileLog, table: Path) -> None:
    """Write a checkpoint of JSON of the newest version, and remove the commits before it."""
    commits = commits_of(table)
    entries = [entry for commit in commits for entry in json_lines(commit.read_bytes())]
    kept = [entry for entry in entries if "commitInfo" not in entry]
    version = len(commits) - 1
    lines = [{"checkpointMetadata": {"version": version, "tags": {}}}, *kept]
    name = f"{version:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (table / "_delta_log" / name).write_text("\n".join(map(json.dumps, lines)), "utf-8")
    for commit in commits[:-1]:
        commit.unlink()


def _mark_deleted(_log: HostileLog, table: Path) -> None:
    """Delete the first record of a file with a deletion vector."""
    for commit in commits_of(table):
        for entry in json_lines(commit.read_bytes()):
            add = entry.get("add", {})
            if add and json.loads(add["stats"])["numRecords"]:
                mark_deleted(table, {add["path"]: [0]})
                return


_AFTER: Final[Mapping[str, Callable[[HostileLog, Path], None]]] = {
    "compacted": _compact, "z-ordered": _z_order, "restored": _restore, "deleted": _delete, "tracked": _track,
    "checkpoint": _checkpoint, "v2 checkpoint": _v2_checkpoint, "deletion vector": _mark_deleted,
}  # fmt: skip
