"""The open windows of an Atlas operator, with their documents and closing times."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from operator import itemgetter
from typing import Any, Final, NamedTuple

from windowlib.atlas.documents.documents import SortKey, Value, sort_key
from windowlib.atlas.documents.json_documents import read_literal, to_json
from windowlib.atlas.documents.places import Place
from windowlib.bounds import TimeWindow
from windowlib.errors import CheckpointError
from windowlib.keyed.key_order import KeyOrders, group_of_order
from windowlib.keyed.snapshots import WindowStateRow
from windowlib.keyed.state_rules import ONE_ROW, wrong_value
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import Stored
from windowlib.records.tables import WINDOW_STATE
from windowlib.records.tallies import edges_of, signed

_PARTITION: Final = "partition"
STALE_MAX: Final = 1024
"""The heap of closing times is rebuilt when it has more entries than twice the open windows plus this number."""

_Due = tuple[int, str, TimeWindow, SortKey]


LaneName = tuple[str, SortKey]
"""(order of the key, order of the partition). Partitions that are equal in the order of BSON are the same partition."""


class Lane(NamedTuple):
    """The open windows of one key and one partition. Only documents of one lane can share a window."""

    name: LaneName
    key: Hashable
    partition: Value
    windows: dict[TimeWindow, list[Stored]]


class Closing(NamedTuple):
    """A window that closes, with its records."""

    at_ms: int
    lane: Lane
    window: TimeWindow
    contents: list[Stored]


class OpenDocuments:
    """All open windows. They close in the order (time, key group and key, window, partition).

    `closes_at` returns the time at which a window closes: a watermark, or a time of the clock.
    """

    def __init__(
        self, closes_at: Callable[[TimeWindow], int], groups: KeyGroupRange | None, *, stale_max: int = STALE_MAX
    ) -> None:
        self._stale_max = stale_max
        self._closes_at = closes_at
        self._groups = groups or KeyGroupRange()
        self._order = KeyOrders(self._groups.max_parallelism).__getitem__
        self._lanes: dict[LaneName, Lane] = {}
        self._window_count = 0
        self._due: list[_Due] = []
        """A heap. The entry of a window that was merged away is stale; it is dropped at the top or in a rebuild."""

    def lane(self, key: Hashable, partition: Value = None) -> Lane:
        """Return the lane of a key and partition. A new lane is kept only from its first `put` on."""
        name = (self._order(key), sort_key(partition))
        return self._lanes.get(name) or Lane(name, key, partition, {})

    def put(self, lane: Lane, window: TimeWindow, stored: Stored) -> None:
        """Add a record to a window, and open the window if it is new. Records must come in log order."""
        if window not in lane.windows:
            self._open(lane, window, [])
        lane.windows[window].append(stored)

    def merge(self, lane: Lane, met: list[TimeWindow], cover: TimeWindow) -> None:
        """Replace the windows `met` by `cover`, and keep their records in log order."""
        if met == [cover]:
            return
        parts = [lane.windows.pop(window) for window in met]
        self._window_count -= len(met)
        # In most cases one session grows. It keeps its list: copying it would cost O(n) per record.
        self._open(lane, cover, parts[0] if len(parts) == 1 else list(merge(*parts, key=itemgetter(0))))

    def _open(self, lane: Lane, window: TimeWindow, contents: list[Stored]) -> None:
        self._lanes[lane.name] = lane
        lane.windows[window] = contents
        self._window_count += 1
        if len(self._due) > 2 * self._window_count + self._stale_max:
            self._due = [self._entry(lane, window) for lane in self._lanes.values() for window in lane.windows]
            heapify(self._due)
        else:
            heappush(self._due, self._entry(lane, window))

    def _entry(self, lane: Lane, window: TimeWindow) -> "_Due":
        order, partition = lane.name
        return (self._closes_at(window), order, window, partition)

    def next_ms(self) -> int | None:
        """Return the time at which the first window closes, or None if no window is open."""
        while self._due:
            at_ms, order, window, partition = self._due[0]
            lane = self._lanes.get((order, partition))
            if lane is not None and window in lane.windows:
                return at_ms
            heappop(self._due)
        return None

    def take_due(self, until_ms: int) -> Iterator[Closing]:
        """Remove and yield the windows that close at `until_ms` or earlier."""
        while (at_ms := self.next_ms()) is not None and at_ms <= until_ms:
            _, order, window, partition = heappop(self._due)
            lane = self._lanes[order, partition]
            contents = lane.windows.pop(window)
            self._window_count -= 1
            if not lane.windows:
                del self._lanes[lane.name]
            yield Closing(at_ms, lane, window, contents)

    def rows(self) -> list[WindowStateRow]:
        """Return all windows as rows, sorted by (key group, key, window, partition)."""
        opened = [(name[0], window, name[1]) for name, lane in self._lanes.items() for window in lane.windows]
        return [self._row(self._lanes[order, partition], window) for order, window, partition in sorted(opened)]

    def _row(self, lane: Lane, window: TimeWindow) -> WindowStateRow:
        contents = lane.windows[window]
        edge_count, edge_xor, edge_sum = signed(edges_of(contents))
        state: dict[str, Any] = {} if lane.partition is None else {_PARTITION: to_json(lane.partition)}
        return WindowStateRow(
            key_group=group_of_order(lane.name[0]),
            key=lane.key,
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            state_window_start_ms=window.start_ms,
            state_window_end_ms=window.end_ms,
            contents=list(contents),
            trigger_state=state,
            record_count=edge_count,
            edge_count=edge_count,
            edge_xor=edge_xor,
            edge_sum=edge_sum,
        )

    def restore(self, rows: Iterable[WindowStateRow]) -> None:
        """Open the windows of one or more snapshots.

        Raises CheckpointError: a row has a key group that this operator does not own, has no bounds, or occurs twice.
        """
        for row in rows:
            partition = read_literal(row.trigger_state.get(_PARTITION), Place("the checkpoint's partition"))
            lane = self.lane(row.key, partition)
            named = (row.key, (row.window_start_ms, row.window_end_ms))
            self._groups.check_row(WINDOW_STATE, row.key_group, group_of_order(lane.name[0]), row=named)
            if row.window_start_ms is None or row.window_end_ms is None:
                raise CheckpointError(
                    f"the checkpoint has a window of key {row.key!r} without bounds, but Atlas's windows have bounds; "
                    "another pipeline wrote the checkpoint: replay from the start of the log"
                )
            window = TimeWindow(row.window_start_ms, row.window_end_ms)
            if window in lane.windows:
                raise wrong_value(WINDOW_STATE, "window_start_ms", row=named, stored="two rows", allowed=ONE_ROW)
            self._open(lane, window, [Stored(*stored) for stored in row.contents])
