"""Sessions by column: rows, tallies and state are equal to those of the operator."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
import pytest

from tests.support.fuzzing import seeds
from tests.windowlib.kernels.random_chains import RandomLog, base_plan, play, random_aggregates
from windowlib.bounds import MAX_TIME_MS
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.record_values import ValueLayout
from windowlib.functions.window_functions import aggregate
from windowlib.triggers.flink import EventTime
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import DynamicSession, Session
from windowlib.windows.record_readers import GapOfColumn
from windowlib.windows.spec import WindowSpec

KINDS: Final[Sequence[tuple[str, str | None]]] = [
    ("count", None),
    ("count", "int"),
    ("sum", "int"),
    ("avg", "bigint"),
]
ORDERED: Final[Sequence[tuple[str, str | None]]] = [
    *KINDS,
    ("min", "bigint"),
    ("max", "string"),
    ("first", "int"),
    ("last", "string"),
    ("collect_list", "bigint"),
]
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
    aggregates = random_aggregates(random, random.choice([KINDS, ORDERED]))
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


def random_gaps(random: Random, plan: BucketPlan) -> list[int]:
    assert isinstance(plan.spec, WindowSpec)
    assigner: Any = plan.spec.assigner
    scale = 1_000 if isinstance(assigner, DynamicSession) and getattr(assigner.gap, "unit", "ms") == "us" else 1
    return [scale * gap for gap in random.choice([(1,), (5,), (3, 4, 12), (1, 2, 60)])]


@pytest.mark.parametrize("lateness", [(0,), (1, 15, 60, MAX_TIME_MS)], ids=["no lateness", "lateness"])
def test_a_chain_of_chunks_gives_the_same_with_either_executor(lateness: Sequence[int]) -> None:
    for seed in seeds(200, among=2):
        random = Random(seed)
        plan = session_plan(random, lateness=lateness)
        gaps = random_gaps(random, plan)
        log = RandomLog(random, plan, spread_ms=random.choice([0, 4, 10, 40, 100]), gaps=gaps)
        check_chain(random, log)


def check_chain(random: Random, log: RandomLog) -> None:
    """Play chunks with the operator, and with an executor that changes from chunk to chunk."""
    before: Mapping[str, pa.Table] = {}
    mixed: Mapping[str, pa.Table] = {}
    for _ in range(random.randint(1, 4)):
        chunk = log.chunk(random.randint(1, 3), random.choice([0, 5, 40, 120]))
        other = replace(
            chunk.plan,
            executor=random.choice(["kernel", "kernel", "operator"]),
            records_per_block=random.choice([1, 2, 7, 30, 1 << 19]),
        )
        expected, before = play(random, replace(chunk, plan=replace(chunk.plan, executor="operator")), before)
        found, mixed = play(random, replace(chunk, plan=other), mixed)
        for one, other_one in zip(found, expected, strict=True):
            for part, wanted in zip(one, other_one, strict=True):
                assert part == wanted
