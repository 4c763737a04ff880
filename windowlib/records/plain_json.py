"""JSON that keeps the types of plain values, also of bytes, decimals and tuples, which JSON does not have.

The state of users' functions and evictors is stored in this form. A type that JSON lacks is written as an object with
one key that begins with `$`. A user's object with such a key is wrapped once more. Floats keep every bit, NaN included.
"""

import base64
import json
from decimal import Decimal
from typing import Any, Final

from windowlib.errors import SpecError

_BYTES: Final = "$bytes"
_DECIMAL: Final = "$decimal"
_TUPLE: Final = "$tuple"
_OBJECT: Final = "$object"
_PAIRS: Final = "$pairs"
_MARKS: Final = frozenset({_BYTES, _DECIMAL, _TUPLE, _OBJECT, _PAIRS})
PLAIN_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""The errors of reading a text or a state that no writer has made."""


ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes, Decimal})
"""The classes of plain values that have no parts."""


def plain_copy(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """Return `from_json(to_json(value))`, faster: a value that shares no list and no dict with another.

    Raises:
        SpecError: a part of the value is not plain data.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list or kind is tuple:
        return value[:] if ATOMS.issuperset(map(type, value)) else kind(map(plain_copy, value))
    if kind is dict:
        return dict(zip(map(plain_copy, value), map(plain_copy, value.values()), strict=True))
    return from_json(to_json(value))


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
    value = json.loads(text, object_hook=_decode)
    if "\\ud" in text.lower():  # half a character could not be written again
        to_json(value).encode("utf-8")
    return value


def _encode(value: object) -> Any:  # noqa: ANN401, PLR0911 - see to_json; one return per kind of value
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # a member of a string enum becomes its plain value
        case int():
            return int(value)
        case float():
            return float(value)
        case list() if type(value) is list:
            return [_encode(item) for item in value]
        case dict() if type(value) is dict:
            return _encode_mapping(value)
        case _:
            return _encode_marked(value)


def _encode_mapping(value: dict[Any, Any]) -> Any:  # noqa: ANN401 - see to_json
    if not all(isinstance(name, str) for name in value):
        return {_PAIRS: [[_encode(name), _encode(item)] for name, item in value.items()]}
    plain = {str.__str__(name): _encode(item) for name, item in value.items()}
    return {_OBJECT: list(plain.items())} if len(plain) == 1 and _MARKS & plain.keys() else plain


def _encode_marked(value: object) -> dict[str, Any]:
    match value:
        case tuple() if type(value) is tuple:
            return {_TUPLE: [_encode(item) for item in value]}
        case bytes() | bytearray():
            return {_BYTES: base64.b64encode(value).decode("ascii")}
        case Decimal():
            return {_DECIMAL: str(value)}
        case _:
            raise SpecError(
                f"a value of type {type(value).__name__} cannot be kept in a checkpoint: {value!r}; keep only plain "
                "data (numbers, text, bytes, decimals, lists, tuples, dicts, and none of their subclasses)"
            )


def _decode(fields: dict[str, Any]) -> Any:  # noqa: ANN401 - see from_json
    if len(fields) != 1:
        return fields
    [(mark, content)] = fields.items()
    match mark:
        case "$bytes":
            return base64.b64decode(content)
        case "$decimal":
            return Decimal(content)
        case "$tuple":
            return tuple(content)
        case "$pairs" | "$object":
            return dict(content)
        case _:
            return fields
