"""Random chunks of one bucket for both executors: specs, logs, steps, cuts. No pipeline file and no Spark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tests.support.bucket_feed import placed_steps
from windowlib.bounds import MAX_TIME_MS, MAX_TIMESTAMP_MS, MIN_TIME_MS, MIN_TIMESTAMP_MS
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.executor import Emission, StateColumns
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.record_values import ValueLayout
from windowlib.columnar.watermark_steps import Beginning, SliceRange
from windowlib.execution.bucket import executor_for
from windowlib.functions.window_functions import Aggregates, aggregate
from windowlib.kernels.coverage import why_not_combined
from windowlib.kernels.executor import KernelExecutor
from windowlib.kernels.partials import Combining
from windowlib.kernels.record_groups import CELLS_MAX
from windowlib.kernels.tumbling import TumblingWindows
from windowlib.records import tables
from windowlib.records.column_types import parse_type
from windowlib.watermarks.timeline import Step
from windowlib.windows.spec import WindowSpec

SLICE_MS: Final = 1_000_000
KEYS: Final[Mapping[str, Sequence[Any]]] = {
    "bigint": [1, 2, -7, 1 << 40],
    "int": [5, 6],
    "string": ["a", "b", "", "ü"],
    "boolean": [True, False],
    "tinyint": [0, 127, -128],
    "smallint": [0, -1, 32_767],
    "double": [0.0, -0.0, 1.5, -2.25, float("inf"), 5e-324],
    "float": [0.0, -0.0, 0.10000000149011612, float("-inf")],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-3.00")],
    "decimal(38,10)": [Decimal(0), Decimal(-(10**28) + 1), Decimal("0.0000000001")],
    "binary": [b"", b"x\x00"],
    "timestamp": [0, 1_600_000_000_000_000],
    "date": [0, 20_000],
}
INPUTS: Final[Mapping[str, Sequence[Any]]] = {
    "bigint": [0, 1, -5, (1 << 63) - 1, -(1 << 63), 12345, None],
    "int": [0, 3, -9, None],
    "double": [0.0, 0.1, -2.5, 1e300, -1e300, 5e-324, float("inf"), float("-inf"), float("nan"), None],
    "float": [0.0, 0.10000000149011612, -2.5, float("nan"), None],
    "decimal(10,2)": [Decimal("0.01"), Decimal("-7.50"), None],
    "string": ["", "b", "a", None],
    "timestamp": [0, -5, 1_600_000_000_000_000, None],
    "date": [0, -1, 20_000, None],
    "boolean": [True, False, None],
    "decimal(38,10)": [Decimal(0), Decimal(10**28 - 1), Decimal("-0.0000000001"), None],
}
"""Types that have an order, and values."""
UNORDERED: Final[Mapping[str, Sequence[Any]]] = {
    "binary": [b"", b"\x00", b"\xff" * 40, None],
    "array<int>": [[], [1, None], [3, 2], None],
    "struct<a:int,b:string>": [{"a": 1, "b": ""}, {"a": None, "b": None}, None],
    "map<string,double>": [[], [("a", 1.0), ("", None)], None],
}
"""Types without an order."""
START_MS: Final = (-100, -100, MIN_TIMESTAMP_MS + 10_000, MAX_TIMESTAMP_MS - 100_000, 1_700_000_000_000)
"""The first event times are near one of these."""


class Fed(NamedTuple):
    """One record of the bucket."""

    sequence: int
    rank: int
    event_time_ms: int
    record_hash: int
    key: tuple[Any, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk: its plan, and the records of each slice."""

    plan: BucketPlan
    records: Sequence[Sequence[Fed]]


class Slice(NamedTuple):
    """What an executor made of a slice: sorted rows by table, the fates and edges, the sorted rows of the state."""

    rows: Mapping[str, list[str]]
    fates: Mapping[str, tuple[int, int, int]]
    edges: Mapping[str, tuple[int, int, int]]
    state: Mapping[str, list[str]]


