"""Which records of a log with many sources of watermarks are passed to the driver of time."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from jobs.replay.chunk.time_steps import _Arrivals
from tests.support.bucket_feed import tables_of
from tests.support.fuzzing import seeds
from tests.support.replays import pipeline_of
from tests.support.timing import growth
from windowlib.columnar.watermark_steps import SliceRange

COLUMNS = {"k": "bigint", "at": "bigint", "came": "bigint", "device": "string"}
TEXT = """
pipeline: devices
log:
  table: log
  key: [k]
  event_time: {{column: at, unit: ms}}
  slice: {{by: day}}{clock}
watermark: {{kind: bounded, out_of_orderness: 1m, sources: {{column: device{idle}}}}}
windows: {{tumbling: {{size: 1h}}}}
aggregates: {{n: {{count: {{}}}}}}
"""
CLOCK = pipeline_of(TEXT.format(clock="\n  arrival_time: {column: came, unit: ms}", idle=", idle_timeout: 5m"))
NO_CLOCK = pipeline_of(TEXT.format(clock="", idle=""))
RANGE = SliceRange(slice_no=0, start_ms=0, end_ms=86_400_000, end_sequence=1_000_000)


def batch_of(first: int, times: list[int], came: list[int], sources: list[str | None]) -> pa.RecordBatch:
    count = len(times)
    return pa.RecordBatch.from_pydict(
        {
            "sequence": pa.array(range(first, first + count), pa.int64()),
            "slice_no": pa.array([0] * count, pa.int32()),
            "event_time_ms": pa.array(times, pa.int64()),
            "arrival_ms": pa.array(came, pa.int64()),
            "commit": pa.nulls(count, pa.int64()),
            "source": pa.array(sources, pa.string()),
        }
    )


def test_the_records_that_raise_the_clock_or_the_time_of_their_source_are_passed_on() -> None:
    for seed in seeds(80):
        random = Random(seed)
        pipeline = random.choice((CLOCK, NO_CLOCK))
        names = [None, "", "a", "b", *map(str, range(random.choice((0, 30))))]
        arrivals = _Arrivals(tables_of(pipeline, COLUMNS).engine, [RANGE])
        expected, passed = [], []
        clock_ms, highest, first = -1, dict[str, tuple[int, int]](), 0
        for _ in range(random.randint(1, 4)):
            count = random.randint(0, 40)
            times, came = ([random.randrange(30) for _ in range(count)] for _ in range(2))
            sources = [random.choice(names) for _ in range(count)]
            batch = batch_of(first, times, came, sources)
            passed += [(arrival.sequence, arrival.source) for _, arrival in arrivals.of(batch)]
            for place, (time_ms, at_ms, name) in enumerate(zip(times, came, sources, strict=True), first):
                source, before_ms = name or "", clock_ms
                clock_ms = max(clock_ms, at_ms if pipeline is CLOCK else 0)
                source_clock_ms, source_time_ms = highest.get(source, (-1, -1))
                if clock_ms > min(before_ms, source_clock_ms) or time_ms > source_time_ms:
                    expected.append((place, source))
                highest[source] = clock_ms, max(time_ms, source_time_ms)
            first += count
        assert passed == expected, f"seed {seed}"


@pytest.mark.slow
def test_the_cost_of_a_batch_does_not_grow_with_sources_times_records() -> None:
    engine = tables_of(NO_CLOCK, COLUMNS).engine

    def work(count: int) -> None:
        batch = batch_of(0, np.arange(count).tolist(), [0] * count, [str(number) for number in range(count)])
        assert len([*_Arrivals(engine, [RANGE]).of(batch)]) == count

    assert growth(work, 500, 16_000) < 100
