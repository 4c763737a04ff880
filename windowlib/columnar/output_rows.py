"""Conversion of an operator's outputs into rows of the tables that store them."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, assert_never

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.errors import SpecError
from windowlib.records import tables
from windowlib.records.named_rows import Row, RowBuilder
from windowlib.records.records import (
    ON_TIME,
    Emitted,
    Late,
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
    "pane_index", "timing", "is_first", "is_last", "mode", "kind", "record_count", "nonspeculative_index",
    "watermark_ms",
)  # fmt: skip
"""Columns of `window_outputs` that Pane has as fields with the same names and values."""
_pane_values: Final = attrgetter(*_PANE_FIELDS)
_EMITTED: Final[Mapping[str, Any]] = {
    "pane_index": 0, "timing": ON_TIME, "is_first": True, "is_last": True, "mode": "discarding", "kind": "result",
    "record_count": 1, "nonspeculative_index": 0, "window_start": None, "window_end": None,
}  # fmt: skip
"""The columns of an Emitted that are equal in all rows: a keyed process function has no windows and no panes."""
_LATE_FIELDS: Final = ("missed_all", "watermark_ms", "late_by_ms", "reason")
"""Columns of `late_records` that Late has as fields with the same names and values."""
_late_values: Final = attrgetter(*_LATE_FIELDS)


class OutputRows:
    """Turns the outputs of one pipeline's operator into rows."""

    def __init__(
        self, output_tables: Iterable[Table], outputs: Sequence[str], side_outputs: Mapping[str, Sequence[str]]
    ) -> None:
        """Prepare for the outputs of one pipeline.

        Args:
            output_tables: the tables of panes, late records, unassigned records and side outputs; others are ignored.
            outputs: the columns of a pane's values.
            side_outputs: tag -> the columns of its values.
        """
        named = {table.name: table for table in output_tables}
        self._outputs = tuple(outputs)
        self._nothing = (None,) * len(self._outputs)
        self._side_outputs = {tag: tuple(names) for tag, names in side_outputs.items()}
        panes = named[tables.WINDOW_OUTPUTS]
        times = ("pane_time_ms", "fired_rank")
        self._panes = RowBuilder(panes, (*panes.keys, *_BOUNDS, *times, *_PANE_FIELDS, *self._outputs))
        self._emitted = RowBuilder(panes, (*panes.keys, *_EMITTED, *times, "watermark_ms", *self._outputs))
        record = ("record_hash", "event_time_ms", "rank")
        self._late = RowBuilder(named[tables.LATE_RECORDS], (*record, "missed_windows", *_LATE_FIELDS))
        self._unassigned = RowBuilder(named[tables.UNASSIGNED_RECORDS], (*record, "watermark_ms"))
        self._by_tag = {
            tag: RowBuilder(table, (*table.keys, "event_time_ms", "watermark_ms", "fired_rank", *names))
            for tag, names in self._side_outputs.items()
            for table in (named[tables.side_outputs_name(tag)],)
        }

    def row(self, output: Output, slice_start_ms: int) -> Row:
        """Return the row of an output of this slice.

        Raises:
            SpecError: a user's function emitted columns, or used a tag, that the pipeline file does not declare.
        """
        match output:
            case Pane():
                return self._pane_row(output, slice_start_ms)
            case Late():
                missed = [dict(zip(_BOUNDS, _bounds_us(window), strict=True)) for window in output.missed]
                return self._late.row((*_record_values(output.record), missed, *_late_values(output)))
            case Unassigned():
                return self._unassigned.row((*_record_values(output.record), output.watermark_ms))
            case SideOutput():
                return self._side_output_row(output, slice_start_ms)
            case Emitted():
                return self._emitted_row(output, slice_start_ms)
            case _:
                assert_never(output)

    def _pane_row(self, pane: Pane, slice_start_ms: int) -> Row:
        key: Any = pane.key  # a tuple of column values
        has_values = pane.kind != "superseded"
        values = _columns(pane.values, self._outputs, where="the output") if has_values else self._nothing
        pane_time_ms = None if pane.timestamp_ms == MAX_TIME_MS else pane.timestamp_ms
        times = (pane_time_ms, _fired_rank(pane.position, slice_start_ms))
        return self._panes.row((*key, *_bounds_us(pane.window), *times, *_pane_values(pane), *values))

    def _emitted_row(self, emitted: Emitted, slice_start_ms: int) -> Row:
        key: Any = emitted.key
        values = _columns(emitted.values, self._outputs, where="the output")
        times = (emitted.timestamp_ms, _fired_rank(emitted.position, slice_start_ms))
        return self._emitted.row((*key, *_EMITTED.values(), *times, emitted.watermark_ms, *values))

    def _side_output_row(self, output: SideOutput, slice_start_ms: int) -> Row:
        builder = self._by_tag.get(output.tag)
        if builder is None:
            declared = ", ".join(self._side_outputs) or "none"
            raise SpecError(
                f"a function sent {output.value!r} to the side output {output.tag!r}, which the pipeline does not "
                f"declare; declared: {declared}. Add it to process.side_outputs with its columns"
            )
        key: Any = output.key
        values = _columns(output.value, self._side_outputs[output.tag], where=f"side output {output.tag!r}")
        fired_rank = _fired_rank(output.position, slice_start_ms)
        return builder.row((*key, output.timestamp_ms, output.watermark_ms, fired_rank, *values))


def _fired_rank(position: Position, slice_start_ms: int) -> int:
    """Return the rank of the record after which the output was emitted; -1 before the slice's first record."""
    return position[1] if position[0] == slice_start_ms else -1


def _record_values(record: Record) -> tuple[int, int | None, int]:
    return record.record_hash, record.timestamp_ms, record.position[1]


def _columns(values: object, names: Sequence[str], *, where: str) -> Sequence[Any]:
    """Return one value per column: of a mapping by name, of a tuple by place, of any other value the value itself."""
    match values:
        case tuple() if len(values) == len(names):
            return values
        case Mapping() if values.keys() <= set(names):
            return tuple(values.get(name) for name in names)
        case tuple() | Mapping():
            pass
        case _ if len(names) == 1:
            return (values,)
    raise SpecError(
        f"a function sent {values!r} to {where}, whose columns are {', '.join(names)}: send a mapping with these "
        "names, or a tuple with one value for each"
    )


def _bounds_us(window: Window) -> tuple[int | None, int | None]:
    start_ms, end_ms = window
    return None if start_ms is None else start_ms * US_PER_MS, None if end_ms is None else end_ms * US_PER_MS
