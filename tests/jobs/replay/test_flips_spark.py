"""Law L9: flipped bits in what is stored are found, or harmless; none changes what is read without a word.

A flip is harmless where everything is read as before. The sweep harms a file of a table, reads that table alone, as the
next chunk or a reader does, and puts the file back: a flip costs milliseconds, and Spark is needed for the lake only.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts
from jobs.ledger.ledger import Ledger
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.log_pin import pin_input
from jobs.planning.steps import Ask
from jobs.readers import published, published_rows
from jobs.reading.published import published_runs
from jobs.reading.stored_rows import file_of
from jobs.reading.verify import verify
from jobs.replay.computed import compute
from jobs.replay.orders import ReplayOrder
from jobs.replay.pinned import pin
from jobs.replay.sizes import Sizes
from jobs.replay.stages import run_chunk
from jobs.review.verify_input import verify_inputs
from jobs.spark.lazy_session import LazySession
from tests.support.flips import Read, flipped, sweep
from tests.support.log_files import Cover
from tests.support.other_log import TABLE, OtherLog
from tests.support.read_logs import read_log
from tests.support.replays import NOW_MS, computed_of, context_in, order_of, pipeline_of, run_range
from tests.support.spark_session import SparkSession
from windowlib.errors import CheckpointError, LogError, StoreError
from windowlib.records import tables

if TYPE_CHECKING:
    from jobs.pipeline.models.pipeline import Pipeline

pytestmark = pytest.mark.spark
BOUNDS = ("1969-12-30", "1970-01-01")
NEXT = ("1970-01-01", "1970-01-02")
TEXT = """
pipeline: other
log:
  table: event_logs/other
  key: [sensor-id]
  event_time: {column: measured, unit: s}
  slice: {by: in}
watermark: {kind: bounded, out_of_orderness: 1h}
windows: {tumbling: {size: 6h}, allowed_lateness: 1h}
aggregates:
  readings: {count: {}}
  size_total: {sum: "größe"}
  note_first: {first: note}
  notes: {collect_list: note}
