"""Kernels: rows, tallies and state are equal to those of the operator, for random specs, logs, cuts and chains."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.fuzzing import chances
from tests.windowlib.kernels import random_chains
from tests.windowlib.kernels.random_chains import (
    INPUTS,
    UNORDERED,
    Chunk,
    RandomLog,
    Slice,
    base_plan,
    play,
    random_aggregates,
)
from windowlib.bounds import MAX_TIME_MS
from windowlib.errors import SpecError
from windowlib.functions.window_functions import aggregate
from windowlib.kernels import grouping
from windowlib.kernels.coverage import why_not
from windowlib.triggers.flink import CountReached, EventTime
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import Assigner, Global, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec

if TYPE_CHECKING:
    from windowlib.columnar.executor import StateColumns

NUMBERS: Final = ("bigint", "int", "double", "float", "decimal(10,2)")
KINDS: Final[Sequence[tuple[str, str | None]]] = [
    ("count", None),
    ("count", "int"),
    *((kind, column) for kind in ("avg", "variance", "var_pop") for column in NUMBERS),
    *(("sum", column) for column in NUMBERS if column != "bigint"),  # the extremes of bigint have no sum
    *((kind, column) for kind in ("min", "max", "first", "last", "collect_list") for column in INPUTS),
    *((kind, column) for kind in ("first", "last", "collect_list") for column in UNORDERED),
]
WIDE: Final = "decimal(38,0)"
ANY: Final = (aggregate("count"),)


def tumbling(random: Random) -> WindowSpec:
    size_ms = random.choice([1, 2, 7, 20, 50])
    assigner = Tumbling(size_ms=size_ms, offset_ms=random.randint(-size_ms + 1, size_ms - 1))
    return at_end(random, assigner)


def sliding(random: Random) -> WindowSpec:
    size_ms, slide_ms = random.choice([1, 6, 20, 35, 300]), random.choice([1, 3, 7, 20, 30])
    assigner = Sliding(size_ms=size_ms, slide_ms=slide_ms, offset_ms=random.randint(-slide_ms + 1, slide_ms - 1))
    return at_end(random, assigner)


def at_end(random: Random, assigner: Assigner) -> WindowSpec:
    return WindowSpec(
        assigner=assigner,
        function=ANY,
        trigger=random.choice([None, EventTime(), Purging(EventTime())]),
        allowed_lateness_ms=random.choice([0, 0, 1, 15, 60, MAX_TIME_MS]),
        accumulation=random.choice(["accumulating", "discarding"]),
    )


def counting(random: Random) -> WindowSpec:
    return WindowSpec(assigner=Global(), function=ANY, trigger=Purging(CountReached(random.choice([1, 2, 3, 7]))))


def never(random: Random) -> WindowSpec:
    return WindowSpec(assigner=Global(), function=ANY, accumulation=random.choice(["accumulating", "discarding"]))


MAKERS: Final = {"tumbling": tumbling, "sliding": sliding, "counting": counting, "never": never}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_chain_of_chunks_gives_the_same_with_either_executor(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for random in chances(15, among=len(MAKERS)):
        monkeypatch.setattr(grouping, "PACKED_BITS", random.choice([grouping.PACKED_BITS, 7, 3]))
        plan = base_plan(random, MAKERS[kind](random), random_aggregates(random, KINDS))
        assert why_not(plan.spec, plan.layout) is None
        check_chain(random, RandomLog(random, plan, spread_ms=random.choice([0, 10, 40, 100])))


def test_sums_of_wide_decimals_fit_with_either_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total of a window may fit 38 digits if that of some of its records does not. So no partial holds it."""
    greatest = Decimal(9 * 10**37)
    monkeypatch.setitem(INPUTS, WIDE, [greatest, -greatest])
    monkeypatch.setattr(random_chains, "KEYS", {kind: values[:1] for kind, values in random_chains.KEYS.items()})
    fit = 0
    for random in chances(80):
        plan = base_plan(random, WindowSpec(assigner=Tumbling(size_ms=1_000), function=ANY), [("sum", WIDE)])
        chunk = RandomLog(random, plan).chunk(1, 12)
        expected, found = (
            played_if_it_fits(random, replace(chunk, plan=replace(chunk.plan, executor=executor)))
            for executor in ("operator", "kernel")
        )
        assert found == expected
        fit += expected is not None
    assert fit, "no sum fits 38 digits"


def played_if_it_fits(random: Random, chunk: Chunk) -> list[Slice] | None:
    """Return what the executor of a chunk made of each slice; None if a sum does not fit its type."""
    try:
        return play(random, chunk, {})[0]
    except SpecError:
        return None


def check_chain(random: Random, log: RandomLog) -> None:
    """Play chunks with the operator, and with an executor that changes from chunk to chunk."""
    before: StateColumns = {}
    mixed: StateColumns = {}
    for _ in range(random.randint(1, 4)):
        chunk = log.chunk(random.randint(1, 3), random.choice([0, 5, 40]))
        records_per_block = random.choice([1, 2, 7, 1 << 19])
        other = replace(
            chunk.plan, executor=random.choice(["kernel", "auto", "operator"]), records_per_block=records_per_block
        )
        expected, before = play(random, replace(chunk, plan=replace(chunk.plan, executor="operator")), before)
        found, mixed = play(random, replace(chunk, plan=other), mixed)
        assert found == expected
