"""Ids and checks of rows: equal for emitted and for stored rows. Spark's hash, computed without Spark."""

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.support.fuzzing import chances
from tests.support.plain_hashes import in_disguise, plain_fold, plain_row, random_kind, random_value
from tests.support.plain_rows import arrow_rows, named_rows
from windowlib.bounds import wrap_int64
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.executor import arrow_columns
from windowlib.columnar.row_identity import RowIdentity
from windowlib.records import tables
from windowlib.records.column_types import Node
from windowlib.records.named_rows import content_id
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.records.xxh64 import hash_long

pytestmark = pytest.mark.usefixtures("each_way_to_hash")


def table_of(kinds: Mapping[str, Node]) -> Table:
    return Table(name=tables.WINDOW_OUTPUTS, content=dict(kinds), coordinates={"fired_rank": "long"})


def test_an_output_may_have_the_name_of_the_record_of_side_tables() -> None:
    table = tables.window_outputs({}, {"record": "long"})
    assert "record" in arrow_columns(table)
    assert arrow_rows(table, []).keys() == table.columns().keys()
    late = tables.late_records("string")
    assert {*late.columns()} - {*arrow_columns(late)} == {"record"}


def test_a_row_has_the_same_id_when_it_is_emitted_and_when_it_is_read() -> None:
    """For values of every type. A changed value changes the id of its row, and a changed coordinate only its check."""
    for rng in chances(60):
        kinds = {f"c{number}": random_kind(rng) for number in range(rng.randrange(1, 6))}
        table = table_of(kinds)
        rows = [(*(random_value(rng, kind) for kind in kinds.values()), rank) for rank in range(rng.randrange(1, 9))]
        identity = RowIdentity(table, block=rng.choice([1, 2, 1000]))
        emitted, ids = identity.identified(pa.table(arrow_rows(table, rows)))
        assert emitted["row_id"].to_pylist() == [
            plain_row(table.name, dict(zip(kinds, row, strict=False)), kinds) for row in rows
        ]
        assert ids == IdSum.of(emitted["row_id"].to_pylist())
        stored = {name: in_disguise(emitted[name].combine_chunks(), rng) for name in emitted.column_names}
        assert list(identity.damage(stored)) == []
        row = rng.randrange(len(rows))
        for name in ("fired_rank", "row_check", "row_id"):
            changed = [number + (at == row) for at, number in enumerate(emitted[name].to_pylist())]
            found = list(identity.damage({**stored, name: pa.array(changed)}))
            assert {one.row for one in found} == {row}
            assert ["coordinates" in one.what for one in found] == [name != "row_id"]


def test_a_column_without_values_or_items_gives_the_same_ids() -> None:
    """Such columns of a state take a short way: the ids are those of the same rows beside one row that has items."""
    table = tables.window_state({"k": "bigint"}, {"n": {"count": "bigint"}})
    kinds = table.columns()
    identity = RowIdentity(table)
    item = {"slice_start_ms": 1, "rank": 2, "event_time_ms": 3, "edge_id": 4, "value": "5"}
    for rng in chances(40):
        choices: list[list[Any]] = [[None], [[]], [[], None]]
        few = rng.choice(choices)
        rows = [
            {name: random_value(rng, kind) for name, kind in kinds.items()} | {"k": number, "contents": rng.choice(few)}
            for number in range(rng.randrange(1, 700))
        ]
        last = {**dict.fromkeys(kinds), "k": -1, "contents": [item]}

        def columns(rows: list[dict[str, Any]]) -> dict[str, pa.ChunkedArray]:
            whole = {name: [row[name] for row in rows] for name in kinds}
            return {name: pa.chunked_array([pa.array(whole[name], arrow_type(kinds[name]))]) for name in kinds}

        ids, all_ids = identity.ids(columns(rows)), identity.ids(columns([*rows, last]))
        assert ids.tolist() == all_ids[:-1].tolist()
        assert (
            identity.checks(ids, columns(rows)).tolist()
            == identity.checks(all_ids, columns([*rows, last]))[:-1].tolist()
        )


def test_a_row_without_an_id_or_check_is_damaged() -> None:
    table = table_of({"k": "string"})
    identity = RowIdentity(table)
    rows, _ = identity.identified(pa.table(arrow_rows(table, [("a", 1), ("b", 2)])))
    columns = {name: rows[name] for name in rows.column_names}
    for name in ("row_id", "row_check"):
        half = pa.array([rows[name][0].as_py(), None])
        assert [one.row for one in identity.damage({**columns, name: half})] == [1]
        [found] = identity.damage({one: column for one, column in columns.items() if one != name})
        assert found.what == f"it has no column {name}"


