"""Describes a check and its result in words, for messages, the report and the command line. Pure functions.

The functions take the plain values of `quality_results`. They never raise on values of another version of Hindcast: an
unknown check is described by its type.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from expectations.formatting import percent, spell, spell_apart

MAX_LISTED = 8
_PREFIX = "expect_"
_OF_NULLS = frozenset({"expect_column_values_to_be_null", "expect_column_values_to_not_be_null"})


def demand(check: str, column: str | None, arguments: Mapping[str, Any]) -> str:
    """Return what a check demands, such as `invalid_share at most 25 %` or `origin one of EWR, JFK, LGA`.

    `column` has the columns, joined by `, `; None for a check of the whole table. `arguments` are without the columns.
    """
    template = _TEMPLATES.get(check)
    first, _, rest = (column or "").partition(", ")
    if template is None:
        if isinstance(own_words := arguments.get("demand"), str):  # a check of Hindcast itself describes its demand
            return own_words
        plain = check.removeprefix(_PREFIX).replace("_", " ")
        return f"{column}: {plain}" if column else plain
    words = {
        "column": column or "",
        "a": first,
        "b": rest,
        "range": _range(arguments, column),
        "are": "are" if arguments.get("exact_match", True) else "are at least",
        "any": "each of" if arguments.get("match_on") == "all" else "one of",
        "at": f" at index {spell(arguments['column_index'])}" if arguments.get("column_index") else "",
        "set": _listed(arguments.get("value_set") or arguments.get("column_set") or arguments.get("column_list")),
        "regex": str(arguments.get("regex", "")),
        "regexes": _listed(arguments.get("regex_list")),
        "value": spell(arguments.get("value", arguments.get("sum_total"))),
        "or_equal": "≥" if arguments.get("or_equal") else ">",
    }
    return template.format_map(words) + _mostly(check, arguments) + _where(arguments.get("row_condition"))


def finding(
    column: str | None, observed: Mapping[str, Any], *, check: str = "", arguments: Mapping[str, Any] | None = None
) -> str:
    """Return what a check observed: `78.2 %`, `3 of 5,000 rows unexpected (0.06 %), among them LGA`, or `no LGA`.

    A number that is not equal to a limit of the check has a text that differs from that of the limit in its demand.
    """
    if "note" in observed:
        return str(observed["note"])
    of_check = limits(check, arguments or {})
    if "value" in observed:
        return _value(column, observed, of_check)
    if "rows" in observed:
        return _rows(column, observed, of_check)
    shown, absent = observed.get("values") or observed.get("sample"), observed.get("absent")
    parts = [_listed(shown, column, of_check)] if shown else []
    return ", but ".join([*parts, f"no {_listed(absent, column)}"] if absent else parts) or "nothing"


def _value(column: str | None, observed: Mapping[str, Any], of_check: tuple[float | None, float | None]) -> str:
    text, number = spell(observed["value"], column), measured(observed)
    for limit in of_check:
        if number is not None and limit is not None and number != limit and spell(limit, column) == text:
            value, exact = spell_apart(number, limit, column)
            return value if exact == text else f"{value} (the limit is {exact})"
    return text


def shortfall(check: str, column: str | None, *, arguments: Mapping[str, Any], observed: Mapping[str, Any]) -> str:
    """Return how a result misses its demand, for one line of a log: `share of invalid records 30.8 %, limit 25 %`.

    A check whose result is not one number is described by its demand and its finding.
    """
    value, (least, most) = measured(observed), limits(check, arguments)
    template = _TEMPLATES.get(check, "")
    if is_share_of_rows(observed) or value is None or not template.endswith("{range}"):
        wanted = demand(check, column, arguments)
        return (
            f"{wanted}: found {finding(column, observed, check=check, arguments=arguments)}"
            if observed
            else f"{wanted}: failed"
        )
    subject = template.removesuffix("{range}").format(column=_SUBJECTS.get(column or "", column or "")).strip()
    is_above = least is None or (most is not None and value >= most)
    words, limit = _sides(arguments)[is_above].replace("at most", "limit"), most if is_above else least
    texts = (spell(value, column), spell(limit, column)) if limit is None else spell_apart(value, limit, column)
    return f"{subject} {texts[0]}, {words} {texts[1]}{_where(arguments.get('row_condition'))}"


def limits(check: str, arguments: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the least and the greatest number that pass, for the lines of a chart; None without such a limit."""
    if check.endswith("_to_be_between"):
        return _limit(arguments.get("min_value")), _limit(arguments.get("max_value"))
    if check.endswith(("_to_equal", "_count_to_equal")):
        return _limit(arguments.get("value")), _limit(arguments.get("value"))
    return None, None


