"""Checks that are not compiled: Great Expectations gives the same outcomes on Spark and on pandas."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from expectations import slices
from expectations.confirming import Confirm
from expectations.suites import Check, Suite
from jobs.lake.file_commits import append_rows
from jobs.lake.store import ensure_table
from jobs.replay.checked_tables import CommittedSlices, arrow_schema
from jobs.spark.lazy_session import LazySession
from windowlib.records import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.gx]

SLICE_IDS = ("2013-02-08", "2013-02-09")
SUM = "expect_multicolumn_sum_to_equal"
SUITE = Suite(
    name="test",
    table="late_records",
    checks=(
        Check(index=0, type=SUM, kwargs={"column_list": ["rank", "late_by_ms"], "sum_total": 5}),
        Check(index=1, type="expect_column_values_to_not_be_null", kwargs={"column": "reason"}),
        Check(index=2, type="expect_column_values_to_match_regex", kwargs={"column": "reason", "regex": r"\bl"}),
    ),
)


LIMITS: tuple[tuple[int, Confirm], ...] = ((4, "none"), (0, "none"), (0, "all"))


def test_slices_get_the_same_outcomes_below_and_above_the_limit(spark: "SparkSession", tmp_path: Path) -> None:
    import pyarrow as pa

    uri = str(tmp_path / "late_records")
    table = tables.late_records("string")
    ensure_table(uri, table)
    schema = arrow_schema(table.stored_columns())
    filler = {name: "" if pa.types.is_string(schema.field(name).type) else None for name in schema.names}
    rows = [
        filler | {"slice_id": name, "attempt_id": "a", "rank": rank, "late_by_ms": 5 - rank, "reason": "late"}
        for name in SLICE_IDS
        for rank in range(4)
    ]
    rows[-1] |= {"late_by_ms": 7, "reason": "of late"}
    append_rows(uri, pa.Table.from_pylist(rows, schema))
    counts = dict.fromkeys(SLICE_IDS, 4)
    session = LazySession.of(spark)
    on_pandas, on_spark, confirmed_on_spark = (
        slices.check_slices(
            SUITE, CommittedSlices(session, uri, attempt_id="a", counts=counts, pandas_rows=limit), confirm=confirm
        )
        for limit, confirm in LIMITS
    )
    assert on_pandas == on_spark == confirmed_on_spark
    assert [[one.success for one in outcomes] for outcomes in on_pandas] == [[True, True, True], [False, True, True]]
