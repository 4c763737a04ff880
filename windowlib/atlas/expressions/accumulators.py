"""The accumulators of $group, and the accumulators that are also expressions over arrays.

$group creates an accumulator for each group, adds the values of the group's documents in log order, and reads the
result.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any, Final

from windowlib.atlas.documents.documents import MISSING, Value, is_nothing, is_number, sort_key
from windowlib.atlas.documents.orders import SortOrder
from windowlib.atlas.documents.places import Json, Place
from windowlib.atlas.expressions.forms import Call, Compile, Expression, ExpressionFault, Scope, fault
from windowlib.atlas.expressions.numeric import NumberSum, whole
from windowlib.atlas.expressions.objects import merged
from windowlib.functions.variance import Variance


class Accumulator:
    """The running value of one field of one group."""

    def check(self, value: Value) -> None:
        """Check that `add` accepts the value. Called for all accumulators of a group before the first `add`.

        Raises ExpressionFault: `add` does not accept the value, so no accumulator of the group gets its document.
        """

    def add(self, value: Value) -> None:
        """Add the value of the accumulator's argument for the next document."""
        raise NotImplementedError

    def result(self) -> Value:
        """Return the value of the field."""
        raise NotImplementedError


class _Sum(Accumulator):
    """The sum of the values that are numbers; 0 without numbers."""

    def __init__(self) -> None:
        self._total = NumberSum()

    def add(self, value: Value) -> None:
        if is_number(value):
            self._total.add(value)

    def result(self) -> Value:
        return self._total.sum()


class _Avg(_Sum):
    """The mean of the values that are numbers; null without numbers."""

    def result(self) -> Value:
        return self._total.mean()


class _Count(Accumulator):
    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Value) -> None:  # noqa: ARG002 - every document counts
        self._count += 1

    def result(self) -> Value:
        return self._count


class _Extreme(Accumulator):
    """The least or greatest value in the order of BSON, the first of equal values. Null and missing do not count."""

    def __init__(self, sign: int) -> None:
        self._is_max = sign > 0
        self._best: Value = None
        self._key: Any = None

    def add(self, value: Value) -> None:
        if is_nothing(value):
            return
        key = sort_key(value)
        if self._key is None or (key > self._key if self._is_max else key < self._key):
            self._best, self._key = value, key

    def result(self) -> Value:
        return self._best


class _First(Accumulator):
    def __init__(self) -> None:
        self._value: Value = MISSING
        self._is_set = False

    def add(self, value: Value) -> None:
        if not self._is_set:
            self._value, self._is_set = value, True

    def result(self) -> Value:
        return None if self._value is MISSING else self._value


class _Last(Accumulator):
    def __init__(self) -> None:
        self._value: Value = None

    def add(self, value: Value) -> None:
        self._value = None if value is MISSING else value

    def result(self) -> Value:
        return self._value


class _Push(Accumulator):
    """All values except missing ones; null counts as a value."""

    def __init__(self) -> None:
        self._values: list[Value] = []

    def add(self, value: Value) -> None:
        if value is not MISSING:
            self._values.append(value)

    def result(self) -> Value:
        return self._values


class _AddToSet(Accumulator):
    """Each distinct value, in the order of its first occurrence."""

    def __init__(self) -> None:
        self._values: dict[Any, Value] = {}

    def add(self, value: Value) -> None:
        if value is not MISSING:
            self._values.setdefault(sort_key(value), value)

    def result(self) -> Value:
        return list(self._values.values())


class _Deviation(Accumulator):
    """The standard deviation of the values that are numbers; the variance is exact, only the root is rounded."""

    def __init__(self, *, is_sample: bool) -> None:
        self._variance = Variance(is_sample=is_sample)
        self._moments = self._variance.create()

    def add(self, value: Value) -> None:
        if is_number(value):
            self._variance.add(self._moments, value, (0, 0))

    def result(self) -> Value:
        variance = self._variance.result(self._moments)
        return None if variance is None else sqrt(variance)


class _Merge(Accumulator):
    def __init__(self) -> None:
        self._result: Value = {}

    def check(self, value: Value) -> None:
        merged("$mergeObjects", (value,))

    def add(self, value: Value) -> None:
        self._result = merged("$mergeObjects", (self._result, value))

    def result(self) -> Value:
        return self._result


