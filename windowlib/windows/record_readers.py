"""How triggers, evictors, gaps and watermarks of a pipeline read a record: a column as a number, or some as a dict.

A pipeline's records carry a tuple with one value per column where aggregates read them, and a dict where only users'
functions do (Record.value). A `Place` is an index of the one or a key of the other. All are frozen values that travel
to workers.
"""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.records.records import Record, Stored, Value
from windowlib.triggers.protocol import TriggerContext, TriggerResult
from windowlib.triggers.wrapping import Wrapping
from windowlib.windows.evictors import Evictor, EvictorContext

Place = int | str

_MS_OF: Final[Mapping[str, Callable[[int], int]]] = {
    "s": lambda count: count * 1_000,
    "ms": lambda count: count,
    "us": lambda count: count // 1_000,
    "ns": lambda count: count // 1_000_000,
}
UNITS: Final = tuple(_MS_OF)
"""What a column of times may count."""


def _check_unit(unit: str) -> None:
    if unit not in _MS_OF:
        raise SpecError(f"a unit must be one of {', '.join(UNITS)}, got {unit!r}")


@dataclass(frozen=True, slots=True)
class Measure:
    """Reads a column as a finite number; None where it is null, NaN or infinite."""

    place: Place

    def __call__(self, value: Value) -> float | None:
        """Return the number."""
        found = value[self.place]
        if found is None or isinstance(found, int):
            return found
        number = float(found) if isinstance(found, Decimal) else found
        return number if isfinite(number) else None


@dataclass(frozen=True, slots=True)
class ColumnsOf:
    """Reads some columns as a dict; without `places` the value is the dict."""

    places: tuple[tuple[str, Place], ...] | None = None

    def __call__(self, value: Value) -> Mapping[str, Any]:
        """Return the dict."""
        if self.places is None:
            whole: Mapping[str, Any] = value
            return whole
        return {name: value[place] for name, place in self.places}


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOfColumn:
    """The gap of a dynamic session that a column holds; None where it is null."""

    place: Place
    unit: str = "ms"

    def __post_init__(self) -> None:
        """Check the unit."""
        _check_unit(self.unit)

    def __call__(self, record: Record) -> int | None:
        """Return the gap in ms."""
        found = record.value[self.place]
        return None if found is None else _MS_OF[self.unit](found)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOfFunction:
    """The gap of a dynamic session that a user's function finds in some columns, in ms."""

    function: Callable[[Mapping[str, Any]], int]
    columns: ColumnsOf

    def __call__(self, record: Record) -> int:
        """Call the user's function."""
        return self.function(self.columns(record.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkOfColumn:
    """The watermark that a record carries in a column, None where it is null; for watermarks.Punctuated."""

    column: str
    unit: str

    def __post_init__(self) -> None:
        """Check the unit."""
        _check_unit(self.unit)

    def __call__(self, timestamp_ms: int, columns: Mapping[str, Any]) -> int | None:  # noqa: ARG002
        """Return the watermark in ms."""
        found = columns[self.column]
        return None if found is None else _MS_OF[self.unit](found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkOfFunction:
    """What a user's function says about the watermark, once it is an int or None."""

    name: str
    function: Callable[..., object]

    def __call__(self, *arguments: object) -> int | None:
        """Call the user's function.

        Raises:
            SpecError: it returned something else.
        """
        found = self.function(*arguments)
        if found is None or (isinstance(found, int) and not isinstance(found, bool)):
            return found
        raise SpecError(f"{self.name} returned {found!r}; a watermark is a whole number of epoch ms, or None for none")


def no_watermark(timestamp_ms: int, columns: Mapping[str, Any]) -> None:
    """Say nothing: event time stands still, and only the clock and counts move windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOnColumns(Wrapping):
    """A user's trigger that sees some columns of each record as a dict."""

    columns: ColumnsOf

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Show the record's columns."""
        return self.inner.on_record(record._replace(value=self.columns(record.value)), window, ctx)


_Evict = Callable[[Sequence[Stored], Window, EvictorContext], Sequence[Stored]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorOnColumns(Evictor):
    """A user's evictor that sees some columns of each record as a dict."""

    inner: Evictor
    columns: ColumnsOf

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:
        """Show the records' columns."""
        return self._kept(self.inner.keep_before, records, (window, ctx))

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:
        """Show the records' columns."""
        return self._kept(self.inner.keep_after, records, (window, ctx))

    def _kept(self, keep: _Evict, records: Sequence[Stored], where: tuple[Window, EvictorContext]) -> Sequence[Stored]:
        shown = [record._replace(value=self.columns(record.value)) for record in records]
        whole = {id(one): record for one, record in zip(shown, records, strict=True)}
        try:
            return [whole[id(one)] for one in keep(shown, *where)]
        except KeyError:
            raise SpecError(
                f"{type(self.inner).__name__} returned a record that it was not given; return some of the records, "
                "as they are"
            ) from None
