"""Replays whose tasks run in this process. The session of these tests cannot be started.

Chunks that let rows of the state stay stored give the same runs as chunks that restore the whole state.
"""

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.verify import verify
from jobs.replay.pinned import Pinned
from jobs.replay.sizes import Sizes
from jobs.replay.stages import run_chunk, touched_keys
from jobs.replay.stages.bloom_filter import BITS_MAX, BITS_MIN, BloomFilter, bits_for, key_words
from jobs.replay.stages.state import divided_state
from jobs.replay.tasks import LocalTasks
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import chances, seeds
from tests.support.replays import NOW_MS, pipeline_of, run_range, what_was_run
from windowlib.errors import CheckpointError, SpecError
from windowlib.records import tables

DAY_MS: Final = 86_400_000
FIRST: Final = date(1970, 1, 5)
DAYS: Final = 5
WHOLE: Final = Sizes(local_records=10**9, staying_rows=10**9, full_state_rows=0)
WINDOWS: Final = (
    "tumbling: {size: 60h}",
    "tumbling: {size: 60h}\n  allowed_lateness: 20h",
    "tumbling: {size: 30d}",
    "sliding: {size: 72h, slide: 24h}",
    "session: {gap: 30h}\n  allowed_lateness: 5h",
    "count: {size: 5}",
)
AGGREGATES: Final = ("{n: {count: {}}}", "{n: {count: {}}, total: {sum: v}, one: {first: v}, all: {collect_list: v}}")


