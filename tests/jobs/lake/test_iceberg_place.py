"""An Iceberg table as a log: where it is, its columns, the partitions of its files, and what is refused."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from pyiceberg import types
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, Transform

from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.iceberg_place import IcebergPlace, column_nodes, past_names, widened_columns
from jobs.lake.iceberg_table import file_bounds, open_iceberg
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.fuzzing import seeds
from tests.support.iceberg_logs import change_metadata, iceberg_table, newest_metadata
from windowlib.errors import LogError

DAY_MS = 86_400_000
DAYS = [
    Slice(slice_id=f"1970-01-0{1 + number}", start_ms=number * DAY_MS, end_ms=(number + 1) * DAY_MS)
    for number in range(3)
]
COLUMNS = pa.schema([("id", pa.int32()), ("dt", pa.date32()), ("region", pa.string()), ("at", pa.timestamp("us"))])
ODD = ["a", "x=y", "a%b", "é", "a b", "#?&", "a:b", "%3A", "_u", "+", "", None]
BY_DT: Mapping[str, Transform[Any, Any]] = {"dt": IdentityTransform()}


def _rows(*days: int, region: str | None = "a") -> pa.Table:
    rows = [{"id": number, "dt": day, "region": region, "at": day * 10**6 * 86_400} for number, day in enumerate(days)]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def _pin(place: Path, by: str = "dt") -> PinnedLog:
    return pin_log(IcebergPlace(uri=str(place)), by=SliceGrammar(by=by), slices=DAYS)


def _refusal(place: Path, by: str = "dt") -> str:
    with pytest.raises(LogError) as error:
        _pin(place, by)
    return str(error.value)


def _filled(place: Path, **options: Any) -> Table:  # noqa: ANN401
    table = iceberg_table(place, COLUMNS, **options)
    for day in range(3):
        table.append(_rows(day, day))
    return table


def test_a_random_table_is_pinned_as_its_files_tell(tmp_path: Path) -> None:
    for seed in seeds(3):
        chance = random.Random(seed)
        by = {**BY_DT, "region": IdentityTransform()}
        table = iceberg_table(tmp_path / str(seed), COLUMNS, partitions=by)
        expected: dict[tuple[str, str | None], int] = {}
        for _ in range(chance.randint(1, 5)):
            day, region, count = chance.randrange(3), chance.choice(ODD), chance.randint(1, 3)
            table.append(_rows(*[day] * count, region=region))
            expected[DAYS[day].slice_id, region] = expected.get((DAYS[day].slice_id, region), 0) + count
        pinned = _pin(tmp_path / str(seed))
        found: dict[tuple[str, str | None], int] = {}
        for file in pinned.files:
            assert Path(pinned.place(file)).is_file()
            found[file.slice_id, file.partition["region"]] = (
                found.get((file.slice_id, file.partition["region"]), 0) + pq.read_metadata(pinned.place(file)).num_rows
            )
            assert file.records == pq.read_metadata(pinned.place(file)).num_rows
        assert found == expected
        assert _pin(tmp_path / str(seed)).version == pinned.version == len(table.metadata.snapshots)


def test_the_places_of_files_may_be_uris(tmp_path: Path) -> None:
    table = iceberg_table(f"file://{tmp_path}/log", COLUMNS, partitions=BY_DT)
    table.append(_rows(0, 1))
    pinned = _pin(tmp_path / "log")
    assert sorted(file.path.partition("/")[0] for file in pinned.files) == ["data", "data"]
    assert all(Path(pinned.place(file)).is_file() for file in pinned.files)
    assert _pin(newest_metadata(tmp_path / "log")).records == 2


def test_reading_writes_nothing(tmp_path: Path) -> None:
    _filled(tmp_path / "log", partitions=BY_DT)
    before = sorted(tmp_path.rglob("*"))
    _pin(tmp_path / "log")
    reader = open_iceberg(str(tmp_path / "log")).reader
    for write in (reader.new_output, reader.delete):
        with pytest.raises(NotImplementedError, match="only reads"):
            write(str(tmp_path / "log" / "x"))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_metadata_file_is_a_log_that_stays_as_it_is(tmp_path: Path) -> None:
    table = _filled(tmp_path / "log", partitions=BY_DT)
    file = newest_metadata(tmp_path / "log")
    table.append(_rows(0))
    assert [_pin(place).records for place in (file, tmp_path / "log")] == [6, 7]


def test_an_older_version_has_the_columns_and_files_of_its_snapshot(tmp_path: Path) -> None:
    table = _filled(tmp_path / "log", partitions=BY_DT)
    table.update_schema().add_column("more", types.StringType()).commit()
    place = IcebergPlace(uri=str(tmp_path / "log"))
    assert "more" not in place.open().nodes  # no snapshot has it yet
    table.append(_rows(1).append_column("more", pa.array(["x"])))
    assert "more" in place.open().nodes
    assert (len(place.open(2).files()), "more" in place.open(2).nodes) == (2, False)
    with pytest.raises(LogError, match="those from 1 to 4 can be read"):
        place.open(5)
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    with pytest.raises(LogError, match="those from 2 to 4 can be read"):
        place.open(1)


def test_a_table_without_a_snapshot_has_no_records(tmp_path: Path) -> None:
    iceberg_table(tmp_path / "log", COLUMNS, partitions=BY_DT)
    pinned = _pin(tmp_path / "log")
    assert (pinned.version, pinned.files) == (0, ())
    assert IcebergPlace(uri=str(tmp_path / "log")).tip() is None


def test_only_values_by_which_all_files_are_divided_are_partitions(tmp_path: Path) -> None:
    """The slices of files from before the table was partitioned are told by their statistics."""
    table = _filled(tmp_path / "log", partitions={})
    with table.update_spec() as spec:
        spec.add_identity("dt")
    table.append(_rows(0))
    pinned = _pin(tmp_path / "log")
    assert not pinned.is_partitioned
    assert sorted((one.slice_id, one.records) for one in pinned.files) == [
        ("1970-01-01", 1), ("1970-01-01", 2), ("1970-01-02", 2), ("1970-01-03", 2),
    ]  # fmt: skip


def test_a_null_slice_is_refused_with_its_records(tmp_path: Path) -> None:
    table = _filled(tmp_path / "log", partitions=BY_DT)
    table.append(pa.Table.from_pylist([{"id": 1}], schema=COLUMNS))
    assert "has 1 record whose slice column 'dt' is null" in _refusal(tmp_path / "log")
    assert "DELETE … WHERE dt IS NULL" in _refusal(tmp_path / "log")


def test_manifests_tell_the_bounds_of_times_and_whole_numbers(tmp_path: Path) -> None:
    version = (_filled(tmp_path / "log"), IcebergPlace(uri=str(tmp_path / "log")).open())[1]
    bounds = version.bounds("at").to_pylist()
    assert sorted(one["low"] for one in bounds) == [datetime(1970, 1, 1 + day) for day in range(3)]  # noqa: DTZ001
    assert version.bounds("id")["high"].to_pylist() == [1, 1, 1]
    assert all(version.bounds(name).num_rows == 0 for name in ("region", "payload.at"))


def test_bounds_of_a_column_that_was_widened_have_its_new_type(tmp_path: Path) -> None:
    table = _filled(tmp_path / "log")
    table.update_schema().update_column("id", types.LongType()).commit()
    table.append(
        pa.Table.from_pylist([{"id": 2**40, "dt": 0, "region": "a", "at": 0}], schema=table.schema().as_arrow())
    )
    version = IcebergPlace(uri=str(tmp_path / "log")).open()
    found = version.bounds("id")["high"]
    assert sorted(found.to_pylist()) == [1, 1, 1, 2**40]
    assert found.type == pa.int64()


@given(days=st.lists(st.integers(-(10**5), 10**5), min_size=2, max_size=2), kind=st.sampled_from(["date", "timestamp"]))
def test_bounds_of_a_date_that_became_a_timestamp_are_instants(days: list[int], kind: str) -> None:
    """Version 3 of Iceberg allows it. pyiceberg writes no such table, so this is the metadata of one file."""
    own: tuple[types.PrimitiveType, int] = (
        (types.DateType(), 1) if kind == "date" else (types.TimestampType(), DAY_MS * 1000)
    )
    low, high = ({1: to_bytes(own[0], day * own[1])} for day in days)
    file = cast("DataFile", SimpleNamespace(lower_bounds=low, upper_bounds=high))
    schema = Schema(types.NestedField(1, "at", types.TimestampType()))
    assert file_bounds(file, schema, "at") == tuple(day * DAY_MS * 1000 for day in days)


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _filled(tmp_path / "log", partitions=BY_DT)
    monkeypatch.setattr("jobs.lake.iceberg_table.FileFormat", SimpleNamespace(PARQUET=FileFormat.ORC))
    assert "only Parquet files can be replayed" in _refusal(tmp_path / "log")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (types.UUIDType(), "the type uuid"),
        (types.TimeType(), "the type time"),
        (types.FixedType(3), r"the type fixed\[3\]"),
        (types.TimestampNanoType(), "the type timestamp_ns"),
        (types.TimestamptzNanoType(), "the type timestamptz_ns"),
        (types.ListType(7, types.UUIDType()), "the type list<uuid>"),
        (types.StructType(types.NestedField(8, "x", types.TimeType())), "the type struct"),
        (types.MapType(8, types.StringType(), 9, types.UUIDType()), "the type map"),
    ],
)
def test_types_that_a_log_does_not_have_are_refused_by_name(kind: types.IcebergType, words: str) -> None:
    schema = Schema(types.NestedField(1, "odd", kind))
    with pytest.raises(LogError, match=f"column 'odd' of the Iceberg table log has {words}"):
        column_nodes("log", schema, past_names([schema], None))


def test_types_have_their_names_in_spark() -> None:
    fields = [
        ("int", types.IntegerType()), ("bigint", types.LongType()), ("decimal(9,2)", types.DecimalType(9, 2)),
        ("timestamp", types.TimestamptzType()), ("timestamp_ntz", types.TimestampType()),
        ("binary", types.BinaryType()),
    ]  # fmt: skip
    schema = Schema(*(types.NestedField(1 + n, f"c{n}", kind) for n, (_, kind) in enumerate(fields)), schema_id=1)
    narrow = Schema(types.NestedField(2, "c1", types.IntegerType()), schema_id=0)
    nodes = column_nodes("log", schema, past_names([schema, narrow], None))
    assert nodes["c2"] == "decimal(9,2)"
    assert [nodes[f"c{n}"] for n in (0, 1, 3, 4, 5)] == ["integer", "long", "timestamp", "timestamp_ntz", "binary"]
    assert widened_columns(schema, [schema, narrow]) == {"c1": "int"}


def _rename(table: Table) -> None:
    table.update_schema().rename_column("region", "area").commit()


def _reuse(table: Table) -> None:
    table.update_schema().delete_column("region").commit()
    table.update_schema().add_column("Region", types.LongType()).commit()


def _odd_name(table: Table) -> None:
    table.update_schema().add_column("a b", types.LongType()).commit()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_rename, "column 'area' was renamed, and has the name 'region' in some files"),
        (_reuse, "the name 'region' is that of two columns"),
        (_odd_name, "column 'a b' has characters that writers replace"),
    ],
)
def test_names_that_do_not_tell_a_column_are_refused(
    tmp_path: Path, change: Callable[[Table], None], words: str
) -> None:
    """The metadata tells that files have other names. A dropped column alone is no reason to refuse a log."""
    table = _filled(tmp_path / "log", partitions=BY_DT)
    change(table)
    table.append(pa.Table.from_pylist([{"id": 1, "dt": 0}], schema=table.schema().as_arrow()))
    assert words in _refusal(tmp_path / "log")


def test_a_dropped_column_is_no_column_of_the_log(tmp_path: Path) -> None:
    table = _filled(tmp_path / "log", partitions=BY_DT)
    table.update_schema().delete_column("region").commit()
    table.append(_rows(0).drop_columns("region"))
    assert [*_pin(tmp_path / "log").columns] == ["id", "dt", "at"]


def test_a_directory_must_tell_its_newest_metadata(tmp_path: Path) -> None:
    assert "is no Iceberg table: it has no metadata/*.metadata.json" in _refusal(tmp_path / "nothing")
    _filled(tmp_path / "log", partitions=BY_DT)
    file = newest_metadata(tmp_path / "log")
    other = file.with_name(f"{file.name.partition('-')[0]}-other.metadata.json")
    other.write_bytes(file.read_bytes())
    assert "has 2 newest metadata files" in _refusal(tmp_path / "log")
    other.rename(file.with_name("v77.metadata.json"))  # as tables of a directory are numbered
    assert _pin(tmp_path / "log").records == 6
    file.with_name("v77.metadata.json").write_text("{")
    assert "opening its metadata failed" in _refusal(tmp_path / "log")
    with pytest.raises(LogError, match="neither a directory nor in an S3 object store"):
        IcebergPlace(uri="hdfs://host/log").open()


def _first_version(metadata: dict[str, Any]) -> None:
    for one in metadata["snapshots"]:
        one["sequence-number"] = 0


def _elsewhere(metadata: dict[str, Any]) -> None:
    metadata["snapshots"][-1]["manifest-list"] = "s3://bucket/log/metadata/snap.avro"


def _of_other_writers(metadata: dict[str, Any]) -> None:
    metadata["properties"]["schema.name-mapping.default"] = "[]"
    metadata["partition-specs"][-1]["fields"].append(
        {"source-id": 4, "field-id": 1001, "transform": "identity", "name": "at"}
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_first_version, "has no sequence number (format version 1)"),
        (_elsewhere, "which is not in the file system of `log.table`"),
        (_of_other_writers, "has files of other writers"),
        (lambda one: one.update({"format-version": 9}), "opening its metadata failed"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str) -> None:
    _filled(tmp_path / "log", partitions=BY_DT)
    change_metadata(tmp_path / "log", change)
    assert words in _refusal(tmp_path / "log")


def test_commits_tell_the_slices(tmp_path: Path) -> None:
    table = _filled(tmp_path / "log")
    first = datetime.fromtimestamp(table.metadata.snapshots[0].timestamp_ms / 1000, UTC).date()
    start_ms = int(datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp() * 1000)
    days = [Slice(slice_id=str(first), start_ms=start_ms, end_ms=start_ms + 2 * DAY_MS)]
    pinned = pin_log(IcebergPlace(uri=str(tmp_path / "log")), by=SliceGrammar(by="commits"), slices=days)
    assert (pinned.records, pinned.coordinates(str(first)).commits) == (6, (1, 2, 3))
