"""Lookup and creation of the open window that a record enters, including the merging of sessions."""

from collections.abc import Hashable
from functools import reduce

from windowlib.bounds import TimeWindow, Window
from windowlib.errors import InvariantBroken
from windowlib.profiles import EngineFault
from windowlib.records.records import Position, Record
from windowlib.records.tallies import FIRED, LOST_AT_END, LOST_IDENTICAL, NEW, difference, together
from windowlib.triggers.protocol import FINISHED
from windowlib.windows.contents import Contents
from windowlib.windows.firing import Firing
from windowlib.windows.merging import Meeting, meet
from windowlib.windows.open_windows import Lifetime, OpenWindow
from windowlib.windows.window_store import Orphan, WindowStore
from windowlib.windows.windowing import Windowing


class Opening:
    """Opens windows that do not merge."""

    def __init__(self, store: WindowStore) -> None:
        self._store = store
        self._find = store.find
        self._timers = store.runtime.timers

    def open(self, key: Hashable, window: Window, record: Record) -> OpenWindow | None:  # noqa: ARG002
        """Return the open window with these bounds, created if necessary; None if the record is late for it."""
        open_window = self._find(key, window)
        if open_window is not None:
            return None if open_window.late_from_ms <= self._timers.watermark_ms else open_window
        lifetime = self._store.lifetime(window)
        if lifetime[2] <= self._timers.watermark_ms:
            return None
        open_window = self._store.create(key, window, lifetime)
        self._store.register_cleanup(open_window)
        return open_window


class MergingOpening:
    """Opens sessions and merges them."""

    def __init__(self, windowing: Windowing, contents: Contents, *, store: WindowStore, firing: Firing) -> None:
        self._trigger = windowing.trigger
        self._profile = windowing.profile
        self._lateness_ms = windowing.allowed_lateness_ms
        self._supersedes = windowing.mode == "accumulating"
        self._contents = contents
        self._store = store
        self._firing = firing
        self._runtime = store.runtime
        self._timers = store.runtime.timers

    def open(self, key: Hashable, window: Window, record: Record) -> OpenWindow | None:
        """Return the open session that contains `window` after merging; None if the record is late for it.

        Raises:
            InvariantBroken: the assigner returned a window without bounds.
            EngineFault: Flink fails here (F3).
        """
        if not isinstance(window, TimeWindow):
            raise InvariantBroken(f"a merging assigner returned {window}; only windows with bounds can merge")
        windows = self._store.by_key.get(key)
        meeting = meet(windows, window, self._profile) if windows else Meeting(window, [])
        lifetime = self._store.lifetime(meeting.cover)
        is_late = lifetime[2] <= self._timers.watermark_ms
        if is_late and (not meeting.met or self._profile.guards_merge_overflow):
            return None
        if windows and meeting.met == [meeting.cover]:
            open_window = windows[meeting.cover]
            if window == meeting.cover and not self._profile.keeps_identical_session:
                self._lose_identical(open_window)
        elif meeting.met:
            open_window = self._merge(key, meeting, lifetime=lifetime, position=record.position)
        else:
            open_window = self._store.create(key, window, lifetime)
            self._adopt(open_window)
            self._store.register_cleanup(open_window)
        if is_late:
            self._orphan(open_window, LOST_AT_END)
            self._store.remove(open_window)
            return None
        return open_window

    def _merge(self, key: Hashable, meeting: Meeting, *, lifetime: Lifetime, position: Position) -> OpenWindow:
        """Replace the sessions of a meeting by one session that covers them."""
        self._check_merge(meeting.cover)
        windows = self._store.by_key[key]
        merged = [windows[window] for window in meeting.met]
        first = merged[0]
        target = OpenWindow(key, meeting.cover, self._runtime, lifetime)
        target.state_window = first.state_window
        if len(merged) == 1:
            target.take_over(first)
        else:
            # Purged windows are left out, so that a user's merge is not called for them. In Flink they have no state.
            filled = [other.contents for other in merged if other.edge_count] or [first.contents]
            target.contents = self._contents.merge(
                filled[0], filled[1:], in_log_order=self._profile.merges_in_log_order
            )
            target.edges = reduce(together, [other.edges for other in merged])
        # A finished trigger's final pane is never superseded.
        is_finished = any(FINISHED in other.state for other in merged if other.pane_index)
        for other in merged:
            # `target.fired` stays empty: no pane of the new bounds has shown the edges yet.
            if other.pane_index and self._supersedes and not (is_finished or other.starts_anew):
                self._firing.supersede(other, position)
        self._trigger.on_merge(meeting.cover, merged, target)
        for other in merged:
            self._trigger.clear(other.window, other)
            self._store.delete_cleanup(other)
            del windows[other.window]
        windows[meeting.cover] = target
        self._store.register_cleanup(target)
        return target

    def _check_merge(self, cover: TimeWindow) -> None:
        """Raise Flink's error for a merged session that is already complete. This needs Flink's overflow (F3)."""
        profile, timers = self._profile, self._timers
        if profile.guards_merge_overflow:
            return
        over_ms = profile.add(cover.last_ms, self._lateness_ms)
        if self._runtime.is_event_time and over_ms <= timers.watermark_ms:
            raise EngineFault("UnsupportedOperationException", f"the end of merged {cover} is behind the watermark")
        if not self._runtime.is_event_time and cover.last_ms <= timers.processing_time_ms:
            raise EngineFault("UnsupportedOperationException", f"the end of merged {cover} is behind the clock")

    def _lose_identical(self, open_window: OpenWindow) -> None:
        """Reproduce F1: when an identical session arrives, Flink gives the open session empty contents."""
        if open_window.state_window != open_window.window:
            self._orphan(open_window, LOST_IDENTICAL)
            self._adopt(open_window)
            self._firing.start_anew(open_window)

    def _orphan(self, open_window: OpenWindow, reason: str) -> None:
        """Keep the contents as an orphan under their state window, and count their edges as closed."""
        tallies = self._firing.tallies
        tallies.add(FIRED, open_window.fired)
        tallies.add(reason, difference(open_window.edges, open_window.fired))
        place = (open_window.key, open_window.state_window)
        self._store.orphans[place] = Orphan(open_window.contents, open_window.edges)

    def _adopt(self, open_window: OpenWindow) -> None:
        """Give a window contents under its own bounds: those of the orphan with these bounds, else empty contents."""
        orphans, window = self._store.orphans, open_window.window
        orphan = orphans.pop((open_window.key, window), None) if orphans else None
        open_window.state_window = window
        open_window.empty()
        if orphan is not None:
            open_window.contents, open_window.edges = orphan
            self._firing.tallies.add(NEW, orphan.edges)


class LoneJudgingOpening(MergingOpening):
    """Opens sessions in the profile beam: a record is late by its own session, even if it could join a longer one."""

    def open(self, key: Hashable, window: Window, record: Record) -> OpenWindow | None:
        """Return the open session as MergingOpening does; None if the record's own session is complete."""
        if self._store.lifetime(window)[2] <= self._timers.watermark_ms:
            return None
        return super().open(key, window, record)
