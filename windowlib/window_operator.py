"""The window operator: one record, one watermark, one tick at a time. This is the specification that runs.

For each record and each of its windows: late windows are left out, the record is added, the trigger asked, and what
it says is done. When a clock advances, due timers ask the trigger again; at the cleanup instant, the window's last
instant plus the allowed lateness, all that is left of it goes. `_apply` is the only place that fires and purges.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from windowlib.assigners import Assigner, Stagger, Tumbling
from windowlib.contents import WindowScope, contents_of
from windowlib.errors import CheckpointError, InvariantBroken
from windowlib.evictors import Evictor
from windowlib.functions import WindowFunction, process_function
from windowlib.merging import Meeting, meet
from windowlib.open_windows import NO_EDGES, Edges, Lifetime, OpenWindow, Runtime
from windowlib.profiles import STRICT, EngineFault, Profile
from windowlib.records import (
    ASSIGNED,
    EARLY,
    LATE,
    LATE_FIRING,
    LATE_IN_GAP,
    ON_TIME,
    PAST_CLEANUP,
    START,
    UNASSIGNED,
    WRAPPED_WINDOW,
    Fate,
    Late,
    Mode,
    Output,
    Pane,
    Position,
    Record,
    Stored,
    Tally,
    Timing,
    Unassigned,
)
from windowlib.snapshots import STATE_VERSION, Snapshot
from windowlib.state import KeyedState
from windowlib.tallies import (
    EVICTED,
    FIRED,
    LEFT_OVER,
    LOST_AT_END,
    LOST_IDENTICAL,
    NEVER_FIRED,
    NEW,
    PURGED,
    Tallies,
    difference,
    edge_id,
    together,
)
from windowlib.timers import EVENT, PROCESSING, Domain, KeyGroupRange, Timer, TimerService
from windowlib.trigger_protocol import CONTINUE, Trigger, TriggerResult
from windowlib.window_store import Orphan, WindowStore
from windowlib.windows import MAX_TIME_MS, MIN_TIME_MS, TimeWindow, Window

Leftovers = Literal["refuse", "report", "fire"]
"""What to do at a window's end with records that no pane has shown: refuse such a spec, count them, or fire them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """What a window operator computes: a WindowSpec that was checked, with its defaults filled in."""

    assigner: Assigner
    trigger: Trigger
    function: WindowFunction
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    mode: Mode = "accumulating"
    leftovers: Leftovers = "report"
    profile: Profile = STRICT


