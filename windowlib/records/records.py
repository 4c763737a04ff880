"""What goes into an operator and what comes out of it. All are plain tuples; no output refers to live state."""

from collections.abc import Hashable
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from windowlib.bounds import Window

Value = Any
"""What users put into records, or their functions return: any plain data."""

Position = tuple[int, int]
"""Where something stands in the log: (start of the slice in epoch ms, rank inside the slice)."""

Timing = Literal["EARLY", "ON_TIME", "LATE"]
EARLY: Final = "EARLY"
ON_TIME: Final = "ON_TIME"
LATE_FIRING: Final = "LATE"

Mode = Literal["accumulating", "discarding"]
"""Whether a pane repeats the one before it, and so replaces it, or holds nothing of it, so that both stay valid."""
PaneKind = Literal["result", "superseded", "retraction"]

START: Final[Position] = (-(1 << 63), -1)
"""A position before every record."""

PAST_CLEANUP: Final = "past_cleanup"
"""The ordinary reason of a late record: the watermark had reached the instant at which its window is dropped."""
WRAPPED_WINDOW: Final = "F8_wrapped_window"
"""flink profile: the window's end left 64 bits, so it was late at once; Flink drops such a record without a count."""
LATE_IN_GAP: Final = "late_in_gap"
"""flink profile: the record is in no window at all, but behind the watermark; Flink sends it to the late output."""


class Fate(Enum):
    """What became of a record when it arrived. Exactly one per record (law L3); invalid ones never get here."""

    ASSIGNED = "assigned"
    LATE = "late"
    UNASSIGNED = "unassigned"


ASSIGNED: Final = Fate.ASSIGNED
LATE: Final = Fate.LATE
UNASSIGNED: Final = Fate.UNASSIGNED


class Record(NamedTuple):
    """One record of the log, as an operator sees it.

    `value` is what functions read: in pipelines a tuple with one input value per aggregate, in their order.
    `record_hash` is the signed 64-bit id by which the audit counts it. `gap_ms` serves dynamic sessions only.
    Keys that compare equal in Python are one key, so a pipeline gives each key column one type and NaN one object.
    """

    key: Hashable
    timestamp_ms: int | None
    value: Value
    position: Position = START
    record_hash: int = 0
    gap_ms: int | None = None


class Pane(NamedTuple):
    """What one window of one key emitted in one firing.

    `pane_index` counts the panes of one pair of bounds from 0, `nonspeculative_index` those that are not EARLY; EARLY
    ones have -1. `timestamp_ms` is the window's last instant (Flink), or what the spec's timestamp combiner says.
    `is_last` is True when no later pane of this window can follow. `watermark_ms` and `position` say when it fired.

    `mode` is true for this pane: 'accumulating' if it repeats what the pane before it held, 'discarding' if it holds
    nothing of that. Where panes accumulate, the first pane after a purge is 'discarding'; the first of all says what
    the spec asks for.

    `kind` 'superseded' withdraws the last pane of bounds that were merged away: it has no values and a
    `record_count` of 0, its index is the next one of those bounds, and it comes before any pane of the merged window.

    `kind` 'retraction' takes one result back: its values, `record_count`, `pane_index` and `nonspeculative_index` are
    those of that result, its `timing` is EARLY or LATE, as the window was before; it is never first. In the retracting
    mode it comes before the result that replaces the one taken back, and in the place of 'superseded', where it is
    the last.
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


class Late(NamedTuple):
    """A record that missed windows: all of them (its fate is late), or some (its fate is assigned).

    `missed` are the windows that were already cleaned up, in the assigner's order. `late_by_ms` (>= 0) is how far the
    watermark had gone beyond the cleanup instant of the last of them to be cleaned up: 0 is missed by a hair.
    """

    record: Record
    missed: tuple[Window, ...]
    missed_all: bool
    watermark_ms: int
    late_by_ms: int
    reason: str


class Unassigned(NamedTuple):
    """A record that belongs to no window: it fell into a gap between windows."""

    record: Record
    watermark_ms: int


class SideOutput(NamedTuple):
    """What a user's function sent to the output named `tag`.

    `timestamp_ms` is None outside event time, and in a window without end.
    """

    tag: str
    value: Value
    key: Hashable
    timestamp_ms: int | None
    watermark_ms: int
    position: Position


class Emitted(NamedTuple):
    """What a user's keyed process function emitted. `timestamp_ms` is None when a processing timer did it."""

    key: Hashable
    values: Value
    timestamp_ms: int | None
    watermark_ms: int
    position: Position


Output = Pane | Late | Unassigned | SideOutput | Emitted


class Stored(NamedTuple):
    """A record that a window keeps whole, for evictors and process functions.

    `edge_id` is the audit's id of (record, window): the record's hash for the first window the assigner returned.
    """

    position: Position
    timestamp_ms: int | None
    value: Value
    edge_id: int


class Tally(NamedTuple):
    """A count, an XOR and a wrapping sum of 64-bit ids, the last two as signed words: one term of the audit."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a tally
    xor: int
    sum: int
