"""Reads published tables, with Spark or as Arrow tables without it. This is the public interface for users.

Users may import the names in `__all__`.

Each function reads one version of the ledger first. So all slices that it returns were published at that version, and
two calls with the same `at` return tables that belong together.

`published` and `published_rows` let the session compare page checksums of Parquet files: a DataFrame of a damaged file
fails when it is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from jobs.lake.lake import Lake
from jobs.lake.table_files import Attempt
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.reading.published import (
    HIDDEN,
    PublishedView,
    published_runs,
    published_sql,
    quote_spark,
    read_published,
    runs_by_keys,
)
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, run_attempt
from jobs.spark.session import COMPARE_PAGES
from jobs.storage import spark_uri
from jobs.wall_clock import now_ms
from windowlib.errors import LedgerError
from windowlib.records.tables import PARTITION_COLUMNS, ROW_ID, WINDOW_OUTPUTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["published", "published_rows", "published_table"]


def published(
    spark: "SparkSession", lake: str, pipeline: str, *, at: int | None = None, all_panes: bool = False,
    verify: bool | None = None,
) -> "DataFrame":  # fmt: skip
    """Return the published windows of a pipeline, one row per window and key: its last pane.

    Discarding panes and panes of several values have more than one row (docs/reference/pipelines.md, `mode`).

    Args:
        spark: the session.
        lake: the root of the lake, a path or URI.
        pipeline: the name of the pipeline.
        at: the ledger version to read; the newest when None.
        all_panes: return every published pane, also those that a later pane replaced or superseded.
        verify: whether to compare each row with its id, see `published_rows`.

    Returns:
        The columns of `window_outputs` without `row_id`, `row_check` and `fired_rank`; the order of rows is undefined.

    Raises:
        LedgerError: nothing was published at that version.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    place, view = _resolved(lake, pipeline, at)
    rows = _checked_rows(spark, place, _Asked(pipeline, WINDOW_OUTPUTS, view, verify))
    shown = [name for name in rows.columns if name not in HIDDEN]
    parts = []
    for number, group in enumerate(runs_by_keys(view)):
        relation = f"__hindcast_{pipeline}_{number}"
        _of(spark, rows, [run_attempt(run) for run in group.runs]).createOrReplaceTempView(relation)
        try:
            panes = PublishedView(keys=group.keys, columns=shown, all_panes=all_panes)
            parts.append(spark.sql(published_sql(panes, relation=quote_spark(relation), quote=quote_spark)))
        finally:
            spark.catalog.dropTempView(relation)
    return reduce(lambda union, rows: union.unionByName(rows), parts)


def published_rows(
    spark: "SparkSession", lake: str, pipeline: str, *, table: str, at: int | None = None, verify: bool | None = None
) -> "DataFrame":
    """Return the published rows of one table of a pipeline, with all its columns.

    Args:
        spark: the session.
        lake: the root of the lake, a path or URI.
        pipeline: the name of the pipeline.
        table: the name of the table, such as `late_records`.
        at: the ledger version to read; the newest when None.
        verify: True compares the content of each row with its id (about 0.5 s per million rows). False compares only
            the sums of the stored ids with the ledger. None does the first for up to 250,000 rows and the second for
            more.

    Raises:
        LedgerError: nothing was published at that version.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    place, view = _resolved(lake, pipeline, at)
    return _of(spark, _checked_rows(spark, place, _Asked(pipeline, table, view, verify)), view.published_pairs())


def published_table(lake: str, pipeline: str, *, at: int | None = None) -> "pa.Table":
    """Return the published windows of a pipeline as an Arrow table, without Spark: the rows and columns of `published`.

    Args:
        lake: the root of the lake, a path or URI.
        pipeline: the name of the pipeline.
        at: the ledger version to read; the newest when None.

    Raises:
        LedgerError: nothing was published at that version.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    place, view = _resolved(lake, pipeline, at)
    return read_published(place, pipeline, view)


@dataclass(frozen=True, slots=True)
class _Asked:
    pipeline: str
    table: str
    view: LedgerView
    verify: bool | None


def _resolved(lake: str, pipeline: str, at: int | None) -> tuple[Lake, LedgerView]:
    place = Lake(root=lake)
    view = Ledger(place.ledger(pipeline), now_ms=now_ms).view(at)
    if not view.published:
        raise LedgerError(
            f"pipeline {pipeline} has published nothing in lake {lake}; `hindcast status {pipeline}` shows its open "
            "requests"
        )
    return place, view


def _checked_rows(spark: "SparkSession", lake: Lake, asked: _Asked) -> "DataFrame":
    """Return all rows of a table, after checking the published ones against the ledger."""
    limits = {None: CONTENT_ROWS, True: None, False: 0}
    stored = StoredRuns(lake, asked.pipeline, asked.view, limits[asked.verify])
    stored.read(asked.table, published_runs(asked.view), (ROW_ID,))
    spark.conf.set(COMPARE_PAGES, "true")  # Delta does not pass an option of one read on to Parquet
    rows = spark.read.format("delta").load(spark_uri(lake.table(asked.pipeline, asked.table)))
    return rows.select(*(f"`{name.replace('`', '``')}`" for name in rows.columns))


def _of(spark: "SparkSession", rows: "DataFrame", attempts: Sequence[Attempt]) -> "DataFrame":
    chosen = spark.createDataFrame(list(attempts), "slice_id string, attempt_id string").hint("broadcast")
    names = [f"`{name.replace('`', '``')}`" for name in rows.columns]
    return rows.join(chosen, list(PARTITION_COLUMNS), "left_semi").select(*names)
