"""For readers with Spark: the published rows of any table, all tables of all slices as of one ledger version."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from jobs.lake.lake import Lake
from jobs.lake.store import Attempt
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.reading.published import HIDDEN, PublishedView, published_runs, published_sql, quote_spark, runs_by_keys
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, run_attempt
from jobs.wall_clock import now_ms
from windowlib.errors import LedgerError
from windowlib.records.tables import PARTITION_COLUMNS, ROW_ID, WINDOW_OUTPUTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def published(
    spark: "SparkSession", lake: str, pipeline: str, *, at: int | None = None, all_panes: bool = False,
    verify: bool | None = None,
) -> "DataFrame":  # fmt: skip
    """Return the published windows of a pipeline: of each window the last pane, or `all_panes`.

    Args:
        spark: the session.
        lake: the lake's root.
        pipeline: its name.
        at: a ledger version to look back to; the newest when None.
        all_panes: every pane ever published, superseded ones too.
        verify: see `published_rows`.

    Raises:
        LedgerError: nothing has been published (at that version).
        StoreError: a file cannot be read, or its rows are not those that were written.
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
    return reduce(lambda one, other: one.unionByName(other), parts)


def published_rows(
    spark: "SparkSession", lake: str, pipeline: str, *, table: str, at: int | None = None, verify: bool | None = None
) -> "DataFrame":
    """Return the published rows of one table. The ledger is resolved first, so all tables flip together.

    Args:
        spark: the session.
        lake: the lake's root.
        pipeline: its name.
        table: its name.
        at: a ledger version to look back to; the newest when None.
        verify: compare every row with its id before it is returned (20 s a million rows). None: where there are at most
            CONTENT_ROWS; elsewhere, as with False, the sums of the stored ids only.

    Raises:
        LedgerError: nothing has been published (at that version).
        StoreError: a file cannot be read, or its rows are not those that were written.
    """
    place, view = _resolved(lake, pipeline, at)
    asked = _Asked(pipeline, table, view, verify)
    return _of(spark, _checked_rows(spark, place, asked), view.published_pairs())


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
            f"pipeline {pipeline} has published nothing in lake {lake}; `hindcast status {pipeline}` says what is open"
        )
    return place, view


def _checked_rows(spark: "SparkSession", lake: Lake, asked: _Asked) -> "DataFrame":
    """Return all rows of a table, after a look at the published ones; the ledger decides which they are."""
    limits = {None: CONTENT_ROWS, True: None, False: 0}
    stored = StoredRuns(lake, asked.pipeline, asked.view, limits[asked.verify])
    stored.read(asked.table, published_runs(asked.view), (ROW_ID,))
    rows = spark.read.format("delta").load(lake.table(asked.pipeline, asked.table))
    return rows.select(*(f"`{name.replace('`', '``')}`" for name in rows.columns))


def _of(spark: "SparkSession", rows: "DataFrame", attempts: Sequence[Attempt]) -> "DataFrame":
    chosen = spark.createDataFrame(list(attempts), "slice_id string, attempt_id string").hint("broadcast")
    names = [f"`{name.replace('`', '``')}`" for name in rows.columns]
    return rows.join(chosen, list(PARTITION_COLUMNS), "left_semi").select(*names)
