"""What an operator emits, as rows of the tables that it belongs to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.errors import SpecError
from windowlib.records import tables
from windowlib.records.records import ON_TIME, Emitted, Late, Output, Pane, Position, SideOutput, Unassigned

US_PER_MS: Final = 1_000
Row = tuple[str, Sequence[Any]]
"""The table's name, and the values of its columns in their order."""


class OutputRows:
    """Turns outputs into rows. `outputs` are the columns of a pane's values, `side_outputs` those of each tag."""

    def __init__(self, outputs: Sequence[str], side_outputs: Mapping[str, Sequence[str]]) -> None:
        """Remember the columns."""
        self._outputs = tuple(outputs)
        self._nothing = (None,) * len(self._outputs)
        self._side_outputs = {tag: tuple(names) for tag, names in side_outputs.items()}

    def row(self, output: Output, slice_start_ms: int) -> Row:
        """Return the table that an output of this slice belongs to, and its row there.

        Raises:
            SpecError: a user's function emitted columns, or used a tag, that the pipeline file does not declare.
        """
        match output:
            case Pane():
                return tables.WINDOW_OUTPUTS, self._pane(output, slice_start_ms)
            case Late():
                return tables.LATE_RECORDS, _late(output)
            case Unassigned():
                record = output.record
                about = (record.record_hash, record.timestamp_ms, output.watermark_ms, record.position[1])
                return tables.UNASSIGNED_RECORDS, about
            case SideOutput():
                return self._side_output(output, slice_start_ms)
            case Emitted():
                return tables.WINDOW_OUTPUTS, self._emitted(output, slice_start_ms)
            case _:
                assert_never(output)

    def _pane(self, pane: Pane, slice_start_ms: int) -> Sequence[Any]:
        key: Any = pane.key  # a tuple of column values
        says_nothing = pane.kind == "superseded"
        values = self._nothing if says_nothing else _columns(pane.values, self._outputs, where="the output")
        about = (pane.pane_index, pane.timing, pane.is_first, pane.is_last, pane.mode, pane.kind, pane.record_count)
        pane_time_ms = None if pane.timestamp_ms == MAX_TIME_MS else pane.timestamp_ms
        times = (pane.nonspeculative_index, pane_time_ms, pane.watermark_ms, _fired_rank(pane.position, slice_start_ms))
        return (*key, *_bounds_us(pane.window), *about, *values, *times)

    def _emitted(self, emitted: Emitted, slice_start_ms: int) -> Sequence[Any]:
        """A keyed process function has no windows; each value it emits stands for itself."""
        key: Any = emitted.key
        values = _columns(emitted.values, self._outputs, where="the output")
        about = (0, ON_TIME, True, True, "discarding", "result", 1)
        times = (emitted.timestamp_ms, emitted.watermark_ms, _fired_rank(emitted.position, slice_start_ms))
        return (*key, None, None, *about, *values, 0, *times)

    def _side_output(self, output: SideOutput, slice_start_ms: int) -> Row:
        names = self._side_outputs.get(output.tag)
        if names is None:
            declared = ", ".join(self._side_outputs) or "none"
            raise SpecError(
                f"a function sent {output.value!r} to the side output {output.tag!r}, which the pipeline does not "
                f"declare; declared: {declared}. Add it to process.side_outputs with its columns"
            )
        key: Any = output.key
        values = _columns(output.value, names, where=f"side output {output.tag!r}")
        return tables.side_outputs_name(output.tag), (
            *key,
            *values,
            output.timestamp_ms,
            output.watermark_ms,
            _fired_rank(output.position, slice_start_ms),
        )


def _fired_rank(position: Position, slice_start_ms: int) -> int:
    """Return the rank in this slice of the record behind which something was emitted, -1 before the slice's first."""
    return position[1] if position[0] == slice_start_ms else -1


def _late(late: Late) -> Sequence[Any]:
    record = late.record
    missed = [dict(zip(("window_start", "window_end"), _bounds_us(window), strict=True)) for window in late.missed]
    met = (late.missed_all, late.watermark_ms, late.late_by_ms, late.reason)
    return (record.record_hash, record.timestamp_ms, missed, *met, record.position[1])


def _columns(values: object, names: Sequence[str], *, where: str) -> Sequence[Any]:
    """Return a value as one value per column: a mapping by name, a tuple by place, anything else where there is one."""
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
