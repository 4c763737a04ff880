"""The terms of the audit: how many edges (record, window) opened and how each closed, with XOR and sum of their ids."""

from collections import defaultdict
from typing import Final

from windowlib.bounds import wrap_int64
from windowlib.records.records import Tally

Edges = tuple[int, int, int]
"""Count, XOR and sum of the ids of some edges. An edge is one record in one window. The sum is not wrapped."""
NO_EDGES: Final[Edges] = (0, 0, 0)

NEW: Final = "new"
FIRED: Final = "closed:fired"
NEVER_FIRED: Final = "closed:never_fired"
LEFT_OVER: Final = "closed:left_over"
PURGED: Final = "closed:purged"
EVICTED: Final = "closed:evicted"
LOST_IDENTICAL: Final = "closed:F1_identical_session"
LOST_AT_END: Final = "closed:retired_at_last_watermark"

_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF


def edge_id(record_hash: int, index: int) -> int:
    """Return the signed 64-bit id of a record in the window that the assigner returned at `index`.

    At index 0 it is the record's own hash, else splitmix64's mix of hash + index * golden ratio. It does not depend on
    the window's bounds, so a merge of windows only adds and XORs.
    """
    if not index:
        return record_hash
    word = (record_hash + index * _GOLDEN) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58_476D_1CE4_E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D0_49BB_1331_11EB) & _WORD
    return wrap_int64(word ^ (word >> 31))


class Tallies:
    """The edges of each term since the last `take`."""

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        self._terms: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(self, term: str, edges: Edges) -> None:
        count, xor, total = edges
        counts = self._terms[term]
        counts[0] += count
        counts[1] ^= xor
        counts[2] += total

    def take(self) -> dict[str, Tally]:
        """Return the terms that have edges, sorted by name, and reset all terms."""
        terms = {
            name: Tally(counts[0], wrap_int64(counts[1]), wrap_int64(counts[2]))
            for name, counts in sorted(self._terms.items())
            if counts[0]
        }
        self._terms.clear()
        return terms


def difference(edges: Edges, part: Edges) -> Edges:
    """Return the edges that are not in `part`."""
    return (edges[0] - part[0], edges[1] ^ part[1], edges[2] - part[2])


def together(left: Edges, right: Edges) -> Edges:
    """Return the sum of two sets of edges."""
    return (left[0] + right[0], left[1] ^ right[1], left[2] + right[2])


def signed(edges: Edges) -> Edges:
    """Return the edges with XOR and sum as signed 64-bit integers."""
    return (edges[0], wrap_int64(edges[1]), wrap_int64(edges[2]))
