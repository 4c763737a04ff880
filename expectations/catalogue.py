"""The expectations that a suite may use, with their arguments, and the reasons why the others are refused.

An expectation is admitted if it only reads data (no SQL, no code) and has one meaning on all engines of Great
Expectations, so that a suite can be used elsewhere. `tests/expectations/test_runner.py` runs every admitted type, and
compares the arguments with the installed Great Expectations, so this module does not import it (seconds).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from expectations import arguments as may_be


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The arguments of one expectation, each with its judge. Of `at_least_one`, one argument must be given."""

    required: Mapping[str, may_be.Judge]
    optional: Mapping[str, may_be.Judge]
    at_least_one: tuple[str, ...] = ()

    def never_fails(self, kwargs: Mapping[str, object]) -> bool:
        """Return whether arguments of the right kinds accept everything: no share of rows, or each share or count."""
        if kwargs.get("mostly", 1) == 0:
            return True
        least, most = ENDS_OF.get(self.optional.get("min_value"), (None, None))
        is_open = least is not None and not kwargs.get("strict_min") and not kwargs.get("strict_max")
        return is_open and kwargs.get("min_value") in (None, least) and kwargs.get("max_value") in (None, most)

    @property
    def arguments(self) -> frozenset[str]:
        return frozenset(self.required) | frozenset(self.optional)


ENDS_OF: Mapping[may_be.Judge | None, tuple[int, int | None]] = {may_be.share: (0, 1), may_be.count: (0, None)}
"""The least and the greatest value that there is, for the judges of bounds."""
NOT_NULL = ("strict_min", "strict_max", "mostly", "ignore_row_if", "match_on")
"""Optional arguments for which Great Expectations refuses a null. For others, a null is as good as none."""
_ROWS: Mapping[str, may_be.Judge] = {"row_condition": may_be.condition}
_MOSTLY: Mapping[str, may_be.Judge] = {**_ROWS, "mostly": may_be.share}
# The engines differ for a pair with a null, so such a pair is never judged. Another check can demand that none is null.
PAIR_IGNORES = "either_value_is_missing"
_PAIR: Mapping[str, may_be.Judge] = {**_MOSTLY, "ignore_row_if": may_be.one_of(PAIR_IGNORES)}
_MANY: Mapping[str, may_be.Judge] = {
    **_MOSTLY,
    "ignore_row_if": may_be.one_of("all_values_are_missing", "any_value_is_missing", "never"),
}
_ENDS = ("min_value", "max_value")


def _on_column(optional: Mapping[str, may_be.Judge] = _ROWS, **required: may_be.Judge) -> Shape:
    return Shape(required={"column": may_be.name, **required}, optional=optional)


def _between(
    judge: may_be.Judge, base: Mapping[str, may_be.Judge] = _ROWS, *, column: bool = True, strict: bool = True
) -> Shape:
    flags = {"strict_min": may_be.flag, "strict_max": may_be.flag} if strict else {}
    return Shape(
        required={"column": may_be.name} if column else {},
        optional={**base, "min_value": judge, "max_value": judge, **flags},
        at_least_one=_ENDS,
    )


