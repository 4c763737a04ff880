"""The open windows of one operator, and their rows in a snapshot."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow, Window
from windowlib.keyed.key_order import group_of_order
from windowlib.keyed.snapshots import WindowStateRow
from windowlib.keyed.state_rules import ONE_ROW, wrong_value
from windowlib.records.plain_json import PLAIN_ERRORS
from windowlib.records.records import Stored
from windowlib.records.tables import WINDOW_STATE
from windowlib.records.tallies import Edges, signed
from windowlib.windows.contents import Contents
from windowlib.windows.open_windows import Lifetime, OpenWindow, Runtime
from windowlib.windows.trigger_states import LAST_PANE_MS, STARTS_ANEW

NEVER_LATE = MAX_TIME_MS + 1
"""A watermark that is never reached; windows that the clock completes have no late records."""


class Orphan(NamedTuple):
    """Contents that no open window refers to. Only Flink's defects create them. A later window may take them over."""

    contents: list[Any]
    edges: Edges


class WindowStore:
    """The open windows of one operator, by key."""

    __slots__ = ("_cleanup_timers", "_contents", "_lateness_ms", "by_key", "orphans", "runtime")

    def __init__(self, runtime: Runtime, contents: Contents, lateness_ms: int) -> None:
        self.runtime = runtime
        timers = runtime.timers
        self._cleanup_timers = timers.event_timers if runtime.is_event_time else timers.processing_timers
        self._contents = contents
        self._lateness_ms = lateness_ms
        self.by_key: dict[Hashable, dict[Window, OpenWindow]] = {}
        self.orphans: dict[tuple[Hashable, Window], Orphan] = {}

    def __iter__(self) -> Iterator[OpenWindow]:
        """Iterate over all open windows in no fixed order."""
        for windows in self.by_key.values():
            yield from windows.values()

    def find(self, key: Hashable, window: Window) -> OpenWindow | None:
        windows = self.by_key.get(key)
        return windows.get(window) if windows else None

    def lifetime(self, window: Window) -> Lifetime:
        """Return when a window is complete, when it is cleaned up, and from which watermark its records are late."""
        last_ms = window.last_ms
        if not self.runtime.is_event_time:
            return (last_ms, last_ms, NEVER_LATE)
        cleanup_ms = last_ms + self._lateness_ms
        cleanup_ms = min(cleanup_ms, MAX_TIME_MS)
        return (last_ms, cleanup_ms, cleanup_ms)

    def create(self, key: Hashable, window: Window, lifetime: Lifetime) -> OpenWindow:
        """Return a new open window without contents."""
        open_window = OpenWindow(key, window, self.runtime, lifetime)
        self.by_key.setdefault(key, {})[window] = open_window
        return open_window

    def register_cleanup(self, open_window: OpenWindow) -> None:
        """Register the window's cleanup timer, if the window has a cleanup instant."""
        if open_window.cleanup_ms < MAX_TIME_MS:
            self._cleanup_timers.register(open_window.cleanup_ms, open_window.key, open_window.window)

    def delete_cleanup(self, open_window: OpenWindow) -> None:
        self._cleanup_timers.delete(open_window.cleanup_ms, open_window.key, open_window.window)

    def remove(self, open_window: OpenWindow) -> None:
        """Remove a window, and also the entry of its key if it has no other window."""
        windows = self.by_key[open_window.key]
        del windows[open_window.window]
        if not windows:
            del self.by_key[open_window.key]

    def rows(self) -> list[WindowStateRow]:
        """Return the rows of all windows in the order (key group, key, start, end), orphans last."""
        order = self.runtime.timers.order
        opened = sorted(self, key=lambda open_window: (order(open_window.key), open_window.window))
        rows = [self._row(open_window, group_of_order(order(open_window.key))) for open_window in opened]
        lost = sorted(self.orphans.items(), key=lambda item: (order(item[0][0]), item[0][1]))
        return rows + [self._orphan_row(key, window, orphan) for (key, window), orphan in lost]

    def _row(self, open_window: OpenWindow, group: int) -> WindowStateRow:
        edge_count, edge_xor, edge_sum = signed(open_window.edges)
        fired_count, fired_xor, fired_sum = signed(open_window.fired)
        return WindowStateRow(
            key_group=group,
            key=open_window.key,
            window_start_ms=open_window.window.start_ms,
            window_end_ms=open_window.window.end_ms,
            state_window_start_ms=open_window.state_window.start_ms,
            state_window_end_ms=open_window.state_window.end_ms,
            accumulators=self._contents.to_states(open_window.contents),
            contents=list(open_window.contents) if self._contents.keeps_records else [],
            trigger_state=_apart(open_window.state) | _of_panes(open_window),
            record_count=edge_count,
            edge_count=edge_count,
            edge_xor=edge_xor,
            edge_sum=edge_sum,
            fired_count=fired_count,
            fired_xor=fired_xor,
            fired_sum=fired_sum,
            pane_index=open_window.pane_index,
            nonspeculative_count=open_window.nonspeculative_count,
            last_values=open_window.last_values,
            last_count=open_window.last_count,
            is_complete=open_window.is_complete,
            is_cleanup_silent=open_window.cleanup_deleted,
        )

    def _orphan_row(self, key: Hashable, window: Window, orphan: Orphan) -> WindowStateRow:
        edge_count, edge_xor, edge_sum = signed(orphan.edges)
        return WindowStateRow(
            key_group=group_of_order(self.runtime.timers.order(key)),
            key=key,
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            state_window_start_ms=window.start_ms,
            state_window_end_ms=window.end_ms,
            accumulators=self._contents.to_states(orphan.contents),
            contents=list(orphan.contents) if self._contents.keeps_records else [],
            record_count=edge_count,
            edge_count=edge_count,
            edge_xor=edge_xor,
            edge_sum=edge_sum,
            is_orphan=True,
        )

    def restore(self, rows: Iterable[WindowStateRow]) -> None:
        """Open the windows of one or more snapshots.

        Raises CheckpointError: a row is in a wrong key group or in one that this operator does not own, or a window has
        two rows.
        """
        for row in rows:
            timers, window = self.runtime.timers, _window(row.window_start_ms, row.window_end_ms)
            named = (row.key, window)
            timers.groups.check_row(WINDOW_STATE, row.key_group, group_of_order(timers.order(row.key)), row=named)
            if self.find(row.key, window) if not row.is_orphan else (row.key, window) in self.orphans:
                raise wrong_value(WINDOW_STATE, "window_start_ms", row=named, stored="two rows", allowed=ONE_ROW)
            contents = self._restored_contents(row)
            edges = (row.edge_count, row.edge_xor, row.edge_sum)
            if row.is_orphan:
                self.orphans[row.key, window] = Orphan(contents, edges)
                continue
            open_window = self.create(row.key, window, self.lifetime(window))
            open_window.state_window = _window(row.state_window_start_ms, row.state_window_end_ms)
            open_window.contents = contents
            open_window.state.update(_apart(row.trigger_state))
            open_window.starts_anew = open_window.state.pop(STARTS_ANEW, False)
            open_window.last_pane_ms = open_window.state.pop(LAST_PANE_MS, None)
            open_window.edges = edges
            open_window.fired = (row.fired_count, row.fired_xor, row.fired_sum)
            open_window.pane_index = row.pane_index
            open_window.nonspeculative_count = row.nonspeculative_count
            open_window.last_values = row.last_values
            open_window.last_count = row.last_count
            open_window.is_complete = row.is_complete
            open_window.cleanup_deleted = row.is_cleanup_silent

    def _restored_contents(self, row: WindowStateRow) -> list[Any]:
        if not row.edge_count:
            return self._contents.create()
        if self._contents.keeps_records:
            return [Stored(*stored) for stored in row.contents]
        try:
            return self._contents.from_states(row.accumulators)
        except PLAIN_ERRORS as error:
            named, allowed = (row.key, _window(row.window_start_ms, row.window_end_ms)), "states of the aggregates"
            raise wrong_value(WINDOW_STATE, "acc_*", row=named, stored=row.accumulators, allowed=allowed) from error


