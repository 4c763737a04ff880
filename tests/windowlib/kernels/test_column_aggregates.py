"""Every column aggregate gives the results and states of its record-at-a-time aggregate, through any operations."""

from random import Random

import pytest

from tests.support.column_aggregates import ANY, DECIMALS, DRAWERS, INTEGERS, ORDERED, Player, play
from tests.support.fuzzing import seeds
from windowlib.functions.window_functions import aggregate
from windowlib.kernels.aggregates import column_aggregate

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
    columns = column_aggregate(scalar, input_type)
    assert columns is not None
    for seed in seeds(25, among=len(CASES)):
        play(Player(scalar, columns, input_type, Random(seed)), None if input_type is None else DRAWERS[input_type])
