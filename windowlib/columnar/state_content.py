"""Checks the content of restored rows, by whole columns.

Ids and checks of rows detect damage. They do not detect that a program has stored wrong content with right ids: a
negative count, a window beside the grid, an unknown kind. An executor would fail on such a row, or compute something
else without a word. docs/explanation/integrity.md lists what cannot be detected.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.columnar.arrow import arrow_type, int64s, plain_values
from windowlib.columnar.watermark_steps import Beginning, Bools, Int64s
from windowlib.errors import CheckpointError
from windowlib.functions.aggregates import Count, MeanInteger, SumDecimal, SumDouble
from windowlib.functions.exact_sum import SCALE_BITS
from windowlib.functions.ordered_aggregates import CollectList, FirstOrLast
from windowlib.functions.variance import Variance
from windowlib.keyed.state import KINDS
from windowlib.keyed.state_rules import StateRules, wrong_value
from windowlib.keyed.timers import EVENT, PROCESSING
from windowlib.records import tables
from windowlib.records.plain_json import PLAIN_ERRORS, from_json
from windowlib.records.tables import Table

Columns: TypeAlias = Mapping[str, pa.Array]
Checks: TypeAlias = Iterator[tuple[str, Bools | np.bool_ | bool, str]]
"""(column, which rows are wrong, what is allowed)."""
_START, _END = "window_start_ms", "window_end_ms"
_STATE_START, _STATE_END = "state_window_start_ms", "state_window_end_ms"
_BOUNDS: Final = (_START, _END, _STATE_START, _STATE_END)
_SCOPES: Final = ("key", "window")
_EXPONENT_MAX: Final = 1_100
"""A sum of 2**63 doubles is less than 2**1087."""
_SUM_BYTES: Final = 280
"""A sum of 2**63 doubles in units of 2**-1074 has at most 2161 bits."""
_SQUARES_BYTES: Final = 2 * _SUM_BYTES
_FARTHEST_MS: Final = MAX_TIME_MS // 1_000
"""Bounds of windows are written in microseconds."""
_NULLABLE: Final = frozenset({*_BOUNDS, "last_emitted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateContent:
    """Checks the rows of a bucket's part of a checkpoint: by the rules of its spec, and the time before the chunk."""

    rules: StateRules
    beginning: Beginning

    def check(self, table: Table, rows: Columns) -> None:
        """Check rows of one table. `rows` has the columns of `Table.columns()`, each as one array.

        Raises CheckpointError: a row has content that no run stores. The message names table, column, key and window.
        """
        check_types(table, rows)
        for column, is_wrong, allowed in self._checks(table, rows):
            if np.any(is_wrong):
                row = int(np.argmax(is_wrong))
                key = tuple(plain_values(rows[name].slice(row, 1))[0] for name in table.keys)
                named = (key, [rows[name][row].as_py() for name in (_START, _END)])
                raise wrong_value(table.name, column, row=named, stored=_value(rows, column, row), allowed=allowed)

    def _checks(self, table: Table, rows: Columns) -> Checks:
        for name in table.columns():
            if rows[name].null_count and name not in _NULLABLE:
                yield name, _is_null(rows[name]), _WITHOUT_STATE if name.startswith("acc_") else "a value"
        match table.name:
            case tables.WINDOW_STATE:
                yield table.name, not self.rules.has_windows, "no row: the pipeline has no windows"
                yield from self._bounds(rows, _START, _END)
                yield from self._bounds(rows, _STATE_START, _STATE_END)
                yield from self._lives(rows)
                yield from self._counts(rows)
                yield from self._contents(rows)
                yield from self._trigger_states(rows["trigger_state"])
                yield from self._accumulators(table, rows)
            case tables.TIMERS:
                yield table.name, not self.rules.has_timers, "no row: timers of the pipeline's windows are not stored"
                yield "domain", _is_not_among(rows["domain"], (EVENT, PROCESSING)), f"{EVENT} or {PROCESSING}"
                yield from self._bounds(rows, _START, _END)
            case _:
                yield "scope", _is_not_among(rows["scope"], _SCOPES), " or ".join(_SCOPES)
                yield "kind", _is_not_among(rows["kind"], KINDS), ", ".join(KINDS)
                is_of_key = pc.equal(rows["scope"], "key").to_numpy(zero_copy_only=False)
                for name in (_START, _END):
                    yield name, is_of_key & ~_is_null(rows[name]), "null for the scope key"
                yield _END, _is_null(rows[_START]) != _is_null(rows[_END]), "null if the start is null"

    def _bounds(self, rows: Columns, start: str, end: str) -> Checks:
        rules = self.rules
        for name in (start, end):
            is_null = _is_null(rows[name])
            yield (
                name,
                is_null == rules.has_bounds,
                "an instant" if rules.has_bounds else "null: windows have no bounds",
            )
        if rules.wraps or not rules.has_bounds:
            return
        start_ms, end_ms = int64s(rows[start]), int64s(rows[end])
        is_far = (start_ms < -_FARTHEST_MS) | (start_ms > _FARTHEST_MS)
        yield start, is_far, f"an instant from -{_FARTHEST_MS} to {_FARTHEST_MS}"
        if rules.grid is None:
            # Python's floor at the least instant: `end - least` cannot wrap.
            is_short = (end_ms < MIN_TIME_MS + rules.least_ms) | (end_ms - rules.least_ms < start_ms)
            yield end, is_short, f"at least the start plus {rules.least_ms} ms"
            if rules.most_ms is not None:
                last_ms = _FARTHEST_MS + rules.most_ms
                yield end, end_ms > last_ms, f"at most {last_ms}"
            return
        size_ms, slide_ms, offset_ms = rules.grid
        yield end, end_ms - start_ms != size_ms, f"the start plus {size_ms} ms"
        if slide_ms > 1:
            is_beside = start_ms % slide_ms != offset_ms % slide_ms
            yield start, is_beside, f"a multiple of {slide_ms} ms plus {offset_ms % slide_ms} ms"

    def _lives(self, rows: Columns) -> Checks:
        """Check the windows against the time before the chunk and their state windows."""
        rules = self.rules
        if not rules.has_bounds or rules.wraps:
            return
        start_ms, end_ms, state_start_ms, state_end_ms = (int64s(rows[name]) for name in _BOUNDS)
        if rules.is_merging:
            yield _STATE_START, (state_start_ms < start_ms) | (state_start_ms > end_ms), "an instant in the window"
            yield _STATE_END, (state_end_ms < start_ms) | (state_end_ms > end_ms), "an instant in the window"
        else:
            yield _STATE_START, state_start_ms != start_ms, "the start of the window"
            yield _STATE_END, state_end_ms != end_ms, "the end of the window"
        now_ms = self.beginning.watermark_ms if rules.is_event_time else self.beginning.clock_ms
        if rules.gone_after_ms is not None and now_ms != MIN_TIME_MS:
            last_ms = min(max(now_ms - rules.gone_after_ms, MIN_TIME_MS), MAX_TIME_MS)
            what = "watermark" if rules.is_event_time else "clock"
            yield _END, end_ms <= last_ms, f"more than {last_ms}: the {what} {now_ms} has deleted the windows before"

    def _counts(self, rows: Columns) -> Checks:
        edges, fired = int64s(rows["edge_count"]), int64s(rows["fired_count"])
        yield "edge_count", edges < 0, "an integer from 0"
        yield "record_count", int64s(rows["record_count"]) != edges, "the edge_count of the row"
        yield "fired_count", (fired < 0) | (fired > edges), "an integer from 0 to edge_count"
        for name, count in (("edge", edges), ("fired", fired)):
            xor, total = int64s(rows[f"{name}_xor"]), int64s(rows[f"{name}_sum"])
            yield f"{name}_xor", (count == 0) & (xor != 0), f"0, because {name}_count is 0"
            yield f"{name}_sum", (count == 0) & (total != 0), f"0, because {name}_count is 0"
            yield f"{name}_sum", (count == 1) & (total != xor), f"{name}_xor, because {name}_count is 1"
        for part in ("xor", "sum"):
            is_other = int64s(rows[f"edge_{part}"]) != int64s(rows[f"fired_{part}"])
            yield f"fired_{part}", (fired == edges) & is_other, f"edge_{part}, because every edge was fired"
        panes, others = int64s(rows["pane_index"]), int64s(rows["nonspeculative_count"])
        yield "pane_index", panes < 0, "an integer from 0"
        yield "nonspeculative_count", (others < 0) | (others > panes), "an integer from 0 to pane_index"
        yield "last_count", int64s(rows["last_count"]) < 0, "an integer from 0"
        if not self.rules.has_orphans:
            yield "is_orphan", rows["is_orphan"].to_numpy(zero_copy_only=False), "false in these semantics"

    def _contents(self, rows: Columns) -> Checks:
        contents, rules = rows["contents"], self.rules
        sizes = pc.list_value_length(contents).to_numpy(zero_copy_only=False)
        if not rules.keeps_records:
            yield "contents", sizes != 0, "an empty list: the windows keep no records"
            return
        items = contents.flatten()
        owner = np.repeat(np.arange(len(contents)), sizes)
        for kind, values in zip(items.type, items.flatten(), strict=True):
            if kind.name != "event_time_ms" and values.null_count:
                yield "contents", _at(owner[_is_null(values)], len(contents)), f"a {kind.name} for each record"
        if not rules.counts_records:
            return
        yield "edge_count", int64s(rows["edge_count"]) != sizes, "the number of records in contents"
        filled = np.flatnonzero(sizes)
        if len(filled):
            ids = int64s(items.field("edge_id"))
            starts = (np.cumsum(sizes) - sizes)[filled]
            for part, function in (("xor", np.bitwise_xor), ("sum", np.add)):
                is_other = function.reduceat(ids, starts) != int64s(rows[f"edge_{part}"])[filled]
                yield f"edge_{part}", _at(filled[is_other], len(contents)), f"the {part} of the edge ids in contents"

    def _trigger_states(self, states: pa.Array) -> Checks:
        problem = self.rules.trigger_problem
        encoded = states.dictionary_encode()
        for number, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                state = from_json(text)
            except PLAIN_ERRORS:
                state = None
            wrong = "JSON of an object" if not isinstance(state, dict) else problem(state) if problem else None
            if wrong is not None:
                yield "trigger_state", encoded.indices.to_numpy() == number, wrong

    def _accumulators(self, table: Table, rows: Columns) -> Checks:
        names = [name for name in table.content if name.startswith("acc_")]
        edges = int64s(rows["edge_count"])
        for name, aggregate in zip(names, self.rules.aggregates, strict=False):
            column = rows[name]
            fields = dict(zip((kind.name for kind in column.type), column.flatten(), strict=True))
            for field, is_wrong, allowed in _state_checks(aggregate, fields, edges):
                yield f"{name}.{field}", is_wrong, allowed


