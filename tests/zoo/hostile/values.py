"""Hostile values of each Delta type, and hostile names of columns."""

import math
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.support.other_log import KEYS
from tests.zoo.types import INFINITE, KINDS as PLAIN_KINDS, NAN, Kind


class Broken(bytes):
    """The bytes of a text that is not UTF-8."""


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


BROKEN: Final = (Broken(b"caf\xe9"), Broken(b"\xed\xa0\x80"), Broken(b"\xed\xa0\xbd\xed\xb8\x80"), Broken(b"\xc0\x80"))
"""Latin-1, a lone surrogate, a pair of surrogates in CESU-8, and a zero of two bytes."""
TEXTS: Final = (
    *KEYS, "Z" * 65_536, "\u202eabc\u202c", "\ufeffa", "\x1b[31m", "a\u2028b", "\x7f\x80", "\U0010ffff", "ﬁ", "İ",
    "0", "1e400", "2026-03-01", "${x}", "%s%n", "\\", "'", '"', "`", "--", "\r\n",
)  # fmt: skip
_NANS: Final = (NAN, _double(0xFFF8_0000_0000_0001), _double(0x7FF0_0000_0000_0001), _double(0x7FF8_DEAD_BEEF_0001))
_DOUBLES: Final = (
    *_NANS, -0.0, 0.0, INFINITE, -INFINITE, 5e-324, -5e-324, 2.2250738585072009e-308, 1.7976931348623157e308,
    -1.7976931348623157e308, 1e16, 1.0, -1e16, 0.1,
)  # fmt: skip
_SINGLES: Final = (*_NANS, -0.0, 0.0, INFINITE, -INFINITE, 1e-45, -1e-45, 3.4028234663852886e38, 0.1, 16_777_217.0)
_DATES: Final = (
    date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1900, 2, 28), date(1969, 12, 31), date(9999, 12, 31),
)  # fmt: skip
_INSTANTS: Final = (
    datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2262, 4, 11, 23, 47, 16, 854_776, UTC),
    datetime(1677, 9, 21, 0, 12, 43, 145_224, UTC), datetime(1883, 11, 18, 12, 3, 58, tzinfo=UTC),
)  # fmt: skip
_BYTES: Final = (b"", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"PAR1", b"\x00" * 65_536)
_OTHERS: Final[Mapping[str, Sequence[Any]]] = {
    "string": TEXTS, "double": _DOUBLES, "float": _SINGLES, "date": _DATES, "timestamp": _INSTANTS, "binary": _BYTES,
    "timestamp_ntz": [instant.replace(tzinfo=None) for instant in _INSTANTS],
}  # fmt: skip


def _decimals() -> Iterator[Kind]:
    for precision, scale in ((1, 0), (1, 1), (38, 0), (38, 37), (38, 38)):
        step, most = Decimal((0, (1,), -scale)), Decimal((0, (9,) * precision, -scale))
        values = (None, Decimal(0), step, step.copy_negate(), most, most.copy_negate())  # no rounding to 28 digits
        yield Kind(
            name=f"decimal({precision},{scale})", arrow=pa.decimal128(precision, scale), values=values, is_key=False
        )  # fmt: skip


KINDS: Final = (
    *(replace(kind, values=(*kind.values, *_OTHERS.get(kind.name, ()))) for kind in PLAIN_KINDS),
    *_decimals(),
)
"""Each type with values at and beyond its limits."""

NAMES: Final = (
    "a.b", "a b", "a`b", 'a"b', "a'b", "a;b", "a,b", "a(b)", "a{b}", "a=b", "a\tb", "a\nb", "a/b", "a\\b",
    "a%20b", "a:b", "a#b", "a[b]", "a|b", "\u202eabc", "\u200f", "\ufeffx", "🧨", "é", "e\u0301", "ß", "İ",
    "n" * 300, "x", "X", " x", "x ", "1", "-", "*", "NULL", "select", "element", "key", "value", "list",
    "record", "record_id", "record_hash", "rank", "row_id", "row_check", "slice_id", "attempt_id", "run_id",
    "window_start", "window_end", "pane_index", "kind", "mode", "watermark_ms", "event_time_ms", "problem",
    "sequence", "slice_no", "_metadata", "_row_id", "_change_type", "__x", "acc_x", "undecoded", "tag", "o0",
    "k0", "v0", "read_ms", "commits", "default", "{{ x }}", "a.b.c", ".a", "a.", "..",
)  # fmt: skip
"""Names that SQL, paths, YAML, Delta or Hindcast's own tables could read in another way."""


def names(chance: random.Random, count: int) -> list[str]:
    """Return different names of columns, most of them plain: few logs with eight of NAMES are allowed."""
    share = chance.choice((0.0, 0.0, 0.1, 0.1, 0.1, 1.0))
    drawn = chance.sample(NAMES, count)
    taken = {name.lower() for name in drawn}
    plain = [name for name in (f"col_{number}" for number in range(count)) if name not in taken]
    return [name if chance.random() < share else own for name, own in zip(drawn, plain, strict=True)]


def value(chance: random.Random, kind: Kind, *, can_break: bool = False) -> Any:  # noqa: ANN401 - of any type
    """Return a value of a type, null in about a tenth of the cases. `can_break` allows texts that are not UTF-8."""
    if chance.random() < 0.1:
        return None
    if can_break and kind.name == "string" and chance.random() < 0.05:
        return chance.choice(BROKEN)
    return rounded(chance.choice(kind.values), kind)


def rounded(number: Any, kind: Kind) -> Any:  # noqa: ANN401 - of any type
    """Return a value as a column of the type stores it: a FLOAT has 32 bits. Other values stay."""
    is_finite = isinstance(number, float) and math.isfinite(number)
    return struct.unpack("<f", struct.pack("<f", number))[0] if is_finite and kind.name == "float" else number
