"""The intake gives the records of a slice in log order, from files in any order, without Spark."""

import errno
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.replay.intake.blocks import Block
from jobs.replay.intake.intake import _counted
from jobs.replay.intake.layout import parts_of
from jobs.replay.intake.log_blocks import ROW, LogColumns
from jobs.replay.intake.order_keys import comparable, key_at
from jobs.replay.intake.probe import Cluster, Probed, ProbeSizes, clusters, probe, probed_file, whole_cluster
from jobs.replay.intake.ranges import divided
from jobs.replay.intake.sorted_files import OrderPlan, SortedFile
from jobs.replay.intake.source_files import OrderReading
from tests.support.fuzzing import seeds
from windowlib.errors import LogError
from windowlib.records.column_types import field_node, parse_type

KINDS = {"n": "bigint", "f": "double", "s": "string", "list": "array<struct<a:int,b:string>>", "day": "string"}
FIELDS = [field_node(name, parse_type(kind)) for name, kind in KINDS.items()]
STORED = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
                    ("list", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])))])  # fmt: skip


def file_of(
    directory: Path,
    rows: Sequence[dict[str, Any]],
    number: int,
    *,
    day: str = "2020-01-01",
    group: int = 1_000,
    **hidden: Sequence[int | None],
) -> Block:
    """Write rows as a file of the log, with `group` rows in a row group.

    Its rows were appended by commit `number`, from row id 100 * `number` on.
    """
    path = directory / f"{number}.parquet"
    table = pa.Table.from_pylist(list(rows), STORED)
    for name, values in hidden.items():
        table = table.append_column(name, pa.array(values, pa.int64()))
    pq.write_table(table, path, row_group_size=group)
    return Block(str(path), path.name, {"day": day}, 0, number, records=len(rows), base_row_id=100 * number)


def plan_of(directory: Path, columns: tuple[str, ...] | None, **changes: Any) -> OrderPlan:  # noqa: ANN401 - any field
    log = LogColumns(
        uri=str(directory),
        version=0,
        fields=FIELDS,
        rows_per_batch=changes.pop("rows_per_batch", 3),
        joined_bytes=changes.pop("joined_bytes", 200),
    )
    hidden = () if columns is not None else ("v", "i")
    named: dict[str, Any] = {
        "reading": OrderReading(log=log, columns=columns, hidden=hidden),
        "directory": str(directory),
        "rows_per_group": 4,
        "needs_commits": False,
        "memory_bytes": 2_000,
        "threads": 1,
    }
    return OrderPlan(**(named | changes))


def probe_sizes(plan: OrderPlan, *, run_steps: int = 0, run_records: int = 1) -> ProbeSizes:
    return ProbeSizes(memory_bytes=plan.memory_bytes, run_steps=run_steps, run_records=run_records)


def probed_in_parts(file: Block, plan: OrderPlan, *, most: int) -> Probed:
    """Return the order of the records of a file, of which tasks read parts of about so many records."""
    parts = parts_of(file, uri=plan.reading.log.uri, records_per_block=most)
    assert sum(part.records for part in parts) == file.records
    of_parts = [probe(part, plan.reading, probe_sizes(plan)) for part in parts]
    return probed_file(of_parts)


def together(files: Sequence[Block], plan: OrderPlan, *, most: int = 1_000) -> Cluster:
    """Return all files as one cluster that is not ordered."""
    found = [(file, probed_in_parts(file, plan, most=most)) for file in files]
    [cluster] = whole_cluster(found, memory_bytes=plan.memory_bytes)
    return cluster


def rows_of(cluster: Cluster, plan: OrderPlan) -> list[dict[str, Any]]:
    """Return the records of a cluster as the scan reads them."""
    if cluster.is_ordered:
        return [row for batch in plan.reading.log.batches(cluster.files[0]) for row in batch.to_pylist()]
    made = divided(cluster, plan)
    if isinstance(made, SortedFile):
        rows = pq.read_table(made.path).to_pylist()
        assert sum(group.records for group in made.groups) == len(rows)
        return [dict(row) for row in rows]
    read = [[row for batch in plan.reading.log.batches(block) for row in batch.to_pylist()] for block in made]
    assert [len(rows) for rows in read] == [block.records for block in made]
    assert len(made) <= len(cluster.bounds) + 1
    return [row for rows in read for row in rows]


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "n": place if random.random() < 0.8 else None,
            "f": random.choice([None, float("inf"), -0.0, random.random()]),
            "s": random.choice([None, "", "é", "z", str(place)]),
            "list": random.choice([None, [], [{"a": place, "b": None}, None]]),
        }
        for place in range(count)
    ]


