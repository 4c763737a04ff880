"""Rows of a bucket become Parquet files where the run of their slice is known, and else shuffle files. None is lost."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.replay.stages.parquet_writer import KnownRun, RowSink, SliceWriter, close_sinks
from jobs.replay.stages.shuffle_files import ShuffleWriter, read_shuffled
from tests.support.fuzzing import seeds
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables

TABLE = tables.window_outputs({"k": "bigint"}, {"n": "bigint"})
COLUMNS = {"slice_id": "2024-01-01", "attempt_id": "a" * 32, "run_id": "b" * 32}


def rows_of(numbers: range) -> pa.Table:
    kinds = {name: arrow_type(node) for name, node in TABLE.emitted_columns().items()}
    columns = {name: pa.nulls(len(numbers), kind) for name, kind in kinds.items()}
    return pa.table({**columns, "n": pa.array([*numbers], pa.int64())})


def known_run(root: Path, *, rows_from: int, rows_per_file: int) -> KnownRun:
    return KnownRun(
        columns=COLUMNS, roots={TABLE.name: str(root / TABLE.name)}, rows_from=rows_from, rows_per_file=rows_per_file
    )


def parts(random: Random, total: int) -> Iterator[range]:
    start = 0
    while start < total:
        end = min(total, start + random.randint(1, 9))
        yield range(start, end)
        start = end


@pytest.mark.slow
def test_every_row_is_in_one_file_or_fragment(tmp_path: Path) -> None:
    for seed in seeds(60):
        directory = tmp_path / str(seed)
        directory.mkdir()
        check_every_row(directory, Random(seed))


def check_every_row(directory: Path, random: Random) -> None:
    rows_from, rows_per_file = random.randint(0, 30), random.randint(9, 40)
    known = known_run(directory, rows_from=rows_from, rows_per_file=rows_per_file)
    shuffled = ShuffleWriter(str(directory), "rows")
    sink = RowSink(table=TABLE, known=random.choice([known, known, None]), shuffled=shuffled, bucket=3)
    total = {slice_no: random.randint(0, 60) for slice_no in (0, 1)}
    for slice_no, count in total.items():
        for numbers in parts(random, count):
            sink.write(rows_of(numbers), slice_no=slice_no)
    close_sinks([sink])

    found: dict[int, list[int]] = {0: [], 1: []}
    for entry, batch in read_shuffled(shuffled.shuffled):
        assert entry.bucket == 3
        found[entry.slice_no] += batch.column("n").to_pylist()
    for written in sink.files:
        rows = pq.read_table(directory / TABLE.name / written.file.path, partitioning=None)
        assert rows.num_rows <= max(rows_per_file, rows_from + 9)
        assert set(rows["run_id"].to_pylist()) == {COLUMNS["run_id"]}
        assert not {*tables.PARTITION_COLUMNS} & {*rows.column_names}
        found[0] += rows["n"].to_pylist()
    assert found == {slice_no: [*range(count)] for slice_no, count in total.items()}
    assert bool(sink.files) == (sink.known is not None and total[0] >= max(rows_from, 1))


def test_the_files_of_a_failed_attempt_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    known = known_run(tmp_path, rows_from=1, rows_per_file=10)
    for other in (None, "c" * 32):
        sink = RowSink(table=TABLE, known=known, shuffled=ShuffleWriter(str(tmp_path), "rows"), bucket=0)
        sink.write(rows_of(range(5)), slice_no=0)
        close_sinks([sink])
        stays = tmp_path / TABLE.name / "slice_id=2024-01-01" / f"attempt_id={other}" / "part.parquet"
        if other is not None:
            stays.parent.mkdir()
            stays.touch()
        known.remove()
        left = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert left == ([] if other is None else [stays])
        assert (tmp_path / TABLE.name).exists() == (other is not None)


def test_numbers_of_a_state_are_stored_as_differences_and_its_hashes_as_they_are(tmp_path: Path) -> None:
    """Also those inside structs and lists. Compressed plain numbers take three times as long to read."""
    table = tables.window_state({"k": "bigint"}, {"n": {"count": "bigint"}, "t": {"total": "decimal(38,0)"}})
    random = Random(1)
    count = 300
    item = {"slice_start_ms": 1, "rank": 2, "event_time_ms": 3, "edge_id": 4, "value": "five"}
    values = {
        "k": [*range(count)],
        "acc_n": [random.choice([None, {"count": number}]) for number in range(count)],
        "acc_t": [{"total": Decimal(number) ** 9} for number in range(count)],
        "contents": [random.choice([None, [], [item] * random.randrange(4)]) for _ in range(count)],
        "trigger_state": ["{}"] * count,
        "edge_xor": [random.getrandbits(60) for _ in range(count)],
    }
    kinds = {name: arrow_type(node) for name, node in table.emitted_columns().items()}
    rows = pa.table({name: pa.array(values.get(name, [None] * count), kind) for name, kind in kinds.items()})
    files = SliceWriter(table=table, root=str(tmp_path), columns=COLUMNS, rows_per_file=count)
    files.write(rows)
    files.close()
    [written] = files.written
    path = tmp_path / written.file.path
    assert pq.read_table(path, partitioning=None).drop_columns(["run_id"]).to_pylist() == rows.to_pylist()
    group = pq.ParquetFile(path).metadata.row_group(0)
    stored = {one.path_in_schema: one for one in map(group.column, range(group.num_columns))}
    differences = {name for name, one in stored.items() if "DELTA_BINARY_PACKED" in one.encodings}
    assert {"k", "acc_n.count", "contents.list.element.rank", "key_group", "edge_count"} <= differences
    assert not differences & {"edge_xor", "row_id", "row_check", "acc_t.total", "trigger_state"}
    for name, one in stored.items():
        is_plain = name in differences | {"edge_xor", "edge_sum", "row_id", "row_check"}
        assert one.compression == ("UNCOMPRESSED" if is_plain else "ZSTD")


def test_bounds_of_timers_are_stored(tmp_path: Path) -> None:
    """A chunk skips timers by them. Other flat tables have bounds of their keys and times only."""
    table = tables.timers({"k": "bigint"})
    kinds = {name: arrow_type(node) for name, node in table.emitted_columns().items()}
    values = {"k": [4, 2], "domain": ["event", "event"], "at_ms": [7, -5]}
    files = SliceWriter(table=table, root=str(tmp_path), columns=COLUMNS, rows_per_file=9)
    files.write(pa.table({name: pa.array(values.get(name, [1, 1]), kind) for name, kind in kinds.items()}))
    files.close()
    group = pq.ParquetFile(tmp_path / files.written[0].file.path).metadata.row_group(0)
    bounds = {
        one.path_in_schema: (one.statistics.min, one.statistics.max)
        for one in map(group.column, range(group.num_columns))
        if one.is_stats_set
    }
    windows = {"window_start_ms": (1, 1), "window_end_ms": (1, 1)}
    assert bounds == {"k": (2, 4), "domain": ("event", "event"), "at_ms": (-5, 7), **windows}


def test_a_column_without_nulls_is_stored_as_one_and_later_nulls_are_in_another_file(tmp_path: Path) -> None:
    """A Parquet writer marks each value of a nullable column as one that is not null, which takes time."""
    files = SliceWriter(table=TABLE, root=str(tmp_path), columns=COLUMNS, rows_per_file=1_000)
    filled = rows_of(range(3)).set_column(0, "k", pa.array([7, 8, 9], pa.int64()))
    for rows in (filled, filled, rows_of(range(3, 6)), filled):
        files.write(rows)
    files.close()
    first, second = (pq.ParquetFile(tmp_path / written.file.path) for written in files.written)
    assert [(file.metadata.num_rows, file.metadata.num_row_groups) for file in (first, second)] == [(6, 2), (6, 2)]
    assert [file.schema_arrow.field("k").nullable for file in (first, second)] == [False, True]
    assert not first.schema_arrow.field("n").nullable
    assert first.schema_arrow.field("is_last").nullable
    assert second.read(["k", "n"]).to_pydict() == {"k": [None] * 3 + [7, 8, 9], "n": [3, 4, 5, 0, 1, 2]}


def test_nulls_that_come_and_go_begin_at_most_one_file_for_each_column(tmp_path: Path) -> None:
    """A file whose columns were nullable for one call only would end with the next one."""
    files = SliceWriter(table=TABLE, root=str(tmp_path), columns=COLUMNS, rows_per_file=1_000)
    whole = rows_of(range(1)).set_column(0, "k", pa.array([7], pa.int64()))
    without_k, without_n = rows_of(range(1)), whole.set_column(whole.column_names.index("n"), "n", pa.nulls(1))
    for rows in (whole, *[without_k, without_n] * 9):
        files.write(rows)
    files.close()
    counts = [pq.read_metadata(tmp_path / written.file.path).num_rows for written in files.written]
    assert counts == [1, 1, 17]
