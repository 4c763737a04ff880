"""The window operator. It processes one record, one watermark or one clock tick at a time.

For each record, the operator adds the record to each of its windows that is not late, calls the trigger, and applies
the trigger's result. When the watermark or the clock advances, due timers call the trigger again. At the cleanup
instant, which is the window's last instant plus the allowed lateness, the operator deletes all state of the window.
This module is the specification of window semantics: replays on Spark run this code.
"""

from collections.abc import Sequence
from typing import cast

from windowlib.bounds import MIN_TIME_MS, Window
from windowlib.functions.window_functions import process_function
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.state import KeyedState
from windowlib.keyed.timer_owners import DueTimer
from windowlib.keyed.timers import EVENT, PROCESSING, Domain, KeyGroupRange, TimerService, in_order
from windowlib.keyed.watermark_check import check_watermark
from windowlib.records.record_columns import RecordColumns
from windowlib.records.records import (
    ASSIGNED,
    LATE,
    LATE_IN_GAP,
    PAST_CLEANUP,
    START,
    UNASSIGNED,
    WRAPPED_WINDOW,
    Fate,
    Late,
    OnlyPanes,
    Output,
    Position,
    Record,
    Tally,
    Unassigned,
)
from windowlib.records.tallies import NEW, NO_EDGES, times
from windowlib.triggers.protocol import CONTINUE
from windowlib.triggers.wrappers import Purging, purging
from windowlib.windows.assigners import Stagger, Tumbling, assigning
from windowlib.windows.contents import contents_of
from windowlib.windows.firing import Firing, Moment, on_record
from windowlib.windows.open_windows import OpenWindow, Runtime, edges_with
from windowlib.windows.opening import LoneJudgingOpening, MergingOpening, Opening
from windowlib.windows.waiting import WaitingRecords
from windowlib.windows.window_store import EndStore, WindowStore
from windowlib.windows.windowing import Windowing


