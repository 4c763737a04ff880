"""All 924 interleavings of two operations with six steps each: the outcome is that of one after the other.

The checkers of all invariants are called after every commit. RACES are the pairs whose outcome depends on the order.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement

import pytest

from tests.simulation.operations import OPERATIONS, STEPS, Pair, interleavings, made_start

QUICK = ("publish restated", "publish daily")
RACES = frozenset(
    {
        ("publish restated", "publish daily"),
        ("publish restated", "publish adopting"),
        ("publish restated", "roll back"),
        ("publish restated", "cancel"),
        ("publish restated", "replace"),
        ("publish restated", "lease"),
        ("publish daily", "publish adopting"),
        ("publish daily", "waive"),
        ("publish daily", "roll back"),
        ("publish adopting", "roll back"),
        ("publish adopting", "replace"),
        ("waive", "waive"),
        ("roll back", "roll back"),
        ("cancel", "cancel"),
        ("cancel", "replace"),
        ("cancel", "lease"),
        ("replace", "replace"),
        ("replace", "lease"),
        ("stage", "clean"),
    }
)


@cache
def pair(first: str, second: str) -> Pair:
    return Pair(made_start(), (first, second))


def pairs() -> Iterator[object]:
    """Yield all pairs: one for `make test`, those with a race for `make slow`, the others for `make soak`."""
    for names in combinations_with_replacement(OPERATIONS, 2):
        marks = () if names == QUICK else pytest.mark.slow if names in RACES else pytest.mark.soak
        yield pytest.param(names, id=" and ".join(names), marks=marks)


@pytest.mark.parametrize("names", list(pairs()))
def test_every_interleaving_ends_as_one_operation_after_the_other(names: tuple[str, str]) -> None:
    played = pair(*names)
    orders = list(interleavings())
    assert len(orders) == 924
    serial = [played.play(orders[0]), played.play(orders[-1])]
    assert (serial[0] != serial[1]) == (names in RACES)
    for order in orders:
        assert played.play(order) in serial, order


@pytest.mark.slow
@pytest.mark.parametrize("names", [QUICK, ("stage", "clean")], ids=" and ".join)
def test_a_process_that_is_killed_after_any_step_has_done_all_or_nothing(names: tuple[str, str]) -> None:
    played = pair(*names)
    whole = [played.play(order)[:-1] for order in (next(interleavings()), list(interleavings())[-1])]
    without = played.play(next(interleavings(0)), kills_first=True)[:-1]
    outcomes = [
        (steps, played.play(order, kills_first=True)[:-1])
        for steps in range(STEPS)
        for order in interleavings(steps)
    ]  # fmt: skip
    assert len(outcomes) == 792
    assert all(outcome in (*whole, without) for _steps, outcome in outcomes)
    assert {outcome == without for steps, outcome in outcomes if steps < 3} == {True}


def test_the_processes_take_turns() -> None:
    """The check of the check: an order is played step by step."""
    played = pair(*QUICK)
    played.play((0, 1) * STEPS)
    steps = played.trace[sum(played.first_steps) :][: 2 * STEPS]
    assert [name.rpartition(" ")[0] for name, _step in steps[:4]] == ["publish restated", "publish daily"] * 2
    assert [step for _name, step in steps[:6]] == [
        "list commits", "list commits", "get head", "get head", "put commit", "put commit",
    ]  # fmt: skip
    assert ("fault", "lost race") in played.trace
