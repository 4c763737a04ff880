"""The accumulators of $group, and the accumulators that are also expressions over arrays.

$group collects the values of an accumulator's argument for each group, in log order, and computes the result from them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Final, NamedTuple

from windowlib.atlas.documents.documents import MISSING, Value, is_number, sort_key
from windowlib.atlas.documents.orders import SortOrder
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.arrays import CHOICES, Choice, present
from windowlib.atlas.expressions.forms import Call, Compile, Expression, ExpressionFault, Scope, fault
from windowlib.atlas.expressions.numeric import NumberSum, whole
from windowlib.atlas.expressions.objects import first_of_equal, merged
from windowlib.functions.variance import Variance

Summary = Callable[[Sequence[Value]], Value]
"""Returns the result of an accumulator from its values, in log order."""


class Accumulator(NamedTuple):
    """The computation of one field of $group.

    `argument` computes the value of a document, `summary` the field from the values of a group. `check(value, first)`
    raises ExpressionFault if `summary` does not accept a value; `first` is the first value of the group.
    """

    argument: Expression
    summary: Summary
    check: Callable[[Value, Value], object] | None = None


def _pushed(values: Sequence[Value]) -> list[Value]:
    return [value for value in values if value is not MISSING]


def _or_null(value: Value) -> Value:
    return None if value is MISSING else value


def _deviation(values: Sequence[Value], *, is_sample: bool) -> float | None:
    """Return the standard deviation of the values that are numbers. The variance is exact, only the root is rounded."""
    variance = Variance(is_sample=is_sample)
    moments = variance.create()
    for number in filter(is_number, values):
        variance.add(moments, number, (0, 0))
    exact = variance.result(moments)
    return None if exact is None else sqrt(exact)


SIMPLE: Final[Mapping[str, Summary]] = {
    "$sum": lambda values: NumberSum(filter(is_number, values)).sum(),
    "$avg": lambda values: NumberSum(filter(is_number, values)).mean(),
    "$min": lambda values: min(present(values), key=sort_key, default=None),
    "$max": lambda values: max(present(values), key=sort_key, default=None),
    "$first": lambda values: _or_null(values[0]),
    "$last": lambda values: _or_null(values[-1]),
    "$push": _pushed,
    "$addToSet": lambda values: list(first_of_equal(_pushed(values)).values()),
    "$stdDevPop": partial(_deviation, is_sample=False),
    "$stdDevSamp": partial(_deviation, is_sample=True),
    "$mergeObjects": partial(merged, "$mergeObjects"),
}
"""The accumulators whose argument is one expression."""

SORTING: Final = ("$top", "$bottom", "$topN", "$bottomN")
"""The accumulators whose argument is `{sortBy, output}`, or `{sortBy, output, n}` if the name ends in N."""

ACCUMULATORS: Final = (*SIMPLE, "$count", *CHOICES, *SORTING)
"""The names of all accumulators."""


def compile_accumulator(accumulator: Json, place: Place, compile_: Compile) -> Accumulator:
    """Return an accumulator.

    Raises SpecError: there is no accumulator of this name, or its arguments are wrong.
    """
    name, argument = place.single(accumulator, "an accumulator")
    at = place.at(name)
    if name == "$mergeObjects":
        return Accumulator(compile_(argument, at), SIMPLE[name], lambda value, _first: merged(name, (value,)))
    if name in SIMPLE:
        return Accumulator(compile_(argument, at), SIMPLE[name])
    if name == "$count":
        at.fields(argument)
        return Accumulator(lambda _scope: None, len)
    if name in CHOICES:
        fields = at.fields(argument, required=("input", "n"))
        count, element = (compile_(fields[part], at.at(part)) for part in ("n", "input"))
        return _many(name, count, element, choose=CHOICES[name])
    if name in SORTING:
        return _sorting(name, argument, at, compile_=compile_)
    raise place.refused(name, "one of the accumulators " + ", ".join(ACCUMULATORS))


def _many(name: str, count: Expression, element: Expression, *, choose: Choice) -> Accumulator:
    """Return the accumulator of up to n values, which `choose` selects from all. A value is a pair (n, element)."""

    def check(value: Value, first: Value) -> None:
        n, wanted = whole(value[0]), whole(first[0])
        if n is None or n <= 0:
            raise fault(name, value[0], "a positive n")
        if n != wanted:
            raise ExpressionFault(f"{name} needs one n for all documents of a group, got {wanted} and {n}")

    def summary(values: Sequence[Value]) -> list[Value]:
        return [_or_null(value) for value in choose([value for _, value in values], whole(values[0][0]) or 0)]

    return Accumulator(lambda scope: (count(scope), element(scope)), summary, check)


def _sorting(name: str, argument: Json, place: Place, *, compile_: Compile) -> Accumulator:
    has_n = name.endswith("N")
    fields = place.fields(argument, required=("sortBy", "output", *(("n",) if has_n else ())))
    order = SortOrder.read(fields["sortBy"], place.at("sortBy"))
    output = compile_(fields["output"], place.at("output"))

    def element(scope: Scope) -> Value:
        return scope.root, output(scope)

    def choose(values: Sequence[Value], n: int) -> list[Value]:
        ordered = order.sorted(values, document_of=lambda entry: entry[0])
        chosen = ordered[:n] if name.startswith("$top") else ordered[max(len(ordered) - n, 0) :]
        return [value for _, value in chosen]

    if has_n:
        return _many(name, compile_(fields["n"], place.at("n")), element, choose=choose)
    return Accumulator(element, lambda values: _or_null(choose(values, 1)[0]))


def _over_array(name: str) -> Callable[..., Value]:
    """Return the accumulator as an expression over its arguments; a single array argument gives its elements."""
    return lambda *values: SIMPLE[name](values[0] if len(values) == 1 and isinstance(values[0], list) else values)


EXPRESSIONS: Final = {
    name: Call(_over_array(name), 0, None) for name in ("$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp")
}
