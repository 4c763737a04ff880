"""The window operator for triggers that wait for the end of windows. It gives the outputs and state of WindowOperator.

Nothing reads a window before its end then. So records wait in lists until the end (windowlib.windows.fast.waiting), and
windows that can fire only once fire together, without an object for each. Everything else is WindowOperator's.
"""

from collections.abc import Sequence
from typing import cast

from windowlib.bounds import Window
from windowlib.functions.window_functions import ProcessFunction
from windowlib.keyed.timers import EVENT, KeyGroupRange, in_order
from windowlib.records.record_columns import RecordColumns
from windowlib.records.records import OnlyPanes, Output, Position, Record
from windowlib.records.tallies import FIRED, NEW, NO_EDGES, times
from windowlib.triggers.flink import EventTime
from windowlib.triggers.wrappers import Purging
from windowlib.windows.fast.group_values import GroupValues
from windowlib.windows.fast.shared_store import SameBounds, SharedStore, by_key
from windowlib.windows.fast.waiting import WaitingRecords
from windowlib.windows.firing import Moment
from windowlib.windows.open_windows import edges_with
from windowlib.windows.window_operator import WindowOperator
from windowlib.windows.window_store import WindowStore
from windowlib.windows.windowing import Windowing


class FastOperator(WindowOperator):
    """Runs the windows of many keys (windowlib.keyed.operator_protocol.BulkOperator). `runs` says which ones."""

    def __init__(self, windowing: Windowing, groups: KeyGroupRange | None = None) -> None:
        """Create an operator without state; `WindowSpec.build` does this from a spec that it has checked."""
        super().__init__(windowing, groups)
        self._shared = cast("SharedStore", self._store)
        self._waiting = WaitingRecords(self._shared, windowing.assigner, takes_values=self._takes_values)
        self._group_values = _group_values(windowing)

    @staticmethod
    def runs(windowing: Windowing) -> bool:
        """Return whether nothing reads a window of this operator before its end, and windows can share timers."""
        assigner, profile = windowing.assigner, windowing.profile
        return (
            windowing.trigger.waits_for_end
            and assigner.is_event_time
            and not assigner.is_merging
            and profile.refuses_regression
            and profile.protects_cleanup_timer
            and not profile.completes_at_end
        )

    def _new_store(self) -> WindowStore:
        windowing = self.windowing
        return SharedStore(
            self._runtime, self._contents, windowing.allowed_lateness_ms, pending_max=windowing.pending_max
        )

    def _enter(self, window: Window, record: Record) -> bool:
        """Let a record wait for a window's end. If the window has ended, do as for any window."""
        same_bounds = self._shared.by_bounds.get(window)
        if same_bounds is None:
            same_bounds = self._shared.group(window)
        if same_bounds is None or same_bounds.complete_ms <= self._timers.watermark_ms:
            return super()._enter(window, record)
        same_bounds.keys.append(record[0])
        same_bounds.items.append(record[2] if self._takes_values else record)
        same_bounds.hashes.append(record[4])
        return True

    def quiet_until_ms(self) -> int | None:
        return self._waiting.quiet_until_ms()

    def process_together(self, records: RecordColumns, chosen: range) -> tuple[int, Sequence[int]]:
        by_interval = self._waiting.add_together(records, chosen)
        self._firing.tallies.add(NEW, times(by_interval.edges, self._waiting.windows_each))
        return by_interval.end, by_interval.others

    def _handle_due(self, watermark_ms: int, position: Position) -> None:
        """Fire and delete groups that can fire only once, and handle all other timers as for any window."""
        if self._group_values is not None:
            timers, by_bounds = self._timers, self._shared.by_bounds
            timers.watermark_ms = watermark_ms
            while (due := timers.event_timers.due_together(watermark_ms)) is not None:
                at_ms, shared = due
                moment = Moment(at_ms, position)
                groups = [by_bounds[bounds] for bounds in shared]
                if len(groups) == 1 and groups[0].is_only_waiting(at_ms):
                    self._finish(groups[0], moment, self._group_values)
                    continue
                for owner in in_order(shared):
                    self._on_timer(EVENT, owner, moment)
        super()._handle_due(watermark_ms, position)

    def _finish(self, same_bounds: SameBounds, moment: Moment, group_values: GroupValues) -> None:
        """Fire and delete the windows of a group without window objects: trigger, `apply` and `clean_up` in one."""
        keys, groups = self._timers.orders.in_order(by_key(same_bounds.keys, same_bounds.items))
        self._firing.tallies.add(FIRED, edges_with(NO_EDGES, same_bounds.hashes))
        self._emitted().append(
            OnlyPanes(
                keys=keys,
                values=group_values.values(groups),
                record_counts=list(map(len, groups)),
                window=same_bounds.window,
                mode=self.windowing.mode,
                watermark_ms=self._timers.watermark_ms,
                position=moment.position,
                timestamp_ms=moment.at_ms,
            )
        )
        del self._shared.by_bounds[same_bounds.window]

    def _emitted(self) -> list[Output | OnlyPanes]:
        """Return the outputs since the last call of `drain`. WindowOperator adds single ones only."""
        return cast("list[Output | OnlyPanes]", self._runtime.outputs)

    def drain(self) -> list[Output]:
        outputs: list[Output] = []
        for output in self.drain_together():
            outputs += output.panes() if isinstance(output, OnlyPanes) else (output,)
        return outputs

    def drain_together(self) -> list[Output | OnlyPanes]:
        if self._shared.waiting_count > self.windowing.waiting_max:
            self._shared.settle_waiting()
        outputs = self._emitted()
        super().drain()
        return outputs


def _group_values(windowing: Windowing) -> GroupValues | None:
    """Return how to compute the panes of windows that can fire only once. None: windows can fire more often."""
    function = windowing.function
    if isinstance(function, ProcessFunction) or function.then is not None or windowing.evictor is not None:
        return None
    fires_once = windowing.trigger in (EventTime(), Purging(EventTime())) and not windowing.allowed_lateness_ms
    has_plain_panes = not windowing.retracts and windowing.timestamp_combiner == "end_of_window"
    return GroupValues(function) if fires_once and has_plain_panes else None
