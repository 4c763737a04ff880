"""What the rows of an operator's state can contain. Readers of a checkpoint compare stored rows with it."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRules:
    """The contents that the checkpoints of one spec can have. Without a value, a rule allows everything.

    - `has_windows`, `has_timers`: whether the tables `window_state` and `timers` can have rows.
    - `has_bounds`: whether windows have bounds. If `wraps`, bounds can wrap at 64 bits.
    - `grid`: size, slide and offset of the windows. `least_ms`: the least size. `most_ms`: the greatest distance of
      the end from the last record. `is_merging`: windows are merged.
    - `gone_after_ms`: a window is deleted when the watermark (without `is_event_time`, the clock) is at its end plus
      this number, or later.
    - `has_orphans`: whether contents can be left that no window refers to.
    - `keeps_records`: whether windows have whole records. `counts_records`: each record in `contents` is an edge.
    - `aggregates`: the aggregates in the order of the accumulators.
    - `trigger_problem`: returns what is wrong with the value of `trigger_state`, or None.
    """

    has_windows: bool = True
    has_timers: bool = True
    has_bounds: bool = False
    wraps: bool = False
    grid: tuple[int, int, int] | None = None
    least_ms: int = 1
    most_ms: int | None = None
    is_merging: bool = False
    is_event_time: bool = True
    gone_after_ms: int | None = None
    has_orphans: bool = False
    keeps_records: bool = False
    counts_records: bool = True
    aggregates: tuple[object, ...] = ()
    trigger_problem: Callable[[Mapping[str, Any]], str | None] | None = None


COUNT: Final = "an integer from 0"
INSTANT: Final = "an integer of 64 bits"
FLAG: Final = "true or false"
NUMBER: Final = "a number"
STATE: Final = "an object"
ONE_ROW: Final = "one row, so a window or state that occurs twice is damaged"


def fits(value: object, allowed: str) -> bool:
    """Return whether a value of JSON is of a kind: COUNT, INSTANT, FLAG, NUMBER or STATE."""
    match allowed:
        case "true or false":
            return isinstance(value, bool)
        case "an object":
            return isinstance(value, dict)
        case "a number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            least = 0 if allowed == COUNT else MIN_TIME_MS
            return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_TIME_MS


RowName = tuple[Hashable, object]
"""The key of a row, and its bounds or namespace."""


def wrong_value(table: str, column: str, *, row: RowName, stored: object, allowed: str) -> CheckpointError:
    """Return the error for a row of a checkpoint whose hashes are right and whose content is wrong."""
    key, bounds = row
    window = ""
    if isinstance(bounds, tuple | list) and bounds and None not in bounds:
        window = f", window {' to '.join(map(str, bounds))}"
    return CheckpointError(
        f"table {table}, column {column} of key {key!r:.200}{window} has {stored!r:.200}; allowed is {allowed}"
    )
