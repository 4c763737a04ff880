"""Reads published tables, with Spark or as Arrow tables without it. This is the public interface for users.

Users may import the names in `__all__`.

Each function reads one version of the ledger first. So all slices that it returns were published at that version, and
two calls with the same `at` return tables that belong together.

`published` and `published_rows` let the session compare page checksums of Parquet files: a DataFrame of a damaged file
fails when it is computed.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.lake.lake import Lake
from jobs.lake.table_files import Attempt
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.reading.published import HIDDEN, PublishedView, published_runs, published_sql, quote_spark, runs_by_keys
from jobs.reading.selection import Selection, When, read_selected, readable_tables
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, run_attempt
from jobs.reading.stored_tables import reader_columns, written_tables
from jobs.spark.session import COMPARE_PAGES
from jobs.storage import spark_uri
from jobs.wall_clock import now_ms
from windowlib.errors import LedgerError, RequestError
from windowlib.libraries import pa
from windowlib.records.tables import PARTITION_COLUMNS, ROW_ID, WINDOW_OUTPUTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["published", "published_rows", "published_table"]

_CONTENT_ROWS = {None: CONTENT_ROWS, True: None, False: 0}
"""The parameter `verify` -> up to how many rows have their content compared; None: always."""


def published(
    spark: "SparkSession", lake: str | Path, pipeline: str, *, at: int | None = None, all_panes: bool = False,
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
    rows = _checked_rows(spark, StoredRuns(place, pipeline, view, _CONTENT_ROWS[verify]), WINDOW_OUTPUTS)
    shown = [name for name in rows.columns if name not in HIDDEN]
    parts = []
    for group in runs_by_keys(view):
        panes = PublishedView(keys=group.keys, columns=shown, all_panes=all_panes)
        # Spark gives the relation a name of this call only: other threads of the session may call this function.
        sql = published_sql(panes, relation="{panes}", quote=_quote_format)
        parts.append(spark.sql(sql, panes=_of(spark, rows, [run_attempt(run) for run in group.runs])))
    return reduce(lambda union, rows: union.unionByName(rows), parts)


def published_rows(
    spark: "SparkSession",
    lake: str | Path,
    pipeline: str,
    *,
    table: str,
    at: int | None = None,
    verify: bool | None = None,
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
        RequestError: the published runs have written no such table.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    place, view = _resolved(lake, pipeline, at)
    runs = published_runs(view)
    if table not in (names := dict.fromkeys((*readable_tables(view), *written_tables(runs)))):
        raise RequestError(f"pipeline {pipeline} has no published table {table!r}; it has {', '.join(names)}")
    rows = _checked_rows(spark, StoredRuns(place, pipeline, view, _CONTENT_ROWS[verify]), table)
    return _of(spark, rows, [run_attempt(run, table) for run in runs])


def published_table(
    lake: str | Path, pipeline: str, *, table: str = WINDOW_OUTPUTS, at: int | None = None,
    keys: Mapping[str, Collection[Any]] | None = None, from_: When | None = None, to: When | None = None,
    columns: Sequence[str] | None = None,
) -> "pa.Table":  # fmt: skip
    """Return the published windows of a pipeline as an Arrow table, without Spark: the rows and columns of `published`.

    Without `keys`, `from_` and `to`, the rows of each slice are compared with the ledger: the sums of all their ids,
    and for up to 250,000 rows their content. With them, files and row groups without a chosen row are skipped by their
    statistics. Then all ids of each slice with a file that is read are compared with the ledger, and the content of the
    chosen rows with their ids. A damaged statistic, or a damaged value in a key or `window_start`, can hide a row.

    Args:
        lake: the root of the lake, a path or URI.
        pipeline: the name of the pipeline.
        table: another table, such as `late_records`: its published rows with all columns, as `published_rows`.
        at: the ledger version to read; the newest when None.
        keys: key column -> the values to return, such as {"carrier": ["AA", "UA"]}.
        from_: return the windows that start at this instant or later: a datetime, a date or an ISO text; UTC if it has
            no offset.
        to: return the windows that start before this instant. A global window has no start, so a range leaves it out.
        columns: the columns to return, in this order; all when None.

    Raises:
        LedgerError: nothing was published at that version.
        RequestError: a column, key or bound is not possible; or `keys`, `from_` or `to` is given for another table than
            the windows.
        StoreError: a file cannot be read, or the rows differ from those that were written.
    """
    place, view = _resolved(lake, pipeline, at)
    wanted = Selection(table=table, keys=keys or {}, from_=from_, to=to, columns=columns)
    return read_selected(place, pipeline, wanted, view=view)


def _resolved(lake: str | Path, pipeline: str, at: int | None) -> tuple[Lake, LedgerView]:
    place = Lake(root=str(lake))
    ledger = Ledger(place.ledger(pipeline), now_ms=now_ms)
    view = ledger.view(at)
    if view.published:
        return place, view
    if not (newest := view if at is None else ledger.view()).version:
        raise LedgerError(f"there is no pipeline {pipeline} in lake {lake}: it has no ledger {place.ledger(pipeline)}")
    raise LedgerError(
        f"pipeline {pipeline} has published nothing in lake {lake} at ledger version {view.version} (the newest is "
        f"{newest.version}); `hindcast status {pipeline}` shows its open requests"
    )


def _checked_rows(spark: "SparkSession", stored: StoredRuns, table: str) -> "DataFrame":
    """Return all rows of a table, after checking the published ones against the ledger."""
    stored.read(table, published_runs(stored.view), (ROW_ID,))
    spark.conf.set(COMPARE_PAGES, "true")  # Delta does not pass an option of one read on to Parquet
    rows = spark.read.format("delta").load(spark_uri(stored.lake.table(stored.pipeline, table)))
    names = reader_columns(stored.lake, stored.pipeline, table, view=stored.view)
    return rows.select(*(f"`{name.replace('`', '``')}`" for name in names))


def _of(spark: "SparkSession", rows: "DataFrame", attempts: Sequence[Attempt]) -> "DataFrame":
    chosen = spark.createDataFrame(list(attempts), "slice_id string, attempt_id string").hint("broadcast")
    names = [f"`{name.replace('`', '``')}`" for name in rows.columns]
    return rows.join(chosen, list(PARTITION_COLUMNS), "left_semi").select(*names)


def _quote_format(identifier: str) -> str:
    """Return the identifier in Spark's quotes, for a text in which `{panes}` is replaced."""
    return quote_spark(identifier).replace("{", "{{").replace("}", "}}")
