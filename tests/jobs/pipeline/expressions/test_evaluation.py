"""Evaluation of expressions: DuckDB against a naive evaluator in Python, and failures of single records."""

import math
from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from jobs.expressions.derived_columns import Derivation
from jobs.expressions.evaluation import derive
from jobs.pipeline.models.expressions import derivation as derivations
from jobs.pipeline.models.expressions.syntax import normal_text
from tests.support.fuzzing import chances, seeds
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import SpecError
from windowlib.records.column_types import parse_type

COLUMNS: Final = {
    "n": "bigint",
    "m": "bigint",
    "t": "string",
    "s": "struct<inner:struct<word:string,number:bigint>>",
    "raw": "binary",
    "at": "timestamp",
    "a.b": "string",
    "a": "struct<b:string,c:string>",
}
FAILED: Final = object()
"""The value of an expression that raises an error."""

Record = dict[str, Any]
Truth = bool | None
Evaluate = Callable[[Record], Any]
"""Returns the value of an expression for a record: None for null, or `FAILED`."""


class FailedError(Exception):
    """The naive evaluator found an error."""


def derivation_of(columns: dict[str, str], *, expressions: dict[str, str], where: str | None) -> Derivation:
    return derivations.derivation_of(tuple(columns.items()), tuple(expressions.items()), where)


def rows_of(records: list[Record]) -> pa.RecordBatch:
    schema = pa.schema([(name, arrow_type(parse_type(kind))) for name, kind in COLUMNS.items()])
    return pa.RecordBatch.from_pylist(records, schema)


def values(text: str, records: list[Record]) -> list[Any]:
    """Return the value of an expression for each record, by DuckDB; FAILED where it failed."""
    found = derive(rows_of(records), derivation_of(COLUMNS, expressions={"x": text}, where=None))
    bad = found.failed.get("x", np.zeros(len(records), dtype=bool))
    return [
        FAILED if is_bad else value
        for value, is_bad in zip(found.rows.column("x").to_pylist(), bad.tolist(), strict=True)
    ]


