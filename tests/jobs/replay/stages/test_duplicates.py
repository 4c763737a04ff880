"""Pairs of equal ids: a bound that is just reached counts, and the earlier record is the one that arrived last."""

from random import Random

import numpy as np

from jobs.replay.stages.duplicates import pairs
from tests.support.fuzzing import seeds


def test_pairs_are_those_of_all_earlier_records() -> None:
    found_some = 0
    for seed in seeds(200):
        random = Random(seed)
        count, within_ms = random.randrange(12), random.randrange(4)
        ids = sorted((random.randrange(3), random.randrange(2)) for _ in range(count))
        first_ms = [random.randrange(8) for _ in range(count)]
        last_ms = [first + random.choice((0, 0, 3)) for first in first_ms]
        expected = {}
        for later in range(count):
            earlier = [(last_ms[one], one) for one in range(later) if ids[one] == ids[later]]
            if earlier and first_ms[later] - max(earlier)[0] <= within_ms:
                expected[later] = max(earlier)[1]
        codes = [np.array([one[place] for one in ids], dtype=np.int64) for place in (0, 1)]
        instants = (np.array(one, dtype=np.int64) for one in (first_ms, last_ms))
        later_rows, earlier_rows = pairs(codes, *instants, within_ms=within_ms)
        assert dict(zip(later_rows.tolist(), earlier_rows.tolist(), strict=True)) == expected, seed
        found_some += len(expected)
    assert found_some > 100
