"""Aggregates that add many values in one call: equal to one call for each value, whatever the values."""

from decimal import Decimal
from random import Random
from typing import Any, Final

import pytest

from tests.support.fuzzing import seeds
from windowlib.errors import SpecError
from windowlib.functions.aggregates import Aggregate, BulkAggregate
from windowlib.functions.window_functions import Aggregates, aggregate
from windowlib.records.records import Record
from windowlib.windows.fast.fast_operator import GroupValues

DOUBLES: Final = [0.0, -0.0, 0.1, -2.5, 1e300, -1e300, 1.7e308, 5e-324, float("inf"), float("-inf"), float("nan"), None]
VALUES: Final[dict[str, list[Any]]] = {
    "bigint": [0, 1, -5, 12_345, None],
    "double": DOUBLES,
    "decimal(10,2)": [Decimal("0.01"), Decimal("-7.50"), Decimal("3.00"), None],
    "string": ["", "b", "a", None],
    "boolean": [True, False, None],
}
NUMBERS: Final = ("bigint", "double", "decimal(10,2)")
BULK: Final[list[tuple[str, str | None]]] = [
    ("count", None),
    *(("count", kind) for kind in VALUES),
    *((name, kind) for name in ("sum", "avg") for kind in NUMBERS),
    *((name, kind) for name in ("min", "max") for kind in VALUES),
]
ANY: Final = [*BULK, ("first", "bigint"), ("last", "string"), ("collect_list", "double"), ("variance", "double")]


def one_by_one(found: Aggregate, values: list[Any]) -> Any:  # noqa: ANN401
    accumulator = found.create()
    for rank, value in enumerate(values):
        accumulator = found.add(accumulator, value, (0, rank))
    return accumulator


@pytest.mark.parametrize(("name", "kind"), BULK)
def test_many_values_at_once_equal_one_after_the_other(name: str, kind: str | None) -> None:
    found = aggregate(name, kind)
    assert isinstance(found, BulkAggregate)
    for seed in seeds(60):
        random = Random(seed)
        some = VALUES[kind or "bigint"]
        choices = random.sample(some, k=random.randint(1, len(some)))
        values = [random.choice(choices) for _ in range(random.randint(1, 60))]
        cut = random.randrange(len(values))
        accumulator = one_by_one(found, values[:cut])
        accumulator = found.add_all(accumulator, tuple(values[cut:]))
        expected = one_by_one(found, values)
        assert repr(found.to_state(accumulator)) == repr(found.to_state(expected)), seed
        assert repr(found.result(accumulator)) == repr(found.result(expected)), seed
        size, count = random.randint(1, 4), random.randint(1, 5)
        columns = [[random.choice(choices) for _ in range(count)] for _ in range(size)]
        results = [found.result(one_by_one(found, list(group))) for group in zip(*columns, strict=True)]
        assert list(map(repr, found.results_of(columns))) == list(map(repr, results)), seed


@pytest.mark.fuzz
def test_windows_computed_together_equal_windows_computed_alone() -> None:
    for seed in seeds(100):
        random = Random(seed)
        chosen = random.choices(BULK if random.random() < 0.5 else ANY, k=random.randint(1, 3))
        functions = tuple(aggregate(name, kind) for name, kind in chosen)
        group_values = GroupValues(Aggregates(functions), few=random.choice([0, 1, 2, 4]))
        groups = [_records(random, chosen) for _ in range(random.randint(1, 20))]
        expected = []
        for records in groups:
            parts = [one_by_one(one, [record.value[i] for record in records]) for i, one in enumerate(functions)]
            expected.append(tuple(one.result(part) for one, part in zip(functions, parts, strict=True)))
        takes_values = all(isinstance(one, BulkAggregate) for one in functions)
        items = [[record.value for record in one] for one in groups] if takes_values else groups
        assert repr(list(group_values.values(items))) == repr(expected), seed


def _records(random: Random, chosen: list[tuple[str, str | None]]) -> list[Record]:
    return [
        Record("a", rank, (*(random.choice(VALUES[kind or "bigint"]) for _, kind in chosen), "unused"), (0, rank))
        for rank in range(random.randint(1, 8))
    ]


def test_a_sum_that_does_not_fit_raises_the_same_error_together_and_alone() -> None:
    found = aggregate("sum", "bigint", name="total")
    assert isinstance(found, BulkAggregate)
    for columns in ([[1 << 62], [1 << 62]], [[-(1 << 63), 4], [-1, 5]]):
        with pytest.raises(SpecError, match="'total'"):
            found.results_of(columns)
