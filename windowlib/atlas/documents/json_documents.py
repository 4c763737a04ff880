"""Converts documents to JSON text and back: MongoDB's relaxed Extended JSON, version 2."""

import json
from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Final

from windowlib.atlas.documents.documents import INT32_MAX, INT64_MAX, Date, Document, Value, is_nan, type_name
from windowlib.atlas.documents.places import Json, Place

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_MS: Final = 253_402_300_800_000
_UNSUPPORTED: Final = ("$oid", "$timestamp", "$regularExpression", "$minKey", "$maxKey", "$uuid", "$symbol", "$code")


def to_text(document: Document) -> str:
    """Return the JSON text of a document. The fields keep their order."""
    return json.dumps(to_json(document), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def iso_text(ms: int) -> str:
    """Return an instant of the years 1 to 9999 as ISO text, with milliseconds unless they are 0.

    >>> iso_text(1_356_998_400_000)
    '2013-01-01T00:00:00Z'
    """
    at = EPOCH + timedelta(milliseconds=ms)
    seconds = at.replace(tzinfo=None).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return seconds + "Z"


def to_json(value: Value) -> Json:  # noqa: PLR0911 - one return per type
    """Return a value in relaxed Extended JSON. Integers must fit into 64 bits."""
    match value:
        case Date(ms):
            return {"$date": iso_text(ms) if 0 <= ms < _YEAR_10000_MS else {"$numberLong": str(ms)}}
        case Decimal():
            return {"$numberDecimal": str(value) if value.is_finite() else special_text(value)}
        case bytes():
            return {"$binary": {"base64": b64encode(value).decode("ascii"), "subType": "00"}}
        case float() if not isfinite(value):
            return {"$numberDouble": special_text(value)}
        case list():
            return [to_json(element) for element in value]
        case dict():
            return {name: to_json(field) for name, field in value.items()}
        case _:
            return value


def special_text(number: float | Decimal) -> str:
    """Return MongoDB's name of a NaN or an infinity."""
    return "NaN" if is_nan(number) else "Infinity" if number > 0 else "-Infinity"


def date_of_text(text: str) -> Date:
    """Return the instant of an ISO text, in UTC if it has no offset or Z. Fractions of a millisecond are cut off.

    Raises ValueError: the text is not an instant.
    """
    at = datetime.fromisoformat(text)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return Date((at - EPOCH) // timedelta(milliseconds=1))


def _date(value: Json, place: Place) -> Date:
    try:
        if isinstance(value, Mapping):
            return Date(int(place.fields(value, required=("$numberLong",))["$numberLong"]))
        return Date(value) if isinstance(value, int) else date_of_text(str(value))
    except ValueError:
        raise place.refused(value, "an ISO text, epoch ms, or {$numberLong: ms}") from None


def _integer(largest: int) -> Callable[[Json, Place], int]:
    def read(value: Json, place: Place) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = largest + 1
        if not -largest - 1 <= number <= largest:
            raise place.refused(value, f"the text of an integer from {-largest - 1} to {largest}")
        return number

    return read


def _number(kind: Callable[[str], Value], what: str) -> Callable[[Json, Place], Value]:
    def read(value: Json, place: Place) -> Value:
        try:
            return kind(str(value))
        except (ValueError, InvalidOperation):
            raise place.refused(value, f"the text of a {what}") from None

    return read


def _binary(value: Json, place: Place) -> bytes:
    fields = place.fields(value, required=("base64",), optional=("subType",))
    try:
        return b64decode(str(fields["base64"]), validate=True)
    except (BinasciiError, ValueError):
        raise place.at("base64").refused(fields["base64"], "base64") from None


_READERS: Final[Mapping[str, Callable[[Json, Place], Value]]] = {
    "$date": _date,
    "$numberInt": _integer(INT32_MAX),
    "$numberLong": _integer(INT64_MAX),
    "$numberDouble": _number(float, "double"),
    "$numberDecimal": _number(Decimal, "decimal"),
    "$binary": _binary,
}


def is_typed(value: Json) -> bool:
    """Tell whether an object is the Extended JSON form of a value, such as `{"$date": ...}`."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in (*_READERS, *_UNSUPPORTED)


def read_literal(value: Json, place: Place) -> Value:
    """Return the value of Extended JSON. Operators such as `$add` are not evaluated.

    Raises SpecError: the type is not supported, or the value is not valid for its type.
    """
    if is_typed(value):
        name, inner = next(iter(value.items()))
        if name in _UNSUPPORTED:
            raise place.refused(value, "a value of the types " + ", ".join(sorted(_READERS)) + ", or plain JSON")
        return _READERS[name](inner, place.at(name))
    if isinstance(value, Mapping):
        return {name: read_literal(inner, place.at(name)) for name, inner in place.mapping(value).items()}
    if isinstance(value, list | tuple):
        return [read_literal(inner, place.item(index)) for index, inner in enumerate(value)]
    if isinstance(value, datetime):
        return date_of_text(value.isoformat())
    if isinstance(value, int) and not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise place.refused(value, "an integer of 64 bits")
    if value is not None and not isinstance(value, bool | int | float | str | Decimal | bytes | Date):
        raise place.refused(value, "JSON")
    return value


def read_text(text: str) -> Value:
    """Return the value of a JSON text that `to_text` wrote."""
    return read_literal(json.loads(text), Place("document"))


def json_text(value: Json, place: Place) -> str:
    """Return JSON as text with the fields in their order, so that a spec can be compared, hashed and pickled.

    Raises SpecError: a part is not JSON.
    """

    def typed(part: object) -> Json:
        if isinstance(part, datetime):
            return to_json(date_of_text(part.isoformat()))
        if isinstance(part, Mapping):
            return dict(part)
        raise place.refused(part, "JSON")

    return json.dumps(value, ensure_ascii=False, default=typed)


def described(value: Value) -> str:
    """Return the text of a value for an error message: its type and the first 60 characters of its JSON."""
    text = "" if type_name(value) == "missing" else " " + json.dumps(to_json(value), ensure_ascii=False)[:60]
    return type_name(value) + text
