"""Entries for the tables that Spark writes: row tracking, rewritten files, mapped names, values that only it has."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from tests.support.delta_logs import clean_commits
from tests.zoo.entries import APPENDED, DAYS, FIRST_DAY, ORDERED, Build, Entry, Place, clicks
from tests.zoo.forms import ERASED, at_once, dealt, shuffled, with_erased
from tests.zoo.writers import CLICKS_DDL, Commits, by_spark, copy_of, run_sql

TRACKED: Mapping[str, str] = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
TRACK = "ALTER TABLE {log} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
OPTIMIZE = "OPTIMIZE {log}"
Z_ORDER = "OPTIMIZE {log} ZORDER BY (n, note)"
_TIMES = [
    datetime(1500, 1, 1, tzinfo=UTC),
    datetime(1890, 5, 1, 3, 4, 5, tzinfo=UTC),
    datetime(2026, 3, 1, tzinfo=UTC),
    None,
]
_DATES = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(2026, 3, 1), None]


def _named(name: str, build: Build, *, log: str, answer: str = "", refused: str | None = None) -> Entry:
    table = name.translate(str.maketrans(" ,-:", "____")).casefold()
    return Entry(
        name=name, table=table, build=build, log=log, answer=answer, refused=refused,
        is_sample=name == "Spark: row tracking from creation",
    )  # fmt: skip


def _nothing(_commits: Commits) -> Commits:
    return [[]]


def by_streaming(properties: Mapping[str, str]) -> Build:
    """Return a builder that appends the commits with Structured Streaming, one file of its source for each batch."""

    def build(place: Place) -> None:
        spark = place.spark()
        source = place.table.parent / "source"
        by_spark(_nothing, properties=properties)(place)
        for number, rows in enumerate(clicks()):
            part = place.table.parent / f"part{number}"
            frame = spark.createDataFrame([tuple(row.values()) for row in rows], CLICKS_DDL)
            frame.coalesce(1).write.parquet(str(part))
            source.mkdir(exist_ok=True)
            file = next(part.glob("*.parquet")).rename(source / f"{number}.parquet")
            os.utime(file, (1_000_000 + number, 1_000_000 + number))  # the source takes the oldest first
        stream = spark.readStream.schema(CLICKS_DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
        query = (
            stream.coalesce(1).writeStream.format("delta").partitionBy("day").trigger(availableNow=True)
            .option("checkpointLocation", str(place.table.parent / "offsets")).start(str(place.table))
        )  # fmt: skip
        query.awaitTermination()

    return build


def _only_before(place: Place) -> None:
    clean_commits(place.table)


def _clone(place: Place) -> None:
    original = place.table.parent / "original"
    copy_of("untracked", by_spark())(replace(place, table=original))
    run_sql(f"CREATE TABLE {{log}} SHALLOW CLONE delta.`{original}`")(place)


def _merge(place: Place) -> None:
    spark = place.spark()
    rows = [row for commit in clicks()[-2:] for row in commit]
    spark.createDataFrame([tuple(row.values()) for row in rows], CLICKS_DDL).coalesce(1).createOrReplaceTempView("news")
    run_sql("MERGE INTO {log} AS t USING news AS s ON t.seq = s.seq WHEN NOT MATCHED THEN INSERT *")(place)


def _other_day(commits: Commits) -> Commits:
    """Return the commits after two commits with records of the day before."""
    before = [row | {"day": FIRST_DAY - timedelta(days=1), "seq": -1 - row["seq"]} for row in commits[0]]
    return [before, before[:3], *commits]


def _append() -> Build:
    return by_spark(lambda commits: commits[4:])


def _then(*steps: Build) -> Build:
    def build(place: Place) -> None:
        for step in steps:
            step(place)

    return build


def _first(commits: Commits) -> Commits:
    return commits[:4]


ERASE = f"DELETE FROM {{log}} WHERE seq >= {ERASED}"  # noqa: S608 - our number
DELETE_BEFORE = "DELETE FROM {log} WHERE day = '2026-02-28' AND n IS NULL"


def tracked_entries() -> Iterator[Entry]:
    """Yield entries with row tracking whose records are those of `clicks` in the order of the commits: one answer."""

    def tracked(name: str, build: Build) -> Entry:
        return _named(name, build, log=APPENDED, answer="appended")

    born, mapped, plain = by_spark(properties=TRACKED), by_spark(properties={**TRACKED, **MAPPED}), by_spark()
    with_vectors = {**TRACKED, "delta.enableDeletionVectors": "true"}
    bases = {"tracked": born, "tracked_mapped": mapped, "untracked": plain}

    def copied(base: str, *statements: str) -> Build:
        return copy_of(base, bases[base], run_sql(*statements))

    yield tracked("Spark: row tracking from creation", copied("tracked"))
    yield tracked("Spark: tracked, OPTIMIZEd", copied("tracked", OPTIMIZE))
    yield tracked("Spark: tracked, Z-ordered", copied("tracked", Z_ORDER))
    yield tracked("Spark: tracked, mapped by name", copied("tracked_mapped"))
    yield tracked("Spark: tracked, mapped and OPTIMIZEd", copied("tracked_mapped", OPTIMIZE))
    yield tracked("Structured Streaming, tracked", by_streaming(TRACKED))
    yield tracked("Spark: row tracking switched on later", copied("untracked", TRACK))
    yield tracked("Spark: appended after the switch", _then(by_spark(_first, after=run_sql(TRACK)), _append()))
    yield tracked("Spark: tracked, history vacuumed", copy_of("tracked", born, _only_before))
    yield tracked(
        "Spark: tracked, MERGE that only inserts", by_spark(lambda rows: rows[:-2], properties=TRACKED, after=_merge)
    )
    for name, properties, after in (
        ("Spark: tracked, erased by law", TRACKED, (ERASE,)),
        ("Spark: tracked, erased by deletion vectors", with_vectors, (ERASE,)),
        ("Spark: tracked, erased and purged", with_vectors, (ERASE, "REORG TABLE {log} APPLY (PURGE)")),
    ):
        erased = by_spark(with_erased, properties=properties, after=run_sql(*after))
        yield replace(tracked(name, erased), is_accepted=True)
    delete = "DELETE FROM {log} WHERE seq = 3"
    yield tracked("Spark: tracked, RESTOREd", copied("tracked", delete, "RESTORE {log} TO VERSION AS OF 6"))
    yield _named(
        "Spark: deletion vectors before the range", answer="appended",
        log=APPENDED.replace("{by: day}", "{by: day, first: 2026-03-01}"),
        build=by_spark(_other_day, properties=with_vectors, after=run_sql(DELETE_BEFORE)),
    )  # fmt: skip
    stamps = {**TRACKED, "delta.enableInCommitTimestamps": "true"}
    yield tracked("Spark: in-commit timestamps", by_spark(properties=stamps))
    checkpoints = {**TRACKED, "delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"}
    yield tracked("Spark: checkpoints of version 2", by_spark(properties=checkpoints))


def ordered_entries() -> Iterator[Entry]:
    """Yield entries of Spark's tables with an order by a column: the answer is that of the other writers."""

    def ordered(name: str, build: Build) -> Entry:
        return _named(name, build, log=ORDERED, answer="ordered")

    erased = by_spark(lambda commits: at_once(with_erased(commits)), after=run_sql(ERASE))
    yield replace(ordered("Spark: erased by law", erased), is_accepted=True)
    plain, mapped, overlapping = by_spark(), by_spark(properties=MAPPED), by_spark(dealt)
    yield ordered("Spark: no row tracking", copy_of("untracked", plain))
    yield ordered("Spark: shuffled inside files", by_spark(shuffled))
    yield ordered("Spark: tracked, read by a column", copy_of("tracked", by_spark(properties=TRACKED)))
    yield ordered("Spark: OPTIMIZEd", copy_of("dealt", overlapping, run_sql(OPTIMIZE)))
    yield ordered("Spark: Z-ordered", copy_of("dealt", overlapping, run_sql(Z_ORDER)))
    yield ordered("Spark: mapped by name", copy_of("mapped", mapped))
    yield ordered("Spark: mapped by id", by_spark(at_once, properties={**MAPPED, "delta.columnMapping.mode": "id"}))
    renamed = CLICKS_DDL.replace("v double", "value double")
    rename = run_sql("ALTER TABLE {log} RENAME COLUMN value TO v")
    yield ordered(
        "Spark: a renamed column", _then(by_spark(_first, ddl=renamed, properties=MAPPED, after=rename), _append())
    )
    drop = run_sql("ALTER TABLE {log} DROP COLUMN gone")
    yield ordered(
        "Spark: a dropped column", by_spark(at_once, properties=MAPPED, columns=("*", "'gone' AS gone"), after=drop)
    )
    yield ordered("Structured Streaming", by_streaming({}))
    yield ordered("Spark: a shallow clone", _clone)
    yield ordered("Spark: append only", by_spark(at_once, properties={"delta.appendOnly": "true"}))
    yield ordered("Spark: change data feed", by_spark(at_once, properties={"delta.enableChangeDataFeed": "true"}))
    yield ordered(
        "Spark: random prefixes of files", by_spark(at_once, properties={"delta.randomizeFilePrefixes": "true"})
    )
    check = "ALTER TABLE {log} ADD CONSTRAINT positive CHECK (seq >= 0)"
    yield ordered("Spark: a CHECK constraint", copy_of("untracked", plain, run_sql(check)))
    defaults = "ALTER TABLE {log} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    default = "ALTER TABLE {log} ALTER COLUMN note SET DEFAULT 'x'"
    yield ordered("Spark: a default value", copy_of("untracked", plain, run_sql(defaults, default)))
    texts = CLICKS_DDL.replace("k string", "k varchar(9)").replace("note string", "note varchar(20)")
    yield ordered("Spark: varchar", _created(texts))
    yield ordered("Spark: columns that are not null", _created(CLICKS_DDL.replace("seq bigint", "seq bigint NOT NULL")))


