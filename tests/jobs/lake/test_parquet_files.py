"""A flipped bit in a page of a Parquet file is an error that names the file, whoever reads it. All our files have them.

Defect: a flip in the values of a column changed what was read, and nothing reported it.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.lake.checkpoint_rows import checkpoint_files
from jobs.lake.damage import data_problem
from jobs.lake.delta_log import describe_log
from jobs.lake.file_commits import append_rows, commit_files, new_path
from jobs.lake.log_files import DeltaCheckpoint, LogFiles, checkpoint_entries
from jobs.lake.log_rows import find_records
from jobs.lake.parquet_files import open_parquet, scratch_writer, write_parquet
from jobs.lake.store import attempt_batches, ensure_table, read_attempts
from jobs.lake.table_files import TableFile
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import LogColumns
from jobs.replay.stages.parquet_writer import SliceWriter
from tests.support.flipped_bits import bits_in_pages, flip, last_bits
from tests.support.fuzzing import seeds
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import HindcastError, LogError
from windowlib.records import tables
from windowlib.records.column_types import field_node, parse_type

TABLE = tables.window_outputs({"k": "bigint"}, {"n": "bigint", "text": "string", "size": "double"})
ATTEMPT = ("2024-01-01", "a" * 32)
STORED = {name: node for name, node in TABLE.stored_columns().items() if name not in tables.PARTITION_COLUMNS}
"""The columns that are in the files."""
COUNT = 500


def stored_rows(random: Random, *, slice_id: str = ATTEMPT[0]) -> pa.Table:
    """Return rows with all columns of the table."""
    values: dict[str, Callable[[], object]] = {
        "long": lambda: random.randrange(1 << 40),
        "double": random.random,
        "string": lambda: random.choice(["ab", "cd", "é" * 30]),
        "boolean": lambda: random.random() < 0.5,
        "integer": lambda: random.randrange(9),
        "timestamp": lambda: datetime.fromtimestamp(random.randrange(1 << 30), UTC),
    }
    placed = {"slice_id": slice_id, "attempt_id": ATTEMPT[1]}
    columns = {
        name: pa.array([placed.get(name) or values[str(node)]() for _ in range(COUNT)], arrow_type(node))
        for name, node in TABLE.stored_columns().items()
    }
    return pa.table(columns)


def with_checksums(root: Path, random: Random) -> Path:
    """Make a table with a file of one attempt, as Spark and others write it: uncompressed, with page checksums."""
    ensure_table(str(root), TABLE)
    file = TableFile(new_path(ATTEMPT, "part.parquet"), ATTEMPT)
    place = root / file.path
    place.parent.mkdir(parents=True)
    rows = stored_rows(random).drop_columns([*tables.PARTITION_COLUMNS])
    pq.write_table(rows, place, write_page_checksum=True, use_dictionary=["text"], compression="none")
    commit_files(str(root), [file])
    return place


def read_rows(root: Path, _file: Path) -> object:
    return read_attempts(str(root), [ATTEMPT]).to_pydict()


def read_batches(root: Path, _file: Path) -> object:
    return [batch.to_pydict() for batch in attempt_batches(str(root), [ATTEMPT], [*STORED], rows=100)]


def read_part(root: Path, _file: Path) -> object:
    files = checkpoint_files(str(root), [ATTEMPT])
    return [batch.to_pydict() for _, batch in files.batches([*STORED], rows=100, may_have=lambda _bounds: True)]


def find_row(root: Path, _file: Path) -> object:
    return next(find_records(describe_log(str(root)), "attempt_id", ATTEMPT[1]), None)


def read_block(root: Path, file: Path) -> object:
    block = Block(str(file), file.name, {}, 0, 0, 0, 0, 0, COUNT)
    log = LogColumns(
        uri=str(root), version=1, fields=[field_node(name, node) for name, node in STORED.items()], rows_per_batch=100
    )
    return [batch.to_pydict() for batch in log.batches(block)]


READERS: Mapping[str, Callable[[Path, Path], object]] = {
    one.__name__: one for one in (read_rows, read_batches, read_part, find_row, read_block)
}


@pytest.mark.parametrize("reader", READERS)
def test_a_flipped_bit_of_a_page_is_an_error_that_names_the_file(tmp_path: Path, reader: str) -> None:
    for seed in seeds(2):
        random, root = Random(seed), tmp_path / f"{seed}"
        file = with_checksums(root, random)
        expected = READERS[reader](root, file)
        named = refused = 0
        for bit in bits_in_pages(file, random, 40):
            good = flip(file, bit)
            try:
                assert READERS[reader](root, file) == expected, f"seed {seed}: bit {bit} is silent"
            except HindcastError as error:
                named += file.name in str(error) and "\n" not in str(error)
                refused += 1
            finally:
                file.write_bytes(good)
        assert named == refused >= 10, f"seed {seed}"


def test_the_search_for_the_damaged_file_finds_a_flipped_bit(tmp_path: Path) -> None:
    file = with_checksums(tmp_path / "t", Random(1))
    assert data_problem(file) is None
    flip(file, 8 * 1000)
    assert "CRC checksum verification failed" in str(data_problem(file))


def test_a_flipped_bit_of_a_checkpoint_of_delta_is_an_error(tmp_path: Path) -> None:
    """Spark writes checkpoints with page checksums."""
    file = tmp_path / "00000000000000000001.checkpoint.parquet"
    adds = [{"path": f"part-{number}.parquet", "baseRowId": 10 * number} for number in range(COUNT)]
    pq.write_table(pa.table({"add": adds}), file, write_page_checksum=True, use_dictionary=False, compression="none")
    checkpoint = DeltaCheckpoint(version=1, paths=(str(file),))
    files = LogFiles(uri="log", system=pafs.LocalFileSystem(), root="", commits={}, checkpoint=checkpoint)
    columns = ("add.path", "add.baseRowId")
    assert [entry["add"] for entry in checkpoint_entries(files, columns)] == adds
    flip(file, 8 * (file.read_bytes().index(b"part-7.") + 5))
    with pytest.raises(LogError, match=r"event log log: reading its checkpoint failed: .*CRC checksum"):
        list(checkpoint_entries(files, columns))


def pages_without_checksum(file: Path) -> list[str]:
    """Flip the last bit of each column of a file; return the columns of which no checksum reports it."""
    silent = []
    for name, bit in last_bits(file).items():
        good = flip(file, bit)
        try:
            pq.ParquetFile(file, page_checksum_verification=True).read()
            silent.append(name)
        except (OSError, pa.ArrowException) as error:
            if "CRC" not in str(error):
                silent.append(name)
        finally:
            file.write_bytes(good)
    return silent


def row_file(root: Path) -> Path:
    columns = {"slice_id": ATTEMPT[0], "attempt_id": ATTEMPT[1], "run_id": "r"}
    files = SliceWriter(table=TABLE, root=str(root), columns=columns, rows_per_file=COUNT)
    files.write(stored_rows(Random(2)))
    files.close()
    return root / files.written[0].file.path


def appended(root: Path) -> Path:
    ensure_table(str(root), TABLE)
    append_rows(str(root), stored_rows(Random(2)))
    return Path(DeltaTable(str(root)).file_uris()[0].removeprefix("file://"))


def of_any_rows(root: Path) -> Path:
    root.mkdir()
    write_parquet(str(root / "any.parquet"), stored_rows(Random(2)))
    return root / "any.parquet"


@pytest.mark.parametrize("write", [row_file, appended, of_any_rows], ids=lambda one: one.__name__)
def test_each_page_that_we_write_has_a_checksum(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    assert pages_without_checksum(write(tmp_path / "t")) == []


def test_the_check_for_checksums_finds_pages_without(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [*range(9)]}), tmp_path / "file", compression="none")
    assert pages_without_checksum(tmp_path / "file") == ["k"]


def test_rows_of_several_attempts_are_appended_in_one_commit(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ensure_table(uri, TABLE)
    parts = {slice_id: stored_rows(Random(number), slice_id=slice_id) for number, slice_id in enumerate("abc")}
    mixed = pa.concat_tables([parts["a"].slice(0, 7), *parts.values(), parts["c"].slice(3, 9)])
    append_rows(uri, mixed)
    assert DeltaTable(uri).version() == 1
    assert len(DeltaTable(uri).file_uris()) == 3
    expected = {"a": 7 + COUNT, "b": COUNT, "c": COUNT + 9}
    for slice_id, count in expected.items():
        found = read_attempts(uri, [(slice_id, ATTEMPT[1])], mixed.column_names)
        own = mixed.filter(pc.equal(mixed["slice_id"], slice_id))
        assert found.num_rows == count
        assert found.cast(own.schema).to_pydict() == own.to_pydict()


def test_a_file_for_a_later_task_has_every_value_bit_by_bit(tmp_path: Path) -> None:
    """Numbers, and numbers in nested values, are stored byte by byte. Nulls and NaN with a payload stay as they are."""
    kinds = [*map(arrow_type, map(parse_type, SIMPLE))]
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0123))[0]
    hard: dict[str, list[Any]] = {"double": [nan, -0.0, 5e-324, None], "float": [-0.0, 1e-45, None]}
    for seed in seeds(10):
        random = Random(seed)
        columns: dict[str, pa.Array] = {}
        for number, kind in enumerate(kinds):
            values = hard.get(str(kind), [None, 0, 1, 100])
            drawn = [random.choice(values) for _ in range(20)]
            plain = pa.array(drawn, kind)
            columns[f"a.{number}"] = plain
            columns[f"list {number}"] = pa.array([[value] * (value is not None) for value in drawn], pa.list_(kind))
            columns[f"struct {number}"] = pa.StructArray.from_arrays([plain], ["x"])
        columns["s"] = pa.StructArray.from_arrays([pa.array(["text"] * 20)], ["b"])
        columns["s.b"] = pa.array(range(20))  # the same path as the text
        table = pa.table(columns)
        place = str(tmp_path / f"{seed}.parquet")
        with scratch_writer(place, table.schema, bounded=["a.0"]) as writer:
            writer.write_table(table)
        read = open_parquet(place).read()
        for name in table.schema.names:
            ours, theirs = (one.column(name).combine_chunks() for one in (table, read))
            assert [*map(str, ours.to_pylist())] == [*map(str, theirs.to_pylist())], f"seed {seed}: {name}"
        bits = [one.column("a.5").combine_chunks().drop_null().view(pa.int64()) for one in (table, read)]
        assert bits[0] == bits[1], f"seed {seed}: the bits of doubles"


SIMPLE = ("tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz")
