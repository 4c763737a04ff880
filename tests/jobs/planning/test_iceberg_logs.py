"""An Iceberg table is replayed as the same records in a Delta table, and its changes follow the same rules."""

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, Transform
from pyiceberg.types import LongType, StringType

from jobs.lake.log_match import Match
from jobs.planning.log_state import read_log_state
from jobs.planning.watching import Watch, read_watch, sign_of
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from tests.support.fuzzing import seeds
from tests.support.iceberg_logs import IcebergShop, change_metadata, compact, delete_on_read
from tests.support.log_shop import DAY_MS, DAYS, FIRST_MS, SCHEMA, LogShop, Row, records
from tests.support.replays import NOW_MS, pipeline_of
from windowlib.errors import LogError, SpecError

APPENDED = "format: iceberg\norder: appended"


def _filled(root: Path, form: str = "format: iceberg") -> IcebergShop:
    shop = IcebergShop(root, form)
    for day in range(3):
        shop.append(records(random.Random(day), 10 * day, 6, day))
    return shop


@pytest.fixture
def shop(tmp_path: Path) -> IcebergShop:
    made = _filled(tmp_path)
    assert made.run().is_published
    return made


MORE = {
    "ok": pa.bool_(), "price": pa.decimal128(9, 2), "raw": pa.binary(), "local": pa.timestamp("us"),
    "received": pa.timestamp("us", tz="UTC"), "small": pa.float32(), "tags": pa.list_(pa.string()),
    "props": pa.map_(pa.string(), pa.float64()),
    "payload": pa.struct([("user", pa.struct([("id", pa.int64())])), ("days", pa.list_(pa.date32()))]),
}  # fmt: skip
"""Columns of all other types."""


def _more(chance: random.Random, row: Row) -> Row:
    """Return a record with a value of each other type, or a null."""
    found: Row = {
        "ok": chance.random() < 0.5, "price": Decimal(chance.randrange(999)) / 100, "raw": chance.randbytes(3),
        "local": row["at"] * 1000, "received": row["at"] * 1000 + chance.randrange(999), "small": -0.0,
        "tags": chance.choice(([], [None, "a"])), "props": chance.choice(([], [("a", 1.5), ("b", None)])),
        "payload": {"user": chance.choice((None, {"id": chance.randrange(9)})), "days": [row["day"]]},
    }  # fmt: skip
    return row | {name: None if chance.random() < 0.2 else value for name, value in found.items()}


@pytest.mark.slow
def test_values_of_all_types_have_the_runs_of_the_same_records_in_a_delta_table(tmp_path: Path) -> None:
    schema, chance = pa.schema([*SCHEMA, *MORE.items()]), random.Random(1)
    rows = [_more(chance, row) for row in records(chance, 0, 40)]
    ice, delta = IcebergShop(tmp_path / "ice", schema=schema), LogShop(tmp_path / "delta")
    ice.append(rows, schema)
    delta.put(rows, schema)
    ice.run()
    delta.run()
    assert ice.published() == delta.published()


