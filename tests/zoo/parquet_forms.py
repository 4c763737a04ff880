"""Entries for logs that are directories of Parquet files with Hive partitions, and no Delta table."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.zoo.entries import ORDERED, Build, Entry, Place, Row, clicks, flat
from tests.zoo.forms import dealt, shuffled, with_odd_notes
from tests.zoo.writers import CLICKS, Commits, Shape

HIVE = f"format: parquet\npartitions: {{day: date}}\n{ORDERED}"
"""The `log` part of a pipeline over `clicks` in Hive partitions."""
NULL = "__HIVE_DEFAULT_PARTITION__"


def hive(
    shape: Shape = list,
    *,
    partition_by: Sequence[str] = ("day",),
    schema_of: Callable[[int], pa.Schema] = lambda _number: CLICKS,
    after: Build | None = None,
) -> Build:
    """Return a builder that writes each commit of `shape(clicks())` as one file for each partition, then calls `after`.

    `schema_of` gives the columns of the files of a commit, by its number.
    """

    def build(place: Place) -> None:
        for number, rows in enumerate(shape(clicks())):
            write_hive(place, f"part-{number}", rows, schema=schema_of(number), partition_by=partition_by)
        if after is not None:
            after(place)

    return build


def write_hive(
    place: Place, name: str, rows: Sequence[Row], *, schema: pa.Schema, partition_by: Sequence[str] = ("day",)
) -> None:
    """Write records as a file for each partition, with the values in the path as Spark escapes them."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        values = [(column, row[column]) for column in partition_by]
        path = "/".join(f"{column}={_text(value)}" for column, value in values)
        parts.setdefault(path, []).append(row)
    kept = pa.schema([field for field in schema if field.name not in partition_by])
    for path, own in parts.items():
        directory = place.table / path
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(own, schema=kept), directory / f"{name}.parquet")


def _text(value: object) -> str:
    return NULL if value is None or value == "" else quote(str(value), safe=" ")


def _by_duckdb(place: Place) -> None:
    with duckdb.connect(config={"threads": 1}) as sql:
        sql.register("clicks", pa.Table.from_pylist(flat(clicks()), schema=CLICKS))
        sql.execute(f"COPY clicks TO '{place.table}' (FORMAT parquet, PARTITION_BY (day))")  # the place of a test


def _with_other_files(place: Place) -> None:
    """Add what Spark ignores: markers, and files that a writer has not finished."""
    (place.table / "_SUCCESS").touch()
    (place.table / "day=2026-03-01" / ".part-9.parquet.crc").write_bytes(b"no checksum")
    unfinished = place.table / "_temporary" / "0"
    unfinished.mkdir(parents=True)
    (unfinished / "part-0.parquet").write_bytes(b"PAR1")


def _of_texts(number: int) -> pa.Schema:
    return CLICKS if number else CLICKS.set(3, pa.field("n", pa.string()))


def _numbers_as_texts(commits: Commits) -> Commits:
    return [[row | {"n": str(row["n"])} for row in commits[0]], *commits[1:]]


def _without_day(commits: Commits) -> Commits:
    return [*commits, [row | {"day": None} for row in commits[0][:3]]]


def _no_parquet(place: Place) -> None:
    (place.table / "day=2026-03-02" / "notes.txt").write_text("no Parquet")


def parquet_entries() -> Iterator[Entry]:
    """Yield the entries of this module."""
    yield _hive("Parquet: a directory with Hive partitions", hive(shuffled), is_sample=True)
    yield _hive("Parquet: Hive partitions of DuckDB", _by_duckdb)
    yield _hive("Parquet: Hive partitions, overlapping files", hive(lambda rows: shuffled(dealt(rows))))
    yield _hive("Parquet: Hive partitions with other files", hive(after=_with_other_files))
    yield _hive("Parquet: no Hive partitions", hive(partition_by=()), log=HIVE.replace("partitions: {day: date}\n", ""))
    odd = hive(with_odd_notes, partition_by=("day", "note"))
    yield _hive("Parquet: Hive partitions with odd characters", odd, answer="")
    yield from _refused()


def _refused() -> Iterator[Entry]:
    yield _hive("Parquet: no order", hive(), log=HIVE.replace("[seq]", "commits"), refused="has no commits")
    yield _hive("Parquet: a null partition", hive(_without_day), refused="has 3 records whose slice column 'day' is")
    conflict = hive(_numbers_as_texts, schema_of=_of_texts)
    yield _hive("Parquet: types that conflict", conflict, refused="has types that do not fit together")
    yield _hive("Parquet: a file that is no Parquet", hive(after=_no_parquet), refused="is no whole Parquet file")


def _hive(name: str, build: Build, *, log: str = HIVE, answer: str = "ordered", **fields: Any) -> Entry:  # noqa: ANN401
    table = name.translate(str.maketrans(" ,-:", "____")).casefold()
    return Entry(name=name, table=table, build=build, log=log, answer="" if "refused" in fields else answer, **fields)
