"""Cells: the states are equal to those of sorted groups, or the aggregate asks for sorted groups."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.support.column_aggregates import DRAWERS, INTEGERS, feed_type
from tests.support.fuzzing import seeds
from windowlib.functions.window_functions import aggregate
from windowlib.kernels.aggregates.cells import CellAggregate, Cells
from windowlib.kernels.aggregates.choice import column_aggregate
from windowlib.kernels.aggregates.column_aggregate import Positions

INPUTS = (*INTEGERS, "decimal(7,2)", "decimal(25,10)", "double", "date", "timestamp", "string")
KINDS = ("count", "sum", "avg", "min", "max")


def states_in_cells(columns: object, values: pa.Array, cells: Cells) -> object:
    """Return the states of the filled cells; None if the aggregate needs sorted groups."""
    return columns.reduce_cells(values, cells) if isinstance(columns, CellAggregate) else None


@pytest.mark.fuzz
def test_states_of_cells_are_equal_to_those_of_sorted_groups() -> None:
    in_cells = 0
    for seed in seeds(400):
        random = Random(seed)
        kind, input_type = random.choice(KINDS), random.choice(INPUTS)
        if kind in {"sum", "avg"} and input_type in {"date", "timestamp", "string"}:
            kind = "min"
        columns = column_aggregate(aggregate(kind, input_type))
        count, rows = random.randint(1, 8), random.randint(1, 30)
        null_share = random.choice([0.0, 0.0, 0.0, 0.3])
        small = random.random() < 0.5  # so that most sums fit 64 bits
        drawn = [DRAWERS["tinyint" if small and input_type in INTEGERS else input_type](random) for _ in range(rows)]
        values = pa.array([None if random.random() < null_share else one for one in drawn], feed_type(input_type))
        cells = Cells.of(np.array([random.randrange(count) for _ in range(rows)], dtype=np.int64), count)
        found = states_in_cells(columns, values, cells)
        if found is None:
            continue
        in_cells += 1
        order = np.argsort(cells.of_record, kind="stable")
        starts = np.flatnonzero(np.diff(cells.of_record[order], prepend=-1))
        nothing = np.zeros(rows, dtype=np.int64)
        expected = columns.reduce(values.take(pa.array(order)), Positions(nothing, nothing), starts)
        assert columns.to_columns(found).equals(columns.to_columns(expected)), (seed, kind, input_type)
    assert in_cells, "all aggregates asked for sorted groups"


def test_a_sum_that_may_exceed_64_bits_needs_sorted_groups() -> None:
    columns = column_aggregate(aggregate("sum", "bigint"))
    values, cells = pa.array([1 << 62, 1 << 62]), Cells.of(np.zeros(2, dtype=np.int64), 1)
    assert states_in_cells(columns, values, cells) is None
    assert states_in_cells(columns, values.slice(1), Cells.of(np.zeros(1, dtype=np.int64), 1)) is not None