@pytest.mark.slow
@pytest.mark.parametrize("order", ["[seq]", "appended"])
def test_random_appends_have_the_runs_of_the_same_records_in_a_delta_table(tmp_path: Path, order: str) -> None:
    for seed in seeds(1):
        chance = random.Random(seed)
        ice = IcebergShop(tmp_path / f"ice{seed}", f"format: iceberg\norder: {order}")
        delta = LogShop(tmp_path / f"delta{seed}", f"order: {order}")
        for number in range(chance.randint(2, 5)):
            rows = records(chance, 100 * number, chance.randint(1, 30))
            delta.put(rows)
            ice.append(rows if order == "appended" else chance.sample(rows, len(rows)))
        ice.run()
        delta.run()
        assert ice.published() == delta.published()


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [{}, {"received": DayTransform()}], ids=["none", "days"])
def test_a_column_tells_the_slices_also_if_its_partition_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: dict[str, Transform[Any, Any]]
) -> None:
    """The statistics tell the slices of files that are divided by `day(received)`, and of those that are not."""
    monkeypatch.setattr(DayTransform, "pyarrow_transform", _days)  # that of pyiceberg needs one more package
    schema = SCHEMA.append(pa.field("received", pa.timestamp("us", tz="UTC")))
    rows = [row | {"received": row["at"] * 1000} for row in records(random.Random(1), 0, 30)]
    ice, delta = IcebergShop(tmp_path / "ice", schema=schema, partitions=partitions), LogShop(tmp_path / "delta")
    ice.by = delta.by = "received"
    for part in (rows[:20], rows[20:]):
        ice.append(part, schema)
    delta.put(rows, schema, by=None)
    ice.run()
    delta.run()
    assert ice.published() == delta.published()
    ice.append([rows[0] | {"seq": 99}], schema)
    assert ice.changed() == {DAYS[(rows[0]["at"] - FIRST_MS) // DAY_MS]: Match.CHANGED}


def _days(_: object, _source: object) -> Callable[[pa.Array], pa.Array]:
    return lambda times: times.cast(pa.timestamp("us")).cast(pa.date32(), safe=False).cast(pa.int32())


@pytest.mark.slow
def test_an_append_changes_its_slice_only(shop: IcebergShop) -> None:
    before = shop.published()
    assert shop.changed() == {}
    shop.append(records(random.Random(9), 100, 2, day=2))
    assert shop.changed() == {"2026-03-03": Match.CHANGED}
    assert shop.run().is_published
    after = shop.published()
    assert {day for day in DAYS if after[day] != before[day]} == {"2026-03-03"}


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["day = '2026-03-01'", "seq = 2"])
def test_removed_records_are_refused_until_a_person_accepts_them(
    shop: IcebergShop, tmp_path: Path, condition: str
) -> None:
    """A snapshot that removes files, and one that writes a file again without a record."""
    shop.table.delete(condition)
    with pytest.raises(
        LogError, match=r"commit 4 \((delete|overwrite)\) removed or changed records of slice 2026-03-01"
    ):
        shop.run()
    view = shop.work.ledger.view()
    found = rewrites_of(shop.work, view)
    accept_rewrites(shop.work, found, chosen_rewrites(shop.work, view, found, versions=[4]), reason="law", who="ann")
    assert shop.changed() == {"2026-03-01": Match.CHANGED}
    assert shop.run().is_published
    plain = IcebergShop(tmp_path / "plain")
    plain.append(shop.table.scan().to_arrow().to_pylist())
    plain.run()
    assert shop.published() == plain.published()


def test_a_compaction_keeps_the_runs_and_loses_the_order_of_appending(tmp_path: Path) -> None:
    shop = _filled(tmp_path)
    assert shop.run().is_published
    before = shop.published()
    compact(shop.table)
    assert shop.changed() == {}
    shop.run()
    assert shop.published() == before
    shop.form = APPENDED
    with pytest.raises(LogError, match=r"commit 4 \(replace\) wrote file .* from records that other commits"):
        shop.run()


def test_the_order_of_appending_needs_the_snapshots(tmp_path: Path) -> None:
    shop = _filled(tmp_path, APPENDED)
    shop.table.maintenance.expire_snapshots().by_id(shop.table.metadata.snapshots[0].snapshot_id).commit()
    with pytest.raises(LogError, match=r"Set history\.expire\.max-snapshot-age-ms to more than"):
        shop.run()
    shop.form = "format: iceberg"
    assert shop.run().is_published


def test_deletes_on_read_are_refused(shop: IcebergShop) -> None:
    delete_on_read(shop.table)
    with pytest.raises(LogError, match="has delete files or deletion vectors"):
        shop.run()
    change_metadata(shop.log, _compacted)
    with pytest.raises(LogError, match=r"commit 4 \(delete\) removed or changed records of slice 2026-03-01"):
        shop.run()


def _compacted(metadata: dict[str, Any]) -> None:
    """Add a snapshot whose files need no delete files any more."""
    deleted, before = metadata["snapshots"][-1], metadata["snapshots"][-2]
    own = {"snapshot-id": 10, "parent-snapshot-id": deleted["snapshot-id"], "sequence-number": 5}
    metadata["snapshots"].append({**before, **own, "summary": {"operation": "replace"}})
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = 10
    metadata["snapshot-log"].append({"snapshot-id": 10, "timestamp-ms": before["timestamp-ms"]})


@pytest.mark.slow
def test_a_rollback_is_refused_until_the_snapshot_expires(shop: IcebergShop) -> None:
    before = shop.published()
    old, new = (shop.table.metadata.snapshots[number].snapshot_id for number in (1, 2))
    shop.table.manage_snapshots().rollback_to_snapshot(old).commit()
    with pytest.raises(LogError, match=f"was rolled back or replaced: snapshot {new} was"):
        shop.run()
    shop.table.maintenance.expire_snapshots().by_id(new).commit()
    assert shop.changed() == {"2026-03-03": Match.CHANGED}
    shop.append(records(random.Random(2), 20, 6, 2))
    shop.run()
    assert shop.published() == before


@pytest.mark.slow
def test_snapshots_of_other_branches_are_no_gap(tmp_path: Path) -> None:
    shop = _filled(tmp_path, APPENDED)
    main = shop.table.current_snapshot()
    assert main is not None
    shop.table.manage_snapshots().create_branch(main.snapshot_id, "audit").commit()
    rows = pa.Table.from_pylist(records(random.Random(9), 500, 2), schema=SCHEMA)
    shop.table.append(rows, branch="audit")
    plain = _filled(tmp_path / "plain", APPENDED)
    for one in (shop, plain):
        one.append(records(random.Random(8), 100, 5))
        one.run()
    assert shop.published() == plain.published()


def test_another_manifest_at_the_same_place_is_damage(shop: IcebergShop) -> None:
    """Each is a whole file of the same table, so that only its digest tells."""
    old, new = shop.table.metadata.snapshots[1:]
    own, other = (one.manifests(shop.table.io)[0].manifest_path for one in (new, old))
    for place, wrong in ((new.manifest_list, old.manifest_list), (own, other)):
        raw = Path(place).read_bytes()
        Path(place).write_bytes(Path(wrong).read_bytes())
        with pytest.raises(LogError, match="is not the file that an earlier run has read"):
            shop.run()
        Path(place).write_bytes(raw[:-4])
        with pytest.raises(LogError, match=r"is not the file|is missing, damaged or truncated"):
            shop.run()
        Path(place).write_bytes(raw)
    assert shop.run().is_published


def test_a_waiting_run_sees_a_new_snapshot(shop: IcebergShop) -> None:
    state = read_log_state(shop.work.pipeline, shop.work.lake, ())
    watch = read_watch(Watch(wake_ms=NOW_MS + 1, log=(str(shop.log), state.version), log_format="iceberg").to_json())
    assert sign_of(watch, now_ms=NOW_MS) is None
    shop.append(records(random.Random(3), 300, 1))
    assert sign_of(watch, now_ms=NOW_MS) == "log"


def _added(shop: IcebergShop) -> pa.Schema:
    shop.table.update_schema().add_column("more", StringType()).commit()
    return SCHEMA.append(pa.field("more", pa.string()))


def _wider(shop: IcebergShop) -> pa.Schema:
    shop.table.update_schema().update_column("v", LongType()).commit()
    return SCHEMA.set(2, pa.field("v", pa.int64()))


@pytest.mark.slow
@pytest.mark.parametrize("change", [_added, _wider])
def test_a_column_may_be_added_or_get_a_wider_type(
    shop: IcebergShop, change: Callable[[IcebergShop], pa.Schema]
) -> None:
    """Older slices keep their runs, if the column is one that their values fit into."""
    before = shop.published()
    schema = change(shop)
    assert shop.changed() == {}
    shop.append([records(random.Random(9), 100, 1, day=2)[0] | {"v": 1}], schema)
    assert shop.changed() == {"2026-03-03": Match.CHANGED}
    assert shop.run().is_published
    after = shop.published()
    assert {day for day in DAYS if after[day] != before[day]} == {"2026-03-03"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("order: [seq]", "order: commits"),
            "an Iceberg table does not have; with format: iceberg write order: appended",
        ),
        (("order: [seq]", "changes: inserts\n  order: [seq]"), "only a Delta table has a change data feed"),
        (("order: [seq]", "partitions: {day: date}\n  order: [seq]"), "a table has the types of its partition columns"),
    ],
)
def test_what_an_iceberg_table_does_not_have_is_refused(change: tuple[str, str], words: str) -> None:
    text = LogShop(Path(), "format: iceberg").text
    pipeline_of(text)
    assert change[0] in text
    with pytest.raises(SpecError, match=words):
        pipeline_of(text.replace(*change))
