"""Finds a regular expression in texts, with the result that pandas has.

pandas asks RE2, or Python about what RE2 does not have or reads in another way: always about some expressions, about
others only if a text has a line break or a character that is not ASCII. About other texts, both agree, except about the
dotted and the dotless i without regard to case. So each text is judged alone: the others change no outcome.
Source: pandas/core/arrays/_arrow_string_mixins.py.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.arguments import is_only_python, regex, spelled_for_re2, syntax_tree
from expectations.compiled.columns import Flags, flags

_ASCII_ONLY = re.compile(r"\bCATEGORY_(NOT_)?(WORD|DIGIT)|\bAT_(NON_)?BOUNDARY")
_SINGLE_LINE_ONLY = re.compile(r"\bAT_END\b")


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression that both engines accept, or Python alone if only Python is asked."""

    pattern: str

    def matches(self, texts: pa.Array) -> Flags:
        """Return in which texts the expression is found; False for a null."""
        tree = syntax_tree(self.pattern)
        if is_only_python(self.pattern, tree):
            return self._found_by_python(texts)
        of_python = np.zeros(len(texts), dtype=bool)
        if _ASCII_ONLY.search(tree):
            of_python |= flags(pc.invert(pc.string_is_ascii(texts)))
        if _SINGLE_LINE_ONLY.search(tree):
            of_python |= flags(pc.match_substring(texts, "\n"))
        is_match = flags(pc.match_substring_regex(texts, spelled_for_re2(self.pattern)))
        if of_python.any():
            is_match = is_match.copy()
            is_match[of_python] = self._found_by_python(texts.filter(pa.array(of_python)))
        return is_match

    def _found_by_python(self, texts: pa.Array) -> Flags:
        encoded, search = texts.dictionary_encode(), re.compile(self.pattern).search
        is_match = pa.array([search(text) is not None for text in encoded.dictionary.to_pylist()], pa.bool_())
        return flags(is_match.take(encoded.indices))


def regex_of(pattern: str) -> Regex | None:
    """Return the expression; None if a suite may not have it. Results of older versions may name such a one."""
    return None if regex(pattern) else Regex(pattern)