def key_of(row: dict[str, Any], columns: Sequence[str]) -> Any:  # noqa: ANN401 - a place
    return key_at([comparable(pa.array([row[name]], STORED.field(name).type)) for name in columns], 0)


@pytest.mark.slow
def test_divided_records_are_those_of_the_files_in_the_order_of_the_columns(tmp_path: Path) -> None:
    most = 0
    for seed in seeds(40):
        random, directory = Random(seed), tmp_path / str(seed)
        directory.mkdir()
        rows = random_rows(random, random.randint(1, 40))
        columns = tuple(random.sample(["n", "f", "s"], random.randint(1, 3)))
        random.shuffle(rows)
        cuts = sorted(random.randint(0, len(rows)) for _ in range(2))
        parts = [rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]]
        # Files of one slice may have different values of another partition column.
        days = random.choice([["2020-01-01"] * 3, ["2020-01-01", "2020-01-02", "2020-01-01"]])
        group = random.choice([1, 3, 1_000])
        files = [file_of(directory, part, number, day=days[number], group=group) for number, part in enumerate(parts)]
        rows = [{**row, "day": day} for part, day in zip(parts, days, strict=True) for row in part]
        plan = plan_of(
            directory,
            columns,
            rows_per_batch=random.randint(1, 9),
            memory_bytes=random.choice([150, 1_000, 1_000_000]),
            threads=random.randint(1, 3),
        )
        keys = [key_of(row, columns) for row in rows]
        distinct = {repr((key, row)) for key, row in zip(keys, rows, strict=True)}
        cluster = together(files, plan, most=random.choice([1, 4, 1_000]))
        most = max(most, len(cluster.bounds))
        if len({repr(key) for key in keys}) < len(distinct):
            with pytest.raises(LogError, match="is not a total order"):
                rows_of(cluster, plan)
            continue
        wanted = sorted(rows, key=lambda row: key_of(row, columns))
        assert repr(rows_of(cluster, plan)) == repr(wanted), f"seed {seed}"
    assert most > 3, "some clusters have many ranges"


@pytest.mark.slow
def test_clusters_are_the_log_order_whatever_the_arrangement_of_the_records(tmp_path: Path) -> None:
    """Files that overlap are one cluster. A file alone is read in order if it fits into memory and shares no place."""
    for seed in seeds(60):
        random, directory = Random(seed), tmp_path / str(seed)
        directory.mkdir()
        kind = random.choice(["n", "s"])
        numbers = random.choices(range(12), k=9) if random.random() < 0.3 else random.sample(range(99), 9)
        numbers = sorted(numbers) if random.random() < 0.7 else numbers
        parts = [numbers[:4], numbers[4:5], numbers[5:], []]
        for part in parts:
            if random.random() < 0.4:
                random.shuffle(part)
        random.shuffle(parts)
        group = random.choice([1, 2, 1_000])
        files = [
            file_of(directory, [{"n": n, "s": f"{n:03d}"} for n in part], place, group=group)
            for place, part in enumerate(parts)
        ]
        fits = random.random() < 0.7
        most = 1_000_000 if fits else 10
        plan = plan_of(directory, (kind,), rows_per_batch=random.randint(1, 5), memory_bytes=most)
        at_once = random.choice([1, 3, 1_000])
        probed = [(file, probed_in_parts(file, plan, most=at_once)) for file in files]
        found = clusters(probed, memory_bytes=most)
        spans = [(min(part), max(part)) for part in parts if part]
        assert sum(len(one.files) for one in found) == len(spans), f"seed {seed}"
        read: list[int] = []
        for one in found:
            own = [number for file in one.files for number in parts[file.commit]]
            ascends = all(before < after for before, after in pairwise(own))
            alone = len(one.files) == 1
            assert one.is_ordered == (alone and (ascends or fits)), f"seed {seed}"
            assert all(bool(file.reorder_by) == (one.is_ordered and not ascends) for file in one.files)
            read += [row["n"] for row in rows_of(one, plan)]
        assert read == sorted(numbers), f"seed {seed}"


