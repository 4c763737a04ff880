"""Converts a window manager to a row of the checkpoint, and back.

`contents` holds the tuples that expired since the last window, then the queue. `trigger_state` holds the number of
expired tuples, the state of the policies, and one mark per tuple: bit 0 means shown, bit 1 means in the last window,
and the higher bits are the index of the reason why no window held the tuple.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from windowlib.errors import CheckpointError
from windowlib.keyed.snapshots import WindowStateRow
from windowlib.records.records import Stored
from windowlib.records.tallies import Edges, signed
from windowlib.storm.manager import Queued, WindowManager
from windowlib.storm.reasons import AFTER_ITS_WINDOW, BEHIND_STOP

_SHOWN: Final = 1
_PREVIOUS: Final = 2
_REASONS: Final = (None, AFTER_ITS_WINDOW, BEHIND_STOP)
_REASON_SHIFT: Final = 2


def manager_row(key: Hashable, manager: WindowManager, *, key_group: int) -> WindowStateRow:
    """Return a manager as a row.

    The tuples in the queue are its open edges. Of these, the tuples that a window held are its fired edges.
    """
    tuples = [*manager.expired, *manager.queue]
    count, xor, total = signed(edges_of(manager.queue))
    fired = signed(edges_of(event for event in manager.queue if event.is_shown))
    return WindowStateRow(
        key_group=key_group,
        key=key,
        window_start_ms=None,
        window_end_ms=None,
        state_window_start_ms=None,
        state_window_end_ms=None,
        contents=[Stored(event.position, event.at_ms, event.value, event.edge_id) for event in tuples],
        trigger_state={
            **manager.to_plain(),
            "expired": len(manager.expired),
            "marks": [_mark(event) for event in tuples],
        },
        record_count=count,
        edge_count=count,
        edge_xor=xor,
        edge_sum=total,
        fired_count=fired[0],
        fired_xor=fired[1],
        fired_sum=fired[2],
    )


def restore_manager(manager: WindowManager, row: WindowStateRow) -> None:
    """Restore the state that `manager_row` stored, into a fresh manager.

    Raises:
        CheckpointError: the row does not have a mark for each tuple, or has a tuple without a time.
    """
    state = row.trigger_state
    marks = state.get("marks", ())
    if len(marks) != len(row.contents) or "expired" not in state:
        raise CheckpointError(
            f"the checkpoint of key {row.key!r} has {len(row.contents)} tuples and {len(marks)} marks, but needs one "
            "mark per tuple; the row is damaged, or windows of another kind than storm wrote it. Replay from the start "
            "of the log"
        )
    tuples = [_queued(stored, mark) for stored, mark in zip(row.contents, marks, strict=True)]
    expired = state["expired"]
    manager.restore(state, queue=tuples[expired:], expired=tuples[:expired])


def edges_of(events: Iterable[Queued]) -> Edges:
    """Return the count, XOR and sum of the edge ids of tuples."""
    count = xor = total = 0
    for event in events:
        count += 1
        xor ^= event.edge_id
        total += event.edge_id
    return (count, xor, total)


def _mark(event: Queued) -> int:
    return event.is_shown * _SHOWN | event.is_previous * _PREVIOUS | _REASONS.index(event.reason) << _REASON_SHIFT


def _queued(stored: Stored, mark: int) -> Queued:
    if stored.timestamp_ms is None:
        raise CheckpointError(
            f"the checkpoint has a tuple without a time at position {stored.position}; replay from the start of the log"
        )
    return Queued(
        position=stored.position,
        at_ms=stored.timestamp_ms,
        value=stored.value,
        edge_id=stored.edge_id,
        is_shown=bool(mark & _SHOWN),
        is_previous=bool(mark & _PREVIOUS),
        reason=_REASONS[mark >> _REASON_SHIFT],
    )
