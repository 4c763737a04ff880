"""What an entry of the zoo is: a kind of Delta table, the pipeline that replays it, and what is expected."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from jobs.pipeline.models.pipeline import Pipeline
from tests.support.replays import pipeline_of
from tests.support.spark_session import SparkSession

Row = dict[str, Any]

FIRST_DAY = date(2026, 3, 1)
DAYS = 3
RECORDS_PER_DAY = 40
BOUNDS = ("2026-03-01", "2026-03-04")
DAY_MS = 86_400_000
FIRST_MS = (FIRST_DAY - date(1970, 1, 1)).days * DAY_MS

ORDERED = "key: [k]\nevent_time: {column: at, unit: ms}\nslice: {by: day}\norder: [seq]"
"""The `log` part of a pipeline over `clicks` that names the column that orders the records."""
APPENDED = "key: [k]\nevent_time: {column: at, unit: ms}\nslice: {by: day}"
"""The same without an order: the records are read in the order of the commits."""
VALUES = "n: {count: {}}, total: {sum: v}, most: {max: n}, notes: {collect_list: note}, first: {first: note}"
"""The aggregates of a pipeline over `clicks`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a builder writes its table. `spark` starts the session. `bases` has tables that others are copies of."""

    table: Path
    bases: Path
    spark: "Callable[[], SparkSession]"


Build = Callable[[Place], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One kind of table.

    Attributes:
        name: words that name the entry, for tests and for docs/reference/logs.md.
        table: the name of the table. Entries with equal `table` share what `build` has written.
        build: writes the table.
        log: the `log` part of the pipeline, without `table`.
        aggregates: the inside of `aggregates`.
        answer: the file in `answers` without its suffix. Entries with the same records and the same spec share it.
        refused: a part of the error, if the log or the pipeline is refused.
        bounds: the range that is replayed.
        windows: the inside of `windows`.
        is_short: whether the answer has few digits of each slice, because there are many.
        is_sample: whether `make test` runs the entry.
        is_accepted: whether a person accepts the commits that removed or changed records, before the replay.
    """

    name: str
    table: str
    build: Build
    log: str
    aggregates: str = VALUES
    answer: str = ""
    refused: str | None = None
    bounds: tuple[str, str] = BOUNDS
    windows: str = "{tumbling: {size: 3h}, allowed_lateness: 30m}"
    is_short: bool = False
    is_sample: bool = False
    is_accepted: bool = False

    @property
    def yaml(self) -> str:
        """The whole pipeline file."""
        lines = "\n".join(f"  {line}" for line in self.log.splitlines())
        return (
            f"pipeline: zoo\nlog:\n  table: log\n{lines}\nwatermark: {{kind: bounded, out_of_orderness: 1h}}\n"
            f"windows: {self.windows}\naggregates: {{{self.aggregates}}}\n"
        )

    def pipeline(self) -> Pipeline:
        """Parse the pipeline file.

        Raises:
            SpecError: it is refused.
        """
        return pipeline_of(self.yaml)


def clicks(seed: int = 1) -> list[list[Row]]:
    """Return the records of the plain log, by commit: two for each day, and one with a straggler of the first day.

    Some records are late, some have no key or no time. `seq` orders the records of a slice as they were appended.
    """
    chance = random.Random(seed)
    commits: list[list[Row]] = []
    for number in range(DAYS):
        arrived = sorted(chance.randrange(DAY_MS) for _ in range(RECORDS_PER_DAY))
        rows = [_click(chance, number, at) for at in arrived]
        commits += [rows[: RECORDS_PER_DAY // 2], rows[RECORDS_PER_DAY // 2 :]]
    commits.append([_click(chance, 0, DAY_MS - 1)])
    for seq, row in enumerate(row for rows in commits for row in rows):
        row["seq"] = seq
    return commits


def _click(chance: random.Random, number: int, arrived: int) -> Row:
    behind = chance.randrange(60_000, 8 * 3_600_000) if chance.random() < 0.2 else chance.randrange(60_000)
    at = FIRST_MS + number * DAY_MS + arrived - behind
    return {
        "k": None if chance.random() < 0.03 else chance.choice(("ann", "bob", "", "Zoë", "ann ")),
        "at": None if chance.random() < 0.03 else at,
        "v": chance.choice((None, 0.5, -1.25, 1e16, -0.0, 3.0)),
        "n": chance.choice((None, 0, -7, chance.randrange(1_000))),
        "note": chance.choice((None, "", "=1+1", "🙂", f"note {chance.randrange(50)}")),
        "seq": 0,
        "day": FIRST_DAY + timedelta(days=number),
    }


def flat(commits: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the records of all commits."""
    return [row for rows in commits for row in rows]


def in_order(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Return records in the order of columns as Spark orders them: nulls first, NaN last, texts by their bytes."""

    def place(value: Any) -> tuple[bool, bool, Any]:  # noqa: ANN401 - a value of any type
        is_nan = isinstance(value, float) and math.isnan(value)
        known = 0 if value is None or is_nan else value.encode() if isinstance(value, str) else value
        return value is not None, is_nan, known

    return sorted(rows, key=lambda row: [place(row[name]) for name in columns])
