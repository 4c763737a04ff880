"""The windows that the benches compute, independent of who computes them, and the records they compute them from."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, assert_never

import numpy as np

Int64s: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Kind = Literal["tumbling", "sliding", "session", "count"]

DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
FIRST_DAY_MS: Final = 1_704_067_200_000
"""2024-01-01, the day of the records."""
FIRST_DAY: Final = "2024-01-01"
CLOSING_KEY: Final = -1
"""The key of the last record. It happens three hours after all others, so it ends their windows; nobody counts it."""
CLOSING_MS: Final = 3 * 3_600_000
LONGEST_DELAY_MS: Final = 60_000
LATE_DELAY_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Windows over a log of one day: count, sum, min and max of `value` for each key and window.

    `size` and `slide` are milliseconds, for count windows records; `gap_ms` is for sessions. `bound_ms` is how far the
    watermark is behind the greatest event time. One record in `late_one_in` is up to ten minutes delayed; 0 means none,
    and then no record is late with a bound of one minute. `density` is the number of records of a whole day; a smaller
    log covers a part of the day, so a window has as many records as in a large log.
    """

    kind: Kind
    keys: int
    size: int = 0
    slide: int = 0
    gap_ms: int = 0
    bound_ms: int = LONGEST_DELAY_MS
    lateness_ms: int = 0
    late_one_in: int = 0
    density: int = 20_000_000
    trigger: dict[str, Any] = field(default_factory=dict)
    evictor: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Workload":
        """Return the workload that `to_json` described."""
        return cls(**plain)

    def to_json(self) -> dict[str, Any]:
        """Return the workload as plain data."""
        return asdict(self)

    def windows(self) -> dict[str, Any]:
        """Return the section `windows` of a pipeline file."""
        match self.kind:
            case "tumbling":
                found: dict[str, Any] = {"tumbling": {"size": f"{self.size}ms"}}
            case "sliding":
                found = {"sliding": {"size": f"{self.size}ms", "slide": f"{self.slide}ms"}}
            case "session":
                found = {"session": {"gap": f"{self.gap_ms}ms"}}
            case "count":
                found = {"count": {"size": self.size, **({"slide": self.slide} if self.slide else {})}}
            case _:
                assert_never(self.kind)
        if self.lateness_ms:
            found["allowed_lateness"] = f"{self.lateness_ms}ms"
        return found | ({"trigger": self.trigger} if self.trigger else {}) | self._evictor()

    def _evictor(self) -> dict[str, Any]:
        return {"evictor": self.evictor} if self.evictor else {}

    def document(self, *, table: str = "event_logs/bench", name: str = "bench") -> dict[str, Any]:
        """Return the pipeline file of the workload over a log at `table`."""
        counts = self.kind == "count"
        return {
            "pipeline": name,
            "log": {
                "table": table,
                "key": ["key"],
                "event_time": {"column": "at_ms", "unit": "ms"},
                "arrival_time": {"column": "arrived_ms", "unit": "ms"},
                "slice": {"by": "ingest_date", "every": "1d", "timezone": "UTC"},
                "order": "commits",
            },
            "watermark": None if counts else {"kind": "bounded", "out_of_orderness": f"{self.bound_ms}ms"},
            "windows": self.windows(),
            "aggregates": {
                "records": {"count": {}},
                "total": {"sum": "value"},
                "low": {"min": "value"},
                "high": {"max": "value"},
            },
        }