def test_records_that_a_task_puts_in_order_keep_all_columns_and_their_rows_in_the_file(tmp_path: Path) -> None:
    for seed in seeds(25):
        random, directory = Random(seed), tmp_path / str(seed)
        directory.mkdir()
        rows = random_rows(random, random.randint(1, 30))
        for place, row in enumerate(rows):
            row["n"] = place or None
        random.shuffle(rows)
        block = file_of(directory, rows, 0)._replace(reorder_by=("n",))
        sizes = {"rows_per_batch": random.randint(1, 9), "joined_bytes": random.choice((0, 200, 10**9))}
        log = plan_of(directory, ("n",), **sizes).reading.log
        wanted = sorted(rows, key=lambda row: -1 if row["n"] is None else row["n"])
        whole = [row for batch in log.batches(block) for row in batch.to_pylist()]
        assert repr(whole) == repr([{**row, "day": "2020-01-01"} for row in wanted]), f"seed {seed}"
        some = [row for batch in log.batches(block, ["day", "s"], hidden=(ROW,)) for row in batch.to_pylist()]
        numbered = [{"day": "2020-01-01", "s": row["s"], ROW: rows.index(row)} for row in wanted]
        assert some == numbered, f"seed {seed}"


def test_a_text_that_a_file_has_once_takes_its_memory_in_every_record(tmp_path: Path) -> None:
    block = file_of(tmp_path, [{"n": n, "s": "x" * 1_000} for n in range(5_000)], 0)
    assert Path(block.path).stat().st_size < 1_000_000
    log = plan_of(tmp_path, ("n",)).reading.log
    assert 5_000_000 < log.bytes_of(block) < 6_000_000


def test_compacted_records_go_back_to_the_order_of_appending_and_keep_their_commits(tmp_path: Path) -> None:
    """Files without hidden columns, and nulls in them, have the place that the Delta log gives the file."""
    compacted = [{"n": n} for n in (5, 1, 3, 9)]
    files = [
        file_of(tmp_path, [{"n": 7}, {"n": 8}], 3),
        file_of(tmp_path, compacted, 4, v=[2, 1, 1, None], i=[4, 0, 1, None]),
    ]
    for memory_bytes in (10, 1_000_000):
        plan = plan_of(tmp_path, None, needs_commits=True, memory_bytes=memory_bytes)
        cluster = together(files, plan)
        assert [row["n"] for row in rows_of(cluster, plan)] == [1, 3, 5, 7, 8, 9]
        found = divided(cluster, plan)
        assert isinstance(found, SortedFile)
        assert [tuple(group) for group in found.groups] == [(1, 2), (2, 1), (3, 2), (4, 1)]
        without = plan_of(tmp_path, None, memory_bytes=memory_bytes)
        assert [row["n"] for row in rows_of(cluster, without)] == [1, 3, 5, 7, 8, 9]


def test_a_compacted_file_is_ordered_by_its_reader_if_it_has_all_places(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, None)
    rows = [{"n": n} for n in (5, 1, 3, 9)]
    whole = file_of(tmp_path, rows, 1, v=[2, 1, 1, 4], i=[4, 0, 1, 9])
    some = file_of(tmp_path, rows, 2, v=[2, 1, 1, None], i=[4, 0, 1, None])
    for file, has_all in ((whole, True), (some, False)):
        found = probe(file, plan.reading, probe_sizes(plan))
        assert (found.is_ascending, found.reorder_by) == (False, ("v", "i") if has_all else ())
        [cluster] = clusters([(file, found)], memory_bytes=1_000_000)
        assert cluster.is_ordered == has_all
        assert [row["n"] for row in rows_of(cluster, plan)] == [1, 3, 5, 9]