_WITHOUT_STATE: Final = (
    "a state: the checkpoint has no state for one of the aggregates, so the aggregate is newer than the checkpoint; "
    "replay from the start of the log, or begin anew with --fresh"
)


def _state_checks(aggregate: object, fields: Columns, edges: Int64s) -> Checks:
    """Check the states of one aggregate of windows with so many edges."""
    match aggregate:
        case Count() | MeanInteger() | SumDecimal() | SumDouble() | Variance():
            yield from _no_nulls(fields)
            yield from _sum_checks(fields, edges)
        case FirstOrLast():
            is_absent = _is_null(fields["slice_start_ms"])
            yield "rank", _is_null(fields["rank"]) != is_absent, "null exactly if slice_start_ms is"
            yield "rank", int64s(fields["rank"]) < 0, "an integer from 0"
            yield "value", is_absent & ~_is_null(fields["value"]), "null, because it has no position"
        case CollectList():
            yield from _no_nulls(fields)
            yield from _list_checks(fields, edges)
        case _:  # the state of an extreme or a sum is one value, and a user's state can be anything
            return


def _sum_checks(fields: Columns, edges: Int64s) -> Checks:
    count = int64s(fields["count"])
    yield "count", (count < 0) | (count > edges), "an integer from 0 to edge_count"
    for name in fields:
        if name.endswith("_count"):
            number = int64s(fields[name])
            yield name, (number < 0) | (number > count), "an integer from 0 to count"
    if "exponent" in fields:
        exponent = int64s(fields["exponent"])
        is_far = (exponent < -SCALE_BITS) | (exponent > _EXPONENT_MAX)
        yield "exponent", is_far, f"an integer from -{SCALE_BITS} to {_EXPONENT_MAX}"
    for name, most in (("mantissa", _SUM_BYTES), ("total", _SUM_BYTES), ("squares", _SQUARES_BYTES)):
        if name in fields and pa.types.is_binary(fields[name].type):
            size = pc.binary_length(fields[name]).to_numpy(zero_copy_only=False)
            yield name, (size < 1) | (size > most), f"a number of 1 to {most} bytes"


