"""The table "Will my table work?" of docs/reference/logs.md. A row is one entry of the zoo or several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.zoo.catalogue import CATALOGUE
from tests.zoo.entries import Entry

HEADER = ("| your table | what happens | the lines of `log` | entry of the zoo |", "|---|---|---|---|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: words for a person, and the entries that show it. The first entry gives the YAML."""

    words: str
    entries: Sequence[str]


ROWS: Sequence[Row] = (
    Row(words="written by Spark, row tracking from its creation", entries=("Spark: row tracking from creation",)),
    Row(
        words="the same, OPTIMIZEd or Z-ordered since",
        entries=("Spark: tracked, OPTIMIZEd", "Spark: tracked, Z-ordered"),
    ),
    Row(
        words="the same, with mapped column names",
        entries=("Spark: tracked, mapped by name", "Spark: tracked, mapped and OPTIMIZEd"),
    ),
    Row(words="the same, its old commits removed", entries=("Spark: tracked, history vacuumed",)),
    Row(
        words="row tracking was switched on later",
        entries=("Spark: row tracking switched on later", "Spark: appended after the switch"),
    ),
    Row(words="compacted before row tracking was switched on", entries=("Spark: compacted before row tracking",)),
    Row(words="written by Structured Streaming, row tracking", entries=("Structured Streaming, tracked",)),
    Row(words="written by Structured Streaming, a column orders the records", entries=("Structured Streaming",)),
    Row(
        words="written by delta-rs, a column orders the records",
        entries=("delta-rs: files in order", "delta-rs: shuffled inside files", "delta-rs: overlapping files"),
    ),
    Row(words="written by Polars, a column orders the records", entries=("Polars",)),
    Row(words="Parquet files of DuckDB, converted in place", entries=("DuckDB: Parquet converted in place",)),
    Row(
        words="compacted or Z-ordered, a column orders the records",
        entries=("Spark: OPTIMIZEd", "Spark: Z-ordered", "delta-rs: compacted", "delta-rs: Z-ordered"),
    ),
    Row(
        words="mapped, renamed or dropped columns",
        entries=("Spark: mapped by name", "Spark: mapped by id", "Spark: a renamed column", "Spark: a dropped column"),
    ),
    Row(words="added or widened columns", entries=("delta-rs: a column that was added", "Spark: a widened column")),
    Row(words="records of a MERGE that only inserts", entries=("delta-rs: MERGE that only inserts",)),
    Row(words="a shallow clone, a column orders the records", entries=("Spark: a shallow clone",)),
    Row(words="a shallow clone, row tracking", entries=("Spark: a tracked clone",)),
    Row(words="slices of hours, as texts `2026-03-01T05`", entries=("slices of hours as texts",)),
    Row(words="hours as texts `2026030105`", entries=("hours as texts 2026030113",)),
    Row(words="days as integers `20260301`", entries=("days as integers 20260301",)),
    Row(words="partitions by year, month and day", entries=("year, month and day",)),
    Row(words="no partition column", entries=("no partition column",)),
    Row(words="liquid clustering", entries=("Spark: liquid clustering",)),
    Row(words="no row tracking, no line for the order", entries=("no row tracking and no order",)),
    Row(words="no row tracking, and no column that orders the records", entries=("order: appended",)),
    Row(words="different records with equal order columns", entries=("ties in the order",)),
    Row(words="equal records with equal order columns", entries=("at-least-once duplicates",)),
    Row(words="records that were appended twice, and shall count once", entries=("at-least-once, distinct",)),
    Row(words="a key inside a struct", entries=("a key in a struct",)),
    Row(words="VARIANT columns", entries=("Spark: VARIANT",)),
    Row(
        words="INT96, or dates of the Julian calendar", entries=("Spark: INT96", "Spark: dates of the Julian calendar")
    ),
    Row(words="texts that are not UTF-8", entries=("Spark: texts that are not UTF-8",)),
    Row(words="Parquet compressed with Brotli", entries=("Parquet: brotli",)),
    Row(
        words="no Delta table: a directory of Parquet files with Hive partitions",
        entries=(
            "Parquet: a directory with Hive partitions",
            "Parquet: Hive partitions of DuckDB",
            "Parquet: Hive partitions of Spark",
            "Parquet: Hive partitions with odd characters",
        ),
    ),
    Row(words="Parquet files without Hive partitions", entries=("Parquet: no Hive partitions",)),
    Row(words="Parquet files, no column that orders the records", entries=("Parquet: no order",)),
    Row(words="Parquet files with conflicting types of a column", entries=("Parquet: types that conflict",)),
    Row(words="a partition `__HIVE_DEFAULT_PARTITION__` of the slice column", entries=("Parquet: a null partition",)),
    Row(
        words="no Delta table: an Iceberg table, a column orders the records",
        entries=("Iceberg: partitioned by day", "Iceberg: no partitions", "Iceberg: changed columns"),
    ),
    Row(
        words="an Iceberg table, compacted, or its old snapshots expired",
        entries=("Iceberg: compacted", "Iceberg: expired snapshots"),
    ),
    Row(words="an Iceberg table, and no column that orders the records", entries=("Iceberg: order: appended",)),
    Row(words="the same, compacted", entries=("Iceberg: compacted, order: appended",)),
    Row(
        words="an Iceberg table with deleted records, or with a renamed column",
        entries=("Iceberg: DELETE in the range", "Iceberg: merge on read", "Iceberg: a renamed column"),
    ),
    Row(words="records were removed or changed in the range", entries=("DELETE in the range", "UPDATE in the range")),
    Row(
        words="records were erased by law",
        entries=("delta-rs: erased by law", "delta-rs: changed by law", "Spark: erased by law"),
    ),
    Row(
        words="records were erased by law, row tracking or deletion vectors",
        entries=("Spark: tracked, erased by law", "Spark: tracked, erased by deletion vectors"),
    ),
    Row(
        words="an UPDATE, a DELETE or a MERGE, and a change data feed from the creation on",
        entries=(
            "delta-rs: UPDATE and DELETE, inserts only",
            "delta-rs: MERGE, inserts only",
            "Spark: UPDATE and DELETE, inserts only",
            "Spark: MERGE, inserts only, deletion vectors",
        ),
    ),
    Row(words="records were removed before the range", entries=("Spark: deletion vectors before the range",)),
    Row(
        words="records were removed and restored", entries=("Spark: tracked, RESTOREd", "delta-rs: DELETE and RESTORE")
    ),
)


def table_lines() -> list[str]:
    """Return the lines of the table."""
    return [*HEADER, *(_line(row) for row in ROWS)]


def _line(row: Row) -> str:
    entries = [_entry(name) for name in row.entries]
    outcomes = {one.refused is None for one in entries}
    if len(outcomes) > 1:
        raise ValueError(f"row {row.words!r}: its entries have different outcomes; make two rows of it")
    happens = "replayed" if outcomes == {True} else "refused"
    if any(one.is_accepted for one in entries):
        happens += " after `hindcast accept-rewrite`"
    yaml = ", ".join(f"`{line}`" for line in _lines(entries[0]))
    return f"| {row.words} | {happens} | {yaml} | {'; '.join(row.entries)} |"


def _entry(name: str) -> Entry:
    return next(entry for entry in CATALOGUE if entry.name == name)


def _lines(entry: Entry) -> Iterator[str]:
    """Yield the lines of the YAML that depend on the table: those of the slices and of the order."""
    for line in entry.log.splitlines():
        if line.startswith(("format:", "partitions:", "changes:", "slice:", "order:")) or "[payload" in line:
            yield line
