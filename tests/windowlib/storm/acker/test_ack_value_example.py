"""The worked example of the original task (seed 001) with four-bit ids, step by step: spout, Bolt1, Bolt2, acker."""

import pytest

from tests.support.storm_acker.anchors import TrackedTuple, acks, edge
from windowlib.records.tallies import Edges
from windowlib.storm.acker.acker import STORM, STRICT, Acker, AckerRules
from windowlib.storm.acker.messages import Ack, Init, Message, Notice, NoticeKind

ROOT, SPOUT_TASK = 1, 5
RULES = [pytest.param(STORM, id="storm"), pytest.param(STRICT, id="strict")]


def balance(acker: Acker) -> Edges:
    return dict(acker.pending())[ROOT].balance


@pytest.mark.parametrize("rules", RULES)
def test_the_ack_values_of_the_example(rules: AckerRules) -> None:
    acker = Acker(rules)
    # 1) The spout sends a tuple with id 0100, to the acker and to Bolt1.
    assert acker.receive(Init(root_id=ROOT, anchored=edge(0b0100), task=SPOUT_TASK)) is None
    assert balance(acker) == (1, 0b0100, 0b0100)
    # 2) Bolt1 derives a tuple with id 0010, and sends 0100 xor 0010 to the acker.
    bolt1 = TrackedTuple(roots={ROOT: edge(0b0100)}, anchored=edge(0b0010))
    (message,) = acks(bolt1)
    assert message.acked[1] ^ message.anchored[1] == 0b0110
    assert acker.receive(message) is None
    assert balance(acker) == (1, 0b0010, 0b0010)
    # 3) Bolt2 derives no tuple, and sends the id 0010 itself to the acker.
    (message,) = acks(TrackedTuple(roots={ROOT: edge(0b0010)}))
    assert message == Ack(root_id=ROOT, acked=edge(0b0010))
    # 4) The value is zero now: the acker notifies the spout and deletes the entry.
    assert acker.receive(message) == Notice(kind=NoticeKind.ACK, root_id=ROOT, task=SPOUT_TASK, elapsed_ms=0)
    assert len(list(acker.pending())) == 0


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_the_order_of_the_messages_does_not_matter(rules: AckerRules, order: tuple[int, ...]) -> None:
    messages: list[Message] = [
        Init(root_id=ROOT, anchored=edge(0b0100), task=SPOUT_TASK),
        Ack(root_id=ROOT, acked=edge(0b0100), anchored=edge(0b0010)),
        Ack(root_id=ROOT, acked=edge(0b0010)),
    ]
    acker = Acker(rules)
    notices = [acker.receive(messages[number]) for number in order]
    assert notices[:-1] == [None, None]
    assert notices[-1] == Notice(kind=NoticeKind.ACK, root_id=ROOT, task=SPOUT_TASK, elapsed_ms=0)


@pytest.mark.parametrize("rules", RULES)
def test_a_message_to_several_targets_starts_with_the_xor_of_its_ids(rules: AckerRules) -> None:
    acker = Acker(rules)
    acker.receive(Init(root_id=ROOT, anchored=(2, 0b0110, 0b0110), task=SPOUT_TASK))
    assert acker.receive(Ack(root_id=ROOT, acked=edge(0b0100))) is None
    notice = acker.receive(Ack(root_id=ROOT, acked=edge(0b0010)))
    assert notice is not None
    assert notice.kind is NoticeKind.ACK
