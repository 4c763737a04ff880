"""Conversion of an operator's outputs into rows of the tables that store them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, assert_never

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.errors import SpecError
from windowlib.records import tables
from windowlib.records.named_rows import Row, RowBuilder
from windowlib.records.records import ON_TIME, Emitted, Late, Output, Pane, Position, SideOutput, Unassigned
from windowlib.records.tables import Table

US_PER_MS: Final = 1_000


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
        self._tables = {table.name: (table.keys, RowBuilder(table)) for table in output_tables}
        self._outputs = tuple(outputs)
        self._nothing = (None,) * len(self._outputs)
        self._side_outputs = {tag: tuple(names) for tag, names in side_outputs.items()}

    def row(self, output: Output, slice_start_ms: int) -> Row:
        """Return the row of an output of this slice.

        Raises:
            SpecError: a user's function emitted columns, or used a tag, that the pipeline file does not declare.
        """
        match output:
            case Pane():
                return self._row(tables.WINDOW_OUTPUTS, output.key, self._pane(output, slice_start_ms))
            case Late():
                return self._row(tables.LATE_RECORDS, (), _late(output))
            case Unassigned():
                return self._row(tables.UNASSIGNED_RECORDS, (), _unassigned(output))
            case SideOutput():
                name = tables.side_outputs_name(output.tag)
                return self._row(name, output.key, self._side_output(output, slice_start_ms))
            case Emitted():
                return self._row(tables.WINDOW_OUTPUTS, output.key, self._emitted(output, slice_start_ms))
            case _:
                assert_never(output)

    def _row(self, table: str, key: Any, values: dict[str, Any]) -> Row:  # noqa: ANN401 - a tuple of column values
        names, builder = self._tables[table]
        values.update(zip(names, key, strict=True))
        return builder.row(values)

    def _pane(self, pane: Pane, slice_start_ms: int) -> dict[str, Any]:
        has_values = pane.kind != "superseded"
        values = _columns(pane.values, self._outputs, where="the output") if has_values else self._nothing
        start_us, end_us = _bounds_us(pane.window)
        return {
            "window_start": start_us,
            "window_end": end_us,
            "pane_index": pane.pane_index,
            "timing": pane.timing,
            "is_first": pane.is_first,
            "is_last": pane.is_last,
            "mode": pane.mode,
            "kind": pane.kind,
            "record_count": pane.record_count,
            "nonspeculative_index": pane.nonspeculative_index,
            "pane_time_ms": None if pane.timestamp_ms == MAX_TIME_MS else pane.timestamp_ms,
            "watermark_ms": pane.watermark_ms,
            "fired_rank": _fired_rank(pane.position, slice_start_ms),
            **dict(zip(self._outputs, values, strict=True)),
        }

    def _emitted(self, emitted: Emitted, slice_start_ms: int) -> dict[str, Any]:
        """A keyed process function has no windows, so each value that it emits is a final result of its own."""
        values = _columns(emitted.values, self._outputs, where="the output")
        return {
            "window_start": None,
            "window_end": None,
            "pane_index": 0,
            "timing": ON_TIME,
            "is_first": True,
            "is_last": True,
            "mode": "discarding",
            "kind": "result",
            "record_count": 1,
            "nonspeculative_index": 0,
            "pane_time_ms": emitted.timestamp_ms,
            "watermark_ms": emitted.watermark_ms,
            "fired_rank": _fired_rank(emitted.position, slice_start_ms),
            **dict(zip(self._outputs, values, strict=True)),
        }

    def _side_output(self, output: SideOutput, slice_start_ms: int) -> dict[str, Any]:
        names = self._side_outputs.get(output.tag)
        if names is None:
            declared = ", ".join(self._side_outputs) or "none"
            raise SpecError(
                f"a function sent {output.value!r} to the side output {output.tag!r}, which the pipeline does not "
                f"declare; declared: {declared}. Add it to process.side_outputs with its columns"
            )
        values = _columns(output.value, names, where=f"side output {output.tag!r}")
        return {
            **dict(zip(names, values, strict=True)),
            "event_time_ms": output.timestamp_ms,
            "watermark_ms": output.watermark_ms,
            "fired_rank": _fired_rank(output.position, slice_start_ms),
        }


def _fired_rank(position: Position, slice_start_ms: int) -> int:
    """Return the rank of the record after which the output was emitted; -1 before the slice's first record."""
    return position[1] if position[0] == slice_start_ms else -1


def _late(late: Late) -> dict[str, Any]:
    record = late.record
    return {
        "record_hash": record.record_hash,
        "event_time_ms": record.timestamp_ms,
        "missed_windows": [
            dict(zip(("window_start", "window_end"), _bounds_us(window), strict=True)) for window in late.missed
        ],
        "missed_all": late.missed_all,
        "watermark_ms": late.watermark_ms,
        "late_by_ms": late.late_by_ms,
        "reason": late.reason,
        "rank": record.position[1],
    }


def _unassigned(unassigned: Unassigned) -> dict[str, Any]:
    record = unassigned.record
    return {
        "record_hash": record.record_hash,
        "event_time_ms": record.timestamp_ms,
        "watermark_ms": unassigned.watermark_ms,
        "rank": record.position[1],
    }


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
