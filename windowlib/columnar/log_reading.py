"""How to read the records of a log: its version, its slices, and the roles of its columns. Without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from windowlib.columnar.watermark_steps import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """A column of instants. `unit` is None for types that need no unit (TIMESTAMP, DATE, ISO text)."""

    name: str
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """How to read the records of a log: its version, its slices and the roles of its columns.

    `slices` maps the values of the slice columns, joined by `/`, to the number of a slice in the chunk. `gap` is the
    column of each record's own session gap, if the pipeline has such sessions. `widened` maps a column whose type was
    widened in place to its first Spark type. `moved` has the files whose row ids are not in the order of appending: the
    id of the first row -> the place of this row in the order, as (commit, number in the commit).
    """

    version: int
    slice_columns: tuple[str, ...]
    slices: Mapping[str, int]
    key: tuple[str, ...]
    event_time: TimeColumn
    arrival_time: TimeColumn | None
    gap: TimeColumn | None
    record_id: str | None
    widened: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rises:
    """The rises of the greatest event time: after the record at `sequence[i]` it is `max_event_time_ms[i]`.

    Both arrays are strictly ascending.
    """

    sequence: Int64s
    max_event_time_ms: Int64s
