r"""The one place that makes text from outside safe to print: terminal, log line, JSON, a DAG's page.

Reasons, names, keys and values come from people, files and logs. Printed raw, an escape sequence could clear the
screen or forge a line, so every control character is printed as its escape: `\x1b`, `\n`, `\u202e`.
"""

import json
import logging
import re
from typing import Any, Final

from typing_extensions import override

# Controls (C0, DEL, C1), separators that end a line, signs that turn the direction of a text, and lone surrogates.
_UNSAFE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufff9-\\ufffb]"
)
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MAX_SHOWN: Final = 200


def escaped(value: object) -> str:
    """The text of a value on one line, with every character escaped that could act instead of being shown."""
    return _UNSAFE.sub(_escape, str(value))


def escaped_lines(text: str) -> str:
    """A text of several lines, each as `escaped` gives it."""
    return "\n".join(escaped(line) for line in text.split("\n"))


def escaped_json(value: object) -> str:
    """A value as JSON on one line, readable (not ASCII only), but with what `escaped` escapes as JSON's own escapes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortened(text: str, most: int = _MAX_SHOWN) -> str:
    """The text, cut with an ellipsis when it has more than `most` characters: for messages that quote a value."""
    return text if len(text) <= most else f"{text[:most]}…"


class EscapingFormatter(logging.Formatter):
    """Formats a log record on one line; only the lines of a traceback stay apart."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, escaped."""
        return escaped(super().formatMessage(record))

    @override
    def formatException(self, ei: Any) -> str:
        """Return the traceback, each line escaped."""
        return escaped_lines(super().formatException(ei))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")  # noqa: PLR2004