def _created(ddl: str) -> Build:
    def build(place: Place) -> None:
        run_sql(f"CREATE TABLE {{log}} ({ddl}) USING delta PARTITIONED BY (day)")(place)
        by_spark(at_once)(place)

    return build


def spark_entries() -> Iterator[Entry]:
    """Yield all entries of this module."""
    yield from tracked_entries()
    yield from ordered_entries()
    yield from _other_logs()
    yield from _special()
    yield from _refused()


def _other_logs() -> Iterator[Entry]:
    """Yield the inserts of tables that Spark changes, and a directory of Parquet files of Spark."""
    inserts = f"changes: inserts\n{ORDERED}"
    changes = (
        "UPDATE {log} SET v = 0.0 WHERE n IS NOT NULL", "DELETE FROM {log} WHERE day = DATE'2026-03-02'",
        "DELETE FROM {log} WHERE seq % 3 = 0", OPTIMIZE,
    )  # fmt: skip
    for suffix, vectors in (("", "false"), (", deletion vectors", "true")):
        fed = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors}
        changed = by_spark(properties=fed, after=run_sql(*changes))
        yield _named(f"Spark: UPDATE and DELETE, inserts only{suffix}", changed, log=inserts, answer="ordered")
        merged = by_spark(lambda rows: rows[:-2], properties=fed, after=_upsert)
        yield _named(f"Spark: MERGE, inserts only{suffix}", merged, log=inserts, answer="ordered")
    hive = f"format: parquet\npartitions: {{day: date}}\n{ORDERED}"
    yield _named("Parquet: Hive partitions of Spark", _parquet, log=hive, answer="ordered")


