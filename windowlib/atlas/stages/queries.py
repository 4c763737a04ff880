"""The query language of $match: conditions on fields and on the elements of arrays.

A condition on a field is true if one of the values at its path fulfils it. For an array, the condition is tested on
each element and on the array as a whole. Comparisons are true only between values of one group of types: 5 is not less
and not greater than "5".
"""

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from windowlib.atlas.documents.documents import (
    MISSING,
    Value,
    bracket,
    candidates,
    is_number,
    is_true,
    sort_key,
    type_name,
)
from windowlib.atlas.documents.json_documents import is_typed, read_literal
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.expressions import compile_expression
from windowlib.atlas.expressions.forms import Scope
from windowlib.atlas.expressions.numeric import is_finite
from windowlib.atlas.expressions.strings import pattern
from windowlib.errors import SpecError

Query = Callable[[Scope], bool]
Condition = Callable[[list[Value]], bool]
"""Tests all values at a path. If they are `_Elements`, an array among them is tested as a whole only."""
Test = Callable[[Value], bool]
"""Tests one value."""


class _Elements(list[Value]):
    """Elements of an array, which $elemMatch tests alone."""

    __slots__ = ()


LOGICAL: Final = ("$and", "$or", "$nor", "$expr")
_TYPE_NUMBERS: Final = {
    1: "double", 2: "string", 3: "object", 4: "array", 5: "binData",
    8: "bool", 9: "date", 10: "null", 16: "int", 18: "long", 19: "decimal",
}  # fmt: skip
_TYPES: Final = (*_TYPE_NUMBERS.values(), "number")


def compile_query(query: Json, place: Place) -> Query:
    """Return the function that tells whether a document matches a query.

    Raises SpecError: an operator is unknown or has a wrong argument.
    """
    parts: list[Query] = []
    for name, inner in place.mapping(query).items():
        at = place.at(name)
        if not name.startswith("$"):
            parts.append(_on_field(name, inner, at))
        elif name == "$expr":
            expression = compile_expression(inner, at)
            parts.append(lambda scope, expression=expression: is_true(expression(scope)))  # type: ignore[misc]
        elif name in LOGICAL:
            parts.append(_logical(name, inner, at))
        elif name != "$comment":
            raise at.refused(name, "a field, or one of " + ", ".join(LOGICAL))
    return lambda scope: all(part(scope) for part in parts)


def _logical(name: str, operand: Json, place: Place) -> Query:
    queries = [compile_query(part, place.item(index)) for index, part in enumerate(place.array(operand))]
    if not queries:
        raise place.refused(operand, "an array with at least one query")
    match name:
        case "$and":
            return lambda scope: all(query(scope) for query in queries)
        case "$or":
            return lambda scope: any(query(scope) for query in queries)
        case _:
            return lambda scope: not any(query(scope) for query in queries)


def _on_field(name: str, operand: Json, place: Place) -> Query:
    path = tuple(name.split("."))
    condition = _condition(operand, place)
    return lambda scope: condition(candidates(scope.root, path))


def _has_operators(value: Json) -> bool:
    return isinstance(value, Mapping) and not is_typed(value) and any(name.startswith("$") for name in value)


def _condition(operand: Json, place: Place) -> Condition:
    if not _has_operators(operand):
        return _some(_equal_to(read_literal(operand, place)))
    fields = place.mapping(operand)
    if "$options" in fields and "$regex" not in fields:
        raise place.refused(operand, "$options beside $regex only")
    conditions = [_operator(name, inner, place, fields) for name, inner in fields.items() if name != "$options"]
    return lambda values: all(condition(values) for condition in conditions)


def _some(test: Test) -> Condition:
    """Return the condition that some value, or an element of it, passes a test."""

    def holds(values: list[Value]) -> bool:
        if isinstance(values, _Elements):
            return any(map(test, values))
        return any(test(value) or (isinstance(value, list) and any(map(test, value))) for value in values)

    return holds


def _not(condition: Condition) -> Condition:
    return lambda values: not condition(values)


def _equal_to(wanted: Value) -> Test:
    if wanted is None:
        return lambda value: value is None or value is MISSING
    key = sort_key(wanted)
    return lambda value: value is not MISSING and sort_key(value) == key


def _ordered(wanted: Value, holds: Callable[[Any, Any], bool]) -> Test:
    key, kind = sort_key(wanted), bracket(wanted)

    def test(value: Value) -> bool:
        value_key = sort_key(None if value is MISSING and wanted is None else value)
        is_nan = key[:2] == (2, 0) or value_key[:2] == (2, 0)
        return value_key[0] == kind and holds(value_key, key) and (not is_nan or value_key == key)

    return test


