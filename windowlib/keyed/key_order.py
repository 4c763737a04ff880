"""The total order of keys, (key group, key), encoded as strings, so that timers of any key type sort as strings."""

import struct
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import compress, islice
from typing import Final, TypeVar

from windowlib.keyed.key_groups import DEFAULT_MAX_PARALLELISM, key_group, microseconds

_TERMINATOR: Final = b"\x00\x00"
_ESCAPE: Final = (b"\x00", b"\x00\xff")
REMEMBERED_MAX: Final = 1 << 17
SCAN_MAX: Final = 4
"""The default of `scan_max` of `KeyOrders`."""
_Item = TypeVar("_Item")
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF


def _sortable_float(number: float) -> bytes:
    if number != number:  # noqa: PLR0124  (NaN is greatest, as in Spark)
        return b"\xff" * 8
    bits: int = struct.unpack(">Q", struct.pack(">d", number + 0.0))[0]
    bits = bits ^ _WORD if bits >> 63 else bits | 1 << 63
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


def _sortable_tuple(key: tuple[Hashable, ...]) -> bytes:
    return b"".join(map(sortable, key)) + b"\x00"


def _sortable_str(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").replace(*_ESCAPE) + _TERMINATOR


# The first byte encodes the type, in the order that `sortable` documents.
_SORTABLE: Final[Mapping[type, tuple[bytes, Callable[..., bytes]]]] = {
    type(None): (b"\x01", lambda _nothing: b""),
    bool: (b"\x02", lambda flag: b"\x01" if flag else b"\x00"),
    int: (b"\x03", _sortable_int),
    float: (b"\x04", _sortable_float),
    Decimal: (b"\x05", _sortable_decimal),
    str: (b"\x06", _sortable_str),
    bytes: (b"\x07", lambda octets: octets.replace(*_ESCAPE) + _TERMINATOR),
    date: (b"\x08", lambda day: _sortable_int(day.toordinal())),
    datetime: (b"\x09", lambda instant: _sortable_int(microseconds(instant))),
    tuple: (b"\x0a", _sortable_tuple),
}


def sortable(key: Hashable) -> bytes:
    """Return bytes that sort in the order of the keys.

    Keys are ordered by type: None, bool, int, float, Decimal, str, bytes, date, datetime, tuple. Inside a type they are
    ordered by value: strings by code point, NaN after all floats, tuples element by element. Different keys of one
    pipeline have different bytes.
    """
    tag, encode = _SORTABLE[type(key)]
    return tag + encode(key)


class KeyOrders(dict[Hashable, str]):
    """A cache from a key to its order string, which sorts by (key group, key). `__getitem__` returns the string.

    The string holds bytes as latin-1, because Python sorts strings faster than bytes. The cache is cleared when it has
    `remembered_max` keys; an lru_cache would take twice as long. Each owner must have its own cache, because keys of
    different pipelines can be equal in Python although their types differ: (1,) and (True,).
    """

    __slots__ = ("_max_parallelism", "_remembered_max", "_scan_max", "_sorted")

    def __init__(
        self,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        *,
        remembered_max: int = REMEMBERED_MAX,
        scan_max: int = SCAN_MAX,
    ) -> None:
        """Create an empty cache. `scan_max`: see `in_order`."""
        self._max_parallelism = max_parallelism
        self._remembered_max = remembered_max
        self._scan_max = scan_max
        self._sorted: list[Hashable] = []
        """The first keys of the cache, sorted."""

    def __missing__(self, key: Hashable) -> str:
        if len(self) >= self._remembered_max:
            self.clear()
            self._sorted = []
        group = key_group(key, self._max_parallelism)
        order = self[key] = (group.to_bytes(2, "big") + sortable(key)).decode("latin-1")
        return order

    def in_order(self, by_key: Mapping[Hashable, list[_Item]]) -> tuple[list[Hashable], list[list[_Item]]]:
        """Return the keys and values of a map in the order of the keys. No value is empty.

        If there are at most `scan_max` cached keys for each key of the map, all cached keys are looked up in the map.
        They are sorted once, so that takes a fraction of the time of sorting.
        """
        if len(self) <= self._scan_max * len(by_key):
            if len(self._sorted) < len(self):
                self._sorted += islice(self, len(self._sorted), None)
                self._sorted.sort(key=self.__getitem__)
            values = list(map(by_key.get, self._sorted))
            keys = list(compress(self._sorted, values))
            if len(keys) == len(by_key):
                return keys, [value for value in values if value]
        keys = sorted(by_key, key=self.__getitem__)
        return keys, [by_key[key] for key in keys]


def group_of_order(order: str) -> int:
    """Return the key group of an order string of `KeyOrders`."""
    return ord(order[0]) << 8 | ord(order[1])
