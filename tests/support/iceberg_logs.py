"""Iceberg tables in a directory, written by pyiceberg."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.utils.concurrent import ExecutorFactory
from typing_extensions import override

from tests.support.log_shop import SCHEMA, LogShop, Row


def iceberg_table(
    place: Path | str,
    schema: pa.Schema = SCHEMA,
    *,
    partitions: Mapping[str, Transform[Any, Any]] | None = None,
    client: Mapping[str, str] | None = None,
) -> Table:
    """Make a table at a place.

    Args:
        place: its directory or URI.
        schema: its columns.
        partitions: column -> the transform by which it is partitioned.
        client: properties of the client of an object store.
    """
    catalog = InMemoryCatalog("tests", warehouse=str(place), **(client or {}))
    catalog.create_namespace("logs")
    table = catalog.create_table("logs.log", schema=schema, location=str(place))
    with table.update_spec() as spec:
        for column, transform in (partitions or {}).items():
            spec.add_field(column, transform)
    return table


def open_again(place: Path) -> Table:
    """Return a table that was made before, so that it can be changed."""
    catalog = InMemoryCatalog("tests", warehouse=str(place.parent))
    catalog.create_namespace("logs")
    return catalog.register_table("logs.log", str(newest_metadata(place)))


BY_DAY: Mapping[str, Transform[Any, Any]] = {"day": IdentityTransform()}


class IcebergShop(LogShop):
    """A lake whose log is an Iceberg table of `SCHEMA`, partitioned by day."""

    def __init__(self, root: Path, form: str = "format: iceberg", **options: Any) -> None:  # noqa: ANN401
        super().__init__(root, form)
        self.table = iceberg_table(self.log, **{"partitions": BY_DAY, **options})

    def append(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> None:
        """Append records in one snapshot."""
        self.table.append(pa.Table.from_pylist(list(rows), schema=schema))


def newest_metadata(place: Path) -> Path:
    """Return the newest metadata file of a table."""
    return max(place.glob("metadata/*.metadata.json"))


def change_metadata(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the newest metadata file, as another writer would have written it."""
    file = newest_metadata(place)
    metadata = json.loads(file.read_text("utf-8"))
    change(metadata)
    file.write_text(json.dumps(metadata), "utf-8")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let pyiceberg 0.12 judge one manifest at a time.

    Its threads share one evaluator, which keeps the partitions of the manifest that it judges in a field.
    Now and then a thread judges its manifest by the partitions of another one, and the overwrite misses a file.
    """
    with ThreadPoolExecutor(1) as executor, patch.object(ExecutorFactory, "get_or_create", return_value=executor):
        yield


def compact(table: Table) -> None:
    """Write all records again as one file for each day, in a snapshot of the operation `replace`."""
    change = table.transaction()
    with _one_thread(), change.update_snapshot().overwrite() as snapshot:
        for task in table.scan().plan_files():
            snapshot.delete_data_file(task.file)
        rows = table.scan().to_arrow()
        for file in _dataframe_to_data_files(change.table_metadata, rows, table.io):
            snapshot.append_data_file(file)
    change.commit_transaction()
    change_metadata(Path(table.location()), lambda one: one["snapshots"][-1]["summary"].update(operation="replace"))


class _Deletes(ManifestWriterV2):
    """Writes a manifest of delete files, which pyiceberg itself does not."""

    @override
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def delete_on_read(table: Table) -> None:
    """Delete a record of the first day as other writers do: a new snapshot has a file with the places of the rows."""
    parent, io = table.metadata.snapshots[-1], table.io
    sequence = (parent.sequence_number or 0) + 1
    oldest = min((task.file for task in table.scan().plan_files()), key=lambda one: one.file_path)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"{table.location()}/deletes.parquet",
        file_format=FileFormat.PARQUET, partition=oldest.partition, record_count=1, file_size_in_bytes=1,
    )  # fmt: skip
    output = io.new_output(f"{table.location()}/metadata/deletes.avro")
    with _Deletes(table.spec(), table.schema(), output, 9, "deflate") as writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=9, data_file=deletes))
    place = f"{table.location()}/metadata/snap-9.avro"
    with write_manifest_list(2, io.new_output(place), 9, parent.snapshot_id, sequence, "deflate") as manifests:
        manifests.add_manifests([writer.to_manifest_file(), *parent.manifests(io)])

    def change(metadata: dict[str, Any]) -> None:
        more = {
            "snapshot-id": 9,
            "sequence-number": sequence,
            "parent-snapshot-id": parent.snapshot_id,
            "manifest-list": place,
            "summary": {"operation": "delete"},
        }
        metadata["snapshots"].append({**metadata["snapshots"][-1], **more})
        metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = 9
        metadata["snapshot-log"].append({"snapshot-id": 9, "timestamp-ms": parent.timestamp_ms})

    change_metadata(Path(table.location()), change)
