"""Sessions by column: rows, tallies and state are equal to those of the operator."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.support.fuzzing import chances
from tests.windowlib.kernels.random_chains import INPUTS, UNORDERED, RandomLog, base_plan, play, random_aggregates
from windowlib.bounds import MAX_DURATION_MS, MAX_TIME_MS
from windowlib.columnar.plan import BucketPlan, ExecutorChoice
from windowlib.columnar.record_values import ValueLayout
from windowlib.columnar.watermark_steps import SliceRange, Steps
from windowlib.errors import SpecError
from windowlib.functions.window_functions import aggregate
from windowlib.kernels.block import RecordBlock
from windowlib.kernels.executor import KernelExecutor
from windowlib.kernels.sessions.gaps import ends_ms
from windowlib.kernels.sessions.sessions import SessionWindows
from windowlib.records.records import LATE, Record
from windowlib.records.tables import Table
from windowlib.triggers.flink import EventTime
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import DynamicSession, Session
from windowlib.windows.record_readers import GapOfColumn
from windowlib.windows.spec import WindowSpec

SIMPLE: Final[Sequence[tuple[str, str | None]]] = [("count", None), ("count", "int"), ("sum", "int"), ("avg", "bigint")]
ORDERED: Final = ("first", "last", "collect_list")
KINDS: Final[Sequence[tuple[str, str | None]]] = [
    *SIMPLE,
    *((kind, column) for kind in ("sum", "avg") for column in ("int", "double", "float", "decimal(10,2)")),
    *((kind, column) for kind in ("min", "max", *ORDERED) for column in INPUTS),
    *((kind, column) for kind in ORDERED for column in UNORDERED),
    ("variance", "double"),
]
"""All aggregates, but not sums of bigint, because they overflow on these inputs."""
GAP: Final = "gap"


def session_plan(random: Random, *, lateness: Sequence[int]) -> BucketPlan:
    """Return a plan with sessions of fixed gaps, of gaps that the record has, or of gaps in a column of the values."""
    spec = WindowSpec(
        assigner=Session(gap_ms=random.choice([1, 2, 5, 12, 40])),
        function=(aggregate("count"),),
        trigger=random.choice([None, EventTime(), Purging(EventTime())]),
        allowed_lateness_ms=random.choice(lateness),
        accumulation=random.choice(["accumulating", "discarding"]),
    )
    aggregates = random_aggregates(random, random.choice([SIMPLE, KINDS]))
    match random.choice(["fixed", "fixed", "record", "column"]):
        case "fixed":
            return base_plan(random, spec, aggregates)
        case "record":
            return base_plan(random, replace(spec, assigner=DynamicSession()), aggregates, gap=GAP)
        case _:
            unit = random.choice(["ms", "us"])
            plan = base_plan(random, spec, aggregates, gap=GAP)
            assert isinstance(plan.spec, WindowSpec)
            dynamic = DynamicSession(gap=GapOfColumn(place=len(aggregates), unit=unit))
            layout = ValueLayout(kind="tuple", columns=(*plan.layout.columns, GAP), gap=GAP)
            return replace(plan, spec=replace(plan.spec, assigner=dynamic), layout=layout)


def with_key(table: Table) -> Table:
    """Return a table whose only key is the column `key`."""
    content = {name: kind for name, kind in table.content.items() if name not in table.keys}
    if table.name in ("window_outputs", "window_state", "timers"):
        return replace(table, content={"key": "long", **content}, keys=("key",))
    return table


def random_gaps(random: Random, plan: BucketPlan) -> list[int]:
    assert isinstance(plan.spec, WindowSpec)
    assigner: Any = plan.spec.assigner
    scale = 1_000 if isinstance(assigner, DynamicSession) and getattr(assigner.gap, "unit", "ms") == "us" else 1
    return [scale * gap for gap in random.choice([(1,), (5,), (3, 4, 12), (1, 2, 60)])]


@pytest.mark.parametrize("lateness", [(0,), (1, 15, 60, MAX_TIME_MS)], ids=["no lateness", "lateness"])
def test_a_chain_of_chunks_gives_the_same_with_either_executor(
    lateness: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for random in chances(16, among=2):
        plan = session_plan(random, lateness=lateness)
        log = RandomLog(random, plan, spread_ms=random.choice([0, 4, 10, 40, 100]), gaps=random_gaps(random, plan))
        windows = partial(SessionWindows, round_cost=random.choice([0, 0, 1, 3, 16, 10**9]))
        monkeypatch.setattr("windowlib.kernels.executor.SessionWindows", windows)
        check_chain(random, log)


def check_chain(random: Random, log: RandomLog) -> None:
    """Play chunks with the operator, and with an executor that changes from chunk to chunk."""
    before: Mapping[str, pa.Table] = {}
    mixed: Mapping[str, pa.Table] = {}
    for _ in range(random.randint(1, 4)):
        records_per_block = random.choice([1, 3, 7, 30, 1 << 19, 1 << 19])
        chunk = log.chunk(random.randint(1, 3), random.choice([0, 5, 30, 100 if records_per_block > 3 else 20]))
        chosen: Any = random.choice(["kernel", "kernel", "operator"])
        other = replace(chunk.plan, executor=chosen, records_per_block=records_per_block)
        expected, before = play(random, replace(chunk, plan=replace(chunk.plan, executor="operator")), before)
        found, mixed = play(random, replace(chunk, plan=other), mixed)
        for one, wanted in zip(found, expected, strict=True):
            for part, wanted_part in zip(one, wanted, strict=True):
                assert part == wanted_part


@pytest.mark.parametrize(("lateness_ms", "delegated_max"), [(0, 0.0), (20_000, 0.005), (10**9, 0.005)])
def test_few_records_need_the_operator(lateness_ms: int, delegated_max: float) -> None:
    random = np.random.default_rng(20130208)
    count = 60_000
    arrival_ms = np.sort(random.integers(0, 3_000_000, count))
    delay_ms = np.where(random.random(count) < 0.01, random.integers(5_000, 60_000, count), 0)
    event_ms = arrival_ms - delay_ms - random.integers(0, 4_000, count)
    watermark_ms = np.maximum.accumulate(event_ms) - 5_000
    rises = np.flatnonzero(np.diff(watermark_ms, prepend=-(10**9)) > 0)
    spec = WindowSpec(assigner=Session(gap_ms=1_000), function=(aggregate("count"),), allowed_lateness_ms=lateness_ms)
    plan = base_plan(Random(0), spec, [("count", None)])
    nothing = np.zeros(len(rises), dtype=np.int64)
    slices = (SliceRange(slice_no=0, start_ms=0, end_ms=1, end_sequence=count),)
    steps = Steps(
        sequence=rises,
        due_ms=nothing,
        clock_ms=nothing,
        watermark_ms=watermark_ms[rises],
        slice_ends=(len(rises),),
        ranges=slices,
    )
    plan = replace(
        plan,
        keys={"key": "bigint"},
        slices=slices,
        steps=steps,
        records_per_block=1 << 14,
        tables=tuple(with_key(table) for table in plan.tables),
    )
    numbers = np.arange(count, dtype=np.int64)
    batch = pa.RecordBatch.from_pydict(
        {
            "sequence": pa.array(numbers),
            "rank": pa.array(numbers),
            "event_time_ms": pa.array(event_ms),
            "record_hash": pa.array(random.integers(-(1 << 62), 1 << 62, count)),
            "k0": pa.array(random.integers(0, 40, count)),
        }
    )
    executor = KernelExecutor(plan)
    executor.restore({})
    executor.process(batch)
    executor.end_slice()
    fates = executor.take_tallies().fates
    assert sum(ids.count for ids in fates.values()) == count
    assert (fates[LATE].count > 0) == (lateness_ms < 60_000)
    windows: Any = executor._windows
    assert windows.delegated <= delegated_max * count


@pytest.mark.parametrize("gap", [None, 0, -3, MAX_DURATION_MS + 1, MAX_TIME_MS])
def test_a_bad_gap_has_the_same_error_as_in_the_operator(gap: int | None) -> None:
    spec = WindowSpec(assigner=DynamicSession(), function=(aggregate("count"),))
    log = RandomLog(Random(5), base_plan(Random(5), spec, [("count", None)], gap=GAP), gaps=[3])
    chunk = log.chunk(1, 50)
    (records,) = chunk.records
    place = list(chunk.plan.inputs).index(GAP)
    values = tuple(gap if number == place else value for number, value in enumerate(records[7].values))
    records = [*records[:7], records[7]._replace(values=values), *records[8:]]
    errors = []
    executors: tuple[ExecutorChoice, ...] = ("operator", "kernel")
    for executor in executors:
        with pytest.raises(SpecError) as error:
            play(Random(0), replace(chunk, plan=replace(chunk.plan, executor=executor), records=[records]), {})
        errors.append(str(error.value))
    assert errors[0] == errors[1]


_AT_BOUNDS = (0, 1, 999_999, 1_000_000, MAX_DURATION_MS // 1_000, MAX_DURATION_MS, MAX_DURATION_MS + 1, MAX_TIME_MS)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("given", _AT_BOUNDS)
def test_a_gap_at_the_bounds_of_its_unit_ends_the_same_session_in_both_executors(unit: str, given: int) -> None:
    session = DynamicSession(gap=GapOfColumn(place=0, unit=unit))
    zero, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    block = RecordBlock(
        slice_start_ms=0, key_code=zero, sequence=zero, rank=zero, event_time_ms=one, record_hash=zero,
        steps_before=zero, watermark_ms=zero, values=(pa.array([given]),),
    )  # fmt: skip
    ends: list[object] = []
    for end_ms in (lambda: ends_ms(session, block).tolist()[0], lambda: 1 + session._gap_ms(Record("a", 1, (given,)))):
        try:
            ends.append(end_ms())
        except SpecError as error:
            ends.append(str(error).partition(" has gap ")[2])
    assert ends[0] == ends[1]
