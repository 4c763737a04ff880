"""The terms of the audit: how many edges (record, window) opened and how each closed, with XOR and sum of their ids."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import xor
from typing import Final, Protocol

from windowlib.bounds import wrap_int64
from windowlib.records.records import Tally

Edges = tuple[int, int, int]
"""Count, XOR and sum of the ids of some edges. An edge is one record in one window, and its id is the record's hash.

The sum is not wrapped. The id does not depend on the window, so a merge of windows only adds and XORs, and the edges of
overlapping windows are sums over slices of them. A record in an even number of windows cancels out of an XOR, but not
out of the sum and the count, so a lost or doubled edge is still found.
"""
NO_EDGES: Final[Edges] = (0, 0, 0)

NEW: Final = "new"
FIRED: Final = "closed:fired"
NEVER_FIRED: Final = "closed:never_fired"
LEFT_OVER: Final = "closed:left_over"
PURGED: Final = "closed:purged"
EVICTED: Final = "closed:evicted"
LOST_IDENTICAL: Final = "closed:F1_identical_session"
LOST_AT_END: Final = "closed:retired_at_last_watermark"


class EdgeTallies:
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


class Edge(Protocol):
    """A record of a window, or a tuple of a queue."""

    @property
    def edge_id(self) -> int: ...


def edges_of(contents: Iterable[Edge]) -> Edges:
    """Return the edges of some contents."""
    return edges_with(NO_EDGES, [stored.edge_id for stored in contents])


def edges_with(edges: Edges, hashes: Sequence[int]) -> Edges:
    """Return the edges, and one more for each record's hash."""
    count, bits, total = edges
    return (count + len(hashes), reduce(xor, hashes, bits), sum(hashes, total))


def difference(edges: Edges, part: Edges) -> Edges:
    """Return the edges that are not in `part`."""
    return (edges[0] - part[0], edges[1] ^ part[1], edges[2] - part[2])


def together(left: Edges, right: Edges) -> Edges:
    """Return the sum of two sets of edges."""
    return (left[0] + right[0], left[1] ^ right[1], left[2] + right[2])


def times(edges: Edges, count: int) -> Edges:
    """Return the edges of records that entered `count` windows each, from their edges in one window."""
    return (edges[0] * count, edges[1] if count % 2 else 0, edges[2] * count)


def signed(edges: Edges) -> Edges:
    """Return the edges with XOR and sum as signed 64-bit integers."""
    return (edges[0], wrap_int64(edges[1]), wrap_int64(edges[2]))
