"""Spells names and texts in the YAML of a proposed pipeline file."""

import re
from collections.abc import Sequence
from typing import Final

from jobs.plain_text import escaped_json

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML reads as other values than texts, in any case."""


def spelled(value: str | Sequence[str]) -> str:
    """Return a text, or a list of texts, as YAML of one line: plain where that is safe, else in quotes."""
    if not isinstance(value, str):
        return f"[{', '.join(map(spelled, value))}]"
    is_plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
    return value if is_plain else escaped_json(value)
