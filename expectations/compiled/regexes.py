r"""Translates a regular expression to RE2, if Python, RE2 and Java find a match in the same texts.

Only existence of a match matters, so the order in which alternatives are tried does not. The syntax tree of Python is
the source. What is not listed here (`\b`, `\s`, groups that are referred to, look-around, flags) is not translated.
Two parts depend on the text: `\d` and `\w` are equal for ASCII texts only, `$` for texts without a line break only.

Source: https://docs.python.org/3/library/re.html and https://github.com/google/re2/wiki/Syntax.
"""

import re
from dataclasses import dataclass

# Python's own parser of regular expressions. It has no public name since Python 3.11.
from re import _constants as sre, _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.compiled.columns import Flags, flags

_CLASSES = {sre.CATEGORY_DIGIT: "0-9", sre.CATEGORY_WORD: "A-Za-z0-9_"}


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression in RE2's syntax, and for which texts it is not the same as in Python."""

    pattern: str
    ascii_only: bool
    single_line_only: bool

    def matches(self, texts: pa.Array) -> Flags:
        """Return in which texts the expression is found; False for a null."""
        return flags(pc.match_substring_regex(texts, self.pattern))

    def doubtful(self, texts: pa.Array) -> Flags:
        """Return the texts for which the engines may disagree."""
        doubt = np.zeros(len(texts), dtype=bool)
        if self.ascii_only:
            doubt |= flags(pc.invert(pc.string_is_ascii(texts)))
        if self.single_line_only:
            doubt |= flags(pc.match_substring_regex(texts, "[\n\r\u0085\u2028\u2029]"))
        return doubt


class _Unlike(Exception):  # noqa: N818 -- not an error: the expression is left to Great Expectations
    """The expression has a part that the engines may read differently."""


def translate(pattern: str) -> Regex | None:
    """Return the expression for RE2, or None if it is not certain that all engines agree."""
    try:
        tree = sre_parser.parse(pattern)
    except re.error:
        return None
    if tree.state.flags != re.UNICODE.value:
        return None
    writer = _Writer()
    try:
        text = writer.sequence(tree)
        pc.match_substring_regex(pa.array(["x"]), text)
    except (_Unlike, pa.ArrowInvalid):
        return None
    return Regex(text, ascii_only=writer.ascii_only, single_line_only=writer.single_line_only)


class _Writer:
    """Writes a syntax tree in RE2's syntax."""

    def __init__(self) -> None:
        self.ascii_only = False
        self.single_line_only = False

    def sequence(self, tokens: Any) -> str:  # noqa: ANN401 -- Python's syntax tree
        return "".join(self.token(*token) for token in tokens)

    def token(self, kind: Any, value: Any) -> str:  # noqa: ANN401, PLR0911 -- Python's syntax tree
        match kind:
            case sre.LITERAL:
                return _character(value)
            case sre.NOT_LITERAL:
                return f"[^{_character(value)}]"
            case sre.ANY:
                self.single_line_only = True  # Java's dot leaves out more line breaks
                return r"[^\n]"
            case sre.IN:
                is_negated = value[0][0] is sre.NEGATE
                return f"[{'^' if is_negated else ''}{''.join(self._member(*item) for item in value[is_negated:])}]"
            case sre.AT if value in {sre.AT_BEGINNING, sre.AT_BEGINNING_STRING}:
                return r"\A"
            case sre.AT if value is sre.AT_END:
                self.single_line_only = True
                return r"\z"
        return self._composed(kind, value)

    def _composed(self, kind: Any, value: Any) -> str:  # noqa: ANN401 -- Python's syntax tree
        match kind:
            case sre.BRANCH:
                return f"(?:{'|'.join(map(self.sequence, value[1]))})"
            case sre.SUBPATTERN if not (value[1] or value[2]):  # no flags of its own
                return f"(?:{self.sequence(value[3])})"
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                return self._repeated(*value)
            case _:
                raise _Unlike

    def _repeated(self, least: int, most: int, inner: Any) -> str:  # noqa: ANN401 -- Python's syntax tree
        return f"(?:{self.sequence(inner)}){{{least},{'' if most is sre.MAXREPEAT else most}}}"

    def _member(self, kind: Any, value: Any) -> str:  # noqa: ANN401 -- Python's syntax tree
        if kind is sre.LITERAL:
            return _character(value)
        if kind is sre.RANGE:
            return f"{_character(value[0])}-{_character(value[1])}"
        if kind is sre.CATEGORY and value in _CLASSES:
            self.ascii_only = True
            return _CLASSES[value]
        raise _Unlike


def _character(code: int) -> str:
    # A surrogate is not a character of any text in Arrow.
    if 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 -- Unicode's surrogates
        raise _Unlike
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:X}}}"
