"""Spark expressions for a record's id, its event time in ms, and the reason why it is invalid.

No expression runs Python per record. No value in a log fails the job: a value that cannot be read gives a reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from windowlib.columnar.log_reading import TimeColumn
from windowlib.errors import SpecError
from windowlib.records.instants import (
    BLANKS,
    INFINITE_TIME,
    INSTANT_PATTERN,
    NAN_TIME,
    NOT_UTF8,
    NULL_TIME,
    NUMBER_PATTERN,
    OFFSET_PATTERN,
    OUT_OF_RANGE,
    UNITS_PER_MS,
    WRONG_TYPE,
)

INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
SELF_EXPLAINING = (T.TimestampType, T.TimestampNTZType, T.DateType)
ALLOWED = (
    "a number (or its text) with a unit (s, ms, us, ns); a TIMESTAMP, TIMESTAMP_NTZ, DATE or ISO text (date and time) "
    "without one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Expressions for an instant: floored epoch `ms`, and `problem`, the reason why it cannot be used, or null.

    If `ms` is null or outside the years 1 to 9999, `problem` may still be null. `range_problem` finds these values in
    the computed column. One expression for both would repeat the reading so often that Spark's optimizer is too slow.
    """

    ms: Column
    problem: Column


def range_problem(ms: Column) -> Column:
    """Return `time_out_of_range` if an instant is outside 64 bits or the years 1 to 9999, else null."""
    inside = ms.between(F.lit(MIN_TIMESTAMP_MS), F.lit(MAX_TIMESTAMP_MS))
    return F.when(F.coalesce(inside, F.lit(False)), None).otherwise(F.lit(OUT_OF_RANGE))  # noqa: FBT003


def column(name: str) -> Column:
    """Return the column with exactly this name. Dots and backticks are part of the name."""
    return F.col(f"`{name.replace('`', '``')}`")


