"""Random tables of several slices, and random checks of them, for comparisons with Great Expectations."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.arrow_slices import ArrowSlices
from expectations.catalogue import ADMITTED
from expectations.outcomes import Outcome
from expectations.suites import Check, Suite

START = datetime(2013, 2, 8, 5, tzinfo=UTC)
TEXTS = [
    "", "a", "A1", "b\n", "é", "12", "a b", "EWR", "JFK", "\U0001f600", "'\"", "aaaa", "nan", "None", "`#@\\",
    "\0", "e\u0301", "2026-01-01",
]  # fmt: skip
REGEXES = ["^[A-Z]{3}$", "^a", "a|b", r"\d", r"^\w+$", ".", "^$", "[^a-z]", r"(a)\1", "é", "(?i)ewr", "a{2,}", r"\s"]
REALS = [0.0, -0.0, 1.0, 1.5, -2.25, 3.0, float("nan"), float("inf"), float("-inf"), 1e300, 0.1, 2.0, 5e-324]
WHOLES = [0, 1, 2, 3, -1, 5, 7, 100, 2**53 + 1, -(2**62)]
BEYOND_DOUBLES = [1234567890123456789001, 1234567890123456789002, 100 * (2**53 + 1)]
TYPES: Mapping[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "s": (pa.string(), lambda chance: chance.choice(TEXTS)),
    "u": (pa.string(), lambda chance: chance.choice(TEXTS) + chance.choice(TEXTS)),
    "x": (pa.float64(), lambda chance: chance.choice(REALS)),
    "y": (pa.float64(), lambda chance: chance.random() * 10 ** chance.randrange(-3, 6)),
    "n": (pa.int64(), lambda chance: chance.randrange(-3, 6)),
    "m": (pa.int64(), lambda chance: chance.choice(WHOLES)),
    "w": (pa.int32(), lambda chance: chance.randrange(0, 4)),
    "b": (pa.bool_(), lambda chance: chance.random() < 0.5),
    "c": (pa.bool_(), lambda chance: chance.random() < 0.8),
    "t": (pa.timestamp("us", tz="UTC"), lambda chance: START + timedelta(minutes=chance.randrange(0, 5))),
    "v": (
        pa.timestamp("us"),
        lambda chance: (START + timedelta(microseconds=chance.randrange(9))).replace(tzinfo=None),
    ),
    "d": (pa.date32(), lambda chance: (START + timedelta(days=chance.randrange(3))).date()),
    "z": (pa.decimal128(9, 2), lambda chance: Decimal(chance.choice([0, 110, 100, 50, 29, -225])).scaleb(-2)),
    "k": (pa.decimal128(38, 2), lambda chance: Decimal(chance.choice([*BEYOND_DOUBLES, 110, 100, 29])).scaleb(-2)),
    "j": (pa.decimal128(38, 3), lambda chance: Decimal(chance.choice([*BEYOND_DOUBLES, 110, 100, 29])).scaleb(-2)),
    "h": (pa.float32(), lambda chance: chance.choice([0.5, -1.0, float("nan"), float("inf")])),
    "o": (pa.binary(), lambda chance: chance.choice([b"", b"\xff", b"a"])),
    "l": (pa.list_(pa.float64()), lambda chance: chance.choice([[], [float("nan")], [None, 1.0]])),
    "r": (pa.struct([("a", pa.float64())]), lambda chance: {"a": chance.choice([None, float("nan"), 1.0])}),
    "p": (pa.map_(pa.string(), pa.int8()), lambda chance: chance.choice([[], [("a", None)], [("a", 1), ("b", 2)]])),
    "q": (pa.timestamp("ns", tz="UTC"), lambda chance: START + timedelta(minutes=chance.randrange(3))),
    "e": (pa.uint8(), lambda chance: chance.randrange(3)),
}


def left_to_great_expectations(check: Check) -> Outcome:
    """Return the outcome of a check that is not compiled, in a test that does not ask Great Expectations."""
    return Outcome(
        index=check.index, check=check.type, columns=check.columns, severity="critical", success=False,
        exception="left to Great Expectations", observed="{}", arguments="{}", description="",
    )  # fmt: skip


def random_table(chance: random.Random, *, slice_count: int, rows_max: int) -> ArrowSlices:
    """Return a table with a column of each type. Some columns have no nulls, some have many, some only nulls."""
    rows = chance.choice([0, 1, 2, chance.randrange(rows_max + 1), rows_max])
    slices = np.array(sorted(chance.randrange(slice_count) for _ in range(rows)), dtype=np.int64)
    if chance.random() < 0.3:
        slices = np.array(chance.sample(slices.tolist(), rows), dtype=np.int64)
    columns = {name: _column(chance, kind, value, rows) for name, (kind, value) in TYPES.items()}
    return ArrowSlices(pa.table(columns), slices, slice_count)


def _column(chance: random.Random, kind: pa.DataType, value: Callable[[random.Random], Any], rows: int) -> pa.Array:
    nulls = chance.choice([0.0, 0.0, 0.2, 0.7, 1.0])
    few = [value(chance) for _ in range(chance.choice([1, 3, 1000]))]
    values = [None if chance.random() < nulls else chance.choice(few) for _ in range(rows)]
    return pa.array(values, kind)


def random_suite(chance: random.Random, count: int, *, kinds: tuple[str, ...] = tuple(ADMITTED)) -> Suite:
    """Return a suite of random checks that the loader would accept; their columns exist."""
    checks = [
        Check(index=index, type=kind, kwargs=random_arguments(chance, kind))
        for index in range(count)
        for kind in [chance.choice(kinds)]
    ]
    return Suite(name="random", table="window_outputs", checks=tuple(checks))


def random_arguments(chance: random.Random, kind: str) -> dict[str, Any]:
    """Return arguments of an expectation, all required ones and some optional ones."""
    shape = ADMITTED[kind]
    given = {name: _argument(chance, name) for name in shape.required}
    if "column" in given and chance.random() < 0.7:
        given["column"] = _fitting_column(chance, kind)
    for name in shape.optional:
        if name not in {"min_value", "max_value"} and chance.random() < 0.3:
            given[name] = _argument(chance, name)
    if "column_list" in given:
        given["column_list"] = list(TYPES) if "ordered_list" in kind else _alike(chance, chance.choice([2, 2, 3]))
    if "value_set" in given and chance.random() < 0.8:
        given |= _fitting_set(chance, given["column"])
    given |= _pair(chance, given) | (_bounds(chance, kind, given.get("column")) if shape.at_least_one else {})
    return random_arguments(chance, kind) if shape.never_fails(given) else given


def _pair(chance: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
    if "column_A" not in given:
        return {}
    first, second = _alike(chance, 2)
    ignored = {"ignore_row_if": "either_value_is_missing"} if "ignore_row_if" in given else {}
    return {"column_A": first, "column_B": second, **ignored}


def _fitting_column(chance: random.Random, kind: str) -> str:
    if "length" in kind or "regex" in kind:
        return chance.choice("su")
    if any(word in kind for word in ("max", "min_to", "mean", "median", "stdev", "sum")):
        return chance.choice("xynmwzk")
    return chance.choice("susxynmwbctdzk")


def _bounds(chance: random.Random, kind: str, column: str | None) -> dict[str, Any]:
    low: Any
    high: Any
    if column in {"t", "v", "d"} and kind == "expect_column_values_to_be_between":
        ends = sorted((START + timedelta(minutes=chance.randrange(5))).replace(tzinfo=None) for _ in range(2))
        separator = chance.choice("T ")
        low, high = (end.isoformat(sep=separator) for end in ends)
    elif "proportion" in kind:
        low, high = sorted((round(chance.random(), 2), chance.choice([0.5, 1.0, 1])))
    elif "count" in kind or "length" in kind:
        low, high = sorted((chance.randrange(4), chance.randrange(20)))
    else:
        low, high = sorted((chance.choice([-1, 0, 0.5, 1, 2.5]), chance.choice([1, 2, 3, 5.0, 100])))
    return chance.choice([{"min_value": low}, {"max_value": high}, {"min_value": low, "max_value": high}])


def _fitting_set(chance: random.Random, column: str) -> dict[str, Any]:
    kinds: Mapping[str, list[Any]] = {"s": list(TEXTS), "u": list(TEXTS), "b": [True, False], "c": [True, False]}
    among = kinds.get(column, [0, 1, 2, 3, 1.5, 5.0, 1.1, 0.29])
    return {"value_set": chance.sample(among, chance.randrange(1, len(among) + 1))}


def _alike(chance: random.Random, count: int) -> list[str]:
    """Return different columns, often of the same kind."""
    among = chance.choice(["su", "xy", "nmw", "bc", "tvd", "xnz", "kj", "kjzmx", "".join(TYPES)])
    chosen = chance.sample(among, min(count, len(among)))
    return chosen if len(chosen) == count else chance.sample(list(TYPES), count)


def _argument(chance: random.Random, name: str) -> Any:  # noqa: ANN401 -- any JSON value
    makers: Mapping[str, Callable[[], Any]] = {
        "column": lambda: chance.choice(list(TYPES)),
        "column_A": lambda: "x",
        "column_B": lambda: "y",
        "column_list": list,
        "column_set": lambda: chance.choice([list(TYPES), ["s", "x"], [*TYPES, "absent"]]),
        "column_index": lambda: chance.randrange(1, 4),
        "exact_match": lambda: chance.random() < 0.5,
        "value": lambda: chance.choice([0, 1, 2, 3.0, len(TYPES)]),
        "value_set": lambda: chance.choice([["a", "EWR", ""], [1, 2.0, -1], [True]]),
        "sum_total": lambda: chance.choice([0, 1, 4.5]),
        "regex": lambda: chance.choice(REGEXES),
        "regex_list": lambda: chance.sample(REGEXES, chance.choice([1, 2])),
        "match_on": lambda: chance.choice(["any", "all"]),
        "mostly": lambda: chance.choice([0, 0.5, 0.6, 0.75, 0.9, 1, 1.0, round(chance.random(), 2)]),
        "strict_min": lambda: chance.random() < 0.5,
        "strict_max": lambda: chance.random() < 0.5,
        "or_equal": lambda: chance.random() < 0.5,
        "ignore_row_if": lambda: chance.choice(["all_values_are_missing", "any_value_is_missing", "never"]),
        "row_condition": lambda: random_condition(chance),
    }
    return makers[name]()


def random_condition(chance: random.Random, *, depth: int = 2) -> dict[str, Any]:
    """Return a condition for rows: an or of ands at most."""
    if depth and chance.random() < 0.3:
        parts = [random_condition(chance, depth=depth - 1) for _ in range(chance.choice([1, 2, 3]))]
        kind = "or" if depth == 2 and all(part["type"] != "or" for part in parts) else "and"
        return {"type": kind, "conditions": parts}
    column = chance.choice(list(TYPES))
    if chance.random() < 0.3:
        return {"type": "nullity", "column": {"name": column}, "is_null": chance.random() < 0.5}
    symbol = chance.choice(["==", "!=", "<", "<=", ">", ">=", "IN", "NOT_IN"])
    parameter = chance.choice(TEXTS) if column in "su" else chance.choice([0, 1, 2, 1.5, 2.0, -3, 1.1])
    if column in "bc" and symbol in {"==", "!="}:
        parameter = chance.random() < 0.5
    among = TEXTS if column in "su" else [0, 1, 2, 1.5, 2.0, -3, 1.1]
    several = [parameter, *chance.sample(among, chance.choice([0, 1, 3]))]
    return {
        "type": "comparison",
        "column": {"name": column},
        "operator": symbol,
        "parameter": several if "IN" in symbol else parameter,
    }
