"""A block of the log has the log's columns, also those that its file does not have or need not have."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.replay.intake import log_blocks
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import LogColumns
from windowlib.errors import LogError
from windowlib.records.column_types import field_node, parse_type

DAY = "2013-02-08"
NODES = {name: parse_type(kind) for name, kind in (("day", "string"), ("flight", "long"), ("new", "string"))}
FIELDS = [field_node(name, node) for name, node in NODES.items()]
READ = [{"day": DAY, "flight": number, "new": None} for number in range(7)]


def block_of(path: Path, *, stores_day: bool, records: int = 7) -> Block:
    """Return the block of a new file. Some writers store partition columns in the files as well."""
    columns = {"flight": pa.array(range(7))}
    if stores_day:
        columns = {"day": pa.array(["as stored"] * 7), **columns}
    pq.write_table(pa.table(columns), path)
    return Block(str(path), path.name, {"day": DAY}, 0, 0, 0, 0, 0, records)


@pytest.mark.parametrize("stores_day", [True, False])
@pytest.mark.parametrize("columns", [None, ["day"], ["flight"], ["new"], ["new", "day"]])
def test_any_columns_are_read_and_partition_columns_come_from_the_delta_log(
    tmp_path: Path, columns: list[str] | None, *, stores_day: bool
) -> None:
    log = LogColumns(uri=str(tmp_path), version=0, fields=FIELDS, rows_per_batch=3)
    found = list(log.batches(block_of(tmp_path / "a.parquet", stores_day=stores_day), columns))
    assert [one.num_rows for one in found] == [3, 3, 1]
    wanted = [name for name in NODES if columns is None or name in columns]
    assert [row for one in found for row in one.to_pylist()] == [{name: row[name] for name in wanted} for row in READ]


KINDS = (("timestamp", pa.timestamp("us", "UTC")), ("timestamp_ntz", pa.timestamp("us")), ("date", pa.date32()))


@pytest.mark.parametrize(("node", "kind"), KINDS)
@pytest.mark.parametrize(("days", "is_refused"), [((3, 3), False), ((), False), ((3, 4), True), ((2, 3), True),
                                                  ((3, None), True), ((3, 3_000_000), True)])  # fmt: skip
def test_records_outside_of_the_slice_that_the_statistics_tell_are_refused(
    tmp_path: Path, node: str, kind: pa.DataType, days: tuple[int | None, ...], *, is_refused: bool
) -> None:
    unit = 1 if node == "date" else 86_400_000_000
    values = pa.array([None if day is None else day * unit for day in days], kind)
    pq.write_table(pa.table({"at": values, "n": pa.array(range(len(days)))}), tmp_path / "a.parquet")
    fields = [field_node("at", node), field_node("n", "long")]
    log = LogColumns(uri=str(tmp_path), version=7, fields=fields, rows_per_batch=1, slice_column="at")
    block = Block(str(tmp_path / "a.parquet"), "a", {}, 0, 0, 0, 0, 0, len(days), within=(259_200_000, 345_600_000))
    assert sum(rows.num_rows for rows in log.batches(block, ["n"])) == len(days)
    for own in (block, block._replace(reorder_by=("n",))) if days else (block,):
        if is_refused:
            with pytest.raises(LogError, match=r"file a of event log .* has a record whose slice column 'at' is not"):
                list(log.batches(own))
        else:
            assert sum(rows.num_rows for rows in log.batches(own)) == len(days)


@pytest.mark.parametrize(("wide", "text"), [(100, "a"), (2, "a" * 5_000)])
def test_a_batch_of_wide_records_has_few_of_them(tmp_path: Path, wide: int, text: str) -> None:
    columns = {f"c{number}": pa.array([f"{text}{row}" for row in range(1_000)]) for number in range(wide)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", use_dictionary=False)
    block = Block(str(tmp_path / "a.parquet"), "a", {}, 0, 0, 0, 0, 0, records=1_000)
    fields = [field_node(name, "string") for name in columns]
    log = LogColumns(uri=str(tmp_path), version=0, fields=fields, rows_per_batch=10**6, batch_bytes=100_000)
    whole, narrow = list(log.batches(block)), list(log.batches(block, ["c0"]))
    assert all(10_000 < rows.nbytes <= 200_000 for rows in [*whole[:-1], *narrow[:-1]])
    assert len(narrow) * wide <= len(whole) + wide
    for found, names in ((whole, [*columns]), (narrow, ["c0"])):
        assert pa.Table.from_batches(found).to_pydict() == {name: columns[name].to_pylist() for name in names}


def test_each_leaf_of_a_nested_column_counts(tmp_path: Path) -> None:
    leaves = {f"f{number}": pa.array(range(1_000)) for number in range(60)}
    columns = {"s": pa.StructArray.from_arrays([*leaves.values()], [*leaves]), "s.f0": pa.array(range(1_000))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    block = Block(str(tmp_path / "a.parquet"), "a", {}, 0, 0, 0, 0, 0, records=1_000)
    fields = [
        field_node(name, parse_type(kind))
        for name, kind in (("s", f"struct<{','.join(f'{leaf}:bigint' for leaf in leaves)}>"), ("s.f0", "bigint"))
    ]
    log = LogColumns(uri=str(tmp_path), version=0, fields=fields, rows_per_batch=10**6, batch_bytes=48_000)
    for names, most in ((["s"], 110), (["s.f0"], 3_100)):
        batches = [*log.batches(block, names)]
        assert max(rows.num_rows for rows in batches) <= most
        assert sum(rows.num_rows for rows in batches) == 1_000


def test_a_file_that_is_one_too_many_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's words, when an unordered slice is divided into more ranges than a process may open files."""
    block, error = block_of(tmp_path / "a.parquet", stores_day=False), "Failed to open. Detail: [errno 24] Too many"

    def failing(*_: object, **__: object) -> None:
        raise OSError(error)

    monkeypatch.setattr(log_blocks, "open_parquet", failing)
    log = LogColumns(uri=str(tmp_path), version=3, fields=FIELDS, rows_per_batch=3)
    with pytest.raises(LogError, match=r"a.parquet .* cannot be read: Too many open files\. Raise .* \(ulimit -n\)"):
        list(log.batches(block))


def test_a_file_with_other_records_than_stated_is_refused(tmp_path: Path) -> None:
    log = LogColumns(uri=str(tmp_path), version=3, fields=FIELDS, rows_per_batch=3)
    with pytest.raises(LogError, match="holds 7 records, but by its statistics version 3 has 8"):
        list(log.batches(block_of(tmp_path / "a.parquet", stores_day=False, records=8)))
