"""Rows of DataFrames become files of their slices, wherever Spark cuts the batches."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.replay.frames.table_writes import written_files
from tests.support.fuzzing import seeds
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables

TABLE = tables.window_outputs({"k": "bigint"}, {"n": "bigint"})


def test_every_row_is_in_one_file_of_its_slice(tmp_path: Path) -> None:
    for seed in seeds(40):
        random, root = Random(seed), tmp_path / str(seed)
        numbers = sorted(random.choices(range(4), k=random.randint(0, 60)))
        runs = {number: _columns(number) for number in range(4)}
        most = random.randint(1, 20)
        files = [*written_files(_batches(numbers, random), TABLE, str(root), runs=runs, rows_per_file=most)]
        assert len({file.path for file in files}) == len(files)
        found = [(int(file.attempt[0]), n) for file in files for n in pq.read_table(root / file.path)["n"].to_pylist()]
        assert sorted(found, key=lambda one: one[1]) == [(number, place) for place, number in enumerate(numbers)]


def _columns(number: int) -> dict[str, str]:
    return {"slice_id": str(number), "attempt_id": "a" * 32, "run_id": "b" * 32}


def _batches(numbers: list[int], random: Random) -> list[pa.RecordBatch]:
    kinds = {name: arrow_type(node) for name, node in TABLE.emitted_columns().items()}
    columns = {name: pa.nulls(len(numbers), kind) for name, kind in kinds.items()}
    rows = {"slice_no": pa.array(numbers, pa.int32()), **columns, "n": pa.array(range(len(numbers)), pa.int64())}
    batches: list[pa.RecordBatch] = pa.table(rows).combine_chunks().to_batches(max_chunksize=random.randint(1, 15))
    return batches