class EndStore(WindowStore):
    """The store for profiles in which an event-time window is complete at its end, not at its last instant (beam)."""

    __slots__ = ()

    def lifetime(self, window: Window) -> Lifetime:
        """Return the lifetime of a window, which stays until every record would be late for it."""
        lifetime = super().lifetime(window)
        if window.end_ms is None or not self.runtime.is_event_time:
            return lifetime
        beyond_ms = 1 if self.runtime.profile.takes_at_limit else 0
        cleanup_ms = min(window.end_ms + self._lateness_ms + beyond_ms, MAX_TIME_MS)
        return (window.end_ms, cleanup_ms, cleanup_ms)


def _apart(trigger_state: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a trigger's state. Composite triggers nest the states of their parts in it."""
    return {name: _apart(part) if isinstance(part, dict) else part for name, part in trigger_state.items()}


def _of_panes(open_window: OpenWindow) -> dict[str, Any]:
    """Return what a snapshot stores of the last pane in `trigger_state`."""
    stored: dict[str, Any] = {STARTS_ANEW: True} if open_window.starts_anew else {}
    if open_window.last_pane_ms is not None:
        stored[LAST_PANE_MS] = open_window.last_pane_ms
    return stored


def _window(start_ms: int | None, end_ms: int | None) -> Window:
    return GLOBAL_WINDOW if start_ms is None or end_ms is None else TimeWindow(start_ms, end_ms)
