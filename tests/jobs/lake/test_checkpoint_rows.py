"""The rows of a checkpoint in parts: a row is in the state if no later part removes it."""

from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import write_deltalake

from jobs.lake.checkpoint_rows import live_rows, read_checkpoint
from jobs.lake.store import read_attempts, read_each_attempt
from tests.support.fuzzing import seeds
from windowlib.records import tables

ROWS = pa.schema({"slice_id": pa.string(), "attempt_id": pa.string(), "row_id": pa.int64(), "at_ms": pa.int64()})
REMOVALS = pa.schema(
    {"slice_id": pa.string(), "attempt_id": pa.string(), "table_name": pa.string(), "removed_id": pa.int64()}
)


def test_the_live_rows_are_those_of_a_replay_of_the_parts(tmp_path: Path) -> None:
    for seed in seeds(15):
        random, root = Random(seed), tmp_path / str(seed)
        parts = [(f"s{number:02d}", random.choice("abc")) for number in range(random.randint(1, 6))]
        expected = {name: set[int]() for name in tables.INCREMENTAL_TABLES}
        rows: dict[str, list[dict[str, object]]] = {name: [] for name in (*expected, tables.STATE_REMOVALS)}
        for number, (slice_id, attempt_id) in enumerate(parts):
            place = {"slice_id": slice_id, "attempt_id": attempt_id}
            for name, state in expected.items():
                gone = {one for one in state if random.random() < 0.4} if number else set()
                new = set(random.sample(range(12), k=random.randint(0, 4))) - (state - gone)  # a removed row may return
                state.difference_update(gone)
                state.update(new)
                rows[name] += [{**place, "row_id": one, "at_ms": one * 10} for one in new]
                removed = [{**place, "table_name": name, "removed_id": one} for one in gone]
                rows[tables.STATE_REMOVALS] += removed
        other = {"slice_id": parts[-1][0], "attempt_id": "z", "row_id": 99, "at_ms": 990}
        rows[tables.TIMERS].append(other)  # the row of another attempt at the last slice
        for name, found in rows.items():
            schema = REMOVALS if name == tables.STATE_REMOVALS else ROWS
            table = pa.Table.from_pylist(found, schema=schema)
            write_deltalake(root / name, table, partition_by=[*tables.PARTITION_COLUMNS])
        for name, ids in expected.items():
            read = live_rows(read_checkpoint(lambda table: str(root / table), parts, name, columns=["at_ms"]))  # noqa: B023
            assert read.column_names == ["at_ms"] or not read.num_rows
            assert sorted(read["at_ms"].to_pylist()) == sorted(one * 10 for one in ids)


def test_readers_return_the_rows_of_the_asked_attempts(tmp_path: Path) -> None:
    for seed in seeds(5):
        random, uri = Random(seed), str(tmp_path / str(seed))
        pairs = [(f"s{random.randint(0, 4)}", random.choice("abcd")) for _ in range(20)]
        rows = [{"slice_id": one, "attempt_id": two, "row_id": n, "at_ms": n} for n, (one, two) in enumerate(pairs)]
        write_deltalake(uri, pa.Table.from_pylist(rows, schema=ROWS), partition_by=[*tables.PARTITION_COLUMNS])
        asked = random.sample(pairs, k=random.randint(1, 8))
        wanted = sorted(n for n, pair in enumerate(pairs) if pair in asked)
        assert sorted(read_attempts(uri, asked, ["row_id"])["row_id"].to_pylist()) == wanted
        for pair, rows in zip(asked, read_each_attempt(uri, asked, ["row_id", "none"]), strict=True):
            assert rows["row_id"].to_pylist() == [n for n, one in enumerate(pairs) if one == pair]
