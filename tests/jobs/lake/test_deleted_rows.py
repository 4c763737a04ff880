"""The rows of a deletion vector: any stretch of a file is read from the bits of that stretch."""

import random
import time

import numpy as np

from jobs.lake.log_version import DeletedRows


def test_the_rows_of_any_stretch_are_those_of_the_whole_file() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        kept = np.array([draw.random() < 0.7 for _ in range(draw.randrange(1, 90))])
        deleted = DeletedRows.of(kept)
        first, count = draw.randrange(100), draw.randrange(40)
        expected = np.concatenate([kept, np.ones(140, dtype=bool)])[first : first + count]
        assert deleted.is_kept(first, count).tolist() == expected.tolist(), f"seed {seed}"


def test_a_batch_of_a_large_file_costs_no_more_than_a_batch_of_a_small_one() -> None:
    deleted = DeletedRows(bits=bytes(12_500_000))
    began = time.process_time()
    for number in range(20):
        deleted.is_kept(number * 1_000, 1_000)
    assert time.process_time() - began < 0.1, "the bits of 100 M rows took 10 ms or more each time"
