"""Law L9: flipped bits in what is stored are found, or harmless; none changes what is read without a word.

A flip is harmless where everything is read as before. The sweep harms a file of a table, reads that table alone, as the
next chunk or a reader does, and puts the file back: a flip costs milliseconds, and Spark is needed for the lake only.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts, table_columns
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.readers import published, published_rows
from jobs.reading.published import published_runs, read_published
from jobs.reading.stored_rows import StoredRuns, file_of
from jobs.reading.stored_tables import stored_table
from jobs.reading.verify import verify
from jobs.replay.checkpoint_check import CheckpointCheck
from jobs.replay.chunk.log_input import read_chunk
from jobs.replay.chunk.log_pin import log_reading, pin_chunk
from jobs.replay.computed import compute
from jobs.replay.orders import ReplayOrder
from jobs.replay.pinned import pin
from jobs.replay.sizes import Sizes
from jobs.spark.lazy_session import LazySession
from tests.support.fuzzing import first_seed
from tests.support.other_log import TABLE, OtherLog
from tests.support.replays import NOW_MS, pipeline_of, run_range
from windowlib.errors import CheckpointError, HindcastError, StoreError
from windowlib.records import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
LOG = "log"
OUTPUTS = (
    tables.WINDOW_OUTPUTS, tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS, tables.TALLIES,
    tables.QUALITY_RESULTS,
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A published lake, and the view of its ledger as it was written."""

    spark: "SparkSession"
    root: Path
    pipeline: "Pipeline"
    view: LedgerView

    @property
    def lake(self) -> Lake:
        return Lake(root=str(self.root))

    def table(self, name: str) -> Path:
        return self.root / (TABLE if name == LOG else f"{self.pipeline.name}/{name}")


@pytest.fixture(scope="module")
def written(
    spark: "SparkSession", hostile_log: tuple[OtherLog, Path], tmp_path_factory: pytest.TempPathFactory
) -> Written:
    root = tmp_path_factory.mktemp("flips")
    shutil.copytree(hostile_log[1], root / TABLE)
    for checksum in (root / TABLE).rglob(".*.crc"):
        checksum.unlink()  # an object store has none
    pipeline = pipeline_of(TEXT)
    assert run_range(spark, root, pipeline, BOUNDS).is_published
    view = Ledger(str(root / pipeline.name / tables.LEDGER), now_ms=lambda: NOW_MS).view()
    return Written(spark=spark, root=root, pipeline=pipeline, view=view)


def order_next(written: Written) -> ReplayOrder:
    """The chunk after the published ones."""
    slices = slices_between(written.pipeline, *(parse_bound(written.pipeline, text) for text in NEXT))
    return ReplayOrder(
        pipeline=written.pipeline,
        lake=written.lake,
        slices=tuple(slices),
        before=published_runs(written.view)[-1].checkpoint,
        request_id="0" * 32,
        attempt_id="f" * 32,
    )


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
    spark: "SparkSession", written: Written, name: str, column: str, local_records: int
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


def test_readers_with_spark_check_what_they_read(spark: "SparkSession", written: Written) -> None:
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


def checkpoint(written: Written, name: str) -> object:
    """What the next chunk restores: the rows of the last run, checked."""
    run = published_runs(written.view)[-1]
    columns = table_columns(str(written.table(name)))
    log = table_columns(str(written.table(tables.LATE_RECORDS)))["record"]
    assert not isinstance(log, str)
    found = stored_table(
        written.pipeline, name, columns, log=lambda: {one["name"]: one["type"] for one in log["fields"]}
    )
    check = CheckpointCheck(run.checkpoint, lambda table: str(written.table(table)), (found,))
    check.check_table(found)
    return rows_of(read_attempts(str(written.table(name)), [(run.result.slice.slice_id, run.result.attempt_id)]))


def output(written: Written, name: str) -> object:
    """What readers get."""
    if name == tables.WINDOW_OUTPUTS:
        return rows_of(read_published(written.lake, written.pipeline.name, written.view))
    stored = StoredRuns(written.lake, written.pipeline.name, written.view)
    return rows_of(stored.read(name, published_runs(written.view)))


def ledger(written: Written, name: str) -> object:
    view = Ledger(str(written.table(name)), now_ms=lambda: NOW_MS).view()
    return repr((view.version, view.requests, view.runs, view.published, view.publications, view.condemned))


@dataclass(frozen=True)
class Input:
    """What a replay reads of the log. `fingerprints` are what `plan --verify` compares with those of the runs."""

    fingerprints: tuple[str, ...]
    records: list[str]


def event_log(written: Written, _name: str) -> object:
    """What a replay reads. Spark remembers a table's versions, so damage to `_delta_log` is found by pinning alone."""
    slices = slices_between(written.pipeline, *(parse_bound(written.pipeline, text) for text in BOUNDS))
    pinned = pin_chunk(written.pipeline, written.lake, slices)
    chunk = read_chunk(written.spark, pinned, log_reading(written.pipeline, pinned, slices), slices=slices)
    shown = chunk.ordered.selectExpr("slice_no", "rank", "event_time_ms", "problem", "to_json(record)").collect()
    return Input(tuple(one.fingerprint for one in chunk.slices), sorted(repr(tuple(row)) for row in shown))


def rows_of(rows: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


TARGETS: Mapping[str, tuple[tuple[str, ...], Callable[[Written, str], object]]] = {
    "checkpoint": (tables.CHECKPOINT_TABLES, checkpoint),
    "outputs": (OUTPUTS, output),
    "ledger": ((tables.LEDGER,), ledger),
    LOG: ((LOG,), event_log),
}


def sweep(written: Written, target: str, flips: int) -> dict[str, int]:
    """Flip bits, one at a time; count what was found and what was harmless. A silent one fails the test."""
    names, read = TARGETS[target]
    seed = first_seed()
    print(f"HINDCAST_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    rng = random.Random(seed)
    present = [name for name in names if written.table(name).exists()]
    before = cache(lambda name: read(written, name))
    files = {
        name: [path for path in sorted(written.table(name).rglob("*")) if path.is_file() and path.suffix != ".crc"]
        for name in present
    }
    counts = {"found": 0, "harmless": 0}
    for number in range(flips):
        name = rng.choice(present)
        path = rng.choice(files[name])
        good = path.read_bytes()
        expected = before(name)
        bad, bit = bytearray(good), rng.randrange(len(good) * 8)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        try:
            found = read(written, name)
            counts["harmless" if found == expected else "found"] += 1
            assert found == expected or _is_told(found, expected), f"flip {number}: bit {bit} of {path} is silent"
        except HindcastError as error:
            counts["found"] += "\n" not in str(error)
        finally:
            path.write_bytes(good)
    assert counts["found"] + counts["harmless"] == flips, "each error is one paragraph"
    return counts


def _is_told(found: object, expected: object) -> bool:
    """Whether `plan --verify` tells that the log holds other records than a run has read."""
    if not isinstance(found, Input) or not isinstance(expected, Input):
        return False
    return found.fingerprints != expected.fingerprints


@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=pytest.mark.slow if name == LOG else ()) for name in TARGETS]
)
def test_no_flip_is_silent(written: Written, target: str) -> None:
    """Spark reads the log again after each flip, so there are few of them here."""
    few = target == LOG
    counts = sweep(written, target, 5 if few else 60)
    assert few or counts["found"] >= 10, counts


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", list(TARGETS))
def test_none_of_many_flips_is_silent(written: Written, target: str) -> None:
    counts = sweep(written, target, 500)
    assert counts["found"] >= 100, counts
