"""A suite with a check that the types of its columns make pass or break in every slice is refused."""

import json
from datetime import date
from decimal import Decimal
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expectations.arrow_slices import ArrowSlices
from expectations.compiled.compiler import compile_check
from expectations.compiled.misfits import refuse_misfits
from expectations.runner import validate
from expectations.slices import check_slices
from expectations.suites import Check, Suite
from windowlib.errors import SpecError

SCHEMA = pa.schema(
    {
        "amount": pa.decimal128(18, 2), "day": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "text": pa.string(),
        "whole": pa.int64(), "flag": pa.bool_(), "parts": pa.list_(pa.int64()), "raw": pa.binary(),
        "unknown": pa.null(), "real": pa.float64(), "pair": pa.struct([("a", pa.int64())]),
        "named": pa.map_(pa.string(), pa.int64()),
    }
)  # fmt: skip
COUNT = "expect_table_row_count_to_equal"
NOT_IN = "expect_column_values_to_not_be_in_set"
BETWEEN = "expect_column_values_to_be_between"
REGEX = "expect_column_values_to_match_regex"
SUM = "expect_multicolumn_sum_to_equal"
UNLIKE = "expect_select_column_values_to_be_unique_within_record"


def suite_of(*checks: tuple[str, dict[str, Any]]) -> Suite:
    made = tuple(Check(index=index, type=kind, kwargs=kwargs) for index, (kind, kwargs) in enumerate(checks))
    return Suite(name="money", table="window_outputs", checks=made)


def where(column: str, operator: str, /, parameter: object) -> tuple[str, dict[str, Any]]:
    condition = {"type": "comparison", "column": {"name": column}, "operator": operator, "parameter": parameter}
    return COUNT, {"value": 0, "row_condition": {"type": "and", "conditions": [condition]}}


