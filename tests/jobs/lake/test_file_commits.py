"""Files that tasks write are committed once, are read by every reader, and have statistics that lose no row."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.lake.arrow_sql import query
from jobs.lake.file_commits import append_rows, commit_files, file_statistics, new_path
from jobs.lake.store import add_fields, ensure_table, read_attempts
from jobs.lake.table_files import TableFile
from tests.support.fuzzing import chances, seeds
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import StoreError
from windowlib.records import tables
from windowlib.records.column_types import Node, parse_type
from windowlib.records.tables import Table

KEYS = {"origin": "string"}
VALUES = {
    "total": "bigint",
    "edge": "bigint",
    "size": "double",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
}
TABLE = tables.window_outputs(KEYS, VALUES)
FILE = pa.schema(
    [
        ("origin", pa.string()),
        ("edge", pa.int64()),
        ("total", pa.int64()),
        ("size", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
    ]
)


def random_rows(chance: random.Random, count: int) -> pa.Table:
    """Return rows with nulls, long texts, extreme numbers and times of parts of milliseconds."""
    zero = datetime(1970, 1, 1, tzinfo=UTC)

    def row() -> dict[str, object]:
        at = zero + timedelta(microseconds=chance.randrange(-(10**16), 10**16))
        texts = [
            "",
            "a" * 31,
            "ü" * 40,
            "\U0010ffff" * 33 + "z",
            "z" * 32 + "\U0010ffff",
            chr(chance.randrange(1, 999)) * 33,
        ]
        return {
            "origin": chance.choice([None, *texts]),
            "edge": chance.choice([None, 0, 2**63 - 1, -(2**63), chance.randrange(99)]),
            "total": chance.randrange(9),
            "size": chance.choice([None, float("nan"), -0.0, 1.5, float("inf")]),
            "day": chance.choice([None, date(1, 1, 1), date(9999, 12, 31), at.date()]),
            "at": chance.choice([None, at]),
            "local": chance.choice([None, at.replace(tzinfo=None)]),
        }

    return pa.Table.from_pylist([row() for _ in range(count)], schema=FILE)


def write(root: Path, slice_id: str, rows: pa.Table, *, name: str = "part 1.parquet", group: int = 3) -> TableFile:
    """Write a file of an attempt 'a' below the root of a table, in row groups of a few rows."""
    path = new_path((slice_id, "a"), name)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, root / path, row_group_size=group)
    return TableFile(path, (slice_id, "a"))


def committed(root: Path, parts: Sequence[tuple[str, pa.Table]]) -> list[TableFile]:
    ensure_table(str(root), TABLE)
    files = [
        write(root, slice_id, rows, name=f"é %41 {number}.parquet") for number, (slice_id, rows) in enumerate(parts)
    ]
    return commit_files(str(root), files)


def _texts(rows: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows.select(FILE.names).to_pylist())


def test_every_reader_finds_the_rows_of_a_commit_of_files(tmp_path: Path) -> None:
    for seed in seeds(5):
        chance = random.Random(seed)
        root = tmp_path / str(seed)
        parts = [(f"2024-01-0{n}T05:15 x", random_rows(chance, 10)) for n in (1, 2, 2)]
        stored = committed(root, parts)
        assert DeltaTable(str(root)).version() == 1, "one commit creates the table, one adds all files"
        assert [(one.records, one.bytes) for one in stored] == [
            (10, (root / one.path).stat().st_size) for one in stored
        ]
        for slice_id in {slice_id for slice_id, _ in parts}:
            own = pa.concat_tables([rows for other, rows in parts if other == slice_id])
            assert _texts(read_attempts(str(root), [(slice_id, "a")])) == _texts(own)
            paths = [str(root / one.path) for one in stored if one.attempt[0] == slice_id]
            by_path = query({}, "SELECT * FROM read_parquet(?)", [paths]).select(FILE.names)
            assert by_path.num_rows == own.num_rows


def test_statistics_enclose_all_values(tmp_path: Path) -> None:
    for chance in chances(60):
        rows = random_rows(chance, chance.randrange(1, 12))
        pq.write_table(rows, tmp_path / "file", row_group_size=chance.randrange(1, 5))
        found = file_statistics(pq.read_metadata(tmp_path / "file"), max_text=chance.choice([1, 3, 32]))
        assert found["numRecords"] == rows.num_rows
        assert found["nullCount"] == {name: rows[name].null_count for name in FILE.names}
        least, most = found["minValues"], found["maxValues"]
        assert isinstance(least, dict)
        assert isinstance(most, dict)
        assert "size" not in least, "a footer does not tell whether there is a NaN"
        for name in set(FILE.names) - {"size"}:
            values = [value for value in rows[name].to_pylist() if value is not None]
            assert (name in least) == (name in most) == bool(values)
            for value in values:
                assert _parsed(least[name], value) <= value <= _parsed(most[name], value), name


def _parsed(bound: object, like: object) -> object:
    if isinstance(like, datetime):
        return datetime.fromisoformat(str(bound))
    return date.fromisoformat(str(bound)) if isinstance(like, date) else bound


@pytest.mark.slow
def test_no_file_is_skipped_by_a_filter_that_a_row_fulfils(tmp_path: Path) -> None:
    rows = random_rows(random.Random(3), 40)
    committed(tmp_path / "t", [("s", rows.slice(at, 4)) for at in range(0, 40, 4)])
    dataset = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    for name in ("origin", "edge", "total", "day", "at", "local"):
        for value in {one.as_py() for one in rows[name]} - {None}:
            wanted = pc.field(name) == pa.scalar(value, FILE.field(name).type)
            assert dataset.to_table(filter=wanted).num_rows == rows.filter(wanted).num_rows, (name, value)


RECORD: Node = {"type": "struct", "fields": [{"name": "id", "type": "string", "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize(
    ("table", "bounded"),
    [
        (tables.timers(KEYS), set()),
        (tables.user_state(KEYS), set()),
        (tables.watermarks(), set()),
        (tables.state_removals(), set()),
        (tables.tallies(), set()),
        (tables.quality_results(), set()),
        (tables.invalid_records(RECORD), set()),
        (tables.late_records(RECORD), {"event_time_ms"}),
        (tables.unassigned_records(RECORD), {"event_time_ms"}),
    ],
    ids=lambda one: one.name if isinstance(one, Table) else "",
)
def test_few_tables_have_bounds_of_columns(tmp_path: Path, table: Table, bounded: set[str]) -> None:
    """Delta reads the bounds of all files with each commit. Appended rows and committed files have the same."""
    uri = str(tmp_path / "t")
    ensure_table(uri, table)
    schema = pa.schema([(name, arrow_type(node)) for name, node in table.stored_columns().items()])
    plain = {field.name: 7 if pa.types.is_integer(field.type) else "x" for field in schema
             if pa.types.is_integer(field.type) or pa.types.is_string(field.type)}  # fmt: skip
    rows = pa.Table.from_pylist([plain], schema=schema)
    append_rows(uri, rows)
    commit_files(uri, [write(tmp_path / "t", "x", rows.drop_columns(list(tables.PARTITION_COLUMNS)))])
    adds = pa.table(DeltaTable(uri).get_add_actions(flatten=True))
    assert adds["num_records"].to_pylist() == [1, 1]
    for prefix in ("min", "max"):
        assert {name for name in adds.column_names if name.startswith(prefix)} == {f"{prefix}.{one}" for one in bounded}
        assert all(adds[f"{prefix}.{one}"].to_pylist() == [7, 7] for one in bounded)


def test_files_without_rows_are_not_added(tmp_path: Path) -> None:
    ensure_table(str(tmp_path / "t"), TABLE)
    assert commit_files(str(tmp_path / "t"), [write(tmp_path / "t", "s", FILE.empty_table())]) == []
    assert DeltaTable(str(tmp_path / "t")).version() == 0


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (pa.table({"other": [1]}), "the table has no column 'other'"),
        (pa.table({"total": ["1"]}), "column 'total' is string, and int64 in the table"),
    ],
)
def test_a_file_that_does_not_fit_the_table_is_refused(tmp_path: Path, rows: pa.Table, problem: str) -> None:
    ensure_table(str(tmp_path / "t"), TABLE)
    with pytest.raises(StoreError, match=problem):
        commit_files(str(tmp_path / "t"), [write(tmp_path / "t", "s", rows)])


STRUCTS = [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": None, "c": 3}]
"""The values of the column `s` of `committed_structs`."""


def committed_structs(root: Path, kind: str) -> list[TableFile]:
    """Commit two files whose structs have other fields than the table, with a type for the second file."""
    texts = ("struct<a:bigint,b:string>", f"struct<c:{kind},a:{kind}>")
    first, second = (replace(TABLE, content={"s": parse_type(text)}) for text in texts)
    ensure_table(str(root), first)
    add_fields(str(root), replace(TABLE, content={"s": parse_type("struct<a:bigint,b:string,c:bigint>")}))
    files = []
    for slice_id, table, value in (("0", first, {"a": 1, "b": "x"}), ("1", second, {"c": 3, "a": 2})):
        schema = pa.schema([("s", arrow_type(table.content["s"]))])
        files.append(write(root, slice_id, pa.Table.from_pylist([{"s": value}], schema)))
    return commit_files(str(root), files)


def test_the_fields_of_a_struct_are_found_by_name(tmp_path: Path) -> None:
    """A file may lack some, and have them in another order."""
    paths = [str(tmp_path / one.path) for one in committed_structs(tmp_path, "bigint")]
    assert sorted(read_attempts(str(tmp_path), [("0", "a"), ("1", "a")])["s"].to_pylist(), key=str) == STRUCTS
    by_name = query({}, "SELECT s FROM read_parquet(?, union_by_name=true)", [paths])
    assert sorted(by_name["s"].to_pylist(), key=str) == STRUCTS


def test_a_file_with_a_field_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"column 's' is struct<c: double, a: double>, and struct<a: int64, b"):
        committed_structs(tmp_path, "double")


def test_a_damaged_or_lost_new_file_is_named(tmp_path: Path) -> None:
    ensure_table(str(tmp_path / "t"), TABLE)
    file = write(tmp_path / "t", "s", random_rows(random.Random(1), 5))
    (tmp_path / "t" / file.path).write_bytes(b"PAR1")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"the new file .*part 1\.parquet cannot be read"):
            commit_files(str(tmp_path / "t"), [file])
        (tmp_path / "t" / file.path).unlink(missing_ok=True)


def test_files_can_lack_columns_and_follow_other_commits(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ensure_table(uri, TABLE)
    append_rows(uri, pa.table({"origin": ["a"], "slice_id": ["s"], "attempt_id": ["a"]}))
    commit_files(uri, [write(tmp_path / "t", "s", pa.table({"origin": ["b"]}))])
    append_rows(uri, pa.table({"origin": ["c"], "slice_id": ["s"], "attempt_id": ["a"]}))
    found = read_attempts(uri, [("s", "a")], ["origin", "total"])
    assert sorted(found["origin"].to_pylist()) == ["a", "b", "c"]
    assert found["total"].null_count == 3
