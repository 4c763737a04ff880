"""Suggests an allowed word for a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` if an allowed word is similar, else an empty text."""
    spelled = {name.lower(): name for name in allowed}
    close = get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return f"; did you mean {spelled[close[0]]!r}?" if close else ""
