"""Kinds of logs that the doctor examines, most of them Delta tables. Each function appends three days or more."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyiceberg.transforms import IdentityTransform

from tests.support.delta_logs import track_rows
from tests.support.iceberg_logs import iceberg_table

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 3
HOSTILE = 'a "b"\'`: {x} [y], # z'
"""A name of a column that needs quotes in YAML and in SQL."""
_DIRECTORY = HOSTILE.replace(":", "")
"""The same for a partition column: Spark cannot read a path with a colon in its first part."""
Row = dict[str, Any]


def clicks(random: Random, *, per_day: int = 40) -> list[list[Row]]:
    """Rows by day of arrival. A record arrives up to two hours after its event, one in twenty up to a day after."""
    days = []
    for day in range(DAYS):
        arrivals = sorted(random.randrange(86_400) for _ in range(per_day))
        days.append(
            [
                {
                    "click_id": f"{day}-{number}",
                    "user_id": f"u{random.randrange(6)}",
                    "clicked_at": _at(day, arrived - random.choice([*[random.randrange(7_200)] * 19, 80_000])),
                    "received_at": _at(day, arrived),
                    "amount": random.randrange(100) / 4,
                    "dt": (FIRST + timedelta(days=day)).date(),
                }
                for number, arrived in enumerate(arrivals)
            ]
        )
    return days


def _at(day: int, second: int) -> datetime:
    return FIRST + timedelta(days=day, seconds=second)


def append(place: Path, rows: list[Row], by: list[str] | None, schema: pa.Schema | None = None) -> None:
    write_deltalake(str(place), pa.Table.from_pylist(rows, schema), mode="append", partition_by=by)


def write(place: Path, change: Callable[[Row], Row], by: list[str] | None = None) -> None:
    """Append a commit for each day, each record changed."""
    for rows in clicks(Random(7)):
        append(place, [change(row) for row in rows], by)


def by_date(place: Path) -> None:
    write(place, lambda row: row, ["dt"])


def tracked(place: Path) -> None:
    by_date(place)
    track_rows(place)


def by_hour_text(place: Path) -> None:
    write(place, lambda row: row | {"dt": row["received_at"].strftime("%Y-%m-%dT%H")}, ["dt"])


def by_compact_text(place: Path) -> None:
    write(place, lambda row: row | {"dt": row["dt"].strftime("%Y%m%d")}, ["dt"])


def without_ids(place: Path) -> None:
    """Integer milliseconds, no id, no key, no arrival."""
    write(place, lambda row: {"ts": _ms(row["clicked_at"]), "v": row["amount"], "dt": row["dt"]}, ["dt"])


def kafka(place: Path) -> None:
    numbers = iter(range(10**6))

    def change(row: Row) -> Row:
        number = next(numbers)
        return {
            "partition": number % 3, "offset": number // 3, "timestamp": row["received_at"], "key": row["user_id"],
            "event_time": row["clicked_at"].isoformat(), "dt": row["dt"],
        }  # fmt: skip

    write(place, change, ["dt"])


def hostile_names(place: Path) -> None:
    def change(row: Row) -> Row:
        names = {"user_id": f"{HOSTILE} user", "clicked_at": f"{HOSTILE}_at", "click_id": f"{HOSTILE} id"}
        return {new: row[name] for name, new in names.items()} | {_DIRECTORY: row["dt"]}

    write(place, change, [_DIRECTORY])


def colon_in_a_partition(place: Path) -> None:
    write(place, lambda row: row | {"d:t": row["dt"]}, ["d:t"])


def empty_with_columns(place: Path) -> None:
    schema = pa.schema(
        [("id", pa.string()), ("user_id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("dt", pa.date32())]
    )
    append(place, [], ["dt"], schema)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


RUNNING: Mapping[str, Callable[[Path], None]] = {
    "a date": by_date,
    "row tracking": tracked,
    "hours as texts": by_hour_text,
    "dates without dashes": by_compact_text,
    "no ids": without_ids,
    "kafka": kafka,
    "hostile names": hostile_names,
}
"""Tables for which `hindcast init` writes a file that runs."""


def by_path(place: Path, of_path: Callable[[date], str]) -> None:
    """Write a Parquet file for each day into a directory."""
    for rows in clicks(Random(7)):
        directory = place / of_path(rows[0]["dt"])
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows).drop_columns("dt"), directory / f"{rows[0]['dt']}.parquet")


def iceberg(place: Path, columns: Sequence[str] = (), by: Sequence[str] = ()) -> None:
    """Append a snapshot for each day to an Iceberg table, without some columns."""
    days = [pa.Table.from_pylist(rows).drop_columns(list(columns)) for rows in clicks(Random(7))]
    table = iceberg_table(place, days[0].schema, partitions=dict.fromkeys(by, IdentityTransform()))
    for rows in days:
        table.append(rows)


OTHERS: Mapping[str, Callable[[Path], None]] = {
    "Parquet by date": lambda place: by_path(place, lambda day: f"dt={day}"),
    "Parquet by parts of dates": lambda place: by_path(
        place, lambda day: f"year={day.year}/month={day.month:02}/day={day.day}"
    ),
    "Parquet without partitions": lambda place: by_path(place, lambda _: ""),
    "Iceberg by date": lambda place: iceberg(place, by=["dt"]),
    "Iceberg without partitions": lambda place: iceberg(place, ["dt"]),
}
"""The same for logs that are no Delta table."""
ALL: Mapping[str, Callable[[Path], None]] = {**RUNNING, **OTHERS}


def null_slice(place: Path) -> None:
    by_date(place)
    lost = {**clicks(Random(8))[0][0], "dt": None}
    schema = pa.Table.from_pylist(clicks(Random(8))[0]).schema
    append(place, [lost], ["dt"], schema)


def no_event_time(place: Path) -> None:
    write(place, lambda row: {"user_id": row["user_id"], "dt": str(row["dt"])}, ["dt"])
