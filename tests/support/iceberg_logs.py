"""Iceberg tables in a directory, written by pyiceberg."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, Transform

from tests.support.log_shop import SCHEMA, LogShop, Row


def iceberg_table(
    place: Path,
    schema: pa.Schema = SCHEMA,
    *,
    partitions: Mapping[str, Transform[Any, Any]] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Make a table in a directory: column -> the transform by which it is partitioned."""
    catalog = InMemoryCatalog("tests", warehouse=str(place.parent))
    catalog.create_namespace("logs")
    table = catalog.create_table("logs.log", schema=schema, location=str(place), properties=dict(properties or {}))
    with table.update_spec() as spec:
        for column, transform in (partitions or {}).items():
            spec.add_field(column, transform)
    return table


BY_DAY: Mapping[str, Transform[Any, Any]] = {"day": IdentityTransform()}


class IcebergShop(LogShop):
    """A lake whose log is an Iceberg table of `SCHEMA`, partitioned by day."""

    def __init__(self, root: Path, form: str = "format: iceberg", **options: Any) -> None:  # noqa: ANN401
        super().__init__(root, form)
        self.table = iceberg_table(self.log, **{"partitions": BY_DAY, **options})

    def append(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> None:
        """Append records in one snapshot."""
        self.table.append(pa.Table.from_pylist(list(rows), schema=schema))