_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def _operator(name: str, operand: Json, place: Place, siblings: Mapping[str, Json]) -> Condition:  # noqa: PLR0917
    at = place.at(name)
    if name in _ORDERS:
        return _some(_ordered(read_literal(operand, at), _ORDERS[name]))
    if name == "$regex":
        return _some(_regex(operand, siblings.get("$options", ""), at))
    reader = _OPERATORS.get(name)
    if reader is None:
        known = ", ".join((*_ORDERS, *_OPERATORS, "$regex"))
        raise SpecError(f"{at.path}: there is no query operator {name}; allowed are {known}")
    return reader(operand, at)


def _regex(operand: Json, options: Json, place: Place) -> Test:
    try:
        compiled = pattern(place.text(operand), options if isinstance(options, str) else repr(options))
    except ValueError as error:
        raise SpecError(f"{place.path}: {error}") from error
    return lambda value: isinstance(value, str) and compiled.search(value) is not None


def _in(operand: Json, place: Place) -> Condition:
    tests = [_equal_to(read_literal(wanted, place.item(index))) for index, wanted in enumerate(place.array(operand))]
    return _some(lambda value: any(test(value) for test in tests))


def _exists(operand: Json, place: Place) -> Condition:  # noqa: ARG001 - every value counts as true or false
    wanted = is_true(operand)
    return lambda values: any(value is not MISSING for value in values) is wanted


def _type(operand: Json, place: Place) -> Condition:
    names = {_type_name(name, place) for name in (operand if isinstance(operand, list | tuple) else [operand])}

    def test(value: Value) -> bool:
        return type_name(value) in names or ("number" in names and is_number(value))

    return _some(test)


def _type_name(type_name: Json, place: Place) -> str:
    if isinstance(type_name, int) and not isinstance(type_name, bool):
        type_name = _TYPE_NUMBERS.get(type_name, type_name)
    return place.one_of(type_name, _TYPES)


def _size(operand: Json, place: Place) -> Condition:
    wanted = place.integer(operand, at_least=0)
    return lambda values: any(isinstance(value, list) and len(value) == wanted for value in values)


def _all(operand: Json, place: Place) -> Condition:
    conditions = [
        _some(_equal_to(read_literal(wanted, place.item(index)))) for index, wanted in enumerate(place.array(operand))
    ]
    return lambda values: bool(conditions) and all(condition(values) for condition in conditions)


def _element_match(operand: Json, place: Place) -> Condition:
    if _has_operators(operand) and not any(name in LOGICAL for name in operand):
        condition = _condition(operand, place)
        return lambda values: any(
            condition(_Elements([element])) for value in values if isinstance(value, list) for element in value
        )
    query = compile_query(operand, place)
    return lambda values: any(
        isinstance(element, dict) and query(Scope(element, {}, 0))
        for value in values
        if isinstance(value, list)
        for element in value
    )


def _mod(operand: Json, place: Place) -> Condition:
    parts = place.array(operand)
    if len(parts) != 2:  # noqa: PLR2004 - divisor and remainder
        raise place.refused(operand, "[divisor, remainder]")
    divisor, remainder = (place.item(index).integer(part) for index, part in enumerate(parts))
    if not divisor:
        raise place.refused(operand, "a divisor that is not 0")

    def test(value: Value) -> bool:
        if not is_number(value) or not is_finite(value):
            return False
        number = int(value)
        rest = abs(number) % abs(divisor)
        return (rest if number >= 0 else -rest) == remainder

    return _some(test)


def _negated(operand: Json, place: Place) -> Condition:
    if not _has_operators(operand):
        raise place.refused(operand, "an object of operators, as in {$not: {$gt: 5}}")
    return _not(_condition(operand, place))


_OPERATORS: Final[Mapping[str, Callable[[Json, Place], Condition]]] = {
    "$eq": lambda operand, place: _some(_equal_to(read_literal(operand, place))),
    "$ne": lambda operand, place: _not(_some(_equal_to(read_literal(operand, place)))),
    "$in": _in,
    "$nin": lambda operand, place: _not(_in(operand, place)),
    "$exists": _exists,
    "$type": _type,
    "$size": _size,
    "$all": _all,
    "$elemMatch": _element_match,
    "$mod": _mod,
    "$not": _negated,
}

QUERY_OPERATORS: Final = (*LOGICAL, *_ORDERS, "$regex", *_OPERATORS)
"""The names of all query operators."""
