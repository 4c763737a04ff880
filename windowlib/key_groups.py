"""Flink's key groups: the unit in which keyed state is distributed and redistributed.

A key's group is `murmur(hash(key)) % max_parallelism`; a subtask owns a contiguous range of groups. The hash is
Java's `hashCode` where Java has the type, and is stable for ever: it is part of the checkpoint format.

| key | hash |
|---|---|
| int in 32 bits | itself |
| longer int | high word XOR low word of the 64-bit value |
| str | 31-polynomial over UTF-16 units |
| bool | 1231 / 1237 |
| float | of its IEEE 754 bits, as for a long; one NaN; 0.0 and -0.0 (equal keys) as 0.0 |
| bytes | 31-polynomial from 1 over signed bytes |
| date, datetime | of its days, or microseconds, since 1970, as for an int |
| Decimal | of its text without trailing zeros, as for a str |
| None | 0 |
| tuple of one | of its element |
| other tuple | 31-polynomial from 1 over the elements' hashes; the empty tuple (all records, one key) 0 |
"""

import struct
from collections.abc import Callable, Hashable, Iterable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Final

from windowlib.errors import SpecError

DEFAULT_MAX_PARALLELISM: Final = 128
MAX_PARALLELISM_LIMIT: Final = 1 << 15
_EPOCH: Final = date(1970, 1, 1)
_EPOCH_AT: Final = datetime(1970, 1, 1)
_WORD32: Final = 0xFFFF_FFFF


def _signed32(number: int) -> int:
    number &= _WORD32
    return number - (1 << 32) if number & 0x8000_0000 else number


def _polynomial(units: Iterable[int], start: int) -> int:
    code = start
    for unit in units:
        code = (31 * code + unit) & _WORD32
    return _signed32(code)


def _hash_int(number: int) -> int:
    if -(1 << 31) <= number < 1 << 31:
        return number
    word = number & 0xFFFF_FFFF_FFFF_FFFF
    return _signed32((word >> 32) ^ word)


def _hash_float(number: float) -> int:
    if number != number:  # noqa: PLR0124  (NaN)
        return _signed32(0x7FF8_0000)
    bits: int = struct.unpack(">Q", struct.pack(">d", number + 0.0))[0]
    return _signed32((bits >> 32) ^ bits)


def _hash_str(text: str) -> int:
    units = text.encode("utf-16-le", "surrogatepass")
    return _polynomial(struct.unpack(f"<{len(units) // 2}H", units), 0)


