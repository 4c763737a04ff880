"""Checkpoints with right ids and wrong content: refused with table and column, or harmless for all other keys."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from jobs.engine.user_errors import explained
from jobs.replay.chunk.time_steps import watermark_row
from tests.matrix.buckets import Replayed, Way, chunk_plan, replay, state_before
from tests.matrix.log import HOURS, sensor_log
from tests.matrix.one_process import answer, own_hashes
from tests.matrix.pipelines import FAMILIES, Case, Matrix
from tests.support.bucket_feed import BucketResult, FedRecord, run_bucket, schema_of
from tests.support.fuzzing import seeds
from tests.support.hostile_files import bounded
from tests.support.hostile_state import Damaged, Key, damaged
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.restored import BEFORE, DAMAGED, RestoredState
from windowlib.columnar.watermark_content import checked_sources
from windowlib.errors import CheckpointError, HindcastError, InvariantBroken, SpecError
from windowlib.execution.bucket import executor_for
from windowlib.kernels.coverage import why_not
from windowlib.profiles import EngineFault
from windowlib.records import tables

DAMAGES: Final = 25
"""The damages of one checkpoint."""


def drawn_cases(seed: int) -> Iterator[Case]:
    """Yield one pipeline of each family."""
    for family in FAMILIES:
        skipped = Random(f"{family} {seed}").randrange(12)
        yield from islice(Matrix(family=family, seed=seed).cases(), skipped, skipped + 1)


def checkpoint(case: Case, seed: int) -> tuple[BucketPlan, list[FedRecord], dict[str, pa.Table], Replayed]:
    """Replay the first slices of a pipeline; return the plan and records of the others, and the state between."""
    rng = Random(seed)
    commits = sensor_log(rng, records_per_hour=30)
    hashes = own_hashes(commits)
    whole = answer(case, commits, hashes)
    cut = rng.choice((1, 2, 2))
    done = replay(case, whole, hashes, Way(chunks=(range(cut),)))
    plan, fed = chunk_plan(case, whole, hashes, range(cut, len(HOURS)), done)
    if not why_not(plan.spec, plan.layout):
        plan = replace(plan, executor=rng.choice(("auto", "operator")))
    state = {}
    for name in tables.INCREMENTAL_TABLES:
        if any(table.name == name for table in plan.tables):
            rows = state_before(done, name, cut)
            state[name] = pa.Table.from_pylist(rows, schema=schema_of(plan.table(name)))
    return plan, fed, state, done


def rows_of_others(
    plan: BucketPlan, fed: list[FedRecord], result: BucketResult, keys: frozenset[Key]
) -> dict[tuple[int, str], list[str]]:
    """Return the rows of all keys but some, by slice and table."""
    owners = {record.record_hash: tuple(record.values[name] for name in plan.keys) for record in fed}
    found: dict[tuple[int, str], list[str]] = {}
    for place, rows in result.rows.items():
        if place[1] == tables.STATE_REMOVALS:
            continue
        table = plan.table(place[1])
        for row in rows.to_pylist():
            of_record = owners.get(row.get("record_hash"))
            own = of_record if of_record is not None else tuple(row[name] for name in table.keys)
            if own not in keys:
                found.setdefault(place, []).append(repr(row))
    return {place: sorted(rows) for place, rows in found.items()}


def damage_of(result: BucketResult) -> str | None:
    """Return what the restored rows are refused for."""
    return next((term for number, equation, term in result.tallies if (number, equation) == (BEFORE, DAMAGED)), None)


def problem(
    case: Case, plan: BucketPlan, fed: list[FedRecord], state: Mapping[str, pa.Table], damage: Damaged, *, name: str,
    intact: Any,  # noqa: ANN401 - a function
) -> str | None:  # fmt: skip
    """Replay from a damaged state. Return what is wrong with the outcome, or None."""
    try:
        with bounded(30), explained(case.pipeline):
            result = run_bucket(plan, {**state, name: damage.rows}, fed)
    except InvariantBroken as error:
        return f"called a bug: {error}"
    except HindcastError as error:
        is_users = "tests/matrix/functions.py" in str(error) or "a function emitted another value" in str(error)
        is_users = is_users or isinstance(error, EngineFault)  # Flink fails as well
        return None if is_users or str(error).startswith("aggregate") else f"an error without a place: {error}"
    except Exception as error:  # noqa: BLE001 - the test tells which
        return f"a traceback: {type(error).__name__}: {error}"
    refusal = damage_of(result)
    if refusal is not None:
        is_placed = f"table {name}, column " in refusal
        return None if is_placed else f"a refusal without table and column: {refusal}"
    if damage.keys is None:
        return "a column of another type is used"
    keys = damage.keys
    own, others = rows_of_others(plan, fed, result, keys), rows_of_others(plan, fed, intact, keys)
    return None if own == others else "other keys have other rows"


def test_wrong_content_with_right_ids_is_refused_or_touches_its_key_only() -> None:
    for seed in seeds(2, among=50):
        for case in drawn_cases(seed):
            plan, fed, state, _ = checkpoint(case, seed)
            intact = run_bucket(plan, state, fed)
            assert damage_of(intact) is None, f"{damage_of(intact)}\n{case}"
            rng = Random(f"{seed} {case.family}")
            for _ in range(DAMAGES):
                name = rng.choice([name for name, rows in state.items() if rows.num_rows] or [""])
                damage = damaged(rng, plan.table(name), state[name]) if name else None
                if damage is None:
                    continue
                found = problem(case, plan, fed, state, damage, name=name, intact=intact)
                assert found is None, f"{found}\n{damage.what}\nexecutor {plan.executor}\n{case}"


def test_wrong_watermarks_with_right_ids_are_refused_or_harmless() -> None:
    table = tables.watermarks()
    for seed in seeds(2, among=50):
        for case in drawn_cases(seed):
            commits = sensor_log(Random(seed), records_per_hour=20)
            hashes = own_hashes(commits)
            whole = answer(case, commits, hashes)
            done = replay(case, whole, hashes, Way(chunks=(range(2),)))
            rows = pa.Table.from_pylist([watermark_row(row) for row in done.sources[-1]], schema=schema_of(table))
            assert checked_sources(rows) == done.sources[-1]
            rng = Random(f"watermarks {seed} {case.family}")
            for _ in range(DAMAGES):
                damage = damaged(rng, table, rows)
                if damage is None:
                    continue
                try:
                    sources = checked_sources(damage.rows)
                except CheckpointError as error:
                    assert "table watermarks, column " in str(error), damage.what  # noqa: PT017 - most are refused
                    continue
                later = Replayed(sources=[sources])
                with bounded(30), suppress(CheckpointError, EngineFault):
                    plan, fed = chunk_plan(case, whole, hashes, range(2, len(HOURS)), later)
                    run_bucket(plan, {}, fed)


def test_a_sound_state_that_is_too_large_for_one_task_is_not_called_damaged() -> None:
    for seed in seeds(2, among=50):
        for case in drawn_cases(seed):
            plan, _, state, _ = checkpoint(case, seed)
            sizes = {
                (name, column): rows[column].nbytes for name, rows in state.items() for column in rows.column_names
            }
            if not any(sizes.values()):
                continue
            most = max(sizes.values())
            for limit in (most, most - 1):
                restored = RestoredState(plan, most_bytes=limit)
                for name, rows in state.items():
                    restored.add(name, rows)
                if limit == most:
                    assert restored.restore(executor_for(plan)) is None
                    continue
                with pytest.raises(SpecError, match=f"has {most:,} bytes .* The checkpoint is sound") as refused:
                    restored.restore(executor_for(plan))
                assert any(f"table {name}, column {column} " in str(refused.value) for name, column in sizes)