# --- a naive evaluator of a small language ----------------------------------------------------------------------------


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is null if an argument is null."""
    return lambda *arguments: None if None in arguments else function(*arguments)


def whole(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise FailedError
    return value


def number_of(text: str) -> int:
    try:
        return whole(int(text))
    except ValueError:
        raise FailedError from None


def both(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if None in (one, other) else True


def either(one: Truth, other: Truth) -> Truth:
    if one is True or other is True:
        return True
    return None if None in (one, other) else False


def integer(random: Random, depth: int) -> tuple[str, Evaluate]:  # noqa: C901, PLR0911 - one branch for each form
    """Return a random expression of type BIGINT, and its naive evaluation."""
    kind = random.randrange(3 if depth <= 0 else 9)
    if kind == 0:
        value = random.choice((0, 1, 7, 10, 2**40))
        return f"cast({value} as bigint)", lambda _record: value
    if kind == 1:
        name = random.choice("nm")
        return name, lambda record: record[name]
    if kind == 2:
        return "s.inner.number", lambda record: ((record["s"] or {}).get("inner") or {}).get("number")
    if kind in (3, 4):
        symbol, apply = random.choice((("+", int.__add__), ("-", int.__sub__), ("*", int.__mul__)))
        one, first = integer(random, depth - 1)
        other, second = integer(random, depth - 1)
        return f"({one} {symbol} {other})", lambda record: strict(lambda a, b: whole(apply(a, b)))(
            first(record), second(record)
        )
    if kind == 5:
        text, inner = words(random, depth - 1)
        return f"length({text})", lambda record: strict(len)(inner(record))
    if kind == 6:
        text, inner = words(random, depth - 1)
        return f"cast({text} as bigint)", lambda record: strict(number_of)(inner(record))
    if kind == 7:
        text, inner = integer(random, depth - 1)
        other, second = integer(random, depth - 1)

        def fallback(record: Record) -> Any:  # noqa: ANN401
            value = inner(record)
            return second(record) if value is None else value

        return f"coalesce({text}, {other})", fallback
    condition, holds = truth(random, depth - 1)
    one, first = integer(random, depth - 1)
    other, second = integer(random, depth - 1)
    return (
        f"case when {condition} then {one} else {other} end",
        lambda record: first(record) if holds(record) else second(record),
    )


def words(random: Random, depth: int) -> tuple[str, Evaluate]:  # noqa: PLR0911 - one branch for each form
    """Return a random expression of type VARCHAR, and its naive evaluation."""
    kind = random.randrange(3 if depth <= 0 else 7)
    if kind == 0:
        value = random.choice(("", "x", "12", "it's", "Ä"))
        return "'" + value.replace("'", "''") + "'", lambda _record: value
    if kind == 1:
        return "t", lambda record: record["t"]
    if kind == 2:
        return "s.inner.word", lambda record: ((record["s"] or {}).get("inner") or {}).get("word")
    text, inner = words(random, depth - 1)
    if kind == 3:
        return f"upper({text})", lambda record: strict(str.upper)(inner(record))
    if kind == 4:
        other, second = words(random, depth - 1)
        return f"({text} || {other})", lambda record: strict(str.__add__)(inner(record), second(record))
    if kind == 5:
        return f"replace({text}, 'x', 'yy')", lambda record: strict(lambda one: one.replace("x", "yy"))(inner(record))
    value, of = integer(random, depth - 1)
    return f"cast({value} as varchar)", lambda record: strict(str)(of(record))


def truth(random: Random, depth: int) -> tuple[str, Evaluate]:
    """Return a random condition, and its naive evaluation. Both sides of `and` and `or` are evaluated, as in DuckDB."""
    kind = random.randrange(3 if depth <= 0 else 6)
    one, first = integer(random, depth - 1)
    if kind == 0:
        return f"{one} is null", lambda record: first(record) is None
    if kind in (1, 2):
        other, second = integer(random, depth - 1)
        symbol, apply = random.choice((("<", int.__lt__), ("=", int.__eq__), (">=", int.__ge__), ("<>", int.__ne__)))
        return f"{one} {symbol} {other}", lambda record: strict(apply)(first(record), second(record))
    if kind == 3:
        text, inner = truth(random, depth - 1)
        return f"not ({text})", lambda record: strict(lambda value: not value)(inner(record))
    left, is_left = truth(random, depth - 1)
    right, is_right = truth(random, depth - 1)
    word, join = random.choice((("and", both), ("or", either)))
    return f"({left}) {word} ({right})", lambda record: join(is_left(record), is_right(record))


def naive(evaluate: Evaluate, record: Record) -> Any:  # noqa: ANN401
    try:
        return evaluate(record)
    except FailedError:
        return FAILED


def random_record(random: Random) -> Record:
    inner = random.choice(
        (None, {"word": random.choice((None, "x", "3", "axa")), "number": random.choice((None, 0, 5))})
    )
    return {
        "n": random.choice((None, 0, 1, -3, 2**62, 2**63 - 1)),
        "m": random.choice((None, 0, 1, -3, -(2**63))),
        "t": random.choice((None, "", "7", "x", "Öl", "-12")),
        "s": random.choice((None, {"inner": inner})),
    }


@pytest.mark.slow
@pytest.mark.fuzz
def test_random_expressions_have_the_values_of_a_naive_evaluator() -> None:
    for random in chances(150):
        text, evaluate = random.choice((integer, words, truth))(random, random.randint(1, 3))
        records = [random_record(random) for _ in range(random.randint(1, 30))]
        wanted = [naive(evaluate, record) for record in records]
        assert values(text, records) == wanted, text
        # The value of a record depends on nothing but the record: not on the others of its batch.
        place = random.randrange(len(records))
        assert values(normal_text(text), records[place : place + 1]) == wanted[place : place + 1], text


# --- single cases -----------------------------------------------------------------------------------------------------

JSON: Final = '{"a": {"b": 1.5, "c": "x", "d": null}, "l": [1, 2]}'
CASES: Final = {
    "cast(json_extract(t, '$.a.b') as double)": 1.5,
    "t -> '$.a.b'": "1.5",
    "t -> '$.a.c'": '"x"',
    "t ->> '$.a.c'": "x",
    "t ->> '$.a.d'": None,
    "t ->> '$.a.none'": None,
    "t -> 'l'": "[1,2]",
    "t ->> '$.a.c' = 'x'": True,
    "cast(t ->> '$.a.c' as double)": FAILED,
    "cast(json_extract(t, '$.a.c') as double)": FAILED,
    "cast(json_extract(t, '$.a.d') as double)": None,
    "try_cast(t ->> '$.a.c' as double)": None,
    "raw ->> '$.k'": "v",
    "decode(raw)": '{"k": "v"}',
    "decode(t) = t": True,
    "n / 0": math.inf,
    "n // 2": 3,
    "n % 4": 3,
    "n in (1, 7)": True,
    "n in (1, null)": None,
    "n between 7 and 8": True,
    "nullif(n, 7)": None,
    "substring('abcdef', 2, 3)": "bcd",
    "trim('  x ')": "x",
    "concat('a', null, 'b')": "ab",
    "regexp_extract('user-12', '([a-z]+)-([0-9]+)', 2)": "12",
    "regexp_matches('abc', '^a')": True,
    "split_part('a-b-c', '-', 2)": "b",
    "'abc' like '_b%'": True,
    "epoch_ms(at)": 1_767_571_200_123,
    "extract(year from at)": 2026,
    "extract(dayofweek from at)": 1,
    "epoch_ms(date_trunc('day', at))": 1_767_571_200_000,
    "epoch_ms(strptime('05.01.2026', '%d.%m.%Y'))": 1_767_571_200_000,
    "strptime(t, '%Y')": FAILED,
    "try_strptime(t, '%Y')": None,
    "epoch_ms(make_timestamp(1767571200123000))": 1_767_571_200_123,
    "epoch_ms(epoch_ms(n))": 7,
    "cast('2026-01-05 00:00:00+02:00' as timestamptz) = timestamptz '2026-01-04 22:00:00+00:00'": True,
    "a.b": "dotted",
    "a.c": "field",
    "case when n = 7 then 'x' else cast(cast(t as bigint) as varchar) end": "x",
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_single_expressions(text: str) -> None:
    record = {
        "n": 7, "m": None, "t": JSON, "s": None, "raw": b'{"k": "v"}', "at": 1_767_571_200_123_000, "a.b": "dotted",
        "a": {"b": "hidden", "c": "field"},
    }  # fmt: skip
    assert values(text, [record]) == [CASES[text]]


def test_a_failure_is_that_of_one_record() -> None:
    records: list[Record] = [{"t": text} for text in ("1", None, "x", "3", "")] * 1_000
    wanted = [1, None, FAILED, 3, FAILED] * 1_000
    assert values("cast(t as bigint)", records) == wanted
    # Common parts of several expressions fail by themselves, whatever DuckDB's optimizer does with them.
    found = derive(
        rows_of(records),
        derivation_of(
            COLUMNS, expressions={"x": "cast(t as bigint)", "y": "cast(t as bigint) + 1", "z": "t"}, where=None
        ),
    )
    assert set(found.failed) == {"x", "y"}
    assert found.rows.column("z").to_pylist() == [record["t"] for record in records]


def test_only_records_that_the_filter_keeps_are_evaluated() -> None:
    derivation = derivation_of(COLUMNS, expressions={"x": "cast(t as bigint)"}, where="n = 1 and x is not null")
    assert set(derive(rows_of([{"n": 1, "t": "x"}]), derivation).failed) == {"where", "x"}
    records: list[Record] = [{"n": 1, "t": "5"}, {"n": 2, "t": "6"}, {"n": None, "t": "7"}, {"n": 1, "t": None}]
    found = derive(rows_of(records), derivation)
    assert found.kept is not None
    assert found.kept.tolist() == [True, False, False, False]
    assert found.rows.column("x").to_pylist() == [5, None, None, None]
    assert not found.failed


def test_a_filter_that_fails_keeps_its_record() -> None:
    found = derive(
        rows_of([{"t": "x"}, {"t": "1"}, {"t": "0"}]),
        derivation_of(COLUMNS, expressions={}, where="cast(t as bigint) = 1"),
    )
    assert found.kept is not None
    assert found.kept.tolist() == [True, True, False]
    assert {name: bad.tolist() for name, bad in found.failed.items()} == {"where": [True, False, False]}


@pytest.mark.parametrize("count", [0, 1])
def test_empty_batches_and_expressions_without_a_column(count: int) -> None:
    found = derive(
        rows_of([{"t": "x"}] * count),
        derivation_of(COLUMNS, expressions={"x": "1 + 1", "p": "s.inner.word"}, where="1 = 1"),
    )
    assert found.rows.column("x").to_pylist() == [2] * count
    assert found.rows.column("p").to_pylist() == [None] * count


def test_infinite_and_not_a_number_stay() -> None:
    [infinite] = values("cast('inf' as double)", [{}])
    [nan] = values("cast('nan' as double)", [{}])
    assert math.isinf(infinite)
    assert math.isnan(nan)


TYPES: Final = {
    "t = 'x'": "boolean", "cast(n as tinyint)": "byte", "cast(n as smallint)": "short", "cast(n as int)": "integer",
    "n": "long", "cast(n as float)": "float", "n / 2": "double", "n * 1.5": "decimal(21,1)", "t -> 'a'": "string",
    "cast(at as date)": "date", "epoch_ms(n)": "timestamp_ntz", "at": "timestamp",
    "cast(t as timestamptz)": "timestamp",
}  # fmt: skip


@pytest.mark.parametrize("text", TYPES)
def test_types_are_those_of_duckdb(text: str) -> None:
    derivation = derivation_of(COLUMNS, expressions={"x": text}, where=None)
    assert derivation.nodes["x"] == TYPES[text]
    record = {"n": 7, "t": "2026-01-05", "at": 0}
    if "->" not in text:
        assert derive(rows_of([record]), derivation).rows.column("x").type == arrow_type(TYPES[text])


WRONG: Final = {
    "lower(n)": r"log\.columns\.x: Binder Error: No function matches .* 'lower\(BIGINT\)'",
    "n + t": "No function matches",
    "at - at": "DuckDB's type INTERVAL, which no column of a log has; write cast",
    "n * 100000000000000000000": "HUGEINT",
    "null": "NULL",
    "regexp_extract(t, '(')": r"missing \)",
    "strptime(t, '%Q')": "%Q",
    "t -> '$['": "JSON path error",
    "s.inner.nothing": "has no field 'inner.nothing'",
    "tt": "the log has no column 'tt'; it has n bigint, .*did you mean 't'",
    "T": "the log has no column 'T'",
    "cast(raw as varchar)": r"write decode\(raw\)",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_expression_that_does_not_fit_the_log_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=WRONG[text]):
        derivation_of(COLUMNS, expressions={"x": text}, where=None)


def test_a_filter_is_a_condition() -> None:
    with pytest.raises(SpecError, match=r"log\.where: expected a condition \(BOOLEAN\).* found long"):
        derivation_of(COLUMNS, expressions={}, where="n")


# --- the other records of a batch -------------------------------------------------------------------------------------

FORMS: Final = (
    "coalesce(n, m) * n", "coalesce(n, m) * cast(t as bigint)", "coalesce(n, m) > cast(t as bigint)",
    "coalesce(n, null) between cast(t as bigint) and 5", "try_cast(t as bigint) + cast(t as bigint)",
    "(case when m > 1 then n end) + cast(t as bigint)", "(case m when 1 then 2 end) * cast(t as bigint)",
    "nullif(m, 1) + cast(t as bigint)", "least(n, n) + cast(t as bigint)",
    "case when m is null then coalesce(n, m) * cast(t as bigint) else 0 end", "coalesce(n, n) // cast(t as bigint)",
    "left(coalesce(try_cast(n as varchar), null), cast(t as bigint))",
    "make_date(coalesce(n, n), cast(t as bigint), 1)",
    "coalesce(m, coalesce(n, m) + cast(t as bigint))", "m > 0 and coalesce(n, null) > cast(t as bigint)",
)  # fmt: skip


@pytest.mark.parametrize("text", FORMS)
def test_the_value_of_a_record_does_not_depend_on_the_other_records(text: str) -> None:
    """Law L1. Defect: a record alone in a vector of DuckDB was valid, and beside another one it was invalid."""
    for seed in seeds(4):
        rng = Random(seed)
        records: list[Record] = [
            {"n": rng.choice([None, 1, 3]), "m": rng.choice([None, 1, 2]), "t": rng.choice([None, "bad", "7"])}
            for _ in range(rng.choice([2, 3, 9]))
        ]
        alone = [values(text, [record])[0] for record in records]
        assert values(text, records) == alone, f"seed {seed}"
        for count in (1, 2_048, 2_049, 4_097):
            whole = [*[{"n": 1, "m": 1, "t": "5"}] * (count - 1), records[0]]
            assert values(text, whole)[-1] == alone[0], f"seed {seed}, {count} records"


# --- times that DuckDB does not have ----------------------------------------------------------------------------------

NO_TIME_US: Final = -(1 << 63)
"""Flink's sentinel for "no timestamp"."""


