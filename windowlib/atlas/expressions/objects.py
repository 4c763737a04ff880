"""Operators over objects, and over arrays as sets. Of equal values, such as 1 and 1.0, a set has the first one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from windowlib.atlas.documents.documents import (
    MISSING,
    Document,
    SortKey,
    Value,
    at_objects,
    is_equal,
    is_nothing,
    is_true,
    sort_key,
)
from windowlib.atlas.documents.json_documents import is_typed
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.arrays import array_of
from windowlib.atlas.expressions.forms import (
    Call,
    Compile,
    Expression,
    ExpressionFault,
    NamedCall,
    Operators,
    Scope,
    Special,
    fault,
)


def _object_of(operator: str, value: Value) -> Document:
    if not isinstance(value, dict):
        raise fault(operator, value, "an object")
    return value


def merged(operator: str, values: Iterable[Value]) -> Document:
    """Return one object with the fields of all values. A later field replaces an earlier one of the same name.

    Null and missing count as empty objects.
    Raises ExpressionFault: a value is not an object, null or missing.
    """
    result: Document = {}
    for value in values:
        if not is_nothing(value):
            result.update(_object_of(operator, value))
    return result


def _merge_objects(*values: Value) -> Document:
    parts = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    return merged("$mergeObjects", parts)


def _array_to_object(array: Value) -> Value:
    if is_nothing(array):
        return None
    result: Document = {}
    for element in array_of("$arrayToObject", array):
        match element:
            case [str(name), value]:
                result[name] = value
            case {"k": str(name), "v": value, **rest} if not rest:
                result[name] = value
            case _:
                raise fault("$arrayToObject", element, "elements [name, value] or {k: name, v: value}")
    return result


def _object_to_array(value: Value) -> Value:
    if is_nothing(value):
        return None
    return [{"k": name, "v": field} for name, field in _object_of("$objectToArray", value).items()]


def _get_field(*, field: Value, input: Value) -> Value:  # noqa: A002 - its name in the language
    if not isinstance(field, str):
        raise fault("$getField", field, "a field's name")
    if is_nothing(input):
        return input
    return input.get(field, MISSING) if isinstance(input, dict) else MISSING


def _set_field(*, field: Value, input: Value, value: Value) -> Value:  # noqa: A002 - its name in the language
    if is_nothing(input):
        return None
    if not isinstance(field, str):
        raise fault("$setField", field, "a field's name")
    result = {**_object_of("$setField", input), field: value}
    if value is MISSING:
        del result[field]
    return result


def _unset_field(*, field: Value, input: Value) -> Value:  # noqa: A002 - its name in the language
    return _set_field(field=field, input=input, value=MISSING)


def distinct(values: Iterable[Value]) -> list[Value]:
    """Return the distinct values in the order of BSON."""
    by_sort_key = first_of_equal(values)
    return [by_sort_key[key] for key in sorted(by_sort_key)]


def first_of_equal(values: Iterable[Value]) -> dict[SortKey, Value]:
    """Return the distinct values by their sort keys, in the order of their first occurrence."""
    by_sort_key: dict[SortKey, Value] = {}
    for value in values:
        by_sort_key.setdefault(sort_key(value), value)
    return by_sort_key


def _keys(operator: str, array: Value) -> dict[SortKey, Value]:
    return first_of_equal(array_of(operator, array))


def _union(*arrays: Value) -> Value:
    if any(map(is_nothing, arrays)):
        return None
    return distinct(element for array in arrays for element in array_of("$setUnion", array))


def _intersection(*arrays: Value) -> Value:
    if any(map(is_nothing, arrays)):
        return None
    sets = [_keys("$setIntersection", array) for array in arrays]
    return distinct(value for key, value in sets[0].items() if all(key in other for other in sets)) if sets else []


def _difference(left: Value, right: Value) -> Value:
    if is_nothing(left) or is_nothing(right):
        return None
    taken = _keys("$setDifference", right)
    return [value for key, value in _keys("$setDifference", left).items() if key not in taken]


def _set_equals(*arrays: Value) -> bool:
    sets = [set(_keys("$setEquals", array)) for array in arrays]
    return all(other == sets[0] for other in sets)


def _is_subset(left: Value, right: Value) -> bool:
    return set(_keys("$setIsSubset", left)) <= set(_keys("$setIsSubset", right))


def _sort_array(operand: Json, place: Place, compile_: Compile) -> Expression:
    fields = place.fields(operand, required=("input", "sortBy"))
    array, by = compile_(fields["input"], place.at("input")), fields["sortBy"]
    has_paths = isinstance(by, Mapping) and not is_typed(by)
    if has_paths and any(path.startswith("$") for path in by):
        raise place.at("sortBy").refused(by, "1, -1, or the names of fields, each with 1 or -1")
    orders = [
        (_field_key(path) if has_paths else sort_key, compile_(direction, place.at("sortBy")))
        for path, direction in (by if has_paths else {"": by}).items()
    ]

    def evaluate(scope: Scope) -> Value:
        if is_nothing(value := array(scope)):
            return None
        elements = list(array_of("$sortArray", value))
        for key, direction in reversed(orders):
            elements.sort(key=key, reverse=_is_descending(direction(scope)))
        return elements

    return evaluate


def _field_key(path: str) -> Callable[[Value], SortKey]:
    def key(element: Value) -> SortKey:
        value = at_objects(element, path.split("."))
        return sort_key(None if value is MISSING else value)

    return key


def _is_descending(direction: Value) -> bool:
    if is_equal(direction, 1):
        return False
    if is_equal(direction, -1):
        return True
    raise ExpressionFault("$sortArray needs sortBy: 1, -1, or an object of fields with 1 or -1")


OPERATORS: Final[Operators] = {
    "$mergeObjects": Call(_merge_objects, 0, None),
    "$arrayToObject": Call(_array_to_object),
    "$objectToArray": Call(_object_to_array),
    "$getField": NamedCall(_get_field, ("field", "input")),
    "$setField": NamedCall(_set_field, ("field", "input", "value")),
    "$unsetField": NamedCall(_unset_field, ("field", "input")),
    "$setUnion": Call(_union, 0, None),
    "$setIntersection": Call(_intersection, 0, None),
    "$setDifference": Call(_difference, 2, 2),
    "$setEquals": Call(_set_equals, 2, None),
    "$setIsSubset": Call(_is_subset, 2, 2),
    "$allElementsTrue": Call(lambda array: all(map(is_true, array_of("$allElementsTrue", array)))),
    "$anyElementTrue": Call(lambda array: any(map(is_true, array_of("$anyElementTrue", array)))),
    "$sortArray": Special(_sort_array),
}
