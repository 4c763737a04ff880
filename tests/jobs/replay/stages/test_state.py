"""How the files of a checkpoint are shared among tasks."""

from random import Random

import pyarrow as pa

from jobs.lake.checkpoint_rows import PartFiles
from jobs.lake.table_files import TableFile
from jobs.replay.sizes import Sizes
from jobs.replay.stages.bloom_filter import BloomFilter
from jobs.replay.stages.state import DividePlan, StoredTable, divide_tasks
from jobs.replay.stages.touched_keys import TouchedFilter
from tests.support.fuzzing import chances
from windowlib.records import tables
from windowlib.records.tables import Table

NOTHING = PartFiles("removals", pa.schema([]), (), {})
TIMERS = tables.timers({"k": "bigint"})
COUNTS = tables.window_state({"k": "bigint"}, {"n": {"count": "bigint"}})
FIRSTS = tables.window_state({"k": "bigint"}, {"f": {"slice_start_ms": "bigint", "rank": "bigint", "value": "string"}})
"""The ids of these rows depend on the other rows of their key in a part."""


def plan_of(random: Random, windows: Table) -> DividePlan:
    parts = random.randint(1, 5)
    chunk = TouchedFilter(keys=BloomFilter.empty(10).packed(), index_bits=10, watermark_ms=0)

    def files(name: str) -> PartFiles:
        found = [
            TableFile(f"{name}-{part}-{number}", (f"s{part}", "a"), random.choice((None, rows)), rows * 9)
            for part in range(parts)
            for number in range(random.randint(0, 3))
            for rows in [random.choice((1, 10, 500))]
        ]
        return PartFiles(name, pa.schema([]), tuple(found), {(f"s{part}", "a"): part for part in range(parts)})

    return DividePlan(
        stored={one.name: StoredTable(table=one, files=files(one.name)) for one in (windows, TIMERS)},
        removals=NOTHING,
        parts=parts,
        buckets=1,
        directory="",
        sizes=Sizes(records_per_task=random.choice((20, 10**6)), least_records=random.choice((1, 10**6))),
        touched=random.choice((None, chunk)),
    )


def test_each_file_is_in_one_task_and_no_task_is_much_larger_than_another() -> None:
    for random in chances(200):
        plan = plan_of(random, random.choice((COUNTS, FIRSTS)))
        cores = random.randint(1, 4)
        tasks = divide_tasks(plan, cores)
        everything = {(name, file) for name, one in plan.stored.items() for file in one.files.files}
        shared = [(name, file) for task in tasks for name, files in task.items() for file in files]
        assert len(shared) == len(everything)
        assert {*shared} == everything
        for task in tasks:
            for files in task.values():
                assert [one.attempt for one in files] == sorted(one.attempt for one in files)
        units = {(name, file.attempt): 0 for name, file in everything}
        loads = []
        is_whole = plan.touched is not None and plan.stored[tables.WINDOW_STATE].table is FIRSTS
        for task in tasks:
            loads.append(sum(file.bytes or 0 for files in task.values() for file in files))
            for file in task.get(tables.WINDOW_STATE, ()) if is_whole else ():
                units[tables.WINDOW_STATE, file.attempt] |= 1 << tasks.index(task)
        assert all(count.bit_count() <= 1 for count in units.values())
        if not is_whole and len(tasks) > 1:
            assert max(loads) - min(loads) <= max(file.bytes or 0 for _, file in everything)