def _list_checks(fields: Columns, edges: Int64s) -> Checks:
    sizes = pc.list_value_length(fields["values"]).to_numpy(zero_copy_only=False)
    for name, lists in fields.items():
        length = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        yield name, length != sizes, "a list with one item for each value"
        owner = np.repeat(np.arange(len(lists)), length)
        yield name, _at(owner[_is_null(lists.flatten())], len(lists)), "no null in the list"
    yield "values", sizes > edges, "at most edge_count items"


def _no_nulls(fields: Columns) -> Checks:
    for name, values in fields.items():
        if values.null_count:
            yield name, _is_null(values), "a value"


def check_types(table: Table, rows: Columns) -> None:
    """Raise a CheckpointError if a column is missing or has another type than the table."""
    for name, node in table.columns().items():
        kind = arrow_type(node)
        if name not in rows or rows[name].type != kind:
            stored = rows[name].type if name in rows else "no such column"
            raise CheckpointError(f"table {table.name}, column {name} has the type {stored}; allowed is {kind}")


def _value(rows: Columns, column: str, row: int) -> object:
    name, _, field = column.partition(".") if column not in rows else (column, "", "")
    if name not in rows:
        return "a row"
    value: Any = plain_values(rows[name].slice(row, 1))[0]
    names = [kind.name for kind in rows[name].type] if field else []
    return value[names.index(field)] if field and value is not None else value


def _is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    is_null: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return is_null


def _is_not_among(texts: pa.Array, allowed: tuple[str, ...]) -> Bools:
    is_wrong: Bools = ~pc.is_in(texts, pa.array(allowed)).to_numpy(zero_copy_only=False)
    return is_wrong


def _at(places: Int64s, count: int) -> Bools:
    """Return an array that is true at some places."""
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[places] = True
    return chosen
