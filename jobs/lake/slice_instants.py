"""The instants of a column that assigns records to slices, of whole columns and of a file's statistics."""

import json
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo

from jobs.pipeline.slices import local_ms
from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from windowlib.libraries import np, pa, pc

TimeKind = Literal["timestamp", "timestamp_ntz", "date"]
TIME_KINDS: Final = ("timestamp", "timestamp_ntz", "date")
"""Types of columns that can assign records to slices without partitions."""
_DAY_MS: Final = 86_400_000
_TABLE_END_MS: Final = 2_114_380_800_000
"""2037-01-01. The tables of time zones end in this year. Python goes on by the rule of the zone, and Arrow does not."""
_LAST_MS: Final = 253_402_041_600_000
"""9999-12-29. Python has no later days in every time zone."""
_PER_MS: Final = {"us": 1_000, "ns": 1_000_000}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local to the zone


class Span(NamedTuple):
    """Two instants, in ms; both are in it."""

    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, first_ms: int, two: int) -> Self:
        return cls(min(first_ms, two), max(first_ms, two))


def slice_instants(column: "pa.Array", kind: TimeKind, zone: ZoneInfo) -> "pa.Array":
    """Return the instants of a column as int64 milliseconds since 1970, rounded down; a null stays null.

    A TIMESTAMP is an instant. A TIMESTAMP_NTZ is local to the zone, and a DATE is its midnight there. A local time that
    occurs twice is the first one, and a time that clocks skip is read with the offset before the jump, as by
    `Cut.instant_ms`. The column has dates, or timestamps in any unit, and is of type `kind` in the log. Spark's INT96
    timestamps have no zone in Arrow.
    """
    ms = _whole_ms(column)
    if kind == "timestamp" or zone.key == "UTC":
        return ms
    return _local_ms(ms, zone) if kind == "timestamp_ntz" else _by_value(ms, zone)


def _whole_ms(column: "pa.Array") -> "pa.Array":
    """Return days or timestamps as milliseconds, rounded down, without a time zone."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind):
        factor, numbers = _DAY_MS, column.cast(pa.int32()).cast(pa.int64())
    else:
        factor, numbers = (1_000 if kind.unit == "s" else 1), column.cast(pa.int64())
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False) * factor
    if not pa.types.is_date32(kind) and kind.unit in _PER_MS:
        values = np.floor_divide(values, _PER_MS[kind.unit])
    return pa.array(values, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _local_ms(local: "pa.Array", zone: ZoneInfo) -> "pa.Array":
    naive = local.cast(pa.timestamp("ms"))
    zoned = pc.assume_timezone(naive, zone.key, ambiguous="earliest", nonexistent="earliest")
    is_skipped = pc.not_equal(pc.local_timestamp(zoned), naive)
    is_after = pc.and_(pc.greater_equal(local, _TABLE_END_MS), pc.less(local, _LAST_MS))
    is_single = pc.or_(is_skipped, is_after)
    if not pc.any(is_single).as_py():
        return zoned.cast(pa.int64())
    single = pc.if_else(is_single, local, pa.scalar(None, pa.int64()))
    return pc.if_else(is_single, _by_value(single, zone), zoned.cast(pa.int64()))


def _by_value(local: "pa.Array", zone: ZoneInfo) -> "pa.Array":
    """Return the instants of local times in milliseconds, one distinct value after the other.

    Times outside the years 1 to 9999 are taken as those of UTC: no slice is there.
    """
    known = local.dictionary_encode()
    instants = [
        local_ms(_EPOCH + timedelta(milliseconds=at_ms), zone)
        if MIN_TIMESTAMP_MS <= at_ms <= MAX_TIMESTAMP_MS
        else at_ms
        for at_ms in known.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(known.indices, pa.array(instants, pa.int64())).cast(pa.int64())


def statistics_span(statistics: object, column: str, zone: ZoneInfo) -> Span | None:
    """Return the span of a column by the statistics of an `add`; None if they do not tell it.

    Delta stores milliseconds, rounded down. Slices begin at whole minutes, so the rounded values are in the same slice.
    """
    try:
        parsed: dict[str, Any] = json.loads(statistics) if isinstance(statistics, str) else {}
        low, high = parsed["minValues"][column], parsed["maxValues"][column]
        return Span.of(*(local_ms(datetime.fromisoformat(bound), zone) for bound in (low, high)))
    except (ValueError, KeyError, TypeError, AttributeError):  # no statistics, or a year that Python does not have
        return None
