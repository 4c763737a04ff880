"""Conversion of an operator's outputs into rows of the tables that store them, column by column."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.columnar.arrow import arrow_type, exact_column
from windowlib.columnar.executor import Emission, arrow_columns
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records import tables
from windowlib.records.named_rows import in_columns
from windowlib.records.records import (
    ON_TIME,
    Emitted,
    Late,
    OnlyPanes,
    Output,
    Pane,
    Position,
    Record,
    SideOutput,
    Unassigned,
)
from windowlib.records.tables import Table

US_PER_MS: Final = 1_000
_BOUNDS: Final = ("window_start", "window_end")
_PANE_FIELDS: Final = (
    "pane_index", "timing", "is_first", "is_last", "mode", "kind", "record_count", "watermark_ms",
    "nonspeculative_index",
)  # fmt: skip
"""Columns of `window_outputs` that Pane has as fields with the same names and values."""
_OURS: Final = frozenset((*_PANE_FIELDS, "pane_time_ms", "fired_rank"))
"""Columns of `window_outputs` that are mostly equal in all rows."""
_ONLY: Final[Mapping[str, Any]] = {
    "pane_index": 0, "timing": ON_TIME, "is_first": True, "is_last": True, "kind": "result", "nonspeculative_index": 0,
}  # fmt: skip
"""The columns that are equal in all OnlyPanes."""
_EMITTED: Final[Mapping[str, Any]] = {
    "pane_index": 0, "timing": ON_TIME, "is_first": True, "is_last": True, "mode": "discarding", "kind": "result",
    "record_count": 1, "nonspeculative_index": 0, "window_start": None, "window_end": None,
}  # fmt: skip
"""The columns of an Emitted that are equal in all rows: a keyed process function has no windows and no panes."""
_LATE_FIELDS: Final = ("missed_all", "watermark_ms", "late_by_ms", "reason")
"""Columns of `late_records` that Late has as fields with the same names and values."""

_Kind = TypeVar("_Kind")
_Columns = dict[str, Sequence[Any] | pa.Array]
"""Column -> its values, one per row."""


class OutputRows:
    """Turns the outputs of one pipeline's operator into rows.

    It works by column, because a task may convert a pane for each record, and a column costs a tenth of its values.
    """

    def __init__(
        self, output_tables: Iterable[Table], outputs: Sequence[str], side_outputs: Mapping[str, Sequence[str]]
    ) -> None:
        """Prepare for the outputs of one pipeline.

        `output_tables` are those of panes, late records, unassigned records and side outputs; others are ignored.
        `outputs` are the columns of a pane's values, and `side_outputs` maps a tag to the columns of its values.
        """
        named = {table.name: table for table in output_tables}
        self._kinds = {
            name: {column: arrow_type(table.columns()[column]) for column in arrow_columns(table)}
            for name, table in named.items()
        }
        self._keys = named[tables.WINDOW_OUTPUTS].keys
        self._outputs = tuple(outputs)
        self._nothing = (None,) * len(self._outputs)
        self._side_outputs = {tag: tuple(names) for tag, names in side_outputs.items()}

    def emission(self, outputs: Sequence[Output | OnlyPanes], slice_start_ms: int) -> Emission:
        """Return the rows of outputs of this slice. The rows of a table are in the order of emission.

        Raises SpecError: a user's function emitted columns, or used a tag, that the pipeline file does not declare, or
        a value that its column cannot hold as it is.
        """
        emitted: dict[str, pa.Table] = {}
        panes = [
            self._only_panes(part, slice_start_ms) if isinstance(part, OnlyPanes) else self._panes(part, slice_start_ms)
            for part in _parts(outputs)
        ]
        if panes:
            parts = [self._table(tables.WINDOW_OUTPUTS, columns) for columns in panes]
            emitted[tables.WINDOW_OUTPUTS] = pa.concat_tables(parts)
        if values := _only(Emitted, outputs):
            emitted[tables.WINDOW_OUTPUTS] = self._table(tables.WINDOW_OUTPUTS, self._emitted(values, slice_start_ms))
        if late := _only(Late, outputs):
            emitted[tables.LATE_RECORDS] = self._table(tables.LATE_RECORDS, self._late(late))
        if unassigned := _only(Unassigned, outputs):
            emitted[tables.UNASSIGNED_RECORDS] = self._table(tables.UNASSIGNED_RECORDS, _unassigned(unassigned))
        by_tag: dict[str, list[SideOutput]] = {}
        for output in _only(SideOutput, outputs):
            by_tag.setdefault(output.tag, []).append(output)
        for tag, sent in by_tag.items():
            name = tables.side_outputs_name(tag)
            emitted[name] = self._table(name, self._sent(tag, sent, slice_start_ms))
        return emitted

    def _panes(self, panes: Sequence[Pane], slice_start_ms: int) -> _Columns:
        columns: dict[str, Sequence[Any]] = dict(zip(Pane._fields, zip(*panes, strict=True), strict=True))
        times, positions = columns["timestamp_ms"], columns["position"]
        return {
            **self._key_columns(columns["key"]),
            **_bounds(columns["window"]),
            "pane_time_ms": list(map(_pane_time_ms, times)),
            "fired_rank": _fired_ranks(positions, slice_start_ms),
            **{name: columns[name] for name in _PANE_FIELDS},
            **self._values(columns["values"], columns["kind"]),
        }

    def _only_panes(self, panes: OnlyPanes, slice_start_ms: int) -> _Columns:
        count, kinds = len(panes.keys), self._kinds[tables.WINDOW_OUTPUTS]
        equal = {
            **_ONLY,
            "mode": panes.mode,
            "watermark_ms": panes.watermark_ms,
            "pane_time_ms": _pane_time_ms(panes.timestamp_ms),
            "fired_rank": _fired_ranks([panes.position], slice_start_ms)[0],
        }
        return {
            **self._key_columns(panes.keys),
            **_bounds([panes.window] * count),
            **{name: pa.repeat(pa.scalar(value, kinds[name]), count) for name, value in equal.items()},
            "record_count": panes.record_counts,
            **self._values(panes.values, ["result"] * count),
        }

    def _values(self, values: Sequence[Any], kinds: Sequence[str]) -> _Columns:
        """Return the columns of the values of panes. A superseded pane has no values."""
        names = self._outputs
        if set(map(type, values)) != {tuple} or set(map(len, values)) != {len(names)}:
            values = [
                self._nothing if kind == "superseded" else in_columns(value, names, where="the output")
                for value, kind in zip(values, kinds, strict=True)
            ]
        return dict(zip(names, zip(*values, strict=True), strict=True))

    def _emitted(self, emitted: Sequence[Emitted], slice_start_ms: int) -> _Columns:
        keys, values, times, watermarks, positions = zip(*emitted, strict=True)
        return {
            **self._key_columns(keys),
            **{name: [value] * len(emitted) for name, value in _EMITTED.items()},
            "pane_time_ms": times,
            "fired_rank": _fired_ranks(positions, slice_start_ms),
            "watermark_ms": watermarks,
            **self._values(values, ["result"] * len(emitted)),
        }

    def _late(self, late: Sequence[Late]) -> _Columns:
        missed = [[_bounds_us(window) for window in late_record.missed] for late_record in late]
        fields = {name: [getattr(late_record, name) for late_record in late] for name in _LATE_FIELDS}
        windows = pa.array(missed, self._kinds[tables.LATE_RECORDS]["missed_windows"])
        return {**_record_columns([late_record.record for late_record in late]), "missed_windows": windows, **fields}

    def _sent(self, tag: str, sent: Sequence[SideOutput], slice_start_ms: int) -> _Columns:
        names = self._side_outputs.get(tag)
        if names is None:
            declared = ", ".join(self._side_outputs) or "none"
            raise SpecError(
                f"a function sent {sent[0].value!r} to the side output {tag!r}, which the pipeline does not "
                f"declare; declared: {declared}. Add it to process.side_outputs with its columns"
            )
        _, values, keys, times, watermarks, positions = zip(*sent, strict=True)
        rows = [in_columns(value, names, where=f"side output {tag!r}") for value in values]
        return {
            **self._key_columns(keys),
            "event_time_ms": times,
            "watermark_ms": watermarks,
            "fired_rank": _fired_ranks(positions, slice_start_ms),
            **dict(zip(names, zip(*rows, strict=True), strict=True)),
        }

    def _key_columns(self, keys: Sequence[Any]) -> _Columns:
        """Return the key columns; a pipeline's keys are tuples of column values."""
        return dict(zip(self._keys, zip(*keys, strict=True), strict=True)) if self._keys else {}

    def _table(self, name: str, columns: Mapping[str, Any]) -> pa.Table:
        kinds = self._kinds[name]
        if columns.keys() != kinds.keys():
            unmatched = ", ".join(sorted(columns.keys() ^ kinds.keys()))
            raise InvariantBroken(
                f"a row of table {name} and the table differ in the columns {unmatched}; please report this"
            )
        arrays = []
        for column, kind in kinds.items():
            try:
                arrays.append(_array(columns[column], kind, is_ours=column in _OURS))
            except (SpecError, pa.ArrowException) as error:
                raise SpecError(
                    f"column {column} of table {name} has the type {kind}, and a function emitted another value: "
                    f"{error!s:.250}. Return values of the declared type from the function of `process`, or declare "
                    "another type there"
                ) from error
        return pa.table(arrays, names=list(kinds))