COLUMNS: Final = {"key": "bigint", "at_ms": "bigint", "arrived_ms": "bigint", "value": "bigint", "ingest_date": "date"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Records in log order, which is the order of arrival."""

    key: Int64s
    at_ms: Int64s
    arrived_ms: Int64s
    value: Int64s

    def __len__(self) -> int:
        return len(self.key)

    def parts(self, size: int) -> Iterator["Events"]:
        """Yield the records in order, at most `size` at a time."""
        for start in range(0, len(self), size):
            chosen = slice(start, start + size)
            yield replace(
                self,
                key=self.key[chosen],
                at_ms=self.at_ms[chosen],
                arrived_ms=self.arrived_ms[chosen],
                value=self.value[chosen],
            )


def make_events(workload: Workload, records: int, *, seed: int = 1) -> Events:
    """Return the records of one day or of its beginning, in order of arrival, and one closing record.

    Of the delays between event and arrival, 90 % are below 0.5 s, 9 % below 5 s and 1 % below 60 s; one record in
    `Workload.late_one_in` is delayed by one to ten minutes.

    Raises:
        ValueError: there are fewer than two records.
    """
    if records < 2:
        raise ValueError(f"a log of the benches has at least 2 records, {records} were asked for")
    rng, count = np.random.default_rng(seed), records - 1
    whole_ms = DAY_MS - LATE_DELAY_MS - 1
    at_ms = FIRST_DAY_MS + rng.integers(0, max(whole_ms * min(records, workload.density) // workload.density, 1), count)
    delay_ms = rng.integers(0, 500, count)
    share = rng.random(count)
    delay_ms = np.where(share >= 0.90, rng.integers(500, 5_000, count), delay_ms)
    delay_ms = np.where(share >= 0.99, rng.integers(5_000, LONGEST_DELAY_MS, count), delay_ms)
    if workload.late_one_in:
        is_late = rng.integers(0, workload.late_one_in, count) == 0
        delay_ms = np.where(is_late, rng.integers(LONGEST_DELAY_MS, LATE_DELAY_MS, count), delay_ms)
    arrived_ms = at_ms + delay_ms
    order = np.argsort(arrived_ms, kind="stable")
    closing_ms = FIRST_DAY_MS + DAY_MS - 1
    return Events(
        key=np.append(rng.integers(0, workload.keys, count), CLOSING_KEY),
        at_ms=np.append(at_ms[order], closing_ms + CLOSING_MS),
        arrived_ms=np.append(arrived_ms[order], closing_ms),
        value=np.append(rng.integers(0, 1_000, count), 0),
    )


def make_parts(workload: Workload, records: int, *, seed: int = 1, most: int = 20_000_000) -> Iterator[Events]:
    """Yield the records of a log in order, at most `most` (and one) in memory at a time.

    A log of at most `most` records is that of `make_events`. A larger one has several parts of the day, each with
    records of its own: no record of a part happens before those of the part before it.
    """
    count = -(-records // most)
    if count == 1:
        yield make_events(workload, records, seed=seed)
        return
    whole_ms = DAY_MS - LATE_DELAY_MS - 1
    for number in range(count):
        is_last = number == count - 1
        size = records * (number + 1) // count - records * number // count
        own = size if is_last else size + 1  # with the closing record
        events = make_events(replace(workload, density=own * count), own, seed=seed + number)
        shift_ms = np.full(own, whole_ms * number // count, dtype=np.int64)
        shift_ms[-1] = 0
        shifted = _shifted(events, shift_ms)
        yield shifted if is_last else next(shifted.parts(size))


def day_parts(workload: Workload, records: int, day: int, *, of: int, seed: int) -> Iterator[Events]:
    """Yield the records of one day of a log of several days. Only the last day has the closing record.

    Each other day has one record more than it is asked for, and leaves out its closing record.
    """
    is_last = day == of - 1
    for events in make_parts(workload, records if is_last else records + 1, seed=seed + day):
        shifted = _shifted(events, np.full(len(events), day * DAY_MS, dtype=np.int64))
        is_closing = not is_last and shifted.key[-1] == CLOSING_KEY
        yield next(shifted.parts(len(shifted) - 1)) if is_closing else shifted


def _shifted(events: Events, shift_ms: Int64s) -> Events:
    return replace(events, at_ms=events.at_ms + shift_ms, arrived_ms=events.arrived_ms + shift_ms)
