"""Firing, purging, superseding and cleanup of one open window, with the edge counts that the audit reads.

`Firing.apply` is the only place that acts on a trigger's result.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from windowlib.bounds import MIN_TIME_MS
from windowlib.functions.window_functions import Whole, process_function
from windowlib.records.named_rows import in_columns
from windowlib.records.records import EARLY, LATE_FIRING, ON_TIME, Mode, Pane, Position, Stored, Timing
from windowlib.records.tallies import (
    EVICTED,
    FIRED,
    LEFT_OVER,
    NEVER_FIRED,
    NO_EDGES,
    PURGED,
    EdgeTallies,
    difference,
    edges_of,
)
from windowlib.triggers.protocol import FINISHED, TriggerResult
from windowlib.windows.contents import Contents, WindowScope, place_of
from windowlib.windows.open_windows import OpenWindow, Runtime
from windowlib.windows.output_times import take_hold
from windowlib.windows.window_store import WindowStore
from windowlib.windows.windowing import Windowing


class Moment(NamedTuple):
    """When a window fires: the instant of its timer, and the position of the record that advanced the time."""

    at_ms: int
    position: Position


def on_record(position: Position) -> Moment:
    """Return the moment of a firing that a record causes. It has no timer, so `is_last` is True only if it finishes."""
    return _new_moment(Moment, (MIN_TIME_MS, position))


_new_moment = tuple.__new__  # takes half the time of Moment(...)
_new_pane = tuple.__new__  # takes a third of the time of Pane(...), and runs for every pane


class Firing:
    """Fires, purges, supersedes and cleans up the open windows of one operator."""

    def __init__(self, windowing: Windowing, runtime: Runtime, contents: Contents, store: WindowStore) -> None:  # noqa: PLR0917
        self._trigger = windowing.trigger
        self._evictor = windowing.evictor
        self._profile = windowing.profile
        self._fires_leftovers = windowing.leftovers == "fire"
        self._mode = windowing.mode
        self._accumulates = windowing.mode == "accumulating"
        self._retracts = windowing.retracts
        function = windowing.function
        self._columns = function.columns if isinstance(function, Whole) else ()
        self._is_whole = isinstance(function, Whole) and not self._columns
        self._holds = windowing.timestamp_combiner != "end_of_window"
        self._past_last_ms = 1 if runtime.is_event_time and windowing.profile.completes_at_end else 0
        self._then = process_function(windowing.function)
        self._runtime = runtime
        self._contents = contents
        self._store = store
        self.tallies = EdgeTallies()

    def apply(self, result: TriggerResult, open_window: OpenWindow, moment: Moment) -> None:
        """Apply a trigger's result. An empty window fires only if the profile asks for an empty ON_TIME pane."""
        if result.is_fire and (open_window.edge_count or self._is_empty_pane_due(open_window, moment)):
            self._fire(open_window, moment, is_finish=result.is_finish)
        if result.is_purge:
            self._purge(open_window)

    def _is_empty_pane_due(self, open_window: OpenWindow, moment: Moment) -> bool:
        """Return whether this firing is at the window's end and the profile emits an ON_TIME pane without contents."""
        return (
            self._profile.fires_empty_on_time
            and moment.at_ms == open_window.complete_ms
            and not open_window.is_complete
            and self._runtime.is_event_time
        )

    def _fire(self, open_window: OpenWindow, moment: Moment, *, is_finish: bool = False) -> None:
        """Emit a pane for each value that the function returns; without one, withdraw the pane that readers see."""
        index = open_window.pane_index
        if open_window.pending:
            open_window.settle()
        evictor, is_empty = self._evictor, not open_window.settled_edges[0]
        if evictor is not None:
            self._keep(open_window, evictor.keep_before(open_window.contents, open_window.window, self._runtime))
        if self._retracts:
            self.take_back(open_window, moment.position)
        if open_window.settled_edges[0] or is_empty or not self._profile.skips_empty_panes:
            results = self._contents.results(open_window, open_window.contents, moment.position)
            self._emit(open_window, results, moment, is_finish=is_finish)
        if index == open_window.pane_index and index and self._accumulates and not open_window.starts_anew:
            self._withdraw(open_window, moment.position, is_last=is_finish)
        open_window.fired = open_window.settled_edges
        if evictor is not None:
            self._keep(open_window, evictor.keep_after(open_window.contents, open_window.window, self._runtime))

    def _emit(self, open_window: OpenWindow, results: Iterable[Any], moment: Moment, *, is_finish: bool) -> None:
        runtime, timers = self._runtime, self._runtime.timers
        now_ms = timers.watermark_ms if runtime.is_event_time else timers.processing_time_ms
        complete_ms, cleanup_ms, index = open_window.complete_ms, open_window.cleanup_ms, open_window.pane_index
        at_ms, position = moment
        timing: Timing = EARLY
        nonspeculative_index = -1
        if now_ms >= complete_ms:
            is_late = open_window.is_complete or (at_ms != complete_ms and self._profile.only_end_is_on_time)
            timing = LATE_FIRING if is_late else ON_TIME
            open_window.is_complete = True
            nonspeculative_index = open_window.nonspeculative_count
        is_last = is_finish or (
            now_ms >= cleanup_ms
            and (at_ms == cleanup_ms or (at_ms >= complete_ms and not self._trigger.fires_after_end))
        )
        timestamp_ms = complete_ms - self._past_last_ms
        if self._holds:
            is_kept = timing == EARLY and self._trigger.has_on_time_pane
            timestamp_ms = take_hold(open_window.state, timestamp_ms, is_kept=is_kept)
        mode: Mode = "discarding" if open_window.starts_anew else self._mode
        for values in results:
            open_window.pane_index = index + 1
            open_window.starts_anew = False
            if nonspeculative_index >= 0:
                open_window.nonspeculative_count = nonspeculative_index + 1
            if self._holds:
                open_window.last_pane_ms = timestamp_ms
            pane = (
                open_window.key,
                open_window.window,
                values,
                index,
                timing,
                index == 0,
                is_last,
                mode,
                "result",
                open_window.settled_edges[0],
                timers.watermark_ms,
                position,
                timestamp_ms,
                nonspeculative_index,
            )
            runtime.outputs.append(_new_pane(Pane, pane))
            if self._retracts and not is_finish:
                open_window.last_values = self._as_columns(values)
                open_window.last_count = open_window.edge_count

    def _as_columns(self, values: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a user's function may return any value
        """Return the values of a pane as a checkpoint stores them, so that a restored window retracts the same."""
        if self._columns:
            return tuple(in_columns(values, self._columns, where="the output"))
        return (values,) if self._is_whole else values

    def take_back(self, open_window: OpenWindow, position: Position, *, is_last: bool = False) -> None:
        """Retract the values of the last pane of these bounds, if they are not retracted yet."""
        values = open_window.last_values
        if values is None:
            return
        open_window.last_values = None
        self._runtime.outputs.append(
            Pane(
                key=open_window.key,
                window=open_window.window,
                values=values[0] if self._is_whole else values,
                pane_index=open_window.pane_index - 1,
                timing=LATE_FIRING if open_window.is_complete else EARLY,
                is_first=False,
                is_last=is_last,
                mode=self._mode,
                kind="retraction",
                record_count=open_window.last_count,
                watermark_ms=self._runtime.watermark_ms,
                position=position,
                timestamp_ms=self._last_pane_ms(open_window),
                nonspeculative_index=open_window.nonspeculative_count - 1,
            )
        )

    def _withdraw(self, open_window: OpenWindow, position: Position, *, is_last: bool) -> None:
        """Supersede the last pane of a window that stays. The next pane begins anew."""
        if not self._retracts:
            self.supersede(open_window, position, is_last=is_last)
            open_window.pane_index += 1
            open_window.nonspeculative_count += open_window.is_complete
            open_window.starts_anew = True

    def supersede(self, open_window: OpenWindow, position: Position, *, is_last: bool = True) -> None:
        """Withdraw the last pane of a window: retract its values, or emit a superseded pane."""
        if self._retracts:
            self.take_back(open_window, position, is_last=True)
            return
        self._runtime.outputs.append(
            Pane(
                key=open_window.key,
                window=open_window.window,
                values=(),
                pane_index=open_window.pane_index,
                timing=LATE_FIRING if open_window.is_complete else EARLY,
                is_first=False,
                is_last=is_last,
                mode=self._mode,
                kind="superseded",
                record_count=0,
                watermark_ms=self._runtime.watermark_ms,
                position=position,
                timestamp_ms=self._last_pane_ms(open_window),
                nonspeculative_index=open_window.nonspeculative_count if open_window.is_complete else -1,
            )
        )

    def _last_pane_ms(self, open_window: OpenWindow) -> int:
        """Return the event time of the last pane, which its withdrawal has, too."""
        last_ms = open_window.last_pane_ms
        return open_window.complete_ms - self._past_last_ms if last_ms is None else last_ms

    def _keep(self, open_window: OpenWindow, kept: Sequence[Stored]) -> None:
        """Replace the records of a window by those that the evictor kept.

        If a pane has shown all records, the evicted ones count as fired, otherwise as evicted.
        """
        if len(kept) == len(open_window.contents):
            return
        edges = edges_of(kept)
        is_shown = open_window.fired[0] == open_window.edge_count
        self.tallies.add(FIRED if is_shown else EVICTED, difference(open_window.edges, edges))
        open_window.contents, open_window.edges = list(kept), edges
        open_window.fired = edges if is_shown else NO_EDGES

    def _purge(self, open_window: OpenWindow) -> None:
        """Delete the contents. Trigger state, timers and the merging set stay (FLINK-4994)."""
        if open_window.edge_count:
            self.close(open_window, PURGED)
            open_window.empty()
        self.start_anew(open_window)

    def start_anew(self, open_window: OpenWindow) -> None:
        """Mark the last pane's contents as deleted, so that no later pane replaces or retracts that pane."""
        if self._accumulates and open_window.pane_index and FINISHED not in open_window.state:
            open_window.starts_anew = True
            open_window.last_values = None

    def close(self, open_window: OpenWindow, reason: str) -> None:
        """Count the edges of contents that are deleted: as fired if a pane has shown them, otherwise under `reason`."""
        fired = open_window.fired
        self.tallies.add(FIRED, fired)
        if fired[0] != open_window.edge_count:
            self.tallies.add(reason, difference(open_window.edges, fired))

    def clean_up(self, open_window: OpenWindow, moment: Moment) -> None:
        """Delete the window and all its state, after a last pane for leftovers if the spec asks for one."""
        if self._fires_leftovers and open_window.fired[0] < open_window.edge_count:
            self._fire(open_window, moment)
        self.close(open_window, LEFT_OVER if open_window.pane_index else NEVER_FIRED)
        self._trigger.clear(open_window.window, open_window)
        if self._then is not None:
            self._then.clear(place_of(open_window), WindowScope(open_window, moment.position))
            names = [spec.name for spec in self._then.window_state]
            self._runtime.user_state.clear(open_window.key, open_window.window, names)
        self._store.remove(open_window)
