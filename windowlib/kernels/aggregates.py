"""The column form of each aggregate of a pipeline file."""

from windowlib.functions.aggregates import Aggregate, Count, MeanInteger, SumInteger
from windowlib.kernels.column_aggregate import AnyAggregate
from windowlib.kernels.integer_sums import ColumnCount, ColumnMeanInteger, ColumnSumInteger


def column_aggregate(aggregate: Aggregate, input_type: str | None) -> AnyAggregate | None:  # noqa: ARG001
    """Return the column form of an aggregate, or None if it has none, as a user's own aggregate.

    Args:
        aggregate: an aggregate of windowlib.functions.
        input_type: the Spark type of its input column; None if it has none.
    """
    match aggregate:
        case Count():
            return ColumnCount(aggregate)
        case SumInteger():
            return ColumnSumInteger(aggregate)
        case MeanInteger():
            return ColumnMeanInteger(aggregate)
        case _:
            return None
