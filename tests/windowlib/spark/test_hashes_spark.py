"""Spark's expressions give the hashes that numpy gives, for columns of any type, and the test vectors."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from tests.support.fuzzing import seeds
from tests.support.hash_vectors import vectors
from tests.support.plain_hashes import random_kind, random_value
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.record_hashes import record_hashes
from windowlib.spark.columns import column
from windowlib.spark.hashes import record_hash, row_hash, value_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_records_of_any_type_have_the_same_hashes_as_in_numpy(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark reads the values from a file, as it reads a log. Arrow gets them from Spark with the same hashes."""
    for seed in seeds(4):
        rng = random.Random(seed)
        kinds = {name: random_kind(rng, rng.randrange(4)) for name in ("a", "b.c", "d", "e`f", "g", "h")}
        rows = 30
        columns = {
            name: pa.array([random_value(rng, kind) for _ in range(rows)], arrow_type(kind))
            for name, kind in kinds.items()
        }
        path = tmp_path / f"{seed}.parquet"
        parquet.write_table(pa.table(columns), path)
        frame = spark.read.parquet(str(path))
        found = frame.select(record_hash(frame.schema.fields).alias("hash")).toArrow()
        assert found["hash"].to_pylist() == record_hashes(pa.table(columns)).tolist()
        assert record_hashes(frame.toArrow()).tolist() == record_hashes(pa.table(columns)).tolist()


def test_a_value_of_a_widened_column_has_the_hash_that_it_has_in_numpy(spark: "SparkSession") -> None:
    widened = {"a": "int", "b": "decimal(6,2)", "c": "date", "d": "tinyint", "e": "int", "f": "float"}
    frame = spark.sql("""
        SELECT CAST(a AS DOUBLE) a, CAST(b AS DECIMAL(30,6)) b, CAST(c AS TIMESTAMP_NTZ) c, CAST(d AS DECIMAL(20,3)) d,
               CAST(e AS BIGINT) e, CAST(f AS DOUBLE) f
        FROM VALUES ('1', '1.20', '2020-01-01', '3', 1099511627776, 0.5),
                    ('-0.0', '1.2345', '2020-01-01 00:01:00', '3.1', 2, 0.1),
                    ('3e9', '9999999', '1960-01-01', '128', NULL, NULL), ('NaN', NULL, NULL, '-128', 3, -0.0),
                    ('1e300', '-7.10', '1969-12-31 23:59:59.999999', '99999999999', 4, 1e300) AS t(a, b, c, d, e, f)
    """)
    found = frame.withColumn("hash", record_hash(frame.schema.fields, widened)).toArrow()
    assert found["hash"].to_pylist() == record_hashes(found.drop(["hash"]), widened).tolist()
    narrow = frame.select(*(column(name).try_cast(kind).alias(name) for name, kind in widened.items())).where(
        "b = 1.20"
    )
    first = narrow.select(record_hash(narrow.schema.fields)).collect()[0][0]
    wide = frame.where("b = 1.20").withColumn("e", F.lit(None).cast("bigint"))
    assert wide.select(record_hash(wide.schema.fields, widened)).collect()[0][0] == first


def test_a_variant_has_the_hash_of_its_json(spark: "SparkSession") -> None:
    frame = spark.sql("""SELECT parse_json('{"b": 1, "a": [2, null]}') AS v, array(parse_json('1')) AS vs""")
    [[found]] = frame.select(record_hash(frame.schema.fields)).collect()
    assert found == record_hashes(pa.table({"v": ['{"a":[2,null],"b":1}'], "vs": [["1"]]}))[0]


def test_the_vectors_of_the_document(spark: "SparkSession") -> None:
    """One query for all: each vector is a struct column of a frame with one row."""
    named = {f"v{number}": vector for number, vector in enumerate(vectors())}
    frames = {name: vector.columns().to_struct_array().combine_chunks() for name, vector in named.items()}
    frame = spark.createDataFrame(pa.table(frames))
    hashes = []
    for name, vector in named.items():
        kind = frame.schema[name].dataType
        assert isinstance(kind, T.StructType)
        values = {field.name: F.col(name).getField(field.name) for field in kind.fields}
        if vector.table is None:
            [field] = kind.fields
            hashes.append(value_hash(values[field.name], field.dataType).alias(name))
        else:
            kinds = {field.name: field.dataType for field in kind.fields}
            hashes.append(row_hash(vector.table, kinds, values).alias(name))
    [row] = frame.select(*hashes).collect()
    assert row.asDict() == {name: vector.hash for name, vector in named.items()}
