"""Entries for logs that name the columns of their order: writers other than Spark, and forms that they give a table."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, WriterProperties, convert_to_deltalake, write_deltalake

from tests.support.delta_logs import clean_commits, commits_of
from tests.zoo.entries import APPENDED, DAYS, ORDERED, Build, Entry, Place, clicks, flat
from tests.zoo.writers import CLICKS, Commits, by_delta_rs

ERASED = 10_000
"""The least `seq` of the records that are to be erased."""


def shuffled(commits: Commits) -> Commits:
    """Return the commits with the records of each in random order."""
    chance = random.Random(5)
    return [chance.sample(rows, len(rows)) for rows in commits]


def dealt(commits: Commits) -> Commits:
    """Return all records dealt to four commits, so that the ranges of their files overlap."""
    rows = flat(commits)
    return [rows[number::4] for number in range(4)]


def at_once(commits: Commits) -> Commits:
    """Return all records as one commit."""
    return [flat(commits)]


def backwards(commits: Commits) -> Commits:
    """Return the newest records first, in the commits and between them."""
    return [rows[::-1] for rows in commits[::-1]]


def _tied(commits: Commits) -> Commits:
    return [[row | {"seq": row["seq"] // 2} for row in rows] for rows in commits]


def _twice(commits: Commits) -> Commits:
    return [*commits, commits[0]]


def _without_slice(commits: Commits) -> Commits:
    return [*commits, [commits[0][0] | {"day": None}]]


ODD_TEXTS = ("a/b", "100 %", "x=y", "é", "", None, "a:b", "c d", "#?&", "..")


def with_odd_notes(commits: Commits) -> Commits:
    """Return the records with notes that a path has to escape."""
    return [[row | {"note": ODD_TEXTS[row["seq"] % len(ODD_TEXTS)]} for row in rows] for rows in commits]


def by_polars(place: Place) -> None:
    """Append the commits with Polars."""
    schema = {
        "k": polars.String, "at": polars.Int64, "v": polars.Float64, "n": polars.Int32, "note": polars.String,
        "seq": polars.Int64, "day": polars.Date,
    }  # fmt: skip
    for rows in clicks():
        frame = polars.DataFrame(rows, schema=schema)
        frame.write_delta(str(place.table), mode="append", delta_write_options={"partition_by": ["day"]})


def by_duckdb(place: Place) -> None:
    """Write Hive partitions of Parquet with DuckDB, which becomes a Delta table in place."""
    with duckdb.connect(config={"threads": 1}) as sql:
        sql.register("clicks", pa.Table.from_pylist(flat(clicks()), schema=CLICKS))
        sql.execute(f"COPY clicks TO '{place.table}' (FORMAT parquet, PARTITION_BY (day))")  # the place of a test
    days = Schema.from_arrow(pa.schema([("day", pa.date32())]))
    convert_to_deltalake(str(place.table), partition_by=days, partition_strategy="hive")


def _change_files(place: Place, change: Callable[[pa.Table], pa.Table], *, every: int = 2) -> None:
    """Rewrite every second data file in place, with its new size in the Delta log."""
    sizes = {}
    for number, path in enumerate(sorted(DeltaTable(str(place.table)).file_uris())):
        if number % every == 0:
            file = place.table / unquote(path).partition(f"{place.table}/")[2]
            pq.write_table(change(pq.ParquetFile(file).read()), file)
            sizes[file.relative_to(place.table).as_posix()] = file.stat().st_size
    for commit in commits_of(place.table):
        lines = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        for line in lines:
            if unquote(line.get("add", {}).get("path", "")) in sizes:
                line["add"]["size"] = sizes[unquote(line["add"]["path"])]
        commit.write_text("\n".join(map(json.dumps, lines)), "utf-8")


def _other_case(place: Place) -> None:
    _change_files(place, lambda rows: rows.rename_columns([name.upper() for name in rows.column_names]))


def _without_rows(place: Place) -> None:
    nothing = CLICKS.empty_table()
    write_deltalake(str(place.table), nothing, mode="append", partition_by=["day"])


def _empty_file(place: Place) -> None:
    """Add a data file without a record to each slice."""
    commits = commits_of(place.table)
    last = commits[-1]
    add = next(json.loads(line)["add"] for line in last.read_text("utf-8").splitlines() if "add" in json.loads(line))
    files = []
    for number in range(DAYS):
        path = f"day=2026-03-0{1 + number}/empty.parquet"
        pq.write_table(CLICKS.remove(6).empty_table(), place.table / path)
        size = (place.table / path).stat().st_size
        values = {"day": f"2026-03-0{1 + number}"}
        files.append(
            {"add": add | {"path": path, "partitionValues": values, "size": size, "stats": '{"numRecords":0}'}}
        )
    info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
    (last.parent / f"{len(commits):020}.json").write_text("\n".join(map(json.dumps, [info, *files])), "utf-8")


def _without_statistics(place: Place) -> None:
    for commit in commits_of(place.table):
        lines = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        commit.write_text("\n".join(map(json.dumps, lines)), "utf-8")


def _vacuumed(place: Place) -> None:
    DeltaTable(str(place.table)).optimize.compact()
    DeltaTable(str(place.table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    clean_commits(place.table)


def _deleted(place: Place) -> None:
    DeltaTable(str(place.table)).delete("seq = 3")


def _restored(place: Place) -> None:
    DeltaTable(str(place.table)).delete("seq = 3")
    DeltaTable(str(place.table)).restore(len(clicks()) - 1)


def with_erased(commits: Commits) -> Commits:
    """Return the commits with two more records in each, which are to be erased."""
    return [
        [rows[0] | {"seq": ERASED + rows[0]["seq"]}, *rows, rows[-1] | {"seq": ERASED + rows[-1]["seq"], "v": 9.0}]
        for rows in commits
    ]


def _erased(place: Place) -> None:
    DeltaTable(str(place.table)).delete(f"seq >= {ERASED}")


def _wrong(commits: Commits) -> Commits:
    return [[row | {"v": -1.0} if row["seq"] == 3 else row for row in rows] for rows in commits]


def _corrected(place: Place) -> None:
    right = next(row["v"] for row in flat(clicks()) if row["seq"] == 3)
    DeltaTable(str(place.table)).update(predicate="seq = 3", updates={"v": f"{right}"})


def _updated(place: Place) -> None:
    DeltaTable(str(place.table)).update(predicate="seq = 3", updates={"v": "7.0"})


def _overwritten(place: Place) -> None:
    write_deltalake(str(place.table), pa.Table.from_pylist(clicks()[0], schema=CLICKS), mode="overwrite")


def _compact(place: Place) -> None:
    DeltaTable(str(place.table)).optimize.compact()


def _z_order(place: Place) -> None:
    DeltaTable(str(place.table)).optimize.z_order(["n", "k"])


def _checkpoint(place: Place) -> None:
    DeltaTable(str(place.table)).create_checkpoint()


def _merge(place: Place) -> None:
    """Insert the newest commit by a MERGE that only inserts; half of its records are there already."""
    rows = clicks()[-2]
    write_deltalake(str(place.table), pa.Table.from_pylist(rows[::2], schema=CLICKS), mode="append")
    source = pa.Table.from_pylist([*rows, *clicks()[-1]], schema=CLICKS)
    merge = DeltaTable(str(place.table)).merge(source, "t.seq = s.seq", source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()


def _added_column(place: Place) -> None:
    """Append two more commits with a new column."""
    schema = CLICKS.append(pa.field("added", pa.string()))
    for rows in clicks(seed=2)[:2]:
        new = [row | {"seq": row["seq"] + 1_000, "added": f"{row['seq']}"} for row in rows]
        write_deltalake(
            str(place.table), pa.Table.from_pylist(new, schema=schema), mode="append", schema_mode="merge",
            partition_by=["day"],
        )  # fmt: skip


def _updated_and_deleted(place: Place) -> None:
    table = DeltaTable(str(place.table))
    table.update(updates={"v": "0.0"}, predicate="n IS NOT NULL")
    table.delete("day = '2026-03-02'")
    table.delete("seq % 3 = 0")


def _upsert(place: Place) -> None:
    """Insert the records of the last two commits, and change one of each commit before, in one MERGE."""
    *before, last, one = clicks()
    old = [rows[0] | {"note": "changed"} for rows in before]
    rows = pa.Table.from_pylist([*old, *last, *one], schema=CLICKS)
    merge = DeltaTable(str(place.table)).merge(rows, "s.seq = t.seq", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _same(name: str, build: Build, *, is_sample: bool = False, log: str = ORDERED) -> Entry:
    """Return an entry with the records of `clicks` in the order of `seq`: all of these have one answer."""
    table = name.translate(str.maketrans(" ,-:", "____")).casefold()
    return Entry(name=name, table=table, build=build, log=log, answer="ordered", is_sample=is_sample)


PARQUET: Sequence[tuple[str, dict[str, Any]]] = (
    ("uncompressed", {"compression": "UNCOMPRESSED"}),
    ("zstd", {"compression": "ZSTD", "compression_level": 3}),
    ("gzip", {"compression": "GZIP", "compression_level": 5}),
    ("lz4", {"compression": "LZ4_RAW"}),
    ("many row groups", {"max_row_group_size": 7}),
)


def form_entries() -> Iterator[Entry]:
    """Yield the entries of this module."""
    yield _same("delta-rs: files in order", by_delta_rs(), is_sample=True)
    yield _same("delta-rs: shuffled inside files", by_delta_rs(shuffled), is_sample=True)
    yield _same("delta-rs: overlapping files", by_delta_rs(dealt), is_sample=True)
    yield _same("delta-rs: overlapping files, shuffled", by_delta_rs(lambda rows: shuffled(dealt(rows))))
    yield _same("delta-rs: backwards", by_delta_rs(backwards))
    yield _same("delta-rs: one commit", by_delta_rs(at_once))
    yield _same("Polars", by_polars, is_sample=True)
    yield _same("DuckDB: Parquet converted in place", by_duckdb, is_sample=True)
    for name, properties in PARQUET:
        yield _same(f"Parquet: {name}", by_delta_rs(writer_properties=WriterProperties(**properties)))
    yield _same("delta-rs: compacted", by_delta_rs(dealt, after=_compact))
    yield _same("delta-rs: Z-ordered", by_delta_rs(after=_z_order))
    yield _same("delta-rs: history vacuumed", by_delta_rs(after=_vacuumed))
    yield _same("delta-rs: a checkpoint", by_delta_rs(after=_checkpoint))
    yield _same("delta-rs: DELETE and RESTORE", by_delta_rs(after=_restored))
    for name, commits, after in (
        ("delta-rs: erased by law", with_erased, _erased),
        ("delta-rs: changed by law", _wrong, _corrected),
    ):
        yield replace(_same(name, by_delta_rs(commits, after=after), is_sample=True), is_accepted=True)
    yield _same("delta-rs: MERGE that only inserts", by_delta_rs(lambda rows: rows[:-2], after=_merge))
    feed = {"delta.enableChangeDataFeed": "true"}
    inserts = f"changes: inserts\n{ORDERED}"
    changed = by_delta_rs(after=_updated_and_deleted, configuration=feed)
    yield _same("delta-rs: UPDATE and DELETE, inserts only", changed, log=inserts)
    merged = by_delta_rs(lambda rows: rows[:-2], after=_upsert, configuration=feed)
    yield _same("delta-rs: MERGE, inserts only", merged, log=inserts)
    yield _same("delta-rs: a commit without rows", by_delta_rs(after=_without_rows))
    yield _same("empty files", by_delta_rs(after=_empty_file))
    yield _same("no statistics", by_delta_rs(after=_without_statistics))
    yield _same("files with other upper and lower case", by_delta_rs(after=_other_case))
    yield from _others()
    yield from _refused()


def _others() -> Iterator[Entry]:
    yield Entry(
        name="delta-rs: a column that was added", table="added", build=by_delta_rs(after=_added_column), log=ORDERED,
        aggregates="n: {count: {}}, added: {collect_list: added}",
    )  # fmt: skip
    yield Entry(name="one record", table="one", build=by_delta_rs(lambda rows: [rows[2][:1]]), log=ORDERED)
    yield Entry(name="no record", table="none", build=by_delta_rs(lambda _rows: [[]]), log=ORDERED)
    nulls = ORDERED.replace("[seq]", "[v, n, seq]")
    yield Entry(name="nulls and equal values in the order", table="nulls", build=by_delta_rs(), log=nulls)
    yield Entry(
        name="nulls in the order, shuffled", table="nulls_shuffled", build=by_delta_rs(shuffled), log=nulls,
        answer="nulls_and_equal_values_in_the_order",
    )  # fmt: skip
    yield Entry(
        name="partition values with odd characters", table="odd_partitions", log=ORDERED,
        build=by_delta_rs(with_odd_notes, partition_by=("day", "note")),
    )  # fmt: skip
    by_n = by_delta_rs(partition_by=("n", "day"))
    yield _same("a second partition column", by_n)

    def hours(commits: Commits) -> Commits:
        return [[row | {"day": f"{row['day']}T{row['seq'] % 24:02}"} for row in rows] for rows in commits]

    texts = CLICKS.set(6, pa.field("day", pa.string()))
    yield Entry(
        name="slices of hours as texts", table="hours", build=by_delta_rs(hours, schema=texts),
        log=ORDERED.replace("{by: day}", "{by: day, every: 6h}"), bounds=("2026-03-01T00", "2026-03-03T00"),
    )  # fmt: skip

    def days_as_texts(commits: Commits) -> Commits:
        return [[row | {"day": str(row["day"])} for row in rows] for rows in commits]

    yield Entry(
        name="days as texts in a time zone", table="days_as_texts", build=by_delta_rs(days_as_texts, schema=texts),
        log=ORDERED.replace("{by: day}", "{by: day, timezone: America/New_York}"),
    )  # fmt: skip
    yield Entry(
        name="one set of windows for all",
        table="all",
        build=by_delta_rs(),
        log=ORDERED.replace("key: [k]", "over: all"),
    )


def _refused() -> Iterator[Entry]:
    def refused(name: str, build: Build, words: str, *, log: str = ORDERED) -> Entry:
        table = name.translate(str.maketrans(" ,-:", "____")).casefold()
        return Entry(name=name, table=table, build=build, log=log, refused=words)

    plain = by_delta_rs()
    brotli = by_delta_rs(writer_properties=WriterProperties(compression="BROTLI", compression_level=2))
    yield _same("Parquet: brotli", brotli)
    yield refused("no row tracking and no order", plain, "has no row tracking", log=APPENDED)
    yield _same("no partition column", by_delta_rs(partition_by=()))
    yield refused("ties in the order", by_delta_rs(_tied), "is not a total order")
    twice = by_delta_rs(_twice)
    yield Entry(name="at-least-once duplicates", table="duplicates", build=twice, log=ORDERED)
    distinct = f"{ORDERED}\ndistinct: {{by: [seq], within: 1d}}"
    yield Entry(name="at-least-once, distinct", table="duplicates", build=twice, log=distinct)
    yield refused("records without a slice", by_delta_rs(_without_slice), "whose slice column 'day' is null")
    yield refused("DELETE in the range", by_delta_rs(after=_deleted), "removed or changed records of slice 2026-03-01")
    yield refused("UPDATE in the range", by_delta_rs(after=_updated), "removed or changed records of slice 2026-03-01")
    yield refused("overwritten", by_delta_rs(after=_overwritten), "removed or changed records of slice 2026-03-01")
    appended = ORDERED.replace("[seq]", "appended")
    yield Entry(name="order: appended", table="in_appended_order", build=plain, log=appended)
    user = pa.struct([("user", pa.struct([("id", pa.string())]))])
    nested = by_delta_rs(_in_a_struct, schema=CLICKS.append(pa.field("payload", user)))
    path = ORDERED.replace("[k]", "[payload.user.id]")
    yield Entry(name="a key in a struct", table="a_key_in_a_struct", build=nested, log=path)
    yield refused("a name in other upper and lower case", plain, "has no column", log=ORDERED.replace("[k]", "[K]"))
    yield from _refused_partitions(refused)


def _in_a_struct(commits: Commits) -> Commits:
    return [[row | {"payload": {"user": {"id": row["k"]}}} for row in rows] for rows in commits]


def _refused_partitions(refused: Callable[..., Entry]) -> Iterator[Entry]:
    def replaced(kind: pa.DataType, text: Callable[[Any], object]) -> Build:
        def shape(commits: Commits) -> Commits:
            return [[row | {"day": text(row["day"])} for row in rows] for rows in commits]

        return by_delta_rs(shape, schema=CLICKS.set(6, pa.field("day", kind)))

    number = replaced(pa.int32(), lambda day: int(f"{day:%Y%m%d}"))
    yield Entry(name="days as integers 20260301", table="days_as_integers", build=number, log=ORDERED)
    hours = replaced(pa.string(), lambda day: f"{day:%Y%m%d}13")
    yield Entry(name="hours as texts 2026030113", table="hours_as_texts", build=hours, log=ORDERED)
    slashes = replaced(pa.string(), lambda day: f"{day:%d/%m/%Y}")
    yield refused("days as texts 01/03/2026", slashes, "not an ISO date or time")
    schema = pa.schema([*list(CLICKS)[:6], *((name, pa.int32()) for name in ("year", "month", "dd"))])

    def parts(commits: Commits) -> Commits:
        return [
            [row | {"year": row["day"].year, "month": row["day"].month, "dd": row["day"].day} for row in rows]
            for rows in commits
        ]

    split = by_delta_rs(parts, schema=schema, partition_by=("year", "month", "dd"))
    by = ORDERED.replace("by: day", "by: [year, month, dd]")
    yield Entry(name="year, month and day", table="year_month_and_day", build=split, log=by)
