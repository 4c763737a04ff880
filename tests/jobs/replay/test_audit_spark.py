"""The audit against a lake that loses, doubles and moves rows after the commit (docs/explanation/acker.md)."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.orchestration.requests import run_request
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked
from jobs.replay.audited import audit
from jobs.replay.orders import ReplayOrder
from jobs.replay.written import Written
from jobs.runs import RunResult
from tests.support.other_log import PIPELINE, TABLE, OtherLog
from tests.support.replays import committed_chunk, context_in, finish, order_of, pipeline_of
from tests.support.spark_session import SparkSession
from windowlib.errors import AuditError

pytestmark = pytest.mark.spark
TABLES = ("window_outputs", "late_records", "invalid_records", "window_state", "timers", "watermarks", "tallies")


@pytest.fixture(scope="module")
def committed(
    spark: SparkSession, hostile_log: tuple[OtherLog, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Written, Path]:
    lake = tmp_path_factory.mktemp("audited")
    shutil.copytree(hostile_log[1], lake / TABLE)
    chunk = committed_chunk(spark, order_of(lake, pipeline_of(PIPELINE), ("1969-12-30", "1970-01-03")))
    return chunk, lake / "other"


@pytest.fixture
def lake(committed: tuple[Written, Path]) -> Iterator[Path]:
    """The committed tables, put back as they were after the test."""
    root = committed[1]
    versions = {table.name: DeltaTable(str(table)).version() for table in root.iterdir()}
    yield root
    for name, version in versions.items():
        if DeltaTable(str(root / name)).version() != version:
            DeltaTable(str(root / name)).restore(version)


def _one_row(table: Path) -> pa.Table:
    """The row whose id is the least: any will do, and this one is the same each time."""
    rows = DeltaTable(str(table)).to_pyarrow_table()
    return rows.filter(pc.equal(rows["row_id"], pc.min(rows["row_id"])))


def _delete(table: Path, row: pa.Table) -> None:
    DeltaTable(str(table)).delete(f"row_id = {row['row_id'][0].as_py()}")


def lose(root: Path, name: str) -> None:
    _delete(root / name, _one_row(root / name))


def double(root: Path, name: str) -> None:
    write_deltalake(str(root / name), _one_row(root / name), mode="append")


def move_to_another_slice(root: Path, name: str) -> None:
    row = _one_row(root / name)
    _delete(root / name, row)
    slices = sorted(
        {one.as_py() for one in DeltaTable(str(root / name)).to_pyarrow_table()["slice_id"]}
        - {row["slice_id"][0].as_py()}
    )
    index = row.schema.get_field_index("slice_id")
    moved = row.set_column(index, row.schema.field(index), pa.array([slices[0]], row.schema.field(index).type))
    write_deltalake(str(root / name), moved, mode="append")


def test_an_untouched_chunk_closes(committed: tuple[Written, Path]) -> None:
    results = finish(committed[0])
    assert len(results) == 4
    laws = [check.check for check in results[0].checks if check.table == "laws"]
    assert laws == ["audit_fates", "audit_edges", "audit_rows", "conservation"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("harm", [lose, double, move_to_another_slice])
def test_a_row_lost_doubled_or_moved_makes_the_run_fail(
    committed: tuple[Written, Path], lake: Path, harm: Callable[[Path, str], None], name: str
) -> None:
    harm(lake, name)
    with pytest.raises(AuditError, match="does not close") as failed:
        audit(committed[0])
    assert "slice 19" in str(failed.value)


def test_a_record_swapped_between_side_tables_makes_the_run_fail(committed: tuple[Written, Path], lake: Path) -> None:
    """The fates still add up in sum; the ids of rows know their table, so two entries of the ledger stay open."""
    row = _one_row(lake / "late_records")
    _delete(lake / "late_records", row)
    target = DeltaTable(str(lake / "unassigned_records")).to_pyarrow_dataset().schema
    write_deltalake(str(lake / "unassigned_records"), row.select(list(target.names)).cast(target), mode="append")
    with pytest.raises(AuditError, match="rows of late_records") as failed:
        audit(committed[0])
    assert "rows of unassigned_records" in str(failed.value)


@pytest.mark.slow
def test_a_run_whose_ledger_is_not_zero_fails_and_is_replayed(
    spark: SparkSession, hostile_log: tuple[OtherLog, Path], tmp_path: Path
) -> None:
    """Law L3 from end to end: the first attempt loses a row between commit and audit, and readers see the second."""
    shutil.copytree(hostile_log[1], tmp_path / TABLE)
    attempts: list[str] = []

    def losing_once(order: ReplayOrder) -> list[RunResult]:
        chunk = committed_chunk(spark, order)
        attempts.append(order.attempt_id)
        if len(attempts) == 1:
            lose(tmp_path / "other", "window_outputs")
        return finish(chunk)

    pipeline = pipeline_of(PIPELINE)
    start_ms, end_ms = (parse_bound(pipeline, text) for text in ("1969-12-30", "1970-01-01"))
    asked = Asked(from_ms=start_ms, to_ms=end_ms, who="a test", reason="to lose a row")
    work = context_in(tmp_path, pipeline)
    outcome = run_request(work, asked, losing_once)
    assert outcome.is_published
    assert len(attempts) == 2
    assert {run.result.attempt_id for run in outcome.runs} == {attempts[1]}