def _hash_datetime(instant: datetime) -> int:
    naive = instant if instant.tzinfo is None else instant.astimezone(timezone.utc).replace(tzinfo=None)
    return _hash_int((naive - _EPOCH_AT) // timedelta(microseconds=1))


def stable_hash(key: Hashable) -> int:
    """Return the key's signed 32-bit hash.

    >>> stable_hash("key1"), stable_hash(123456789012), stable_hash(("a",))
    (3288498, -1097262584, 97)

    Raises:
        SpecError: a type that has no stable hash.
    """
    match key:
        case bool():
            return 1231 if key else 1237
        case int():
            return _hash_int(key)
        case str():
            return _hash_str(key)
        case tuple():
            if len(key) == 1:
                return stable_hash(key[0])
            return _polynomial(map(stable_hash, key), 1) if key else 0
        case float():
            return _hash_float(key)
        case bytes():
            return _polynomial((byte - 256 if byte > 127 else byte for byte in key), 1)
        case datetime():
            return _hash_datetime(key)
        case date():
            return _hash_int((key - _EPOCH).days)
        case Decimal():
            return _hash_str(canonical_decimal(key))
        case None:
            return 0
        case _:
            raise SpecError(
                f"a key is of type {type(key).__name__} ({key!r}); allowed are int, str, bool, float, bytes, date, "
                "datetime, Decimal and tuples of them; convert the column in the log"
            )


def canonical_decimal(number: Decimal) -> str:
    """Return one text for all decimals that are equal: no exponent, no trailing zeros, no negative zero.

    >>> canonical_decimal(Decimal("1.50")), canonical_decimal(Decimal("-0"))
    ('1.5', '0')
    """
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def _murmur(code: int) -> int:
    """Return Flink's MathUtils.murmurHash of a 32-bit int: not negative."""
    code = (code * 0xCC9E2D51) & _WORD32
    code = ((code << 15) | (code >> 17)) & _WORD32
    code = (code * 0x1B873593) & _WORD32
    code = ((code << 13) | (code >> 19)) & _WORD32
    code = (code * 5 + 0xE6546B64) & _WORD32
    code ^= 4
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & _WORD32
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & _WORD32
    code ^= code >> 16
    signed = _signed32(code)
    if signed >= 0:
        return signed
    return -signed if signed != -(1 << 31) else 0


def key_group(key: Hashable, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> int:
    """Return the key's group, 0 <= group < max_parallelism.

    >>> key_group("a"), key_group("b"), key_group(123456789012)
    (81, 22, 123)
    """
    return _murmur(stable_hash(key)) % max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> range:
    """Return the groups that `subtask` (from 0) of `parallelism` owns.

    >>> key_group_range(1, 4)
    range(32, 64)

    Raises:
        SpecError: not 0 <= subtask < parallelism <= max_parallelism <= 32768.
    """
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= subtask < parallelism:
        raise SpecError(f"subtask must be at least 0 and below the parallelism {parallelism}, got {subtask}")
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    return range(start, ((subtask + 1) * max_parallelism - 1) // parallelism + 1)


def subtask_of(group: int, parallelism: int, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> int:
    """Return the subtask that owns `group`.

    >>> subtask_of(81, 4)
    2
    """
    return group * parallelism // max_parallelism


def default_max_parallelism(parallelism: int) -> int:
    """Return what Flink chooses when nobody does: at least 128, about one and a half times as many as subtasks.

    >>> default_max_parallelism(4), default_max_parallelism(100)
    (128, 256)
    """
    wanted = parallelism + parallelism // 2
    return min(max(1 << max(wanted - 1, 0).bit_length(), DEFAULT_MAX_PARALLELISM), MAX_PARALLELISM_LIMIT)


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raise SpecError unless 1 <= parallelism <= max_parallelism <= 32768."""
    if not 1 <= parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise SpecError(
            f"need 1 <= parallelism <= max_parallelism <= {MAX_PARALLELISM_LIMIT}, "
            f"got parallelism {parallelism} and max_parallelism {max_parallelism}"
        )


# Order: a byte string per key, so that sorting timers compares bytes and asks no type anything.
_TERMINATOR: Final = b"\x00\x00"
_ESCAPE: Final = (b"\x00", b"\x00\xff")


def _sortable_float(number: float) -> bytes:
    if number != number:  # noqa: PLR0124  (NaN is greatest, as in Spark)
        return b"\xff" * 8
    bits: int = struct.unpack(">Q", struct.pack(">d", number + 0.0))[0]
    bits = bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else bits | 1 << 63
    return bits.to_bytes(8, "big")


def _sortable_int(number: int) -> bytes:
    if -(1 << 63) <= number < 1 << 63:
        return b"\x80" + (number + (1 << 63)).to_bytes(8, "big")
    size = (number.bit_length() + 7) // 8
    if number > 0:
        return b"\x81" + size.to_bytes(4, "big") + number.to_bytes(size, "big")
    return b"\x7f" + ((1 << 32) - 1 - size).to_bytes(4, "big") + (number + (1 << 8 * size)).to_bytes(size, "big")


def _sortable_decimal(number: Decimal) -> bytes:
    sign, digits, _ = number.normalize().as_tuple()
    if not number:
        return b"\x01"
    magnitude = (number.adjusted() + (1 << 31)).to_bytes(4, "big") + bytes(digit + 1 for digit in digits) + b"\x00"
    return b"\x00" + bytes(255 - byte for byte in magnitude) if sign else b"\x02" + magnitude


def sortable(key: Hashable) -> bytes:
    """Return bytes that sort as keys do: by type first (None, bool, int, float, Decimal, str, bytes, date, datetime,
    tuple), then by value; strings by code point. Distinct keys of one pipeline have distinct bytes.
    """
    match key:
        case None:
            return b"\x01"
        case bool():
            return b"\x02\x01" if key else b"\x02\x00"
        case int():
            return b"\x03" + _sortable_int(key)
        case float():
            return b"\x04" + _sortable_float(key)
        case Decimal():
            return b"\x05" + _sortable_decimal(key)
        case str():
            return b"\x06" + key.encode("utf-8", "surrogatepass").replace(*_ESCAPE) + _TERMINATOR
        case bytes():
            return b"\x07" + key.replace(*_ESCAPE) + _TERMINATOR
        case datetime():
            naive = key if key.tzinfo is None else key.astimezone(timezone.utc).replace(tzinfo=None)
            return b"\x09" + _sortable_int((naive - _EPOCH_AT) // timedelta(microseconds=1))
        case date():
            return b"\x08" + _sortable_int((key - _EPOCH).days)
        case tuple():
            return b"\x0a" + b"".join(map(sortable, key)) + b"\x00"
        case _:
            raise SpecError(f"keys of type {type(key).__name__} have no order; see key_groups.stable_hash")


def key_orderer(max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> Callable[[Hashable], bytes]:
    """Return a function from a key to bytes that sort by (key group, key); the first two bytes are the group.

    It remembers, because a key's bytes are needed at every timer. Each owner gets its own, because keys of different
    pipelines may be equal in Python and of different types: (1,) and (True,).
    """

    @lru_cache(maxsize=1 << 17)
    def order(key: Hashable) -> bytes:
        return key_group(key, max_parallelism).to_bytes(2, "big") + sortable(key)

    return order


def group_of_order(order: bytes) -> int:
    """Return the key group in bytes made by `key_orderer`."""
    return int.from_bytes(order[:2], "big")
