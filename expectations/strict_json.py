"""Reads JSON files that people write, and refuses what a JSON parser would accept silently (such as a double key)."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windowlib.errors import SpecError

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_DIGITS = 40
MAX_SHOWN = 60
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, or the rest of a text in which a string has no end: no character is looked at twice."""


def read_json(path: Path) -> Any:  # noqa: ANN401 -- any JSON value; the caller narrows it
    """Return the JSON document of a file.

    Raises SpecError: the file is missing, not a regular file, larger than 1 MB, not UTF-8, not JSON, nested deeper than
    32 levels, or has a key twice in one object, NaN, an infinity, a number of more than 40 digits, one above 1.8e308,
    or half of a character (a lone surrogate).
    """
    try:
        if path.exists() and not path.is_file():  # the opening of a pipe would wait
            raise SpecError(f"{path}: is not a regular file; give the path of a JSON file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}; give the path of a JSON file") from error
    if len(raw) > MAX_BYTES:
        raise SpecError(f"{path}: is larger than {MAX_BYTES:,} bytes, which is the limit; split it")
    try:
        text = raw.decode("utf-8-sig")  # editors of Windows write a mark at the beginning
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    _check_depth(text, path)
    try:
        document = json.loads(
            text,
            object_pairs_hook=lambda pairs: _no_duplicates(pairs, path),
            parse_constant=lambda name: _refuse_constant(name, path),
            parse_int=lambda digits: _bounded_int(digits, path),
            parse_float=lambda digits: _finite_float(digits, path),
        )
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}:{error.lineno}:{error.colno}: is not JSON: {error.msg}") from error
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{path}: {error.object[error.start]!r} is a surrogate, which is half of a character; write the whole "
            "character, such as \\ud83d\\ude00"
        ) from error
    return document


def _check_depth(text: str, path: Path) -> None:
    """Refuse deep nesting before the parser recurses into it; brackets inside strings do not count."""
    depth = 0
    for character in _STRING.sub("", text):
        depth += (character in "[{") - (character in "]}")
        if depth > MAX_DEPTH:
            raise SpecError(f"{path}: is nested deeper than {MAX_DEPTH} levels, which is the limit; flatten it")


def _no_duplicates(pairs: Sequence[tuple[str, Any]], path: Path) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise SpecError(
                f"{path}: the key {key!r} appears twice in one object, with {short(members[key])} and "
                f"{short(value)}; JSON parsers silently drop one of them, so keep only the one you mean"
            )
        members[key] = value
    return members


def _refuse_constant(name: str, path: Path) -> Any:  # noqa: ANN401 -- the hook's type
    raise SpecError(f"{path}: {name} is not a number that a check can compare with; write a finite number")


def _bounded_int(digits: str, path: Path) -> int:
    if len(digits) > MAX_DIGITS:
        raise SpecError(
            f"{path}: a number has {len(digits)} digits ({digits[:12]}...); at most {MAX_DIGITS} are allowed"
        )
    return int(digits)


def _finite_float(digits: str, path: Path) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        raise SpecError(f"{path}: {digits[:40]} is too large for a double; write a number below 1.8e308")
    return number


def short(value: object) -> str:
    """Return a value as an error shows it, with at most `MAX_SHOWN` characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
