"""A checkpoint between tables and operator: rows to a snapshot, a snapshot to rows.

Positions in the log are part of the state where first, last or a list need them, but they are coordinates: two lakes
with the same records cut at other slices have other positions and the same state. So a row's id sees, instead of each
position, its place among all positions in the state of the same key (windowlib.spark.row_identity).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.errors import CheckpointError
from windowlib.keyed.snapshots import Snapshot, WindowStateRow
from windowlib.keyed.state import UserStateRow
from windowlib.keyed.timers import TimerRow
from windowlib.records import tables
from windowlib.records.plain_json import from_json, to_json
from windowlib.records.records import Stored
from windowlib.spark.steps import Beginning

_PLAIN: Final = (
    "record_count", "edge_count", "edge_xor", "edge_sum", "fired_count", "fired_xor", "fired_sum",
    "pane_index", "nonspeculative_count", "last_count", "is_complete", "is_cleanup_silent", "is_orphan", "key_group",
)  # fmt: skip
_LAST_PLACE: Final = _PLAIN.index("nonspeculative_count") + 1
"""Where `last_emitted` stands among these columns, in tables that have it."""
_SCOPES: Final = ("key", "window")


class StateRow(NamedTuple):
    """A row of a checkpoint table: the values of its columns, in their order."""

    table: str
    values: tuple[Any, ...]


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
        for row in snapshot.windows:
            yield StateRow(tables.WINDOW_STATE, self._values(row))
        for key_group, key, namespace, domain, at_ms in snapshot.timers:
            yield StateRow(tables.TIMERS, (*_columns(key), *namespace, domain, at_ms, key_group))
        for state in snapshot.user_state:
            scope = _SCOPES[bool(state.namespace)]
            named = (*(state.namespace or (None, None)), scope, state.name, state.kind, to_json(state.content))
            yield StateRow(tables.USER_STATE, (*_columns(state.key), *named, state.key_group))

    def _values(self, row: WindowStateRow) -> tuple[Any, ...]:
        bounds = (row.window_start_ms, row.window_end_ms, row.state_window_start_ms, row.state_window_end_ms)
        states = [
            dict(zip(names, state, strict=True)) for names, state in zip(self._names, row.accumulators, strict=True)
        ]
        contents = [_contents_row(stored) for stored in row.contents]
        plain = [getattr(row, name) for name in _PLAIN]
        if self._last:
            said = row.last_values
            plain.insert(_LAST_PLACE, None if said is None else dict(zip(self._last, said, strict=True)))
        return (*_columns(row.key), *bounds, *states, contents, to_json(row.trigger_state), *plain)


def _contents_row(stored: Stored) -> dict[str, Any]:
    slice_start_ms, rank = stored.position
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