def random_aggregates(random: Random, kinds: Sequence[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return one to four pairs of aggregate and input type."""
    return random.choices(kinds, k=random.randint(1, 4))


def base_plan(
    random: Random, spec: WindowSpec, chosen: Sequence[tuple[str, str | None]], *, gap: str | None = None
) -> BucketPlan:
    """Return a plan without slices and steps. `spec` gets the chosen aggregates as its function."""
    functions = tuple(aggregate(kind, column, name=f"a{i}") for i, (kind, column) in enumerate(chosen))
    spec = replace(spec, function=Aggregates(functions))
    key_types = random.choice(
        [["bigint"], ["string"], [], [random.choice(list(KEYS)) for _ in range(random.randint(1, 3))]]
    )
    keys = {f"key{i}": kind for i, kind in enumerate(key_types)}
    layout = ValueLayout(kind="tuple", columns=tuple(column for _, column in chosen), gap=gap)
    outputs = {f"a{i}": one.output_type for i, one in enumerate(functions)}
    kept = functions if spec.evictor is None else ()  # with an evictor, windows keep their records
    accumulators = {f"a{i}": dict(one.state_columns) for i, one in enumerate(kept)}
    written = (
        tables.window_outputs(keys, outputs),
        tables.late_records("string").slim(),
        tables.unassigned_records("string").slim(),
        tables.window_state(keys, accumulators),
        tables.timers(keys),
        tables.tallies(),
    )
    return BucketPlan(
        spec=spec,
        layout=layout,
        keys=keys,
        inputs={name: "bigint" if name == gap else name for name in layout.read()},
        outputs=tuple(outputs),
        side_outputs={},
        accumulators=accumulators,
        last=(),
        slices=(),
        steps=placed_steps([], [], []),
        beginning=Beginning(),
        max_parallelism=128,
        tables=written,
        buckets=1,
        tasks=1,
    )  # fmt: skip


@dataclass(slots=True)
class RandomLog:
    """Makes the chunks of a random log: records out of order, a watermark that rises after some of them."""

    random: Random
    plan: BucketPlan
    spread_ms: int = 40
    gaps: Sequence[int] = (1,)
    watermark_ms: int = MIN_TIME_MS
    latest_ms: int = 0
    slices: int = 0

    def __post_init__(self) -> None:
        self.latest_ms = self.random.choice(START_MS)

    def chunk(self, slices: int, records: int) -> Chunk:
        """Return the next chunk, with so many slices of at most so many records each."""
        random, beginning = self.random, Beginning(watermark_ms=self.watermark_ms, clock_ms=0)
        found: list[list[Fed]] = []
        steps, ends, ranges = list[Step](), list[int](), list[SliceRange]()
        sequence = 0
        if random.random() < 0.2:
            self._step(-1, steps)
        for number in range(slices):
            start_ms = (self.slices + number) * SLICE_MS
            found.append([])
            for rank in range(random.randint(0, records)):
                if random.random() < 0.8:  # the others are in other buckets
                    found[-1].append(self._record(sequence, rank))
                if random.random() < 0.3:
                    self._step(sequence, steps)
                sequence += 1
            ends.append(len(steps))
            ranges.append(
                SliceRange(slice_no=number, start_ms=start_ms, end_ms=start_ms + SLICE_MS, end_sequence=sequence)
            )
        self.slices += slices
        plan = replace(self.plan, slices=tuple(ranges), steps=placed_steps(steps, ranges, ends), beginning=beginning)
        return Chunk(plan=plan, records=found)

    def _record(self, sequence: int, rank: int) -> Fed:
        random = self.random
        self.latest_ms += random.choice([0, 0, 1, 3, 10])
        back = random.choice([0, 1, self.spread_ms, 3 * self.spread_ms])
        key = tuple(random.choice(KEYS[kind]) for kind in self.plan.keys.values())
        values = tuple(
            random.choice(self.gaps if name == self.plan.layout.gap else (UNORDERED.get(kind) or INPUTS[kind]))
            for name, kind in self.plan.inputs.items()
        )
        return Fed(
            sequence,
            rank,
            self.latest_ms - random.randint(0, back),
            random.randint(-(1 << 63), (1 << 63) - 1),
            key,
            values,
        )

    def _step(self, sequence: int, steps: list[Step]) -> None:
        wanted = self.latest_ms - self.random.choice([0, self.spread_ms // 2, self.spread_ms])
        if self.random.random() < 0.03:
            wanted += self.random.choice([5, 50, 500])
        if wanted > self.watermark_ms:
            self.watermark_ms = wanted
            steps.append(Step(sequence, 0, 0, wanted))


def batches(random: Random, plan: BucketPlan, records: Sequence[Fed]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice in random batches."""
    cuts = sorted(random.sample(range(len(records) + 1), k=min(random.randint(0, 3), len(records) + 1)))
    for start, end in pairwise([0, *cuts, len(records)]):
        yield batch_of(plan, records[start:end])


def batch_of(plan: BucketPlan, records: Sequence[Fed]) -> pa.RecordBatch:
    """Return records as a batch of the feed."""
    columns: dict[str, pa.Array] = {
        name: pa.array([getattr(record, name) for record in records], pa.int64())
        for name in ("sequence", "rank", "event_time_ms", "record_hash")
    }
    for prefix, kinds, field in (("k", plan.keys, "key"), ("v", plan.inputs, "values")):
        for place, kind in enumerate(kinds.values()):
            plain = [getattr(record, field)[place] for record in records]
            columns[f"{prefix}{place}"] = pa.array(plain, arrow_type(parse_type(kind)))
    return pa.RecordBatch.from_pydict(columns)


def play(random: Random, chunk: Chunk, state: StateColumns) -> tuple[list[Slice], StateColumns]:
    """Run the executor of a chunk's plan from a state. Return what it made of each slice, and the last state."""
    executor = executor_for(chunk.plan)
    if isinstance(executor, KernelExecutor) and isinstance(executor._windows, TumblingWindows):
        executor._windows._cells_max = random.choice([0.0, 1.0, CELLS_MAX, 1_000.0])
    executor.restore(state)
    found = []
    combines = why_not_combined(chunk.plan.spec, chunk.plan.layout) is None
    for records in chunk.records:
        emitted: list[Emission] = []
        fed = list(batches(random, chunk.plan, records))
        if isinstance(executor, KernelExecutor) and combines and random.random() < 0.7:
            fed = merged(random, executor, fed)
        emitted.extend(map(executor.process, fed))
        emitted.append(executor.end_slice())
        state, tallies = executor.state(), executor.take_tallies()
        rows: dict[str, list[pa.Table]] = {}
        for part in emitted:
            for name, table in part.items():
                assert table.num_rows, f"{name} is empty"
                rows.setdefault(name, []).append(table)
        found.append(
            Slice(
                {name: texts(pa.concat_tables(parts)) for name, parts in rows.items()},
                {fate.value: ids.as_row() for fate, ids in tallies.fates.items()},
                {term: ids.as_row() for term, ids in tallies.edges.items()},
                {name: texts(table) for name, table in state.items()},
            )
        )
    return found, state


def merged(random: Random, executor: KernelExecutor, fed: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine records of a slice, merge the partials in any order, and return the other records."""
    plan = executor._plan
    combining = Combining(spec=plan.spec, layout=plan.layout, keys=plan.keys, inputs=plan.inputs)
    combiner = replace(combining, cells_max=random.choice([0.25, 2, 1e9])).combiner()
    partials, others = [], []
    for batch in fed:
        sequence = batch.column("sequence").to_numpy()
        met_ms = executor._frame.clock.after_each(np.searchsorted(plan.steps.sequence, sequence, side="left"))
        # A bound on the watermark may be too high; more records are single then.
        slack_ms = random.choice([0, 0, 10, 1 << 50])
        combined = combiner.combine(batch, met_ms + np.minimum(slack_ms, MAX_TIME_MS - met_ms.clip(0)))
        if combined is not None:
            partials.append(combined.partials)
        others.append(batch if combined is None else combined.others)
    random.shuffle(partials)
    for rows in partials:
        executor.merge(rows)
    return others


def texts(table: pa.Table) -> list[str]:
    """Return the rows of a table as sorted texts, which show every bit."""
    return sorted(map(repr, table.to_pylist()))
