"""A directory of Parquet files as a log: its listing, the union of its columns, and what is refused."""

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from jobs.lake import parquet_listing
from jobs.lake.direct_reading import direct_reading
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.known_log import checked_files
from jobs.lake.parquet_place import ParquetPlace
from jobs.lake.parquet_schema import common_type
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.fuzzing import chances, seeds
from windowlib.errors import LogError
from windowlib.records.column_types import Node, parse_type

DAY_MS = 86_400_000
DAYS = [
    Slice(slice_id=f"1970-01-0{1 + number}", start_ms=number * DAY_MS, end_ms=(number + 1) * DAY_MS)
    for number in range(3)
]
ROWS = pa.table({"id": pa.array([1, 2], pa.int32()), "text": ["a", None]})
OLD_NS = 1_000_000_000_000_000_000


def _write(root: Path, path: str, rows: pa.Table = ROWS) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return file


def _pin(root: Path, *, by: str = "dt", **partitions: str) -> PinnedLog:
    source = ParquetPlace(uri=str(root), partitions=partitions)
    return pin_log(source, by=SliceGrammar(by=by), slices=DAYS)


def _refusal(root: Path, **partitions: str) -> str:
    with pytest.raises(LogError) as error:
        _pin(root, **partitions)
    return str(error.value)


