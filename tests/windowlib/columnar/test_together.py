"""Records that an operator processes together: the same rows, in the same order, as one call for each record."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.support.bucket_feed import placed_steps
from tests.support.fuzzing import chances, seeds
from tests.support.plain_windows import PlainSpec
from tests.windowlib.kernels.random_chains import (
    KEYS,
    Chunk,
    Fed,
    RandomLog,
    base_plan,
    batch_of,
    batches,
    random_aggregates,
)
from windowlib.bounds import MAX_TIME_MS
from windowlib.columnar.executor import StateColumns
from windowlib.columnar.operator_executor import RECORDS_PER_BLOCK, OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import SliceRange
from windowlib.functions.window_functions import aggregate
from windowlib.records.record_columns import RecordColumns
from windowlib.triggers.flink import ContinuousEventTime, CountReached, EventTime
from windowlib.triggers.wrappers import Purging
from windowlib.watermarks.timeline import Step
from windowlib.windows.assigners import Assigner, Session, Sliding, Tumbling
from windowlib.windows.evictors import Evictor, KeepCount
from windowlib.windows.fast.fast_operator import FastOperator
from windowlib.windows.spec import WindowSpec
from windowlib.windows.windowing import PENDING_MAX, WAITING_MAX

BULK: Final[Sequence[tuple[str, str | None]]] = [("count", None), ("sum", "int"), ("min", "string"), ("avg", "double")]
ORDERED: Final[Sequence[tuple[str, str | None]]] = [("first", "string"), ("last", "int"), ("collect_list", "int")]


def any_assigner(random: Random) -> Assigner:
    size_ms = random.choice([1, 7, 20, 50])
    match random.randrange(4):
        case 0:
            slide_ms = random.choice([1, 5, 10])
            return Sliding(
                size_ms=slide_ms * random.randint(1, 6), slide_ms=slide_ms, offset_ms=random.randrange(slide_ms)
            )
        case 1:
            return Sliding(size_ms=size_ms, slide_ms=3)
        case 2:
            return Session(gap_ms=size_ms)
        case _:
            return Tumbling(size_ms=size_ms, offset_ms=random.randint(-size_ms + 1, size_ms - 1))


def any_spec(random: Random) -> WindowSpec:
    assigner = any_assigner(random)
    triggers = [None, None, EventTime(), Purging(EventTime()), ContinuousEventTime(5), CountReached(2)]
    return WindowSpec(
        assigner=assigner,
        function=(aggregate("count"),),
        trigger=random.choice(triggers),
        allowed_lateness_ms=random.choice([0, 0, 0, 1, 15, 60, MAX_TIME_MS]),
        accumulation=random.choice(["accumulating", "discarding"]),
        leftovers="report",
        pending_max=random.choice([0, 1, 2, PENDING_MAX]),
        waiting_max=random.choice([0, 1, 10, WAITING_MAX]),
    )


Played = tuple[list[object], StateColumns]
"""The rows, tallies and state of each slice, and the last state."""


def play(random: Random, executor: OperatorExecutor, chunk: Chunk, state: StateColumns) -> Played:
    """Run a chunk in random batches."""
    executor.restore(state)
    found: list[object] = []
    for records in chunk.records:
        emitted = [executor.process(batch) for batch in batches(random, chunk.plan, records)]
        emitted.append(executor.end_slice())
        names = sorted({*chain.from_iterable(emitted)})
        rows = {name: pa.concat_tables([one[name] for one in emitted if name in one]).to_pylist() for name in names}
        state = executor.state()
        found.append(
            (repr(rows), executor.take_tallies(), {name: repr(one.to_pylist()) for name, one in state.items()})
        )
    return found, state


def one_by_one(plan: BucketPlan) -> OperatorExecutor:
    """Return an executor with the plain operator, which processes each record in its own call."""
    assert isinstance(plan.spec, WindowSpec)
    return OperatorExecutor(replace(plan, spec=PlainSpec(plan.spec)))


def check_together(random: Random, log: RandomLog) -> None:
    """Compare the two ways for a few chunks of a log."""
    alone: StateColumns = {}
    together: StateColumns = {}
    for _ in range(random.randint(1, 3)):
        chunk = log.chunk(random.randint(1, 3), random.choice([0, 5, 40]))
        expected, alone = play(random, one_by_one(chunk.plan), chunk, alone)
        executor = OperatorExecutor(chunk.plan, block_max=random.choice([1, 2, 7, RECORDS_PER_BLOCK]))
        found, together = play(random, executor, chunk, together)
        assert found == expected


def check_any(seed: int) -> None:
    random = Random(seed)
    chosen = random_aggregates(random, BULK if random.random() < 0.7 else [*BULK, *ORDERED])
    log = RandomLog(random, base_plan(random, any_spec(random), chosen), spread_ms=random.choice([0, 10, 40, 100]))
    check_together(random, log)


@pytest.mark.fuzz
def test_records_that_are_processed_together_give_the_same_rows_in_the_same_order() -> None:
    for seed in seeds(100):
        check_any(seed)


@pytest.mark.parametrize("seed", [20261776])  # a record of two windows entered one of them before an earlier record
def test_cases_that_failed_give_the_same_rows(seed: int) -> None:
    check_any(seed)


def overlapping_spec(random: Random) -> WindowSpec:
    """Return windows of two or more intervals whose results depend on the order of their records."""
    slide_ms = random.choice([5, 10, 20])
    evictors = [None, None, KeepCount(count=random.randint(1, 3)), KeepCount(count=2, evicts_after=True)]
    return WindowSpec(
        assigner=Sliding(
            size_ms=slide_ms * random.randint(2, 6), slide_ms=slide_ms, offset_ms=random.randrange(slide_ms)
        ),
        function=(aggregate("count"),),
        trigger=random.choice([None, EventTime(), Purging(EventTime())]),
        evictor=random.choice(evictors),
        allowed_lateness_ms=random.choice([0, 1, 5, 15, 60]),
        leftovers="report",
        pending_max=random.choice([0, 1, 2, PENDING_MAX]),
        waiting_max=random.choice([0, 1, 10, WAITING_MAX]),
    )


@pytest.mark.fuzz
def test_overlapping_windows_have_their_records_in_log_order() -> None:
    for random in chances(60):
        chosen = [*random_aggregates(random, ORDERED), ("collect_list", "int")]
        plan = base_plan(random, overlapping_spec(random), chosen)
        check_together(random, RandomLog(random, plan, spread_ms=random.choice([10, 40, 100])))


@pytest.mark.parametrize(("evictor", "of_both"), [(None, [0, 1]), (KeepCount(count=1), [1])])
def test_a_record_that_is_older_than_the_one_before_it_enters_their_windows_after_it(
    evictor: Evictor | None, of_both: list[int]
) -> None:
    spec = WindowSpec(assigner=Sliding(size_ms=30, slide_ms=5), function=(aggregate("count"),), evictor=evictor)
    plan = base_plan(Random(1), spec, [("collect_list", "int")])
    key = tuple(KEYS[kind][0] for kind in plan.keys.values())
    records = [Fed(place, place, at_ms, place, key, (place,)) for place, at_ms in enumerate([12, 3])]
    slices = (SliceRange(slice_no=0, start_ms=0, end_ms=1_000, end_sequence=2),)
    executor = OperatorExecutor(replace(plan, slices=slices, steps=placed_steps([Step(1, 0, 0, 1_000)], slices, [1])))
    assert executor.process(batch_of(plan, records)) == {}
    panes = executor.end_slice()["window_outputs"].to_pylist()
    assert [pane["a0"] for pane in panes] == [[1]] * 2 + [of_both] * 4 + [[0]] * 2


def test_records_are_processed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the test above could compare a path with itself."""
    taken: list[int] = []
    process_together = FastOperator.process_together

    def counted(operator: FastOperator, records: RecordColumns, chosen: range) -> tuple[int, Sequence[int]]:
        end, others = process_together(operator, records, chosen)
        taken.append(end - chosen.start - len(others))
        return end, others

    monkeypatch.setattr(FastOperator, "process_together", counted)
    random = Random(1)
    spec = WindowSpec(assigner=Tumbling(size_ms=50), function=(aggregate("count"),))
    chunk = RandomLog(random, base_plan(random, spec, BULK), spread_ms=5).chunk(2, 500)
    play(random, OperatorExecutor(chunk.plan), chunk, {})
    assert sum(taken) > 0.5 * sum(map(len, chunk.records))