def measured(observed: Mapping[str, Any]) -> float | None:
    """Return the number that a chart shows for a check: its value, otherwise the share of unexpected rows."""
    return _limit(observed["value"]) if "value" in observed else _limit(observed.get("share"))


def is_share_of_rows(observed: Mapping[str, Any]) -> bool:
    """Return whether `measured` is the share of unexpected rows. The check's limits do not apply to that share."""
    return "value" not in observed and "share" in observed


_SUBJECTS: Mapping[str, str] = {  # columns of the table `run` (expectations/suites.py)
    "records_read": "records read",
    "assigned": "records in windows",
    "late": "late records",
    "unassigned": "records without a window",
    "invalid": "invalid records",
    "filtered": "filtered records",
    "duplicate": "duplicates",
    "late_share": "share of late records",
    "unassigned_share": "share of records without a window",
    "invalid_share": "share of invalid records",
    "filtered_share": "share of filtered records",
    "duplicate_share": "share of duplicates",
    "watermark_ms": "watermark",
}
_TEMPLATES: Mapping[str, str] = {
    "expect_column_distinct_values_to_be_in_set": "{column} takes only {set}",
    "expect_column_distinct_values_to_contain_set": "{column} takes at least {set}",
    "expect_column_distinct_values_to_equal_set": "{column} takes exactly {set}",
    "expect_column_max_to_be_between": "greatest {column} {range}",
    "expect_column_mean_to_be_between": "mean {column} {range}",
    "expect_column_median_to_be_between": "median {column} {range}",
    "expect_column_min_to_be_between": "least {column} {range}",
    "expect_column_pair_values_a_to_be_greater_than_b": "{a} {or_equal} {b}",
    "expect_column_pair_values_to_be_equal": "{a} = {b}",
    "expect_column_proportion_of_non_null_values_to_be_between": "share of {column} not null {range}",
    "expect_column_proportion_of_unique_values_to_be_between": "share of unique {column} {range}",
    "expect_column_stdev_to_be_between": "standard deviation of {column} {range}",
    "expect_column_sum_to_be_between": "sum of {column} {range}",
    "expect_column_to_exist": "{column} exists{at}",
    "expect_column_unique_value_count_to_be_between": "number of different {column} {range}",
    "expect_column_value_lengths_to_be_between": "length of {column} {range}",
    "expect_column_value_lengths_to_equal": "length of {column} = {value}",
    "expect_column_values_to_be_between": "{column} {range}",
    "expect_column_values_to_be_in_set": "{column} one of {set}",
    "expect_column_values_to_be_null": "{column} null",
    "expect_column_values_to_be_unique": "{column} unique",
    "expect_column_values_to_match_regex": "{column} matches {regex}",
    "expect_column_values_to_match_regex_list": "{column} matches {any} {regexes}",
    "expect_column_values_to_not_be_in_set": "{column} none of {set}",
    "expect_column_values_to_not_be_null": "{column} not null",
    "expect_column_values_to_not_match_regex": "{column} does not match {regex}",
    "expect_column_values_to_not_match_regex_list": "{column} matches none of {regexes}",
    "expect_compound_columns_to_be_unique": "{column} unique together",
    "expect_multicolumn_sum_to_equal": "{column} add up to {value}",
    "expect_multicolumn_values_to_be_equal": "{column} equal",
    "expect_select_column_values_to_be_unique_within_record": "{column} different from each other",
    "expect_table_column_count_to_be_between": "number of columns {range}",
    "expect_table_column_count_to_equal": "number of columns = {value}",
    "expect_table_columns_to_match_ordered_list": "columns are {set}, in this order",
    "expect_table_columns_to_match_set": "columns {are} {set}",
    "expect_table_row_count_to_be_between": "number of rows {range}",
    "expect_table_row_count_to_equal": "number of rows = {value}",
    "conservation": "read = assigned + late + unassigned + invalid",
    "audit_fates": "records read = fates given, id by id",
    "audit_edges": "windows entered = windows left or still open, id by id",
    "audit_rows": "rows emitted = rows committed, id by id",
}


