"""Checkpoints in parts: the full ones and the changes after them give the state of the executor after every slice."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.support.fuzzing import chances
from tests.windowlib.kernels.random_chains import RandomLog, base_plan, batch_of, batches, random_aggregates, texts
from tests.windowlib.kernels.sessions.test_sessions import random_gaps, session_plan
from tests.windowlib.kernels.test_same_as_operator import KINDS, MAKERS
from windowlib.columnar.executor import StateColumns
from windowlib.columnar.plan import KEPT_TAG, BucketPlan, CheckpointRules
from windowlib.columnar.row_identity import RowIdentity
from windowlib.execution.bucket import BucketRun, executor_for
from windowlib.execution.state_changes import CHANGED, KEPT, PARTIAL, STATE, KnownRows, difference
from windowlib.records import tables
from windowlib.records.row_ids import IdSum


@dataclass
class Stored:
    """The parts of a checkpoint, as a lake stores them: one mapping from table to rows per part."""

    parts: list[dict[str, pa.Table]] = field(default_factory=list)

    def add(self, rows: Mapping[str, pa.Table], *, is_partial: bool) -> None:
        """Add the rows of a slice, by tag."""
        part = {tag: table for tag, table in rows.items() if not tag.startswith(KEPT_TAG)}
        if not is_partial:
            self.parts = []
            part.pop(tables.STATE_REMOVALS, None)
            for tag, table in rows.items():
                if tag.startswith(KEPT_TAG):
                    name = tag.removeprefix(KEPT_TAG)
                    part[name] = pa.concat_tables([*([part[name]] if name in part else []), table])
        self.parts.append(part)

    def state(self) -> dict[str, pa.Table]:
        """Return the rows of the state by table: a row is in it if no later part removes it."""
        found = {}
        for name in tables.INCREMENTAL_TABLES:
            removed: set[int] = set()
            alive: list[pa.Table] = []
            for part in reversed(self.parts):
                if name in part:
                    ids = part[name][tables.ROW_ID].to_pylist()
                    alive.append(part[name].filter(pa.array([one not in removed for one in ids], pa.bool_())))
                if tables.STATE_REMOVALS in part:
                    rows = part[tables.STATE_REMOVALS].to_pylist()
                    removed |= {row["removed_id"] for row in rows if row["table_name"] == name}
            if sum(one.num_rows for one in alive):
                found[name] = pa.concat_tables(alive)
        return found


def _log(random: Random, kind: str) -> RandomLog:
    spread_ms = random.choice([0, 10, 40, 100])
    if kind == "sessions":
        plan = session_plan(random, lateness=[0, 0, 1, 15, 60])
        return RandomLog(random, plan, spread_ms=spread_ms, gaps=random_gaps(random, plan))
    return RandomLog(
        random, base_plan(random, MAKERS[kind](random), random_aggregates(random, KINDS)), spread_ms=spread_ms
    )


@pytest.mark.parametrize("kind", [*MAKERS, "sessions"])
def test_the_parts_of_a_checkpoint_are_the_state_after_each_slice(kind: str) -> None:
    for random in chances(8, among=len(MAKERS) + 1):
        log, stored = _log(random, kind), Stored()
        for _ in range(random.randint(1, 4)):
            _check_chunk(random, log, stored)


def _check_chunk(random: Random, log: RandomLog, stored: Stored) -> None:
    chunk = log.chunk(random.randint(1, 6), random.choice([0, 1, 2, 5, 40]))  # few records leave keys untouched
    plan = replace(
        chunk.plan,
        executor=random.choice(["kernel", "operator"]),
        records_per_block=random.choice([1, 2, 7, 1 << 19]),
        checkpoints=CheckpointRules(
            full_rows=random.choice([0, 0, 3, 20]),
            full_slices=frozenset(number for number in range(len(chunk.plan.slices)) if random.random() < 0.2),
            changes_max=random.choice([0.0, 0.5, 5.0, 100.0]),
            changes_before=random.choice([0, 10]),
        ),
    )
    executor, run = executor_for(plan), BucketRun(plan)
    before = stored.state()
    executor.restore({name: _plain(plan, name, rows) for name, rows in before.items()})
    for name, rows in before.items():
        run.restore(name, rows)
    emitted = [
        part
        for number, records in enumerate(chunk.records)
        for batch in batches(random, plan, records)
        for part in run.process(number, batch)
    ]
    emitted += run.finish()
    for number, records in enumerate(chunk.records):
        executor.process(batch_of(plan, records))
        executor.end_slice()
        rows = {tag: table for slice_no, tag, table in emitted if slice_no == number and _is_state(tag)}
        stored.add(rows, is_partial=(number, PARTIAL, KEPT) in run.tallies)
        _check_state(plan, executor.state(), stored.state())
        _check_sums(run, number, stored, rows)


def _is_state(tag: str) -> bool:
    return tag.removeprefix(KEPT_TAG) in (*tables.INCREMENTAL_TABLES, tables.STATE_REMOVALS)


def _plain(plan: BucketPlan, name: str, rows: pa.Table) -> pa.Table:
    return rows.select(list(plan.table(name).columns()))


def _check_state(plan: BucketPlan, expected: StateColumns, found: Mapping[str, pa.Table]) -> None:
    assert found.keys() == expected.keys()
    for name, rows in found.items():
        assert texts(_plain(plan, name, rows)) == texts(expected[name])
        columns = {one: rows[one].combine_chunks() for one in rows.column_names}
        assert not list(RowIdentity(plan.table(name)).damage(columns)), "ids are those of the whole state"


def _check_sums(run: BucketRun, number: int, stored: Stored, rows: Mapping[str, pa.Table]) -> None:
    for name in tables.INCREMENTAL_TABLES:
        if (number, STATE, name) in run.tallies:
            state = stored.state().get(name)
            ids = IdSum() if state is None else IdSum.of_array(state[tables.ROW_ID].to_numpy())
            assert run.tallies[number, STATE, name] == ids
        for equation, tag in ((CHANGED, name), (KEPT, KEPT_TAG + name)):
            ids = IdSum() if tag not in rows else IdSum.of_array(rows[tag][tables.ROW_ID].to_numpy())
            assert run.tallies.get((number, equation, name), IdSum()) == ids


def test_rows_that_occur_twice_are_removed_and_written_again() -> None:
    for random in chances(200):
        words = (
            [random.randint(0, 5) for _ in range(random.randint(0, 6))],
            [random.randint(0, 5) for _ in range(random.randint(0, 6))],
        )
        before, after = map(_known, words)
        is_gone, is_new = difference(before, after, by_key=random.random() < 0.5)
        left = [word for word, gone in zip(words[0], is_gone, strict=True) if not gone]
        removed = {word for word, gone in zip(words[0], is_gone, strict=True) if gone}
        assert not removed & set(left), "a removal names every copy of a row"
        assert sorted(left + [word for word, new in zip(words[1], is_new, strict=True) if new]) == sorted(words[1])


def _known(words: list[int]) -> KnownRows:
    word = np.array(words, dtype=np.int64)
    return KnownRows(number=word // 2, row_id=word, word=word, edge_count=word, edge_xor=word, edge_sum=word)
