"""Finds a regular expression in texts, with the result that pandas has.

pandas asks RE2, or Python about what RE2 does not have or reads in another way: always about some expressions, about
others only if a text has a line break or a character that is not ASCII. About all other texts, both agree. So the texts
of a batch are judged together. Source: pandas/core/arrays/_arrow_string_mixins.py.
"""

import re
from dataclasses import dataclass

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
        if not self._asks_python(texts):
            return flags(pc.match_substring_regex(texts, spelled_for_re2(self.pattern)))
        encoded, search = texts.dictionary_encode(), re.compile(self.pattern).search
        is_match = pa.array([search(text) is not None for text in encoded.dictionary.to_pylist()], pa.bool_())
        return flags(is_match.take(encoded.indices))

    def _asks_python(self, texts: pa.Array) -> bool:
        tree = syntax_tree(self.pattern)
        if is_only_python(self.pattern, tree):
            return True
        if _ASCII_ONLY.search(tree) and not pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
            return True
        return bool(_SINGLE_LINE_ONLY.search(tree) and pc.any(pc.match_substring(texts, "\n"), min_count=0).as_py())


def regex_of(pattern: str) -> Regex | None:
    """Return the expression; None if a suite may not have it. Results of older versions may name such a one."""
    return None if regex(pattern) else Regex(pattern)
