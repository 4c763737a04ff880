"""Fragments that are joined have the same rows, in batches of one size."""

from itertools import groupby
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from jobs.replay.files.fragments import FragmentWriter, joined_fragments
from jobs.replay.files.scan import bucket_of, fed_records
from tests.support.fuzzing import seeds


def test_joined_fragments_have_all_rows_of_each_slice_in_batches_of_one_size(tmp_path: Path) -> None:
    for seed in seeds(80):
        random = Random(seed)
        writer = FragmentWriter(str(tmp_path), f"feed-{seed}")
        expected: list[tuple[int, int]] = []
        for slice_no in range(random.randint(0, 3)):
            for _ in range(random.randint(0, 5)):
                numbers = [len(expected) + place for place in range(random.randint(0, 12))]
                writer.write(pa.RecordBatch.from_pydict({"rank": pa.array(numbers, pa.int32())}), slice_no=slice_no)
                expected += [(slice_no, number) for number in numbers]
        writer.close()
        rows = random.randint(1, 9)
        joined = list(joined_fragments(writer.fragments, rows=rows))
        assert [(number, rank) for number, batch in joined for rank in batch.column("rank").to_pylist()] == expected
        for _, own in groupby(joined, key=lambda one: one[0]):
            *whole, last = [batch.num_rows for _, batch in own]
            assert set(whole) <= {rows}
            assert 0 < last <= rows


def test_fed_records_have_the_sequence_numbers_of_their_ranks() -> None:
    narrow = pa.RecordBatch.from_pydict({"rank": pa.array([0, 3], pa.int32()), "k0": ["a", "b"]})
    fed = fed_records(narrow, first=2**40)
    assert fed.to_pydict() == {"sequence": [2**40, 2**40 + 3], "rank": [0, 3], "k0": ["a", "b"]}
    assert fed.schema.types[:2] == [pa.int64(), pa.int64()]


def test_every_bucket_gets_a_like_share_of_keys_and_equal_keys_one_bucket() -> None:
    for seed in seeds(20):
        buckets = Random(seed).randint(1, 64)
        keys = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, 20_000)
        owners = bucket_of({"k0": pa.array(np.concatenate([keys, keys]))}, buckets)
        assert (owners[: len(keys)] == owners[len(keys) :]).all()
        counts = np.bincount(owners, minlength=buckets)
        assert len(counts) == buckets
        assert counts.min() > 0.7 * counts.mean()
        for step in (1, 1_000, 2**20):  # keys of a pattern, as integers of any width
            few = np.arange(20_000) * step
            counts = np.bincount(bucket_of({"k0": pa.array(few)}, buckets), minlength=buckets)
            assert counts.min() > 0.7 * counts.mean()
        narrow = pa.array(np.arange(-100, 100, dtype=np.int16))
        assert (bucket_of({"k0": narrow}, buckets) == bucket_of({"k0": narrow.cast(pa.int64())}, buckets)).all()
