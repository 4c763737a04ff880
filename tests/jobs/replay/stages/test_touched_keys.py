"""The keys with timers that a chunk reaches, found with and without the bounds of row groups."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.checkpoint_rows import PartFiles
from jobs.lake.table_files import TableFile
from jobs.replay.stages.bloom_filter import BloomFilter
from jobs.replay.stages.touched_keys import TouchedFilter, reached_keys, reached_timers, words_of
from tests.support.fuzzing import seeds

BITS = 16
SCHEMA = pa.schema({"k": pa.int64(), "domain": pa.string(), "at_ms": pa.int64()})


def test_each_key_with_a_timer_that_is_reached_is_found(tmp_path: Path) -> None:
    """Timers of processing time, and damaged ones with a null, are always reached. Bounds leave nulls out."""
    for seed in seeds(60):
        random = Random(seed)
        bounded = random.choice(([], ["domain", "at_ms"], ["at_ms"]))
        damaged = [] if len(bounded) > 1 else [None]
        domains = random.choice((["event"], ["event", "processing"], ["event", "event", *damaged]))
        rows = [
            {"k": key, "domain": random.choice(domains), "at_ms": random.choice((*range(90), *damaged))}
            for key in range(random.randint(1, 60))
        ]
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["at_ms"] or 0), schema=SCHEMA)
        path = tmp_path / f"{seed}.parquet"
        pq.write_table(table, path, row_group_size=random.choice((1, 7, 100)), write_statistics=bounded)
        file = TableFile(path.name, ("s", "a"), len(rows), path.stat().st_size)
        chunk = TouchedFilter(
            keys=BloomFilter.empty(BITS).packed(), index_bits=BITS, watermark_ms=random.randrange(-1, 95)
        )
        timers = PartFiles(str(tmp_path), SCHEMA, (file,), {file.attempt: 0})
        packed = reached_keys(timers, [file], chunk, keys=["k"], rows=random.choice((1, 5, 100)))

        def is_reached(row: dict[str, object], chunk: TouchedFilter = chunk) -> bool:
            at_ms = row["at_ms"]
            return row["domain"] != "event" or not isinstance(at_ms, int) or at_ms <= chunk.watermark_ms

        ordered = table.to_pylist()
        expected = np.array([is_reached(row) for row in ordered])
        assert reached_timers(table, chunk.watermark_ms).tolist() == expected.tolist()
        assert (
            reached_timers(
                table.set_column(1, "domain", table["domain"].dictionary_encode()), chunk.watermark_ms
            ).tolist()
            == expected.tolist()
        )
        found = BloomFilter.together(BITS, [packed]).has(words_of(table, ["k"]))
        assert found[expected].all()
        if not expected.any():
            assert not found.any()
