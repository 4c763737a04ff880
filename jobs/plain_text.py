r"""Makes text from outside safe to print on a terminal, in a log line, in JSON and on a DAG's page.

Reasons, names, keys and values come from people, files and logs. An escape sequence that is printed unchanged could
clear the screen or forge a line. So every control character is printed as its escape: `\x1b`, `\n`, `\u202e`.
"""

import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from typing_extensions import override

# Controls (C0, DEL, C1), line separators, characters that change the direction of text, and lone surrogates.
_UNSAFE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufff9-\\ufffb]"
)
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MAX_SHOWN: Final = 200
_SINGULAR: Final = {"are": "is", "do": "does", "have": "has", "were": "was"}


def escaped(value: object) -> str:
    """Return the text of a value on one line, with all control and direction characters escaped."""
    return _UNSAFE.sub(_escape, str(value))


def escaped_lines(text: str) -> str:
    """Return a text with each of its lines escaped as by `escaped`. The line breaks stay."""
    return "\n".join(escaped(line) for line in text.split("\n"))


def escaped_json(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON: one line, or sorted by key with one value a line if `indent` is given.

    Non-ASCII text stays readable; unsafe characters are JSON escapes.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=indent is not None)
    return "\n".join(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n"))


def with_capital(text: str) -> str:
    """Return a text with a capital at its start. `str.capitalize` would make the names in it small."""
    return text[:1].upper() + text[1:]


def shortened(text: str, most: int = _MAX_SHOWN) -> str:
    """Return the text, cut after `most` characters with an ellipsis. Used by messages that quote a value."""
    return text if len(text) <= most else f"{text[:most]}…"


def without_credentials(uri: str) -> str:
    """Return a URI with `***` in place of a user and a password: `s3://***@bucket/path`. Other texts are not changed.

    A secret may have `/` and `@`. Only in an hdfs URI, a port is usual and `@` is allowed in the path.
    """
    scheme, separator, rest = uri.partition("://") if "://" in uri else ("", "", uri)
    secret = (rest.partition("/")[0] if scheme.lower() == "hdfs" else rest).rpartition("@")[0]
    user, colon, _ = secret.partition(":")
    return f"{scheme}{separator}***{rest[len(secret) :]}" if colon and "/" not in user else uri


def counted(number: int, noun: str, verb: str = "") -> str:
    """Return `1 slice` or `1,234 slices`; with a verb in its form for several, `1 slice has` or `2 slices have`."""
    words = f"{number:,} {noun}{'' if number == 1 else 's'}"
    return f"{words} {agreeing(number, verb)}" if verb else words


def agreeing(number: int, verb: str) -> str:
    """Return a verb in the form for a number: `agreeing(1, "have") == "has"`. `verb` is the form of several."""
    return _SINGULAR.get(verb, f"{verb}s") if number == 1 else verb


def first_of(items: Sequence[Any], most: int, *, told: Callable[[Any], str] = str, separator: str = ", ") -> str:
    """Return the first items, and how many more there are: `a, b and 3 more`, or with `; ` `a; b; and 3 more`.

    Only the first ones are `told`, because there may be many.
    """
    more = f"{separator.strip(', ')} and {len(items) - most:,} more" if len(items) > most else ""
    return separator.join(map(told, items[:most])) + more


class EscapingFormatter(logging.Formatter):
    """Formats a log record as one escaped line, and a traceback as escaped lines."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    @override
    def formatException(self, ei: Any) -> str:
        return escaped_lines(super().formatException(ei))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")  # noqa: PLR2004
