"""Laws of compiled checks, without Great Expectations: cuts into batches, other slices, hashes, regular expressions."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from expectations import slices
from expectations.arrow_slices import ArrowSlices
from expectations.catalogue import ADMITTED
from expectations.compiled import row_checks
from expectations.compiled.columns import Column, Kind, Rows, kind_of
from expectations.compiled.compiler import compile_check
from expectations.compiled.failing import failing_rows
from expectations.compiled.regexes import regex_of
from expectations.loader import load_suite_file
from expectations.suites import Check, Suite
from tests.support.fuzzing import chances, seeds
from tests.support.random_checks import REGEXES, left_to_great_expectations, random_suite, random_table
from windowlib.columnar.hashing import row_hashes

if TYPE_CHECKING:
    from expectations.compiled.conditions import Mask

CHECKS = 40
NEVER_COMPILED = {"expect_multicolumn_sum_to_equal"}


class CutTable:
    """A table that gives its rows in small batches, of some slices only."""

    def __init__(self, table: ArrowSlices, rows: int, only: Sequence[int] | None = None) -> None:
        self._table, self._rows = table, rows
        self._only = range(table.slice_count) if only is None else only
        self.slice_count, self.schema = len(self._only), table.schema

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        place = {number: index for index, number in enumerate(self._only)}
        for numbers, batch in self._table.batches(columns):
            kept = np.array([place.get(number, -1) for number in numbers.tolist()], dtype=np.int64)
            chosen, own = batch.filter(pa.array(kept >= 0)), kept[kept >= 0]
            for start in range(0, len(own), self._rows):
                yield own[start : start + self._rows], chosen.slice(start, self._rows)

    def frame(self, number: int, columns: Sequence[str], *, exact: bool = False) -> Any:  # noqa: ANN401 -- not called
        raise AssertionError((number, columns, exact))


@pytest.fixture(autouse=True)
def no_great_expectations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_ask", lambda rest, *_: [left_to_great_expectations(check) for check in rest.checks])


@pytest.mark.slow
def test_outcomes_depend_neither_on_the_cuts_into_batches_nor_on_other_slices() -> None:
    for chance in chances(25):
        table = random_table(chance, slice_count=4, rows_max=60)
        suite = random_suite(chance, CHECKS)
        whole = slices.check_slices(suite, table)
        assert slices.check_slices(suite, CutTable(table, chance.choice([1, 2, 7]))) == whole
        only = chance.sample(range(4), 2)
        assert slices.check_slices(suite, CutTable(table, 1000, only)) == [whole[number] for number in only]


@pytest.mark.slow
def test_equal_hashes_of_different_rows_change_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique")
    for seed in seeds(25):
        chance = random.Random(seed)
        table = random_table(chance, slice_count=3, rows_max=40)
        suite = random_suite(chance, CHECKS, kinds=kinds)
        expected = slices.check_slices(suite, table)
        bits = chance.choice([0, 1, 7])
        with monkeypatch.context() as patch:
            patch.setattr(row_checks, "row_hashes", lambda rows, seed, bits=bits: row_hashes(rows, seed) & bits)
            assert slices.check_slices(suite, CutTable(table, chance.choice([3, 1000]))) == expected


ATOMS = ["a", "b", "é", ".", "[ab]", "[^a]", "[0-9a-c]", r"\d", r"\w", r"\W", "A", "-", r"\.", "\n"]


ONLY_PYTHON = [r"\bfoo", r"(a)\1", r"\s", "a(?=b)", "(?m)^a", r"a\Z", r"(?m)a$", r"\S\b", r"\u00e9"]


def random_regex(chance: random.Random, depth: int = 3) -> str:
    parts = []
    for _ in range(chance.randrange(1, 4)):
        atom = f"({random_regex(chance, depth - 1)})" if depth and chance.random() < 0.3 else chance.choice(ATOMS)
        parts.append(atom + chance.choice(["", "", "*", "+", "?", "{2}", "{1,3}", "+?"]))
    text = chance.choice(["", "", "^"]) + "".join(parts) + chance.choice(["", "", "$"])
    return f"{text}|{random_regex(chance, depth - 1)}" if depth and chance.random() < 0.2 else text


def test_a_regular_expression_is_found_in_the_texts_in_which_python_finds_it() -> None:
    for chance in chances(300):
        pattern = chance.choice([*REGEXES, *ONLY_PYTHON, *(random_regex(chance) for _ in range(9))])
        regex = regex_of(pattern)
        assert regex is not None, pattern
        letters = chance.choice(["abA09.-_ ", "abA09.-\n_ ", "abéA09.-\n_ \x0b"])
        texts = ["".join(chance.choice(letters) for _ in range(chance.randrange(6))) for _ in range(20)]
        found = regex.matches(pa.array([*texts, None])).tolist()
        assert found == [*(bool(re.search(pattern, text)) for text in texts), False], (pattern, texts)


def test_a_text_is_judged_without_the_other_texts() -> None:
    """Defect: a line break in another text decided whether `(?i)^i$` is found in a dotted I."""
    regex = regex_of("(?i)^i$")
    assert regex is not None
    alone = regex.matches(pa.array(["\u0130"])).tolist()
    assert regex.matches(pa.array(["\u0130", "i\n"])).tolist() == [*alone, True]


@pytest.mark.parametrize("pattern", ["a{1001}", "(", "\ud800", r"\B", "[[:alpha:]]", "a++"])
def test_a_regular_expression_that_a_suite_may_not_have_is_not_compiled(pattern: str) -> None:
    assert regex_of(pattern) is None


@pytest.mark.parametrize("sample_max", [1, 2, 20])
def test_a_sample_has_the_first_unexpected_values_of_each_slice(sample_max: int) -> None:
    for chance in chances(25):
        shown = row_checks.one_value("place")
        expected: Mask = lambda rows: ~rows.column("is_wrong").values  # noqa: E731
        demand = row_checks.Demand(where=None, considered=None, expected=expected, shown=shown, sample_max=sample_max)
        measure, samples, total = row_checks.RowCheck(3, demand), dict[int, list[int]](), 0
        for _ in range(3):
            numbers = np.array([chance.randrange(3) for _ in range(chance.randrange(9))], dtype=np.int64)
            is_wrong = [chance.random() < 0.5 for _ in numbers]
            places = range(total, total + len(numbers))
            for number, place, wrong in zip(numbers.tolist(), places, is_wrong, strict=True):
                samples.setdefault(number, []).extend([place] if wrong else [])
            columns = {"place": pa.array(places, pa.int64()), "is_wrong": pa.array(is_wrong, pa.bool_())}
            measure.feed(Rows(numbers, pa.record_batch(columns)))
            total += len(numbers)
        for number in range(3):
            answer = measure.answer(number)
            assert answer is not None
            assert answer.details["partial_unexpected_list"] == samples.get(number, [])[:sample_max]
            assert answer.details["unexpected_count"] == len(samples.get(number, []))


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.float32(), Kind.OTHER),
        (pa.uint8(), Kind.OTHER),
        (pa.timestamp("ns", tz="UTC"), Kind.OTHER),
        (pa.timestamp("us", tz="Asia/Kathmandu"), Kind.OTHER),
        (pa.dictionary(pa.int8(), pa.string()), Kind.OTHER),
        (pa.null(), Kind.OTHER),
        (pa.list_(pa.int8()), Kind.OPAQUE),
        (pa.struct([("a", pa.int8())]), Kind.OPAQUE),
        (pa.binary(), Kind.OPAQUE),
        (pa.int8(), Kind.WHOLE),
        (pa.large_string(), Kind.TEXT),
    ],
)
def test_types_that_pandas_treats_in_another_way_are_not_compiled(arrow: pa.DataType, kind: Kind) -> None:
    assert kind_of(arrow) is kind


def test_nan_is_null() -> None:
    column = Column(pa.array([1.0, float("nan"), None]))
    assert (column.null.tolist(), column.values.tolist()) == ([False, True, True], [1.0, 0.0, 0.0])


def test_a_check_of_a_column_that_does_not_exist_is_left_to_great_expectations() -> None:
    table = random_table(random.Random(1), slice_count=2, rows_max=5)
    kwargs = {"column": "absent"}
    suite = Suite(
        name="s",
        table="window_outputs",
        checks=(Check(index=0, type="expect_column_values_to_not_be_null", kwargs=kwargs),),
    )
    assert all(outcome.exception for (outcome,) in slices.check_slices(suite, table))


def test_most_random_checks_are_compiled_and_each_expectation_is() -> None:
    chance, table = random.Random(5), random_table(random.Random(5), slice_count=1, rows_max=5)
    total, compiled = Counter[str](), Counter[str]()
    for check in random_suite(chance, 4_000).checks:
        total[check.type] += 1
        compiled[check.type] += compile_check(check, table.schema, 1) is not None
    assert {kind for kind in ADMITTED if not compiled[kind]} == NEVER_COMPILED
    assert compiled.total() > total.total() / 2


@pytest.mark.parametrize("seed", range(3))
def test_the_loader_accepts_the_random_suites_of_these_tests(seed: int, tmp_path: Path) -> None:
    raw = [{"type": check.type, "kwargs": check.kwargs} for check in random_suite(random.Random(seed), 300).checks]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"run": {"name": "random", "expectations": raw}}), encoding="utf-8")
    load_suite_file(path)


@pytest.mark.parametrize(
    ("texts", "positions"), [(["x y", "1", None, "-"], [0, 3]), (["é", "x y", "1"], [1]), (["a\n", "b c"], [1])]
)
def test_rows_are_shown_as_failed_that_fail_for_great_expectations(texts: list[str], positions: list[int]) -> None:
    """Defect: the page of a slice showed rows as failed that keep the check for Great Expectations."""
    check = Check(index=0, type="expect_column_values_to_match_regex", kwargs={"column": "text", "regex": r"^\w+$"})
    assert failing_rows(check, pa.table({"text": texts})) == positions
