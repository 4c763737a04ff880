"""Converts a window manager to a row of the checkpoint, and back.

`contents` holds the tuples that expired since the last window, then the queue. `trigger_state` holds the number of
expired tuples, the state of the policies, and one mark per tuple: bit 0 means shown, bit 1 means in the last window,
and the higher bits are the index of the reason why no window held the tuple.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

from windowlib.keyed.snapshots import WindowStateRow
from windowlib.keyed.state_rules import COUNT, INSTANT, fits, wrong_value
from windowlib.records.records import Stored
from windowlib.records.tables import WINDOW_STATE
from windowlib.records.tallies import edges_of, signed
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

    Raises CheckpointError: the state of the policies or a mark is wrong, a tuple has no time, or the tallies are those
    of other tuples.
    """
    state = row.trigger_state
    wrong = _problem(state, len(row.contents))
    if wrong is not None:
        raise wrong_value(WINDOW_STATE, "trigger_state", row=(row.key, ()), stored=state, allowed=wrong)
    tuples = [_queued(row, stored, mark) for stored, mark in zip(row.contents, state["marks"], strict=True)]
    queue, expired = tuples[state["expired"] :], tuples[: state["expired"]]
    shown = [event for event in queue if event.is_shown]
    for column, events, stored in (
        ("edge_count", queue, (row.edge_count, row.edge_xor, row.edge_sum)),
        ("fired_count", shown, (row.fired_count, row.fired_xor, row.fired_sum)),
    ):
        if (edges := signed(edges_of(events))) != stored:
            allowed = f"the tally of the tuples in contents, {edges}"
            raise wrong_value(WINDOW_STATE, column, row=(row.key, ()), stored=stored, allowed=allowed)
    manager.restore(state, queue=queue, expired=expired)


def _problem(state: Mapping[str, Any], tuples: int) -> str | None:
    """Return what is allowed in place of a wrong value in a manager's state; None if there is none."""
    for name in ("adds", "expired", "count", "processed", "since_trigger", "admitted"):
        if not fits(state.get(name), COUNT):
            return f"{COUNT} for {name}"
    for name in ("reference_ms", "next_end_ms", "last_reference_ms", "end_ms", "delta_ms"):
        is_null = name in state and state[name] is None and name != "delta_ms"
        if not is_null and not fits(state.get(name), INSTANT):
            return f"{INSTANT} for {name}"
    marks = state.get("marks")
    most = len(_REASONS) << _REASON_SHIFT
    if not isinstance(marks, list) or not all(fits(mark, COUNT) and mark < most for mark in marks):
        return f"a list of integers from 0 to {most - 1} for marks"
    if len(marks) != tuples:
        return f"one mark for each of the {tuples} tuples in contents"
    return None if state["expired"] + state["admitted"] <= tuples else f"at most {tuples} tuples expired and admitted"


def _mark(event: Queued) -> int:
    return event.is_shown * _SHOWN | event.is_previous * _PREVIOUS | _REASONS.index(event.reason) << _REASON_SHIFT


def _queued(row: WindowStateRow, stored: Stored, mark: int) -> Queued:
    if stored.timestamp_ms is None:
        what = f"a tuple without a time at position {stored.position}"
        raise wrong_value(WINDOW_STATE, "contents", row=(row.key, ()), stored=what, allowed="a time for each tuple")
    return Queued(
        position=stored.position,
        at_ms=stored.timestamp_ms,
        value=stored.value,
        edge_id=stored.edge_id,
        is_shown=bool(mark & _SHOWN),
        is_previous=bool(mark & _PREVIOUS),
        reason=_REASONS[mark >> _REASON_SHIFT],
    )
