"""The values of documents: their types, their total order, and their paths.

null is None, a boolean bool, an integer int, a double float, a decimal Decimal, a text str, binary data bytes, an array
list, an object dict, and an instant `Date`. The value of a field that a document does not have is MISSING, not null.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from math import isnan
from typing import Any, Final, NamedTuple

Value = Any
"""Any value of a document, or MISSING."""
Document = dict[str, Any]


class Date(NamedTuple):
    """An instant, in epoch ms."""

    ms: int


class Missing(Enum):
    """The type of MISSING, the value of a field that a document does not have."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

_NAMES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "bool",
    float: "double",
    Decimal: "decimal",
    str: "string",
    bytes: "binData",
    list: "array",
    dict: "object",
    Date: "date",
    Missing: "missing",
}


def type_name(value: Value) -> str:
    """Return the name of a value's type. An integer is an int if it fits into 32 bits, else a long."""
    if type(value) is int:
        return "int" if -INT32_MAX - 1 <= value <= INT32_MAX else "long"
    return _NAMES[type(value)]


def is_number(value: Value) -> bool:
    """Tell whether a value is an int, a double or a decimal; a boolean is not a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_nan(number: Value) -> bool:
    """Tell whether a number is NaN."""
    return number.is_nan() if isinstance(number, Decimal) else isnan(number)


def is_nothing(value: Value) -> bool:
    """Tell whether a value is null or missing."""
    return value is None or value is MISSING


def is_true(value: Value) -> bool:
    """Tell whether a value counts as true: every value except false, zero, null and missing."""
    if isinstance(value, bool):
        return value
    return bool(value) if is_number(value) else not is_nothing(value)


SortKey = tuple[Any, ...]


def _number_key(value: Value) -> SortKey:
    return (2, 0) if is_nan(value) else (2, 1, value)


def _object_key(value: Value) -> SortKey:
    fields = ((key[0], name, key) for name, key in ((name, sort_key(field)) for name, field in value.items()))
    return (4, tuple(fields))


_KEYS: Final[Mapping[type, Callable[[Value], SortKey]]] = {
    Missing: lambda _value: (0,),
    type(None): lambda _value: (1,),
    int: lambda value: (2, 1, value),
    float: _number_key,
    Decimal: _number_key,
    str: lambda value: (3, value),
    dict: _object_key,
    list: lambda value: (5, tuple(map(sort_key, value))),
    bytes: lambda value: (6, len(value), value),
    bool: lambda value: (8, value),
    Date: lambda value: (9, value.ms),
}


def sort_key(value: Value) -> SortKey:
    """Return a hashable key that orders values as BSON does, and is equal for equal values.

    The order of types is: missing, null, numbers, texts, objects, arrays, binary data, booleans, dates. Numbers compare
    by value, independent of their type, and NaN is the least number. Objects compare field by field, each field by
    type, name and value.

    >>> sort_key(1) == sort_key(1.0) < sort_key("a") < sort_key(True)
    True
    """
    return _KEYS[type(value)](value)


def bracket(value: Value) -> int:
    """Return the number of a value's group of types in the order of BSON. Queries compare values of one group."""
    return int(sort_key(value)[0])


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 if `left` is less than, equal to or greater than `right` in the order of BSON."""
    left_key, right_key = sort_key(left), sort_key(right)
    return (left_key > right_key) - (left_key < right_key)


def is_equal(left: Value, right: Value) -> bool:
    """Tell whether two values are equal in the order of BSON."""
    return sort_key(left) == sort_key(right)


def field_path(value: Value, names: Sequence[str]) -> Value:
    """Return the value at an expression's path. An array on the path gives the array of its elements' values."""
    for at, name in enumerate(names):
        if isinstance(value, list):
            inner = (field_path(element, names[at:]) for element in value)
            return [element for element in inner if element is not MISSING]
        if not isinstance(value, dict):
            return MISSING
        value = value.get(name, MISSING)
    return value


def at_objects(value: Value, names: Sequence[str]) -> Value:
    """Return the value at a path that goes through objects only, not through arrays."""
    for name in names:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return value


def candidates(value: Value, names: Sequence[str]) -> list[Value]:
    """Return all values at a query's path. In an array, the path goes through each element and through an index.

    If an object has no such field, or a value is not an object or array, its value is MISSING. If no element of an
    array continues the path, the array gives no value.
    """
    if not names:
        return [value]
    if isinstance(value, dict):
        return candidates(value.get(names[0], MISSING), names[1:])
    if not isinstance(value, list):
        return [MISSING]
    values: list[Value] = []
    if names[0].isdigit() and int(names[0]) < len(value):
        values += candidates(value[int(names[0])], names[1:])
    for element in value:
        if isinstance(element, dict):
            values += candidates(element, names)
    return values


def with_field(document: Document, names: Sequence[str], value: Value) -> Document:
    """Return a copy with `value` at a path; MISSING removes the field. In an array, this applies to each element."""
    name, rest = names[0], names[1:]
    copy = dict(document)
    if not rest:
        if value is MISSING:
            copy.pop(name, None)
        else:
            copy[name] = value
        return copy
    inner = copy.get(name, MISSING)
    if isinstance(inner, list):
        copy[name] = [_element_with(element, rest, value) for element in inner]
    elif isinstance(inner, dict) or value is not MISSING:
        copy[name] = with_field(inner if isinstance(inner, dict) else {}, rest, value)
    return copy


def _element_with(element: Value, names: Sequence[str], value: Value) -> Value:
    if isinstance(element, list):
        return [_element_with(inner, names, value) for inner in element]
    if isinstance(element, dict):
        return with_field(element, names, value)
    return element if value is MISSING else with_field({}, names, value)
