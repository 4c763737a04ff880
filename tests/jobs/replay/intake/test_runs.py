"""Compacted files are read in their own order, without a sort, if their records are in few runs. No Spark."""

import shutil
from datetime import timedelta
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.verify import verify
from jobs.replay.intake import intake
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.intake import take_in
from jobs.replay.intake.layout import parts_of
from jobs.replay.intake.log_blocks import LogColumns
from jobs.replay.intake.probe import ProbeSizes, clusters, probe, probed_file
from jobs.replay.intake.runs import RunFinder, in_log_order, with_runs
from jobs.replay.intake.source_files import OrderReading
from jobs.replay.pinned import pin
from jobs.replay.stages import run_chunk
from jobs.replay.stages.partial_aggregation import with_time_bounds
from jobs.replay.stages.scan import NEVER_MS
from jobs.replay.tasks import LocalTasks
from tests.jobs.replay.intake.test_intake import file_of, plan_of
from tests.jobs.replay.stages.test_combine import DAYS, FIRST, TIMES, make_log, random_pipeline, random_sizes
from tests.support.compacted import compact, in_turns
from tests.support.fuzzing import seeds
from tests.support.replays import NOW_MS, order_of, run_range, what_was_run
from windowlib.columnar.instants import read_instants
from windowlib.columnar.log_reading import TimeColumn
from windowlib.records import tables
from windowlib.records.column_types import field_node


def parts_of_ids(chance: Random) -> list[list[int]]:
    """Return the row ids of some files, of which some rows were deleted."""
    parts, first = [], 0
    for _ in range(chance.randint(1, 6)):
        ids = range(first, first := first + chance.choice((1, 3, 20, 60)))
        parts.append([number for number in ids if chance.random() < chance.choice((1, 0.9))])
    return [part for part in parts if part]


