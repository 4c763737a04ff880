"""Proposed suites: they pass on their history, each check can fail, equal histories give equal files."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expectations.arrow_slices import ArrowSlices
from expectations.loader import check_suite_file
from expectations.slices import check_slices
from expectations.suites import RUN, Check, Suite, SuiteFile
from jobs.new_file import write_new
from jobs.planning.suites import checked_columns
from jobs.review.suites.probes import MAX_VALUES
from jobs.review.suites.proposing import Proposal, propose
from jobs.review.suites.ranges import Kind, Past, Rule, limits, quantile
from jobs.review.suites.trying import Present, try_suite
from jobs.runs import Verdict
from tests.support.fuzzing import chances, seeds
from tests.support.past_runs import OUTPUTS, START, MemoryTables, random_past, run_row, sales
from windowlib.errors import RequestError

NO_SUITE = Present(suites=None, fingerprint="none", fail_on="critical")


def random_case(seed: int) -> tuple[MemoryTables, Rule]:
    chance = random.Random(seed)
    past = random_past(
        chance, chance.randrange(1, 20), rows_max=chance.choice([2, 8, 30]), rows_at_once=chance.choice([1, 20, 10**6])
    )
    low, high = sorted((chance.choice([0.0, 0.05, 0.25]), chance.choice([0.5, 0.95, 1.0])))
    return past, Rule(low=low, high=high, margin=chance.choice([0, 0.5, 3]))


def loaded(proposal: Proposal, directory: Path) -> SuiteFile:
    path = directory / "proposed.json"
    path.write_text(proposal.text, encoding="utf-8")
    return check_suite_file(path, columns=checked_columns(sales()))


@pytest.mark.slow
def test_a_proposal_passes_on_its_history_and_every_check_can_fail(tmp_path: Path) -> None:
    proposed: set[str] = set()
    for seed in seeds(25):
        past, rule = random_case(seed)
        proposal = propose(sales(), past, rule=rule)
        suites = loaded(proposal, tmp_path)
        trial = try_suite(suites, NO_SUITE, past, fail_on="info")
        assert [one for one in trial.slices if one.verdict is not Verdict.PASS] == []
        assert {one.failed + one.errors for one in trial.checks} == {0}
        assert proposal.checks == sum(len(suite.checks) for suite in suites) == len(trial.checks)
        for suite in suites:
            for check in suite.checks:
                proposed.add(check.type)
                assert not passes_on_an_outlier(suite.table, check), (check, "cannot fail")
    assert len(proposed) >= 10, "the histories reach every kind of probe"


def passes_on_an_outlier(table: str, check: Check) -> bool:
    alone = Suite(name="one", table=table, checks=(Check(index=0, type=check.type, kwargs=check.kwargs),))
    ((outcome,),) = check_slices(alone, outlier(table, check))
    assert outcome.exception is None
    return outcome.success


def outlier(table: str, check: Check) -> ArrowSlices:
    """Return a slice that is far outside of what a check demands."""
    kwargs = check.kwargs
    if table == RUN:
        return run_row({kwargs["column"]: far(kwargs)} | ({"assigned": 5} if "null" in check.type else {}))
    start = START
    row: dict[str, Any] = {
        "key": "k0", "shop": 0, "window_start": start, "window_end": start, "pane_index": 0, "kind": "result",
        "record_count": 1, "total": 1, "mean_price": 1.0, "slice_id": "x",
    }  # fmt: skip
    count = 1
    match check.type:
        case "expect_table_row_count_to_be_between":
            count = 0 if kwargs.get("min_value") else kwargs["max_value"] + 1
        case "expect_column_values_to_not_be_null":
            row[kwargs["column"]] = None
        case "expect_column_values_to_be_in_set" | "expect_column_distinct_values_to_contain_set":
            row[kwargs["column"]] = 10**9 if kwargs["column"] == "shop" else "another"
        case "expect_compound_columns_to_be_unique":
            count = 2
        case "expect_column_pair_values_a_to_be_greater_than_b":
            pass
        case _:
            row |= {kwargs["column"]: far(kwargs)}
    schema = OUTPUTS if table == "window_outputs" else pa.schema([("late_by_ms", pa.int64())])
    rows = pa.Table.from_pylist([{name: row.get(name) for name in schema.names}] * count, schema)
    return ArrowSlices(rows, np.zeros(count, dtype=np.int64), 1)


def far(kwargs: Mapping[str, Any]) -> float | None:
    """Return a number far outside of a range; None for a check of nulls."""
    most, least = kwargs.get("max_value"), kwargs.get("min_value")
    if most is not None:
        return float(most) + 1_000 + abs(float(most))
    return None if least is None else float(least) - 1_000 - abs(float(least))


@pytest.mark.slow
def test_equal_histories_give_equal_files_however_they_are_read() -> None:
    for seed in seeds(6):
        chance = random.Random(seed)
        slices, rows_max = chance.randrange(1, 12), 9
        texts = set()
        for rows_at_once in (1, 7, 10**6):
            past = random_past(random.Random(seed), slices, rows_max=rows_max, rows_at_once=rows_at_once)
            texts.add(propose(sales(), past).text)
        assert len(texts) == 1
        (text,) = texts
        assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def test_ranges_contain_their_history_and_round_outwards() -> None:
    for chance in chances(300):
        is_whole = chance.random() < 0.5
        values = tuple(
            chance.randrange(-1_000, 10**6) if is_whole else chance.uniform(-1, 1) * 10 ** chance.randrange(-9, 9)
            for _ in range(chance.choice([1, 2, 30]))
        )
        past = Past(values=values, slice_ids=tuple(map(str, range(len(values)))))
        rule = Rule(margin=chance.choice([0, 0.5, 2]))
        found = limits(past, rule, Kind(is_whole=is_whole))
        assert found["min_value"] <= min(values) <= max(values) <= found["max_value"]
        width = max(values) - min(values)
        slack = width * (2 * rule.margin + 1) * 0.21 + (2 if is_whole else 0)
        assert found["max_value"] - found["min_value"] <= width * (1 + 2 * rule.margin) + slack
        assert not is_whole or all(isinstance(value, int) for value in found.values())
        assert limits(past, rule, Kind(least=found["min_value"], most=found["max_value"])) == {}


def test_quantiles_are_values_of_the_history() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0, 0.25, 0.26, 0.5, 1)] == [1, 1, 2, 2, 4]


def test_the_history_that_justifies_a_check_is_in_its_meta() -> None:
    past, rule = random_past(random.Random(5), 16, rows_max=8, rows_at_once=10), Rule()
    proposal = propose(sales(), past, rule=rule, runs_needed=16)
    assert proposal.has_enough
    suite = proposal.document["run"]
    assert suite["meta"]["runs"] == 16
    assert "too_little_history" not in suite["meta"]
    (read,) = [one for one in suite["expectations"] if one["kwargs"]["column"] == "records_read"]
    counts = {run.result.slice.slice_id: run.result.counts.read for run in past.history.runs}
    history = read["meta"]["history"]
    assert (history["runs"], history["min"], history["max"]) == (16, min(counts.values()), max(counts.values()))
    assert counts[history["min_slice"]] == history["min"]
    assert read["severity"] == "warning"
    few = propose(sales(), past, rule=rule, runs_needed=17)
    assert not few.has_enough
    assert "too_little_history" in few.document["run"]["meta"]
    assert {one["severity"] for one in few.document["window_outputs"]["expectations"]} == {"warning", "critical"}


def test_only_few_values_are_a_set() -> None:
    assert MAX_VALUES == 12
    for seed in seeds(10):
        past = random_past(random.Random(seed), 12, rows_max=40, rows_at_once=100)
        keys = {one for one in past.outputs["key"].to_pylist() if one is not None}
        checks = propose(sales(), past).document.get("window_outputs", {"expectations": []})["expectations"]
        sets = [one for one in checks if one["type"].endswith("to_be_in_set") and one["kwargs"]["column"] == "key"]
        assert [one["kwargs"]["value_set"] for one in sets] == ([sorted(keys)] if 0 < len(keys) <= MAX_VALUES else [])


def test_no_history_is_refused_and_no_file_is_overwritten(tmp_path: Path) -> None:
    nothing = random_past(random.Random(1), 0, rows_max=3, rows_at_once=5)
    with pytest.raises(RequestError, match="has no run to learn from"):
        propose(sales(), nothing)
    history = replace(nothing.history, left_out={"a person has waived a failed check": ("2024-01-01",)})
    with pytest.raises(RequestError, match=r"waived a failed check\). Publish other slices first"):
        propose(sales(), replace(nothing, history=history))
    path = tmp_path / "suite.json"
    write_new(path, "one\n")
    with pytest.raises(RequestError, match="is not overwritten"):
        write_new(path, "two\n")
    assert path.read_text() == "one\n"
    with pytest.raises(RequestError, match="cannot be written"):
        write_new(tmp_path / "absent" / "suite.json", "three")
    assert [one.name for one in tmp_path.iterdir()] == ["suite.json"]


def with_key(past: MemoryTables, values: pa.Array) -> MemoryTables:
    """Return a past whose rows have other keys, and decimal totals."""
    totals = pa.array(range(len(values)), pa.int64()).cast(pa.decimal128(38, 2))
    columns = {"key": values, "total": totals, "kind": pa.array(["result"] * len(values))}
    return replace(past, outputs=pa.table(dict(zip(OUTPUTS.names, past.outputs.columns, strict=True)) | columns))


def test_dates_and_decimals_are_proposed_and_other_types_named() -> None:
    past = random_past(random.Random(5), 16, rows_max=8, rows_at_once=10)
    numbers = pa.array(range(past.outputs.num_rows), pa.int32())
    dates = propose(sales(), with_key(past, numbers.cast(pa.date32())))
    proposed = {(one["type"], one["kwargs"].get("column")) for one in dates.document["window_outputs"]["expectations"]}
    unique = "expect_compound_columns_to_be_unique"
    assert {(unique, None), ("expect_column_mean_to_be_between", "total")} <= proposed
    assert dates.not_proposed == ()
    others = propose(sales(), with_key(past, numbers.cast(pa.string()).cast(pa.binary())))
    assert others.not_proposed == (
        f"window_outputs: {unique} of key, shop, window_start, window_end, pane_index, kind",
    )
    assert others.document["run"]["meta"]["not_proposed"] == list(others.not_proposed)
