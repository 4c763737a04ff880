"""The log of sensors: readings by the minute in three hours, small enough for hundreds of replays.

Pure Python. Everything that a pipeline of the matrix can be about is a column: keys, gaps, sources, watermarks.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

TABLE: Final = "event_logs/sensors"
HOUR_MS: Final = 3_600_000
START_MS: Final = 946_684_800_000  # 2000-01-01T00:00Z
HOURS: Final = ("2000-01-01T00", "2000-01-01T01", "2000-01-01T02", "2000-01-01T03")
SILENT: Final = 2
"""The slice without a record. A cut in the middle makes a chunk that begins with it."""
BOUNDS: Final = ("2000-01-01T00:00", "2000-01-01T04:00")

COLUMNS: Final[Mapping[str, str]] = {
    "sensor": "string", "site": "string", "at_ms": "bigint", "arrived_ms": "bigint", "gap_ms": "bigint",
    "level": "bigint", "value": "double", "note": "string", "feed": "string", "marker_ms": "bigint", "hour": "string",
}  # fmt: skip
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
PARTITION: Final = "hour"


GAPS_MS: Final = (30_000, 120_000, 300_000)


class Reading(NamedTuple):
    """One record, in the order of the columns. `marker_ms` is a watermark, in the records that carry one."""

    sensor: str | None
    site: str | None
    at_ms: int | None
    arrived_ms: int | None
    gap_ms: int | None
    level: int | None
    value: float | None
    note: str | None
    feed: str | None
    marker_ms: int | None
    hour: str


Commit = Sequence[Reading]


def sensor_log(rng: random.Random, *, records_per_hour: int = 60) -> list[Commit]:
    """Return the records by commit; the first hour has two commits, and log order is their order.

    A quarter of the records come up to 40 minutes late. A quarter repeat time and key of the record before, so that
    sessions with the same bounds meet. A few have no key, no time, no arrival or no gap.
    """
    commits: list[Commit] = []
    for number, hour in enumerate(HOURS):
        if number == SILENT:
            continue
        arrivals = sorted(START_MS + number * HOUR_MS + rng.randrange(HOUR_MS) for _ in range(records_per_hour))
        readings: list[Reading] = []
        for arrived_ms in arrivals:
            if readings and rng.random() < 0.25:
                gap_ms = rng.choice([readings[-1].gap_ms, *GAPS_MS])
                readings.append(readings[-1]._replace(arrived_ms=arrived_ms, level=rng.randrange(20), gap_ms=gap_ms))
            else:
                readings.append(_reading(rng, hour, arrived_ms))
        readings = [_spoil(rng, one) if rng.random() < 0.05 else one for one in readings]
        half = 0 if number else rng.randrange(1, len(readings))
        commits += [part for part in (readings[:half], readings[half:]) if part]
    return commits


def _reading(rng: random.Random, hour: str, arrived_ms: int) -> Reading:
    lag_ms = rng.choice(
        [rng.randrange(60_000), rng.randrange(60_000), rng.randrange(300_000), rng.randrange(2_400_000)]
    )
    at_ms = arrived_ms - lag_ms
    if rng.random() < 0.2:
        at_ms -= at_ms % 60_000  # the bounds of windows are whole minutes
    return Reading(
        sensor=rng.choice("abc"),
        site=rng.choice(["north", "south"]),
        at_ms=at_ms,
        arrived_ms=arrived_ms,
        gap_ms=rng.choice(GAPS_MS),
        level=rng.choice([None, rng.randrange(20)]),
        value=rng.choice([None, 0.1, -0.0, 1e16, rng.uniform(-5, 5)]),
        note=rng.choice([None, "", "it's", rng.choice("xyz")]),
        feed=rng.choice(["one", "two", None]),
        marker_ms=rng.choice([None, None, None, at_ms - 300_000]),
        hour=hour,
    )


def _spoil(rng: random.Random, reading: Reading) -> Reading:
    lost: Mapping[str, Any] = {rng.choice(["sensor", "site", "at_ms", "arrived_ms", "gap_ms"]): None}
    return reading._replace(**lost)
