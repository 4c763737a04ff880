"""Array operators: elements, slices, and the loops $map, $filter and $reduce."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from windowlib.atlas.documents.documents import MISSING, Value, is_equal, is_nothing, is_true, sort_key
from windowlib.atlas.documents.places import Json, Place
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
from windowlib.atlas.expressions.logic import variable_name
from windowlib.atlas.expressions.numeric import integer_of

RANGE_MAX: Final = 1_000_000
"""The maximal number of elements of a $range."""


def array_of(operator: str, value: Value) -> list[Value]:
    """Return `value` if it is an array. Raises ExpressionFault: the value is not an array."""
    if not isinstance(value, list):
        raise fault(operator, value, "an array")
    return value


def _element_at(operator: str, array: Value, index: Value) -> Value:
    if is_nothing(array) or is_nothing(index):
        return None
    at = integer_of(operator, index)
    elements = array_of(operator, array)
    return elements[at] if -len(elements) <= at < len(elements) else MISSING


def _concat_arrays(*arrays: Value) -> Value:
    if any(map(is_nothing, arrays)):
        return None
    return [element for array in arrays for element in array_of("$concatArrays", array)]


def _slice(array: Value, *places: Value) -> Value:
    if is_nothing(array) or any(map(is_nothing, places)):
        return None
    elements, numbers = array_of("$slice", array), [integer_of("$slice", place) for place in places]
    if len(numbers) == 1:
        count = numbers[0]
        return elements[:count] if count >= 0 else elements[count:]
    start, count = numbers
    if count <= 0:
        raise ExpressionFault("$slice needs a count above 0 behind a position")
    begin = start if start >= 0 else max(len(elements) + start, 0)
    return elements[begin : begin + count]


def _in(value: Value, array: Value) -> bool:
    return any(is_equal(value, element) for element in array_of("$in", array))


def _index_of_array(array: Value, sought: Value, *range_: Value) -> Value:
    if is_nothing(array):
        return None
    elements = array_of("$indexOfArray", array)
    begin = integer_of("$indexOfArray", range_[0]) if range_ else 0
    limit = integer_of("$indexOfArray", range_[1]) if len(range_) > 1 else len(elements)
    if begin < 0 or limit < 0:
        raise ExpressionFault("$indexOfArray needs positions that are not negative")
    return next((at for at in range(begin, min(limit, len(elements))) if is_equal(elements[at], sought)), -1)


def _range(start: Value, end: Value, step: Value = 1) -> list[Value]:
    begin, limit, stride = (integer_of("$range", place) for place in (start, end, step))
    if not stride:
        raise ExpressionFault("$range needs a step that is not 0")
    if (limit - begin) // stride > RANGE_MAX:
        raise ExpressionFault(f"$range makes at most {RANGE_MAX} elements")
    return list(range(begin, limit, stride))


def _reverse(array: Value) -> Value:
    return None if is_nothing(array) else array_of("$reverseArray", array)[::-1]


Choice = Callable[[Sequence[Value], int], Sequence[Value]]
CHOICES: Final[Mapping[str, Choice]] = {
    "$firstN": lambda values, n: values[:n],
    "$lastN": lambda values, n: values[-n:],
    "$minN": lambda values, n: sorted(present(values), key=sort_key)[:n],
    "$maxN": lambda values, n: sorted(present(values), key=sort_key, reverse=True)[:n],
}
"""The operators that choose n of several values; they are accumulators, too."""


def present(values: Sequence[Value]) -> list[Value]:
    """Return the values that are not null or missing."""
    return [value for value in values if not is_nothing(value)]


def _chosen(operator: str, *, input: Value, n: Value) -> Value:  # noqa: A002 - its name in the language
    count = integer_of(operator, n)
    if count <= 0:
        raise fault(operator, n, "a positive n")
    return CHOICES[operator](array_of(operator, input), count)


def _zip(*, inputs: Value, use_longest_length: Value = False, defaults: Value = None) -> Value:
    arrays = array_of("$zip", inputs)
    if any(map(is_nothing, arrays)):
        return None
    lengths = [len(array_of("$zip", array)) for array in arrays]
    length = (max if is_true(use_longest_length) else min)(lengths, default=0)
    fill = [None] * len(arrays) if defaults is None else array_of("$zip", defaults)
    if defaults is not None and not (is_true(use_longest_length) and len(fill) == len(arrays)):
        raise ExpressionFault("$zip needs useLongestLength: true beside defaults, and a default for each input")
    return [
        [array[at] if at < len(array) else fill[place] for place, array in enumerate(arrays)] for at in range(length)
    ]


def _filter(operand: Json, place: Place, compile_: Compile) -> Expression:
    fields = place.fields(operand, required=("input", "cond"), optional=("as", "limit"))
    name = variable_name(fields.get("as", "this"), place.at("as"))
    array = compile_(fields["input"], place.at("input"))
    condition = compile_(fields["cond"], place.with_variables(name).at("cond"))
    limit = compile_(fields["limit"], place.at("limit")) if "limit" in fields else None

    def evaluate(scope: Scope) -> Value:
        elements = array(scope)
        if is_nothing(elements):
            return None
        most = None if limit is None or is_nothing(limit_ := limit(scope)) else integer_of("$filter", limit_)
        if most is not None and most <= 0:
            raise ExpressionFault(f"$filter needs a limit above 0, got {most}")
        checked = array_of("$filter", elements)
        kept = (element for element in checked if is_true(condition(scope.with_variables(**{name: element}))))
        return [element for _, element in zip(range(most), kept, strict=False)] if most is not None else list(kept)

    return evaluate


def _map(operand: Json, place: Place, compile_: Compile) -> Expression:
    fields = place.fields(operand, required=("input", "in"), optional=("as",))
    name = variable_name(fields.get("as", "this"), place.at("as"))
    array = compile_(fields["input"], place.at("input"))
    inside = compile_(fields["in"], place.with_variables(name).at("in"))

    def evaluate(scope: Scope) -> Value:
        elements = array(scope)
        if is_nothing(elements):
            return None
        values = (inside(scope.with_variables(**{name: element})) for element in array_of("$map", elements))
        return [None if value is MISSING else value for value in values]

    return evaluate


def _reduce(operand: Json, place: Place, compile_: Compile) -> Expression:
    fields = place.fields(operand, required=("input", "initialValue", "in"))
    array = compile_(fields["input"], place.at("input"))
    initial = compile_(fields["initialValue"], place.at("initialValue"))
    inside = compile_(fields["in"], place.with_variables("this", "value").at("in"))

    def evaluate(scope: Scope) -> Value:
        elements = array(scope)
        if is_nothing(elements):
            return None
        value = initial(scope)
        for element in array_of("$reduce", elements):
            value = inside(scope.with_variables(this=element, value=value))
        return value

    return evaluate


OPERATORS: Final[Operators] = {
    "$size": Call(lambda value: len(array_of("$size", value))),
    "$isArray": Call(lambda value: isinstance(value, list)),
    "$arrayElemAt": Call(lambda array, index: _element_at("$arrayElemAt", array, index), 2, 2),
    "$first": Call(lambda array: _element_at("$first", array, 0)),
    "$last": Call(lambda array: _element_at("$last", array, -1)),
    "$concatArrays": Call(_concat_arrays, 0, None),
    "$slice": Call(_slice, 2, 3),
    "$in": Call(_in, 2, 2),
    "$indexOfArray": Call(_index_of_array, 2, 4),
    "$range": Call(_range, 2, 3),
    "$reverseArray": Call(_reverse),
    **{name: NamedCall(partial(_chosen, name), ("input", "n")) for name in CHOICES},
    "$zip": NamedCall(_zip, ("inputs",), ("useLongestLength", "defaults")),
    "$filter": Special(_filter),
    "$map": Special(_map),
    "$reduce": Special(_reduce),
}