class WindowOperator:
    """Windows of many keys, driven from outside; it reads no clock and does no I/O.

    The driver calls `advance_processing_time` for the clock, `process` for each record in log order, then
    `advance_watermark` for the watermark that the record caused, and takes what came out with `drain`. `snapshot` may
    be called at any moment between these calls.
    """

    def __init__(self, windowing: Windowing, groups: KeyGroupRange | None = None) -> None:
        """Start without state. `WindowSpec.build` is the way to get one that is checked."""
        self.windowing = windowing
        self._assigner = windowing.assigner
        self._trigger = windowing.trigger
        self._evictor = windowing.evictor
        self._profile = windowing.profile
        self._is_merging = windowing.assigner.is_merging
        self._is_event_time = windowing.assigner.is_event_time
        self._asks_once = windowing.trigger.waits_for_end and windowing.profile.refuses_regression
        self._then = process_function(windowing.function)
        self._timers = TimerService("window-timers", groups)
        declared = (*self._then.state, *self._then.window_state) if self._then else ()
        self._user_state = KeyedState(declared, self._timers.order)
        self._runtime = Runtime(
            windowing.profile, self._timers, self._user_state, is_event_time=self._is_event_time
        )
        self._contents = contents_of(windowing.function, keeps_records=windowing.evictor is not None)
        self._store = WindowStore(self._runtime, self._contents, windowing.allowed_lateness_ms)
        self._tallies = Tallies()
        self._new_count = self._new_xor = self._new_sum = 0
        self._lacks_stagger = isinstance(self._assigner, Tumbling) and self._assigner.stagger is not Stagger.ALIGNED

    def process(self, record: Record) -> Fate:
        """Take in one record, judged against the watermark before it, and return its fate."""
        if self._lacks_stagger:
            self._choose_stagger()
        key, _, _, position, record_hash, _ = record
        is_assigned = False
        missed: list[Window] = []
        open_one = self._open_merged if self._is_merging else self._open_plain
        for index, window in enumerate(self._assigner.assign(record, self._runtime)):
            open_window = open_one(key, window, position)
            if open_window is None:
                missed.append(window)
                continue
            is_assigned = True
            # The trigger need not hear of a record that cannot matter to it; most records are of this kind.
            is_asked = not (
                self._asks_once and open_window.edge_count and open_window.last_ms > self._timers.watermark_ms
            )
            edge = edge_id(record_hash, index) if index else record_hash
            open_window.edge_count += 1
            open_window.edge_xor ^= edge
            open_window.edge_sum += edge
            self._new_count += 1
            self._new_xor ^= edge
            self._new_sum += edge
            self._contents.add(open_window.contents, record, edge)
            if is_asked:
                result = self._trigger.on_record(record, open_window.window, open_window)
                if result is not CONTINUE:
                    self._apply(result, open_window, MIN_TIME_MS, position)
                if not self._profile.protects_cleanup_timer:
                    self._register_cleanup(open_window)
        if is_assigned and not missed:
            return ASSIGNED
        return self._without_window(record, missed, is_assigned=is_assigned)

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Let event time reach `watermark_ms`, because of the record at `position`; fire what is due.

        Raises:
            InvariantBroken: the watermark goes back, and the profile does not allow it.
        """
        timers = self._timers
        if watermark_ms < timers.watermark_ms and self._profile.refuses_regression:
            raise InvariantBroken(
                f"the driver let the watermark go back from {timers.watermark_ms} to {watermark_ms} at {position}"
            )
        for at_ms, timer in timers.advance_watermark(watermark_ms):
            self._on_timer(EVENT, at_ms, timer, position)

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        """Let the clock reach `processing_time_ms`; each timer is due at its own instant.

        Without `inclusive`, timers at the instant itself wait, so that a record which arrives then goes first.
        """
        for at_ms, timer in self._timers.advance_processing_time(processing_time_ms, inclusive=inclusive):
            self._on_timer(PROCESSING, at_ms, timer, position)

    def next_event_timer_ms(self) -> int | None:
        """Return the lowest watermark that would do anything, None if none would."""
        return self._timers.event_timers.next_ms()

    def next_processing_timer_ms(self) -> int | None:
        """Return the earliest instant at which the clock would do anything, None if at none."""
        return self._timers.processing_timers.next_ms()

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self._timers.watermark_ms

    def drain(self) -> list[Output]:
        """Return the outputs since the last call, in the order in which they were emitted."""
        outputs = self._runtime.outputs
        self._runtime.outputs = []
        return outputs

    def take_tallies(self) -> dict[str, Tally]:
        """Return the edges since the last call: 'new', and 'closed:<reason>' for each reason.

        Law: edges open before + new = edges open now + closed; in counts, in XOR, and in sums modulo 2**64.
        """
        self._tallies.add(NEW, (self._new_count, self._new_xor, self._new_sum))
        self._new_count = self._new_xor = self._new_sum = 0
        return self._tallies.take()

    def open_edges(self) -> Tally:
        """Return the edges of all open windows."""
        return self._store.edges()

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows, in a fixed order; the operator goes on undisturbed."""
        return Snapshot(
            watermark_ms=self._timers.watermark_ms,
            processing_time_ms=self._timers.processing_time_ms,
            stagger_ms=None if self._lacks_stagger else self._runtime.stagger_ms,
            windows=self._store.rows(),
            timers=self._timers.snapshot(),
            user_state=self._user_state.rows(),
        )

    def restore(self, snapshot: Snapshot, *, after_failure: bool = False) -> None:
        """Take over the state of a snapshot; into a fresh operator only.

        `after_failure` matters to the flink profile alone: Flink then forgets its watermark (F2) and its stagger.
        Raises:
            CheckpointError: another version, other key groups, or a damaged row.
        """
        if snapshot.version != STATE_VERSION:
            raise CheckpointError(
                f"the checkpoint has state version {snapshot.version}, this program reads {STATE_VERSION}; "
                "replay from the start, or use the program that wrote it"
            )
        self._store.restore(snapshot.windows)
        self._timers.restore(snapshot.timers)
        self._user_state.restore(snapshot.user_state)
        self._timers.processing_time_ms = snapshot.processing_time_ms
        if self._profile.watermark_survives_failure or not after_failure:
            self._timers.watermark_ms = snapshot.watermark_ms
            if snapshot.stagger_ms is not None:
                self.set_stagger(snapshot.stagger_ms)

    def set_stagger(self, stagger_ms: int) -> None:
        """Fix the stagger. A driver with several operators gives all of them that of the log's first record."""
        self._runtime.stagger_ms = stagger_ms
        self._lacks_stagger = False

    def _choose_stagger(self) -> None:
        assigner = self._assigner
        if isinstance(assigner, Tumbling):
            now_ms = self._timers.processing_time_ms
            self.set_stagger(assigner.stagger.offset(assigner.size_ms, now_ms, assigner.seed))

    # Opening windows.

    def _open_plain(self, key: Hashable, window: Window, position: Position) -> OpenWindow | None:  # noqa: ARG002
        """Return the open window, None if it is too late for it."""
        windows = self._store.windows.get(key)
        if windows is not None:
            open_window = windows.get(window)
            if open_window is not None:
                return open_window if open_window.late_from_ms > self._timers.watermark_ms else None
        lifetime = self._store.lifetime(window)
        if lifetime[2] <= self._timers.watermark_ms:
            return None
        open_window = self._store.create(key, window, lifetime)
        open_window.contents = self._contents.create()
        self._register_cleanup(open_window)
        return open_window

    def _open_merged(self, key: Hashable, window: Window, position: Position) -> OpenWindow | None:
        """Return the session that now holds `window`, None if it is too late for it."""
        if not isinstance(window, TimeWindow):
            raise InvariantBroken(f"a merging assigner returned {window}; only windows with bounds can merge")
        windows = self._store.windows.get(key, {})
        meeting = meet(windows, window, self._profile)
        lifetime = self._store.lifetime(meeting.cover)
        is_late = lifetime[2] <= self._timers.watermark_ms
        if is_late and (not meeting.met or self._profile.guards_merge_overflow):
            return None
        if meeting.met == [meeting.cover]:
            open_window = windows[meeting.cover]
            if window == meeting.cover and not self._profile.keeps_identical_session:
                self._lose_identical(open_window)
        elif meeting.met:
            open_window = self._merge(key, meeting, lifetime, position)
        else:
            open_window = self._store.create(key, window, lifetime)
            self._adopt(open_window)
            self._register_cleanup(open_window)
        if is_late:
            self._orphan(open_window, LOST_AT_END)
            self._store.remove(open_window)
            return None
        return open_window

    def _merge(self, key: Hashable, meeting: Meeting, lifetime: Lifetime, position: Position) -> OpenWindow:
        """Replace the sessions of a meeting by the one that covers them."""
        self._check_merge(meeting.cover)
        windows = self._store.windows[key]
        merged = [windows[window] for window in meeting.met]
        target = OpenWindow(key, meeting.cover, self._runtime, lifetime)
        target.state_window = merged[0].state_window
        target.contents = self._contents.merge(
            merged[0].contents,
            [other.contents for other in merged[1:]],
            in_log_order=self._profile.merges_in_log_order,
        )
        for other in merged:
            target.edges = together(target.edges, other.edges)
            if other.pane_index and self.windowing.mode == "accumulating":
                self._supersede(other, position)
            else:
                target.fired = together(target.fired, other.fired)
        self._trigger.on_merge(meeting.cover, merged, target)
        for other in merged:
            self._trigger.clear(other.window, other)
            self._delete_cleanup(other)
            del windows[other.window]
        windows[meeting.cover] = target
        self._register_cleanup(target)
        return target

    def _check_merge(self, cover: TimeWindow) -> None:
        """Refuse what Flink refuses: a merged session that is over. Without its overflow (F3) this never happens."""
        profile, timers = self._profile, self._timers
        if profile.guards_merge_overflow:
            return
        over_ms = profile.add(cover.last_ms, self.windowing.allowed_lateness_ms)
        if self._is_event_time and over_ms <= timers.watermark_ms:
            raise EngineFault("UnsupportedOperationException", f"the end of merged {cover} is behind the watermark")
        if not self._is_event_time and cover.last_ms <= timers.processing_time_ms:
            raise EngineFault("UnsupportedOperationException", f"the end of merged {cover} is behind the clock")

    def _lose_identical(self, open_window: OpenWindow) -> None:
        """Do what Flink does to a session when an identical one comes: give it fresh contents (F1)."""
        if open_window.state_window != open_window.window:
            self._orphan(open_window, LOST_IDENTICAL)
            self._adopt(open_window)

    def _orphan(self, open_window: OpenWindow, reason: str) -> None:
        """Leave the contents behind under the name of their state window."""
        self._tallies.add(FIRED, open_window.fired)
        self._tallies.add(reason, difference(open_window.edges, open_window.fired))
        place = (open_window.key, open_window.state_window)
        self._store.orphans[place] = Orphan(open_window.contents, open_window.edges)

    def _adopt(self, open_window: OpenWindow) -> None:
        """Give a window contents under its own name: what was left there, else none."""
        window = open_window.window
        orphan = self._store.orphans.pop((open_window.key, window), None) if self._store.orphans else None
        open_window.state_window = window
        open_window.fired = NO_EDGES
        open_window.contents, open_window.edges = orphan or (self._contents.create(), NO_EDGES)
        self._tallies.add(NEW, open_window.edges)

    def _register_cleanup(self, open_window: OpenWindow) -> None:
        if open_window.cleanup_ms != MAX_TIME_MS:
            queue = self._timers.event_timers if self._is_event_time else self._timers.processing_timers
            queue.register(open_window.cleanup_ms, open_window.key, open_window.window)

    def _delete_cleanup(self, open_window: OpenWindow) -> None:
        if open_window.cleanup_ms != MAX_TIME_MS:
            queue = self._timers.event_timers if self._is_event_time else self._timers.processing_timers
            queue.delete(open_window.cleanup_ms, open_window.key, open_window.window)

    # Firing, purging, cleaning up.

    def _on_timer(self, domain: Domain, at_ms: int, timer: Timer, position: Position) -> None:
        """Ask the trigger about a timer that is due; clean the window up if it was the cleanup timer."""
        windows = self._store.windows.get(timer.key)
        open_window = windows.get(timer.namespace) if windows else None
        if open_window is None:
            return  # a timer of a window that was merged away or cleaned up
        is_end = at_ms == open_window.cleanup_ms and self._is_event_time == (domain == EVENT)
        if not (is_end and open_window.cleanup_deleted):
            ask = self._trigger.on_event_time if domain == EVENT else self._trigger.on_processing_time
            result = ask(at_ms, open_window.window, open_window)
            if result is not CONTINUE:
                self._apply(result, open_window, at_ms, position)
        if is_end:
            self._clean_up(open_window, position)

    def _apply(self, result: TriggerResult, open_window: OpenWindow, at_ms: int, position: Position) -> None:
        """Do what the trigger said. A window without contents does not fire."""
        if result.is_fire and open_window.edge_count:
            self._fire(open_window, at_ms, position)
        if result.is_purge:
            self._purge(open_window, PURGED)

    def _fire(self, open_window: OpenWindow, at_ms: int, position: Position) -> None:
        """Emit a pane for each value that the function returns."""
        evictor = self._evictor
        if evictor is not None:
            self._keep(open_window, evictor.keep_before(open_window.contents, open_window.window, self._runtime))
        if open_window.edge_count or not self._profile.skips_empty_panes:
            values = self._contents.results(open_window, open_window.contents, position)
            self._emit(open_window, values, at_ms, position)
        open_window.fired = (open_window.edge_count, open_window.edge_xor, open_window.edge_sum)
        if evictor is not None:
            self._keep(open_window, evictor.keep_after(open_window.contents, open_window.window, self._runtime))

    def _emit(self, open_window: OpenWindow, results: Sequence[Any], at_ms: int, position: Position) -> None:
        timers = self._timers
        now_ms = timers.watermark_ms if self._is_event_time else timers.processing_time_ms
        last_ms, index = open_window.last_ms, open_window.pane_index
        timing: Timing = EARLY
        if now_ms >= last_ms:
            timing = LATE_FIRING if open_window.is_complete else ON_TIME
            open_window.is_complete = True
        cleanup_ms = open_window.cleanup_ms
        is_last = now_ms >= cleanup_ms and (
            at_ms == cleanup_ms or (at_ms >= last_ms and not self._trigger.fires_after_end)
        )
        for values in results:
            open_window.pane_index = index + 1
            self._runtime.outputs.append(
                Pane(
                    open_window.key,
                    open_window.window,
                    values,
                    index,
                    timing,
                    index == 0,
                    is_last,
                    self.windowing.mode,
                    "result",
                    open_window.edge_count,
                    timers.watermark_ms,
                    position,
                    last_ms,
                )
            )

    def _supersede(self, open_window: OpenWindow, position: Position) -> None:
        """Withdraw the panes of bounds that are no more."""
        self._runtime.outputs.append(
            Pane(
                key=open_window.key,
                window=open_window.window,
                values=(),
                pane_index=open_window.pane_index,
                timing=LATE_FIRING if open_window.is_complete else EARLY,
                is_first=False,
                is_last=True,
                mode=self.windowing.mode,
                kind="superseded",
                record_count=0,
                watermark_ms=self._timers.watermark_ms,
                position=position,
                timestamp_ms=open_window.last_ms,
            )
        )

    def _keep(self, open_window: OpenWindow, kept: Sequence[Stored]) -> None:
        """Replace the records of a window by those that the evictor kept; shown ones close as fired."""
        contents: list[Stored] = open_window.contents
        if len(kept) == len(contents):
            return
        edges = _edges_of(kept)
        gone = difference(open_window.edges, edges)
        is_shown = open_window.fired[0] == open_window.edge_count
        self._tallies.add(FIRED if is_shown else EVICTED, gone)
        open_window.contents, open_window.edges = list(kept), edges
        open_window.fired = edges if is_shown else NO_EDGES

    def _purge(self, open_window: OpenWindow, reason: str) -> None:
        """Drop the contents; trigger state, timers and the place among sessions stay (FLINK-4994)."""
        if open_window.edge_count:
            self._close(open_window, reason)
            open_window.contents = self._contents.create()
            open_window.edges = open_window.fired = NO_EDGES

    def _close(self, open_window: OpenWindow, reason: str) -> None:
        edges = (open_window.edge_count, open_window.edge_xor, open_window.edge_sum)
        fired = open_window.fired
        if fired == edges:
            self._tallies.add(FIRED, edges)
        else:
            self._tallies.add(FIRED, fired)
            self._tallies.add(reason, difference(edges, fired))

    def _clean_up(self, open_window: OpenWindow, position: Position) -> None:
        """Drop the window and all that belongs to it."""
        if self.windowing.leftovers == "fire" and open_window.fired[0] < open_window.edge_count:
            self._fire(open_window, open_window.cleanup_ms, position)
        self._close(open_window, LEFT_OVER if open_window.pane_index else NEVER_FIRED)
        self._trigger.clear(open_window.window, open_window)
        if self._then is not None:
            self._then.clear(open_window.key, open_window.window, WindowScope(open_window, position))
            for spec in self._then.window_state:
                self._user_state.handle(spec.name, open_window.key, open_window.window).clear()
        self._store.remove(open_window)

    def _without_window(self, record: Record, missed: Sequence[Window], *, is_assigned: bool) -> Fate:
        """Report a record that missed windows, or has none."""
        watermark_ms = self._timers.watermark_ms
        outputs, profile = self._runtime.outputs, self._profile
        timestamp_ms = MIN_TIME_MS if record.timestamp_ms is None else record.timestamp_ms
        late_from_ms = profile.add(timestamp_ms, self.windowing.allowed_lateness_ms)
        is_behind = self._is_event_time and late_from_ms <= watermark_ms
        if not missed:
            if profile.reports_gaps or not is_behind:
                outputs.append(Unassigned(record, watermark_ms))
                return UNASSIGNED
            outputs.append(Late(record, (), True, watermark_ms, watermark_ms - late_from_ms, LATE_IN_GAP))
            return LATE
        cleanup_ms = max(self._store.lifetime(window)[1] for window in missed)
        is_lost = profile.wraps_int64 and not is_behind and not is_assigned
        outputs.append(
            Late(
                record=record,
                missed=tuple(missed),
                missed_all=not is_assigned,
                watermark_ms=watermark_ms,
                late_by_ms=max(watermark_ms - cleanup_ms, 0),
                reason=WRAPPED_WINDOW if is_lost else PAST_CLEANUP,
            )
        )
        return ASSIGNED if is_assigned else LATE


def _edges_of(records: Sequence[Stored]) -> Edges:
    xor = total = 0
    for stored in records:
        xor ^= stored.edge_id
        total += stored.edge_id
    return (len(records), xor, total)
