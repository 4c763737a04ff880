"""Conversion between the stored rows of a checkpoint and an operator's snapshot.

The aggregates first, last and collect_list keep positions in the log in their state. These positions are coordinates:
two lakes with the same records, cut into other slices, have different positions and the same state. A row's id
therefore covers only the order of the positions in the state of one key (windowlib.columnar.row_identity).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.columnar.arrow import arrow_array, arrow_type, column_values, plain_values
from windowlib.columnar.watermark_steps import Beginning
from windowlib.errors import CheckpointError, InvariantBroken
from windowlib.keyed.snapshots import Snapshot, WindowStateRow
from windowlib.keyed.state import UserStateRow
from windowlib.keyed.state_rules import wrong_value
from windowlib.keyed.timers import TimerRow
from windowlib.records import tables
from windowlib.records.plain_json import PLAIN_ERRORS, from_json, to_json
from windowlib.records.records import Stored
from windowlib.records.tables import Table

NamedRow = Mapping[str, Any]
"""A stored row: column -> plain value. Accumulators and `last_emitted` are tuples in the order of their fields."""

_SAME_NAMES: Final = (
    "window_start_ms", "window_end_ms", "state_window_start_ms", "state_window_end_ms",
    "record_count", "edge_count", "edge_xor", "edge_sum", "fired_count", "fired_xor", "fired_sum",
    "pane_index", "nonspeculative_count", "last_count", "is_complete", "is_cleanup_silent", "is_orphan", "key_group",
)  # fmt: skip
"""Columns of `window_state` that WindowStateRow has as fields with the same names and values."""
_same_values: Final = attrgetter(*_SAME_NAMES)
_JSON: Final = ("contents", "trigger_state")
_TIMER: Final = ("window_start_ms", "window_end_ms", "domain", "at_ms", "key_group")
_USER_STATE: Final = ("window_start_ms", "window_end_ms", "scope", "name", "kind", "content", "key_group")


class StateRows:
    """Collects stored rows into a snapshot, and turns a snapshot into rows."""

    def __init__(
        self,
        state_tables: Collection[Table],
        accumulators: Mapping[str, Iterable[str]],
        last: Iterable[str] = (),
        *,
        read_value: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        """Prepare for the checkpoints of one pipeline.

        Args:
            state_tables: `window_state`, `timers`, and `user_state` if the pipeline has user state.
            accumulators: aggregate -> the columns of its state, the aggregates in the order of the pipeline.
            last: the columns of a pane's values, if a retraction may take a pane back.
            read_value: makes a value of a stored record one of the pipeline (record_values.value_reader).
        """
        self._accumulators = {f"acc_{name}": tuple(columns) for name, columns in accumulators.items()}
        self._last = tuple(last)
        self._read_value = read_value
        self._tables = {table.name: table for table in state_tables}
        self._keys = {name: table.keys for name, table in self._tables.items()}
        last_emitted = ("last_emitted",) if self._last else ()
        self._given = {
            tables.WINDOW_STATE: (*_SAME_NAMES, *_JSON, *self._accumulators, *last_emitted),
            tables.TIMERS: _TIMER,
            tables.USER_STATE: _USER_STATE,
        }
        """The columns after the key, in the order in which the values of a row are made."""
        self._windows: list[WindowStateRow] = []
        self._timers: list[TimerRow] = []
        self._user_state: list[UserStateRow] = []

    def add(self, name: str, rows: pa.Table) -> None:
        """Add rows of a checkpoint table, whose content is checked (windowlib.columnar.state_content)."""
        for row in _named_rows(self._tables[name], rows):
            key = tuple([row[column] for column in self._keys[name]])
            match name:
                case tables.WINDOW_STATE:
                    self._windows.append(self._window(key, row))
                case tables.TIMERS:
                    self._timers.append(TimerRow(row["key_group"], key, _namespace(row), row["domain"], row["at_ms"]))
                case _:
                    self._user_state.append(_user_state(key, row))

    def _window(self, key: tuple[Any, ...], row: NamedRow) -> WindowStateRow:
        return WindowStateRow(
            key=key,
            accumulators=tuple([row[name] for name in self._accumulators]),
            contents=[self._stored(record, key, row) for record in row["contents"] or ()],
            trigger_state=from_json(row["trigger_state"]),
            last_values=row["last_emitted"] if self._last else None,
            **{name: row[name] for name in _SAME_NAMES},
        )

    def _stored(self, record: NamedRow, key: tuple[Any, ...], row: NamedRow) -> Stored:
        value = _read(tables.WINDOW_STATE, "contents", record["value"], key=key, row=row)
        try:
            value = self._read_value(value)
        except (ValueError, ArithmeticError):
            allowed = "the columns of a record that the pipeline reads, each with a value of its type"
            raise _wrong(tables.WINDOW_STATE, "contents", value, key=key, row=row, allowed=allowed) from None
        position = (record["slice_start_ms"], record["rank"])
        return Stored(position, record["event_time_ms"], value, record["edge_id"])

    def snapshot(self, beginning: Beginning) -> Snapshot:
        """Return the added rows as the state of an operator at the beginning of a chunk."""
        return Snapshot(
            watermark_ms=beginning.watermark_ms,
            processing_time_ms=beginning.clock_ms,
            stagger_ms=None,
            windows=self._windows,
            timers=self._timers,
            user_state=self._user_state,
        )

    def rows(self, snapshot: Snapshot) -> dict[str, pa.Table]:
        """Return the rows of a snapshot by checkpoint table. A table without rows is missing."""
        values = {
            tables.WINDOW_STATE: map(self._window_values, snapshot.windows),
            tables.TIMERS: map(_timer_values, snapshot.timers),
            tables.USER_STATE: map(_user_values, snapshot.user_state),
        }
        by_table = {name: list(rows) for name, rows in values.items()}
        return {name: self._table(name, rows) for name, rows in by_table.items() if rows}

    def _table(self, name: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        table, given = self._tables[name], (*self._keys[name], *self._given[name])
        kinds = table.columns()
        if sorted(given) != sorted(kinds):
            unmatched = ", ".join(sorted({*given} ^ kinds.keys())) or "given twice"
            raise InvariantBroken(
                f"a row of table {name} and the table differ in the columns {unmatched}; please report this"
            )
        columns = dict(zip(given, zip(*rows, strict=True), strict=True))
        return pa.table({column: arrow_array(columns[column], arrow_type(node)) for column, node in kinds.items()})

    def _window_values(self, row: WindowStateRow) -> tuple[Any, ...]:
        contents = [_contents_row(stored) for stored in row.contents]
        states = [
            dict(zip(columns, state, strict=True))
            for columns, state in zip(self._accumulators.values(), row.accumulators, strict=True)
        ]
        values = (*_columns(row.key), *_same_values(row), contents, to_json(row.trigger_state), *states)
        if not self._last:
            return values
        last = row.last_values
        return (*values, None if last is None else dict(zip(self._last, last, strict=True)))


def _timer_values(row: TimerRow) -> tuple[Any, ...]:
    return (*_columns(row.key), *row.namespace, row.domain, row.at_ms, row.key_group)


def _user_values(state: UserStateRow) -> tuple[Any, ...]:
    """Return the values of a row of `user_state`. The state of a key has an empty namespace."""
    bounds = state.namespace or (None, None)
    scope = "window" if state.namespace else "key"
    return (*_columns(state.key), *bounds, scope, state.name, state.kind, to_json(state.content), state.key_group)


def _columns(key: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a pipeline's keys are tuples of column values
    return tuple(key)


def _contents_row(stored: Stored) -> dict[str, Any]:
    slice_start_ms, rank = stored.position
    return {
        "slice_start_ms": slice_start_ms,
        "rank": rank,
        "event_time_ms": stored.timestamp_ms,
        "edge_id": stored.edge_id,
        "value": to_json(stored.value),
    }


def _read(table: str, column: str, text: str, *, key: tuple[Any, ...], row: NamedRow) -> Any:  # noqa: ANN401
    """Return the value of a text of `to_json`."""
    try:
        return from_json(text)
    except PLAIN_ERRORS as error:
        raise _wrong(table, column, text, key=key, row=row, allowed="JSON of plain data") from error


def _wrong(
    table: str, column: str, stored: object, *, key: tuple[Any, ...], row: NamedRow, allowed: str
) -> CheckpointError:
    named = (key, (row["window_start_ms"], row["window_end_ms"]))
    return wrong_value(table, column, row=named, stored=stored, allowed=allowed)


def _named_rows(table: Table, columns: pa.Table) -> Iterator[NamedRow]:
    """Yield the rows of a table; `contents` has dicts, because its records are read by field name."""
    names = tuple(table.columns())
    values = [
        column_values(columns[name]) if name == "contents" else plain_values(columns[name].combine_chunks())
        for name in names
    ]
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def _user_state(key: tuple[Any, ...], row: NamedRow) -> UserStateRow:
    namespace = _namespace(row) if row["scope"] == "window" else ()
    content = _read(tables.USER_STATE, "content", row["content"], key=key, row=row)
    return UserStateRow(row["key_group"], key, namespace, row["name"], row["kind"], content)


def _namespace(row: NamedRow) -> Window:
    start_ms, end_ms = row["window_start_ms"], row["window_end_ms"]
    return GLOBAL_WINDOW if start_ms is None or end_ms is None else TimeWindow(start_ms, end_ms)
