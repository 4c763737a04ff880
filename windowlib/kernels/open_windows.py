"""The open windows of a bucket as columns, and their rows in the checkpoint tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windowlib.bounds import MAX_TIME_MS
from windowlib.columnar.arrow import int64s
from windowlib.columnar.plan import BucketPlan
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Bools, Int64s
from windowlib.kernels.block import added
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.keys import KeyTable
from windowlib.kernels.panes import TableColumns
from windowlib.keyed.state_rules import ONE_ROW, wrong_value
from windowlib.keyed.timers import EVENT, KeyGroupRange
from windowlib.records import tables
from windowlib.records.plain_json import from_json, to_json

_COUNT: Final = "count"
"""The name of the count in the state of the trigger CountReached."""
_EDGES: Final = ("edge", "fired")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindows:
    """Open windows as columns, one element per window (windowlib.windows.open_windows.OpenWindow).

    The global window has the bounds 0 and 0. `trigger_count` is the count of a count trigger, 0 if it has no state.
    `states` has the contents: the states of each aggregate.
    """

    key_code: Int64s
    start_ms: Int64s
    end_ms: Int64s
    state_start_ms: Int64s
    state_end_ms: Int64s
    edges: EdgeColumns
    fired: EdgeColumns
    pane_index: Int64s
    nonspeculative_count: Int64s
    is_complete: Bools
    trigger_count: Int64s
    states: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.key_code)

    @classmethod
    def fresh(
        cls, key_code: Int64s, bounds: tuple[Int64s, Int64s], *, edges: EdgeColumns, states: Sequence[Any]
    ) -> "OpenWindows":
        """Return new windows with contents. No pane has shown them."""
        count = len(key_code)
        nothing = np.zeros(count, dtype=np.int64)
        return cls(
            key_code=key_code,
            start_ms=bounds[0],
            end_ms=bounds[1],
            state_start_ms=bounds[0],
            state_end_ms=bounds[1],
            edges=edges,
            fired=EdgeColumns.none(count),
            pane_index=nothing,
            nonspeculative_count=nothing,
            is_complete=np.zeros(count, dtype=np.bool_),
            trigger_count=nothing,
            states=tuple(states),
        )

    @classmethod
    def none(cls, aggregates: Sequence[AnyAggregate]) -> "OpenWindows":
        nothing = np.zeros(0, dtype=np.int64)
        states = [aggregate.empty(0) for aggregate in aggregates]
        return cls.fresh(nothing, (nothing, nothing), edges=EdgeColumns.none(0), states=states)

    def take(self, places: Int64s, aggregates: Sequence[AnyAggregate]) -> "OpenWindows":
        if len(places) == len(self) and bool((places[1:] > places[:-1]).all()):
            return self  # all windows in their order: usual after a restore
        states = tuple(form.take(state, places) for form, state in zip(aggregates, self.states, strict=True))
        chosen = {name: getattr(self, name).take(places) for name in _PLAIN}
        return replace(self, edges=self.edges.take(places), fired=self.fired.take(places), states=states, **chosen)

    @classmethod
    def concat(cls, parts: Sequence["OpenWindows"], aggregates: Sequence[AnyAggregate]) -> "OpenWindows":
        if len(parts) == 1:
            return parts[0]
        plain = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _PLAIN}
        return cls(
            **plain,
            edges=EdgeColumns.concat([part.edges for part in parts]),
            fired=EdgeColumns.concat([part.fired for part in parts]),
            states=tuple(form.concat([part.states[i] for part in parts]) for i, form in enumerate(aggregates)),
        )


_PLAIN: Final = tuple(field.name for field in fields(OpenWindows) if field.name not in ("edges", "fired", "states"))


class CheckpointColumns:
    """Converts open windows to rows of `window_state` and `timers`, and back."""

    def __init__(
        self, plan: BucketPlan, keys: KeyTable, aggregates: Sequence[AnyAggregate], *, lateness_ms: int | None
    ) -> None:
        """Prepare for one pipeline. `lateness_ms` is None for the global window, which has no timers."""
        self._keys = keys
        self._aggregates = aggregates
        self._lateness_ms = lateness_ms
        self._max_parallelism = plan.max_parallelism
        self._states = [f"acc_{name}" for name in plan.accumulators]
        self._rows = TableColumns(plan, keys, (tables.WINDOW_STATE, tables.TIMERS))

    def rows(self, opened: OpenWindows, watermark_ms: int) -> dict[str, pa.Table]:
        """Return the rows of the checkpoint at this watermark. A table without rows is missing."""
        if not len(opened):
            return {}
        rows = {tables.WINDOW_STATE: self._window_rows(opened)}
        timers = self._timer_rows(opened, watermark_ms)
        return rows | ({tables.TIMERS: timers} if timers.num_rows else {})

    def restored(self, state: Mapping[str, pa.Table]) -> OpenWindows:
        """Return the open windows of a checkpoint. The timers follow from them.

        Raises CheckpointError: a window has two rows, or a row has a wrong key group.
        """
        rows = state.get(tables.WINDOW_STATE)
        if rows is None or not rows.num_rows:
            return OpenWindows.none(self._aggregates)
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        key_code = self.key_numbers(rows)
        bounds = ("window_start_ms", "window_end_ms", "state_window_start_ms", "state_window_end_ms")
        start_ms, end_ms, state_start_ms, state_end_ms = (int64s(columns[name]) for name in bounds)
        self._check(columns, key_code, (start_ms, end_ms))
        edges, fired = (
            EdgeColumns(*(int64s(columns[f"{name}_{part}"]) for part in ("count", "xor", "sum"))) for name in _EDGES
        )
        return OpenWindows(
            key_code=key_code,
            start_ms=start_ms,
            end_ms=end_ms,
            state_start_ms=state_start_ms,
            state_end_ms=state_end_ms,
            edges=edges,
            fired=fired,
            pane_index=int64s(columns["pane_index"]),
            nonspeculative_count=int64s(columns["nonspeculative_count"]),
            is_complete=columns["is_complete"].to_numpy(zero_copy_only=False),
            trigger_count=_trigger_counts(columns["trigger_state"]),
            states=tuple(
                aggregate.from_columns(columns[name])
                for aggregate, name in zip(self._aggregates, self._states, strict=True)
            ),
        )

    def key_numbers(self, rows: pa.Table) -> Int64s:
        return self._keys.encode([rows[name].combine_chunks() for name in self._rows.key_names], rows.num_rows)

    def _check(self, columns: Mapping[str, pa.Array], key_code: Int64s, bounds: tuple[Int64s, Int64s]) -> None:
        groups, stored = self._keys.groups(key_code), int64s(columns["key_group"])
        if (groups != stored).any():
            row = int(np.argmax(groups != stored))
            named = (self._keys.key(int(key_code[row])), (int(bounds[0][row]), int(bounds[1][row])))
            owned = KeyGroupRange(0, self._max_parallelism, self._max_parallelism)
            owned.check_row(tables.WINDOW_STATE, int(stored[row]), int(groups[row]), row=named)
        order = np.lexsort((bounds[1], bounds[0], key_code))
        same = [column[order][1:] == column[order][:-1] for column in (key_code, *bounds)]
        twice = np.flatnonzero(same[0] & same[1] & same[2])
        if len(twice):
            row = int(order[twice[0]])
            named = (self._keys.key(int(key_code[row])), (int(bounds[0][row]), int(bounds[1][row])))
            raise wrong_value(tables.WINDOW_STATE, "window_start_ms", row=named, stored="two rows", allowed=ONE_ROW)

    def _window_rows(self, opened: OpenWindows) -> pa.Table:
        count = len(opened)
        has_bounds = self._lateness_ms is not None
        bounds = {
            "window_start_ms": opened.start_ms,
            "window_end_ms": opened.end_ms,
            "state_window_start_ms": opened.state_start_ms,
            "state_window_end_ms": opened.state_end_ms,
        }
        states = zip(self._states, self._aggregates, opened.states, strict=True)
        columns = {
            **self._rows.key_columns(tables.WINDOW_STATE, opened.key_code),
            **{name: bound if has_bounds else pa.nulls(count, pa.int64()) for name, bound in bounds.items()},
            **{name: aggregate.to_columns(state) for name, aggregate, state in states},
            "contents": _empty_lists(self._rows.kinds[tables.WINDOW_STATE]["contents"], count),
            "trigger_state": _trigger_states(opened.trigger_count),
            "record_count": opened.edges.count,
            **_edge_columns(opened),
            "pane_index": opened.pane_index,
            "nonspeculative_count": opened.nonspeculative_count,
            "last_count": 0,
            "is_complete": opened.is_complete,
            "is_cleanup_silent": False,
            "is_orphan": False,
            "key_group": self._keys.groups(opened.key_code),
        }
        return self._rows.table(tables.WINDOW_STATE, columns, count)

    def _timer_rows(self, opened: OpenWindows, watermark_ms: int) -> pa.Table:
        """Return the timers: each window's cleanup timer, and its end timer while the watermark is before the end.

        A window has no cleanup timer at MAX_TIME_MS. At a common instant, the cleanup timer is also the end timer.
        """
        places, instants = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if self._lateness_ms is not None:
            complete_ms = opened.end_ms - 1
            cleanup_ms = added(complete_ms, self._lateness_ms)
            has_cleanup = cleanup_ms < MAX_TIME_MS
            has_end = (complete_ms > watermark_ms) & ~(has_cleanup & (complete_ms == cleanup_ms))
            at_cleanup, at_end = np.flatnonzero(has_cleanup), np.flatnonzero(has_end)
            places = np.concatenate([at_cleanup, at_end])
            instants = np.concatenate([cleanup_ms[at_cleanup], complete_ms[at_end]])
        key_code = opened.key_code[places]
        columns = {
            **self._rows.key_columns(tables.TIMERS, key_code),
            "window_start_ms": opened.start_ms[places],
            "window_end_ms": opened.end_ms[places],
            "domain": EVENT,
            "at_ms": instants,
            "key_group": self._keys.groups(key_code),
        }
        return self._rows.table(tables.TIMERS, columns, len(places))


def _edge_columns(opened: OpenWindows) -> dict[str, Int64s]:
    columns: dict[str, Int64s] = {}
    for name, edges in zip(_EDGES, (opened.edges, opened.fired), strict=True):
        columns |= {f"{name}_count": edges.count, f"{name}_xor": edges.xor, f"{name}_sum": edges.total}
    return columns


def _empty_lists(kind: pa.ListType, count: int) -> pa.Array:
    offsets = pa.array(np.zeros(count + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type), type=kind)


def _trigger_states(counts: Int64s) -> pa.Array:
    distinct, places = np.unique(counts, return_inverse=True)
    texts = [to_json({_COUNT: count} if count else {}) for count in distinct.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places))


def _trigger_counts(states: pa.Array) -> Int64s:
    encoded = states.dictionary_encode()
    counts = [from_json(text).get(_COUNT, 0) for text in encoded.dictionary.to_pylist()]
    numbers: Int64s = np.array(counts, dtype=np.int64)[encoded.indices.to_numpy()]
    return numbers