def test_one_row_of_plain_values_has_the_id_that_it_has_in_a_column() -> None:
    for rng in chances(60):
        for table in (tables.watermarks(), tables.tallies(), tables.quality_results()):
            rows = [{name: random_value(rng, kind) for name, kind in table.content.items()} for _ in range(3)]
            identity = RowIdentity(table)
            assert identity.ids(named_rows(table, rows)).tolist() == [content_id(table, row) for row in rows]


def test_the_id_of_a_state_depends_on_the_order_of_positions_and_its_check_on_the_positions() -> None:
    """For any mix of columns with positions, keys, and cuts into batches: the reference replaces them row by row."""
    for rng in chances(80):
        table = tables.window_state({"k": "string"}, ACCUMULATORS)
        rows = [_state_row(table, rng) for _ in range(rng.randrange(1, 12))]
        identity = RowIdentity(table)
        columns = named_rows(table, rows)
        ids = identity.ids(columns)
        assert ids.tolist() == [plain_row(table.name, row, table.content) for row in _replaced(rows)]
        kinds = {name: table.columns()[name] for name in ("key_group", "acc_one", "acc_all", "contents")}
        folds = [plain_fold(row, kinds) for row in rows]
        assert identity.checks(ids, columns).tolist() == [
            wrap_int64(hash_long(fold, hash_long(one))) for fold, one in zip(folds, ids.tolist(), strict=True)
        ]


ACCUMULATORS = {
    "n": {"count": "bigint"},
    "one": {"slice_start_ms": "bigint", "rank": "bigint", "value": "string"},
    "all": {"slice_starts_ms": "array<bigint>", "ranks": "array<bigint>", "values": "array<int>"},
}


def _state_row(table: Table, rng: random.Random) -> dict[str, Any]:
    def places(count: int) -> list[tuple[int | None, int | None]]:
        return [(rng.randrange(3), rng.choice([0, 5, 9])) for _ in range(count)]

    row = {name: random_value(rng, kind) for name, kind in table.columns().items()}
    one = rng.choice([*places(1), (None, None), (1, None)])
    many, whole = places(rng.randrange(4)), places(rng.randrange(3))
    return row | {
        "k": rng.choice("ab"),
        "acc_one": rng.choice([None, {"slice_start_ms": one[0], "rank": one[1], "value": "x"}]),
        "acc_all": {
            "slice_starts_ms": [place[0] for place in many],
            "ranks": [place[1] for place in many],
            "values": [7] * len(many),
        },
        "contents": [
            {"slice_start_ms": at, "rank": rank, "event_time_ms": 1, "edge_id": 2, "value": "1"} for at, rank in whole
        ],
    }


def _replaced(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the positions of each key as docs/reference/checkpoints.md says, row by row."""
    found = []
    for row in rows:
        of_key = {place for other in rows if other["k"] == row["k"] for place in _places(other)}
        order = {place: number for number, place in enumerate(sorted(of_key))}
        one, many = row["acc_one"], row["acc_all"]
        if one is not None and one["rank"] is not None and one["slice_start_ms"] is not None:
            one = {**one, "slice_start_ms": order[one["slice_start_ms"], one["rank"]], "rank": 0}
        starts = [order[place] for place in zip(many["slice_starts_ms"], many["ranks"], strict=True)]
        contents = [
            {**stored, "slice_start_ms": order[stored["slice_start_ms"], stored["rank"]], "rank": 0}
            for stored in row["contents"]
        ]
        found.append(
            {
                **row,
                "acc_one": one,
                "acc_all": {**many, "slice_starts_ms": starts, "ranks": [0] * len(starts)},
                "contents": contents,
            }
        )
    return found


def _places(row: dict[str, Any]) -> list[tuple[int, int]]:
    singles = [one for one in (row["acc_one"], *row["contents"]) if one is not None]
    found = [(one["slice_start_ms"], one["rank"]) for one in singles]
    lists = zip(row["acc_all"]["slice_starts_ms"], row["acc_all"]["ranks"], strict=True)
    return [place for place in (*found, *lists) if None not in place]
