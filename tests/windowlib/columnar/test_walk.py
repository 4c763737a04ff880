"""Walk: visiting only the steps that reach an operator's timers gives the same outputs as visiting every step.

The test gives each key an operator of its own, because Spark replays the keys of a log in separate buckets.
"""

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given, reject, strategies as st

from tests.support.windows import specs, steps
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.watermark_steps import STEPS_PER_BLOCK, Beginning, SliceRange, Steps, Walk, columns_of
from windowlib.keyed.operator_protocol import Operator
from windowlib.profiles import EngineFault
from windowlib.records.records import Late, Output, Record, Unassigned
from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import ClockStep, RecordStep, Step as ScriptStep, WatermarkStep
from windowlib.watermarks.timeline import Step
from windowlib.windows.assigners import Stagger, Tumbling
from windowlib.windows.spec import WindowSpec

BEGINNING = Beginning(watermark_ms=MIN_TIME_MS, clock_ms=0)


def as_log(script: Sequence[ScriptStep]) -> tuple[list[tuple[int, Record]], Steps]:
    """Return the records with their sequence numbers, and the steps between them. A clock step is a deadline."""
    records: list[tuple[int, Record]] = []
    found: list[Step] = []
    due_ms = clock_ms = BEGINNING.clock_ms
    watermark_ms = BEGINNING.watermark_ms
    for sequence, step in enumerate(script):
        match step:
            case RecordStep():
                records.append((sequence, step.record))
                continue
            case WatermarkStep():
                watermark_ms = max(watermark_ms, step.watermark_ms)
            case ClockStep() if step.processing_time_ms >= due_ms:
                due_ms, clock_ms = step.processing_time_ms + 1, step.processing_time_ms
        found.append(Step(sequence, due_ms, clock_ms, watermark_ms))
    sequence_of, due, clock, watermark = columns_of(found)
    return records, Steps(
        sequence=sequence_of,
        due_ms=due,
        clock_ms=clock,
        watermark_ms=watermark,
        slice_ends=(len(found),),
        ranges=(SliceRange(slice_no=0, start_ms=0, end_ms=1, end_sequence=len(script)),),
    )


def first_arrival_ms(records: Sequence[tuple[int, Record]], along: Steps) -> int:
    """Return the clock at the log's first record, from which staggered windows count."""
    before = int(np.searchsorted(along.sequence, records[0][0], side="left")) if records else 0
    return int(along.clock_ms[before - 1]) if before else BEGINNING.clock_ms


def fresh(spec: WindowSpec, first_ms: int) -> Operator:
    operator = spec.build()
    operator.begin(first_ms)
    operator.advance_processing_time(BEGINNING.clock_ms, inclusive=False)
    return operator


def visiting_all(spec: WindowSpec, records: Sequence[tuple[int, Record]], along: Steps) -> list[Output]:
    operator, taken = fresh(spec, first_arrival_ms(records, along)), 0
    due_ms, watermark_ms = BEGINNING.clock_ms, BEGINNING.watermark_ms
    for sequence, record in [*records, (1 << 40, None)]:
        while taken < len(along.sequence) and along.sequence[taken] < sequence:
            if along.due_ms[taken] > due_ms:
                due_ms, clock_ms = int(along.due_ms[taken]), int(along.clock_ms[taken])
                operator.advance_processing_time(
                    clock_ms, along.rows(taken, taken + 1)[0][-1], inclusive=due_ms > clock_ms
                )
            if along.watermark_ms[taken] > watermark_ms:
                watermark_ms = int(along.watermark_ms[taken])
                operator.advance_watermark(watermark_ms, along.rows(taken, taken + 1)[0][-1])
            taken += 1
        if record is not None:
            operator.process(record)
    return operator.drain()


def walking(
    spec: WindowSpec, records: Sequence[tuple[int, Record]], along: Steps, *, first_ms: int, block_max: int
) -> list[Output]:
    operator = fresh(spec, first_ms)
    walk = Walk(operator, along, BEGINNING, block_max=block_max)
    for sequence, record in records:
        walk.until(int(np.searchsorted(along.sequence, sequence, side="left")))
        operator.process(record)
    walk.until(along.slice_ends[-1])
    return operator.drain()


def of_key(outputs: Sequence[Output], key: object) -> list[Output]:
    owners = [output.record if isinstance(output, Late | Unassigned) else output for output in outputs]
    return [output for output, owner in zip(outputs, owners, strict=True) if owner.key == key]


@given(specs(), steps(), st.sampled_from([1, 2, STEPS_PER_BLOCK]))
@example(
    WindowSpec(
        assigner=Tumbling(size_ms=3, is_event_time=False, stagger=Stagger.NATURAL), function=LIST, leftovers="report"
    ),
    [RecordStep(Record("a", 0, 1)), ClockStep(1), RecordStep(Record("b", 0, 2, (0, 2))), ClockStep(2)],
    STEPS_PER_BLOCK,
)
def test_a_walk_of_each_key_alone_gives_the_outputs_of_visiting_every_step(
    spec: WindowSpec, script: list[ScriptStep], block_max: int
) -> None:
    records, along = as_log(script)
    try:
        together = visiting_all(spec, records, along)
        first_ms = first_arrival_ms(records, along)
        apart = {
            key: walking(
                spec, [one for one in records if one[1].key == key], along, first_ms=first_ms, block_max=block_max
            )
            for key in sorted({str(record.key) for _, record in records})
        }
    except EngineFault:
        reject()
    assert sum(map(len, apart.values())) == len(together)
    for key, outputs in apart.items():
        # The comparison includes the position at which an output was emitted.
        assert [repr(output) for output in outputs] == [repr(output) for output in of_key(together, key)]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 5))
def test_the_position_of_a_step_is_that_of_its_record(sizes: list[int], seed: int) -> None:
    ends = np.cumsum(sizes).tolist()
    ranges = tuple(
        SliceRange(slice_no=number, start_ms=10 * number, end_ms=10 * number + 10, end_sequence=end)
        for number, end in enumerate(ends)
    )
    records = [(10 * number, rank) for number, size in enumerate(sizes) for rank in range(size)]
    sequence = np.sort(np.random.default_rng(seed).integers(-1, max(len(records), 1), 8))
    if not records:
        sequence = np.minimum(sequence, -1)
    nothing = np.zeros(len(sequence), dtype=np.int64)
    along = Steps(
        sequence=sequence, due_ms=nothing, clock_ms=nothing, watermark_ms=nothing, slice_ends=(), ranges=ranges
    )
    first_ms = records[0][0] if records else 10 * (len(sizes) - 1)
    expected = [(first_ms, -1) if place < 0 else records[place] for place in sequence.tolist()]
    assert [row[3] for row in along.rows(0, len(sequence))] == expected
    some = np.flatnonzero(sequence % 2 == 0)
    assert list(zip(*(column.tolist() for column in along.positions(some)), strict=True)) == [
        expected[place] for place in some
    ]
