"""Rows of side tables get the records at their ranks, however few of them are put together."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import LogColumns
from jobs.replay.stages.side_records import SideRecords
from tests.support.fuzzing import seeds
from windowlib.records import tables
from windowlib.records.column_types import field_node, parse_type, struct_type

NODES = {"n": parse_type("bigint"), "text": parse_type("string")}
UNASSIGNED = tables.unassigned_records(struct_type(NODES))


def blocks_of(directory: Path, random: Random) -> list[Block]:
    """Write files of records, whose `n` is their rank."""
    blocks: list[Block] = []
    rank = 0
    for number in range(random.randint(1, 4)):
        count = random.randint(1, 12)
        ranks = range(rank, rank + count)
        path = directory / f"{number}.parquet"
        pq.write_table(pa.table({"n": pa.array(ranks, pa.int64()), "text": [f"text {n}" * 9 for n in ranks]}), path)
        blocks.append(Block(str(path), path.name, {}, 0, 0, rank, rank, 0, count))
        rank += count
    return blocks


def test_each_row_gets_the_record_of_its_rank_in_parts_of_bounded_size(tmp_path: Path) -> None:
    """An array of texts in Arrow has at most 2 GB, so neither the records of a block nor the rows are one array."""
    most_parts = 0
    for seed in seeds(60):
        random, directory = Random(seed), tmp_path / str(seed)
        directory.mkdir()
        blocks = blocks_of(directory, random)
        records = sum(block.records for block in blocks)
        ranks = random.choices(range(records), k=random.randint(0, 2 * records))
        batches = []
        for cut in range(0, len(ranks), 5):
            own = pa.array(ranks[cut : cut + 5], pa.int64())
            batches.append(pa.RecordBatch.from_pydict({"rank": own, "record_hash": own, "event_time_ms": own}))
        random.shuffle(blocks)
        log = LogColumns(
            uri=str(directory),
            version=0,
            fields=[field_node(name, node) for name, node in NODES.items()],
            rows_per_batch=random.randint(1, 9),
        )
        whole = SideRecords(log=log, names={name: name for name in NODES}, record_id=random.choice((None, "n")))
        parts = [*replace(whole, bytes_at_once=random.choice((0, 300, 2_000))).attached(UNASSIGNED, batches, blocks)]
        most_parts = max(most_parts, len(parts))
        assert [n for part in parts for n in part["rank"].to_pylist()] == sorted(ranks), f"seed {seed}"
        assert [n for part in parts for n in part["record"].to_pylist()] == [
            {"n": rank, "text": f"text {rank}" * 9} for rank in sorted(ranks)
        ], f"seed {seed}"
        together = [*whole.attached(UNASSIGNED, batches, blocks)]
        assert len(together) == bool(ranks)
        if ranks:
            assert pa.concat_tables(parts).combine_chunks() == together[0].combine_chunks(), f"seed {seed}"
    assert most_parts > 3
