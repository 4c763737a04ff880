"""The rows of a checkpoint in parts: a row is in the state if no later part removes it."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake

from jobs.lake.checkpoint_rows import Bounds, Removals, checkpoint_files, read_checkpoint
from jobs.lake.store import read_attempts, read_each_attempt
from tests.support.fuzzing import seeds
from windowlib.records import tables

ROWS = pa.schema({"slice_id": pa.string(), "attempt_id": pa.string(), "row_id": pa.int64(), "at_ms": pa.int64()})
REMOVALS = pa.schema(
    {"slice_id": pa.string(), "attempt_id": pa.string(), "table_name": pa.string(), "removed_id": pa.int64()}
)


@pytest.mark.slow
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
            read = read_checkpoint(lambda table: str(root / table), parts, name, columns=["at_ms"])  # noqa: B023
            assert read.column_names == ["at_ms"] or not read.num_rows
            assert sorted(read["at_ms"].to_pylist()) == sorted(one * 10 for one in ids)


def test_a_row_is_alive_if_no_later_part_removes_it() -> None:
    for seed in seeds(100):
        rng = np.random.default_rng(seed)
        ids = rng.integers(-(2**63), 2**63, int(rng.integers(1, 40)))
        removed = [rng.choice(ids, int(rng.integers(0, 20))) for _ in range(int(rng.integers(0, 5)))]
        found = Removals.of(removed)
        for part in range(len(removed) + 1):
            gone = {int(one) for own in removed[part + 1 :] for one in own}
            assert found.alive(ids, part).tolist() == [int(one) not in gone for one in ids]
            assert not found.alive(ids[:0], part).size


def test_files_are_read_in_batches_without_the_row_groups_that_are_not_wanted(tmp_path: Path) -> None:
    """Each row comes once with the number of its part, whichever files are read together."""
    for seed in seeds(25):
        random, uri = Random(seed), str(tmp_path / str(seed))
        parts = [(f"s{number}", random.choice("ab")) for number in range(random.randint(1, 4))]
        width, flags = random.choice((3, 100)), random.choice(((True,), (True, False), (True, None), (None,)))
        constant_rows = random.choice((None, 1, 3))
        rows: list[dict[str, Any]] = [
            {
                "slice_id": one,
                "attempt_id": two,
                "row_id": n,
                "at_ms": n // width,
                "flag": random.choice(flags),
                "domain": random.choice(("event", "x")),
            }
            for n, (one, two) in enumerate(random.choices([*parts, ("s0", "z")], k=random.randint(0, 60)))
        ]
        schema = ROWS.append(pa.field("flag", pa.bool_())).append(pa.field("domain", pa.string()))
        properties = WriterProperties(max_row_group_size=random.choice((4, 1_000)))
        write_deltalake(
            uri,
            pa.Table.from_pylist(rows, schema=schema),
            partition_by=[*tables.PARTITION_COLUMNS],
            writer_properties=properties,
        )
        files = checkpoint_files(uri, parts)
        assert [*map(files.part, files.files)] == sorted(map(files.part, files.files))
        least = random.choice((-1, 5, 100))

        def has_later(bounds: Bounds, least: int = least) -> bool:
            return bool(bounds["at_ms"]["max"] > least)

        limit, found = random.choice((1, 4, 100)), set()
        wanted = random.choice((None, has_later))
        for own in [None] if random.random() < 0.5 else [[one] for one in files.files]:
            asked = [*random.sample(["at_ms", "row_id", "flag"], 3), "domain", "none"]
            for part, batch in files.batches(asked, rows=limit, only=own, may_have=wanted, constant_rows=constant_rows):
                assert 0 < batch.num_rows <= limit
                assert batch.schema.names == asked[:-1]
                found |= {(part, row["row_id"], row["at_ms"], row["flag"], row["domain"]) for row in batch.to_pylist()}
        of_part = {
            number: [one for one in rows if (one["slice_id"], one["attempt_id"]) == pair]
            for number, pair in enumerate(parts)
        }
        every = {
            (number, one["row_id"], one["at_ms"], one["flag"], one["domain"])
            for number, own in of_part.items()
            for one in own
        }
        assert {row for row in every if wanted is None or row[2] > least} <= found <= every, f"seed {seed}"
        assert wanted is None or least < 100 or not found
    assert not checkpoint_files(str(tmp_path / "absent"), [("s0", "a")]).files


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
