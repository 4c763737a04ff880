"""Comparisons of the side tables, of specs with other columns, and of damaged rows."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.comparing.compare import Comparison, compare
from jobs.comparing.comparison_keys import Unit
from jobs.comparing.differences import Change, Differences
from jobs.comparing.partitions import Limits
from jobs.comparing.views import Sides
from jobs.lake.lake import Lake
from tests.jobs.comparing.test_compare import sides_of
from tests.support.fake_replay import RECORD
from tests.support.fuzzing import seeds
from tests.support.random_views import DAY_MS, NAME, Row, Views
from windowlib.errors import StoreError
from windowlib.records import tables

LATE = tables.late_records(RECORD)
INVALID = tables.invalid_records(RECORD)
NARROW = {"total": "bigint"}
WIDE = {**NARROW, "mean": "double"}


def late(record_id: str | None, late_by_ms: int, *, rank: int = 0) -> Row:
    hashed = ord(record_id) if record_id else late_by_ms
    return {
        "record_hash": hashed, "event_time_ms": 5, "missed_windows": [], "missed_all": True, "watermark_ms": 9,
        "late_by_ms": late_by_ms, "reason": "late", "record_id": record_id, "rank": rank,
    }  # fmt: skip


def window(key: str, **values: object) -> Row:
    row = {
        "key": key, "window_start": 0, "window_end": 1000 * DAY_MS, "pane_index": 0, "timing": "ON_TIME",
        "is_first": True, "is_last": True, "mode": "accumulating", "kind": "result", "record_count": 1,
        "watermark_ms": 5, "fired_rank": 0,
    }  # fmt: skip
    return row | values


def outputs(values: Mapping[str, str] = NARROW, *keys: str) -> tables.Table:
    return tables.window_outputs(dict.fromkeys(("key", *keys), "string"), values)


def compared(views: Views, sides: Sides, **options: object) -> Differences:
    return compare(Lake(root=str(views.root)), NAME, sides, options=Comparison(**options))  # type: ignore[arg-type]


def test_records_are_matched_by_their_id_and_counted_as_rows(tmp_path: Path) -> None:
    for seed in seeds(5):
        rng = random.Random(seed)
        views = Views(tmp_path / str(seed), {})
        spec = views.spec(["key"], ["total"])
        rows: list[list[Row]] = [
            [
                late(rng.choice(["a", "b", "c", None]), rng.choice([1, 2, 3]), rank=rank)
                for rank in range(rng.randint(1, 9))
            ]
            for _ in range(2)
        ]
        runs = [views.run(0, spec, (LATE, one)) for one in rows]
        views.commit()
        limits = Limits(part_rows=rng.choice([1, 100]), batch_rows=rng.choice([1, 100]))
        found = compared(views, sides_of(views, {0: runs[0]}, {0: runs[1]}), limits=limits)
        expected = count_rows(rows[0], rows[1])
        if not found.tables:
            assert not +expected
            continue
        (table,) = found.tables
        assert table.unit is Unit.RECORD
        names = ("only_before", "only_after", "changed", "equal")
        assert {name: getattr(table, name) for name in names} == {name: expected[name] for name in names}


def count_rows(before: Sequence[Row], after: Sequence[Row]) -> Counter[str]:
    counts: Counter[str] = Counter()
    ids = {row["record_id"] or row["record_hash"] for row in (*before, *after)}
    for one in ids:
        sides = [
            Counter(row["late_by_ms"] for row in rows if (row["record_id"] or row["record_hash"]) == one)
            for rows in (before, after)
        ]
        both = sides[0] & sides[1]
        left = [(side - both).total() for side in sides]
        counts["equal"] += both.total()
        counts["changed"] += min(left)
        counts["only_before"] += left[0] - min(left)
        counts["only_after"] += left[1] - min(left)
    return counts


def test_a_side_table_that_only_one_view_has_is_compared(tmp_path: Path) -> None:
    views = Views(tmp_path, WIDE)
    spec = views.spec(["key"], ["total"])
    rows = [window("a", total=1)]
    invalid: Row = {"record_hash": 1, "reason": "no key", "record_id": "x", "rank": 3, "detail": None}
    runs = [views.run(0, spec, (outputs(), rows)), views.run(0, spec, (outputs(), rows), (INVALID, [invalid]))]
    views.commit()
    found = compared(views, sides_of(views, {0: runs[0]}, {0: runs[1]}))
    assert [(table.table, table.only_after) for table in found.tables] == [("invalid_records", 1)]
    (sample,) = found.tables[0].samples
    assert (sample.change, sample.match, sample.before) == (Change.ONLY_AFTER, {"record_id": "x"}, None)


def test_columns_of_one_spec_are_named_and_not_compared(tmp_path: Path) -> None:
    views = Views(tmp_path, WIDE)
    narrow, wide = views.spec(["key"], ["total"]), views.spec(["key"], ["total", "mean"])
    one = views.run(0, narrow, (outputs(), [window("a", total=1)]))
    two = views.run(0, wide, (outputs(WIDE), [window("a", total=1, mean=0.5)]))
    views.commit()
    found = compared(views, sides_of(views, {0: one}, {0: two}))
    (table,) = found.tables
    assert (table.changed, table.equal, table.only_after_columns) == (0, 1, ("mean",))
    assert "column mean is only in the spec after; it is not compared" in " ".join(found.lines())


def test_windows_of_different_key_columns_are_not_matched(tmp_path: Path) -> None:
    views = Views(tmp_path, WIDE)
    one_key, two_keys = views.spec(["key"], ["total"]), views.spec(["key", "city"], ["total"])
    one = views.run(0, one_key, (outputs(), [window("a", total=1)]))
    two = views.run(0, two_keys, (outputs(NARROW, "city"), [window("a", city="x", total=1)]))
    views.commit()
    found = compared(views, sides_of(views, {0: one}, {0: two}))
    counts = {table.keys: (table.only_before, table.only_after, table.changed) for table in found.tables}
    assert counts == {("key",): (1, 0, 0), ("key", "city"): (0, 1, 0)}
    assert "different key columns, (key) and (key, city)" in found.notes[0]


@pytest.mark.parametrize("content_rows", [0, 1_000])
def test_damaged_rows_are_an_error(tmp_path: Path, content_rows: int) -> None:
    views = Views(tmp_path, WIDE)
    spec = views.spec(["key"], ["total"])
    runs = [views.run(0, spec, (outputs(), [window("a", total=total)])) for total in (1, 2)]
    views.commit()
    uri = str(tmp_path / NAME / tables.WINDOW_OUTPUTS)
    stray = {**window("b", total=1), "row_id": 1, "row_check": 1, "slice_id": "2024-01-01", "run_id": runs[1]}
    schema = pa.schema(DeltaTable(uri).schema().to_arrow())
    write_deltalake(uri, pa.Table.from_pylist([{**stray, "attempt_id": runs[1]}], schema=schema), mode="append")
    with pytest.raises(StoreError, match="slice 2024-01-01"):
        compared(views, sides_of(views, {0: runs[0]}, {0: runs[1]}), content_rows=content_rows)
