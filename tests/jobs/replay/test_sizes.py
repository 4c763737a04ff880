"""The number of tasks and buckets of a chunk."""

from typing import Any

from jobs.replay.sizes import Sizes
from tests.support.fuzzing import chances


def test_no_core_is_idle_if_there_are_enough_records_and_no_bucket_has_too_many() -> None:
    for chance in chances(1_000):
        size = chance.randrange(1, 50)
        sizes = Sizes(
            records_per_task=size,
            records_per_columnar_bucket=size,
            least_records=chance.randrange(1, size + 1),
            buckets=chance.randrange(2, 20, 2),
        )
        records, cores = chance.randrange(500), chance.randrange(1, 12)
        kind: dict[str, Any] = {"cores": cores, "has_keys": True, "is_columnar": True}
        buckets = sizes.buckets_for(records, **kind)
        of_state = sizes.buckets_for(records, state_bytes=chance.randrange(100) * sizes.state_bytes_per_bucket, **kind)
        assert buckets <= of_state <= max(sizes.buckets, cores)
        most_bytes = sizes.buckets_for(0, state_bytes=3 * sizes.state_bytes_per_bucket - 1, **kind)
        assert most_bytes >= min(3, sizes.buckets)
        of_task = sizes.task_records(records, cores=cores)
        most = max(sizes.buckets, cores)
        assert 1 <= buckets <= most
        assert buckets == most or records <= buckets * size
        assert 1 <= of_task <= size
        if records >= cores * sizes.least_records:
            assert of_task <= -(-records // cores)
            assert buckets >= min(cores, most)
        if cores == 1:
            assert of_task == max(min(size, records), sizes.least_records)
        assert sizes.buckets_for(records, cores=cores, has_keys=False, is_columnar=True) == 1
