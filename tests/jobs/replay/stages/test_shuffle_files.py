"""Batches that are joined have the same rows, in bounded sizes. A shuffle file with a changed bit is an error."""

from itertools import groupby, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from jobs.replay.stages.scan import bucket_of, fed_records
from jobs.replay.stages.shuffle_files import ShuffleWriter, joined_batches, read_shuffled
from tests.support.flipped_bits import flip
from tests.support.fuzzing import seeds
from windowlib.errors import AuditError


def test_joined_batches_have_all_rows_of_each_slice_in_few_batches(tmp_path: Path) -> None:
    for seed in seeds(80):
        random = Random(seed)
        writer = ShuffleWriter(str(tmp_path), f"feed-{seed}")
        expected: list[tuple[int, int]] = []
        for slice_no in range(random.randint(0, 3)):
            for _ in range(random.randint(0, 5)):
                numbers = [len(expected) + place for place in range(random.randint(0, 12))]
                writer.write(pa.RecordBatch.from_pydict({"rank": pa.array(numbers, pa.int32())}), slice_no=slice_no)
                expected += [(slice_no, number) for number in numbers]
        writer.close()
        rows = random.randint(1, 9)
        joined = list(joined_batches(writer.shuffled, rows=rows))
        assert [(number, rank) for number, batch in joined for rank in batch.column("rank").to_pylist()] == expected
        largest = max((entry.rows for entry in writer.shuffled), default=0)
        for _, own in groupby(joined, key=lambda one: one[0]):
            sizes = [batch.num_rows for _, batch in own]
            assert max(sizes) <= max(rows, largest)
            assert all(before + after > rows for before, after in pairwise(sizes))
        if expected:
            most = max(entry.size for entry in writer.shuffled) * random.randint(1, 3)
            small = list(joined_batches(writer.shuffled, rows=rows, most_bytes=most))
            assert [(number, rank) for number, batch in small for rank in batch.column("rank").to_pylist()] == expected
            assert max(batch.num_rows for _, batch in small) <= max(rows, largest)
            assert max(batch.nbytes for _, batch in small) <= most


@pytest.mark.slow
def test_a_table_is_written_whole_in_batches_of_bounded_size(tmp_path: Path) -> None:
    """Arrow leaves a column of texts of more than 2 GB in several arrays: no row is left out."""
    for seed in seeds(60):
        random = Random(seed)
        batches = [random_rows(random) for _ in range(random.randint(1, 4))]
        limit = random.choice((0, 1_000, 100_000, 1 << 30))
        writer = ShuffleWriter(str(tmp_path), f"rows-{seed}", batch_bytes=limit)
        writer.write(pa.Table.from_batches(batches), slice_no=0)
        writer.close()
        written = [batch for _, batch in read_shuffled(writer.shuffled)]
        assert pa.Table.from_batches(written).to_pylist() == pa.Table.from_batches(batches).to_pylist()
        most = max(limit, *(batch.nbytes for batch in batches))
        assert sum(batch.nbytes for batch in written[:2]) > limit or len(written) == 1
        assert all(batch.nbytes <= most + 64 for batch in written)


def random_rows(random: Random) -> pa.RecordBatch:
    """Rows of all kinds of buffers, cut out of more rows: their buffers start anywhere in a byte or word."""
    count = random.randint(1, 3_000)
    columns = {
        "rank": pa.array(range(count), pa.int32()),
        "word": pa.array([random.choice((None, random.getrandbits(60))) for _ in range(count)], pa.int64()),
        "text": pa.array([random.choice((None, "", "k" * random.randrange(9))) for _ in range(count)]),
        "flag": pa.array([random.choice((None, True, False)) for _ in range(count)]),
        "list": pa.array([[{"n": number}] * (number % 3) for number in range(count)]),
    }
    start = random.randrange(count)
    return pa.RecordBatch.from_pydict(columns).slice(start, random.randint(1, count - start))


def test_every_bit_of_a_fragment_file_is_covered_by_the_checksum_of_one_fragment(tmp_path: Path) -> None:
    for seed in seeds(20):
        random = Random(seed)
        # Readers map a file of this machine into memory. They read a URI as they read an object store.
        writer = ShuffleWriter(random.choice((str(tmp_path), tmp_path.as_uri())), f"records-{seed}")
        batches = [random_rows(random) for _ in range(random.randint(1, 4))]
        for batch in batches:
            writer.write(batch, slice_no=0)
        writer.close()
        path = tmp_path / writer.shuffled[0].path.rpartition("/")[2]
        assert [batch for _, batch in read_shuffled(writer.shuffled)] == batches
        for _ in range(20):
            bit = random.randrange(8 * path.stat().st_size)
            good = flip(path, bit)
            for entry, batch in zip(writer.shuffled, batches, strict=True):
                if entry.start <= bit // 8 < entry.start + entry.size:
                    with pytest.raises(AuditError, match=rf"{path.name}.* bytes {entry.start} to .*replays it once"):
                        list(read_shuffled([entry]))
                else:
                    assert [rows for _, rows in read_shuffled([entry])] == [batch]
            path.write_bytes(good)
        path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])
        with pytest.raises(AuditError, match=r"the file has \d+ bytes"):
            list(read_shuffled(writer.shuffled[-1:]))


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
