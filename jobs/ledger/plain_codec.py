"""Turns the state of a fold into plain JSON data and back, by the annotations of its dataclasses.

A dataclass is the list of its fields in their order, an enum its value, a set a sorted list, and a mapping whose keys
are no texts the list of its pairs. A `Later` is the list of its keys: each of its values is a line of JSON of its own,
and is decoded when it is first read. Fields with the metadata `CACHE` (jobs.ledger.events) are left out. Nothing is
ever unpickled (law L8).
"""

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from jobs.ledger.chain import CONTENT_ERRORS
from jobs.ledger.later import Later, cells
from windowlib.errors import LedgerError

Turn = Callable[[Any], Any]
_PLAIN = frozenset({str, int, float, bool, type(None), Any})


@dataclass(frozen=True, slots=True)
class Codec:
    """`encode` returns plain data, `decode` the value again. None: the value is plain data itself."""

    encode: Turn | None
    decode: Turn | None


class Codecs:
    """The codecs of types. `own` are those of types that are not stored by their fields.

    `encode` adds the values of each `Later` to `lines`, and `line_at` returns one of them again. A value
    that cannot be decoded later is a LedgerError that names the file `source`.
    """

    def __init__(self, own: Mapping[Any, Codec], *, source: str, line_at: Callable[[int], bytes] | None = None) -> None:
        self.lines: list[bytes] = []
        self._made: dict[Any, Codec] = dict(own)
        self._source = source
        self._line_at = line_at or self.lines.__getitem__

    def of(self, kind: Any) -> Codec:  # noqa: ANN401 - a type, or an annotation
        """Return the codec of a type. Raises TypeError: values of the type have no plain form."""
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: Any) -> Codec:  # noqa: ANN401
        if kind in _PLAIN:
            return Codec(None, None)
        if isinstance(kind, type) and is_dataclass(kind):
            return self._dataclass(kind)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return Codec(lambda value: value.value, {member.value: member for member in kind}.__getitem__)
        return self._generic(kind, get_origin(kind), get_args(kind))

    def _generic(self, kind: Any, origin: Any, arguments: Sequence[Any]) -> Codec:  # noqa: ANN401
        if origin in {Union, types.UnionType}:
            (inner,) = (argument for argument in arguments if argument is not type(None))
            return _optional(self.of(inner))
        if origin is tuple and arguments[-1:] != (Ellipsis,):
            return _fixed([self.of(argument) for argument in arguments])
        if origin in {tuple, list, set, frozenset, Sequence}:
            return _several(tuple if origin is Sequence else origin, self.of(arguments[0]))
        if origin is Later:
            return self._later(self.of(arguments[0]), self.of(arguments[1]))
        if origin in {dict, Mapping}:
            return _mapping(arguments[0], self.of(arguments[0]), self.of(arguments[1]))
        raise TypeError(f"a value of type {kind} has no plain form; a snapshot of the ledger cannot hold it")

    def _later(self, key: Codec, value: Codec) -> Codec:
        encode_key, encode_value = key.encode or _same, value.encode or _same
        decode_key, decode_value = key.decode, value.decode or _same

        def encode(values: Later[Any, Any]) -> list[Any]:
            first = len(self.lines)
            self.lines += (plain_json(encode_value(item)) for item in values.values())
            return [first, [encode_key(name) for name in values]]

        def from_line(place: int) -> Any:  # noqa: ANN401
            try:
                return decode_value(json.loads(self._line_at(place)))
            except CONTENT_ERRORS as error:
                raise LedgerError(
                    f"{self._source} has wrong content: {error!r:.300}. Its hash is right, so a program has written it "
                    "so. Remove it: it is a cache"
                ) from error

        def decode(plain: list[Any]) -> Later[Any, Any]:
            first, names = plain
            keys = names if decode_key is None else map(decode_key, names)
            return Later(zip(keys, cells(range(first, first + len(names)), from_line), strict=True))

        return Codec(encode, decode)

    def _dataclass(self, kind: type) -> Codec:
        hints = get_type_hints(kind)
        stored = [column.name for column in fields(kind) if not column.metadata.get("is_cache", False)]
        codecs = [self.of(hints[name]) for name in stored]
        encoders = [codec.encode or _same for codec in codecs]
        decoders = [(place, codec.decode) for place, codec in enumerate(codecs) if codec.decode is not None]

        def encode(value: Any) -> list[Any]:  # noqa: ANN401
            return [turn(getattr(value, name)) for name, turn in zip(stored, encoders, strict=True)]

        def decode(plain: list[Any]) -> Any:  # noqa: ANN401
            values = plain.copy()  # a view decodes the same data once more
            for place, turn in decoders:
                values[place] = turn(plain[place])
            return kind(**dict(zip(stored, values, strict=True)))

        return Codec(encode, decode)


def plain_json(plain: Any) -> bytes:  # noqa: ANN401
    """Return plain data as one line of JSON."""
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _optional(inner: Codec) -> Codec:
    return Codec(_unless_none(inner.encode), _unless_none(inner.decode))


def _unless_none(turn: Turn | None) -> Turn | None:
    return None if turn is None else lambda value: None if value is None else turn(value)


def _fixed(parts: Sequence[Codec]) -> Codec:
    encoders, decoders = [part.encode or _same for part in parts], [part.decode or _same for part in parts]
    return Codec(
        lambda values: [turn(value) for turn, value in zip(encoders, values, strict=True)],
        lambda plain: tuple(turn(value) for turn, value in zip(decoders, plain, strict=True)),
    )


def _several(make: type, item: Codec) -> Codec:
    is_set = make in {set, frozenset}
    encode_item, decode_item = item.encode, item.decode

    def encode(values: Any) -> list[Any]:  # noqa: ANN401
        plain = [*values] if encode_item is None else [encode_item(value) for value in values]
        return sorted(plain, key=repr) if is_set else plain

    if decode_item is None:
        return Codec(encode, make)
    return Codec(encode, lambda plain: make(decode_item(value) for value in plain))


def _mapping(key_type: object, key: Codec, value: Codec) -> Codec:
    encode_value, decode_value = value.encode or _same, value.decode or _same
    if key_type is str:
        has_plain_values = value.decode is None
        return Codec(
            lambda values: {name: encode_value(item) for name, item in values.items()},
            _same if has_plain_values else lambda plain: {name: decode_value(item) for name, item in plain.items()},
        )
    encode_key, decode_key = key.encode or _same, key.decode or _same
    return Codec(
        lambda values: [[encode_key(name), encode_value(item)] for name, item in values.items()],
        lambda plain: {decode_key(name): decode_value(item) for name, item in plain},
    )