def test_a_relative_path_is_the_log_of_the_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: `--lake lake` took the log for another table than `--lake /data/lake`, with all slices changed."""
    _write(tmp_path, "lake/raw/dt=1970-01-01/a.parquet")
    absolute = ParquetPlace(uri=str(tmp_path / "lake/raw")).open()
    for directory, uri in ((tmp_path, "lake/raw"), (tmp_path / "lake", "./raw"), (tmp_path / "lake", "../lake/raw")):
        monkeypatch.chdir(directory)
        assert ParquetPlace(uri=uri).open().table_id == absolute.table_id


def test_a_random_directory_is_pinned_as_its_files_tell(tmp_path: Path) -> None:
    for seed in seeds(20):
        _check_random_directory(tmp_path / str(seed), random.Random(seed))


def _check_random_directory(root: Path, chance: random.Random) -> None:
    """Check the files of each slice, their records, and the version: equal for equal listings only."""
    odd = ["a", "x=y", "a%b", "é", "a b", "#?&", "a:b", "%3A", "_u", "+"]
    expected: dict[str, set[tuple[str, int]]] = {one.slice_id: set() for one in DAYS}
    for number in range(chance.randint(1, 12)):
        day, region = chance.choice(DAYS).slice_id, chance.choice(odd)
        name = f"dt={day}/region={_hive(region)}/{chance.choice(('', 'more/', 'more/of it/'))}part {number}%.parquet"
        rows = ROWS.slice(0, chance.randint(0, 2))
        _write(root, name, rows)
        expected[day].add((name, rows.num_rows))
    for name in ("_SUCCESS", ".part.crc", "_temporary/0/part.parquet", f"dt={DAYS[0].slice_id}/_started"):
        if chance.random() < 0.5:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"PAR1")
    pinned = _pin(root)
    found = {one.slice_id: set[tuple[str, int]]() for one in DAYS}
    for file in pinned.files:
        place = pinned.place(file)
        assert Path(place).is_file()
        assert _hive(str(file.partition["region"])) in place
        found[file.slice_id].add((place.removeprefix(f"{root.resolve()}/"), file.records or 0))
    assert found == expected
    assert _pin(root).version == pinned.version
    source = ParquetPlace(uri=str(root))
    assert source.is_newest(pinned.version)
    changed = chance.choice(pinned.files)
    os.utime(pinned.place(changed), ns=(OLD_NS, OLD_NS))
    assert not source.is_newest(pinned.version)
    again = _pin(root)
    differ = {one.slice_id for one in DAYS if again.coordinates(one.slice_id).digest != _digest(pinned, one)}
    assert differ == {changed.slice_id}


def _digest(pinned: PinnedLog, one: Slice) -> str:
    return pinned.coordinates(one.slice_id).digest


def _hive(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in "%/:=#?" else char for char in text)


TYPES = {
    "tinyint": "smallint", "smallint": "int", "int": "bigint", "float": "double", "date": "timestamp_ntz",
    "decimal(4,2)": "decimal(6,3)",
}  # fmt: skip
"""Type -> a wider one."""


def test_the_common_type_does_not_depend_on_the_order_of_the_files() -> None:
    for chance in chances(50):
        kinds = [parse_type(one) for one in chance.sample([*TYPES, *TYPES.values(), "string", "timestamp"], 3)]
        wrap: Callable[[Node], Node] = chance.choice((lambda one: one, _in_a_list, _in_a_struct))
        found = [common_type([wrap(one) for one in order]) for order in itertools.permutations(kinds)]
        assert all(one == found[0] for one in found)


def _in_a_list(node: Node) -> Node:
    return {"type": "array", "elementType": node, "containsNull": True}


def _in_a_struct(node: Node) -> Node:
    return {"type": "struct", "fields": [{"name": "f", "type": node, "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize(("narrow", "wide"), TYPES.items())
def test_a_column_has_the_widest_type_of_its_files(narrow: str, wide: str) -> None:
    one, two = parse_type(narrow), parse_type(wide)
    assert common_type([one, two]) == common_type([two, one]) == two


def test_structs_are_united_by_name_and_instants_are_no_local_times() -> None:
    both = common_type([parse_type("struct<a:int,b:string>"), parse_type("struct<c:date,a:bigint>")])
    assert both == parse_type("struct<a:bigint,b:string,c:date>")
    assert common_type(["timestamp", "timestamp_ntz"]) is None
    assert common_type(["long", "double"]) is None
    assert common_type([parse_type("array<int>"), parse_type("int")]) is None


def test_columns_are_united_and_the_narrowest_type_is_kept(tmp_path: Path) -> None:
    _write(tmp_path, "dt=1970-01-01/a.parquet")
    wide = pa.table({"id": pa.array([3], pa.int64()), "new": [1.5]})
    _write(tmp_path, "dt=1970-01-02/a.parquet", wide)
    pinned = _pin(tmp_path, dt="date")
    assert pinned.columns == {"id": "bigint", "text": "string", "new": "double", "dt": "date"}
    assert pinned.widened == {"id": "int"}


def test_a_slice_column_may_be_in_the_files(tmp_path: Path) -> None:
    times = pa.array([0, DAY_MS * 1000, DAY_MS * 1000 + 1], pa.timestamp("us", tz="UTC"))
    _write(tmp_path, "one.parquet", pa.table({"at": times}))
    pinned = _pin(tmp_path, by="at")
    assert [(file.slice_id, file.records) for file in pinned.files] == [("1970-01-01", 1), ("1970-01-02", 2)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"id": pa.array([1], pa.uint32())}, "column 'id' of file dt=1970-01-02/b.parquet"),
        ({"id": pa.array([1], pa.timestamp("ns"))}, "times in microseconds"),
        ({"id": ["1"]}, "int in dt=1970-01-01/a.parquet, string in dt=1970-01-02/b.parquet"),
        ({"ID": [1]}, "'id' (dt=1970-01-01/a.parquet) and 'ID' (dt=1970-01-02/b.parquet)"),
        ({"id": pa.array([1.5], pa.float32())}, "types that do not fit together"),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_the_files(tmp_path: Path, rows: dict[str, Any], words: str) -> None:
    _write(tmp_path, "dt=1970-01-01/a.parquet")
    _write(tmp_path, "dt=1970-01-02/b.parquet", pa.table(rows))
    assert words in _refusal(tmp_path)


def test_a_directory_that_is_no_log_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in _refusal(tmp_path / "nothing")
    (tmp_path / "empty" / "_temporary").mkdir(parents=True)
    assert "has no Parquet file" in _refusal(tmp_path / "empty")
    file = _write(tmp_path, "log/dt=1970-01-01/a.parquet")
    assert "is a file" in _refusal(file)
    _write(tmp_path, "log/other.parquet")
    assert "dt=1970-01-01/a.parquet has ['dt'], other.parquet has []" in _refusal(tmp_path / "log")
    (tmp_path / "log" / "other.parquet").write_bytes(b"PAR1 is not enough")
    (tmp_path / "log" / "other.parquet").rename(tmp_path / "log" / "dt=1970-01-01" / "other.parquet")
    assert "file dt=1970-01-01/other.parquet" in _refusal(tmp_path / "log")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("_delta_log/00000000000000000000.json", "is a Delta table"),
        (".hoodie/hoodie.properties", "is a Hudi table"),
        ("metadata/v1.metadata.json", "is an Iceberg table"),
        ("ledger/_delta_log/00000000000000000000.json", "has in ledger a Delta table"),
        ("more/metadata/v1.metadata.json", "has in more an Iceberg table"),
    ],
)
def test_a_table_of_another_format_is_refused(tmp_path: Path, path: str, words: str) -> None:
    _write(tmp_path, "dt=1970-01-01/a.parquet")
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("{}")
    assert words in _refusal(tmp_path)


def test_partition_values_have_the_types_of_the_pipeline(tmp_path: Path) -> None:
    _write(tmp_path, "dt=1970-01-01/hour=05/a.parquet")
    assert _pin(tmp_path).files[0].partition == {"dt": "1970-01-01", "hour": "05"}
    assert _pin(tmp_path, hour="int").files[0].partition == {"dt": "1970-01-01", "hour": "5"}
    assert "'hour' of event log" in _refusal(tmp_path, hour="date")
    assert "found: dt, hour" in _refusal(tmp_path, day="date")


def test_a_null_slice_is_refused_with_its_records(tmp_path: Path) -> None:
    _write(tmp_path, "dt=1970-01-01/a.parquet")
    _write(tmp_path, "dt=__HIVE_DEFAULT_PARTITION__/a.parquet")
    assert "has 2 records whose slice column 'dt' is null" in _refusal(tmp_path)
    assert "remove the files without one" in _refusal(tmp_path)


def _replaced(file: Path) -> None:
    pq.write_table(ROWS.slice(0, 1), file)


def _touched(file: Path) -> None:
    os.utime(file, ns=(OLD_NS, OLD_NS))


@pytest.mark.parametrize(
    ("change", "words"), [(_replaced, "was replaced"), (_touched, "was replaced"), (Path.unlink, "does not exist")]
)
def test_a_file_that_changes_after_the_pin_is_named(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    file = _write(tmp_path, "dt=1970-01-02/a.parquet")
    pinned = _pin(tmp_path)
    pinned.refuse_replaced()
    change(file)
    [found] = checked_files(pinned.covered_files())
    assert isinstance(found, LogError)
    assert words in str(found)
    with pytest.raises(LogError, match=r"dt=1970-01-02/a\.parquet .*slice 1970-01-02.* " + words):
        pinned.refuse_replaced()


def test_a_listing_of_a_store_with_milliseconds_has_the_time_of_a_single_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: a store that lists milliseconds, such as MinIO, tells one object in seconds: each file was "replaced"."""
    os.utime(_write(tmp_path, "dt=1970-01-01/a.parquet"), ns=(OLD_NS, OLD_NS + 123_000_000))
    monkeypatch.setattr(parquet_listing, "file_system", lambda _uri: (pafs.LocalFileSystem(), str(tmp_path)))
    assert [file.mtime_ns for file in parquet_listing.list_parquet("s3://bucket/log").files] == [OLD_NS]
    assert parquet_listing.list_parquet(str(tmp_path)).files[0].mtime_ns == OLD_NS + 123_000_000


