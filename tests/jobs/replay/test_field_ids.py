"""Logs whose files have columns under field ids and any names: Delta's mapping mode `id`, and Iceberg. No Spark."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from jobs.doctor.sample import read_head
from jobs.doctor.table_facts import read_table_facts
from jobs.lake.delta_log import describe_log
from jobs.lake.log_rows import find_records
from jobs.readers import published_table
from jobs.replay.sizes import Sizes
from tests.support.iceberg_logs import BY_DAY, change_metadata, iceberg_table, open_again
from tests.support.replays import pipeline_of, run_range
from windowlib.errors import LogError

TEXT = """
pipeline: p
log:
  table: log{form}
  key: [k]
  event_time: {{column: at, unit: ms}}
  slice: {{by: {by}}}
  order: [seq]
watermark: {{kind: bounded, out_of_orderness: 1h}}
windows: {{tumbling: {{size: 1h}}}}
aggregates: {{net: {{sum: net}}, gross: {{sum: gross}}, inner: {{sum: s.a}}}}
"""
FIRST_MS = 1_772_323_200_000
AT_MS = (FIRST_MS, FIRST_MS + 1, FIRST_MS + 43_200_000)
"""Two records of a window, and one after it, which fires the window."""
FIELDS: Mapping[str, tuple[Any, pa.DataType]] = {
    "k": ("string", pa.string()), "at": ("long", pa.int64()), "seq": ("long", pa.int64()),
    "net": ("long", pa.int64()), "gross": ("long", pa.int64()), "time": ("timestamp", pa.timestamp("us", "UTC")),
}  # fmt: skip
SWAPPED = {"net": "gross", "gross": "net", "a": "b", "b": "a", "time": "at", "at": "time"}
RIGHT = [{"net": 203, "gross": 2003, "inner": 20003}]


def _metadata(name: str, number: int) -> dict[str, Any]:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}


def _field(name: str, kind: Any, number: int) -> dict[str, Any]:  # noqa: ANN401 - a type of Delta's schema
    return {"name": name, "type": kind, "nullable": True, "metadata": _metadata(name, number)}


def _stored(names: Mapping[str, str], name: str, kind: pa.DataType, number: int) -> pa.Field:
    metadata = None if name in names.get("", "") else {"PARQUET:field_id": str(number)}
    return pa.field(names.get(name, name), kind, metadata=metadata)


def _log(root: Path, names: Mapping[str, str], mode: str = "id") -> Path:
    """Write the records. `names` maps a column to its name in the file, and "" to columns without an id there."""
    log = root / "log"
    (log / "_delta_log").mkdir(parents=True)
    fields = [_field(name, kind, number) for number, (name, (kind, _)) in enumerate(FIELDS.items(), start=1)]
    inner = {"type": "struct", "fields": [_field("a", "long", 21), _field("b", "long", 22)]}
    fields += [_field("s", inner, 20), _field("day", "date", 30)]
    parts = [_stored(names, "a", pa.int64(), 21), _stored(names, "b", pa.int64(), 22)]
    struct = pa.StructArray.from_arrays([pa.array([10_001, 10_002, 0]), pa.array([1, 1, 0])], fields=parts)
    values = [["a"] * 3, AT_MS, [0, 1, 2], [101, 102, 0], [1001, 1002, 0], [1000 * ms for ms in AT_MS]]
    columns = [pa.array(own, kind) for own, (_, kind) in zip(values, FIELDS.values(), strict=True)]
    kinds = [_stored(names, name, kind, number) for number, (name, (_, kind)) in enumerate(FIELDS.items(), start=1)]
    kinds.append(_stored(names, "s", struct.type, 20))
    pq.write_table(pa.Table.from_arrays([*columns, struct], schema=pa.schema(kinds)), log / "x.parquet")
    add = {
        "path": "x.parquet", "partitionValues": {"day": "2026-03-01"}, "size": (log / "x.parquet").stat().st_size,
        "modificationTime": 1, "dataChange": True, "stats": json.dumps({"numRecords": 3}),
    }  # fmt: skip
    metadata = {
        "id": "one", "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["day"],
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": {"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"},
    }  # fmt: skip
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    entries = [{"protocol": protocol}, {"metaData": metadata}, {"add": add}]
    (log / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, entries)))
    return log


def _replayed(root: Path, *, form: str = "", by: str = "day") -> list[dict[str, Any]]:
    pipeline = pipeline_of(TEXT.format(form=form, by=by))
    run_range(None, str(root), pipeline, ("2026-03-01", "2026-03-02"), sizes=Sizes(local_records=10**9))
    rows: list[dict[str, Any]] = published_table(str(root), "p").select(["net", "gross", "inner"]).to_pylist()
    return rows[:1]


@pytest.mark.parametrize(("by", "form"), [("day", ""), ("time", ""), ("day", "\n  changes: inserts")])
@pytest.mark.parametrize("names", [{}, {"net": "amount", "a": "c", "time": "z"}, SWAPPED])
def test_columns_are_found_by_their_ids_in_mode_id(
    tmp_path: Path, names: Mapping[str, str], by: str, form: str
) -> None:
    log = _log(tmp_path, names)
    assert _replayed(tmp_path, by=by, form=form) == RIGHT
    record = next(find_records(describe_log(str(log)), "net", "101"))
    assert (record["gross"], record["at"], record["day"]) == (1001, FIRST_MS, date(2026, 3, 1))
    assert read_head(read_table_facts(str(log)))["net"].to_pylist() == [101, 102, 0]


def test_columns_are_found_by_their_names_in_mode_name(tmp_path: Path) -> None:
    """Files from before the mapping have no ids, and those of other writers may have other ones."""
    _log(tmp_path, {"net": "gross", "gross": "net", "a": "b", "b": "a"}, mode="name")
    assert _replayed(tmp_path) == [{"net": 2003, "gross": 203, "inner": 2}]


@pytest.mark.parametrize("without", ["net", "a", "k at seq net gross time s a b"])
def test_a_file_without_an_id_of_a_column_is_refused_in_mode_id(tmp_path: Path, without: str) -> None:
    _log(tmp_path, {"": without})
    with pytest.raises(LogError, match=r"column '\w+' of the file x.parquet \(slice 2026-03-01\) has no field id"):
        _replayed(tmp_path)


def _schema(net: str, gross: str) -> pa.Schema:
    inner = pa.struct([("a", pa.int64())])
    numbers = [(name, pa.int64()) for name in ("at", "seq", net, gross)]
    return pa.schema([("k", pa.string()), *numbers, ("s", inner), ("day", pa.date32())])


def _row(seq: int, net: str, gross: str) -> pa.Table:
    row = {"k": "a", "at": AT_MS[seq], "seq": seq, net: 101 + seq, gross: 1001 + seq, "s": {"a": 10_001 + seq}}
    return pa.Table.from_pylist([row | {"day": date(2026, 3, 1)}], _schema(net, gross))


def _iceberg(root: Path, *renames: tuple[str, str]) -> Table:
    """Append records before and after columns are renamed, and expire the first snapshot and its schema."""
    old = ("amount", "gross") if len(renames) == 1 else ("gross", "net")
    table = iceberg_table(root / "log", _schema(*old), partitions=BY_DAY)
    for seq, names in enumerate((old, ("net", "gross"), ("net", "gross"))):
        table.append(_row(seq, *names).select([field.name for field in table.schema().fields]))
        for before, after in renames if seq == 0 else ():
            with table.update_schema() as change:
                change.rename_column(before, after)
        table = table.refresh()

    def expire(metadata: dict[str, Any]) -> None:
        metadata["snapshots"] = metadata["snapshots"][-1:]
        metadata["snapshot-log"] = metadata["snapshot-log"][-1:]
        metadata["schemas"] = [own for own in metadata["schemas"] if own["schema-id"] == metadata["current-schema-id"]]

    change_metadata(root / "log", expire)
    return open_again(root / "log")


@pytest.mark.parametrize(
    "renames", [(("amount", "net"),), (("gross", "other"), ("net", "gross"), ("other", "net"))], ids=["new", "swapped"]
)
def test_a_renamed_column_of_iceberg_whose_old_schema_has_expired_is_found_by_its_id(
    tmp_path: Path, renames: tuple[tuple[str, str], ...]
) -> None:
    _iceberg(tmp_path, *renames)
    assert _replayed(tmp_path, form="\n  format: iceberg") == RIGHT


def test_names_of_files_without_ids_tell_a_renamed_column_of_iceberg(tmp_path: Path) -> None:
    table = _iceberg(tmp_path, ("amount", "net"))
    [number] = [field.field_id for field in table.schema().fields if field.name == "net"]
    mapping = json.dumps([{"field-id": number, "names": ["amount", "net"]}])

    def add_mapping(metadata: dict[str, Any]) -> None:
        metadata["properties"]["schema.name-mapping.default"] = mapping

    change_metadata(tmp_path / "log", add_mapping)
    with pytest.raises(LogError, match="column 'net' was renamed, and has the name 'amount' in some files"):
        _replayed(tmp_path, form="\n  format: iceberg")


def test_a_mapping_may_have_names_that_differ_in_case_only(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path / "log", _schema("net", "gross"), partitions=BY_DAY)
    rows = pa.concat_tables([_row(seq, "net", "gross") for seq in range(3)])
    pq.write_table(rows, tmp_path / "log" / "x.parquet")
    table.add_files([str(tmp_path / "log" / "x.parquet")])
    fields = [
        {"field-id": field.field_id, "names": [field.name, field.name.upper()]} for field in table.schema().fields
    ]

    def add_mapping(metadata: dict[str, Any]) -> None:
        metadata["properties"]["schema.name-mapping.default"] = json.dumps(fields)

    change_metadata(tmp_path / "log", add_mapping)
    assert _replayed(tmp_path, form="\n  format: iceberg") == RIGHT


@pytest.mark.parametrize("has_names", [True, False])
def test_files_of_iceberg_without_ids_need_a_mapping_of_names(tmp_path: Path, *, has_names: bool) -> None:
    table = iceberg_table(tmp_path / "log", _schema("net", "gross"), partitions=BY_DAY)
    rows = pa.concat_tables([_row(seq, "net", "gross") for seq in range(3)])
    pq.write_table(rows, tmp_path / "log" / "x.parquet")
    table.add_files([str(tmp_path / "log" / "x.parquet")])
    if has_names:
        assert _replayed(tmp_path, form="\n  format: iceberg") == RIGHT
        return
    change_metadata(tmp_path / "log", lambda own: own["properties"].pop("schema.name-mapping.default"))
    with pytest.raises(LogError, match="has no field id"):
        _replayed(tmp_path, form="\n  format: iceberg")