"""
IN_ORDER = TEXT.replace("slice: {by: in}", "slice: {by: in}\n  order: [place]")
LOG = "log"


@dataclass(frozen=True)
class Written:
    """A published lake, and the view of its ledger as it was written."""

    spark: SparkSession
    root: Path
    pipeline: "Pipeline"
    view: LedgerView

    @property
    def lake(self) -> Lake:
        return Lake(root=str(self.root))

    def table(self, name: str) -> Path:
        return self.root / (TABLE if name == LOG else f"{self.pipeline.name}/{name}")


def copy_log(log: Path, place: Path, cover: Cover) -> None:
    if cover == "nothing":
        records = pa.table(DeltaTable(str(log)).to_pyarrow_table())
        places = pa.array(range(records.num_rows), pa.int64())
        write_deltalake(str(place), records.append_column("place", places), partition_by=["in"])
        return
    shutil.copytree(log, place)
    for checksum in place.rglob(".*.crc") if cover == "page checksums" else ():
        checksum.unlink()


@pytest.fixture(scope="module")
def lakes(
    spark: SparkSession, hostile_log: tuple[OtherLog, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Cover], Written]:
    def write(cover: Cover) -> Written:
        root = tmp_path_factory.mktemp("flips")
        copy_log(hostile_log[1], root / TABLE, cover)
        text = TEXT if cover != "nothing" else IN_ORDER
        pipeline = pipeline_of(text)
        assert run_range(spark, root, pipeline, BOUNDS).is_published
        view = Ledger(str(root / pipeline.name / tables.LEDGER), now_ms=lambda: NOW_MS).view()
        return Written(spark=spark, root=root, pipeline=pipeline, view=view)

    return cache(write)


@pytest.fixture
def written(lakes: Callable[[Cover], Written]) -> Written:
    return lakes("checksum files")


def order_next(written: Written) -> ReplayOrder:
    """The chunk after the published ones."""
    order = order_of(written.root, written.pipeline, NEXT)
    return replace(order, before=published_runs(written.view)[-1].checkpoint)


def harm(written: Written, name: str, column: str) -> tuple[Path, bytes]:
    """Add 2**43 to a number in the last checkpoint, as one flipped bit does; the file stays readable."""
    run = published_runs(written.view)[-1].result
    path = Path(str(file_of(str(written.table(name)), (run.slice.slice_id, run.attempt_id))))
    good, rows = path.read_bytes(), pq.ParquetFile(path).read()
    values = rows[column].to_pylist()
    values[0] = {**values[0], "count": values[0]["count"] + 2**43} if isinstance(values[0], dict) else values[0] + 2**43
    index = rows.schema.get_field_index(column)
    field = rows.schema.field(index)
    pq.write_table(rows.set_column(index, field, pa.array(values, field.type)), path)
    return path, good


@pytest.mark.parametrize(
    ("name", "column"),
    [
        (tables.WINDOW_STATE, "acc_readings"),
        (tables.WINDOW_STATE, "edge_sum"),
        (tables.WINDOW_STATE, "row_id"),
        (tables.TIMERS, "at_ms"),
        (tables.WATERMARKS, "max_event_time_ms"),
    ],
)
def test_a_damaged_checkpoint_is_refused_before_the_chunk_begins(written: Written, name: str, column: str) -> None:
    """Defect: a count of 8,796,093,022,215 was published."""
    path, good = harm(written, name, column)
    try:
        with pytest.raises(CheckpointError, match=rf"slice 1969-12-31 .* is damaged: table {name}") as refused:
            pin(order_next(written))
        assert path.name in str(refused.value)
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("local_records", [0, 1_000_000])
@pytest.mark.parametrize(("name", "column"), [(tables.WINDOW_STATE, "acc_readings"), (tables.TIMERS, "at_ms")])
def test_tasks_find_damage_that_the_driver_did_not_look_for(
    spark: SparkSession, written: Written, name: str, column: str, local_records: int
) -> None:
    """`content_rows` of 0: the driver sums up ids, the tasks compute them. Nothing is written."""
    path, good = harm(written, name, column)
    versions = {table.name: DeltaTable(str(table)).version() for table in written.table("x").parent.iterdir()}
    pinned = pin(order_next(written), sizes=Sizes(content_rows=0, local_records=local_records))
    try:
        with pytest.raises(CheckpointError, match=rf"in table {name} is not what was written: its content gives"):
            compute(LazySession.of(spark), pinned)
    finally:
        path.write_bytes(good)
    after = {table.name: DeltaTable(str(table)).version() for table in written.table("x").parent.iterdir()}
    assert after == versions


def test_a_timer_that_is_lost_is_missed(written: Written) -> None:
    """The timers are not redundant: a window whose timer is gone would never fire."""
    table = DeltaTable(str(written.table(tables.TIMERS)))
    version = table.version()
    run = published_runs(written.view)[-1].result
    [least] = [min(read_attempts(table.table_uri, [(run.slice.slice_id, run.attempt_id)])["row_id"].to_pylist())]
    table.delete(f"row_id = {least}")
    try:
        with pytest.raises(CheckpointError, match=r"table timers.* has .* rows, and their ids do not add up"):
            pin(order_next(written))
    finally:
        table.restore(version)


def test_readers_with_spark_check_what_they_read(spark: SparkSession, written: Written) -> None:
    path, good = harm(written, tables.WINDOW_OUTPUTS, "readings")
    lake, name = str(written.root), written.pipeline.name
    try:
        for verify_all in (None, True):
            with pytest.raises(StoreError, match="table window_outputs, slice 1969-12-31"):
                published(spark, lake, name, verify=verify_all)
            with pytest.raises(StoreError, match="table window_outputs, slice 1969-12-31"):
                published_rows(spark, lake, name, table=tables.WINDOW_OUTPUTS, verify=verify_all)
        assert published(spark, lake, name, verify=False).count() > 0
    finally:
        path.write_bytes(good)
    assert published(spark, lake, name, verify=True).count() > 0


def test_verify_finds_nothing_in_what_was_just_written(written: Written) -> None:
    """Side tables, too: their records are hashed as Spark hashes them, maps, structs and decimals included."""
    found = verify(written.lake, written.pipeline.name, written.view)
    assert found.findings == ()
    assert found.rows > 100
    counts = [run.result.counts for run in published_runs(written.view)]
    assert min(sum(one.invalid for one in counts), sum(one.late for one in counts)) > 0


def order_again(written: Written) -> ReplayOrder:
    """The published slices once more, as one chunk from nothing."""
    order = order_of(written.root, written.pipeline, BOUNDS)
    return replace(order, known_log=known_log(written.view, order.slices))


def log_again(written: Written) -> object:
    """What `plan --verify` and `explain` read."""
    order = order_again(written)
    pinned = pin_input(order.pipeline, order.lake, order.slices, known=order.known_log)
    read = read_log(written.spark, order.pipeline, pinned, order.slices)
    return [one.fingerprint for one in read.slices], [repr(one) for one in read.records]


def log_through_files(written: Written) -> object:
    """What a replay computes. If a flip has the log read by Spark, the same bytes are checked first."""
    return computed_of(LazySession.of(written.spark), order_again(written))


@pytest.mark.slow
def test_plan_verify_compares_digests_and_stores_those_that_the_ledger_lacks(
    spark: SparkSession, hostile_log: tuple[OtherLog, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an older Hindcast has stored none."""
    copy_log(hostile_log[1], tmp_path / TABLE, "nothing")
    pipeline = pipeline_of(IN_ORDER)
    with monkeypatch.context() as patched:
        patched.setattr(run_chunk, "check_log_bytes", lambda _tasks, _log: {})
        assert run_range(spark, tmp_path, pipeline, BOUNDS).is_published
    work = context_in(tmp_path, pipeline)
    slices = tuple(slices_between(pipeline, *(parse_bound(pipeline, text) for text in BOUNDS)))

    def verified() -> int:
        """Verify the slices, and return the version of the ledger."""
        planned = work.plan(work.ledger.view(), Ask(slices=slices))
        assert not verify_inputs(LazySession.of(spark), work, planned, who="a test").different
        return work.ledger.view().version

    before = work.ledger.view().version
    assert verified() == before + 1
    assert verified() == before + 1
    [path, *_] = sorted((tmp_path / TABLE).glob("in=1969-12-30/*.parquet"))
    with flipped(path, 8_000), pytest.raises(LogError, match=r"slice 1969-12-30\) .* an earlier run has read"):
        verified()


