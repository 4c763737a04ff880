"""A checkpoint between tables and operator: rows to a snapshot, a snapshot to rows and the content of their ids.

Positions in the log stand in the state where first, last or a list need them, but they are coordinates: two lakes with
the same records cut at other slices have other positions and the same state. So a row's id sees, instead of each
position, its place among all positions in the state of the same key.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from windowlib import tables
from windowlib.errors import CheckpointError
from windowlib.plain_json import from_json, to_json
from windowlib.records import Position, Stored
from windowlib.snapshots import Snapshot, WindowStateRow
from windowlib.spark.steps import Beginning
from windowlib.state import UserStateRow
from windowlib.timers import TimerRow
from windowlib.windows import GLOBAL_WINDOW, TimeWindow, Window

_PLACED_ONCE: Final = ("slice_start_ms", "rank")
_PLACED_LISTS: Final = ("slice_starts_ms", "ranks")
_PLAIN: Final = (
    "record_count", "edge_count", "edge_xor", "edge_sum", "fired_count", "fired_xor", "fired_sum",
    "pane_index", "nonspeculative_count", "last_count", "is_complete", "is_cleanup_silent", "is_orphan", "key_group",
)  # fmt: skip
_LAST_PLACE: Final = _PLAIN.index("nonspeculative_count") + 1
"""Where `last_emitted` stands among these columns, in tables that have it."""
_SCOPES: Final = ("key", "window")


class StateRow(NamedTuple):
    """A row of a checkpoint table; `content` is what its id is made of, None where that is the row itself."""

    table: str
    values: tuple[Any, ...]
    content: tuple[Any, ...] | None


class StateRows:
    """Collects the rows of a checkpoint into a snapshot, and spells snapshots as rows."""

    def __init__(self, accumulators: Mapping[str, Mapping[str, str]], last: Sequence[str] = ()) -> None:
        """Start empty.

        `accumulators` maps each aggregate to the columns of its state, in the order of the pipeline; `last` are the
        columns of a pane where a retraction may take one back.
        """
        self._names = [tuple(columns) for columns in accumulators.values()]
        self._last = tuple(last)
        self._windows: list[WindowStateRow] = []
        self._timers: list[TimerRow] = []
        self._user_state: list[UserStateRow] = []

    def add_windows(self, keys: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> None:
        """Take in rows of `window_state`; each row has the table's columns without the key columns.

        Raises:
            CheckpointError: a row has no state for one of the aggregates.
        """
        for key, row in zip(keys, rows, strict=True):
            bounds, rest = row[:4], row[4:]
            states, rest = rest[: len(self._names)], rest[len(self._names) :]
            if None in states:
                raise CheckpointError(
                    f"the checkpoint has no state for one of the {len(self._names)} aggregates in window "
                    f"{bounds[:2]} of key {key}: the aggregate is newer than the checkpoint; replay from the start "
                    "of the log, or begin anew with --fresh"
                )
            contents, trigger_state, *plain = rest
            last = plain.pop(_LAST_PLACE) if self._last else None
            self._windows.append(
                WindowStateRow(
                    key=key,
                    window_start_ms=bounds[0],
                    window_end_ms=bounds[1],
                    state_window_start_ms=bounds[2],
                    state_window_end_ms=bounds[3],
                    accumulators=tuple(states),
                    contents=[_stored(one) for one in contents or ()],
                    trigger_state=from_json(trigger_state),
                    last_values=last,
                    **dict(zip(_PLAIN, plain, strict=True)),
                )
            )

    def add_timers(self, keys: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> None:
        """Take in rows of `timers`, without the key columns."""
        for key, (start_ms, end_ms, domain, at_ms, key_group) in zip(keys, rows, strict=True):
            self._timers.append(TimerRow(key_group, key, _window(start_ms, end_ms), domain, at_ms))

    def add_user_state(self, keys: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> None:
        """Take in rows of `user_state`, without the key columns."""
        for key, (start_ms, end_ms, scope, name, kind, content, key_group) in zip(keys, rows, strict=True):
            namespace = _window(start_ms, end_ms) if scope == "window" else ()
            self._user_state.append(UserStateRow(key_group, key, namespace, name, kind, from_json(content)))

    def snapshot(self, beginning: Beginning) -> Snapshot:
        """Return what was taken in, as the state of an operator at the beginning of a chunk."""
        return Snapshot(
            watermark_ms=beginning.watermark_ms,
            processing_time_ms=beginning.clock_ms,
            stagger_ms=None,
            windows=self._windows,
            timers=self._timers,
            user_state=self._user_state,
        )

    def rows(self, snapshot: Snapshot) -> Iterator[StateRow]:
        """Spell a snapshot as rows: the windows, the timers, the user's state."""
        for _, windows in groupby(snapshot.windows, key=lambda row: row.key):
            yield from self._window_rows(list(windows))
        for key_group, key, namespace, domain, at_ms in snapshot.timers:
            yield StateRow(tables.TIMERS, (*_columns(key), *namespace, domain, at_ms, key_group), None)
        for state in snapshot.user_state:
            scope = _SCOPES[bool(state.namespace)]
            named = (*(state.namespace or (None, None)), scope, state.name, state.kind, to_json(state.content))
            yield StateRow(tables.USER_STATE, (*_columns(state.key), *named, state.key_group), None)

    def _window_rows(self, windows: Sequence[WindowStateRow]) -> Iterator[StateRow]:
        order = {position: (place, 0) for place, position in enumerate(sorted(set(self._positions(windows))))}
        for row in windows:
            values = self._values(row, None)
            yield StateRow(tables.WINDOW_STATE, values, self._values(row, order)[:-1] if order else None)

    def _positions(self, windows: Sequence[WindowStateRow]) -> Iterator[Position]:
        for row in windows:
            yield from (stored.position for stored in row.contents)
            for names, state in zip(self._names, row.accumulators, strict=True):
                if names[:2] == _PLACED_ONCE and state[0] is not None:
                    yield state[0], state[1]
                elif names[:2] == _PLACED_LISTS:
                    yield from zip(state[0], state[1], strict=True)

    def _values(self, row: WindowStateRow, order: Mapping[Position, Position] | None) -> tuple[Any, ...]:
        """Spell one window, with positions as they are, or as their places in `order`."""
        bounds = (row.window_start_ms, row.window_end_ms, row.state_window_start_ms, row.state_window_end_ms)
        states = [
            dict(zip(names, _placed(names, state, order) if order else state, strict=True))
            for names, state in zip(self._names, row.accumulators, strict=True)
        ]
        contents = [_contents_row(stored, order) for stored in row.contents]
        plain = [getattr(row, name) for name in _PLAIN]
        if self._last:
            said = row.last_values
            plain.insert(_LAST_PLACE, None if said is None else dict(zip(self._last, said, strict=True)))
        return (*_columns(row.key), *bounds, *states, contents, to_json(row.trigger_state), *plain)


