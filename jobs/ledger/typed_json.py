"""Comparison of decoded JSON with the annotations of the values that are made of it."""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS

Check = Callable[[Any, str], None]
"""Raises a TypeError if a value, which is at the given place, has another type."""
_WORDS: Mapping[type, str] = {
    str: "a text", int: "an integer of 64 bits", float: "a number", bool: "true or false", dict: "an object",
    list: "a list",
}  # fmt: skip


@cache
def type_check(kind: Any) -> Check:  # noqa: ANN401 - an annotation
    """Return the check of a type: a plain type, a dataclass (an object), an enum (its value), or a container of them.

    The check raises a TypeError that names the part of the value that has another type.
    """
    arguments, origin = get_args(kind), get_origin(kind)
    if kind is Any:
        return lambda _value, _place: None
    if origin in {Union, types.UnionType}:
        return _optional(type_check(next(argument for argument in arguments if argument is not types.NoneType)))
    if origin in {Mapping, dict}:
        return _mapping(type_check(arguments[1]))
    if origin in {Sequence, tuple}:
        return _items(type_check(arguments[0]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum([member.value for member in kind])
    return _fields(kind) if is_dataclass(kind) else _plain(kind)


def _optional(check: Check) -> Check:
    def checked(value: Any, place: str) -> None:  # noqa: ANN401
        if value is not None:
            check(value, place)

    return checked


def _mapping(check: Check) -> Check:
    def checked(value: Any, place: str) -> None:  # noqa: ANN401
        _expect(value, dict, place)
        for name, item in value.items():
            check(item, f"{place}.{name}")

    return checked


def _items(check: Check) -> Check:
    def checked(value: Any, place: str) -> None:  # noqa: ANN401
        _expect(value, list, place)
        for index, item in enumerate(value):
            check(item, f"{place}[{index}]")

    return checked


def _enum(allowed: Sequence[object]) -> Check:
    def checked(value: Any, place: str) -> None:  # noqa: ANN401
        if value not in allowed:
            raise TypeError(f"{place} is {value!r:.100}, and must be one of {allowed}")

    return checked


def _fields(kind: Any) -> Check:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind)
    checks = {field.name: type_check(hints[field.name]) for field in fields(kind)}
    required = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]

    def checked(value: Any, place: str) -> None:  # noqa: ANN401
        _expect(value, dict, place)
        for name in required:
            if name not in value:
                raise TypeError(f"{place} has no {name}")
        for name, item in value.items():
            if name not in checks:
                raise TypeError(f"{place} has the unknown name {name!r:.100}")
            checks[name](item, f"{place}.{name}")

    return checked


def _plain(kind: type) -> Check:
    allowed = (int, float) if kind is float else (kind,)

    def checked(value: Any, place: str) -> None:  # noqa: ANN401
        is_right = type(value) in allowed and (type(value) is not int or MIN_TIME_MS <= value <= MAX_TIME_MS)
        if not is_right:
            raise TypeError(f"{place} is {value!r:.100}, and must be {_WORDS[kind]}")

    return checked


def _expect(value: object, kind: type, place: str) -> None:
    if type(value) is not kind:
        raise TypeError(f"{place} is {value!r:.100}, and must be {_WORDS[kind]}")