@dataclass(frozen=True)
class Target:
    """How a log whose files are harmed is read, and the number of flips of `make slow` and `make soak`."""

    read: Callable[[Written], object]
    cover: Cover = "checksum files"
    few: int = 60
    many: int = 300


TARGETS: Mapping[str, Target] = {
    "through files, checksum files": Target(log_through_files),
    "through files, page checksums": Target(log_through_files, cover="page checksums"),
    "through DataFrames, checksum files": Target(log_again, few=10, many=200),
    "through DataFrames, page checksums": Target(log_again, cover="page checksums", few=2, many=150),
    "log of deltalake, through DataFrames": Target(log_again, cover="nothing", few=10, many=150),
}
"""1,100 flips in `make soak`. `tests.flips` flips bits of every region of the other tables."""


def swept(written: Written, target: Target, flips: int) -> Counter[str]:
    return sweep({written.table(LOG): Read(partial(target.read, written))}, flips=flips)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TARGETS))
def test_no_flip_is_silent(lakes: Callable[[Cover], Written], name: str) -> None:
    """Spark reads a log with damaged pages to find them, so there are few flips of that kind here."""
    target = TARGETS[name]
    counts = swept(lakes(target.cover), target, target.few)
    assert counts["found"] >= target.few // 6, counts


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(TARGETS))
def test_none_of_many_flips_is_silent(lakes: Callable[[Cover], Written], name: str) -> None:
    target = TARGETS[name]
    counts = swept(lakes(target.cover), target, target.many)
    print(f"{name}: {dict(counts)}")  # noqa: T201 - `pytest -rA` shows it
    assert counts["found"] >= target.many // 5, counts
