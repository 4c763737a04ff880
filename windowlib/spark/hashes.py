"""Spark expressions for the hashes of records and rows: the same hashes as `windowlib.columnar.hashing`.

docs/CHECKPOINTS.md has the definition. No expression runs Python per record.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from windowlib.records.row_ids import RECORD
from windowlib.records.xxh64 import name_word
from windowlib.spark.columns import column

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FLOATS = (T.FloatType, T.DoubleType)


def record_hash(fields: Sequence[T.StructField], widened: Mapping[str, str] = MappingProxyType({})) -> Column:
    """Return the 64-bit id of a record's content: the hash of its non-null columns.

    A null value and its name do not change the hash, so a new nullable column changes no id.

    Args:
        fields: the log's fields.
        widened: column -> its first type. A value that fits that type is hashed as that type, so that the ids of old
            records stay the same after a column was widened, for example from INT to DOUBLE.
    """
    hashes = [
        _column_hash(one.name, one.dataType, column(one.name), first=widened.get(one.name)) for one in fields
    ]  # fmt: skip
    return F.xxhash64(_long(name_word(RECORD)), _xor(hashes))


def row_hash(
    table: str, columns: Mapping[str, T.DataType], values: Mapping[str, Column] = MappingProxyType({})
) -> Column:
    """Return the id of a row of a table.

    Args:
        table: the name that seeds the ids of its rows.
        columns: the columns of content, with their types.
        values: the expressions of columns that are not columns of the frame.
    """
    hashes = [_column_hash(name, kind, values.get(name, column(name))) for name, kind in columns.items()]
    return F.xxhash64(_long(name_word(table)), _xor(hashes))


def _column_hash(name: str, kind: T.DataType, value: Column, *, first: str | None = None) -> Column:
    """Return the hash of a column's or field's value, seeded by its name; 0 for a null."""
    seed = _long(name_word(name))
    hashed = F.xxhash64(seed, _word(value, kind))
    if first is not None and not _is_hashed_alike(first, kind):
        before = value.try_cast(first)
        narrow = F.xxhash64(seed, _word(before, T.DataType.fromDDL(first)))
        hashed = F.when(before.cast(kind).eqNullSafe(value), narrow).otherwise(hashed)
    return F.when(value.isNotNull(), hashed).otherwise(_long(0))


def _is_hashed_alike(first: str, kind: T.DataType) -> bool:
    before = T.DataType.fromDDL(first)
    return before == kind or any(isinstance(before, of) and isinstance(kind, of) for of in (_INTEGERS, _FLOATS))


def _word(value: Column, kind: T.DataType) -> Column:  # noqa: PLR0911 - one return per type
    """Return what is hashed for a value: an expression that Spark's xxhash64 hashes as the definition says."""
    match kind:
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType() | T.BooleanType():
            return value.cast("bigint")
        case T.DateType():
            return F.unix_date(value).cast("bigint")
        case T.FloatType():
            return value.cast("double")
        case T.VariantType():
            return F.to_json(value)
        case T.StructType():
            return _xor([_column_hash(one.name, one.dataType, value.getField(one.name)) for one in kind.fields])
        case T.ArrayType():
            item_kind = kind.elementType
            return _folded(F.transform(value, lambda item, place: _item(item, place, kind=item_kind)))
        case T.MapType():
            map_kind = kind
            return _folded(F.transform(F.map_entries(value), lambda entry: _entry(entry, kind=map_kind)))
        case _:
            return value


def _item(item: Column, place: Column, *, kind: T.DataType) -> Column:
    return F.xxhash64(place.cast("bigint"), value_hash(item, kind))


def _entry(entry: Column, *, kind: T.MapType) -> Column:
    key, value = entry.getField("key"), entry.getField("value")
    return F.xxhash64(value_hash(key, kind.keyType), value_hash(value, kind.valueType))


def _folded(hashes: Column) -> Column:
    """Return the length of an array of hashes XOR all of them."""
    return F.aggregate(hashes, F.size(hashes).cast("bigint"), lambda found, one: found.bitwiseXOR(one))


def value_hash(value: Column, kind: T.DataType) -> Column:
    """Return the hash of an item, key or value of a map; 0 for a null."""
    return F.when(value.isNotNull(), F.xxhash64(_word(value, kind))).otherwise(_long(0))


def _xor(hashes: Sequence[Column]) -> Column:
    """Return the XOR of hashes as a balanced tree, because Spark recurses into expressions."""
    if len(hashes) < 2:  # noqa: PLR2004 - a tree has two halves
        return hashes[0] if hashes else _long(0)
    middle = len(hashes) // 2
    return _xor(hashes[:middle]).bitwiseXOR(_xor(hashes[middle:]))


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")
