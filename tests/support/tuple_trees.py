"""Random tuple trees: the messages of spouts and bolts to the acker, without a cluster."""

from dataclasses import dataclass, field
from random import Random

from tests.support.storm_acker.anchors import EdgeIds, TrackedTuple, acks, anchor
from tests.support.storm_acker.spout import Spout
from windowlib.storm.acker.messages import Init, Message, RootId

TASK = 3


@dataclass
class Traffic:
    """All messages of some roots, in the order in which they were sent. Every tuple is acked."""

    roots: list[RootId] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def of(self, root_id: RootId) -> list[Message]:
        return [message for message in self.messages if message.root_id == root_id]


def random_traffic(rng: Random, *, roots: int, derived: int = 20) -> Traffic:
    """Send `roots` messages, derive about `derived` tuples from them, and ack every tuple.

    A derived tuple has one or two anchors. Two anchors may have the same root, different roots, or be the same tuple.
    """
    ids = EdgeIds(seed=rng.getrandbits(63))
    spout = Spout(task=TASK, ids=ids)
    traffic, waiting = Traffic(), list[TrackedTuple]()
    for number in range(roots):
        sent = spout.emit(None, message_id=number, targets=rng.randint(1, 3))
        assert isinstance(sent.init, Init)
        traffic.roots.append(sent.init.root_id)
        traffic.messages.append(sent.init)
        waiting += sent.tuples
    while waiting:
        parent = waiting.pop(rng.randrange(len(waiting)))
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            if derived:
                derived -= 1
                others = rng.sample([*waiting, parent], 1) if rng.random() < 0.4 else []
                waiting.append(anchor([parent, *others], ids))
        traffic.messages += acks(parent)
    return traffic
