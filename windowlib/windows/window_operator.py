"""The window operator. It processes one record, one watermark or one clock tick at a time.

For each record, the operator adds the record to each of its windows that is not late, calls the trigger, and applies
the trigger's result. When the watermark or the clock advances, due timers call the trigger again. At the cleanup
instant, which is the window's last instant plus the allowed lateness, the operator deletes all state of the window.
This module is the specification of window semantics, and replays on Spark run this code. `fast.fast_operator` overrides
parts of it for triggers that wait for the end. The results are equal.
"""

from collections.abc import Sequence

from windowlib.bounds import MIN_TIME_MS, Window, lateness_ms
from windowlib.functions.window_functions import process_function
from windowlib.keyed.collecting import check_watermark
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.state import KeyedState
from windowlib.keyed.timer_owners import DueTimer
from windowlib.keyed.timers import EVENT, PROCESSING, Domain, KeyGroupRange, TimedOperator, TimerService
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
    Output,
    Position,
    Record,
    Tally,
    Unassigned,
)
from windowlib.records.tallies import NEW, NO_EDGES, edges_with
from windowlib.triggers.protocol import CONTINUE
from windowlib.windows.assigners import Stagger, Tumbling, assigning
from windowlib.windows.contents import contents_of
from windowlib.windows.firing import Firing, Moment, on_record
from windowlib.windows.open_windows import Runtime
from windowlib.windows.opening import LoneJudgingOpening, MergingOpening, Opening
from windowlib.windows.window_store import EndStore, WindowStore
from windowlib.windows.windowing import Windowing


class WindowOperator(TimedOperator):
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
        self._registers_cleanup = not windowing.profile.protects_cleanup_timer
        self._pending_max = 2 * windowing.pending_max
        self._timers = TimerService("window-timers", groups, stale_max=windowing.stale_max)
        then = process_function(windowing.function)
        declared = (*then.state, *then.window_state) if then else ()
        self._user_state = KeyedState(declared, self._timers)
        self._contents = contents_of(windowing.function, keeps_records=windowing.evictor is not None)
        self._takes_values = self._contents.takes_values
        self._runtime = Runtime(
            windowing.profile,
            self._timers,
            self._user_state,
            contents=self._contents,
            is_event_time=self._is_event_time,
        )
        self._assign = assigning(windowing.assigner, self._runtime)
        self._store = self._new_store()
        self._firing = Firing(windowing, self._runtime, self._contents, self._store)
        self._open = self._opening().open
        self._entered: list[int] = []
        """The hash of a record for each window that it entered since the last `drain` or `take_tallies`."""
        self._lacks_stagger = isinstance(self._assigner, Tumbling) and self._assigner.stagger is not Stagger.ALIGNED

    def _new_store(self) -> WindowStore:
        store = EndStore if self._profile.completes_at_end else WindowStore
        return store(self._runtime, self._contents, self.windowing.allowed_lateness_ms)

    def _opening(self) -> Opening | MergingOpening:
        """Return how records open windows."""
        if not self._assigner.is_merging:
            return Opening(self._store)
        merging = LoneJudgingOpening if self._profile.judges_record_alone else MergingOpening
        return merging(self.windowing, self._contents, store=self._store, firing=self._firing)

    def begin(self, first_arrival_ms: int) -> None:
        """Choose the stagger from the log's first arrival. Otherwise the operator's first record determines it."""
        if self._lacks_stagger:
            self._choose_stagger(first_arrival_ms)

    def process(self, record: Record) -> Fate:
        if self._lacks_stagger:
            self._choose_stagger(self._timers.processing_time_ms)
        windows, enter = self._assign(record), self._enter
        missed: list[Window] = []
        for window in windows:
            if not enter(window, record):
                missed.append(window)  # noqa: PERF401 - a comprehension is a call for each record
        entered = len(windows) - len(missed)
        self._entered += [record[4]] * entered  # a NamedTuple is unpacked slowly
        if entered and not missed:
            return ASSIGNED
        return self._without_window(record, missed, is_assigned=entered > 0)

    def _enter(self, window: Window, record: Record) -> bool:
        """Add a record to its open window and call the trigger. Return False if the record is late for the window."""
        open_window = self._open(record[0], window, record)
        if open_window is None:
            return False
        pending = open_window.pending
        pending.append(record[2] if self._takes_values else record)
        pending.append(record[4])
        if len(pending) > self._pending_max:
            open_window.settle()
        result = self._trigger.on_record(record, open_window.window, open_window)
        if result is not CONTINUE:
            self._firing.apply(result, open_window, on_record(record[3]))
        if self._registers_cleanup:
            self._store.register_cleanup(open_window)
        return True

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Advance the watermark because of the record at `position`, and handle all due event timers.

        Raises InvariantBroken: the new watermark is lower, and the profile does not allow that.
        """
        timers = self._timers
        if watermark_ms < timers.watermark_ms and self._profile.refuses_regression:
            check_watermark(timers.watermark_ms, watermark_ms, position)
        if not timers.event_timers.may_be_due(watermark_ms):
            timers.watermark_ms = watermark_ms
            return
        self._handle_due(watermark_ms, position)

    def _handle_due(self, watermark_ms: int, position: Position) -> None:
        """Advance the watermark, and handle all event timers that are due then."""
        moment = Moment(MIN_TIME_MS, position)
        for at_ms, timer in self._timers.advance_watermark(watermark_ms):
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

    def _on_timer(self, domain: Domain, timer: DueTimer, moment: Moment) -> None:
        """Call the trigger for a due timer. If the timer is the cleanup timer, delete the window's state."""
        open_window = self._store.find(timer.key, timer.namespace)
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

    def drain(self) -> list[Output]:
        self._count_entered()
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

    def snapshot(self) -> Snapshot:
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
        Raises CheckpointError: the snapshot has another version or other key groups, or a row is damaged.
        """
        snapshot.check_version()
        self._timers.processing_time_ms = snapshot.processing_time_ms
        if self._profile.watermark_survives_failure or not after_failure:
            self._timers.watermark_ms = snapshot.watermark_ms
            if snapshot.stagger_ms is not None:
                self.set_stagger(snapshot.stagger_ms)
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
                late_by_ms=lateness_ms(watermark_ms, late_from_ms),
                reason=reason,
            )
        )
        return ASSIGNED if is_assigned else LATE
