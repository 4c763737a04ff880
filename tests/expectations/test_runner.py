"""Runs checks with Great Expectations: the catalogue, every admitted type, failing checks, many slices.

Only this test module imports Great Expectations (6 s), so only this one is marked `gx`.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from expectations import results, runner
from expectations.arrow_slices import ArrowSlices
from expectations.catalogue import ADMITTED, AGGREGATES, OF_NULLS, REFUSED
from expectations.loader import EXPECTATIONS_DIR, load_suite_file
from expectations.outcomes import Outcome
from expectations.slices import SlicedTable, check_slices
from expectations.suites import Check, Suite
from jobs.replay import checks
from jobs.replay.checked_tables import run_rows
from jobs.runs import CheckResult, Counts, Slice, Verdict
from windowlib.errors import InvariantBroken, SpecError

pytestmark = pytest.mark.gx


@pytest.fixture(scope="module", autouse=True)
def great_expectations() -> None:
    with runner._quiet():
        import great_expectations  # noqa: F401 -- its warnings are not errors here


def suite_of(*parts: tuple[str, Mapping[str, Any]], table: str = "window_outputs") -> Suite:
    """Return a suite of (type, kwargs) pairs without the loader, so that tests can use what the loader refuses."""
    made = [Check(index=index, type=kind, kwargs=kwargs) for index, (kind, kwargs) in enumerate(parts)]
    return Suite(name="test", table=table, checks=tuple(made))


# --- the catalogue describes the installed Great Expectations -------------------------------------------------------


def test_every_expectation_is_admitted_or_refused_and_none_is_both() -> None:
    from great_expectations.expectations.registry import list_registered_expectation_implementations as registered

    assert set(ADMITTED) | set(REFUSED) == set(registered())
    assert not set(ADMITTED) & set(REFUSED)


@pytest.mark.parametrize("kind", ADMITTED)
def test_admitted_arguments_are_those_of_great_expectations(kind: str) -> None:
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.registry import get_expectation_impl

    fields = get_expectation_impl(kind).__fields__
    own = set(fields) - set(Expectation.__fields__) - {"windows", "batch_id", "condition_parser", "library_metadata"}
    required = {name for name, field in fields.items() if field.required}
    assert ADMITTED[kind].arguments == own
    assert required <= set(ADMITTED[kind].required)


def test_an_expectation_that_great_expectations_drops_is_an_error() -> None:
    good = ("expect_column_values_to_not_be_null", {"column": "k"})
    with pytest.raises(SpecError, match=r"kept 1 of 2.*1 \(expect_column_values_to_not_be_nul\)"):
        runner.prepare(suite_of(good, ("expect_column_values_to_not_be_nul", {"column": "k"})))


@pytest.mark.parametrize("name", ["flights", "rotations", "carriers", "airports_daily"])
def test_great_expectations_accepts_the_suites_of_this_repository(name: str) -> None:
    for suite in load_suite_file(EXPECTATIONS_DIR / f"{name}.json"):
        runner.prepare(suite)


# --- every admitted type ------------------------------------------------------------------------------

NAN = float("nan")
START = pd.Timestamp("2013-02-08T05:00:00")
KEYS = ["EWR", "JFK", None, "EWR", "ключ '\"<&", "EWR"]
FRAMES: dict[str, pd.DataFrame] = {
    "nulls and NaN": pd.DataFrame(
        {
            "k": KEYS,
            "x": [1.0, NAN, 3.0, 1.0, -2.5, NAN],
            "y": [0.0, 1.0, 1.0, NAN, 2.0, NAN],
            "n": [1, 2, 3, 4, 2**53, -7],
        }
    ),
    "only nulls": pd.DataFrame({"k": [None, None], "x": [NAN, NAN], "y": [NAN, NAN], "n": [1, 1]}),
    "no rows": pd.DataFrame({"k": [], "x": [], "y": [], "n": []}),
}
WHERE = {"row_condition": {"type": "comparison", "column": {"name": "k"}, "operator": "==", "parameter": "EWR"}}
NOWHERE = {"row_condition": {"type": "comparison", "column": {"name": "k"}, "operator": "==", "parameter": "nobody"}}
EITHER = {
    "type": "or",
    "conditions": [
        {
            "type": "and",
            "conditions": [WHERE["row_condition"], {"type": "nullity", "column": {"name": "x"}, "is_null": False}],
        },
        {"type": "comparison", "column": {"name": "n"}, "operator": "IN", "parameter": [1, 2]},
    ],
}


def frame(name: str) -> pd.DataFrame:
    times = pd.date_range(START, periods=len(FRAMES[name]), freq="1h", tz="UTC").as_unit("us")
    return FRAMES[name].astype({"x": "float64", "y": "float64", "n": "int64"}).assign(at=times)


GIVEN: dict[str, Any] = {
    "column_A": "x", "column_B": "y", "column_list": ["x", "y"], "column_set": ["k", "x", "y", "n", "at"], "value": 3,
    "value_set": ["EWR", "JFK"], "regex": "^[A-Z]{3}$", "regex_list": ["^E", "^J"], "sum_total": 4,
}  # fmt: skip


def arguments_for(kind: str) -> dict[str, Any]:
    shape = ADMITTED[kind]
    kwargs = {name: GIVEN.get(name) for name in shape.required}
    if "column" in kwargs:
        kwargs["column"] = "k" if {"value_set", "regex", "regex_list"} & set(kwargs) or "length" in kind else "x"
    kwargs |= {"column_list": ["k", "x", "y", "n", "at"]} if "ordered_list" in kind else {}
    if shape.at_least_one:
        whole = any(word in kind for word in ("count", "length"))
        kwargs |= {"min_value": 0 if whole else 0.5, "max_value": 1 if "proportion" in kind else 3}
    return kwargs


BETWEEN = "expect_column_values_to_be_between"
MEAN = "expect_column_mean_to_be_between"
SUM = "expect_column_sum_to_be_between"
COMPOUND = "expect_compound_columns_to_be_unique"
EACH_TYPE = [(kind, arguments_for(kind)) for kind in ADMITTED]
ON_NOTHING = [(kind, arguments_for(kind) | NOWHERE) for kind in (BETWEEN, MEAN, SUM, COMPOUND)]
VARIATIONS: list[tuple[str, dict[str, Any]]] = [
    (kind, arguments_for(kind) | {"row_condition": condition})
    for kind in (
        BETWEEN,
        MEAN,
        COMPOUND,
        "expect_table_row_count_to_be_between",
        "expect_column_pair_values_to_be_equal",
    )
    for condition in (WHERE["row_condition"], EITHER)
] + [
    (BETWEEN, {"column": "at", "min_value": "2013-02-08T05:30:00"}),
    (BETWEEN, {"column": "at", "max_value": "2013-02-09T00:00:00", "strict_max": True}),
    (BETWEEN, {"column": "n", "max_value": 2**53 - 1}),
    (BETWEEN, {"column": "x", "max_value": 3, "strict_max": True, "mostly": 0.5}),
    (COMPOUND, {"column_list": ["k", "x"]}),
    ("expect_column_values_to_be_unique", {"column": "k"}),
    ("expect_column_values_to_be_in_set", {"column": "n", "value_set": [1, 2, 3]}),
    (SUM, {"column": "x", "min_value": 0}),
    *((COMPOUND, {"column_list": ["x", "y"], "ignore_row_if": word}) for word in ("any_value_is_missing", "never")),
]
CASES = {
    "nulls and NaN": [*EACH_TYPE, *ON_NOTHING, *VARIATIONS],
    "only nulls": [*EACH_TYPE, *ON_NOTHING],
    "no rows": EACH_TYPE,
}


def observed(outcome: Outcome, name: str) -> Any:  # noqa: ANN401 -- any observed value
    return json.loads(outcome.observed).get(name)


@pytest.mark.parametrize("name", FRAMES)
def test_every_admitted_type_runs_and_has_the_result_of_its_compiled_check(name: str) -> None:
    (outcomes,) = check_slices(suite_of(*CASES[name]), in_slices(frame(name)), confirm="all")
    assert not [f"{one.check} {one.arguments}: {one.exception}" for one in outcomes if one.exception]
    assert [one.check for one in outcomes] == [kind for kind, _ in CASES[name]]


# --- what a verdict means ---------------------------------------------------------------------------------------------


def outcome_of(frame: pd.DataFrame, kind: str, **kwargs: object) -> Outcome:
    (outcome,) = runner.validate("t", frame, suite_of((kind, kwargs)))
    return outcome


@pytest.mark.parametrize("kind", sorted(AGGREGATES))
def test_an_aggregate_passes_without_rows_and_fails_with_only_nulls(kind: str) -> None:
    nothing, nulls = (outcome_of(frame(name), kind, **arguments_for(kind)) for name in ("no rows", "only nulls"))
    assert (nothing.success, json.loads(nothing.observed)) == (True, {"note": results.NOTE_NO_ROWS})
    seen = {"value": 0} if kind == OF_NULLS else {"note": results.NOTE_NO_VALUE}
    assert (nulls.success, json.loads(nulls.observed)) == (False, seen)


def test_only_a_row_count_fails_without_rows() -> None:
    assert not outcome_of(frame("no rows"), "expect_table_row_count_to_be_between", min_value=1).success
    assert outcome_of(frame("no rows"), "expect_column_values_to_not_be_null", column="k").success


def test_a_check_that_raises_is_an_error_and_affects_no_other_check() -> None:
    suite = suite_of(
        ("expect_column_values_to_not_be_null", {"column": "absent"}),
        ("expect_column_values_to_not_be_null", {"column": "n"}),
        (MEAN, {"column": "k", "min_value": 1}),
        ("expect_table_row_count_to_be_between", {"min_value": 1}),
    )
    outcomes = runner.validate("t", frame("nulls and NaN"), suite)
    assert [(outcome.success, outcome.exception is None) for outcome in outcomes] == [
        (False, False), (True, True), (False, False), (True, True),
    ]  # fmt: skip
    assert "absent" in str(outcomes[0].exception)


def test_if_the_whole_validation_raises_each_check_is_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner._ask_together

    def breaks_on_many(batch: Any, name: str, asked: Sequence[Check]) -> Any:  # noqa: ANN401
        if len(asked) > 1 or asked[0].type == MEAN:
            raise TypeError("Object of type bool is not JSON serializable")
        return real(batch, name, asked)

    monkeypatch.setattr(runner, "_ask_together", breaks_on_many)
    suite = suite_of((MEAN, {"column": "x", "min_value": 0}), ("expect_column_values_to_not_be_null", {"column": "n"}))
    broken, fine = runner.validate("t", frame("nulls and NaN"), suite)
    assert (broken.exception, fine.success) == ("TypeError: Object of type bool is not JSON serializable", True)


def test_a_check_without_a_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner._ask_together
    monkeypatch.setattr(runner, "_ask_together", lambda batch, name, asked: real(batch, name, asked[:1]))
    suite = suite_of((MEAN, {"column": "x", "min_value": 0}), (SUM, {"column": "x", "min_value": 0}))
    with pytest.raises(InvariantBroken, match="only 1 of 2"):
        runner.validate("t", frame("nulls and NaN"), suite)


def test_only_the_row_of_the_table_run_keeps_its_value() -> None:
    kwargs = {"column": "n", "min_value": 0}
    one_row = pd.DataFrame({"n": [7]})
    (of_run,) = runner.validate("run", one_row, suite_of((BETWEEN, kwargs), table="run"))
    (of_table,) = runner.validate("late_records", one_row, suite_of((BETWEEN, kwargs), table="late_records"))
    assert json.loads(of_run.observed)["value"] == 7
    assert "value" not in json.loads(of_table.observed)


def test_unexpected_values_are_few_distinct_and_json() -> None:
    values = ["x" * 1000, *(f"<b>{number}</b>" for number in range(100))]
    outcome = outcome_of(
        pd.DataFrame({"k": values}), "expect_column_values_to_be_in_set", column="k", value_set=["EWR"]
    )
    assert (observed(outcome, "unexpected"), observed(outcome, "rows")) == (101, 101)
    assert len(observed(outcome, "sample")) == 20
    assert max(map(len, observed(outcome, "sample"))) <= 200


# --- the checks of a run ----------------------------------------------------------------------------------------------

COUNTS = Counts(read=665, assigned=140, late=5, unassigned=0, invalid=520, panes=900)


DAY = Slice(slice_id="2013-02-09", start_ms=1_360_368_000_000, end_ms=1_360_454_400_000)


def outputs(rows: int) -> pd.DataFrame:
    start = pd.date_range(START, periods=rows, freq="15min", tz="UTC").as_unit("us")
    return pd.DataFrame(
        {"origin": "EWR", "window_start": start, "window_end": start + pd.Timedelta("1h"), "pane_index": 0}
    ).assign(timing="ON_TIME", kind="result", record_count=3)


def late(rows: int) -> pd.DataFrame:
    whole = pd.DataFrame({"rank": range(rows)}, dtype="int64")
    return whole.assign(late_by_ms=1, event_time_ms=2, watermark_ms=3, reason="late")


def in_slices(frame: pd.DataFrame) -> ArrowSlices:
    return ArrowSlices(pa.Table.from_pandas(frame, preserve_index=False), np.zeros(len(frame), dtype=np.int64), 1)


def checked(counts: Counts, *, watermark_ms: int | None, rows: int) -> dict[str, SlicedTable]:
    return {
        "window_outputs": in_slices(outputs(rows)),
        "late_records": in_slices(late(rows)),
        "run": run_rows([DAY], [(counts, watermark_ms)]),
    }


def results_of(tables: Mapping[str, SlicedTable]) -> tuple[CheckResult, ...]:
    (results,) = checks.run_checks(
        load_suite_file(EXPECTATIONS_DIR / "flights.json"),
        ["2013-02-09"],
        tables,
        fail_on="critical",
        confirm="failures",
    )
    return results


def test_a_day_of_cancelled_flights_fails_with_a_clear_message() -> None:
    results = results_of(checked(COUNTS, watermark_ms=1_360_000_000_000, rows=10))
    (failed,) = [result for result in results if result.verdict is not Verdict.PASS]
    assert (failed.table, failed.column, failed.verdict) == ("run", "invalid_share", Verdict.FAIL)
    assert failed.message.startswith("invalid_share at most 25 %: found 78.2 %. Share of cancelled flights")
    assert str(failed.description).startswith("Share of cancelled flights")
    assert failed.error is None
    assert checks.verdict(results, "critical") is Verdict.FAIL


def test_a_check_that_raises_carries_its_exception_in_a_field() -> None:
    tables = checked(COUNTS, watermark_ms=1, rows=10)
    tables["window_outputs"] = in_slices(outputs(10).drop(columns="pane_index"))
    results = results_of(tables)
    broken = [result for result in results if result.column == "pane_index"]
    assert [result.verdict for result in broken] == [Verdict.ERROR]
    assert broken[0].error is not None
    assert "pane_index" in broken[0].error
    assert broken[0].message.endswith(f"the check itself failed, so its result is unknown: {broken[0].error}")


def test_an_empty_slice_warns_and_passes_everything_else() -> None:
    nothing = Counts(read=0, assigned=0, late=0, unassigned=0, invalid=0, panes=0)
    results = results_of(checked(nothing, watermark_ms=None, rows=0))
    assert [result.column for result in results if result.verdict is not Verdict.PASS] == ["records_read"]
    assert checks.verdict(results, "critical") is Verdict.WARN


@pytest.mark.slow
def test_many_slices_need_constant_time_and_memory_each() -> None:
    loaded = load_suite_file(EXPECTATIONS_DIR / "flights.json")
    tables = checked(COUNTS, watermark_ms=1, rows=100)

    def rounds(count: int) -> float:
        started = time.process_time()
        for _ in range(count):
            checks.run_checks(loaded, ["s"], tables, fail_on="critical", confirm="none")
        return time.process_time() - started

    rounds(5)
    before, first = resident_pages(), rounds(10)
    rounds(30)
    last, grown = rounds(10), resident_pages() - before
    assert last < 2 * first + 1.0, f"10 runs took {first:.2f} s, and {last:.2f} s after 40 more"
    assert grown < 10_000, f"{grown} pages of 4 KiB more after 50 runs"


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


def test_two_threads_take_turns() -> None:
    suite, results = suite_of(("expect_table_row_count_to_equal", {"value": 2})), dict[int, list[bool]]()

    def run(rows: int) -> None:
        results[rows] = [runner.validate("t", outputs(rows), suite)[0].success for _ in range(10)]

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {2: [True] * 10, 3: [False] * 10}