@pytest.mark.parametrize("us", [NO_TIME_US, -9_223_372_022_400_000_001])
def test_a_number_before_the_first_time_fails_alone(us: int) -> None:
    """Defect: a cast of such a time to a text ended the database, and every later expression of the process."""
    records: list[Record] = [{"n": us}, {"n": None}, {"n": 0}, {"n": -9_223_372_022_400_000_000}]
    found = values("left(cast(make_timestamp(n) as varchar), 13)", records)
    assert found == [FAILED, None, "1970-01-01 00", "290309-12-22 "]
    assert values("make_timestamp(n + 0)", records[:3])[0] is FAILED
    assert values("upper(t)", [{"t": "a"}]) == ["A"]


LOCAL: Final = (
    "cast(local as varchar)", "try_cast(local as varchar)", "concat(local, 'a')", "local || 'a'",
    "coalesce(cast(local as varchar), t)", "cast(date_trunc('day', local) as varchar)", "cast(s.at as varchar)",
)  # fmt: skip


@pytest.mark.parametrize("text", LOCAL)
def test_a_local_time_before_the_first_one_fails_alone(text: str) -> None:
    """Defect: it ended the run."""
    times = pa.array([NO_TIME_US, None, NO_TIME_US + 2, 0, NO_TIME_US + 1]).cast(pa.timestamp("us"))
    texts = pa.array(["x", None, "x", "x", "x"])
    rows = pa.record_batch({"local": times, "t": texts, "s": pa.StructArray.from_arrays([times], ["at"])})
    columns = {"local": "timestamp_ntz", "t": "string", "s": "struct<at:timestamp_ntz>"}
    derived = derive(rows, derivation_of(columns, expressions={"x": text}, where=None))
    first, null, second, epoch, infinite = derived.rows.column("x").to_pylist()
    assert derived.failed["x"].tolist() == [True, False, True, False, False]
    assert (first, second) == (None, None)
    assert null == ("a" if text.startswith("concat") else None)
    assert epoch.startswith("1970-01-01 00:00:00")
    assert infinite.startswith("-infinity")


