"""Writers of the zoo's tables: delta-rs, Polars, DuckDB's Parquet files, Spark. All write the same bytes each time."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from tests.zoo.entries import Build, Place, Row, clicks

CLICKS = pa.schema(
    [
        ("k", pa.string()), ("at", pa.int64()), ("v", pa.float64()), ("n", pa.int32()), ("note", pa.string()),
        ("seq", pa.int64()), ("day", pa.date32()),
    ]
)  # fmt: skip
CLICKS_DDL = "k string, at bigint, v double, n int, note string, seq bigint, day date"
Commits = Sequence[Sequence[Row]]
Shape = Callable[[Commits], Commits]


def by_delta_rs(
    shape: Shape = list,
    *,
    schema: pa.Schema = CLICKS,
    partition_by: Sequence[str] = ("day",),
    after: Callable[[Place], None] | None = None,
    **options: Any,  # noqa: ANN401 - those of `write_deltalake`
) -> Build:
    """Return a builder that appends each commit of `shape(clicks())` with delta-rs, and then calls `after`."""

    def build(place: Place) -> None:
        for rows in shape(clicks()):
            table = pa.Table.from_pylist(list(rows), schema=schema)
            write_deltalake(str(place.table), table, mode="append", partition_by=[*partition_by], **options)
        if after is not None:
            after(place)

    return build


def by_spark(
    shape: Shape = list,
    *,
    ddl: str = CLICKS_DDL,
    partition_by: Sequence[str] = ("day",),
    properties: Mapping[str, str] | None = None,
    columns: Sequence[str] = ("*",),
    after: Callable[[Place], None] | None = None,
) -> Build:
    """Return a builder that appends each commit of `shape(clicks())` with Spark as one file for each partition value.

    `columns` are SQL expressions over the rows, which have the types of `ddl`.
    """

    def build(place: Place) -> None:
        spark = place.spark()
        for rows in shape(clicks()):
            frame = spark.createDataFrame([tuple(row.values()) for row in rows], ddl).coalesce(1).selectExpr(*columns)
            writer = frame.write.format("delta").mode("append").partitionBy(*partition_by)
            writer.options(**(properties or {})).save(str(place.table))
        if after is not None:
            after(place)

    return build


def copy_of(name: str, build: Build, after: Build | None = None) -> Build:
    """Return a builder that copies a table, which `build` writes when it is first needed, and then calls `after`."""

    def copy(place: Place) -> None:
        base = place.bases / name
        if not base.is_dir():
            build(replace(place, table=base))
        shutil.copytree(base, place.table)
        if after is not None:
            after(place)

    return copy


def run_sql(*statements: str) -> Callable[[Place], None]:
    """Return a step that runs SQL statements on a table, whose name in them is `{log}`."""

    def run(place: Place) -> None:
        for statement in statements:
            place.spark().sql(statement.format(log=f"delta.`{place.table}`", path=place.table)).collect()

    return run
