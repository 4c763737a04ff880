"""A checkpoint that is stored in parts is checked whole: every lost, doubled, moved or changed row is found."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.engine.fingerprints import state_of
from jobs.replay.checkpoint_check import CheckpointCheck
from jobs.runs import CheckpointPart, CheckpointRef
from tests.support.fuzzing import seeds
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.row_identity import RowIdentity
from windowlib.errors import CheckpointError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

TIMERS: Final = tables.timers({"k": "bigint"})
WINDOWS: Final = tables.window_state({"k": "bigint"}, {"n": {"count": "bigint"}})
REMOVALS: Final = tables.state_removals()
STORED: Final = {table.name: table for table in (TIMERS, WINDOWS, REMOVALS)}
Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Lake:
    """The stored rows by table, the parts in order, and the rows of the state by table and id."""

    rows: Rows = field(default_factory=lambda: {name: [] for name in STORED})
    parts: list[CheckpointPart] = field(default_factory=list)
    state: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {TIMERS.name: {}, WINDOWS.name: {}})

    def ref(self) -> CheckpointRef:
        digests = {name: IdSum.of(rows).digest() for name, rows in self.state.items()}
        *earlier, own = self.parts
        return CheckpointRef(
            slice_id=own.slice_id,
            run_id=own.run_id,
            attempt_id=own.attempt_id,
            fingerprint=state_of(digests),
            digests=digests,
            earlier=tuple(earlier),
        )


def _content(random: Random, table: Table, key: int) -> dict[str, Any]:
    if table is TIMERS:
        return {"k": key, "domain": "event", "at_ms": random.randint(0, 99), "key_group": key % 128}
    edges = {name: random.randint(-99, 99) for name in tables.EDGE_COLUMNS}
    return {"k": key, "window_start_ms": random.randint(0, 99), "acc_n": {"count": 1}, "is_orphan": False, **edges}


def _identified(table: Table, content: dict[str, Any]) -> dict[str, Any]:
    kinds = table.columns()
    row = pa.table({name: pa.array([content.get(name)], arrow_type(node)) for name, node in kinds.items()})
    rows, _ = RowIdentity(table).identified(row)
    found: dict[str, Any] = rows.to_pylist()[0]
    return found


def a_lake(random: Random) -> Lake:
    """Return a full checkpoint and the changes of some slices after it."""
    lake = Lake()
    for number in range(random.randint(2, 4)):
        part = CheckpointPart(slice_id=f"s{number}", run_id=f"r{number}", attempt_id=f"a{number}")
        lake.parts.append(part)
        place = {"slice_id": part.slice_id, "run_id": part.run_id, "attempt_id": part.attempt_id}
        for table in (TIMERS, WINDOWS):
            state = lake.state[table.name]
            for key in random.sample(range(50), k=random.randint(2, 5)):
                row = _identified(table, _content(random, table, key))
                if row["row_id"] not in state:
                    state[row["row_id"]] = row
                    lake.rows[table.name].append({**row, **place})
            if number:
                for gone in random.sample(sorted(state), k=random.randint(1, 2)):
                    row = state[gone]
                    if not any(
                        one["row_id"] == gone and one["slice_id"] != part.slice_id for one in lake.rows[table.name]
                    ):
                        continue  # a removal is of a row of an earlier part
                    del state[gone]
                    edges = {name: row.get(name) for name in tables.EDGE_COLUMNS}
                    removal = _identified(REMOVALS, {"table_name": table.name, "removed_id": gone, **edges})
                    lake.rows[REMOVALS.name].append({**removal, **place})
    return lake


def check(lake: Lake, root: Path, *, content_rows: int) -> None:
    ref = lake.ref()
    for name, table in STORED.items():
        schema = pa.schema([pa.field(one, arrow_type(node)) for one, node in table.stored_columns().items()])
        rows = pa.Table.from_pylist(lake.rows[name], schema=schema)
        write_deltalake(root / name, rows, partition_by=[*tables.PARTITION_COLUMNS])
    found = CheckpointCheck(ref, lambda table: str(root / table), (TIMERS, WINDOWS), content_rows).check()
    for name, state in lake.state.items():
        assert found.ids[name] == IdSum.of(state)


def lose(random: Random, lake: Lake, table: str) -> None:
    lake.rows[table].pop(random.randrange(len(lake.rows[table])))


def double(random: Random, lake: Lake, table: str) -> None:
    lake.rows[table].append(random.choice(lake.rows[table]))


def move(random: Random, lake: Lake, table: str) -> None:
    row = random.choice(lake.rows[table])
    row["attempt_id"] = "another attempt"


def change(random: Random, lake: Lake, table: str) -> None:
    row = random.choice(lake.rows[table])
    column = {TIMERS.name: "at_ms", WINDOWS.name: "edge_sum", REMOVALS.name: "removed_id"}[table]
    row[column] = (row[column] or 0) + 1


def test_parts_that_are_as_written_pass(tmp_path: Path) -> None:
    for seed in seeds(6):
        random = Random(seed)
        check(a_lake(random), tmp_path / str(seed), content_rows=random.choice([0, 3, 1_000]))


@pytest.mark.parametrize("table", STORED)
@pytest.mark.parametrize("damage", [lose, double, move, change])
def test_damage_in_any_part_is_found(damage: Callable[[Random, Lake, str], None], table: str, tmp_path: Path) -> None:
    for seed in seeds(3):
        random = Random(seed)
        lake = a_lake(random)
        if not lake.rows[table]:
            continue
        damage(random, lake, table)
        # Only a check of the content finds a changed value under an old id.
        content_rows = 1_000 if damage is change else random.choice([0, 1_000])
        with pytest.raises(CheckpointError, match="the checkpoint of slice"):
            check(lake, tmp_path / str(seed), content_rows=content_rows)