ADMITTED: Mapping[str, Shape] = {
    "expect_column_distinct_values_to_be_in_set": _on_column(value_set=may_be.values),
    "expect_column_distinct_values_to_contain_set": _on_column(value_set=may_be.values),
    "expect_column_distinct_values_to_equal_set": _on_column(value_set=may_be.values),
    "expect_column_max_to_be_between": _between(may_be.number),
    "expect_column_mean_to_be_between": _between(may_be.number),
    "expect_column_median_to_be_between": _between(may_be.number),
    "expect_column_min_to_be_between": _between(may_be.number),
    "expect_column_pair_values_a_to_be_greater_than_b": Shape(
        required={"column_A": may_be.name, "column_B": may_be.name}, optional={**_PAIR, "or_equal": may_be.flag}
    ),
    "expect_column_pair_values_to_be_equal": Shape(
        required={"column_A": may_be.name, "column_B": may_be.name}, optional=_PAIR
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": _between(may_be.share),
    "expect_column_proportion_of_unique_values_to_be_between": _between(may_be.share),
    "expect_column_stdev_to_be_between": _between(may_be.number),
    "expect_column_sum_to_be_between": _between(may_be.number),
    "expect_column_to_exist": Shape(required={"column": may_be.name}, optional={"column_index": may_be.index}),
    "expect_column_unique_value_count_to_be_between": _between(may_be.count),
    "expect_column_value_lengths_to_be_between": _between(may_be.count, _MOSTLY),
    "expect_column_value_lengths_to_equal": _on_column(_MOSTLY, value=may_be.count),
    "expect_column_values_to_be_between": _between(may_be.bound, _MOSTLY),
    "expect_column_values_to_be_in_set": _on_column(_MOSTLY, value_set=may_be.values),
    "expect_column_values_to_be_null": _on_column(_MOSTLY),
    "expect_column_values_to_be_unique": _on_column(_MOSTLY),
    "expect_column_values_to_match_regex": _on_column(_MOSTLY, regex=may_be.regex),
    "expect_column_values_to_match_regex_list": _on_column(
        {**_MOSTLY, "match_on": may_be.one_of("any", "all")}, regex_list=may_be.regexes
    ),
    "expect_column_values_to_not_be_in_set": _on_column(_MOSTLY, value_set=may_be.values),
    "expect_column_values_to_not_be_null": _on_column(_MOSTLY),
    "expect_column_values_to_not_match_regex": _on_column(_MOSTLY, regex=may_be.regex),
    "expect_column_values_to_not_match_regex_list": _on_column(_MOSTLY, regex_list=may_be.regexes),
    "expect_compound_columns_to_be_unique": Shape(required={"column_list": may_be.several_names}, optional=_MANY),
    "expect_multicolumn_sum_to_equal": Shape(
        required={"column_list": may_be.several_names, "sum_total": may_be.number}, optional=_MANY
    ),
    "expect_multicolumn_values_to_be_equal": Shape(required={"column_list": may_be.several_names}, optional=_MANY),
    "expect_select_column_values_to_be_unique_within_record": Shape(
        required={"column_list": may_be.several_names}, optional=_MANY
    ),
    "expect_table_column_count_to_be_between": _between(may_be.count, {}, column=False, strict=False),
    "expect_table_column_count_to_equal": Shape(required={"value": may_be.count}, optional={}),
    "expect_table_columns_to_match_ordered_list": Shape(required={"column_list": may_be.names}, optional={}),
    "expect_table_columns_to_match_set": Shape(
        required={"column_set": may_be.names}, optional={"exact_match": may_be.flag}
    ),
    "expect_table_row_count_to_be_between": _between(may_be.count, column=False),
    "expect_table_row_count_to_equal": Shape(required={"value": may_be.count}, optional=_ROWS),
}

AGGREGATES = frozenset(
    kind
    for kind, shape in ADMITTED.items()
    if "column" in shape.required and "mostly" not in shape.optional and kind != "expect_column_to_exist"
)
"""Checks of one value that is computed from a column. Without rows it does not exist, and they pass."""

OF_NULLS = "expect_column_proportion_of_non_null_values_to_be_between"
"""The only one of them whose value exists if all values are null."""

_SQL = "it runs the suite's own SQL with all rights of the job (it can read files, drop tables, call Java)"
_SQL_ONLY = "Great Expectations offers it for SQL databases only"
_ORDER = "it depends on the order of rows, and a table has no order"
_TYPES = "types have other names on each engine, and the pipeline's tables have fixed types anyway"
_ESTIMATE = "the engines of Great Expectations estimate it differently, so the verdict would depend on the engine"
_STRINGS = "Great Expectations does not offer it on every engine; use expect_column_values_to_match_regex"

REFUSED: Mapping[str, str] = {
    "unexpected_rows_expectation": f"{_SQL}; use checks of columns with a row_condition",
    "expect_query_results_to_match_comparison": _SQL,
    "expect_table_row_count_to_equal_other_table": _SQL_ONLY,
    "expect_column_quantile_values_to_be_between": (
        "Great Expectations 1.24.1 crashes on it with numpy 2 and loses the results of the whole suite; "
        "use expect_column_median_to_be_between"
    ),
    "expect_column_kl_divergence_to_be_less_than": "Great Expectations 1.24.1 cannot store its result with numpy 2",
    "expect_column_most_common_value_to_be_in_set": "of equally common values, each engine may choose another",
    "expect_column_pair_values_to_be_in_set": _STRINGS.replace("match_regex", "be_in_set with a row_condition"),
    "expect_column_type_to_be": _TYPES,
    "expect_column_values_to_be_of_type": _TYPES,
    "expect_column_values_to_be_in_type_list": _TYPES,
    "expect_column_values_to_be_increasing": _ORDER,
    "expect_column_values_to_be_decreasing": _ORDER,
    "expect_column_value_z_scores_to_be_less_than": _ESTIMATE,
    "expect_column_values_to_not_be_outliers": _ESTIMATE,
    "expect_column_values_to_be_dateutil_parseable": _STRINGS,
    "expect_column_values_to_be_json_parseable": _STRINGS,
    "expect_column_values_to_match_json_schema": _STRINGS,
    "expect_column_values_to_match_strftime_format": _STRINGS,
    "expect_column_values_to_match_like_pattern": _SQL_ONLY,
    "expect_column_values_to_match_like_pattern_list": _SQL_ONLY,
    "expect_column_values_to_not_match_like_pattern": _SQL_ONLY,
    "expect_column_values_to_not_match_like_pattern_list": _SQL_ONLY,
}