def make_log(place: Path, random: Random, *, keys: list[Any], share: float) -> None:
    """Write a log: each day has records of some of the keys, at the time of their arrival or up to a day before."""
    kind = pa.string() if isinstance(keys[0], str) else pa.int64()
    for day in range(DAYS):
        chosen = keys if day == 0 else [key for key in keys if random.random() < share]
        rows = [
            {"k": key, "at": (day * DAY_MS) + random.randrange(-DAY_MS // 2, DAY_MS), "v": random.randrange(-9, 9)}
            for key in chosen
            for _ in range(random.randint(1, 2))
        ] or [{"k": keys[0], "at": day * DAY_MS, "v": 0}]
        random.shuffle(rows)
        table = pa.Table.from_pylist(rows, pa.schema([("k", kind), ("at", pa.int64()), ("v", pa.int64())]))
        shifted = pa.array(table["at"].to_numpy() + (FIRST - date(1970, 1, 1)).days * DAY_MS)
        days = pa.array([FIRST + timedelta(days=day)] * len(rows), pa.date32())
        table = table.set_column(1, "at", shifted).append_column("day", days)
        write_deltalake(str(place), table, mode="append", partition_by=["day"])
    track_rows(place)


def random_pipeline(random: Random) -> Pipeline:
    windows = random.choice(WINDOWS)
    return pipeline_of(
        "pipeline: stays\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        f"watermark: {{kind: bounded, out_of_orderness: {random.choice(('0s', '6h'))}}}\n"
        f"windows:\n  {windows}\naggregates: {random.choice(AGGREGATES)}\n"
    )


def days(first: int, last: int) -> tuple[str, str]:
    return str(FIRST + timedelta(days=first)), str(FIRST + timedelta(days=last))


def linked_lake(place: Path, log: Path) -> Path:
    place.mkdir()
    (place / "log").symlink_to(log)
    return place


@pytest.fixture
def stayed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the rows that stay, by table."""
    found: Counter[str] = Counter()

    def counting(*arguments: Any) -> Any:  # noqa: ANN401 - passed on unchanged
        state = divided_state(*arguments)
        for name, ids in state.staying.items():
            found[name] += ids.count
        return state

    monkeypatch.setattr(run_chunk, "divided_state", counting)
    return found


@pytest.mark.slow
def test_rows_that_stay_change_no_run(tmp_path: Path, stayed: Counter[str]) -> None:
    """Run ids, digests, fingerprints, counts and watermarks are equal, whatever stays. All equations close."""
    for seed in seeds(3):
        random, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        kind = random.choice((str, int))
        keys = [kind(number * random.choice((1, 1, 10**12))) for number in range(40)]
        make_log(root / "log", random, keys=[*dict.fromkeys(keys)], share=random.choice((0.02, 0.2)))
        pipeline = random_pipeline(random)
        staying = Sizes(
            local_records=10**9,
            staying_rows=0,
            staying_share=random.choice((0, 0, 2)),
            full_state_rows=0,
            checkpoint_parts=random.choice((3, 16)),
            records_per_columnar_bucket=random.choice((7, 10**6)),
            records_per_task=random.choice((7, 10**6)),
            least_records=random.choice((1, 10**6)),
            rows_per_read=random.choice((5, 1_000)),
            content_rows=random.choice((0, 1_000)),
        )
        runs = []
        for name, sizes in (("whole", WHOLE), ("staying", staying)):
            lake = linked_lake(root / name, root / "log")
            chunk = random.choice((1, 1, 2))
            runs.append(what_was_run(run_range(None, lake, pipeline, days(0, DAYS), sizes=sizes, chunk=chunk)))
            view = Ledger(Lake(root=str(lake)).ledger("stays"), now_ms=lambda: NOW_MS).view()
            assert not verify(Lake(root=str(lake)), "stays", view).findings
        assert runs[0] == runs[1]
    assert stayed[tables.WINDOW_STATE] > 0
    assert stayed[tables.TIMERS] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "column"), [(tables.WINDOW_STATE, "k"), (tables.TIMERS, "at_ms")])
def test_damage_among_the_rows_that_stay_is_found(tmp_path: Path, stayed: Counter[str], name: str, column: str) -> None:
    """The driver sums up ids only. Otherwise, with a changed key, a window would stay that the chunk has to change."""
    make_log(tmp_path / "log", Random(1), keys=[*range(40)], share=0.02)
    lake = linked_lake(tmp_path / "lake", tmp_path / "log")
    pipeline = pipeline_of(
        "pipeline: stays\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        "watermark: {kind: ascending}\nwindows:\n  tumbling: {size: 30d}\naggregates: {n: {count: {}}}\n"
    )
    sizes = Sizes(local_records=10**9, staying_rows=0, staying_share=0, full_state_rows=0, content_rows=0)
    run_range(None, lake, pipeline, days(0, 1), sizes=sizes, chunk=1)
    versions = {table.name: DeltaTable(str(table)).version() for table in (lake / "stays").iterdir()}
    [path] = [Path(one.removeprefix("file://")) for one in DeltaTable(str(lake / "stays" / name)).file_uris()]
    good = path.read_bytes()
    rows = pq.ParquetFile(path).read()
    values = rows[column].to_numpy().copy()
    values[3] += 1_000
    pq.write_table(rows.set_column(rows.column_names.index(column), column, pa.array(values)), path)
    with pytest.raises(CheckpointError, match=rf"in table {name} is not what was written"):
        run_range(None, lake, pipeline, days(1, 2), sizes=sizes, chunk=1)
    del versions["ledger"]
    assert versions == {one: DeltaTable(str(lake / "stays" / one)).version() for one in versions}
    path.write_bytes(good)
    run_range(None, lake, pipeline, days(1, 2), sizes=sizes, chunk=1)
    assert stayed[name] > 0


def test_a_timer_outside_the_bounds_of_its_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver skips files of timers by their bounds. If bounds are damaged, the window of a due timer would stay."""
    make_log(tmp_path / "log", Random(1), keys=[*range(40)], share=0.02)
    lake = linked_lake(tmp_path / "lake", tmp_path / "log")
    pipeline = pipeline_of(
        "pipeline: stays\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        "watermark: {kind: ascending}\nwindows:\n  tumbling: {size: 1d}\naggregates: {n: {count: {}}}\n"
    )
    sizes = Sizes(local_records=10**9, staying_rows=0, staying_share=0, full_state_rows=0)
    run_range(None, lake, pipeline, days(0, 1), sizes=sizes, chunk=1)
    monkeypatch.setattr(touched_keys, "_may_reach", lambda _watermark_ms: lambda _bounds: False)
    with pytest.raises(CheckpointError, match="timers outside the bounds"):
        run_range(None, lake, pipeline, days(1, 2), sizes=sizes, chunk=1)
    monkeypatch.undo()
    run_range(None, lake, pipeline, days(1, 2), sizes=sizes, chunk=1)


def test_a_chunk_with_much_state_that_stays_runs_here(tmp_path: Path) -> None:
    """The rows that stay weigh less than those that are restored."""
    make_log(tmp_path / "log", Random(1), keys=[*range(200)], share=0.02)
    lake = linked_lake(tmp_path / "lake", tmp_path / "log")
    pipeline = pipeline_of(
        "pipeline: stays\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        "watermark: {kind: ascending}\nwindows:\n  tumbling: {size: 30d}\naggregates: {n: {count: {}}}\n"
    )
    few = Sizes(local_records=60_000, staying_rows=0, full_state_rows=0)
    run_range(None, lake, pipeline, days(0, 1), sizes=few, chunk=1)
    for own, context in ((1, pytest.raises(AssertionError, match="started a session")), (9, nullcontext())):
        with context:
            sizes = replace(few, local_records=50_000 + 150, staying_per_record=own)
            run_range(None, lake, pipeline, days(1, 2), sizes=sizes, chunk=1)


@pytest.mark.slow
def test_an_order_is_divided_where_threads_replay_a_part_of_it(tmp_path: Path) -> None:
    """Spark's processes need more time and memory for a record."""
    make_log(tmp_path / "log", Random(1), keys=[*range(200)], share=0.5)
    pipeline = pipeline_of(
        "pipeline: stays\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        "watermark: {kind: ascending}\nwindows:\n  tumbling: {size: 30h}\naggregates: {n: {count: {}}}\n"
    )
    runs = dict[int, list[dict[str, object]]]()
    for most, divided in ((10**9, [5]), (102_000, [2, 2, 1]), (52_000, [1] * 5)):
        lake = linked_lake(tmp_path / str(most), tmp_path / "log")
        outcome = run_range(None, lake, pipeline, days(0, DAYS), sizes=Sizes(local_records=most, full_state_rows=0))
        attempts = Counter(run.result.attempt_id for run in outcome.runs)
        assert [*attempts.values()] == divided
        assert outcome.replayed == DAYS
        assert outcome.is_published
        runs[most] = what_was_run(outcome)
    assert all(run == runs[10**9] for run in runs.values())


@pytest.mark.slow
def test_a_state_of_many_bytes_is_divided_into_more_buckets_and_gives_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log(tmp_path / "log", Random(1), keys=[*range(40)], share=0.2)
    pipeline = pipeline_of(
        "pipeline: stays\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        "watermark: {kind: ascending}\nwindows:\n  tumbling: {size: 30d}\naggregates: {all: {collect_list: v}}\n"
    )
    buckets: list[int] = []
    counted = Pinned.buckets

    def counting(pinned: Pinned, records: int, *, cores: int) -> int:
        buckets.append(counted(pinned, records, cores=cores))
        return buckets[-1]

    monkeypatch.setattr(Pinned, "buckets", counting)
    runs = []
    for stored in (WHOLE.state_bytes_per_bucket, 1):
        lake = linked_lake(tmp_path / f"lake{stored}", tmp_path / "log")
        sizes = replace(WHOLE, state_bytes_per_bucket=stored, least_records=10**6)
        runs.append(what_was_run(run_range(None, lake, pipeline, days(0, 2), sizes=sizes, chunk=1)))
    assert runs[0] == runs[1]
    assert buckets == [1, 1, 1, WHOLE.buckets]


def test_a_set_of_keys_has_what_was_added_and_little_else() -> None:
    for seed in seeds(20):
        chance = np.random.default_rng(seed)
        count = int(chance.integers(1, 2_000))
        texts = chance.integers(0, 10**9, 2 * count)
        columns = {"k0": pa.array(texts)} if seed % 2 else {"k0": pa.array(map(str, texts)), "k1": pa.array(texts % 3)}
        words = key_words(columns)
        bits = bits_for(count)
        assert BITS_MIN <= bits <= BITS_MAX
        first, second = BloomFilter.empty(bits), BloomFilter.empty(bits)
        first.add(words[: count // 2])
        second.add(words[count // 2 : count])
        both = BloomFilter.together(bits, [first.packed(), second.packed()])
        assert both.has(words[:count]).all()
        assert not BloomFilter.together(bits, []).has(words).any()
        assert both.has(words[count:]).mean() < 0.3 if count > 100 else True


def test_threads_share_tasks() -> None:
    """The results come in order, and the first error of the arguments' order ends the run."""
    for random in chances(20):
        tasks = LocalTasks(random.choice((1, 2, 5)))
        run = random.choice((tasks.run, tasks.share))
        numbers = [random.randrange(-3, 50) for _ in range(random.randrange(6))]
        if 0 in numbers:
            with pytest.raises(ZeroDivisionError):
                run(lambda number: 100 // number, numbers)
        else:
            assert run(lambda number: 100 // number, numbers) == [100 // number for number in numbers]
    assert LocalTasks().sharers >= 1


def test_tasks_run_at_the_same_time_in_so_many_threads_and_none_begins_after_an_error() -> None:
    both, begun = Barrier(2, timeout=60), list[int]()
    LocalTasks(2).run(lambda _: both.wait(), [1, 2])

    def fail(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        raise SpecError(str(number))

    with pytest.raises(SpecError, match="0"):
        LocalTasks(2).run(fail, range(1_000))
    assert len(begun) < 1_000


def test_local_tasks_leave_the_garbage_collector_as_it_was() -> None:
    import gc

    before = gc.get_threshold()
    assert LocalTasks().run(gc.set_threshold, [7, 9]) == [None, None]
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError):
        LocalTasks().run(lambda number: 1 // number, [1, 0])
