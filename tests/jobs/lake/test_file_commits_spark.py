"""Spark reads files that deltalake committed, and skips none of them wrongly."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from tests.jobs.lake.test_file_commits import STRUCTS, committed, committed_structs, random_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_finds_the_fields_of_a_struct_by_name(spark: "SparkSession", tmp_path: Path) -> None:
    committed_structs(tmp_path / "t", "bigint")
    rows = spark.read.format("delta").load(str(tmp_path / "t")).select("s").collect()
    assert sorted((row["s"].asDict() for row in rows), key=str) == STRUCTS


@pytest.mark.slow
def test_spark_finds_every_row_with_and_without_a_filter(spark: "SparkSession", tmp_path: Path) -> None:
    rows = random_rows(random.Random(5), 24)
    committed(tmp_path / "t", [("2024-01-01T05:15 x", rows.slice(at, 4)) for at in range(0, 24, 4)])
    table = spark.read.format("delta").load(str(tmp_path / "t"))
    assert table.count() == 24
    assert table.where("slice_id = '2024-01-01T05:15 x' and attempt_id = 'a'").count() == 24
    for name in ("origin", "edge", "day"):
        for value in {one.as_py() for one in rows[name]} - {None}:
            expected = sum(one.as_py() == value for one in rows[name])
            # pyspark cannot send the date 0001-01-01 to the JVM, so dates go as text.
            wanted = F.lit(value.isoformat()).cast("date") if name == "day" else F.lit(value)
            assert table.where(table[name] == wanted).count() == expected, (name, value)
