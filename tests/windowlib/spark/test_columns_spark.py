"""Spark expressions for instants, record ids and texts that are not UTF-8, with hostile values."""

import math
import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from tests.support.fuzzing import seeds
from tests.support.latin_texts import as_texts, random_bytes, with_bytes
from windowlib.columnar.log_reading import TimeColumn
from windowlib.columnar.undecodable import undecodable_rows
from windowlib.errors import SpecError
from windowlib.records.instants import read_instant
from windowlib.spark.columns import column, instant, is_undecodable, range_problem, text_problem
from windowlib.spark.hashes import record_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAR = "time_out_of_range"
WORD = 2**63 - 1
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
NAME = "we`ird. column"
CASES: list[tuple[T.DataType, str | None, dict[Any, int | str]]] = [
    (
        T.LongType(),
        "ms",
        {0: 0, -1: -1, LAST_MS: LAST_MS, LAST_MS + 1: FAR, FIRST_MS: FIRST_MS, FIRST_MS - 1: FAR, WORD: FAR},
    ),
    (T.LongType(), "s", {None: "null_time", -1: -1000, WORD: FAR, -WORD: FAR, LAST_MS // 1000: LAST_MS // 1000 * 1000}),
    (T.LongType(), "us", {-1: -1, -1000: -1, -1001: -2, 999: 0, WORD: FAR, LAST_MS * 1000 + 999: LAST_MS}),
    (T.LongType(), "ns", {-1: -1, 999_999: 0, 1_000_000: 1, WORD: WORD // 1_000_000, -WORD: -WORD // 1_000_000}),
    (T.IntegerType(), "s", {2**31 - 1: (2**31 - 1) * 1000}),
    (
        T.DoubleType(),
        "s",
        {
            1.001: 1001,
            -1.001: -1001,
            math.inf: "infinite_time",
            -math.inf: "infinite_time",
            1e300: FAR,
            1e-320: 0,
            None: "null_time",
        },
    ),
    (T.DoubleType(), "s", {math.nan: "nan_time", 253_402_300_799.999: LAST_MS, 253_402_300_800.0: FAR}),
    (T.DoubleType(), "ns", {1e6: 1, 999_999.9: 0, -0.5: -1, -1e300: FAR}),
    (T.FloatType(), "s", {1.5: 1500, math.nan: "nan_time"}),
    (
        T.StringType(),
        "ms",
        {
            "": "wrong_type",
            "abc": "wrong_type",
            "12": 12,
            "1e3": 1000,
            " 7 ": 7,
            "9" * 41: "wrong_type",
            "NaN": "wrong_type",
        },
    ),
    (
        T.StringType(),
        None,
        {
            "": "wrong_type",
            "2013-02-08T05:00:00Z": 1_360_299_600_000,
            "2013-02-08 05:00:00+02:00": 1_360_292_400_000,
            "2013-02-08T05:15": 1_360_300_500_000,
            "2013-02-08T05:15:00.9999+0530": 1_360_280_700_999,
            "1969-12-31 23:59:59.9995": -1,
            "0000-12-31T23:59-00:01": FIRST_MS,
            "0001-01-01T00:00+00:01": FAR,
            "9999-12-31T23:59:59.999999999Z": LAST_MS,
            "0000-02-29T00:00": FAR,
            "2013-02-08": "wrong_type",
            "12:34:56": "wrong_type",
            "T12:34": "wrong_type",
            "00:00": "wrong_type",
            "2013-02-08T05": "wrong_type",
            "2013-2-8 5:15": "wrong_type",
            "2013-02-29T05:15": "wrong_type",
            "2013-02-08T24:00": "wrong_type",
            "2013-02-08T05:15:60": "wrong_type",
            "2013-02-08T05:15+24:00": "wrong_type",
            "2013-02-08T05:15 UTC": "wrong_type",
            "2013-02-08T05:15\n": "wrong_type",
            "99999-01-01T00:00": "wrong_type",
            "now": "wrong_type",
            "2013-02-08T05:15:00٣": "wrong_type",
        },
    ),
    (T.DecimalType(38, 0), "s", {Decimal(1): 1000, Decimal(10) ** 37: FAR}),
    (T.DecimalType(10, 4), "s", {Decimal("1.001"): 1001, Decimal("-1.0005"): -1001}),
    (T.DateType(), None, {date(2013, 2, 8): 1_360_281_600_000, date(1, 1, 1): FIRST_MS, None: "null_time"}),
    (T.TimestampType(), None, {datetime(2013, 2, 8, tzinfo=UTC): 1_360_281_600_000, None: "null_time"}),
    (
        T.TimestampNTZType(),
        None,
        {
            datetime.fromisoformat("1969-12-31T23:59:59.9995"): -1,
            datetime.fromisoformat("2013-02-08"): 1_360_281_600_000,
        },
    ),
]


@pytest.mark.parametrize(
    ("kind", "unit", "cases"), CASES, ids=lambda value: str(value) if isinstance(value, T.DataType) else None
)
def test_a_value_gives_an_instant_or_a_problem(
    spark: "SparkSession", kind: T.DataType, unit: str | None, cases: dict[Any, int | str]
) -> None:
    schema = T.StructType([T.StructField(NAME, kind)])
    read = instant(TimeColumn(name=NAME, unit=unit), schema.fields[0])
    rows = spark.createDataFrame([(value,) for value in cases], schema).select(
        read.ms.alias("ms"), read.problem.alias("read")
    )
    judged = rows.select("ms", F.coalesce("read", range_problem(F.col("ms"))).alias("problem")).collect()
    found = [row["problem"] or row["ms"] for row in judged]
    assert found == list(cases.values())


def test_the_definition_in_python_gives_the_same_results() -> None:
    for kind, unit, expected in CASES:
        widened = (
            {struct.unpack("f", struct.pack("f", value))[0]: result for value, result in expected.items()}
            if isinstance(kind, T.FloatType)
            else expected
        )
        for value, result in widened.items():
            read = read_instant(value, unit)
            assert (read.ms if read.problem is None else read.problem) == result, (kind, unit, value)


PIECES = (
    *"0123456789", "-", ":", "T", " ", "Z", "+", ".", "2013", "1969", "0000", "9999", "-02-08", "-02-29", "-12-31",
    "T05:15", " 23:59", ":59", ":60", ".5", ".9999999", "+05:30", "-0001", "+18", "t", "z", "\n", "e", "E5", "e-9",
    "1.001", "٣", "é", "now", "99999999",
)  # fmt: skip


def random_text(chance: random.Random) -> str:
    """Return a text that is an instant or a number, or nearly one."""
    if chance.random() < 0.5:
        return "".join(chance.choice(PIECES) for _ in range(chance.randrange(8)))
    parts = [
        f"{chance.choice([0, 1, 1969, 1970, 2000, 2013, 9599, 9600, 9999]):04}",
        f"-{chance.randrange(14):02}-{chance.randrange(33):02}",
        chance.choice("T T_"),
        f"{chance.randrange(26):02}:{chance.randrange(62):02}",
        chance.choice(["", f":{chance.randrange(62):02}"]),
        chance.choice(["", "." + str(chance.randrange(10 ** chance.randrange(1, 11)))]),
        chance.choice(
            ["", "Z", f"{chance.choice('+-')}{chance.randrange(26):02}{chance.choice(['', ':30', '59', ':60'])}"]
        ),
    ]
    if chance.random() < 0.2:
        parts[chance.randrange(len(parts))] = chance.choice(PIECES)
    return "".join(parts)


def random_number(chance: random.Random) -> float:
    """Return a double: with milliseconds, with any digits, whole, or of any magnitude."""
    match chance.randrange(4):
        case 0:
            return chance.randrange(-(10**12), 10**12) / 1000
        case 1:
            return chance.uniform(-2e9, 2e9)
        case 2:
            return float(chance.randrange(-(10**15), 10**15))
        case _:
            return chance.choice([-1, 1]) * 10 ** chance.uniform(-12, 20)


def test_spark_and_the_definition_in_python_agree(spark: "SparkSession") -> None:
    """Texts without a unit, and texts and doubles with each unit, in one Spark job."""
    for seed in seeds(1):
        chance = random.Random(seed)
        texts = [random_text(chance) for _ in range(3_000)]
        numbers = [random_number(chance) for _ in range(3_000)]
        schema = T.StructType([T.StructField("text", T.StringType()), T.StructField("number", T.DoubleType())])
        frame = spark.createDataFrame(list(zip(texts, numbers, strict=True)), schema)
        wanted = [("text", unit) for unit in (None, "s", "ms", "us", "ns")] + [
            ("number", unit) for unit in ("s", "ms", "us", "ns")
        ]
        columns = []
        for name, unit in wanted:
            read = instant(TimeColumn(name=name, unit=unit), schema[name])
            problem = F.coalesce(read.problem, range_problem(read.ms))
            columns += [F.when(problem.isNull(), read.ms).alias(f"{name} {unit}"), problem.alias(f"{name} {unit}?")]
        valid = 0
        for text, number, row in zip(texts, numbers, frame.select(*columns).collect(), strict=True):
            for name, unit in wanted:
                value = text if name == "text" else number
                found = (row[f"{name} {unit}"], row[f"{name} {unit}?"])
                assert found == tuple(read_instant(value, unit)), (value, unit)
                valid += found[1] is None and name == "text" and unit is None
        assert valid > 200, "enough of the random texts are instants"


def test_a_timestamp_after_the_year_9999_is_out_of_range(spark: "SparkSession") -> None:
    frame = spark.sql("SELECT timestamp_micros(9223372036854775807) AS at")
    read = instant(TimeColumn(name="at"), frame.schema["at"])
    assert frame.select(range_problem(read.ms)).first() == (FAR,)


@pytest.mark.parametrize(
    ("kind", "unit", "message"),
    [
        (T.DateType(), "ms", "is a date and needs no unit"),
        (T.LongType(), None, "a number needs a unit, one of s, ms, us, ns"),
        (T.BooleanType(), None, "which holds no time"),
        (T.LongType(), "h", "unit 'h' of time column 'x' is not known"),
    ],
)
def test_a_column_that_holds_no_time_is_refused(
    spark: "SparkSession", kind: T.DataType, unit: str | None, message: str
) -> None:
    assert spark is not None, "expressions need a session"
    with pytest.raises(SpecError, match=message):
        instant(TimeColumn(name="x", unit=unit), T.StructField("x", kind))


def test_a_records_id_depends_on_names_but_not_on_nulls_or_the_order_of_columns(spark: "SparkSession") -> None:
    """A value in another column gives another id. A new nullable column keeps the id."""

    def ids(select: str) -> list[Any]:
        frame = spark.sql(f"SELECT {select}")
        return [row[0] for row in frame.select(record_hash(frame.schema.fields)).collect()]

    plain = ids("1 AS a, 'x' AS b, CAST(NULL AS STRING) AS c")
    assert plain == ids("'x' AS b, 1 AS a")
    assert plain != ids("1 AS a, CAST(NULL AS STRING) AS b, 'x' AS c")
    assert ids("map('b', 2, 'a', 1) AS m") == ids("map('a', 1, 'b', 2) AS m")
    assert ids("map('b', 2) AS m") != ids("map('b', 3) AS m")


def test_spark_and_arrow_find_the_same_texts_that_are_not_utf_8(spark: "SparkSession", tmp_path: Path) -> None:
    kinds = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "named": pa.struct([("a", pa.string()), ("n", pa.int64())]),
        "mapped": pa.map_(pa.string(), pa.string()),
        "deep": pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.string())))])),
        "number": pa.int64(),
    }
    for seed in seeds(3):
        chance = random.Random(seed)
        columns = {
            name: as_texts(pa.array([random_bytes(chance, kind) for _ in range(200)], with_bytes(kind)), kind)
            for name, kind in kinds.items()
        }
        rows = pa.record_batch(columns)
        parquet.write_table(pa.Table.from_batches([rows]), tmp_path / f"{seed}.parquet")
        frame = spark.read.parquet(str(tmp_path / f"{seed}.parquet"))
        fields = {field.name: field.dataType for field in frame.schema.fields}
        found = frame.select(*(is_undecodable(column(name), kind).alias(name) for name, kind in fields.items()))
        arrow = found.toArrow()
        for name in kinds:
            own = undecodable_rows(rows.select([name]))
            expected = [False] * len(rows) if own is None else own.tolist()
            assert arrow[name].to_pylist() == expected, f"seed {seed}: {name}"
        whole = frame.select(text_problem(frame.schema.fields).alias("problem")).toArrow()["problem"].to_pylist()
        bad = undecodable_rows(rows)
        assert bad is not None
        assert whole == ["not_utf8" if one else None for one in bad.tolist()]
