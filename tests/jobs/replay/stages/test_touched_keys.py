"""The keys that a chunk may change: those of its records, and those with a timer that it reaches."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from jobs.lake.checkpoint_rows import PartFiles
from jobs.lake.table_files import TableFile
from jobs.replay.intake.intake import take_in
from jobs.replay.pinned import pin
from jobs.replay.stages.bloom_filter import BloomFilter
from jobs.replay.stages.counted import block_groups, scan_plan
from jobs.replay.stages.scan import scan
from jobs.replay.stages.touched_keys import TouchedFilter, reached_keys, reached_timers, words_of
from jobs.replay.tasks import LocalTasks
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import order_of, pipeline_of

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


FILES = 60
SMALL_FILES = """
pipeline: small_files
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  slice: {by: day}
watermark: {kind: bounded, out_of_orderness: 1h}
windows: {tumbling: {size: 1h}}
aggregates: {n: {count: {}}}
"""


def test_a_scan_task_makes_one_set_of_the_keys_of_all_its_files(tmp_path: Path) -> None:
    """The driver holds the sets of all tasks: one for each file would be gigabytes for a day of micro-batches."""
    keys = pa.array(range(FILES), pa.int64())
    table = pa.table({"k": keys, "at": keys, "file": keys, "day": [date(1970, 1, 1)] * FILES})
    write_deltalake(str(tmp_path / "log"), table, partition_by=["day", "file"])
    track_rows(tmp_path / "log")
    chunk = pin(order_of(tmp_path, pipeline_of(SMALL_FILES), ("1970-01-01", "1970-01-02"))).chunk_log
    layout = take_in(LocalTasks(), chunk, directory=str(tmp_path), records_per_block=100).layout
    assert len(layout.blocks) == FILES
    for files_per_task in (1, 7, FILES):
        plan = replace(scan_plan(chunk, layout, str(tmp_path)), key_bits=BITS, feeds=True)
        groups = block_groups(layout.blocks, records=files_per_task)
        packed = [block.keys for blocks in groups for block in scan(blocks, plan) if block.keys is not None]
        assert len(packed) == len(groups)
        assert BloomFilter.together(BITS, packed).has(words_of(table, ["k"])).all()