def test_a_version_that_is_gone_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path, "dt=1970-01-01/a.parquet")
    version = _pin(tmp_path).version
    _touched(file)
    with pytest.raises(LogError, match="has only the files of now"):
        ParquetPlace(uri=str(tmp_path)).open(version)


def test_a_column_and_a_partition_whose_names_differ_in_case_are_refused(tmp_path: Path) -> None:
    """No table of Delta has both, so the replay failed when it stored its rows."""
    _write(tmp_path, "dt=1970-01-01/ID=7/a.parquet")
    assert "has the columns 'id' (dt=1970-01-01/ID=7/a.parquet) and 'ID' (dt=1970" in _refusal(tmp_path)


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("int", -(2**31), 2**31 - 1), ("bigint", -(2**63), 2**63 - 1)]
)  # fmt: skip
def test_a_partition_value_that_its_type_does_not_have_is_refused(
    tmp_path: Path, kind: str, least: int, most: int
) -> None:
    for number in (least, most):
        _write(tmp_path / "good", f"dt=1970-01-01/n={number}/a.parquet")
        _write(tmp_path / str(number), f"dt=1970-01-01/n={number + (1 if number > 0 else -1)}/a.parquet")
        assert f"which is no {kind}" in _refusal(tmp_path / str(number), n=kind)
    assert {file.partition["n"] for file in _pin(tmp_path / "good", n=kind).files} == {str(least), str(most)}


def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array(["a"]), pa.array(["b"])], names=["id", "text", "text"])
    _write(tmp_path, "dt=1970-01-01/a.parquet", rows)
    with pytest.raises(LogError, match=r"the file dt=1970-01-01/a.parquet \(slice 1970-01-01\) has 2 columns of the"):
        direct_reading(_pin(tmp_path))
