"""JSON that keeps the types of plain values, also of bytes, decimals and tuples, which JSON does not have.

The state of users' functions and evictors is stored in this form. A type that JSON lacks is written as an object with
one key that begins with `$`. A user's object with such a key is wrapped once more. Floats keep every bit, but there is
one NaN. Subclasses of plain types are refused, because their text would be read as the plain type.
"""

import base64
import json
import math
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from windowlib.errors import SpecError

_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$bytes": base64.b64decode,
    "$decimal": Decimal,
    "$tuple": tuple,
    "$object": dict,
    "$pairs": dict,
}
"""The functions that read the content of a marked object, by mark."""
PLAIN_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""The errors of reading a text or a state that no writer has made."""


ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes, Decimal})
"""The classes of plain values that have no parts."""
_NAMES: Final = ATOMS - {float, Decimal}
"""The atoms that cannot be NaN."""
_OF_JSON: Final = frozenset({type(None), bool, int, float, str})
_CONSTANTS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMELESS: Final = "Use another name for it, such as None"


def plain_copy(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """Return `from_json(to_json(value))`, faster: a value that shares no list and no dict with another.

    Raises SpecError: a part of the value is not plain data.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list or kind is tuple:
        return value[:] if ATOMS.issuperset(map(type, value)) else kind(map(plain_copy, value))
    if kind is not dict:
        raise _not_plain(value)
    if not _NAMES.issuperset(map(type, value)):
        check_names(value)
        return dict(zip(map(plain_copy, value), map(plain_copy, value.values()), strict=True))
    if ATOMS.issuperset(map(type, value.values())):
        return value.copy()
    return dict(zip(value, map(plain_copy, value.values()), strict=True))


def check_plain(value: Any) -> None:  # noqa: ANN401 - any value
    """Raise a SpecError if a part of the value is not plain data."""
    plain_copy(value)


def check_names(names: Collection[Any]) -> None:
    """Raise a SpecError if two names are NaN or contain it: they differ now, and are equal after a checkpoint."""
    if sum(map(has_nan, names)) > 1:
        raise SpecError(f"a dict has NaN as a name more than once: {names!r:.200}; NaN does not equal NaN. {_NAMELESS}")


def has_nan(name: Any) -> bool:  # noqa: ANN401 - any plain value
    """Return whether a name of a dict is NaN or a tuple with NaN in it."""
    return bool(name != name) or (type(name) is tuple and any(map(has_nan, name)))  # noqa: PLR0124 - NaN


def to_json(value: object) -> str:
    """Return the JSON text of a plain value. Fields keep their order.

    Raises:
        SpecError: a part of the value is not plain data. The message names its type.

    >>> to_json({"price": Decimal("1.50")})
    '{"price":{"$decimal":"1.50"}}'
    """
    return json.dumps(_encode(value), separators=(",", ":"), ensure_ascii=False)


def from_json(text: str) -> Any:  # noqa: ANN401 - any plain value
    """Return the plain value from which `to_json` made the text.

    Raises:
        ValueError, TypeError, LookupError, ArithmeticError, RecursionError: `to_json` does not make such a text.

    >>> from_json('{"price":{"$decimal":"1.50"}}')
    {'price': Decimal('1.50')}
    """
    value = json.loads(text, object_hook=_decode, parse_constant=_CONSTANTS.__getitem__)
    if "\\ud" in text.lower():  # half a character could not be written again
        to_json(value).encode("utf-8")
    return value


def _encode(value: object) -> Any:  # noqa: ANN401 - see to_json
    kind = type(value)
    if kind in _OF_JSON:
        return value
    if kind not in _WRITERS:
        raise _not_plain(value)
    return _WRITERS[kind](value)


def _encode_mapping(value: dict[Any, Any]) -> Any:  # noqa: ANN401 - see to_json
    if not all(type(name) is str for name in value):
        check_names(value)
        return {"$pairs": [[_encode(name), _encode(item)] for name, item in value.items()]}
    plain = {name: _encode(item) for name, item in value.items()}
    return {"$object": list(plain.items())} if len(plain) == 1 and _READERS.keys() & plain.keys() else plain


_WRITERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    list: lambda value: [_encode(item) for item in value],
    dict: _encode_mapping,
    tuple: lambda value: {"$tuple": [_encode(item) for item in value]},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode("ascii")},
    Decimal: lambda value: {"$decimal": str(value)},
}


def _not_plain(value: object) -> SpecError:
    return SpecError(
        f"a value of type {type(value).__name__} cannot be kept in a checkpoint: {value!r:.200}; keep only plain data "
        "(None, bool, int, float, str, bytes, Decimal, list, tuple, dict), and no value of a subclass of these: "
        "convert it, as with dict(..), int(..) or str(..)"
    )


def _decode(fields: dict[str, Any]) -> Any:  # noqa: ANN401 - see from_json
    if len(fields) != 1:
        return fields
    [(mark, content)] = fields.items()
    return _READERS[mark](content) if mark in _READERS else fields
