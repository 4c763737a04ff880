"""Conversion of a batch's columns to the key, value and gap of each record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from math import isnan, nan
from typing import Any, Final, Literal

import pyarrow as pa

from windowlib.columnar.arrow import column_values, plain_values
from windowlib.records.column_types import decimal_of, parse_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLayout:
    """How a record's columns become `Record.value` and `Record.gap_ms`.

    `kind`:
    - 'tuple': one element per entry of `columns`. An entry None, as for a count, gives None. The inputs of aggregates
      come first, in the order of the aggregates, then the columns that triggers and evictors read.
    - 'single': the value of the only column.
    - 'mapping': a dict of `columns`, for user functions and documents. Its instants are epoch microseconds, its dates
      epoch days.

    `gap` is the column of a dynamic session's gap in ms, or a function of the mapping (only for the kind 'mapping').
    """

    kind: Literal["tuple", "single", "mapping"]
    columns: tuple[str | None, ...]
    gap: str | Callable[[Mapping[str, Any]], int] | None = None

    def read(self) -> tuple[str, ...]:
        """Return the columns that tasks read, each once, in a fixed order."""
        gap = (self.gap,) if isinstance(self.gap, str) else ()
        return tuple(dict.fromkeys(name for name in (*self.columns, *gap) if name is not None))


KEYS_MAX: Final = 1 << 17
"""The default of `KeyReader`'s `known_max`."""


class KeyReader:
    """Reads the keys of batches: tuples of the key columns k0, k1 .. Equal keys are one object, and all NaN are.

    So the windows of a key share its key, and a dict finds a key without comparing its values. At most `known_max` keys
    are remembered.
    """

    def __init__(self, count: int, *, known_max: int = KEYS_MAX) -> None:
        """Prepare for keys of `count` columns."""
        self._count = count
        self._known_max = known_max
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        """The keys, if there are several columns."""
        self._of_value = _KeysOfOne()

    def keys(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
        """Return the key of each row."""
        if len(self._known) + len(self._of_value) > self._known_max:
            self._known.clear()
            self._of_value.clear()
        columns = [batch.column(f"k{i}") for i in range(self._count)]
        match columns:
            case []:
                return repeat((), batch.num_rows)
            case [column] if pa.types.is_integer(column.type):
                return map(self._of_value.__getitem__, plain_values(column))
            case [column]:
                encoded = column.dictionary_encode(null_encoding="encode")
                keys = [self._of_value[value] for value in _key_values(encoded.dictionary)]
                return map(keys.__getitem__, plain_values(encoded.indices))
            case _:
                known = self._known
                return [known.setdefault(key, key) for key in zip(*map(_key_values, columns), strict=True)]


class _KeysOfOne(dict[Any, tuple[Any, ...]]):
    """A cache from a value to the key of this value. A look-up of the key itself would take twice as long."""

    __slots__ = ()

    def __missing__(self, value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any key
        key = self[value] = (value,)
        return key


def _key_values(column: pa.Array) -> list[Any]:
    """Return a key column. All NaN become one object, and -0.0 becomes 0.0, because Python takes the two for equal."""
    values = plain_values(column)
    if pa.types.is_floating(column.type):
        return [value if value is None else nan if isnan(value) else value + 0.0 for value in values]
    return values


def batch_values(batch: pa.RecordBatch, layout: ValueLayout) -> tuple[Iterable[Any], Iterable[int | None]]:
    """Return the values and the gaps of the rows. The columns of `layout.read()` are v0, v1 .. in the batch."""
    read = layout.read()
    convert = column_values if layout.kind == "mapping" else plain_values
    columns: dict[str, Sequence[Any]] = {name: convert(batch.column(f"v{i}")) for i, name in enumerate(read)}
    count = batch.num_rows
    chosen = [repeat(None, count) if name is None else columns[name] for name in layout.columns]
    gaps = columns[layout.gap] if isinstance(layout.gap, str) else repeat(None, count)
    if layout.kind == "single":
        return chosen[0], gaps
    rows = zip(*chosen, strict=True) if chosen else repeat((), count)
    if layout.kind == "tuple":
        return rows, gaps
    names = [str(name) for name in layout.columns]
    values = [dict(zip(names, row, strict=True)) for row in rows]
    if callable(layout.gap):
        return values, [layout.gap(value) for value in values]
    return values, gaps


_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"), (int,)),
    **dict.fromkeys(("float", "double"), (float,)),
    "boolean": (bool,),
    "string": (str,),
    "binary": (bytes,),
}
"""The classes of the values of a column type (windowlib.columnar.arrow.plain_values)."""


def value_reader(layout: ValueLayout, types: Mapping[str, str]) -> Callable[[Any], Any]:
    """Return a function that makes a stored value a `Record.value`. It raises ValueError if the value has another form.

    A column that the log has got since is null in a stored mapping, as in a record that is read now. `types` are those
    of the columns.
    """
    classes = [_classes_of(None if name is None else types[name]) for name in layout.columns]
    names = [str(name) for name in layout.columns]

    known = frozenset(names)

    def fit(values: Iterable[Any]) -> bool:
        return all(
            value is None or allowed is None or type(value) in allowed
            for value, allowed in zip(values, classes, strict=True)
        )

    def read(value: Any) -> Any:  # noqa: ANN401 - of any column
        has_form, values = True, (value,)
        if layout.kind == "tuple":
            has_form, values = type(value) is tuple and len(value) == len(classes), value
        elif layout.kind == "mapping":
            has_form = type(value) is dict and value.keys() <= known
            value = {name: value.get(name) for name in names} if has_form else {}
            values = tuple(value.values())
        if not has_form or not fit(values):
            raise ValueError
        return value

    return read


def _classes_of(kind: str | None) -> tuple[type, ...] | None:
    """Return the classes of the values of a column; None for nested columns, whose values are not tested."""
    node = None if kind is None else parse_type(kind)
    if kind is None or not isinstance(node, str):
        return (type(None),) if kind is None else None
    return (Decimal,) if decimal_of(node) is not None else _CLASSES.get(node)
