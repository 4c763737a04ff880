"""An operator that visits only the steps which reach its timers says the same as one that visits them all.

And each key may have an operator of its own: that is what lets Spark cut a log into buckets.
"""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, reject

from tests.support.windows import specs, steps
from windowlib.bounds import MIN_TIME_MS
from windowlib.keyed.operator_protocol import Operator
from windowlib.profiles import EngineFault
from windowlib.records.records import Late, Output, Record, Unassigned
from windowlib.spark.steps import Beginning, Steps, Walk, columns_of
from windowlib.testkit.harness import ClockStep, RecordStep, WatermarkStep
from windowlib.testkit.harness import Step as ScriptStep
from windowlib.watermarks.timeline import Step
from windowlib.windows.spec import WindowSpec

BEGINNING = Beginning(watermark_ms=MIN_TIME_MS, clock_ms=0)


def as_log(script: Sequence[ScriptStep]) -> tuple[list[tuple[int, Record]], Steps]:
    """The records with their sequence numbers, and the steps between them; a clock step is a tick."""
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
    still = np.zeros(len(found), dtype=np.int64)
    return records, Steps(
        sequence=sequence_of,
        slice_start_ms=still,
        rank=sequence_of,
        due_ms=due,
        clock_ms=clock,
        watermark_ms=watermark,
        slice_ends=(len(found),),
    )


def fresh(spec: WindowSpec) -> Operator:
    operator = spec.build()
    operator.advance_processing_time(BEGINNING.clock_ms, inclusive=False)
    return operator


def visiting_all(spec: WindowSpec, records: Sequence[tuple[int, Record]], along: Steps) -> list[Output]:
    operator, taken = fresh(spec), 0
    due_ms, watermark_ms = BEGINNING.clock_ms, BEGINNING.watermark_ms
    for sequence, record in [*records, (1 << 40, None)]:
        while taken < len(along.sequence) and along.sequence[taken] < sequence:
            if along.due_ms[taken] > due_ms:
                due_ms, clock_ms = int(along.due_ms[taken]), int(along.clock_ms[taken])
                operator.advance_processing_time(clock_ms, along.position(taken), inclusive=due_ms > clock_ms)
            if along.watermark_ms[taken] > watermark_ms:
                watermark_ms = int(along.watermark_ms[taken])
                operator.advance_watermark(watermark_ms, along.position(taken))
            taken += 1
        if record is not None:
            operator.process(record)
    return operator.drain()


def walking(spec: WindowSpec, records: Sequence[tuple[int, Record]], along: Steps) -> list[Output]:
    operator = fresh(spec)
    walk = Walk(operator, along, BEGINNING)
    for sequence, record in records:
        walk.until(int(np.searchsorted(along.sequence, sequence, side="left")))
        operator.process(record)
    walk.until(along.slice_ends[-1])
    return operator.drain()


def of_key(outputs: Sequence[Output], key: object) -> list[Output]:
    owners = [output.record if isinstance(output, Late | Unassigned) else output for output in outputs]
    return [output for output, owner in zip(outputs, owners, strict=True) if owner.key == key]


@given(specs(), steps())
def test_a_walk_of_each_key_by_itself_says_what_visiting_every_step_says(
    spec: WindowSpec, script: list[ScriptStep]
) -> None:
    records, along = as_log(script)
    try:
        together = visiting_all(spec, records, along)
        apart = {
            key: walking(spec, [one for one in records if one[1].key == key], along)
            for key in sorted({str(record.key) for _, record in records})
        }
    except EngineFault:
        reject()
    assert sum(map(len, apart.values())) == len(together)
    for key, outputs in apart.items():
        # All of an output is compared, the place where it fired included.
        assert [repr(output) for output in outputs] == [repr(output) for output in of_key(together, key)]
