"""Readers of record values for a pipeline's triggers, evictors, gaps and watermarks.

If aggregates read a pipeline's records, `Record.value` is a tuple with one value per column. If only users' functions
read them, it is a dict. A `Place` is an index of the tuple or a key of the dict. All readers are frozen values, because
Spark sends them to its workers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any, Final

from windowlib.bounds import Window, whole_number
from windowlib.errors import SpecError
from windowlib.keyed.call_context import Missing, shown_context
from windowlib.records.plain_json import ATOMS, check_plain, plain_copy
from windowlib.records.records import Record, Stored, Value
from windowlib.triggers.protocol import FINISHED, HOLD, TIMEOUT, TIMEOUT_SHARED, TriggerContext, TriggerResult
from windowlib.triggers.wrapping import Wrapping
from windowlib.windows.evictors import Evictor, EvictorContext
from windowlib.windows.trigger_states import LAST_PANE_MS, STARTS_ANEW

Place = int | str

_MS_OF: Final[Mapping[str, Callable[[int], int]]] = {
    "s": lambda count: count * 1_000,
    "ms": lambda count: count,
    "us": lambda count: count // 1_000,
    "ns": lambda count: count // 1_000_000,
}
UNITS: Final = tuple(_MS_OF)
"""The allowed units of a column of times."""


def _check_unit(unit: str) -> None:
    if unit not in _MS_OF:
        raise SpecError(f"a unit must be one of {', '.join(UNITS)}, got {unit!r}")


@dataclass(frozen=True, slots=True)
class Measure:
    """Reads a column as a finite number, or None if it is null, NaN or infinite."""

    place: Place

    def __call__(self, value: Value) -> float | None:
        cell = value[self.place]
        if cell is None or isinstance(cell, int):
            return cell
        number = float(cell) if isinstance(cell, Decimal) else cell
        return number if isfinite(number) else None


@dataclass(frozen=True, slots=True)
class ColumnsOf:
    """Reads some columns as a copy, at any depth, in a dict.

    If `places` is None, the record's value is a dict. The places are those in the value, or in the part `within` it.
    """

    places: tuple[tuple[str, Place], ...] | None = None
    within: Place | None = None

    def __call__(self, value: Value) -> Mapping[str, Any]:
        part = value if self.within is None else value[self.within]
        row = dict(part) if self.places is None else {name: part[place] for name, place in self.places}
        for name, cell in row.items():
            if type(cell) not in ATOMS:
                row[name] = plain_copy(cell)
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOfColumn:
    """Reads the gap of a dynamic session in ms from a column, or None if it is null."""

    place: Place
    unit: str = "ms"

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    def __call__(self, record: Record) -> int | None:
        instant = record.value[self.place]
        return None if instant is None else _MS_OF[self.unit](instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOfFunction:
    """Computes the gap of a dynamic session in ms with a user's function of some columns."""

    function: Callable[[Mapping[str, Any]], int]
    columns: ColumnsOf

    def __call__(self, record: Record) -> int:
        return self.function(self.columns(record.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkOfColumn:
    """Reads a record's watermark in ms from a column, or None if it is null. For watermarks.generators.Punctuated."""

    column: str
    unit: str

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    def __call__(self, timestamp_ms: int, columns: Mapping[str, Any]) -> int | None:  # noqa: ARG002
        instant = columns[self.column]
        return None if instant is None else _MS_OF[self.unit](instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkOfFunction:
    """Calls a user's watermark function and checks that it returns an int or None."""

    name: str
    function: Callable[..., object]

    def __call__(self, *arguments: object) -> int | None:
        """Return the function's watermark in ms, or None. Raises SpecError: the function returned something else."""
        result = self.function(*arguments)
        watermark_ms = None if result is None else whole_number(result)
        if result is not None and watermark_ms is None:
            raise SpecError(
                f"{self.name} returned {result!r:.100}; a watermark is a whole number of epoch ms, or None for none"
            )
        return watermark_ms


def no_watermark(timestamp_ms: int, columns: Mapping[str, Any]) -> None:
    """Return no watermark. Event time does not advance, so only the clock and counts fire windows."""


_OF_USER: Final = "$users"
"""The key in `ctx.state` with what a user's trigger stores under names that have a meaning outside of it."""
_NOT_OF_USER: Final = (FINISHED, HOLD, TIMEOUT, TIMEOUT_SHARED, STARTS_ANEW, LAST_PANE_MS)


def _show_users(state: dict[str, Any]) -> dict[str, Any]:
    """Leave in a trigger state only what the user's trigger stored, and return the rest."""
    rest: dict[str, Any] = {name: state.pop(name) for name in _NOT_OF_USER if name in state}
    state.update(state.pop(_OF_USER, {}))
    return rest


def _put_apart(state: dict[str, Any], rest: Mapping[str, Any]) -> None:
    """Undo `_show_users` after a call of the user's trigger. Raise a SpecError if its state is not plain data."""
    check_plain(state)
    users = {name: state.pop(name) for name in (*_NOT_OF_USER, _OF_USER) if name in state}
    if users:
        state[_OF_USER] = users
    state.update(rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOnColumns(Wrapping):
    """A user's trigger that gets some columns of each record as a dict. It must keep plain data in `ctx.state`.

    `ctx.state` has only what it stored, under any name. A SpecError is raised if it returns no TriggerResult.
    """

    columns: ColumnsOf
    missing: Missing = ()

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        shown = record._replace(value=self.columns(record.value))
        return self._checked(self.inner.on_record, (shown, window), ctx)

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._checked(self.inner.on_event_time, (at_ms, window), ctx)

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._checked(self.inner.on_processing_time, (at_ms, window), ctx)

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        states = [other.state for other in (*merged, ctx)]
        rests = [_show_users(state) for state in states]
        *others, own = [shown_context(each, self.missing) for each in (*merged, ctx)]
        self.inner.on_merge(window, others, own)
        if any(FINISHED in rest for rest in rests):
            rests[-1][FINISHED] = True
        for state, rest in zip(states, rests, strict=True):
            _put_apart(state, rest)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        rest = _show_users(ctx.state)
        self.inner.clear(window, ctx)
        _put_apart(ctx.state, rest)

    def _checked(
        self, call: Callable[..., TriggerResult], arguments: tuple[object, Window], ctx: TriggerContext
    ) -> TriggerResult:
        rest = _show_users(ctx.state)
        result = call(*arguments, shown_context(ctx, self.missing))
        if not isinstance(result, TriggerResult):
            raise SpecError(
                f"{type(self.inner).__name__}.{call.__name__} returned {result!r:.100}; a trigger returns CONTINUE, "
                "FIRE, PURGE, FIRE_AND_PURGE or FINISH of windowlib"
            )
        if result.is_finish:
            rest[FINISHED] = True
        _put_apart(ctx.state, rest)
        return result


_Evict = Callable[[Sequence[Stored], Window, EvictorContext], Sequence[Stored]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorOnColumns(Evictor):
    """A user's evictor that gets some columns of each record as a dict."""

    inner: Evictor
    columns: ColumnsOf
    missing: Missing = ()

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:
        return self._kept(self.inner.keep_before, records, (window, shown_context(ctx, self.missing)))

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:
        return self._kept(self.inner.keep_after, records, (window, shown_context(ctx, self.missing)))

    def _kept(self, keep: _Evict, records: Sequence[Stored], where: tuple[Window, EvictorContext]) -> Sequence[Stored]:
        shown = [record._replace(value=self.columns(record.value)) for record in records]
        places = {id(record): place for place, record in enumerate(shown)}
        kept = keep(shown, *where)
        if not isinstance(kept, Iterable):
            raise SpecError(
                f"{type(self.inner).__name__} returned {kept!r:.100}; an evictor returns a list of the records to keep"
            )
        try:
            kept_places = [places[id(record)] for record in kept]
        except KeyError:
            raise SpecError(
                f"{type(self.inner).__name__} returned a record that it was not given; return some of the records, "
                "as they are"
            ) from None
        if any(place >= later for place, later in pairwise(kept_places)):
            raise SpecError(
                f"{type(self.inner).__name__} returned a record twice, or records in another order; return each record "
                "to keep once, in the order in which they were given"
            )
        return [records[place] for place in kept_places]