def test_runs_have_each_record_once() -> None:
    for seed in seeds(300):
        chance = Random(seed)
        parts = parts_of_ids(chance)
        ids = in_turns(chance, parts)
        if not ids:
            continue
        version_of = {number: at // 2 for at, part in enumerate(parts) for number in part}
        finder = RunFinder(most_steps=chance.choice((1, 3, 16)), least_records=1)
        size, times = chance.randint(1, 40), np.array([chance.randrange(99) for _ in ids])
        for start in range(0, len(ids), size):
            own = ids[start : start + size]
            order = [pa.array([version_of[number] for number in own]), pa.array(own)]
            assert finder.add(order, times[start : start + size]) is not None, f"seed {seed}"
        ordered = in_log_order([finder.runs])
        assert ordered is not None, f"seed {seed}"
        read = [(run, run.first + run.step * at, run.row_id + at) for run, _ in ordered for at in range(run.records)]
        assert [row_id for _, _, row_id in read] == sorted(ids), f"seed {seed}"
        assert all(ids[place] == row_id and version_of[row_id] == run.commit for run, place, row_id in read)
        assert all(run.latest_ms == times[run.first :: run.step][: run.records].max() for run in finder.runs)


def test_files_with_many_runs_are_not_read_so() -> None:
    ids = [*range(0, 100, 2), *range(1, 100, 2)]
    order = [pa.array([0] * 100), pa.array(ids)]
    assert RunFinder(most_steps=4, least_records=10).add(order, None) is None
    assert RunFinder(most_steps=4, least_records=1).add(order, None) is not None
    turns = [pa.array([0] * 100), pa.array(np.arange(100).reshape(2, 50).T.ravel())]
    assert RunFinder(most_steps=1, least_records=10).add(turns, None) is None
    found = RunFinder(most_steps=2, least_records=10).add(turns, None)
    assert found is not None
    assert [tuple(run)[1:] for run in found] == [(0, 0, 2, 50, None), (50, 1, 2, 50, None)]


@pytest.mark.slow
def test_blocks_with_runs_give_each_record_its_rank_and_commit(tmp_path: Path) -> None:
    in_runs = 0
    for seed in seeds(60):
        chance, directory = Random(seed), tmp_path / str(seed)
        directory.mkdir()
        parts = parts_of_ids(chance)
        version_of = {number: at // 2 for at, part in enumerate(parts) for number in part}
        cut = chance.randint(0, len(parts))
        plan = plan_of(directory, None, rows_per_batch=chance.randint(1, 9))
        sizes = ProbeSizes(1_000_000, run_steps=chance.choice((1, 4)), run_records=chance.choice((1, 3)))
        files = []
        for number, own in enumerate((parts[:cut], parts[cut:])):
            ids = in_turns(chance, own)
            rows, versions = [{"n": row_id} for row_id in ids], [version_of[row_id] for row_id in ids]
            files.append(file_of(directory, rows, number, group=chance.choice((4, 1_000)), v=versions, i=ids))
        probed, blocks_of = [], {}
        for file in files:
            blocks = (
                [file]
                if chance.random() < 0.5
                else parts_of(file, uri=str(directory), records_per_block=chance.randint(1, 9))
            )
            blocks_of[file.path] = blocks
            of_parts = [probe(block, plan.reading, sizes) for block in blocks]
            probed.append((file, probed_file(of_parts)))
        rank = 0
        for cluster in clusters(probed, memory_bytes=1_000_000):
            of_cluster = [block for file in cluster.files for block in blocks_of[file.path]]
            wanted = sorted(
                row["n"] for block in of_cluster for rows in plan.reading.log.batches(block) for row in rows.to_pylist()
            )
            if cluster.runs:
                in_runs += 1
                read = [
                    (first + at, block.runs[run].commit, row["n"])
                    for block in with_runs(of_cluster, cluster.runs, rank=rank)
                    for run, first, rows in plan.reading.log.in_ranks(block)
                    for at, row in enumerate(rows.to_pylist())
                ]
                assert sorted(read) == [(rank + at, version_of[n], n) for at, n in enumerate(wanted)], f"seed {seed}"
            rank += len(wanted)
    assert in_runs > 20


def test_a_part_without_records_is_no_block(tmp_path: Path) -> None:
    """Defect: its commit was counted, so later commits of the slice had other numbers, and runs other ids."""
    ids = [0, 2, 1, 3]
    file = file_of(tmp_path, [{"n": row_id} for row_id in ids], 7, v=[0] * 4, i=ids)
    finder = RunFinder(most_steps=4, least_records=1)
    assert finder.add([pa.array([0] * 4), pa.array(ids)], None) is not None
    empty = file._replace(records=0)
    [block] = with_runs([empty, file], [(), tuple(finder.runs)], rank=0)
    assert sum(run.records for run in block.runs) == len(ids)


def test_an_event_time_that_is_not_utf8_ends_no_probe(tmp_path: Path) -> None:
    """Defect: the scan makes such a record invalid, and the search for runs ended with a UnicodeDecodeError."""
    path, raw = tmp_path / "0.parquet", pa.array([b"\xff\xfe", b"1", b"2"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    pq.write_table(pa.table({"t": texts, "v": pa.array([0] * 3), "i": pa.array([0, 1, 2])}), path)
    log = LogColumns(
        uri=str(tmp_path), version=0, fields=[field_node("t", "string")], rows_per_batch=3, joined_bytes=200
    )
    reading = OrderReading(log=log, columns=None, hidden=("v", "i"), time=TimeColumn(name="t", unit="ms"))
    file = Block(str(path), path.name, {}, 0, records=3)
    runs = probe(file, reading, ProbeSizes(1_000, run_steps=4, run_records=1)).runs
    assert runs is not None
    assert [run.latest_ms for part in runs for run in part] == [2]


SIDE_COLUMNS = ("slice_id", "rank", "record_id", "row_id", "row_check")


@pytest.mark.slow
@pytest.mark.parametrize("run_steps", [0, 3])
def test_a_compacted_log_has_the_runs_of_the_log_before(
    tmp_path: Path, run_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run ids, digests, counts and tallies are equal, and the rows of side tables, however the records are read."""
    made = 0

    def counting(*arguments: object, rank: int) -> object:
        nonlocal made
        made += 1
        return with_runs(*arguments, rank=rank)  # type: ignore[arg-type]

    monkeypatch.setattr(intake, "with_runs", counting)
    for seed in seeds(6):
        chance, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        form = chance.choice(list(TIMES))
        make_log(root / "log", chance, form)
        pipeline = random_pipeline(chance, form)
        shutil.copytree(root / "log", root / "compacted" / "log")
        compact(root / "compacted" / "log", chance)
        sizes = random_sizes(chance, run_steps=run_steps)
        outcomes = {}
        for lake in (root, root / "compacted"):
            bounds = str(FIRST), str(FIRST + timedelta(days=DAYS))
            outcome = run_range(None, lake, pipeline, bounds, chunk=chance.choice((1, 2, None)), sizes=sizes)
            view = Ledger(Lake(root=str(lake)).ledger(pipeline.name), now_ms=lambda: NOW_MS).view()
            stored = StoredRuns(Lake(root=str(lake)), pipeline.name, view)
            side = {
                name: sorted(
                    zip(*(stored.read(name, view.runs.values())[at].to_pylist() for at in SIDE_COLUMNS), strict=True)
                )
                for name in (tables.LATE_RECORDS, tables.INVALID_RECORDS)
            }
            assert not verify(Lake(root=str(lake)), pipeline.name, view).findings, f"seed {seed}"
            outcomes[lake] = what_was_run(outcome), side
        assert outcomes[root] == outcomes[root / "compacted"], f"seed {seed}"
    assert (made > 0) == (run_steps > 0)


@pytest.mark.slow
def test_bounds_of_runs_are_the_greatest_event_times_before_them(tmp_path: Path) -> None:
    bounded = 0
    for seed in seeds(8):
        chance, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        form = chance.choice([name for name in TIMES if name != "double"])
        make_log(root / "log", chance, form)
        compact(root / "log", chance)
        pipeline = random_pipeline(chance, form)
        order = order_of(root, pipeline, (str(FIRST), str(FIRST + timedelta(days=DAYS))))
        pinned = pin(order, sizes=random_sizes(chance))
        chunk, size = pinned.chunk_log, chance.choice((16, 10**6))
        layout = take_in(LocalTasks(), chunk, directory=str(root), records_per_block=size).layout
        time = chunk.reading.event_time
        parts = []
        for block in with_time_bounds(layout.blocks, pinned, time):
            latest: dict[int, list[int]] = {}
            for run, _, rows in chunk.columns.in_ranks(block):
                read = read_instants(rows.column(time.name), time.unit)
                latest.setdefault(run, []).extend(read.ms[read.problems == 0].tolist())
            parts += [(part, latest.get(run, [])) for run, part in enumerate(block.in_log_order())]
        before: int | None = NEVER_MS
        next_sequence = 0
        for part, times in sorted(parts, key=lambda entry: entry[0].sequence):
            assert part.sequence == next_sequence, f"seed {seed}"
            assert part.latest_before_ms == before, f"seed {seed}"
            next_sequence += part.records
            if part.latest_ms is None:  # the file is read as a whole, and has no statistics
                before = None
                continue
            assert all(at_ms <= part.latest_ms for at_ms in times), f"seed {seed}"
            before = None if before is None else max(before, part.latest_ms)
            bounded += 1
        assert next_sequence == layout.records
    assert bounded > 20


def test_the_audit_reads_beside_the_scan_what_fits_into_the_time_of_idle_cores() -> None:
    def group(records: int) -> tuple[Block, ...]:
        return (Block("", "", {}, 0, 0, 0, 0, 0, records),)

    even, uneven = [group(10)] * 4, [group(72), group(72), group(56)]
    assert run_chunk._scans_beside(even, even, cores=2) == 0
    assert run_chunk._scans_beside(uneven, uneven, cores=2) == 2
    assert run_chunk._scans_beside(uneven, [], cores=2) == 0
    assert run_chunk._scans_beside([], even, cores=3) == 0
