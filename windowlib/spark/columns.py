"""What a record is in Spark's own expressions: its id, its event time in ms, and why it may be invalid.

Nothing here runs Python per record. Every expression is total: a hostile value gives a reason, never a failed job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from windowlib.errors import InvariantBroken, SpecError
from windowlib.windows import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS

UNITS_PER_MS = {"s": Fraction(1, 1000), "ms": Fraction(1), "us": Fraction(1000), "ns": Fraction(1_000_000)}
INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
SELF_EXPLAINING = (T.TimestampType, T.TimestampNTZType, T.DateType)
ALLOWED = "a number (or its text) with a unit (s, ms, us, ns); a TIMESTAMP, TIMESTAMP_NTZ, DATE or ISO text without one"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """A column that holds an instant; `unit` is None where the type says it (TIMESTAMP, DATE, ISO text)."""

    name: str
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """An instant read from a column: floored epoch `ms`, and `problem`, the reason why it cannot be used, or null.

    `ms` may be null or outside the years 1 to 9999 without a `problem` yet: `range_problem` says so, over the finished
    column. (Both in one expression would repeat the reading so often that Spark's optimizer drowns in it.)
    """

    ms: Column
    problem: Column


def range_problem(ms: Column) -> Column:
    """Return `time_out_of_range` where an instant left 64 bits or the years 1 to 9999, else null."""
    inside = ms.between(F.lit(MIN_TIMESTAMP_MS), F.lit(MAX_TIMESTAMP_MS))
    return F.when(F.coalesce(inside, F.lit(False)), None).otherwise(F.lit("time_out_of_range"))  # noqa: FBT003


def column(name: str) -> Column:
    """Return the column of exactly this name; dots and backticks in it are part of the name."""
    return F.col(f"`{name.replace('`', '``')}`")


def record_hash(fields: Sequence[T.StructField]) -> Column:
    """Return the 64-bit id of a record's content: Spark's xxhash64 over its non-null (name, value) pairs, by name.

    A null leaves the hash as it is, and so does its name, so a new nullable column changes no id. What Spark does not
    hash alike everywhere (maps, anything nested) goes in as JSON, maps as sorted entries.
    """
    pairs = [
        (F.when(column(field.name).isNotNull(), F.lit(field.name)), _hashable(field)) for field in _by_name(fields)
    ]
    return F.xxhash64(*(part for pair in pairs for part in pair))


def record_check(record: T.StructType) -> Column:
    """Return the check of a row that holds a record: over its id and rank, and over the record and its id.

    Reads the columns `row_id`, `rank`, `record_id` and `record`. As in `record_hash`, a null leaves the hash as it is.
    """
    pairs: list[Column] = []
    for field in _by_name(record.fields):
        value = F.col("record").getField(field.name)
        pairs += [F.when(value.isNotNull(), F.lit(field.name)), _without_maps(value, field.dataType)]
    return F.xxhash64("row_id", F.col("rank").cast("bigint"), "record_id", *pairs)


def _without_maps(value: Column, kind: T.DataType) -> Column:
    """Return a value with every map as the array of its entries, because Spark hashes no maps."""
    if not _has_map(kind):
        return value
    match kind:
        case T.MapType():
            return F.transform(
                F.map_entries(value),
                lambda entry: F.struct(entry.getField("key"), _without_maps(entry.getField("value"), kind.valueType)),
            )
        case T.ArrayType():
            return F.transform(value, lambda item: _without_maps(item, kind.elementType))
        case T.StructType():
            fields = (_without_maps(value.getField(field.name), field.dataType) for field in kind.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
        case _:
            raise InvariantBroken(f"type {kind.simpleString()} holds no map; please report this")


def _has_map(kind: T.DataType) -> bool:
    match kind:
        case T.MapType():
            return True
        case T.ArrayType():
            return _has_map(kind.elementType)
        case T.StructType():
            return any(_has_map(field.dataType) for field in kind.fields)
        case _:
            return False


def _by_name(fields: Sequence[T.StructField]) -> list[T.StructField]:
    return sorted(fields, key=lambda field: field.name)


def _hashable(field: T.StructField) -> Column:
    value = column(field.name)
    if isinstance(field.dataType, T.MapType):
        return F.to_json(F.array_sort(F.map_entries(value)))
    if isinstance(field.dataType, T.StructType | T.ArrayType):
        return F.to_json(value)
    return value


def instant(time_column: TimeColumn, field: T.StructField) -> Instant:  # noqa: PLR0911 - one return per type
    """Read an instant from a column.

    Reasons: `null_time`, `nan_time`, `infinite_time`, `wrong_type` (a text that is no time).

    Raises:
        SpecError: the column's type holds no time, or needs a unit, or must not have one.
    """
    _check(time_column, field.dataType)
    value = column(field.name)
    match field.dataType:
        case T.TimestampType():
            return _present(value, _integer_ms(F.unix_micros(value), "us"))
        case T.TimestampNTZType():
            epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return _present(value, _integer_ms(F.timestamp_diff("MICROSECOND", epoch, value), "us"))
        case T.DateType():
            return _present(value, F.unix_date(value).cast("bigint") * F.lit(86_400_000))
        case T.StringType() if time_column.unit is None:
            parsed = value.try_cast("timestamp")
            return _parsed(value, parsed, _integer_ms(F.unix_micros(parsed), "us"))
        case T.StringType():
            number = value.try_cast("decimal(38,9)")
            return _parsed(value, number, _decimal_ms(number, str(time_column.unit)))
        case T.DecimalType():
            return _present(value, _decimal_ms(value.try_cast("decimal(38,9)"), str(time_column.unit)))
        case T.DoubleType() | T.FloatType():
            return _floating(value.cast("double"), str(time_column.unit))
        case _:
            return _present(value, _integer_ms(value.cast("bigint"), str(time_column.unit)))


def _check(time_column: TimeColumn, kind: T.DataType) -> None:
    name, unit = time_column.name, time_column.unit
    if unit is not None and unit not in UNITS_PER_MS:
        raise SpecError(f"unit {unit!r} of time column {name!r} is not known; allowed are {', '.join(UNITS_PER_MS)}")
    if isinstance(kind, SELF_EXPLAINING) and unit is not None:
        raise SpecError(
            f"time column {name!r} is a {kind.simpleString()} and needs no unit; found unit {unit!r}, remove it"
        )
    if isinstance(kind, (*INTEGERS, T.DoubleType, T.FloatType, T.DecimalType)) and unit is None:
        raise SpecError(f"time column {name!r} is a {kind.simpleString()}: a number needs a unit, one of s, ms, us, ns")
    if not isinstance(kind, (*SELF_EXPLAINING, *INTEGERS, T.DoubleType, T.FloatType, T.DecimalType, T.StringType)):
        raise SpecError(f"time column {name!r} is a {kind.simpleString()}, which holds no time; allowed: {ALLOWED}")


def _integer_ms(value: Column, unit: str) -> Column:
    """Floor to ms in whole numbers; null where the multiplication would leave 64 bits (so it is out of range)."""
    per_ms = UNITS_PER_MS[unit]
    if per_ms < 1:
        return F.try_multiply(value, F.lit(int(1 / per_ms)))
    divisor = F.lit(int(per_ms))
    return F.call_function("div", value, divisor) - F.when(
        F.pmod(value, divisor) == value % divisor, F.lit(0)
    ).otherwise(F.lit(1))


def _decimal_ms(value: Column, unit: str) -> Column:
    per_ms = UNITS_PER_MS[unit]
    low, high = (F.lit(_decimal(bound)) for bound in (MIN_TIMESTAMP_MS * per_ms, (MAX_TIMESTAMP_MS + 1) * per_ms))
    factor = F.lit(Decimal(per_ms.denominator)) / F.lit(Decimal(per_ms.numerator))
    return F.when((value >= low) & (value < high), F.floor(value * factor).cast("bigint"))


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _floating(value: Column, unit: str) -> Instant:
    """A double is read as its shortest decimal text, so 1.001 s is 1001 ms although the double lies below it."""
    limit = F.lit(float((MAX_TIMESTAMP_MS + 1) * UNITS_PER_MS[unit]))
    ms = _decimal_ms(F.when(F.abs(value) <= limit, value).try_cast("decimal(38,9)"), unit)
    special = F.when(F.isnan(value), F.lit("nan_time")).when(
        F.abs(value) == F.lit(float("inf")), F.lit("infinite_time")
    )
    return Instant(ms=ms, problem=F.when(value.isNull(), F.lit("null_time")).otherwise(special))


def _parsed(text: Column, parsed: Column, ms: Column) -> Instant:
    unread = F.when(text.isNull(), F.lit("null_time")).when(parsed.isNull(), F.lit("wrong_type"))
    return Instant(ms=ms, problem=unread)


def _present(value: Column, ms: Column) -> Instant:
    return Instant(ms=ms, problem=F.when(value.isNull(), F.lit("null_time")))