def _range(arguments: Mapping[str, Any], column: str | None) -> str:
    ends: tuple[Any, Any] = arguments.get("min_value"), arguments.get("max_value")
    above, below = _sides(arguments)
    has_limits = all(_limit(end) is not None for end in ends)
    least, most = spell_apart(ends[0], ends[1], column) if has_limits else (spell(end, column) for end in ends)
    if ends[0] is None:
        return f"{below} {most}"
    if ends[1] is None:
        return f"{above} {least}"
    is_strict = arguments.get("strict_min") or arguments.get("strict_max")
    return f"{above} {least} and {below} {most}" if is_strict else f"from {least} to {most}"


def _sides(arguments: Mapping[str, Any]) -> tuple[str, str]:
    return "above" if arguments.get("strict_min") else "at least", "below" if arguments.get("strict_max") else "at most"


def _mostly(check: str, arguments: Mapping[str, Any]) -> str:
    mostly = _limit(arguments.get("mostly"))
    rows = "the rows" if check in _OF_NULLS else "the rows with a value"
    if mostly is None or mostly >= 1:
        return ""
    return f", in at least {(Decimal(repr(mostly)) * 100).normalize():f} % of {rows}"  # all digits decide


def _where(condition: object) -> str:
    text = _condition(condition)
    return f", where {text}" if text else ""


def _condition(condition: object) -> str:
    if not isinstance(condition, Mapping):
        return ""
    column = condition.get("column")
    name = column.get("name", "") if isinstance(column, Mapping) else ""
    match condition.get("type"):
        case "comparison":
            operator = {"==": "=", "IN": "in", "NOT_IN": "not in"}.get(
                str(condition.get("operator")), condition.get("operator")
            )
            parameter = condition.get("parameter")
            return f"{name} {operator} {_listed(parameter) if isinstance(parameter, list) else spell(parameter)}"
        case "nullity":
            return f"{name} is {'null' if condition.get('is_null') else 'not null'}"
        case "and" | "or" as kind:
            parts = condition.get("conditions")
            return f" {kind} ".join(_condition(part) for part in parts) if isinstance(parts, list) else ""
        case _:
            return "a condition holds"


def _rows(column: str | None, observed: Mapping[str, Any], of_check: tuple[float | None, float | None]) -> str:
    names = ("unexpected", "rows", "share", "missing")
    unexpected, rows, share, missing = (_limit(observed.get(name)) or 0.0 for name in names)
    if not rows or (rows == missing and not unexpected):
        return "no row has a value, so nothing to check" if rows else "no rows, so nothing to check"
    of_value = " with a value" if missing else ""
    if not unexpected:
        return f"the one row{of_value}" if rows - missing == 1 else f"all {spell(rows - missing)} rows{of_value}"
    more = f"; {spell(missing)} more have none" if missing else ""
    summary = f"{spell(unexpected)} of {spell(rows - missing)} rows{of_value} unexpected ({percent(share)}{more})"
    sample = observed.get("sample")
    return f"{summary}, among them {_listed(sample, column, of_check)}" if sample else summary


def _listed(
    values: object, column: str | None = None, of_check: tuple[float | None, float | None] = (None, None)
) -> str:
    if not isinstance(values, list):
        return spell(values, column)
    shown = ", ".join(_value(column, {"value": value}, of_check) for value in values[:MAX_LISTED])
    return f"{shown} and {len(values) - MAX_LISTED} more" if len(values) > MAX_LISTED else shown


def _limit(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        limit = float(value)
    except OverflowError:
        return None
    return limit if math.isfinite(limit) else None
