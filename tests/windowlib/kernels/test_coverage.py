"""Coverage: which specs the columnar executor runs, and that every other spec has a reason that a person reads."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.windowlib.kernels.random_chains import base_plan
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.record_values import ValueLayout
from windowlib.columnar.watermark_steps import SliceRange
from windowlib.errors import InvariantBroken, SpecError
from windowlib.execution.bucket import executor_for
from windowlib.functions.window_functions import Aggregates, Apply, Reduce, Whole, aggregate
from windowlib.kernels.coverage import why_not
from windowlib.kernels.executor import KernelExecutor
from windowlib.profiles import FLINK
from windowlib.triggers.flink import ContinuousEventTime, CountReached, EventTime, Never
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import DynamicSession, Global, Session, Sliding, Stagger, Tumbling
from windowlib.windows.evictors import KeepCount
from windowlib.windows.spec import WindowSpec, count_windows

COUNT: Final = (aggregate("count"),)
LAYOUT: Final = ValueLayout(kind="tuple", columns=(None,))
TUMBLING: Final = Tumbling(size_ms=10)
LIST: Final = Apply(lambda _key, _window, values: [tuple(values)])
COVERED: Final = [
    WindowSpec(assigner=TUMBLING, function=COUNT),
    WindowSpec(assigner=TUMBLING, function=COUNT, accumulation="discarding", allowed_lateness_ms=5),
    WindowSpec(assigner=TUMBLING, function=COUNT, trigger=Purging(EventTime())),
    WindowSpec(assigner=Sliding(size_ms=10, slide_ms=3), function=COUNT),
    WindowSpec(assigner=Session(gap_ms=5), function=COUNT),
    WindowSpec(assigner=DynamicSession(), function=COUNT),
    WindowSpec(assigner=Global(), function=COUNT),
    count_windows(3, function=COUNT),
]
NOT_COVERED: Final[Mapping[str, WindowSpec]] = {
    "evictor": WindowSpec(assigner=TUMBLING, function=COUNT, evictor=KeepCount(count=1)),
    "semantics": WindowSpec(assigner=TUMBLING, function=COUNT, profile=FLINK),
    "retracting": WindowSpec(assigner=TUMBLING, function=COUNT, accumulation="retracting"),
    "combiner": WindowSpec(assigner=TUMBLING, function=COUNT, timestamp_combiner="latest"),
    "leftovers": WindowSpec(assigner=TUMBLING, function=COUNT, leftovers="fire"),
    "staggered": WindowSpec(assigner=Tumbling(size_ms=9, stagger=Stagger.NATURAL), function=COUNT),
    "processing time": WindowSpec(assigner=Sliding(size_ms=9, slide_ms=3, is_event_time=False), function=COUNT),
    "ContinuousEventTime": WindowSpec(assigner=TUMBLING, function=COUNT, trigger=ContinuousEventTime(5)),
    "Never": WindowSpec(assigner=TUMBLING, function=COUNT, trigger=Never(), leftovers="report"),
    "CountReached": WindowSpec(assigner=Global(), function=COUNT, trigger=CountReached(2)),
    "an evictor": count_windows(4, slide=2, function=COUNT),
    "over records": WindowSpec(assigner=TUMBLING, function=Whole(Reduce(function=max))),
    "over windows": WindowSpec(assigner=TUMBLING, function=Aggregates(COUNT, then=LIST)),
    "Reduce": WindowSpec(assigner=TUMBLING, function=(Reduce(function=max),)),
}


def test_covered_specs_run_by_column() -> None:
    assert [why_not(spec, LAYOUT) for spec in COVERED] == [None] * len(COVERED)


@pytest.mark.parametrize("word", NOT_COVERED)
def test_every_other_spec_has_a_reason(word: str) -> None:
    reason = why_not(NOT_COVERED[word], LAYOUT)
    assert reason is not None
    assert word in reason


def test_users_functions_over_records_are_not_covered() -> None:
    mapping = ValueLayout(kind="mapping", columns=("a",))
    assert why_not(COVERED[0], mapping) == "a user's function reads the records"


@pytest.mark.parametrize(
    ("choice", "kind"), [("auto", KernelExecutor), ("kernel", KernelExecutor), ("operator", OperatorExecutor)]
)
def test_a_plan_chooses_the_executor(choice: Any, kind: type) -> None:  # noqa: ANN401 - an ExecutorChoice
    plan = base_plan(Random(0), COVERED[0], [("count", None)])
    plan = replace(plan, slices=(None,), executor=choice)  # type: ignore[arg-type]
    assert isinstance(executor_for(plan), kind)


def test_the_columnar_executor_refuses_a_spec_that_it_does_not_cover() -> None:
    plan = base_plan(Random(0), COVERED[0], [("count", None)])
    refused = replace(plan, spec=NOT_COVERED["over records"], slices=(None,), executor="kernel")  # type: ignore[arg-type]
    with pytest.raises(InvariantBroken, match="no columnar form"):
        executor_for(refused)


@pytest.mark.parametrize(("at_ms", "message"), [(None, "no event time"), (1 << 61, "event times from"), (7, None)])
def test_event_time_windows_refuse_records_without_a_usable_time(at_ms: int | None, message: str | None) -> None:
    plan = replace(base_plan(Random(0), COVERED[0], [("count", None)]), keys={}, executor="kernel", records_per_block=1)
    plan = replace(plan, slices=(SliceRange(slice_no=0, start_ms=0, end_ms=1, end_sequence=1),))
    columns = {name: pa.array([1], pa.int64()) for name in ("sequence", "rank", "record_hash")}
    batch = pa.RecordBatch.from_pydict({**columns, "event_time_ms": pa.array([at_ms], pa.int64())})
    executor = executor_for(plan)
    executor.restore({})
    with pytest.raises(SpecError, match=message) if message else nullcontext():
        executor.process(batch)