def storable(value: Column, kind: T.DataType) -> Column:
    """Return a value as our tables can store it: with VARIANTs at any depth as JSON."""
    if not _has(kind, T.VariantType):
        return value
    match kind:
        case T.MapType():
            return F.transform_values(value, lambda _key, one: storable(one, kind.valueType))
        case T.StructType():
            inside = [storable(value.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
            return F.when(value.isNotNull(), F.struct(*inside))
        case T.ArrayType():
            return F.transform(value, lambda one: storable(one, kind.elementType))
        case _:
            return F.to_json(value)


def is_undecodable(value: Column, kind: T.DataType) -> Column:
    """Return whether a value is a text that is not UTF-8, or contains one; False for a null."""
    if not _has(kind, T.StringType):
        return F.lit(False)  # noqa: FBT003 - a literal is what Spark calls it
    match kind:
        case T.StructType():
            found = _any([is_undecodable(value.getField(one.name), one.dataType) for one in kind.fields])
        case T.ArrayType():
            found = F.exists(value, lambda item: is_undecodable(item, kind.elementType))
        case T.MapType():
            keys, values = T.ArrayType(kind.keyType), T.ArrayType(kind.valueType)
            found = is_undecodable(F.map_keys(value), keys) | is_undecodable(F.map_values(value), values)
        case _:
            found = ~F.is_valid_utf8(value)
    return F.coalesce(found, F.lit(False))  # noqa: FBT003


def text_problem(fields: Sequence[T.StructField]) -> Column:
    """Return `not_utf8` if a column of the log has a text that is not UTF-8, else null."""
    texts = [one for one in fields if _has(one.dataType, T.StringType)]
    return F.when(_any([is_undecodable(column(one.name), one.dataType) for one in texts]), F.lit(NOT_UTF8))


def _any(conditions: Sequence[Column]) -> Column:
    """Return whether a condition is true, as a balanced tree, because Spark recurses into expressions."""
    if len(conditions) < 2:  # noqa: PLR2004 - a tree has two halves
        return conditions[0] if conditions else F.lit(False)  # noqa: FBT003
    middle = len(conditions) // 2
    return _any(conditions[:middle]) | _any(conditions[middle:])


def _has(kind: T.DataType, wanted: type[T.DataType]) -> bool:
    match kind:
        case T.MapType():
            return isinstance(kind, wanted) or _has(kind.keyType, wanted) or _has(kind.valueType, wanted)
        case T.StructType():
            return isinstance(kind, wanted) or any(_has(one.dataType, wanted) for one in kind.fields)
        case T.ArrayType():
            return isinstance(kind, wanted) or _has(kind.elementType, wanted)
        case _:
            return isinstance(kind, wanted)


def instant(time_column: TimeColumn, field: T.StructField) -> Instant:  # noqa: PLR0911 - one return per type
    """Return the expressions that read an instant from a column.

    `windowlib.records.instants` defines the results. Problems: `null_time`, `nan_time`, `infinite_time`, `wrong_type`
    (a text that is not an instant).

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
            ms = _text_ms(value)
            return _parsed(value, ms, ms)
        case T.StringType():
            trimmed = F.btrim(value, F.lit(BLANKS))
            number = F.when(_is_like(trimmed, NUMBER_PATTERN), trimmed).try_cast("decimal(38,9)")
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
    """Floor to ms in integer arithmetic. If the product exceeds 64 bits, the result is null, so it is out of range."""
    per_ms = UNITS_PER_MS[unit]
    if per_ms < 1:
        return F.try_multiply(value, F.lit(int(1 / per_ms)))
    divisor = F.lit(int(per_ms))
    return F.call_function("div", value, divisor) - F.when(
        F.pmod(value, divisor) == value % divisor, F.lit(0)
    ).otherwise(F.lit(1))


def _text_ms(text: Column) -> Column:
    """Read an ISO instant by the positions of its parts, without the session's time zone or clock; else null."""
    is_instant = _is_like(text, INSTANT_PATTERN)
    rest = F.substring(text, 17, 1_000)
    seconds = F.when(F.substring(text, 17, 1) == ":", F.substring(text, 17, 3)).otherwise(F.lit(":00"))
    wall = F.concat(F.substring(text, 1, 10), F.lit(" "), F.substring(text, 12, 5), seconds).try_cast("timestamp_ntz")
    since = F.timestamp_diff("SECOND", F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"), wall)
    fraction = F.rpad(F.regexp_extract(rest, r"\.([0-9]+)", 1), 3, "0").try_cast("bigint")
    offset = F.regexp_replace(F.regexp_extract(rest, rf"({OFFSET_PATTERN})\z", 1), ":", "")
    minutes = F.substring(offset, 2, 2).try_cast("bigint") * 60 + F.coalesce(
        F.substring(offset, 4, 2).try_cast("bigint"), F.lit(0)
    )
    ahead = F.coalesce(F.when(F.substring(offset, 1, 1) == "-", -minutes).otherwise(minutes), F.lit(0))
    return F.when(is_instant, since * 1000 + fraction - ahead * 60_000)


def _is_like(text: Column, pattern: str) -> Column:
    return F.coalesce(text.rlike(rf"\A(?:{pattern})\z"), F.lit(False))  # noqa: FBT003 - a literal for Spark


def _decimal_ms(value: Column, unit: str) -> Column:
    """Floor to ms. Whole units are floored first, because a decimal product would round small negatives to 0."""
    per_ms = UNITS_PER_MS[unit]
    low, high = (F.lit(_decimal(bound)) for bound in (MIN_TIMESTAMP_MS * per_ms, (MAX_TIMESTAMP_MS + 1) * per_ms))
    if per_ms < 1:
        ms = F.floor(value * F.lit(Decimal(per_ms.denominator)))
    else:
        whole, divisor = F.floor(value).cast("decimal(30,0)"), F.lit(_decimal(per_ms))
        ms = F.call_function("div", whole - F.pmod(whole, divisor), divisor)
    return F.when((value >= low) & (value < high), ms.cast("bigint"))


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _floating(value: Column, unit: str) -> Instant:
    """A double is read as its shortest decimal text. So 1.001 s is 1001 ms, although the double is smaller."""
    limit = F.lit(float((MAX_TIMESTAMP_MS + 1) * UNITS_PER_MS[unit]))
    ms = _decimal_ms(F.when(F.abs(value) <= limit, value).try_cast("decimal(38,9)"), unit)
    special = F.when(F.isnan(value), F.lit(NAN_TIME)).when(F.abs(value) == F.lit(float("inf")), F.lit(INFINITE_TIME))
    return Instant(ms=ms, problem=F.when(value.isNull(), F.lit(NULL_TIME)).otherwise(special))


def _parsed(text: Column, parsed: Column, ms: Column) -> Instant:
    unread = F.when(text.isNull(), F.lit(NULL_TIME)).when(parsed.isNull(), F.lit(WRONG_TYPE))
    return Instant(ms=ms, problem=unread)


def _present(value: Column, ms: Column) -> Instant:
    return Instant(ms=ms, problem=F.when(value.isNull(), F.lit(NULL_TIME)))