def _placed(names: Sequence[str], state: tuple[Any, ...], order: Mapping[Position, Position]) -> tuple[Any, ...]:
    if names[:2] == _PLACED_ONCE and state[0] is not None:
        return (*order[state[0], state[1]], *state[2:])
    if names[:2] == _PLACED_LISTS:
        places = [order[position] for position in zip(state[0], state[1], strict=True)]
        return ([place[0] for place in places], [place[1] for place in places], *state[2:])
    return state


def _contents_row(stored: Stored, order: Mapping[Position, Position] | None) -> dict[str, Any]:
    slice_start_ms, rank = order[stored.position] if order else stored.position
    return {
        "slice_start_ms": slice_start_ms,
        "rank": rank,
        "event_time_ms": stored.timestamp_ms,
        "edge_id": stored.edge_id,
        "value": to_json(stored.value),
    }


def _stored(row: tuple[Any, ...]) -> Stored:
    slice_start_ms, rank, event_time_ms, edge_id, value = row
    return Stored((slice_start_ms, rank), event_time_ms, from_json(value), edge_id)


def _window(start_ms: int | None, end_ms: int | None) -> Window:
    return GLOBAL_WINDOW if start_ms is None or end_ms is None else TimeWindow(start_ms, end_ms)


def _columns(key: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a pipeline's keys are tuples of column values
    return tuple(key)
