"""Tables that several writers create and widen at once, columns that change their role, and damaged files."""

import json
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.delta_tables import expect_commits, forget_table, open_table, opening_tables_once
from jobs.lake.file_commits import append_rows
from jobs.lake.store import add_fields, dataset_of, ensure_table, read_attempts
from tests.support.fuzzing import chances, seeds
from windowlib.errors import SpecError, StoreError
from windowlib.records import tables
from windowlib.records.tables import Table

WRITERS = 6
KEYS = {"origin": "string"}


def rows_of(slice_id: str, columns: Mapping[str, object] | None = None, *, count: int = 3) -> pa.Table:
    named = {"origin": [f"k{i}" for i in range(count)], "slice_id": [slice_id] * count, "attempt_id": ["a"] * count}
    return pa.table({**named, **{name: [value] * count for name, value in (columns or {}).items()}})


def at_once(work: Callable[[int], None], writers: int = WRITERS) -> None:
    """Run the work of all writers at the same moment; raise the first exception of any of them."""
    barrier = Barrier(writers)

    def one(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(writers) as pool:
        for done in [pool.submit(one, number) for number in range(writers)]:
            done.result()


def test_a_read_gives_the_rows_of_the_attempts_and_opens_no_other_file(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    written = [(f"s{number // 2}", f"a'{number % 3} b") for number in range(12)]
    for place, (slice_id, attempt_id) in enumerate(written):
        rows = {"slice_id": [slice_id] * 2, "attempt_id": [attempt_id] * 2, "row": [place, -place]}
        write_deltalake(uri, pa.table(rows), mode="append", partition_by=["slice_id", "attempt_id"])
    for seed in seeds(40):
        chance = random.Random(seed)
        asked = [*chance.sample(written, chance.randrange(12)), *[("s9", "a'1 b")] * chance.randrange(2)]
        expected = sorted(row for place, pair in enumerate(written) if pair in asked for row in (place, -place))
        found = read_attempts(uri, asked, ["row"])
        assert sorted(found["row"].to_pylist() if found.column_names else []) == expected, f"seed {seed}"
    table = open_table(uri)
    assert table is not None
    assert len(dataset_of(table, written[:3]).files) == 3
    assert open_table(str(tmp_path / "none")) is None


def test_a_piece_of_work_opens_each_table_once_and_sees_newer_commits_when_it_asks(tmp_path: Path) -> None:
    uri, later = str(tmp_path / "t"), str(tmp_path / "later")
    ensure_table(uri, tables.window_outputs(KEYS, {}))

    def count(uri: str) -> int:
        return int(read_attempts(uri, [("s0", "a")]).num_rows)

    with opening_tables_once(), ThreadPoolExecutor(1) as other:
        assert (count(uri), count(later)) == (0, 0)
        other.submit(append_rows, uri, rows_of("s0")).result()
        other.submit(ensure_table, later, tables.window_outputs(KEYS, {})).result()
        other.submit(append_rows, later, rows_of("s0")).result()
        first = open_table(uri)
        assert (count(uri), count(later), other.submit(count, uri).result()) == (0, 0, 3)
        expect_commits()
        assert (count(uri), count(later)) == (3, 3)
        append_rows(uri, rows_of("s0"))  # its own commits are seen at once
        assert count(uri) == 6
        assert open_table(uri) is first
    with ThreadPoolExecutor(1) as other:
        other.submit(append_rows, uri, rows_of("s0")).result()
    assert count(uri) == 9, "outside, each read sees the newest commits"


@pytest.mark.parametrize("turn", range(8))
def test_a_table_that_several_writers_create_at_once_exists_once(tmp_path: Path, turn: int) -> None:
    uri = str(tmp_path / f"t{turn}")
    at_once(lambda _number: ensure_table(uri, tables.timers(KEYS)))
    names = [field.name for field in DeltaTable(uri).schema().fields]
    assert names == list(tables.timers(KEYS).stored_columns())


@pytest.mark.parametrize("turn", range(8))
def test_a_table_that_several_writers_widen_and_fill_gets_all_columns_and_rows(tmp_path: Path, turn: int) -> None:
    uri = str(tmp_path / f"t{turn}")
    ensure_table(uri, tables.window_outputs(KEYS, {"total": "bigint"}))

    def widen_and_fill(number: int) -> None:
        ensure_table(uri, tables.window_outputs(KEYS, {"total": "bigint", f"more_{number}": "double"}))
        append_rows(uri, rows_of(f"s{number}", {f"more_{number}": 0.5}))

    at_once(widen_and_fill)
    found = read_attempts(uri, [(f"s{number}", "a") for number in range(WRITERS)])
    assert found.num_rows == 3 * WRITERS
    assert {f"more_{number}" for number in range(WRITERS)} <= set(found.column_names)


def test_a_column_whose_name_is_damaged_in_the_log_is_not_added_again(tmp_path: Path) -> None:
    uri, table = str(tmp_path / "t"), tables.window_outputs(KEYS, {"total": "bigint"})
    ensure_table(uri, table)
    append_rows(uri, rows_of("s0", {"total": 5, "record_count": 1}))
    [commit] = (tmp_path / "t/_delta_log").glob("*0.json")
    commit.write_bytes(commit.read_bytes().replace(b"record_count", b"record_aount"))
    with pytest.raises(StoreError, match=r"has no column record_count, but its file slice_id=s0.* is damaged"):
        ensure_table(uri, table)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_writer_that_is_always_second_gets_an_error(
    tmp_path: Path, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake.exceptions import CommitFailedError

    tries = []

    def refused(*_args: object, **_named: object) -> None:
        tries.append(1)
        raise CommitFailedError("somebody else was first")

    def searched(uri: str, *_args: object) -> None:
        raise AssertionError(f"{uri} was searched for a damaged file")

    monkeypatch.setattr(DeltaTable, "create", refused)
    monkeypatch.setattr("jobs.lake.damage.damaged_file", searched)
    with pytest.raises(StoreError, match=rf"another process committed first {attempts} times in a row"):
        ensure_table(str(tmp_path / "t"), tables.timers(KEYS), attempts=attempts)
    assert len(tries) == attempts


def test_a_value_column_cannot_become_a_key_column(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ensure_table(uri, tables.window_outputs(KEYS, {"carrier": "string"}))
    append_rows(uri, rows_of("s0", {"carrier": "HA"}))
    with pytest.raises(SpecError, match=r"'carrier' of table .* was a value column, and the spec now makes it a key"):
        ensure_table(uri, tables.window_outputs({**KEYS, "carrier": "string"}, {"total": "bigint"}))


def test_a_column_that_differs_in_case_only_from_a_stored_one_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    ensure_table(uri, tables.window_outputs(KEYS, {"total": "bigint"}))
    append_rows(uri, rows_of("s0", {"total": 5}))
    with pytest.raises(SpecError, match=r"'Total' differs in case only from column 'total' of table .*; use that name"):
        ensure_table(uri, tables.window_outputs(KEYS, {"Total": "bigint"}))


def test_a_column_that_no_file_has_gets_another_type_role_or_case(tmp_path: Path) -> None:
    """Defect: a column of a cancelled candidate kept its type for ever."""
    uri = str(tmp_path / "t")
    ensure_table(uri, tables.window_outputs(KEYS, {"total": "bigint", "tried": "bigint"}))
    append_rows(uri, rows_of("s0", {"total": 5}))
    append_rows(uri, rows_of("s1", {"tried": 7}))
    before = DeltaTable(uri).metadata().configuration
    with pytest.raises(SpecError, match="It keeps its type as long as a row has it"):
        ensure_table(uri, tables.window_outputs(KEYS, {"total": "bigint", "tried": "double"}))
    DeltaTable(uri).delete("slice_id = 's1'")
    ensure_table(uri, tables.window_outputs(KEYS, {"total": "bigint", "tried": "double", "more": "string"}))
    append_rows(uri, rows_of("s2", {"tried": 0.5}))
    old, new = (
        read_attempts(uri, [(slice_id, "a")], ["total", "tried", "more"]).to_pylist()[0] for slice_id in ("s0", "s2")
    )
    assert (old, new) == ({"total": 5, "tried": None, "more": None}, {"total": None, "tried": 0.5, "more": None})
    assert DeltaTable(uri).metadata().configuration == before
    DeltaTable(uri).delete("slice_id = 's2'")
    ensure_table(uri, tables.window_outputs({**KEYS, "Tried": "string"}, {"total": "bigint"}))
    assert "Tried" in {field.name for field in DeltaTable(uri).schema().fields}


def test_a_later_spec_may_add_or_drop_a_key_column(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    two = {**KEYS, "carrier": "string"}
    for keys in (KEYS, two, KEYS, two):
        ensure_table(uri, tables.window_outputs(keys, {"total": "bigint"}))
    assert {"origin", "carrier"} <= {field.name for field in DeltaTable(uri).schema().fields}


def test_roles_stay_when_fields_are_added(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    kinds = ("struct<a:int>", "struct<a:int,b:string>")
    for kind in kinds:
        table = tables.window_outputs(KEYS, {"total": "bigint", "pair": kind})
        ensure_table(uri, table)
        add_fields(uri, table)
    fields = {one["name"]: one for one in json.loads(DeltaTable(uri).schema().to_json())["fields"]}
    assert [field["name"] for field in fields["pair"]["type"]["fields"]] == ["a", "b"]
    assert (fields["origin"]["metadata"], fields["total"]["metadata"]) == (
        {"hindcast.role": "key"},
        {"hindcast.role": "value"},
    )
    assert DeltaTable(uri).file_uris() == []


def _made(root: Path, table: Table) -> list[Path]:
    """Create a table with several commits and a checkpoint; return its files."""
    uri = str(root)
    ensure_table(uri, table)
    for number in range(3):
        append_rows(uri, rows_of(f"s{number}"))
        if number == 1:
            DeltaTable(uri).create_checkpoint()
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_damaged_file_changes_nothing_or_gives_an_error_of_one_paragraph(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Truncates, empties or garbles Parquet files, JSON files and the checkpoint. No library prints a traceback."""
    files = _made(tmp_path / "t", tables.window_outputs(KEYS, {"total": "bigint"}))
    pairs = [(f"s{number}", "a") for number in range(3)]
    named = 0
    for rng in chances(60):
        path = rng.choice(files)
        data = path.read_bytes()
        harmed = rng.choice([data[: rng.randrange(len(data))], b"", rng.randbytes(len(data))])
        path.write_bytes(harmed)
        forget_table(str(tmp_path / "t"))  # as in another process
        try:
            read_attempts(str(tmp_path / "t"), pairs)
        except StoreError as error:
            text = str(error)
            assert "\n" not in text
            assert "unknown" not in text
            named += path.name in text
        finally:
            path.write_bytes(data)
    assert named >= 20
    assert "RUST_BACKTRACE" not in "".join(capfd.readouterr())


def test_the_damaged_file_is_named(tmp_path: Path) -> None:
    files = _made(tmp_path / "t", tables.timers(KEYS))
    for path in (one for one in files if one.suffix in {".parquet", ".json"}):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        forget_table(str(tmp_path / "t"))  # as in another process
        if path.name not in {"00000000000000000000.json", "00000000000000000001.json", "00000000000000000002.json"}:
            with pytest.raises(StoreError, match=path.name):
                read_attempts(str(tmp_path / "t"), [("s0", "a"), ("s1", "a"), ("s2", "a")])
        path.write_bytes(data)