def test_the_order_of_a_file_does_not_depend_on_the_parts_in_which_tasks_read_it(tmp_path: Path) -> None:
    ascending = 0
    for seed in seeds(60):
        random, directory = Random(seed), tmp_path / str(seed)
        directory.mkdir()
        count = random.randint(0, 12)
        rows = [{"n": n} for n in random.sample(range(99), count)]
        versions = random.choices([1, 2], k=count) if random.random() < 0.5 else [1] * count
        ids = random.sample(range(50), count)
        ids = sorted(ids) if random.random() < 0.6 else ids
        lost = {random.randrange(count)} if count and random.random() < 0.3 else set()
        hidden = [[None if at in lost else value for at, value in enumerate(values)] for values in (versions, ids)]
        file = file_of(directory, rows, 3, group=random.randint(1, 4), v=hidden[0], i=hidden[1])
        plan = plan_of(directory, None, rows_per_batch=random.randint(1, 5))
        whole = probe(file, plan.reading, probe_sizes(plan))
        parts = probed_in_parts(file, plan, most=random.randint(1, 6))
        assert (parts.span, parts.is_ascending) == (whole.span, whole.is_ascending), f"seed {seed}"
        assert whole.is_ascending or parts.reorder_by == whole.reorder_by, f"seed {seed}"
        assert parts.bytes == whole.bytes, f"seed {seed}"
        assert {*parts.sample} <= {*places_of(file, plan)}, f"seed {seed}"
        ascending += whole.is_ascending and count > 1
    assert ascending > 5, "some files are in order"


def places_of(file: Block, plan: OrderPlan) -> list[Any]:
    batches = [order for _, order in plan.reading.batches(file, whole=False)]
    return [key_at(order, row) for order in batches for row in range(len(order[0]))]


def test_equal_records_may_share_a_place_and_different_ones_are_named(tmp_path: Path) -> None:
    same = [{"n": 1, "s": "x"}] * 3
    plan = plan_of(tmp_path, ("n",))
    equal = together([file_of(tmp_path, [{"n": 2}, *same], 0)], plan)
    assert [row["n"] for row in rows_of(equal, plan)] == [1, 1, 1, 2]
    other = together([file_of(tmp_path, [*same, {"n": 1, "s": "y"}, {"n": None}, {"n": None, "s": ""}], 1)], plan)
    with pytest.raises(LogError, match=r"for example n = None; n = 1\. Add a column that differs"):
        rows_of(other, plan)


def test_a_footer_that_cannot_be_read_for_now_is_not_told_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: of a file without statistics, too many open files were told as a damaged file."""

    def fail(*_args: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    file, log = file_of(tmp_path, [{"n": 1}], 0), plan_of(tmp_path, ("n",)).reading.log
    chunk: Any = SimpleNamespace(columns=log, log=SimpleNamespace(uri=str(tmp_path)))
    assert _counted(chunk, file._replace(records=0)) == file
    monkeypatch.setattr("jobs.replay.intake.intake.pq", SimpleNamespace(read_metadata=fail))
    with pytest.raises(LogError, match=r"file 0\.parquet .* Raise the limit of open files"):
        _counted(chunk, file)


def test_a_file_that_cannot_be_read_is_named_as_everywhere(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ("n",))
    good = file_of(tmp_path, [{"n": 2, "s": "x"}, {"n": 1, "s": "y"}], 0)
    bad = file_of(tmp_path, [{"n": n, "s": str(n)} for n in range(2_000)], 1)
    fewer = bad._replace(records=7)
    with pytest.raises(LogError, match=r"file 1\.parquet .* holds 2,000 records, but by its statistics"):
        divided(Cluster((good, fewer), is_ordered=False), plan)
    content = bytearray(Path(bad.path).read_bytes())
    content[4:2_000] = bytes(1_996)
    Path(bad.path).write_bytes(content)
    with pytest.raises(LogError, match=r"file 1\.parquet .* cannot be read: it is damaged"):
        divided(Cluster((good, bad), is_ordered=False), plan)
