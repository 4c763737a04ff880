"""What a person probably meant who misspelt a word of a closed list."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'?` when one of the allowed words is close, else nothing."""
    close = get_close_matches(word.lower(), list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