class WindowOperator:
    """Runs the windows of many keys for a driver. It reads no clock and does no I/O.

    The driver calls `advance_processing_time` for the clock, `process` for each record in log order, then
    `advance_watermark` for the watermark that the record caused. `drain` returns the outputs. The driver may call
    `snapshot` between any two of these calls.
    """

    def __init__(self, windowing: Windowing, groups: KeyGroupRange | None = None) -> None:
        """Create an operator without state; `WindowSpec.build` does this from a spec that it has checked."""
        self.windowing = windowing
        self._assigner = windowing.assigner
        self._trigger = windowing.trigger
        self._profile = windowing.profile
        self._is_event_time = windowing.assigner.is_event_time
        self._purges = isinstance(trigger := windowing.trigger, Purging)
        """Whether the operator purges at each firing itself, which saves a call for every record."""
        self._on_record = trigger.inner.on_record if isinstance(trigger, Purging) else trigger.on_record
        self._registers_cleanup = not windowing.profile.protects_cleanup_timer
        self._pending_max = 2 * windowing.pending_max
        self._waits_for_end = windowing.trigger.waits_for_end and windowing.profile.refuses_regression
        self._timers = TimerService("window-timers", groups, stale_max=windowing.stale_max)
        then = process_function(windowing.function)
        declared = (*then.state, *then.window_state) if then else ()
        self._user_state = KeyedState(declared, self._timers.order)
        contents = contents_of(windowing.function, keeps_records=windowing.evictor is not None)
        runtime = Runtime(
            windowing.profile, self._timers, self._user_state, contents=contents, is_event_time=self._is_event_time
        )
        self._runtime = runtime
        self._assign = assigning(windowing.assigner, runtime)
        self._takes_values = contents.takes_values
        store = EndStore if windowing.profile.completes_at_end else WindowStore
        self._store = store(
            runtime,
            contents,
            windowing.allowed_lateness_ms,
            sets_end_timers=self._waits_for_end,
            is_merging=windowing.assigner.is_merging,
            pending_max=windowing.pending_max,
        )
        self._defers = self._waits_for_end and self._store.shares_timers
        """Whether records wait for the end of their windows (windowlib.windows.same_bounds)."""
        self._firing = Firing(windowing, runtime, contents, self._store)
        opening = Opening(runtime, self._store)
        self._waiting = WaitingRecords(runtime, opening, windowing.assigner, takes_values=contents.takes_values)
        self._every_ms = self._waiting.every_ms if self._defers else 0
        self._open = opening.open
        if windowing.assigner.is_merging:
            merging = LoneJudgingOpening if windowing.profile.judges_record_alone else MergingOpening
            self._open = merging(windowing, contents, store=self._store, firing=self._firing).open
        self._by_bounds = self._store.by_bounds
        self._intervals, self._offset_ms = self._waiting.intervals, self._waiting.offset_ms
        self._enter = self._enter_waiting if self._defers else self._enter_open
        self._entered: list[int] = []
        """The hash of a record for each window that it entered since the last `drain` or `take_tallies`."""
        self._lacks_stagger = isinstance(self._assigner, Tumbling) and self._assigner.stagger is not Stagger.ALIGNED

    def begin(self, first_arrival_ms: int) -> None:
        """Choose the stagger from the log's first arrival. Otherwise the operator's first record determines it."""
        if self._lacks_stagger:
            self._choose_stagger(first_arrival_ms)

    def process(self, record: Record) -> Fate:
        """Process one record at the current watermark and return the record's fate."""
        instant_ms = record[1]  # a NamedTuple is unpacked slowly
        if self._every_ms and instant_ms is not None:
            groups = self._intervals.get((instant_ms - self._offset_ms) // self._every_ms)
            if groups is not None:
                for same_bounds in groups:
                    same_bounds.keys.append(record[0])
                    same_bounds.items.append(record[2] if self._takes_values else record)
                    same_bounds.hashes.append(record[4])
                    self._entered.append(record[4])
                return ASSIGNED
        return self._process_by_window(record)

    def _process_by_window(self, record: Record) -> Fate:
        """Add a record to each of its windows that is not late for it, and return the record's fate."""
        if self._lacks_stagger:
            self._choose_stagger(self._timers.processing_time_ms)
        enter, record_hash = self._enter, record[4]
        windows = self._assign(record)
        missed: list[Window] | None = None
        for window in windows:
            if not enter(window, record):
                missed = [window] if missed is None else [*missed, window]
        if missed is None and windows:
            if self._every_ms:
                self._waiting.remember(record, windows)
            if len(windows) == 1:
                self._entered.append(record_hash)
            else:
                self._entered += [record_hash] * len(windows)
            return ASSIGNED
        entered = len(windows) - len(missed or ())
        self._entered += [record_hash] * entered
        return self._without_window(record, missed or (), is_assigned=entered > 0)

    def _enter_waiting(self, window: Window, record: Record) -> bool:
        """Let a record wait for a window's end. If the window has ended, do as `_enter_open`."""
        return self._waiting.add(window, record) or self._enter_open(window, record)

    def _enter_open(self, window: Window, record: Record) -> bool:
        """Add a record to its open window and call the trigger. Return False if the record is late for the window."""
        open_window = self._open(record[0], window, record)
        if open_window is None:
            return False
        pending = open_window.pending
        pending.append(record[2] if self._takes_values else record)
        pending.append(record[4])
        if len(pending) > self._pending_max:
            open_window.settle()
        # Fast path for most records: a trigger that waits for the window's end ignores records before the end.
        if not self._waits_for_end or open_window.complete_ms <= self._timers.watermark_ms:
            result = self._on_record(record, open_window.window, open_window)
            if result is not CONTINUE:
                result = purging(result) if self._purges else result
                self._firing.apply(result, open_window, on_record(record[3]))
            if self._registers_cleanup:
                self._store.register_cleanup(open_window)
        return True

    def quiet_until_ms(self) -> int | None:
        """Return an instant: until the watermark reaches it, `process_together` may replace `process`. None: never."""
        return self._waiting.quiet_until_ms() if self._defers else None

    def process_together(self, records: RecordColumns, chosen: range) -> tuple[int, Sequence[int]]:
        """Process the chosen records, or the first of them. `quiet_until_ms` is above all watermarks that they meet.

        Returns:
            The place after the last record, and the places of the records before it that the caller has to pass to
            `process` afterwards, each at its own watermark. All others are processed and assigned.
        """
        found = self._waiting.add_together(records, chosen)
        self._firing.tallies.add(NEW, times(found.edges, self._waiting.windows_each))
        return found.end, found.others

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Advance the watermark because of the record at `position`, and handle all due event timers.

        Raises:
            InvariantBroken: the new watermark is lower, and the profile does not allow that.
        """
        timers = self._timers
        if watermark_ms < timers.watermark_ms and self._profile.refuses_regression:
            check_watermark(timers.watermark_ms, watermark_ms, position)
        if not timers.event_timers.may_be_due(watermark_ms):
            timers.watermark_ms = watermark_ms
            return
        self._intervals.clear()
        if self._firing.is_plain:
            self._finish_windows(watermark_ms, position)
        moment = Moment(MIN_TIME_MS, position)
        for at_ms, timer in timers.advance_watermark(watermark_ms):
            if at_ms != moment.at_ms:
                moment = Moment(at_ms, position)
            self._on_timer(EVENT, timer, moment)

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        """Advance the clock and handle all due processing timers, each at its own instant.

        If `inclusive` is False, timers at `processing_time_ms` itself wait, so that a record that arrives at that
        instant is processed first. If it is True, no record of that instant may follow, because the record would open
        a window that has just ended a second time.
        """
        timers = self._timers
        if not timers.processing_timers.may_be_due(processing_time_ms):
            timers.processing_time_ms = processing_time_ms
            return
        for at_ms, timer in timers.advance_processing_time(processing_time_ms, inclusive=inclusive):
            self._on_timer(PROCESSING, timer, Moment(at_ms, position))

    def _finish_windows(self, watermark_ms: int, position: Position) -> None:
        """Fast path for shared timers: fire and delete windows that can fire only once, call the trigger for others."""
        timers = self._timers
        timers.watermark_ms = watermark_ms
        while (due := timers.event_timers.due_together(watermark_ms)) is not None:
            at_ms, shared = due
            moment = Moment(at_ms, position)
            groups = [self._by_bounds[bounds] for bounds in shared]
            if len(groups) == 1 and groups[0].is_only_waiting(at_ms):
                self._firing.finish_waiting(groups[0], moment)
                del self._by_bounds[groups[0].window]
                continue
            windows = cast("list[OpenWindow]", in_order(shared))  # only windows share timers here
            emptied = self._store.take(shared)
            others: list[OpenWindow] = []
            # Part by part, so that the windows of a part stay in the processor's caches until they are deleted.
            while windows:
                part = windows[: self.windowing.together_max]
                del windows[: self.windowing.together_max]
                others += self._firing.finish(part, moment)
            self._store.put_back(emptied, others)
            for open_window in others:
                self._on_timer(EVENT, open_window, moment)

    def _on_timer(self, domain: Domain, timer: DueTimer, moment: Moment) -> None:
        """Call the trigger for a due timer. If the timer is the cleanup timer, delete the window's state."""
        # The owner of a shared timer is the window itself.
        open_window = timer if isinstance(timer, OpenWindow) else self._store.find(timer.key, timer.namespace)
        if open_window is None:
            return  # the window was merged into another window or cleaned up
        at_ms = moment.at_ms
        is_end = at_ms == open_window.cleanup_ms and self._is_event_time == (domain == EVENT)
        if not (is_end and open_window.cleanup_deleted):
            ask = self._trigger.on_event_time if domain == EVENT else self._trigger.on_processing_time
            result = ask(at_ms, open_window.window, open_window)
            if result is not CONTINUE:
                self._firing.apply(result, open_window, moment)
        if is_end:
            self._firing.clean_up(open_window, moment)

    def next_event_timer_ms(self) -> int | None:
        """Return the lowest watermark at which a timer is due, or None if there are no event timers."""
        return self._timers.event_timers.next_ms()

    def next_processing_timer_ms(self) -> int | None:
        """Return the earliest instant at which a processing timer is due, or None if there are none."""
        return self._timers.processing_timers.next_ms()

    @property
    def watermark_ms(self) -> int:
        return self._timers.watermark_ms

    def drain(self) -> list[Output]:
        """Return the outputs since the last call, in emission order."""
        outputs: list[Output] = []
        for output in self.drain_together():
            if isinstance(output, OnlyPanes):
                outputs += output.panes()
            else:
                outputs.append(output)
        return outputs

    def drain_together(self) -> list[Output | OnlyPanes]:
        """Return the outputs as `drain`, but panes that were computed together as one element."""
        self._count_entered()
        if self._defers and self._store.waiting_count > self.windowing.waiting_max:
            self._store.settle_waiting()
        outputs = self._runtime.outputs
        self._runtime.outputs = []
        return outputs

    def _count_entered(self) -> None:
        """Count the edges that opened: apart from those in windows, because the audit compares the two."""
        self._firing.tallies.add(NEW, edges_with(NO_EDGES, self._entered))
        self._entered.clear()

    def take_tallies(self) -> dict[str, Tally]:
        """Return the tallies of edges since the last call: 'new', and 'closed:<reason>' for each reason.

        Law: edges open before + new = edges open now + closed, in counts, in XOR, and in sums modulo 2**64.
        """
        self._count_entered()
        return self._firing.tallies.take()

    def open_edges(self) -> Tally:
        """Return the tally of the edges of all open windows."""
        return self._store.edges()

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows in a fixed order. The operator's own state does not change."""
        return Snapshot(
            watermark_ms=self._timers.watermark_ms,
            processing_time_ms=self._timers.processing_time_ms,
            stagger_ms=None if self._lacks_stagger else self._runtime.stagger_ms,
            windows=self._store.rows(),
            timers=self._timers.snapshot(),
            user_state=self._user_state.rows(),
        )

    def restore(self, snapshot: Snapshot, *, after_failure: bool = False) -> None:
        """Restore a snapshot into a fresh operator.

        `after_failure` has an effect in the flink profile only: after a failure, Flink loses its watermark (F2) and
        its stagger.

        Raises:
            CheckpointError: the snapshot has another version or other key groups, or a row is damaged.
        """
        snapshot.check_version()
        self._timers.processing_time_ms = snapshot.processing_time_ms
        if self._profile.watermark_survives_failure or not after_failure:
            self._timers.watermark_ms = snapshot.watermark_ms
            if snapshot.stagger_ms is not None:
                self.set_stagger(snapshot.stagger_ms)
        # The order matters: the store reads the watermark to decide which windows still wait for their end, and the
        # timer service skips the timers that the store's windows share by then.
        self._store.restore(snapshot.windows)
        self._timers.restore(snapshot.timers)
        self._user_state.restore(snapshot.user_state)

    def set_stagger(self, stagger_ms: int) -> None:
        """Set the stagger. A driver of several operators sets the same value in all, from the log's first record."""
        self._runtime.stagger_ms = stagger_ms
        self._lacks_stagger = False

    def _choose_stagger(self, now_ms: int) -> None:
        assigner = self._assigner
        if isinstance(assigner, Tumbling):
            self.set_stagger(assigner.stagger.offset(assigner.size_ms, now_ms, assigner.seed))

    def _without_window(self, record: Record, missed: Sequence[Window], *, is_assigned: bool) -> Fate:
        """Emit a record that missed windows or has none, and return its fate."""
        watermark_ms = self._timers.watermark_ms
        outputs, profile = self._runtime.outputs, self._profile
        timestamp_ms = MIN_TIME_MS if record.timestamp_ms is None else record.timestamp_ms
        late_from_ms = profile.add(timestamp_ms, self.windowing.allowed_lateness_ms)
        is_behind = self._is_event_time and late_from_ms <= watermark_ms
        if not missed and (profile.reports_gaps or not is_behind):
            outputs.append(Unassigned(record, watermark_ms))
            return UNASSIGNED
        reason = PAST_CLEANUP if missed else LATE_IN_GAP
        if missed:
            late_from_ms = max(self._store.lifetime(window)[1] for window in missed)
            if profile.wraps_int64 and not is_behind and not is_assigned:
                reason = WRAPPED_WINDOW
        outputs.append(
            Late(
                record=record,
                missed=tuple(missed),
                missed_all=not is_assigned,
                watermark_ms=watermark_ms,
                late_by_ms=max(watermark_ms - late_from_ms, 0),
                reason=reason,
            )
        )
        return ASSIGNED if is_assigned else LATE
