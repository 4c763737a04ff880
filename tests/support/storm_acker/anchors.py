"""A bolt's side of the acker: tracked tuples, new tuples that are anchored on them, and the messages to the acker.

For users: the audit builds its messages itself. Source: Storm, BoltOutputCollectorImpl and MessageId.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from windowlib.bounds import wrap_int64
from windowlib.records.tallies import NO_EDGES, Edges, signed, together
from windowlib.storm.acker.messages import Ack, Fail, ResetTimeout, RootId

_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(slots=True, kw_only=True)
class EdgeIds:
    """A generator of distinct 64-bit ids other than zero: splitmix64 from a seed. The two fields are all its state."""

    seed: int
    drawn: int = 0

    def draw(self) -> int:
        """Return the next id, a signed 64-bit integer."""
        self.drawn += 1
        # An XOR cannot detect an edge with the id zero.
        return wrap_int64(_splitmix64(self.seed, self.drawn)) or self.draw()


def _splitmix64(seed: int, number: int) -> int:
    """Return the output of splitmix64 at this place (from 1) as an unsigned word."""
    word = (seed + number * _GOLDEN) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58_476D_1CE4_E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D0_49BB_1331_11EB) & _WORD
    return word ^ (word >> 31)


@dataclass(slots=True, kw_only=True)
class TrackedTuple:
    """One tuple in processing: its edges to each root, and the edges that are anchored on it so far.

    A tuple without roots is not tracked: its spout gave no message id, or there is no acker.
    """

    roots: dict[RootId, Edges] = field(default_factory=dict)
    anchored: Edges = NO_EDGES


def edge(identity: int) -> Edges:
    """Return the set of edges that holds one edge."""
    return (1, identity, identity)


def anchor(anchors: Sequence[TrackedTuple], ids: EdgeIds) -> TrackedTuple:
    """Return a tuple for one target, derived from `anchors`: it has one new edge per anchor, to all the anchor's roots.

    For several targets, call this once per target. `anchors` may contain a tuple twice, and anchors may share roots.
    """
    derived = TrackedTuple()
    for parent in anchors:
        if not parent.roots:
            continue
        new = edge(ids.draw())
        parent.anchored = signed(together(parent.anchored, new))
        for root_id in parent.roots:
            derived.roots[root_id] = signed(together(derived.roots.get(root_id, NO_EDGES), new))
    return derived


def acks(done: TrackedTuple) -> list[Ack]:
    """Return the messages of a bolt that has processed a tuple. Anchor all derived tuples before this call."""
    return [Ack(root_id=root_id, acked=edges, anchored=done.anchored) for root_id, edges in done.roots.items()]


def fails(failed: TrackedTuple) -> list[Fail]:
    """Return the messages of a bolt that cannot process a tuple."""
    return [Fail(root_id=root_id) for root_id in failed.roots]


def resets(slow: TrackedTuple) -> list[ResetTimeout]:
    """Return the messages of a bolt that needs more time for a tuple."""
    return [ResetTimeout(root_id=root_id) for root_id in slow.roots]
