"""Every column aggregate gives the results and states of its record-at-a-time aggregate, through any operations."""

from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.support.column_aggregates import ANY, DECIMALS, DRAWERS, INTEGERS, ORDERED, Player, play
from tests.support.fuzzing import seeds
from windowlib.errors import SpecError
from windowlib.functions.aggregates import SumDecimal
from windowlib.functions.window_functions import Reduce, aggregate
from windowlib.kernels.aggregates.choice import column_aggregate, why_not
from windowlib.kernels.aggregates.column_aggregate import Positions
from windowlib.kernels.aggregates.segments import TABLE_MAX, group_sums, range_extremes, range_sums

CASES: list[tuple[str, str | None, bool]] = [
    ("count", None, False),
    ("count", "string", False),
    *((kind, name, False) for kind in ("sum", "avg") for name in (*INTEGERS, *DECIMALS)),
    *((kind, name, False) for kind in ("sum", "avg") for name in ("float", "double")),
    *((kind, name, False) for kind in ("variance", "var_pop") for name in (*INTEGERS, *DECIMALS, "float", "double")),
    *((kind, name, False) for kind in ("min", "max") for name in ORDERED),
    *((kind, name, nulls) for kind in ("first", "last") for name in ANY for nulls in (False, True)),
    *(("collect_list", name, False) for name in ANY),
]


@pytest.mark.fuzz
@pytest.mark.parametrize("case", CASES, ids=str)
def test_columns_give_the_states_and_results_of_the_aggregate(case: tuple[str, str | None, bool]) -> None:
    kind, input_type, ignore_nulls = case
    scalar = aggregate(kind, input_type, name="a", ignore_nulls=ignore_nulls)
    columns = column_aggregate(scalar)
    for seed in seeds(8, among=len(CASES)):
        play(Player(scalar, columns, input_type, Random(seed)), None if input_type is None else DRAWERS[input_type])


@pytest.mark.parametrize("kind", ["sum", "avg"])
def test_a_total_of_decimals_beyond_38_digits_is_refused_when_a_state_is_stored(kind: str) -> None:
    """A state is a DECIMAL(38, 0) column, and the total of a window that is still open must fit there."""
    most = Decimal("9." + "9" * 37)
    total = aggregate(kind, "decimal(38,37)", name="paid")
    assert isinstance(total, SumDecimal)
    columns = column_aggregate(total)
    places = np.arange(2)
    states = columns.reduce(pa.array([most, most]), Positions(places, places), np.array([0]))
    accumulator = total.add_all(total.create(), [most, most])
    for store in (lambda: total.to_state(accumulator), lambda: columns.to_columns(states)):
        with pytest.raises(SpecError, match=r"'paid': the sum 19\.9{36}8 does not fit decimal\(38,37\)"):
            store()
    fits = total.add_all(accumulator, [most.copy_negate()])
    assert total.from_state(total.to_state(fits)) == fits, "only what is stored must fit"


def test_a_users_aggregate_has_no_column_form() -> None:
    assert why_not(aggregate("sum", "bigint")) is None
    users = Reduce(function=max)
    assert why_not(users) == "Reduce is not an aggregate that pipeline files can name, so it has no column form"


@pytest.mark.fuzz
def test_sums_and_extremes_of_groups_and_ranges_are_those_of_a_loop() -> None:
    for seed in seeds(100):
        random = np.random.default_rng(seed)
        values = random.integers(-(2**62), 2**62, random.integers(1, 60)) // 64
        starts = np.unique(np.append(random.integers(0, len(values), random.integers(0, 30)), 0))
        expected = [int(part.sum()) for part in np.split(values, starts[1:])]
        assert group_sums(values, starts).tolist() == expected
        low, high = np.sort(random.integers(0, len(values) + 1, (2, 20)), axis=0)
        assert range_sums(values, low, high).tolist() == [
            int(values[i:j].sum()) for i, j in zip(low, high, strict=True)
        ]
        low, high = low[high > low], high[high > low]
        expected = [int(values[i:j].max()) for i, j in zip(low, high, strict=True)]
        for table_max in (0, 40, TABLE_MAX):
            assert range_extremes(np.maximum, values, (low, high), table_max=table_max).tolist() == expected