def test_a_filter_of_a_local_time_before_the_first_one_fails_alone() -> None:
    rows = pa.record_batch({"local": pa.array([NO_TIME_US, 0]).cast(pa.timestamp("us"))})
    where = "cast(y as varchar) = '1970-01-01 00:00:00'"
    derived = derive(rows, derivation_of({"local": "timestamp_ntz"}, expressions={"y": "local"}, where=where))
    assert derived.failed["where"].tolist() == [True, False]


def test_a_defect_of_duckdb_ends_the_expression_and_not_those_after_it() -> None:
    times = pa.array([NO_TIME_US]).cast(pa.timestamp("us"))
    rows = pa.record_batch({"s": pa.StructArray.from_arrays([times], ["at"])})
    kind = {"s": "struct<at:timestamp_ntz>"}
    hostile = derivation_of(kind, expressions={"x": "cast(s as varchar)"}, where=None)
    for _ in range(2):
        with pytest.raises(
            SpecError, match=r"^log\.columns\.x: a defect of DuckDB .* ended the expression .* with case$"
        ):
            derive(rows, hostile)
    assert values("upper(t)", [{"t": "a"}]) == ["A"]


def test_the_normal_form_of_an_expression_does_not_have_the_check_of_times() -> None:
    assert normal_text("make_timestamp(n)") == 'make_timestamp("n")'
