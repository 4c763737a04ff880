"""Row conditions as masks. A condition that is not true for a null selects it as pandas does: only `!=` and NOT_IN do.

Spark leaves out nulls for these two, too. The meaning here does not depend on the size of a table.
"""

import json
import keyword
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.arguments import EXACT_LIMIT
from expectations.compiled.columns import NUMERIC, Column, Flags, Kind, Rows, flags

Mask = Callable[[Rows], Flags]
Kinds = Mapping[str, Kind]

_ARROW: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_NUMPY: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def not_null(names: tuple[str, ...]) -> Mask:
    """Return the mask of rows in which no column is null."""
    return lambda rows: ~np.logical_or.reduce([rows.column(name).null for name in names])


def not_all_null(names: tuple[str, ...]) -> Mask:
    """Return the mask of rows in which at least one column is not null."""
    return lambda rows: ~np.logical_and.reduce([rows.column(name).null for name in names])


def compile_condition(condition: Mapping[str, Any], kinds: Kinds) -> Mask | None:
    """Return the mask of a condition, or None if it is not compiled for these columns.

    `condition` is data, as `expectations.arguments.condition` allows it. `kinds` maps a column to its kind.
    """
    inner = _compile(condition, kinds)
    if inner is None:
        return None
    name = json.dumps(condition, sort_keys=True)
    return lambda rows: rows.mask(name, inner)


def _compile(condition: Mapping[str, Any], kinds: Kinds) -> Mask | None:
    if condition["type"] in {"and", "or"}:
        parts = [_compile(part, kinds) for part in condition["conditions"]]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        join = operator.and_ if condition["type"] == "and" else operator.or_
        return lambda rows: reduce(join, (part(rows) for part in known))
    name = condition["column"]["name"]
    # Great Expectations writes the condition as a text for pandas, which reads other names in its own way.
    if name not in kinds or not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        return None
    if condition["type"] == "nullity":
        if kinds[name] is Kind.OTHER:
            return None
        wanted = condition["is_null"]
        return (lambda rows: rows.column(name).null) if wanted else (lambda rows: ~rows.column(name).null)
    return _comparison(name, kinds[name], condition)


def _comparison(name: str, kind: Kind, condition: Mapping[str, Any]) -> Mask | None:
    symbol, parameter = condition["operator"], condition["parameter"]
    if symbol in {"IN", "NOT_IN"}:
        member = members(kind, parameter)
        if member is None or kind is Kind.FLAG:
            return None
        if symbol == "IN":
            return lambda rows: member(rows.column(name))
        return lambda rows: ~member(rows.column(name))
    if kind is Kind.TEXT and isinstance(parameter, str):
        return lambda rows: _selected(_texts(rows.column(name), symbol, parameter), rows.column(name), symbol)
    if (kind in NUMERIC and is_number(parameter)) or (
        kind is Kind.FLAG and isinstance(parameter, bool) and symbol in {"==", "!="}
    ):
        compare = _NUMPY[symbol]
        return lambda rows: _selected(compare(rows.column(name).values, parameter), rows.column(name), symbol)
    return None


def _selected(is_true: Flags, column: Column, symbol: str) -> Flags:
    return is_true | column.null if symbol == "!=" else is_true & ~column.null


def _texts(column: Column, symbol: str, parameter: str) -> Flags:
    return flags(_ARROW[symbol](column.array, pa.scalar(parameter, column.array.type)))


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number. A boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def members(kind: Kind, values: list[Any]) -> Callable[[Column], Flags] | None:
    """Return a function that tells which values of a column are in the list, or None if the types do not fit.

    Nulls are not members.
    """
    if kind is Kind.TEXT and all(isinstance(value, str) for value in values):
        return lambda column: flags(pc.is_in(column.array, pa.array(values, column.array.type)))
    if kind is Kind.FLAG and all(isinstance(value, bool) for value in values):
        return lambda column: np.isin(column.values, np.array(values, dtype=bool)) & ~column.null
    if kind not in NUMERIC or not all(is_number(value) for value in values):
        return None
    if kind is not Kind.WHOLE:
        return lambda column: np.isin(column.values, np.array(values, dtype=np.float64)) & ~column.null
    # Beyond 2^53 a double stands for several integers.
    if any(abs(value) >= EXACT_LIMIT for value in values):
        return None
    whole = np.array([int(value) for value in values if value == int(value)], dtype=np.int64)
    return lambda column: np.isin(column.values, whole) & ~column.null
