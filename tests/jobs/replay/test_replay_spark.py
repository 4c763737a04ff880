"""The replay over a log that is nothing like flights: fates, laws, cuts, blocks, buckets."""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.readers import published
from jobs.reading.published import read_published
from jobs.replay.sizes import Sizes
from tests.support.other_log import PIPELINE, TABLE, OtherLog, Totals, fates, is_valid, published_windows, time_problem
from tests.support.replays import context_in, pipeline_of, run_range, what_was_run
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BOUNDS = ("1969-12-30", "1970-01-03")
SESSIONS = PIPELINE.replace("tumbling: {size: 1h}", "session: {gap: 7m}") + "  notes: {collect_list: note}\n"
SLIDING = PIPELINE.replace("tumbling: {size: 1h}", "sliding: {size: 20m, slide: 45m}") + "  mean: {avg: größe}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    log: OtherLog
    lake: Path
    pipeline: Pipeline
    outcome: RequestOutcome


@pytest.fixture(scope="module")
def replayed(
    spark: "SparkSession", hostile_log: tuple[OtherLog, Path], tmp_path_factory: pytest.TempPathFactory
) -> Replayed:
    log, table = hostile_log
    lake, pipeline = tmp_path_factory.mktemp("replayed"), pipeline_of(PIPELINE)
    shutil.copytree(table, lake / TABLE)
    return Replayed(log=log, lake=lake, pipeline=pipeline, outcome=run_range(spark, lake, pipeline, BOUNDS))


@pytest.fixture
def copied(hostile_log: tuple[OtherLog, Path], tmp_path: Path) -> Path:
    """Another lake with the same log in it."""
    shutil.copytree(hostile_log[1], tmp_path / TABLE)
    return tmp_path


def test_every_record_has_the_fate_that_the_definition_gives_it(replayed: Replayed) -> None:
    for run, (day, expected) in zip(replayed.outcome.runs, fates(replayed.log).items(), strict=True):
        counts = run.result.counts
        assert run.result.slice.slice_id == day.isoformat()
        found = {
            "assigned": counts.assigned,
            "late": counts.late,
            "invalid": counts.invalid,
            "unassigned": counts.unassigned,
        }
        assert found == {"unassigned": 0, **expected}, f"slice {day}"
        assert counts.read == len(replayed.log.days()[day])
    assert sum(run.result.counts.late for run in replayed.outcome.runs) > 20, (
        "a log without late records proves nothing"
    )


def test_invalid_records_keep_their_reason_and_every_column(replayed: Replayed, spark: "SparkSession") -> None:
    expected: Counter[str] = Counter()
    for one in replayed.log.records():
        if not is_valid(one):
            expected["null_key" if one.sensor_id is None else str(time_problem(one.measured))] += 1
    rows = spark.read.format("delta").load(str(replayed.lake / "other" / "invalid_records"))
    assert Counter(row["reason"] for row in rows.collect()) == expected
    assert rows.select("record.*").columns == spark.read.format("delta").load(str(replayed.lake / TABLE)).columns


def test_published_windows_hold_the_records_that_the_definition_gives_them(replayed: Replayed) -> None:
    """A window that event time completed shows, in its last pane, every record that came before it was dropped."""
    view = context_in(replayed.lake, replayed.pipeline).ledger.view()
    shown = read_published(Lake(root=str(replayed.lake)), "other", view).to_pylist()
    found = {(row["sensor-id"], round(row["window_start"].timestamp() * 1000)): _totals(row) for row in shown}
    expected = published_windows(replayed.log)
    # By repr, NaN is NaN.
    assert {slot: repr(row) for slot, row in found.items()} == {slot: repr(row) for slot, row in expected.items()}


def _totals(row: dict[str, Any]) -> Totals:
    return Totals(row["readings"], row["size_total"], row["select_least"], row["select_most"])


def test_readers_with_spark_see_what_readers_without_see(replayed: Replayed, spark: "SparkSession") -> None:
    view = context_in(replayed.lake, replayed.pipeline).ledger.view()
    shown = read_published(Lake(root=str(replayed.lake)), "other", view)
    frame = published(spark, str(replayed.lake), "other")
    assert frame.columns == shown.column_names
    names = ("sensor-id", "readings", "note_first", "note_last", "timing", "pane_index", "slice_id")
    ours = Counter(tuple(row[name] for name in names) for row in frame.collect())
    assert ours == Counter(tuple(row[name] for name in names) for row in shown.to_pylist())
    with pytest.raises(LedgerError, match="has published nothing"):
        published(spark, str(replayed.lake), "other", at=0)


def small_sizes(chunk: int) -> Sizes:
    """Return sizes below which each part of a replay takes its other path; they differ by slices per chunk, too."""
    return Sizes(
        local_records=0 if chunk == 3 else 1_000_000,
        ordered_bytes=9_000,
        run_records=chunk,
        sorted_rows=97,
        records_per_bucket=150,
        records_per_columnar_bucket=150,
        buckets=3,
        content_rows=chunk,
        audited_rows=0 if chunk == 3 else 10_000,
    )


