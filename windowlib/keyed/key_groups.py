"""Flink's key groups: the unit in which keyed state is distributed and redistributed.

A key's group is `murmur(hash(key)) % max_parallelism`. A subtask owns a contiguous range of groups. The hash is Java's
`hashCode` for types that Java has. It must never change, because it is part of the checkpoint format.

| key | hash |
|---|---|
| int in 32 bits | itself |
| longer int | high word XOR low word of the 64-bit value |
| str | 31-polynomial over UTF-16 units |
| bool | 1231 / 1237 |
| float | hash of its IEEE 754 bits as a 64-bit integer; all NaN are one; 0.0 and -0.0 (equal keys) as 0.0 |
| bytes | 31-polynomial from 1 over signed bytes |
| date, datetime | hash of its days or microseconds since 1970, as for an int |
| Decimal | hash of its text without trailing zeros, as for a str |
| None | 0 |
| tuple of one | hash of its element |
| other tuple | 31-polynomial from 1 over the elements' hashes; 0 for the empty tuple (one key for all records) |
"""

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from windowlib.errors import SpecError

DEFAULT_MAX_PARALLELISM: Final = 128
MAX_PARALLELISM_LIMIT: Final = 1 << 15
_EPOCH: Final = date(1970, 1, 1)
_EPOCH_AT: Final = datetime(1970, 1, 1, tzinfo=UTC)
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


def microseconds(instant: datetime) -> int:
    """Return the microseconds since 1970. A datetime without a zone is in UTC."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (aware - _EPOCH_AT) // timedelta(microseconds=1)


def _hash_bytes(octets: bytes) -> int:
    return _polynomial(struct.unpack(f"{len(octets)}b", octets), 1)


def _hash_tuple(key: tuple[Hashable, ...]) -> int:
    if len(key) == 1:
        return stable_hash(key[0])
    return _polynomial(map(stable_hash, key), 1) if key else 0


_HASHES: Final[Mapping[type, Callable[..., int]]] = {
    int: _hash_int,
    str: _hash_str,
    bool: lambda flag: 1231 if flag else 1237,
    float: _hash_float,
    bytes: _hash_bytes,
    date: lambda day: _hash_int((day - _EPOCH).days),
    datetime: lambda instant: _hash_int(microseconds(instant)),
    Decimal: lambda number: _hash_str(canonical_decimal(number)),
    type(None): lambda _nothing: 0,
    tuple: _hash_tuple,
}


def stable_hash(key: Hashable) -> int:
    """Return the key's signed 32-bit hash.

    >>> stable_hash("key1"), stable_hash(123456789012), stable_hash(("a",))
    (3288498, -1097262584, 97)

    Raises:
        SpecError: the key's type has no stable hash.
    """
    function = _HASHES.get(type(key))
    if function is None:
        raise SpecError(
            f"key {key!r} is of type {type(key).__name__}; allowed are int, str, bool, float, bytes, date, datetime, "
            "Decimal and tuples of them; convert the column in the log"
        )
    return function(key)


def canonical_decimal(number: Decimal) -> str:
    """Return the same text for all decimals that are equal: no exponent, no trailing zeros, no negative zero.

    >>> canonical_decimal(Decimal("1.50")), canonical_decimal(Decimal("-0"))
    ('1.5', '0')
    """
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def _murmur(code: int) -> int:
    """Return Flink's MathUtils.murmurHash of a 32-bit int. It is not negative."""
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
    return abs(signed) if signed != -(1 << 31) else 0


def key_group(key: Hashable, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> int:
    """Return the group of a key, 0 <= group < max_parallelism.

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
    """Return Flink's default maximum: at least 128, about one and a half times the parallelism.

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