def _array(values: Any, kind: pa.DataType, *, is_ours: bool) -> pa.Array:  # noqa: ANN401 - a list or an Arrow array
    """Return a column in its type.

    Fields of panes (`is_ours`) are mostly equal in all rows. Users' values are not tested for that, because values that
    Python takes for equal are not always the same: 0.0 and -0.0, or decimals of different scales.
    """
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if is_ours and _are_equal(values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return exact_column(values, kind)


def _parts(outputs: Sequence[Output | OnlyPanes]) -> list[OnlyPanes | list[Pane]]:
    """Return the panes in order: each OnlyPanes, and the single panes between two of them."""
    parts: list[OnlyPanes | list[Pane]] = []
    singles: list[Pane] = []
    for output in outputs:
        if isinstance(output, Pane):
            singles.append(output)
        elif isinstance(output, OnlyPanes):
            parts += [singles, output] if singles else [output]
            singles = []
    return [*parts, singles] if singles else parts


def _pane_time_ms(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == MAX_TIME_MS else timestamp_ms


def _only(kind: type[_Kind], outputs: Sequence[Output | OnlyPanes]) -> list[_Kind]:
    return [output for output in outputs if isinstance(output, kind)]


def _bounds(windows: Sequence[Window]) -> _Columns:
    """Return the bounds of windows in epoch microseconds; null for the global window."""
    if _are_equal(windows):
        return {
            name: pa.repeat(pa.scalar(bound, pa.int64()), len(windows))
            for name, bound in _bounds_us(windows[0]).items()
        }
    return {
        name: pc.multiply_checked(pa.array(bounds, pa.int64()), US_PER_MS)
        for name, bounds in zip(_BOUNDS, zip(*windows, strict=True), strict=True)
    }


def _fired_ranks(positions: Sequence[Position], slice_start_ms: int) -> list[int]:
    """Return the rank of the record after which each output was emitted; -1 before the slice's first record."""
    return [rank if start_ms == slice_start_ms else -1 for start_ms, rank in positions]


def _unassigned(unassigned: Sequence[Unassigned]) -> _Columns:
    records, watermarks = zip(*unassigned, strict=True)
    return {**_record_columns(records), "watermark_ms": watermarks}


def _record_columns(records: Sequence[Record]) -> _Columns:
    return {
        "record_hash": [record.record_hash for record in records],
        "event_time_ms": [record.timestamp_ms for record in records],
        "rank": [record.position[1] for record in records],
    }


def _bounds_us(window: Window) -> dict[str, int | None]:
    return {name: None if bound is None else bound * US_PER_MS for name, bound in zip(_BOUNDS, window, strict=True)}


def _are_equal(values: Sequence[Any]) -> bool:
    return values.count(values[0]) == len(values)
