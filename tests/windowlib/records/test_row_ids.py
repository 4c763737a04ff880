"""Tests of row ids, sums of ids, and column types, from which every digest is computed."""

import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.fuzzing import chances
from windowlib.errors import SpecError
from windowlib.records.column_types import parse_type, spell_type
from windowlib.records.row_ids import IdSum, row_id

IDS = st.integers(-(2**63), 2**63 - 1)
NAMES = ("key", "start", "total")
VALUES = st.one_of(st.none(), IDS, st.text())


def _sum(ids: list[int]) -> IdSum:
    found = IdSum()
    for identity in ids:
        found.add(identity)
    return found


@given(st.lists(IDS), st.randoms(use_true_random=False), st.integers(0, 50))
def test_a_sum_of_ids_does_not_depend_on_order_or_grouping(ids: list[int], rng: random.Random, cut: int) -> None:
    shuffled = list(ids)
    rng.shuffle(shuffled)
    parts = _sum(shuffled[:cut])
    parts.merge(_sum(shuffled[cut:]))
    assert parts.as_row() == _sum(ids).as_row()
    assert parts.digest() == _sum(ids).digest()
    assert all(-(2**63) <= part < 2**63 for part in parts.as_row())


@given(st.lists(IDS, min_size=1), st.data())
def test_a_row_lost_or_doubled_changes_the_sum(ids: list[int], data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(ids))
    fewer = list(ids)
    fewer.remove(one)
    assert _sum(fewer).as_row() != _sum(ids).as_row() != _sum([*ids, one]).as_row()


@given(st.tuples(VALUES, VALUES, VALUES))
def test_an_id_covers_the_table_and_the_names_but_no_nulls(values: tuple[int | str | None, ...]) -> None:
    content = dict(zip(NAMES, values, strict=True))
    identity = row_id("window_outputs", content)
    assert identity == row_id("window_outputs", {"added_later": None, **content})
    assert identity != row_id("late_records", content)
    if values[0] != values[1]:
        assert identity != row_id("window_outputs", {**content, NAMES[0]: values[1], NAMES[1]: values[0]})


def test_an_array_of_ids_has_the_sum_of_its_ids() -> None:
    for rng in chances(30):
        ids = [rng.randrange(-(2**63), 2**63) for _ in range(rng.randrange(5))]
        assert IdSum.of_array(np.array(ids, np.int64)) == IdSum.of(ids) == _sum(ids)
    assert IdSum(1, 5, 5) != IdSum(1, 5, 6)


@pytest.mark.parametrize(
    "text",
    [
        "bigint",
        "decimal(10,2)",
        "array<bigint>",
        "map<string,array<double>>",
        "struct<a:int,`b ``c`:struct<d:timestamp>>",
    ],
)
def test_a_type_that_is_parsed_and_spelled_is_unchanged(text: str) -> None:
    assert spell_type(parse_type(text)) == text


@pytest.mark.parametrize(
    "text", ["bigin", "array<", "array<int", "a b", "int>", "struct<a>", "decimal(x)", "", "map<int>"]
)
def test_a_text_that_is_not_a_type_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_type(text)
