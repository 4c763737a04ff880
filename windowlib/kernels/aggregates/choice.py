"""The column form of each aggregate of a pipeline file."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from windowlib.errors import InvariantBroken
from windowlib.functions.aggregates import Count, MeanInteger, SumDecimal, SumDouble, SumInteger
from windowlib.functions.ordered_aggregates import CollectList, Extreme, FirstOrLast
from windowlib.functions.variance import Variance
from windowlib.functions.window_functions import Aggregates
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate
from windowlib.kernels.aggregates.exact_sums import ColumnSumDouble
from windowlib.kernels.aggregates.extremes import column_extreme
from windowlib.kernels.aggregates.integer_sums import ColumnCount, ColumnMeanInteger, ColumnSumDecimal, ColumnSumInteger
from windowlib.kernels.aggregates.ordered import ColumnCollectList, ColumnFirstOrLast
from windowlib.kernels.aggregates.variances import ColumnVariance
from windowlib.windows.spec import WindowSpec

_DIGITS_OF_PARTIALS: Final = 28
"""The totals of 10^10 decimals with so many digits have 38 digits, which is what the column of a partial can hold."""
_FORMS: Final[Mapping[type, Callable[[Any], AnyAggregate]]] = {
    Count: ColumnCount,
    SumInteger: ColumnSumInteger,
    MeanInteger: ColumnMeanInteger,
    SumDouble: ColumnSumDouble,
    SumDecimal: ColumnSumDecimal,
    Extreme: column_extreme,
    FirstOrLast: ColumnFirstOrLast,
    Variance: ColumnVariance,
    CollectList: ColumnCollectList,
}


def column_aggregate(aggregate: object) -> AnyAggregate:
    """Return the column form of an aggregate that has one (`why_not`)."""
    return _FORMS[type(aggregate)](aggregate)


def column_aggregates(spec: WindowSpec) -> tuple[AnyAggregate, ...]:
    """Return the column forms of a spec's aggregates. Raises InvariantBroken: one of them has none."""
    function = spec.effective_function()
    if not isinstance(function, Aggregates) or any(map(why_not, function.aggregates)):
        raise InvariantBroken("an aggregate of the plan has no columnar form; coverage.why_not tells which")
    return tuple(map(column_aggregate, function.aggregates))


def reads_order(spec: WindowSpec) -> bool:
    """Return whether an aggregate of a spec depends on the positions of the records in the log."""
    function = spec.effective_function()
    ordered = (FirstOrLast, CollectList)
    return isinstance(function, Aggregates) and any(isinstance(aggregate, ordered) for aggregate in function.aggregates)


def sums_wide_decimals(spec: WindowSpec) -> bool:
    """Return whether the total of some records may have more digits than a partial holds, although all together fit."""
    function = spec.effective_function()
    return isinstance(function, Aggregates) and any(
        isinstance(aggregate, SumDecimal) and aggregate.precision > _DIGITS_OF_PARTIALS
        for aggregate in function.aggregates
    )


def why_not(aggregate: object) -> str | None:
    """Return None if an aggregate has a column form, else a sentence about the reason, for users."""
    if type(aggregate) in _FORMS:
        return None
    return f"{type(aggregate).__name__} is not an aggregate that pipeline files can name, so it has no column form"