@pytest.mark.parametrize(
    ("kind", "kwargs", "problem"),
    [
        (*where("day", "==", "2026-01-01"), "column day is date32[day], which row_condition compares"),
        (*where("day", "!=", "2026-01-01"), "never equal"),
        (*where("at", "==", "2026-01-01T00:00:00+00:00"), "never equal"),
        (
            *where("at", "IN", ["2026-01-01T00:00:00"]),
            "never equal; write a range: expect_column_values_to_be_between with bounds",
        ),
        (*where("at", ">=", "2026-01-01"), "write a range"),
        (*where("at", ">=", 1767225600000), "write a range"),
        (*where("amount", "==", "1.10"), "never equal; write numbers"),
        (*where("whole", "IN", ["1"]), "never equal; write numbers"),
        (*where("flag", "==", "true"), "never equal; write numbers"),
        (*where("text", "==", 1), "never equal; write texts"),
        (*where("parts", "==", 1), "only its nulls can be checked"),
        (NOT_IN, {"column": "day", "value_set": ["2026-01-01"]}, "no value of it is equal to '2026-01-01'"),
        (NOT_IN, {"column": "at", "value_set": ["2026-01-01"]}, "no value of it is equal"),
        (NOT_IN, {"column": "text", "value_set": [1]}, "column text is string, and no value of it is equal to 1"),
        (NOT_IN, {"column": "whole", "value_set": ["1"]}, "no value of it is equal to '1'"),
        (BETWEEN, {"column": "day", "min_value": 0}, "cannot be compared with min_value = 0"),
        (BETWEEN, {"column": "whole", "max_value": "2026-01-01T00:00:00"}, "cannot be compared with max_value"),
        ("expect_column_mean_to_be_between", {"column": "text", "min_value": 1}, "min_value = 1; check its set, its"),
        (
            "expect_column_max_to_be_between",
            {"column": "at", "max_value": 1},
            "expect_column_values_to_be_between with",
        ),
        (SUM, {"column_list": ["whole", "text"], "sum_total": 1}, "column text is string, which has no sum; name"),
        (SUM, {"column_list": ["at", "whole"], "sum_total": 1}, "column at is timestamp[us, tz=UTC], which has no sum"),
        (REGEX, {"column": "amount", "regex": "1"}, "no text that is the same on every engine; write numbers"),
        (REGEX, {"column": "raw", "regex": "1"}, "column raw is binary, whose values have no text"),
        ("expect_column_value_lengths_to_equal", {"column": "raw", "value": 1}, "only its nulls can be checked"),
        ("expect_column_value_lengths_to_be_between", {"column": "parts", "min_value": 1}, "whose values have no text"),
        *(
            ("expect_column_values_to_not_match_regex", {"column": name, "regex": "1"}, "whose values have no text")
            for name in ("at", "day", "flag", "real", "pair", "named")
        ),
        ("expect_column_unique_value_count_to_be_between", {"column": "parts", "min_value": 1}, "cannot be compared"),
        ("expect_compound_columns_to_be_unique", {"column_list": ["parts", "text"]}, "values cannot be compared; only"),
        (UNLIKE, {"column_list": ["parts", "unknown"]}, "column parts is list<item: int64>, whose values cannot"),
        (
            BETWEEN,
            {"column": "whole", "max_value": 2.0**53},
            "9007199254740992.0 is not below 2^53 = 9,007,199,254,740,",
        ),
        (
            "expect_column_max_to_be_between",
            {"column": "whole", "min_value": -1e18},
            "whole is int64, and -1e+18 is not",
        ),
        (NOT_IN, {"column": "whole", "value_set": [1.0, 1e16]}, "1e+16 is not below"),
        (*where("whole", ">", 2.0**53), "9007199254740992.0 is not below 2^53"),
        (UNLIKE, {"column_list": ["text", "whole"]}, "text is string, whole is int64; name columns of one kind"),
    ],
)
def test_a_check_that_does_not_fit_its_columns_is_refused(kind: str, kwargs: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as refused:
        refuse_misfits(suite_of((kind, kwargs)), SCHEMA)
    assert str(refused.value).startswith(f"suite money of window_outputs: expectation 0 {kind}: ")
    assert problem in str(refused.value)


def test_a_check_that_fits_its_columns_is_accepted() -> None:
    fitting = suite_of(
        ("expect_column_values_to_not_be_null", {"column": "parts"}),
        ("expect_column_proportion_of_non_null_values_to_be_between", {"column": "raw", "min_value": 0.5}),
        ("expect_column_values_to_be_unique", {"column": "raw"}),
        where("amount", "==", 1.1),
        where("at", ">=", "2026-01-01T00:00:00+00:00"),
        where("day", "<", "2026-01-01T00:00:00+00:00"),
        where("flag", "==", parameter=True),
        where("text", "IN", ["2026-01-01"]),
        where("unknown", "==", "1"),
        where("absent", "==", "1"),
        (NOT_IN, {"column": "amount", "value_set": [1.1]}),
        (NOT_IN, {"column": "flag", "value_set": [1]}),
        (BETWEEN, {"column": "day", "min_value": "2026-01-01T00:00:00"}),
        (BETWEEN, {"column": "whole", "max_value": 2.0**53 - 1}),
        (BETWEEN, {"column": "amount", "max_value": 1e18}),
        ("expect_column_sum_to_be_between", {"column": "whole", "max_value": 1e18}),
        (UNLIKE, {"column_list": ["whole", "amount"]}),
        (REGEX, {"column": "whole", "regex": "1"}),
        ("expect_column_value_lengths_to_equal", {"column": "text", "value": 1}),
        (SUM, {"column_list": ["whole", "amount", "flag", "unknown"], "sum_total": 1}),
    )
    refuse_misfits(fitting, SCHEMA)


AMOUNTS = [Decimal("1.10"), Decimal("2.50"), None, Decimal("0.30")]
TABLE = pa.table(
    {
        "amount": pa.array(AMOUNTS, pa.decimal128(38, 2)),
        "day": pa.array([date(2026, 1, 1), None, date(2026, 1, 2), date(2026, 1, 3)]),
    }
)


@pytest.mark.gx
@pytest.mark.parametrize(
    ("kind", "kwargs", "passes"),
    [
        (NOT_IN, {"column": "amount", "value_set": [1.1]}, False),
        ("expect_column_values_to_be_in_set", {"column": "amount", "value_set": [1.1, 2.5, 0.3]}, True),
        ("expect_column_mean_to_be_between", {"column": "amount", "min_value": 1.3, "max_value": 1.3}, True),
        ("expect_column_sum_to_be_between", {"column": "amount", "max_value": 3}, False),
        ("expect_column_stdev_to_be_between", {"column": "amount", "max_value": 2}, True),
        (BETWEEN, {"column": "amount", "max_value": 2.5, "min_value": 0.3}, True),
        (BETWEEN, {"column": "day", "max_value": "2026-01-03T00:00:00"}, True),
        (BETWEEN, {"column": "day", "max_value": "2026-01-02T12:00:00"}, False),
        ("expect_column_values_to_be_unique", {"column": "day"}, True),
        (COUNT, {"value": 1, "row_condition": where("amount", "==", 1.1)[1]["row_condition"]}, True),
    ],
)
def test_decimals_are_numbers_and_dates_are_times_for_both_engines(
    kind: str, kwargs: dict[str, Any], *, passes: bool
) -> None:
    suite, table = suite_of((kind, kwargs)), ArrowSlices(TABLE, np.zeros(4, dtype=np.int64), 1)
    refuse_misfits(suite, TABLE.schema)
    assert compile_check(suite.checks[0], TABLE.schema, 1) is not None
    [[compiled]] = check_slices(suite, table)
    [asked] = validate(suite.table, table.frame(0, TABLE.column_names), suite)
    assert (compiled.success, compiled.exception) == (asked.success, asked.exception) == (passes, None)
    assert compiled.observed == asked.observed


BIG = "12345678901234567890.0"
PAIR = "expect_column_pair_values_to_be_equal"
UNIQUE = "expect_column_values_to_be_unique"


def of_price(operator: str, /, parameter: object) -> dict[str, Any]:
    return {"row_condition": where("price", operator, parameter)[1]["row_condition"]}


DECIMALS = pa.table(
    {
        "id": pa.array([Decimal(BIG + end) for end in ("1", "2", "3", "3")], pa.decimal128(38, 2)),
        "near": pa.array([Decimal(BIG + end) for end in ("1", "2", "3", "4")], pa.decimal128(38, 3)),
        "number": pa.array([1, 2, 3, 4]),
        "price": pa.array([Decimal("1.10"), Decimal("1.10"), Decimal(2), Decimal(2)], pa.decimal128(9, 2)),
        "whole": pa.array([2**53 + 1, 1, 2, None]),
        "same": pa.array([Decimal(2**53 + 1), Decimal(1), Decimal(2), None], pa.decimal128(38, 0)),
    }
)


@pytest.mark.gx
@pytest.mark.parametrize(
    ("kind", "kwargs", "observed"),
    [
        (UNIQUE, {"column": "id"}, {"unexpected": 2, "sample": [f"{BIG}3"]}),
        (UNIQUE, {"column": "near"}, {"unexpected": 0}),
        ("expect_column_unique_value_count_to_be_between", {"column": "id", "min_value": 4}, {"value": 3}),
        ("expect_column_proportion_of_unique_values_to_be_between", {"column": "id", "min_value": 1}, {"value": 0.75}),
        ("expect_compound_columns_to_be_unique", {"column_list": ["id", "number"]}, {"unexpected": 0}),
        (PAIR, {"column_A": "id", "column_B": "near"}, {"unexpected": 1, "sample": [[f"{BIG}3", f"{BIG}40"]]}),
        ("expect_multicolumn_values_to_be_equal", {"column_list": ["near", "id"], "mostly": 0.5}, {"unexpected": 1}),
        (UNLIKE, {"column_list": ["near", "id"]}, {"unexpected": 3}),
        (UNIQUE, {"column": "price", **of_price("==", 1.1)}, {"rows": 2, "unexpected": 2, "sample": [1.1]}),
        (UNIQUE, {"column": "price", **of_price("IN", [1.1])}, {"rows": 2, "unexpected": 2}),
        (UNIQUE, {"column": "price", **of_price("<=", 1.1)}, {"rows": 2, "unexpected": 2}),
        (PAIR, {"column_A": "whole", "column_B": "same"}, {"unexpected": 0, "missing": 1}),
    ],
)  # fmt: skip
def test_two_decimals_are_equal_only_if_all_of_their_digits_are(
    kind: str, kwargs: dict[str, Any], observed: dict[str, Any]
) -> None:
    """Defect: Great Expectations compared doubles, so a check that failed was an error that nobody could waive."""
    suite, table = suite_of((kind, kwargs)), ArrowSlices(DECIMALS, np.zeros(4, dtype=np.int64), 1)
    for confirm in ("all", "none"):
        [[outcome]] = check_slices(suite, table, confirm=confirm)
        assert outcome.exception is None
        assert json.loads(outcome.observed).items() >= observed.items()


@pytest.mark.gx
@pytest.mark.parametrize("total", [1, 1.1])
def test_a_sum_of_decimals_of_a_row_is_exact(total: float) -> None:
    """Defect: 0.20 + 0.70 + 0.10 was not 1, and the answer depended on the order of the columns."""
    for values in permutations(["0.20", "0.70", str(Decimal(str(total)) - Decimal("0.90"))]):
        shares = {
            name: pa.array([Decimal(value)], pa.decimal128(9, 2)) for name, value in zip("abc", values, strict=True)
        }
        suite = suite_of((SUM, {"column_list": ["a", "b", "c"], "sum_total": total}))
        [[outcome]] = check_slices(suite, ArrowSlices(pa.table(shares), np.zeros(1, dtype=np.int64), 1))
        assert (outcome.success, outcome.exception) == (True, None)


@pytest.mark.gx
def test_a_sum_of_integers_does_not_wrap_around() -> None:
    table = pa.table({"n": pa.array([2**62] * 4)})
    suite = suite_of(("expect_column_sum_to_be_between", {"column": "n", "max_value": 1e18}))
    [[outcome]] = check_slices(suite, ArrowSlices(table, np.zeros(4, dtype=np.int64), 1))
    assert (outcome.success, outcome.exception, outcome.observed) == (False, None, f'{{"value":{2**64}}}')
