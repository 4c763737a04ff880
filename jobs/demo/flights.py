"""The log `<lake>/event_logs/flights`: a year of real flights as an append-only Delta table, one commit per day.

The demonstrations and the tests use this log. The replay has no code for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.demo.flights_rows import END_DAY, FIRST_DAY, FlightRow, read_flights
from jobs.lake.delta_log import describe_log, open_log
from jobs.lake.delta_tables import is_delta
from jobs.lake.lake import Lake
from jobs.spark.session import spark_session
from jobs.storage import is_remote, spark_uri
from windowlib.errors import LogError, RequestError
from windowlib.libraries import pa

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

TABLE = "event_logs/flights"
DAY_COLUMN = "ingest_date"
COLUMNS: dict[str, str] = {
    "flight_id": "string",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "departed_at": "bigint",
    "reported_at": "bigint",
    "sched_dep_at": "bigint",
    "sched_arr_at": "bigint",
    "dep_delay": "double",
    "arr_delay": "double",
    "air_time": "double",
    "distance": "double",
    DAY_COLUMN: "date",
}
NULLABLE = frozenset({"tailnum", "departed_at", "sched_arr_at", "dep_delay", "arr_delay", "air_time"})
LONG_AGO = "interval 36500 days"
# Set at CREATE: if row tracking is enabled later, the numbers of the earlier rows are not in the order of the log.
PROPERTIES = {
    "delta.enableRowTracking": "true",  # (row commit version, row id) is the order of the log, also after OPTIMIZE
    "delta.enableInCommitTimestamps": "true",  # the time of a commit is in the Delta log, so a copied table keeps it
    "delta.appendOnly": "true",
    "delta.enableDeletionVectors": "false",
    # Delta 4.4 refuses to read a version that is older than these, also if its files exist.
    "delta.deletedFileRetentionDuration": LONG_AGO,
    "delta.logRetentionDuration": LONG_AGO,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """The result of a load. Days are UTC days of report. `records` counts the records of the loaded days only."""

    table: str
    loaded: tuple[date, ...]
    skipped: tuple[date, ...]
    records: int


Progress = Callable[[date, int, int], None]
"""(a day that the log has now, number of days done, number of all days)."""


def load_flights(
    lake_root: str,
    from_date: date = FIRST_DAY,
    to_date: date = END_DAY,
    *,
    progress: Progress | None = None,
    master: str | None = None,
) -> LoadSummary:
    """Append the flights reported on the UTC days `[from_date, to_date)` to the log of a lake. The first load makes it.

    Each day is one commit of one file, its rows in log order. A day that the log has is skipped, so a load continues
    after a kill. If two loads append the same day at once, the log gets it once.

    The days are from 2013-01-01 to 2014-01-01. `progress` is called after each day.

    Raises:
        RequestError: the range is empty or reversed, or contains days that the source does not have.
        LogError: there is something else at the path of the table, a day in it differs from the source, or another load
            writes to it.
    """
    _check_range(from_date, to_date)
    table = Lake(root=lake_root).below(TABLE)
    present = _days_present(table)
    days = read_flights(from_date, to_date)
    _refuse_other_days(table, present or {}, days)
    todo = tuple(day for day in days if day not in (present or {}))
    spark = spark_session("hindcast load-flights", master, reads=(table,)) if todo else None
    if spark is not None and present is None:
        _create(spark, table)
    for done, (day, rows) in enumerate(days.items(), start=1):
        if spark is not None and day in todo:
            _append(spark, table, rows)
        if progress is not None:
            progress(day, done, len(days))
    return LoadSummary(
        table=table,
        loaded=todo,
        skipped=tuple(day for day in days if day not in todo),
        records=sum(len(days[day]) for day in todo),
    )


def _check_range(from_date: date, to_date: date) -> None:
    if from_date >= to_date:
        raise RequestError(
            f"the range [{from_date}, {to_date}) is {'empty' if from_date == to_date else 'reversed'}: --to is the day "
            "after the last one, so a range of one day is --from 2013-02-01 --to 2013-02-02"
        )
    if from_date < FIRST_DAY or to_date > END_DAY:
        raise RequestError(
            f"flights were reported on the UTC days [{FIRST_DAY}, {END_DAY}); [{from_date}, {to_date}) reaches outside"
        )


def _days_present(table: str) -> dict[date, int] | None:
    """Return day -> number of records in the table, or None if there is no table yet."""
    if not is_delta(table):
        _refuse_occupied(table)
        return None
    opened = open_log(table)
    _refuse_other_table(table, opened)
    actions = pa.table(opened.get_add_actions(flatten=True)).select([f"partition.{DAY_COLUMN}", "num_records"])
    days: dict[date, int] = {}
    for row in actions.to_pylist():
        day = row[f"partition.{DAY_COLUMN}"]
        days[day] = days.get(day, 0) + row["num_records"]
    return days


def _refuse_occupied(table: str) -> None:
    """Refuse a path with other files. A load that was killed before its first commit leaves an empty `_delta_log`."""
    root = Path(table)
    if is_remote(table):
        return  # an object store has no directories
    if root.is_file() or (root.is_dir() and any(entry.name != "_delta_log" for entry in root.iterdir())):
        raise LogError(f"{table} exists, but it is not a Delta table; remove it, or choose another lake root")


def _refuse_other_table(table: str, opened: "DeltaTable") -> None:
    log = describe_log(table, opened.version())
    layout = (log.columns, list(log.partition_columns))
    if layout != (COLUMNS, [DAY_COLUMN]):
        raise LogError(
            f"{table} is a Delta table, but not a log of flights: it has the columns {layout[0]}, partitioned by "
            f"{layout[1]}; wanted are {COLUMNS}, partitioned by {[DAY_COLUMN]}. Choose another lake root, or remove it"
        )
    configuration = opened.metadata().configuration
    wrong = {name: configuration.get(name) for name, value in PROPERTIES.items() if configuration.get(name) != value}
    if wrong:
        raise LogError(
            f"{table} is a log of flights that was not made by load-flights: it has {wrong}; wanted are {PROPERTIES}, "
            "from its creation. Choose another lake root, or remove it"
        )


def _refuse_other_days(table: str, present: Mapping[date, int], days: Mapping[date, Sequence[FlightRow]]) -> None:
    for day, records in present.items():
        if day in days and records != len(days[day]):
            raise LogError(
                f"{table} holds {records} records of {day}, the source has {len(days[day])}: another program wrote to "
                "it. Remove the table and load it again"
            )


def _create(spark: "SparkSession", table: str) -> None:
    columns = ", ".join(f"{name} {kind}{'' if name in NULLABLE else ' NOT NULL'}" for name, kind in COLUMNS.items())
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
    quoted = spark_uri(table).replace("`", "``")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{quoted}` ({columns}) USING delta "
        f"PARTITIONED BY ({DAY_COLUMN}) TBLPROPERTIES ({properties})"
    )


def _append(spark: "SparkSession", table: str, rows: Sequence[FlightRow]) -> None:
    """Commit one day as one file, its rows in the order given.

    With the transaction id, Delta skips a day that another load has committed in the meantime.
    """
    from delta.exceptions import ConcurrentTransactionException

    day = rows[0].ingest_date
    # One partition and no shuffle keep the order of `rows` in the file, and so in the row ids.
    writer = spark.createDataFrame(_arrow_table(rows)).coalesce(1).write.format("delta").mode("append")
    writer = writer.option("txnAppId", f"hindcast load-flights {day}").option("txnVersion", "1")
    try:
        writer.save(spark_uri(table))
    except ConcurrentTransactionException as error:
        raise LogError(
            f"another load wrote {day} to {table} at the same time; run this load again to continue"
        ) from error


def _arrow_table(rows: Sequence[FlightRow]) -> "pa.Table":
    integers = {"int": pa.int32(), "bigint": pa.int64()}
    types = integers | {"string": pa.string(), "double": pa.float64(), "date": pa.date32()}
    fields = [pa.field(name, types[kind], nullable=name in NULLABLE) for name, kind in COLUMNS.items()]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=pa.schema(fields))