@pytest.mark.slow  # make test plays cuts over Spark in tests/conformance/test_recorded_cases_spark.py
def test_cuts_blocks_and_buckets_change_nothing(spark: "SparkSession", replayed: Replayed, copied: Path) -> None:
    """Laws L1 and L2: other chunks and sizes, another lake; same ids, digests and checkpoint."""
    cut = run_range(spark, copied, replayed.pipeline, BOUNDS, chunk=2, sizes=small_sizes(2))
    assert what_was_run(cut) == what_was_run(replayed.outcome)
    assert sum(run.result.counts.panes for run in cut.runs) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "chunk"),
    [
        pytest.param(PIPELINE, 1, id="tumbling"),
        pytest.param(SESSIONS, 2, id="sessions"),
        pytest.param(SLIDING, 3, id="sliding"),
    ],
)
def test_cuts_blocks_and_buckets_change_no_kind_of_window(
    spark: "SparkSession", copied: Path, text: str, chunk: int
) -> None:
    pipeline = pipeline_of(text)
    whole = run_range(spark, copied, pipeline, BOUNDS)
    shutil.rmtree(copied / "other")
    cut = run_range(spark, copied, pipeline, BOUNDS, chunk=chunk, sizes=small_sizes(chunk))
    assert what_was_run(cut) == what_was_run(whole)
    assert sum(run.result.counts.panes for run in whole.runs) > 100


SQL_FATES = """
SELECT slice_id, sum(n) AS n, bit_xor(x) AS x FROM (
  SELECT slice_id, record_count AS n, id_xor AS x FROM tallies WHERE equation = 'fates' AND term = 'assigned'
  UNION ALL SELECT slice_id, 1, record_hash FROM late_records WHERE missed_all
  UNION ALL SELECT slice_id, 1, record_hash FROM unassigned_records
  UNION ALL SELECT slice_id, 1, record_hash FROM invalid_records) GROUP BY slice_id
"""


@pytest.fixture
def views(spark: "SparkSession", replayed: Replayed) -> Iterator[None]:
    """Every table of the run as a view of its name, the log as `log`."""
    tables = [path.name for path in (replayed.lake / "other").iterdir() if path.name != "ledger"]
    for table in tables:
        spark.read.format("delta").load(str(replayed.lake / "other" / table)).createOrReplaceTempView(table)
    spark.read.format("delta").load(str(replayed.lake / TABLE)).createOrReplaceTempView("log")
    yield
    for table in (*tables, "log"):
        spark.catalog.dropTempView(table)


@pytest.mark.usefixtures("views")
def test_fates_close_in_sql_over_the_committed_tables(spark: "SparkSession") -> None:
    read = {
        str(row["in"]): row["n"] for row in spark.sql("SELECT `in`, count(*) AS n FROM log GROUP BY `in`").collect()
    }
    told = {
        row["slice_id"]: row
        for row in spark.sql("SELECT * FROM tallies WHERE equation = 'fates' AND term = 'read'").collect()
    }
    for row in spark.sql(SQL_FATES).collect():
        assert row["n"] == read[row["slice_id"]] == told[row["slice_id"]]["record_count"]
        assert row["x"] == told[row["slice_id"]]["id_xor"]


@pytest.mark.slow
@pytest.mark.usefixtures("views")
def test_edges_close_in_sql_over_the_committed_tables(spark: "SparkSession") -> None:
    """State before + new = state after + closed, for counts and XOR, slice by slice."""
    after = spark.sql(
        "SELECT slice_id, sum(edge_count) AS n, bit_xor(edge_xor) AS x FROM window_state GROUP BY slice_id"
    )
    states = {row["slice_id"]: (row["n"], row["x"]) for row in after.collect()}
    moved = spark.sql(
        "SELECT slice_id, term = 'new' AS is_new, sum(record_count) AS n, bit_xor(id_xor) AS x FROM tallies "
        "WHERE equation = 'edges' GROUP BY slice_id, is_new"
    )
    terms = {(row["slice_id"], row["is_new"]): (row["n"], row["x"]) for row in moved.collect()}
    before = (0, 0)
    for slice_id in sorted(
        date.fromisoformat(f"19{text}").isoformat() for text in ("69-12-30", "69-12-31", "70-01-01", "70-01-02")
    ):
        new, closed = terms[slice_id, True], terms.get((slice_id, False), (0, 0))
        left = states.get(slice_id, (0, 0))
        assert before[0] + new[0] == left[0] + closed[0]
        assert before[1] ^ new[1] == left[1] ^ closed[1]
        before = left


@pytest.mark.slow
@pytest.mark.usefixtures("views")
def test_rows_close_in_sql_over_the_committed_tables(spark: "SparkSession") -> None:
    told = spark.sql(
        "SELECT slice_id, term, record_count, id_xor FROM tallies WHERE equation = 'rows' AND record_count > 0"
    ).collect()
    assert {row["term"] for row in told} >= {
        "window_outputs",
        "late_records",
        "invalid_records",
        "window_state",
        "timers",
        "watermarks",
    }
    for row in told:
        rows = spark.table(row["term"]).where(F.col("slice_id") == row["slice_id"])
        found = rows.agg(F.count(F.lit(1)).alias("n"), F.bit_xor("row_id").alias("x")).first()
        assert found is not None
        assert (found["n"], found["x"]) == (row["record_count"], row["id_xor"]), row
