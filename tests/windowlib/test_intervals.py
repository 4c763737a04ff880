"""Compares each function of windowlib.intervals with the same operation on sets of instants."""

from hypothesis import given
from hypothesis import strategies as st

from windowlib.intervals import Interval, align, merge, missing, split, subtract

interval = st.tuples(st.integers(-30, 30), st.integers(1, 12)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
intervals = st.lists(interval, max_size=8)


def instants(some: list[Interval]) -> set[int]:
    return {instant for start, end in some for instant in range(start, end)}


def is_tidy(some: list[Interval]) -> bool:
    """Tell whether the intervals are sorted, not empty, and neither overlap nor touch."""
    bounds = [bound for one in some for bound in one]
    return bounds == sorted(set(bounds))


@given(intervals)
def test_merging_keeps_every_instant(some: list[Interval]) -> None:
    assert instants(merge(some)) == instants(some)
    assert is_tidy(merge(some))


@given(intervals, intervals)
def test_subtracting_removes_the_instants_of_the_holes(some: list[Interval], holes: list[Interval]) -> None:
    left = subtract(some, holes)
    assert instants(left) == instants(some) - instants(holes)
    assert is_tidy(left)


@given(interval, intervals)
def test_missing_returns_the_instants_that_are_not_done(wanted: Interval, done: list[Interval]) -> None:
    assert instants(missing(wanted, done)) == instants([wanted]) - instants(done)


@given(interval, st.integers(1, 9), st.integers(-9, 9))
def test_splitting_cuts_at_the_lines_of_the_grid(whole: Interval, size_ms: int, offset_ms: int) -> None:
    parts = list(split(whole, size_ms, offset_ms))
    assert [instant for part in parts for instant in range(*part)] == list(range(*whole))
    assert all((start - offset_ms) % size_ms == 0 for start, _ in parts[1:])
    assert all(align(end - 1, size_ms, offset_ms) <= start < end for start, end in parts)
