"""Conversion of a batch's columns to the key, value and gap of each record."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import repeat, zip_longest
from math import isnan, nan
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from windowlib.columnar.arrow import column_values, plain_values
from windowlib.errors import SpecError
from windowlib.records.column_types import Node, decimal_of, parse_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLayout:
    """How a record's columns become `Record.value` and `Record.gap_ms`.

    `kind`:
    - 'tuple': one element per entry of `columns`. An entry None, as for a count, gives None. The inputs of aggregates
      come first, in the order of the aggregates, then the columns that triggers and evictors read. If users' functions
      read records, the last element is a dict of the columns `shown` to them.
    - 'single': the value of the only column.
    - 'mapping': a dict of `columns`, for user functions and documents. Its instants are epoch microseconds, its dates
      epoch days.

    `gap` is the column of a dynamic session's gap in ms, or a function of the mapping (only for the kind 'mapping').
    """

    kind: Literal["tuple", "single", "mapping"]
    columns: tuple[str | None, ...]
    shown: tuple[str, ...] = ()
    gap: str | Callable[[Mapping[str, Any]], int] | None = None

    def read(self) -> tuple[str, ...]:
        """Return the columns that tasks read, each once, in a fixed order."""
        gap = (self.gap,) if isinstance(self.gap, str) else ()
        return tuple(dict.fromkeys(name for name in (*self.columns, *self.shown, *gap) if name is not None))


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
    read, count = layout.read(), batch.num_rows
    convert = column_values if layout.kind == "mapping" else plain_values
    columns: dict[str, Sequence[Any]] = {name: convert(batch.column(f"v{i}")) for i, name in enumerate(read)}
    chosen = [repeat(None, count) if name is None else columns[name] for name in layout.columns]
    gaps = columns[layout.gap] if isinstance(layout.gap, str) else repeat(None, count)
    if layout.kind == "single":
        return chosen[0], gaps
    if layout.shown:
        of_functions = zip(*(column_values(batch.column(f"v{read.index(name)}")) for name in layout.shown), strict=True)
        chosen.append([dict(zip(layout.shown, row, strict=True)) for row in of_functions])
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
_Reader: TypeAlias = Callable[[Any], Any]


def value_reader(layout: ValueLayout, types: Mapping[str, str], *, were_dates: Collection[str] = ()) -> _Reader:
    """Return a function that makes a stored value a `Record.value`.

    It raises ValueError or ArithmeticError if the value has another form, and SpecError if a column may have been
    renamed. A stored mapping or struct gets the columns of a record that is read now: one that the log has got since is
    null, and one that it has lost is left out. A value that was stored before its column was widened becomes the value
    that is read now. `types` are those of the columns, and `were_dates` the columns whose timestamps are stored as
    days.
    """

    def reader_of(name: str | None) -> _Reader:
        node = "void" if name is None else parse_type(types[name])
        return _reader(node, was_date=name in were_dates)

    cells = [reader_of(name) for name in layout.columns]
    if layout.kind == "single":
        return cells[0]
    if layout.kind == "mapping":
        return _record_reader(dict(zip(map(str, layout.columns), cells, strict=True)))
    if layout.shown:
        cells.append(_record_reader({name: reader_of(name) for name in layout.shown}))

    def read(value: Any) -> Any:  # noqa: ANN401 - of any column
        if type(value) is not tuple:
            raise ValueError
        return tuple([cell(part) for cell, part in zip(cells, value, strict=True)])

    return read


_US_PER_DAY: Final = 86_400_000_000
_EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation])


def _same(value: Any) -> Any:  # noqa: ANN401 - of any column
    return value


def _reader(node: Node, *, was_date: bool) -> _Reader:
    """Return a function that reads a stored value of a type, at any depth. It raises ValueError for another type.

    Structs and maps are dicts, or tuples and lists of pairs (windowlib.columnar.arrow.plain_values).
    """
    if isinstance(node, str):
        readers = _readers_of(node, was_date=was_date)
    elif node["type"] == "struct":
        fields = {field["name"]: _reader(field["type"], was_date=was_date) for field in node["fields"]}
        readers = {type(None): _same, dict: _fields_reader(fields), tuple: _tuple_reader(tuple(fields.values()))}
    elif node["type"] == "array":
        item = _reader(node["elementType"], was_date=was_date)
        readers = {type(None): _same, list: lambda values: [item(value) for value in values]}
    else:
        name, item = (_reader(node[part], was_date=was_date) for part in ("keyType", "valueType"))
        readers = {
            type(None): _same,
            dict: lambda values: {name(key): item(values[key]) for key in values},
            list: lambda pairs: [(name(key), item(value)) for key, value in pairs],
        }

    def read(value: Any) -> Any:  # noqa: ANN401 - of any column
        reader = readers.get(type(value))
        if reader is None:
            raise ValueError
        return reader(value)

    return read


def _record_reader(columns: Mapping[str, _Reader]) -> _Reader:
    """Return a function that reads a mapping of a record's columns. It refuses one that may have a renamed column."""
    inner, names = _fields_reader(columns), columns.keys()

    def read(value: Any) -> Any:  # noqa: ANN401 - a mapping, or damaged
        if type(value) is dict and value.keys() - names and names - value.keys():
            lost, new = (", ".join(sorted(some)) for some in (value.keys() - names, names - value.keys()))
            raise SpecError(
                f"the records of open windows have the columns {lost}, which the log has no more, and lack {new}. If a "
                "column was renamed, these records would have null in it. If a function reads them, list its `columns` "
                "in the pipeline file and adopt this, so that they are read again; or begin a new chain with --fresh"
            )
        return inner(value)

    return read


def _fields_reader(fields: Mapping[str, _Reader]) -> _Reader:
    def read(value: Any) -> Any:  # noqa: ANN401 - a mapping, or damaged
        if type(value) is not dict:
            raise ValueError
        return {name: reader(value.get(name)) for name, reader in fields.items()}

    return read


def _tuple_reader(fields: Sequence[_Reader]) -> _Reader:
    """Return a function that reads the fields of a struct by place. Later fields are newer than the value: null."""

    def read(value: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a struct
        if len(value) > len(fields):
            raise ValueError
        return tuple([field(part) for field, part in zip_longest(fields, value)])

    return read


def _readers_of(node: str, *, was_date: bool) -> dict[type, _Reader]:
    """Return what reads the values of each class that a column of this type can have had."""
    readers: dict[type, _Reader] = dict.fromkeys((type(None), *_CLASSES.get(node, ())), _same)
    if (shape := decimal_of(node)) is not None:
        step = Decimal(1).scaleb(-shape[1])
        readers |= dict.fromkeys((int, Decimal), lambda number: Decimal(number).quantize(step, context=_EXACT))
    if node == "double":
        readers[int] = float
    if node == "timestamp_ntz" and was_date:
        readers[int] = lambda day: day * _US_PER_DAY
    return readers
