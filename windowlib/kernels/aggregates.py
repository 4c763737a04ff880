"""The column form of each aggregate of a pipeline file."""

from windowlib.functions.aggregates import Aggregate, Count, MeanInteger, SumDecimal, SumInteger
from windowlib.functions.ordered_aggregates import CollectList, Extreme, FirstOrLast
from windowlib.kernels.column_aggregate import AnyAggregate
from windowlib.kernels.decimal_sums import ColumnSumDecimal
from windowlib.kernels.extremes import column_extreme
from windowlib.kernels.integer_sums import ColumnCount, ColumnMeanInteger, ColumnSumInteger
from windowlib.kernels.ordered import ColumnCollectList, ColumnFirstOrLast


def column_aggregate(aggregate: Aggregate, input_type: str | None) -> AnyAggregate | None:  # noqa: ARG001, PLR0911
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
        case SumDecimal():
            return ColumnSumDecimal(aggregate)
        case Extreme():
            return column_extreme(aggregate)
        case FirstOrLast():
            return ColumnFirstOrLast(aggregate)
        case CollectList():
            return ColumnCollectList(aggregate)
        case _:
            return None