class _Many(Accumulator):
    """Up to n values, which `choose` selects from all values. Each added value is a pair (n, value)."""

    def __init__(self, operator: str, choose: Callable[[list[Value], int], list[Value]]) -> None:
        self._operator = operator
        self._choose = choose
        self._values: list[Value] = []
        self._n: int | None = None

    def check(self, value: Value) -> None:
        n = value[0]
        count = whole(n)
        if count is None or count <= 0:
            raise fault(self._operator, n, "a positive n")
        if self._n not in {None, count}:
            raise ExpressionFault(
                f"{self._operator} needs one n for all documents of a group, got {self._n} and {count}"
            )

    def add(self, value: Value) -> None:
        n, element = value
        self._n = whole(n)
        self._values.append(element)

    def result(self) -> Value:
        return [None if value is MISSING else value for value in self._choose(self._values, self._n or 0)]


Factory = Callable[[], Accumulator]


SIMPLE: Final[Mapping[str, Factory]] = {
    "$sum": _Sum,
    "$avg": _Avg,
    "$min": lambda: _Extreme(-1),
    "$max": lambda: _Extreme(1),
    "$first": _First,
    "$last": _Last,
    "$push": _Push,
    "$addToSet": _AddToSet,
    "$stdDevPop": lambda: _Deviation(is_sample=False),
    "$stdDevSamp": lambda: _Deviation(is_sample=True),
    "$mergeObjects": _Merge,
}
"""The accumulators whose argument is one expression."""


def _extremes(values: list[Value], n: int, *, largest: bool) -> list[Value]:
    return sorted((value for value in values if not is_nothing(value)), key=sort_key, reverse=largest)[:n]


CHOOSING: Final[Mapping[str, Callable[[list[Value], int], list[Value]]]] = {
    "$firstN": lambda values, n: values[:n],
    "$lastN": lambda values, n: values[-n:],
    "$minN": lambda values, n: _extremes(values, n, largest=False),
    "$maxN": lambda values, n: _extremes(values, n, largest=True),
}
"""The accumulators whose argument is `{input, n}`."""

SORTING: Final = ("$top", "$bottom", "$topN", "$bottomN")
"""The accumulators whose argument is `{sortBy, output}`, or `{sortBy, output, n}` if the name ends in N."""

ACCUMULATORS: Final = (*SIMPLE, "$count", *CHOOSING, *SORTING)
"""The names of all accumulators."""


def compile_accumulator(accumulator: Json, place: Place, compile_: Compile) -> tuple[Factory, Expression]:
    """Return the factory of an accumulator, and the expression that computes the values to add.

    Raises SpecError: there is no accumulator of this name, or its arguments are wrong.
    """
    name, argument = place.single(accumulator, "an accumulator")
    at = place.at(name)
    if name in SIMPLE:
        return SIMPLE[name], compile_(argument, at)
    if name == "$count":
        at.fields(argument)
        return _Count, _null
    if name in CHOOSING:
        fields = at.fields(argument, required=("input", "n"))
        return partial(_Many, name, CHOOSING[name]), _pair(
            *(compile_(fields[part], at.at(part)) for part in ("n", "input"))
        )
    if name in SORTING:
        return _sorting(name, argument, at, compile_=compile_)
    raise place.refused(name, "one of the accumulators " + ", ".join(ACCUMULATORS))


def _null(_scope: Scope) -> Value:
    return None


def _pair(left: Expression, right: Expression) -> Expression:
    return lambda scope: (left(scope), right(scope))


class _One(_Many):
    """The only value of a choice with n = 1, instead of a list."""

    def result(self) -> Value:
        values = super().result()
        return values[0] if values else None


def _sorting(name: str, argument: Json, place: Place, *, compile_: Compile) -> tuple[Factory, Expression]:
    has_n = name.endswith("N")
    fields = place.fields(argument, required=("sortBy", "output", *(("n",) if has_n else ())))
    order = SortOrder.read(fields["sortBy"], place.at("sortBy"))
    output = compile_(fields["output"], place.at("output"))
    count = compile_(fields["n"], place.at("n")) if has_n else _one

    def choose(values: list[Value], n: int) -> list[Value]:
        ordered = order.sorted(values, document_of=lambda entry: entry[0])
        chosen = ordered[:n] if name.startswith("$top") else ordered[max(len(ordered) - n, 0) :]
        return [value for _, value in chosen]

    factory: Factory = lambda: (_Many if has_n else _One)(name, choose)  # noqa: E731 - one line, like its siblings
    return factory, _pair(count, lambda scope: (scope.root, output(scope)))


def _one(_scope: Scope) -> Value:
    return 1


def _over_array(name: str) -> Callable[..., Value]:
    """Return the accumulator as an expression over its arguments; a single array argument gives its elements."""

    def apply(*values: Value) -> Value:
        elements: Sequence[Value] = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        accumulator = SIMPLE[name]()
        for element in elements:
            accumulator.add(element)
        return accumulator.result()

    return apply


EXPRESSIONS: Final = {
    name: Call(_over_array(name), 0, None) for name in ("$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp")
}
