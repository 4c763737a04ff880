"""A bolt's side of the acker: tuples that hang on roots, new tuples anchored on them, and what to tell the acker.

Source: Storm, BoltOutputCollectorImpl and MessageId.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from windowlib.records.tallies import NO_EDGES, Edges, edge_id, signed, together
from windowlib.storm.acker.messages import Ack, Fail, ResetTimeout, RootId


@dataclass(slots=True, kw_only=True)
class EdgeIds:
    """A source of 64-bit ids, none of them twice and none of them zero: splitmix64 from a seed. All of it is state."""

    seed: int
    drawn: int = 0

    def draw(self) -> int:
        """Return the next id, a signed 64-bit integer."""
        self.drawn += 1
        # Zero would be an edge that no XOR can see.
        return edge_id(self.seed, self.drawn) or self.draw()


@dataclass(slots=True, kw_only=True)
class TrackedTuple:
    """One tuple under way: the edges by which it hangs on each root, and those anchored on it so far.

    A tuple without roots is not tracked: its spout gave no message id, or there is no acker.
    """

    roots: dict[RootId, Edges] = field(default_factory=dict)
    anchored: Edges = NO_EDGES


def edge(identity: int) -> Edges:
    """Return one edge as a set of edges."""
    return (1, identity, identity)


def anchor(anchors: Sequence[TrackedTuple], ids: EdgeIds) -> TrackedTuple:
    """Return a tuple for one target, derived from `anchors`: it hangs on all their roots, by one new edge per anchor.

    A tuple for several targets is several tuples. The same anchor may be named twice, and anchors may share roots.
    """
    derived = TrackedTuple()
    for one in anchors:
        if not one.roots:
            continue
        new = edge(ids.draw())
        one.anchored = signed(together(one.anchored, new))
        for root_id in one.roots:
            derived.roots[root_id] = signed(together(derived.roots.get(root_id, NO_EDGES), new))
    return derived


def acks(done: TrackedTuple) -> list[Ack]:
    """Return what a bolt tells the acker when it is done with a tuple, after it anchored all that comes of it."""
    return [Ack(root_id=root_id, acked=edges, anchored=done.anchored) for root_id, edges in done.roots.items()]


def fails(failed: TrackedTuple) -> list[Fail]:
    """Return what a bolt tells the acker when it cannot process a tuple."""
    return [Fail(root_id=root_id) for root_id in failed.roots]


def resets(slow: TrackedTuple) -> list[ResetTimeout]:
    """Return what a bolt tells the acker when it needs more time for a tuple."""
    return [ResetTimeout(root_id=root_id) for root_id in slow.roots]
