"""For readers with Spark: the published rows of any table, all tables of all slices as of one ledger version."""

from typing import TYPE_CHECKING

from jobs.lake import Lake
from jobs.ledger import Ledger
from jobs.published import PublishedView, published_sql, quote_spark
from jobs.wall_clock import now_ms
from windowlib.errors import LedgerError
from windowlib.tables import PARTITION_COLUMNS, WINDOW_OUTPUTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HIDDEN = ("row_id", "fired_rank")


def published(
    spark: "SparkSession", lake: str, pipeline: str, *, at: int | None = None, all_panes: bool = False
) -> "DataFrame":
    """Return the published windows of a pipeline: of each window the last pane, or `all_panes`.

    Args:
        spark: the session.
        lake: the lake's root.
        pipeline: its name.
        at: a ledger version to look back to; the newest when None.
        all_panes: every pane ever published, superseded ones too.

    Raises:
        LedgerError: nothing has been published (at that version).
    """
    rows = published_rows(spark, lake, pipeline, table=WINDOW_OUTPUTS, at=at)
    keys = rows.columns[: rows.columns.index("window_start")]
    shown = [name for name in rows.columns if name not in HIDDEN]
    relation = f"__hindcast_{pipeline}"
    rows.createOrReplaceTempView(relation)
    try:
        view = PublishedView(keys=keys, columns=shown, all_panes=all_panes)
        return spark.sql(published_sql(view, relation=quote_spark(relation), quote=quote_spark))
    finally:
        spark.catalog.dropTempView(relation)


def published_rows(
    spark: "SparkSession", lake: str, pipeline: str, *, table: str, at: int | None = None
) -> "DataFrame":
    """Return the published rows of one table. The ledger is resolved first, so all tables flip together.

    Raises:
        LedgerError: nothing has been published (at that version).
    """
    place = Lake(root=lake)
    view = Ledger(place.ledger(pipeline), now_ms=now_ms).view(at)
    pairs = view.published_pairs()
    if not pairs:
        raise LedgerError(
            f"pipeline {pipeline} has published nothing in lake {lake}; `hindcast status {pipeline}` says what is open"
        )
    stored = spark.read.format("delta").load(place.table(pipeline, table))
    chosen = spark.createDataFrame(list(pairs), "slice_id string, attempt_id string").hint("broadcast")
    return stored.join(chosen, list(PARTITION_COLUMNS), "left_semi").select(
        *(f"`{name.replace('`', '``')}`" for name in stored.columns)
    )
