"""Replays with any sizes, and of files in any order, have the same runs: ids, digests, counts, tallies."""

import shutil
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.verify import verify
from jobs.replay.chunk.record_columns import SIDE_TABLES
from jobs.replay.sizes import Sizes
from jobs.review.execution import execution
from tests.support.other_log import PIPELINE, TABLE, OtherLog
from tests.support.replays import NOW_MS, order_of, pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession

pytestmark = pytest.mark.spark

BOUNDS = ("1969-12-30", "1970-01-03")
SMALL = Sizes(
    local_records=0,
    records_per_bucket=60,
    records_per_columnar_bucket=60,
    buckets=3,
    records_per_task=70,
    combined_records=0,
    combined_cells=10**9,
    rows_per_read=13,
    rows_per_file=40,
    rows_from=20,
    rows_per_encoding=50,
    ordered_bytes=3_000,
    run_records=1,
    constant_rows=1,
    run_steps=2,
    sorted_rows=17,
    full_state_rows=0,
    checkpoint_parts=3,
    staying_rows=0,
    staying_share=0,
)
USUAL = Sizes()
OTHERS = {
    "in this process": Sizes(local_records=10**9),
    "a task and a bucket for each core": Sizes(local_records=0, least_records=40),
    "small sizes": SMALL,
    "compacted": USUAL,
    "compacted, small sizes": SMALL,
}
"""Sizes by name. Of `compacted` logs, the files have the records in another order."""
SPECS = {
    "tumbling": PIPELINE,
    "combined": PIPELINE.replace("  note_first: {first: note}\n  note_last: {last: note}\n", ""),
    "sessions": PIPELINE.replace("tumbling: {size: 1h}", "session: {gap: 7m}") + "  notes: {collect_list: note}\n",
    "gaps": PIPELINE.replace("tumbling: {size: 1h}", "sliding: {size: 20m, slide: 45m}") + "  mean: {avg: größe}\n",
}


def side_rows(lake: Lake, pipeline: str, view: LedgerView) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of each side table in log order: `row_check` covers the record and `record_id`."""
    stored, names = StoredRuns(lake, pipeline, view), ("slice_id", "rank", "record_id", "row_id", "row_check")
    tables = {name: stored.read(name, view.runs.values()) for name in SIDE_TABLES}
    return {
        name: sorted(zip(*(rows[column].to_pylist() for column in names), strict=True))
        for name, rows in tables.items()
        if rows.num_rows
    }


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["tumbling", "combined", "sessions", "gaps"])
def test_all_sizes_have_the_same_runs(
    spark: SparkSession, hostile_log: tuple[OtherLog, Path], tmp_path: Path, spec: str
) -> None:
    pipeline = pipeline_of(SPECS[spec])
    found = {}
    for name, sizes in {"usual": USUAL, **OTHERS}.items():
        lake = tmp_path / name
        shutil.copytree(hostile_log[1], lake / TABLE)
        if "compacted" in name:
            spark.sql(f"OPTIMIZE delta.`{lake / TABLE}` ZORDER BY (note)").collect()
        order = order_of(lake, pipeline, BOUNDS)
        how = execution(pipeline, order.lake, order.slices)
        assert how.why_spark is None
        assert (how.why_doubtful is not None) == ("compacted" in name)
        runs = what_was_run(run_range(spark, lake, pipeline, BOUNDS, chunk=3, sizes=sizes))
        view = Ledger(Lake(root=str(lake)).ledger(pipeline.name), now_ms=lambda: NOW_MS).view()
        assert any(run.result.checkpoint.earlier for run in view.runs.values()) == (sizes.full_state_rows == 0)
        found[name] = runs, side_rows(Lake(root=str(lake)), pipeline.name, view)
        assert not verify(Lake(root=str(lake)), pipeline.name, view).findings
    ids = [str(row[2]) for rows in found["usual"][1].values() for row in rows]
    assert any(text.startswith("0") for text in ids)
    assert {len(text) for text in ids} == {16}
    for name in OTHERS:
        assert found[name] == found["usual"], name
