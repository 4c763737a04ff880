"""The inputs and outputs of an operator. All are plain tuples, and no output refers to live state."""

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple

from windowlib.bounds import Window

Value = Any
"""The value of a record, or a value that a user's function returns: any plain data."""

Position = tuple[int, int]
"""A place in the log: (start of the slice in epoch ms, rank inside the slice)."""

Timing = Literal["EARLY", "ON_TIME", "LATE"]
EARLY: Final = "EARLY"
ON_TIME: Final = "ON_TIME"
LATE_FIRING: Final = "LATE"

Mode = Literal["accumulating", "discarding"]
"""An accumulating pane repeats the pane before it and replaces it. After a discarding pane both stay valid."""
PaneKind = Literal["result", "superseded", "retraction"]

START: Final[Position] = (-(1 << 63), -1)
"""The position before every record."""

PAST_CLEANUP: Final = "past_cleanup"
"""The ordinary reason of a late record: the watermark had reached the cleanup instant of its window."""
WRAPPED_WINDOW: Final = "F8_wrapped_window"
"""Profile flink: the window's end exceeds 64 bits, so the record is late at once. Flink drops it without a count."""
LATE_IN_GAP: Final = "late_in_gap"
"""Profile flink: the record belongs to no window and is behind the watermark. Flink sends it to the late output."""


class Fate(Enum):
    """What an operator decided about a record on its arrival, exactly once per record (law L3).

    An operator never receives invalid records.
    """

    ASSIGNED = "assigned"
    LATE = "late"
    UNASSIGNED = "unassigned"


ASSIGNED: Final = Fate.ASSIGNED
LATE: Final = Fate.LATE
UNASSIGNED: Final = Fate.UNASSIGNED


class Record(NamedTuple):
    """One record of the log, the input of an operator.

    Functions read `value`. In pipelines it is a tuple with one input value per aggregate, in their order.
    `record_hash` is the signed 64-bit id by which the audit counts the record. Only dynamic sessions use `gap_ms`.
    Keys that compare equal in Python are one key. So a pipeline gives each key column one type, and all NaN one object.
    """

    key: Hashable
    timestamp_ms: int | None
    value: Value
    position: Position = START
    record_hash: int = 0
    gap_ms: int | None = None


class Pane(NamedTuple):
    """The output of one firing of one window of one key.

    `pane_index` counts the panes of one pair of bounds from 0. `nonspeculative_index` counts those that are not EARLY;
    an EARLY pane has -1. `timestamp_ms` is the window's last instant (Flink), or the result of the spec's timestamp
    combiner. A withdrawal has the `timestamp_ms` of the pane that it withdraws.

    `is_last` is True if no later pane of this window can follow. The window fired at `watermark_ms`, because
    of the record at `position`.

    `mode` is the mode of this pane: 'accumulating' if it repeats the contents of the pane before it, 'discarding' if it
    has none of them. Where panes accumulate, the first pane after a purge is 'discarding'. The first pane of a window
    has the mode of the spec.

    `kind` 'superseded' withdraws the last pane of bounds that were merged away, or whose firing had no result where
    panes accumulate. It has no values and a `record_count` of 0, its index is the next one of those bounds, and it
    comes before any pane of the merged window. After a firing without a result, the next pane is 'discarding'.

    `kind` 'retraction' withdraws one result. It has the values, `record_count`, `pane_index` and
    `nonspeculative_index` of that result. Its `timing` is EARLY or LATE, as the window was before. It is never first.
    In the retracting mode it comes before the result that replaces the withdrawn one. It also takes the place of
    'superseded', and is then the last pane of its bounds.
    """

    key: Hashable
    window: Window
    values: Value
    pane_index: int
    timing: Timing
    is_first: bool
    is_last: bool
    mode: Mode
    kind: PaneKind
    record_count: int
    watermark_ms: int
    position: Position
    timestamp_ms: int
    nonspeculative_index: int


class OnlyPanes(NamedTuple):
    """The panes of many windows with equal bounds that fire together, once, at their end and cleanup instant.

    `keys`, `values` and `record_counts` have one element per pane. The other fields are equal in all panes.
    """

    keys: Sequence[Hashable]
    values: Sequence[Value]
    record_counts: Sequence[int]
    window: Window
    mode: Mode
    watermark_ms: int
    position: Position
    timestamp_ms: int

    def panes(self) -> Iterator[Pane]:
        """Return the panes one by one."""
        is_only = True  # the first and last pane of its window
        columns = zip(
            self.keys,
            repeat(self.window),
            self.values,
            repeat(0),
            repeat(ON_TIME),
            repeat(is_only),
            repeat(is_only),
            repeat(self.mode),
            repeat("result"),
            self.record_counts,
            repeat(self.watermark_ms),
            repeat(self.position),
            repeat(self.timestamp_ms),
            repeat(0),
            strict=False,
        )
        return map(_new_pane, repeat(Pane), columns)


_new_pane: Final = tuple.__new__  # takes a third of the time of Pane(...)


class Late(NamedTuple):
    """A record that missed all its windows (its fate is late) or some of them (its fate is assigned).

    `missed` are the windows that were already cleaned up, in the assigner's order. `late_by_ms` (>= 0) is the watermark
    minus the cleanup instant of that one of them which was cleaned up last. It is 0 if the watermark was equal to it.
    """

    record: Record
    missed: tuple[Window, ...]
    missed_all: bool
    watermark_ms: int
    late_by_ms: int
    reason: str


class Unassigned(NamedTuple):
    """A record that belongs to no window, because it fell into a gap between windows."""

    record: Record
    watermark_ms: int


class SideOutput(NamedTuple):
    """A value that a user's function sent to the side output named `tag`.

    `timestamp_ms` is None outside event time and in a window without an end.
    """

    tag: str
    value: Value
    key: Hashable
    timestamp_ms: int | None
    watermark_ms: int
    position: Position


class Emitted(NamedTuple):
    """A value that a user's keyed process function emitted. `timestamp_ms` is None if a processing timer caused it."""

    key: Hashable
    values: Value
    timestamp_ms: int | None
    watermark_ms: int
    position: Position


Output = Pane | Late | Unassigned | SideOutput | Emitted
"""Any output of an operator."""


class Stored(NamedTuple):
    """A record that a window keeps whole, for evictors and process functions.

    `edge_id` is the audit's id of (record, window): the record's hash, whatever the window.
    """

    position: Position
    timestamp_ms: int | None
    value: Value
    edge_id: int


class Tally(NamedTuple):
    """One term of the audit: count, XOR and wrapping sum of 64-bit ids. XOR and sum are signed 64-bit integers."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller needs
    xor: int
    sum: int