def _upsert(place: Place) -> None:
    """Insert the records of the last two commits, and change one of each commit before, in one MERGE."""
    *before, last, one = clicks()
    rows = [*({**rows[0], "note": "changed"} for rows in before), *last, *one]
    place.spark().createDataFrame([tuple(row.values()) for row in rows], CLICKS_DDL).createOrReplaceTempView("upserted")
    merge = "MERGE INTO {log} t USING upserted s ON s.seq = t.seq "
    run_sql(f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")(place)


def _parquet(place: Place) -> None:
    for rows in clicks():
        frame = place.spark().createDataFrame([tuple(row.values()) for row in rows], CLICKS_DDL).coalesce(1)
        frame.write.mode("append").partitionBy("day").parquet(str(place.table))


def _special() -> Iterator[Entry]:
    narrow = ("k", "at", "v", "cast(n AS smallint) n", "note", "seq", "day")
    widen = run_sql("ALTER TABLE {log} ALTER COLUMN n TYPE int")
    widening = {"delta.enableTypeWidening": "true"}
    widened = _then(by_spark(_first, columns=narrow, properties=widening, after=widen), _append())
    yield _named("Spark: a widened column", widened, log=ORDERED)
    nested = "named_struct('a', n, 'b', array(named_struct('c', note))) AS payload"
    yield Entry(
        name="Spark: nested columns mapped by name", table="nested_mapped", log=ORDERED,
        build=by_spark(at_once, properties=MAPPED, columns=("k", "at", nested, "seq", "day")),
        aggregates="n: {count: {}}, all: {collect_list: payload}",
    )  # fmt: skip
    variant = "parse_json(to_json(named_struct('n', n, 'note', note)))"
    yield Entry(
        name="Spark: VARIANT", table="variant", log=ORDERED, aggregates="n: {count: {}}, all: {collect_list: v}",
        build=by_spark(at_once, columns=("k", "at", f"{variant} AS v", "seq", "day")),
    )  # fmt: skip
    vectors = {"delta.enableDeletionVectors": "true"}
    yield Entry(
        name="Spark: VARIANT, erased by deletion vectors", table="variant_erased", log=ORDERED, answer="Spark_VARIANT",
        aggregates="n: {count: {}}, all: {collect_list: v}", is_accepted=True,
        build=by_spark(
            lambda commits: at_once(with_erased(commits)), properties=vectors, after=run_sql(ERASE),
            columns=("k", "at", f"{variant} AS v", "seq", "day"),
        ),
    )  # fmt: skip
    latin = "if(seq % 9 = 0, cast(X'636166E9' AS string), note)"
    yield Entry(
        name="Spark: texts that are not UTF-8", table="not_utf8", log=ORDERED,
        build=by_spark(at_once, columns=("k", "at", "v", "n", f"{latin} AS note", "seq", "day")),
    )  # fmt: skip
    generated = "arrived timestamp, day date GENERATED ALWAYS AS (cast(arrived AS date))"
    yield Entry(name="Spark: a generated slice column", table="generated", build=_generated(generated), log=ORDERED)
    for name, settings in _OLD.items():
        yield Entry(
            name=f"Spark: {name}", table=name.replace(" ", "_"), build=_old(settings), log=ORDERED,
            aggregates="n: {count: {}}, times: {collect_list: t}, dates: {collect_list: d}", answer="old_dates",
        )  # fmt: skip


_OLD: Mapping[str, Mapping[str, str]] = {
    "dates before 1582": {"spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED"},
    "dates of the Julian calendar": {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"},
    "INT96": {
        "spark.sql.parquet.outputTimestampType": "INT96", "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    },
    "INT96 of the Julian calendar": {
        "spark.sql.parquet.outputTimestampType": "INT96", "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    },
}  # fmt: skip


def _old(settings: Mapping[str, str]) -> Build:
    def shape(commits: Commits) -> Commits:
        return [
            [
                {
                    "k": row["k"], "at": row["at"], "t": _TIMES[row["seq"] % 4], "d": _DATES[row["seq"] % 5],
                    "seq": row["seq"], "day": row["day"],
                }
                for row in rows
            ]
            for rows in commits
        ]  # fmt: skip

    def build(place: Place) -> None:
        conf = place.spark().conf
        before = {name: conf.get(name) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            by_spark(
                lambda rows: shape(at_once(rows)), ddl="k string, at bigint, t timestamp, d date, seq bigint, day date"
            )(place)
        finally:
            for name, old in before.items():
                conf.set(name, str(old))

    return build


def _generated(columns: str) -> Build:
    def build(place: Place) -> None:
        ddl = f"k string, at bigint, v double, n int, note string, seq bigint, {columns}"
        run_sql(f"CREATE TABLE {{log}} ({ddl}) USING delta PARTITIONED BY (day)")(place)
        zone = place.spark().conf.get("spark.sql.session.timeZone")
        place.spark().conf.set("spark.sql.session.timeZone", "UTC")
        try:
            for rows in at_once(clicks()):
                frame = place.spark().createDataFrame([tuple(row.values()) for row in rows], CLICKS_DDL).coalesce(1)
                frame = frame.selectExpr(
                    "k", "at", "v", "n", "note", "seq", "cast(day AS timestamp) + INTERVAL 9 HOUR AS arrived"
                )
                frame.write.format("delta").mode("append").save(str(place.table))
        finally:
            place.spark().conf.set("spark.sql.session.timeZone", str(zone))

    return build


def _refused() -> Iterator[Entry]:
    clustered = f"CREATE TABLE {{log}} ({CLICKS_DDL}) USING delta CLUSTER BY (day)"
    yield _named(
        "Spark: liquid clustering", _then(run_sql(clustered), by_spark(partition_by=())), log=ORDERED, answer="ordered",
    )  # fmt: skip
    yield _named("Spark: a tracked clone", _tracked_clone, log=APPENDED, refused="Replay the original table")
    yield _named(
        "Spark: compacted before row tracking", log=APPENDED, refused="is not known",
        build=copy_of("untracked", by_spark(), run_sql(OPTIMIZE, TRACK)),
    )  # fmt: skip
    vectors = {"delta.enableDeletionVectors": "true"}
    yield _named(
        "Spark: a deletion vector in the range", log=ORDERED, refused="removed or changed records of slice 2026-03-01",
        build=by_spark(at_once, properties=vectors, after=run_sql("DELETE FROM {log} WHERE seq = 3")),
    )  # fmt: skip


def _tracked_clone(place: Place) -> None:
    original = place.table.parent / "original"
    copy_of("tracked", by_spark(properties=TRACKED))(replace(place, table=original))
    run_sql(f"CREATE TABLE {{log}} SHALLOW CLONE delta.`{original}`")(place)


assert DAYS == 3, "commits 0 to 6 are two for each day and a straggler"
