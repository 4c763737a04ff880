"""Which slices before a slice its run reads, for any set of slices, and in the memory of the slices alone."""

import tracemalloc
from collections.abc import Iterator
from random import Random

from jobs.pipeline.look_back import look_back
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import previous_slice, slice_at, slice_grid, slices_between
from jobs.runs import Slice
from tests.support.fake_replay import PIPELINE, day_ms, sales
from tests.support.fuzzing import seeds

HOUR_MS = 3_600_000


def distinct(by: str, within: str) -> Pipeline:
    changed = PIPELINE.replace("  record_id: id\n", f"  record_id: id\n  distinct: {{by: [id], within: {within}}}\n")
    return sales(changed.replace("slice: {by: day}", f"slice: {by}"))


def wanted(pipeline: Pipeline, slice_: Slice, within_ms: int) -> Iterator[Slice]:
    """Yield the slices before a slice that end less than `within_ms` before it, from the newest on."""
    grid = slice_grid(pipeline)
    past = previous_slice(grid, slice_)
    while past is not None and past.end_ms > slice_.start_ms - within_ms:
        yield past
        past = previous_slice(grid, past)


def test_a_slice_reads_the_slices_before_it_within_the_bound_and_no_other() -> None:
    for seed in seeds(60):
        rng = Random(seed)
        hours = rng.choice([24, 49, 200])
        first = rng.choice(["", ", first: 2024-03-09"])
        by, pipeline = rng.choice(
            [
                (by, distinct(f"{{{by}{first}}}", f"{hours}h"))
                for by in ("by: day, timezone: America/New_York", "by: arrived, every: 6h")
            ]
        )
        grid = slice_grid(pipeline)
        start_ms, end_ms = (slice_at(grid, day_ms(day) + 6 * HOUR_MS).start_ms for day in ("2024-03-09", "2024-03-16"))
        slices = [one for one in slices_between(pipeline, start_ms, end_ms) if rng.random() < rng.choice([0.2, 0.9, 1])]
        rng.shuffle(slices)
        back = look_back(pipeline, slices)
        every = back.every
        found = {one.slice_id: [every[place] for place in back.before(one.slice_id)] for one in slices}
        expected = {one.slice_id: [*wanted(pipeline, one, hours * HOUR_MS)][::-1] for one in slices}
        assert found == expected, f"seed {seed}: {by} within {hours} h"
        assert {*back.outside} == {past for own in expected.values() for past in own} - {*slices}, f"seed {seed}"


def test_the_memory_is_that_of_the_slices_and_not_of_the_pairs() -> None:
    pipeline = distinct("{by: arrived, every: 1m}", "1d")
    slices = slices_between(pipeline, day_ms("2024-01-02"), day_ms("2024-01-03"))
    tracemalloc.start()
    back = look_back(pipeline, slices)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(back.outside), len(back.before(slices[-1].slice_id))) == (1_440, 1_440)
    assert peak < 4_000_000, f"{peak} bytes; the pairs take 16 MB"
