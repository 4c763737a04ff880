"""The open windows of one operator, and their rows in a snapshot."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from windowlib.contents import Contents
from windowlib.errors import CheckpointError
from windowlib.key_order import group_of_order
from windowlib.open_windows import NO_EDGES, Edges, Lifetime, OpenWindow, Runtime
from windowlib.records import Stored, Tally
from windowlib.snapshots import WindowStateRow
from windowlib.tallies import signed, together
from windowlib.windows import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow, Window

NEVER_LATE = MAX_TIME_MS + 1
"""A watermark that never comes."""


class Orphan(NamedTuple):
    """Contents that no open window refers to. Only Flink's defects make one; it is found again under its name."""

    contents: list[Any]
    edges: Edges


class WindowStore:
    """Open windows by key and bounds; `windows` is read and written by the operator alone."""

    __slots__ = ("_cleanup_timers", "_contents", "_lateness_ms", "_sets_end_timers", "orphans", "runtime", "windows")

    def __init__(self, runtime: Runtime, contents: Contents, lateness_ms: int, *, sets_end_timers: bool) -> None:
        """Start without windows. `sets_end_timers` is for triggers that only wait for the end."""
        self._sets_end_timers = sets_end_timers
        self.runtime = runtime
        timers = runtime.timers
        self._cleanup_timers = timers.event_timers if runtime.is_event_time else timers.processing_timers
        self._contents = contents
        self._lateness_ms = lateness_ms
        self.windows: dict[Hashable, dict[Window, OpenWindow]] = {}
        self.orphans: dict[tuple[Hashable, Window], Orphan] = {}

    def __iter__(self) -> Iterator[OpenWindow]:
        """Iterate over all open windows, in no fixed order."""
        for windows in self.windows.values():
            yield from windows.values()

    def lifetime(self, window: Window) -> Lifetime:
        """Return when a window ends, is cleaned up, and turns records away."""
        last_ms = window.last_ms
        if not self.runtime.is_event_time:
            return (last_ms, last_ms, NEVER_LATE)
        cleanup_ms = last_ms + self._lateness_ms
        cleanup_ms = min(cleanup_ms, MAX_TIME_MS)
        return (last_ms, cleanup_ms, cleanup_ms)

    def create(self, key: Hashable, window: Window, lifetime: Lifetime) -> OpenWindow:
        """Open a window, without contents."""
        open_window = OpenWindow(key, window, self.runtime, lifetime)
        windows = self.windows.get(key)
        if windows is None:
            self.windows[key] = {window: open_window}
        else:
            windows[window] = open_window
        return open_window

    def register_first_timers(self, open_window: OpenWindow) -> None:
        """Set the timers of a window that was just opened: at its cleanup, and at its end if that is all there is."""
        self.register_cleanup(open_window)
        if self._sets_end_timers and open_window.last_ms > self.runtime.timers.watermark_ms:
            open_window.register_event_timer(open_window.last_ms)

    def register_cleanup(self, open_window: OpenWindow) -> None:
        """Set the operator's own timer, unless the window never goes."""
        if open_window.cleanup_ms < MAX_TIME_MS:
            self._cleanup_timers.register(open_window.cleanup_ms, open_window.key, open_window.window)

    def delete_cleanup(self, open_window: OpenWindow) -> None:
        """Take the operator's own timer back."""
        self._cleanup_timers.delete(open_window.cleanup_ms, open_window.key, open_window.window)

    def remove(self, open_window: OpenWindow) -> None:
        """Forget a window, and its key with its last window."""
        windows = self.windows[open_window.key]
        del windows[open_window.window]
        if not windows:
            del self.windows[open_window.key]

    def edges(self) -> Tally:
        """Return the edges of all open windows together."""
        edges = NO_EDGES
        for open_window in self:
            edges = together(edges, open_window.edges)
        return Tally(*signed(edges))

    def rows(self) -> list[WindowStateRow]:
        """Return all windows in the order (key group, key, start, end), orphans last."""
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
            trigger_state=dict(open_window.state),
            record_count=edge_count,
            edge_count=edge_count,
            edge_xor=edge_xor,
            edge_sum=edge_sum,
            fired_count=fired_count,
            fired_xor=fired_xor,
            fired_sum=fired_sum,
            pane_index=open_window.pane_index,
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

        Raises:
            CheckpointError: a row belongs to a key group that this operator does not own, or stands there twice.
        """
        for row in rows:
            group = group_of_order(self.runtime.timers.order(row.key))
            if group != row.key_group or group not in self.runtime.timers.groups:
                groups = self.runtime.timers.groups
                raise CheckpointError(
                    f"the window {row.window_start_ms} to {row.window_end_ms} of key {row.key!r} is stored in key "
                    f"group {row.key_group}; its key is in {group}, and this operator owns [{groups.start}, "
                    f"{groups.stop}) of {groups.max_parallelism}. Restore it with the max_parallelism that wrote it"
                )
            window = _window(row.window_start_ms, row.window_end_ms)
            contents = self._restored_contents(row)
            edges = (row.edge_count, row.edge_xor, row.edge_sum)
            if row.is_orphan:
                self.orphans[row.key, window] = Orphan(contents, edges)
                continue
            if window in self.windows.get(row.key, {}):
                raise CheckpointError(
                    f"the checkpoint has the window {window} of key {row.key!r} twice; it is damaged: "
                    "make the slice before again (repair-run)"
                )
            open_window = self.create(row.key, window, self.lifetime(window))
            open_window.state_window = _window(row.state_window_start_ms, row.state_window_end_ms)
            open_window.contents = contents
            open_window.state.update(row.trigger_state)
            open_window.edges = edges
            open_window.fired = (row.fired_count, row.fired_xor, row.fired_sum)
            open_window.pane_index = row.pane_index
            open_window.is_complete = row.is_complete
            open_window.cleanup_deleted = row.is_cleanup_silent

    def _restored_contents(self, row: WindowStateRow) -> list[Any]:
        if not row.edge_count:
            return self._contents.create()
        if self._contents.keeps_records:
            return [Stored(*stored) for stored in row.contents]
        return self._contents.from_states(row.accumulators)


def _window(start_ms: int | None, end_ms: int | None) -> Window:
    return GLOBAL_WINDOW if start_ms is None or end_ms is None else TimeWindow(start_ms, end_ms)
