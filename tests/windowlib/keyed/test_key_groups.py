"""Tests of key hashes, key groups, and the order of keys."""

from collections.abc import Hashable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from windowlib.errors import SpecError
from windowlib.keyed.key_groups import default_max_parallelism, key_group, key_group_range, stable_hash, subtask_of
from windowlib.keyed.key_order import REMEMBERED_MAX, SCAN_MAX, KeyOrders, group_of_order, sortable

plain = {
    "int": st.integers(-(2**70), 2**70),
    "float": st.floats(allow_nan=False),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False),
    "str": st.text(),
    "bytes": st.binary(),
    "date": st.dates(),
    "datetime": st.datetimes(timezones=st.just(UTC)),
    "bool": st.booleans(),
}


@pytest.mark.parametrize("values", plain.values(), ids=plain)
@given(data=st.data())
def test_strings_of_keys_sort_as_the_keys(values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    left, right = data.draw(values), data.draw(values)
    assert (sortable(left) < sortable(right)) == (left < right)
    assert (sortable(left) == sortable(right)) == (left == right)
    other = data.draw(values)
    assert (sortable((left, right)) < sortable((right, other))) == ((left, right) < (right, other))


@given(st.lists(st.one_of(*plain.values()), min_size=2, max_size=6))
def test_keys_of_different_types_have_a_total_order(keys: list[Any]) -> None:
    ordered = sorted(keys, key=sortable)
    backwards = list(reversed(ordered))
    assert sorted(backwards, key=sortable) == ordered


@given(st.one_of(*plain.values()), st.integers(1, 200), st.integers(1, 200))
def test_the_subtask_of_a_keys_group_owns_the_group(key: Hashable, left: int, right: int) -> None:
    parallelism, limit = sorted((left, right))
    group = key_group((key, 1), limit)
    assert 0 <= group < limit
    assert group in key_group_range(subtask_of(group, parallelism, limit), parallelism, limit)
    covered = [one for subtask in range(parallelism) for one in key_group_range(subtask, parallelism, limit)]
    assert covered == list(range(limit))


def test_equal_keys_of_one_column_have_one_hash() -> None:
    assert stable_hash(0.0) == stable_hash(-0.0)
    assert stable_hash(Decimal("1.50")) == stable_hash(Decimal("1.5"))
    assert stable_hash(Decimal("-0.0")) == stable_hash(Decimal(0))
    assert stable_hash(datetime(2013, 2, 8, tzinfo=UTC)) == stable_hash(
        datetime(2013, 2, 8, 5, 45, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    )
    assert sortable(0.0) == sortable(-0.0)


def test_hashes_never_change() -> None:
    """The hash is part of the checkpoint format."""
    keys: list[Any] = [
        True, None, (), ("a", 1), ("JFK",), 2.5, b"ab", date(2013, 2, 8), datetime(2013, 2, 8, tzinfo=UTC),
        Decimal("12.30"), "😀", -1, 2**40,
    ]  # fmt: skip
    assert [stable_hash(key) for key in keys] == [
        1231, 0, 0, 3969, 73359, 1074003968, 4066, 15744, 1033164075, 1509286, 1772899, -1, 256,
    ]  # fmt: skip
    assert group_of_order(KeyOrders()[("a",)]) == key_group("a") == 81


def test_invalid_keys_and_parallelisms_are_refused() -> None:
    with pytest.raises(SpecError, match="of type list"):
        stable_hash([1])  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="1 <= parallelism"):
        key_group_range(0, 129)
    with pytest.raises(SpecError, match="below the parallelism 4, got 4"):
        key_group_range(4, 4)
    assert [default_max_parallelism(n) for n in (1, 85, 86, 200, 100_000)] == [128, 128, 256, 512, 32768]


@given(
    st.lists(st.lists(st.integers(-3, 12), max_size=8, unique=True), max_size=6),
    st.integers(1, 5) | st.just(REMEMBERED_MAX),
    st.sampled_from([0, 1, SCAN_MAX]),
)
def test_the_items_of_a_map_are_sorted_by_key(maps: list[list[int]], remembered_max: int, scan_max: int) -> None:
    orders = KeyOrders(remembered_max=remembered_max, scan_max=scan_max)
    for numbers in maps:
        found: dict[Hashable, list[int]] = {(number,): [number] for number in numbers}
        keys = sorted(found, key=KeyOrders().__getitem__)
        assert orders.in_order(found) == (keys, [found[key] for key in keys])


@given(st.lists(st.text(), max_size=12), st.integers(1, 5), st.sampled_from([1, 7, 128, 32_768]))
def test_the_size_of_the_cache_does_not_change_the_order(keys: list[str], remembered_max: int, groups: int) -> None:
    small, large = KeyOrders(groups, remembered_max=remembered_max), KeyOrders(groups)
    for key in [*keys, *keys]:
        assert small[(key,)] == large[(key,)]
        assert group_of_order(small[(key,)]) == key_group((key,), groups)
