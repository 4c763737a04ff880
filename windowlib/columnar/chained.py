"""Spark's `xxhash64` without Spark: the same hash of a sequence of values as Spark's expression.

The seed of each value is the hash of the values before it; the first seed is 42. A null does not change the hash.
Structs are hashed field by field and arrays item by item. Spark cannot hash maps. They are hashed as the array of their
entries, as in `windowlib.spark.columns.record_check`.

Source: Spark, sql/catalyst, XXH64.java and hash.scala (HashExpression, XxHash64Function).
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

SEED: Final = 42
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_LONG_DECIMAL_DIGITS: Final = 18
"""Spark stores decimals of at most this many digits in 64 bits, and hashes them as longs."""

Hash = Callable[[Any, int], int]
"""(value, seed) -> unsigned 64-bit hash. The value has the form of `windowlib.columnar.arrow.plain_values`."""


def xxhash64(values: Iterable[tuple[Any, pa.DataType]]) -> int:
    """Return the signed 64-bit hash of (value, type) pairs in order."""
    found = SEED
    for value, kind in values:
        if value is not None:
            found = hash_of(kind)(value, found)
    return signed(found)


def signed(word: int) -> int:
    """Return an unsigned 64-bit word as a signed integer."""
    return word - (1 << 64) if word >> 63 else word


def hash_of(kind: pa.DataType) -> Hash:
    """Return the hash function for values of a type."""
    if pa.types.is_decimal(kind):
        return _decimal_hash(kind)
    return _nested_hash(kind) if kind.num_fields else _FLAT[kind]


def _nested_hash(kind: pa.DataType) -> Hash:
    if pa.types.is_struct(kind):
        return _folded([hash_of(field.type) for field in kind])
    if pa.types.is_map(kind):
        entry = _folded([hash_of(kind.key_type), hash_of(kind.item_type)])
        return _each(entry)
    return _each(hash_of(kind.value_type))


def _folded(parts: list[Hash]) -> Hash:
    def fold(values: Iterable[Any], seed: int) -> int:
        for value, part in zip(values, parts, strict=True):
            if value is not None:
                seed = part(value, seed)
        return seed

    return fold


def _each(item: Hash) -> Hash:
    def fold(values: Iterable[Any], seed: int) -> int:
        for value in values:
            if value is not None:
                seed = item(value, seed)
        return seed

    return fold


def _decimal_hash(kind: pa.DataType) -> Hash:
    scale, is_long = kind.scale, kind.precision <= _LONG_DECIMAL_DIGITS

    def decimal(value: Any, seed: int) -> int:  # noqa: ANN401 - a Decimal
        sign, digits, exponent = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * 10 ** (scale + exponent) * (-1 if sign else 1)
        if is_long:
            return hash_long(unscaled, seed)
        length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return hash_bytes(unscaled.to_bytes(length, "big", signed=True), seed)

    return decimal


def _word(float_format: str, int_format: str, value: float) -> int:
    # All NaNs have the same bits, as in Java's doubleToLongBits, and Spark hashes -0.0 as 0.0.
    plain = 0.0 if value == 0 else float("nan") if value != value else value  # noqa: PLR0124 - NaN alone differs
    return int(struct.unpack(int_format, struct.pack(float_format, plain))[0])


def hash_int(value: int, seed: int) -> int:
    """Return the hash of a 32-bit integer."""
    found = (seed + _P5 + 4) & _MASK
    found ^= ((value & 0xFFFFFFFF) * _P1) & _MASK
    return _avalanche((_rotated(found, 23) * _P2 + _P3) & _MASK)


def hash_long(value: int, seed: int) -> int:
    """Return the hash of a 64-bit integer."""
    found = (seed + _P5 + 8) & _MASK
    found ^= (_rotated(((value & _MASK) * _P2) & _MASK, 31) * _P1) & _MASK
    return _avalanche((_rotated(found, 27) * _P1 + _P4) & _MASK)


def hash_bytes(data: bytes, seed: int) -> int:
    """Return the hash of bytes by the specification of XXH64."""
    length, at = len(data), 0
    if length >= 32:  # noqa: PLR2004 - a stripe of XXH64
        found, at = _stripes(data, seed)
    else:
        found = (seed + _P5) & _MASK
    found = (found + length) & _MASK
    while at + 8 <= length:
        word = int.from_bytes(data[at : at + 8], "little")
        found ^= (_rotated((word * _P2) & _MASK, 31) * _P1) & _MASK
        found = (_rotated(found, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= length:
        found ^= (int.from_bytes(data[at : at + 4], "little") * _P1) & _MASK
        found = (_rotated(found, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found ^= (byte * _P5) & _MASK
        found = (_rotated(found, 11) * _P1) & _MASK
    return _avalanche(found)


def _stripes(data: bytes, seed: int) -> tuple[int, int]:
    """Hash the complete stripes of 32 bytes. Return the hash so far and the offset of the rest."""
    lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
    end = len(data) // 32 * 32
    for number, word in enumerate(struct.unpack(f"<{end // 8}Q", data[:end])):
        lane = (lanes[number % 4] + word * _P2) & _MASK
        lanes[number % 4] = (_rotated(lane, 31) * _P1) & _MASK
    found = sum(_rotated(lane, shift) for lane, shift in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        found ^= (_rotated((lane * _P2) & _MASK, 31) * _P1) & _MASK
        found = (found * _P1 + _P4) & _MASK
    return found, end


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _avalanche(word: int) -> int:
    word = ((word ^ (word >> 33)) * _P2) & _MASK
    word = ((word ^ (word >> 29)) * _P3) & _MASK
    return word ^ (word >> 32)


_FLAT: Final[Mapping[pa.DataType, Hash]] = {
    pa.bool_(): lambda value, seed: hash_int(1 if value else 0, seed),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.date32()), hash_int),
    **dict.fromkeys((pa.int64(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")), hash_long),
    pa.float32(): lambda value, seed: hash_int(_word(">f", ">i", value), seed),
    pa.float64(): lambda value, seed: hash_long(_word(">d", ">q", value), seed),
    **dict.fromkeys((pa.string(), pa.large_string()), lambda value, seed: hash_bytes(_utf8(value), seed)),
    **dict.fromkeys((pa.binary(), pa.large_binary()), hash_bytes),
}
"""Type without parts -> the hash function of its values."""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")
