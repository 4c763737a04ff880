"""Laws of the acker over random tuple trees: a tree is reported once, at the message that completes it."""

from collections import Counter
from random import Random

import pytest

from tests.support.fuzzing import chances, seeds
from tests.support.storm_acker.anchors import EdgeIds, TrackedTuple, acks, anchor
from tests.support.storm_acker.spout import CallKind, Emission, Spout, SpoutCall
from tests.support.tuple_trees import TASK, Traffic, random_traffic
from windowlib.storm.acker.acker import STORM, STRICT, Acker, AckerRules
from windowlib.storm.acker.messages import Ack, Init, Message, Notice, NoticeKind, RootId

both = pytest.mark.parametrize("rules", [pytest.param(STORM, id="storm"), pytest.param(STRICT, id="strict")])
TREES = 60


def shuffled(rng: Random, messages: list[Message]) -> list[Message]:
    return rng.sample(messages, len(messages))


def deliver(acker: Acker, messages: list[Message]) -> dict[RootId, list[tuple[int, Notice]]]:
    """Deliver the messages in order; return by root each notice with the number of the message that caused it."""
    notices: dict[RootId, list[tuple[int, Notice]]] = {}
    for number, message in enumerate(messages):
        notice = acker.receive(message)
        if notice is not None:
            assert notice.root_id == message.root_id
            notices.setdefault(notice.root_id, []).append((number, notice))
    return notices


def last_of(messages: list[Message], root_id: RootId) -> int:
    return max(number for number, message in enumerate(messages) if message.root_id == root_id)


def done_at(number: int, root_id: RootId) -> list[tuple[int, Notice]]:
    return [(number, Notice(kind=NoticeKind.ACK, root_id=root_id, task=TASK, elapsed_ms=0))]


@both
def test_a_tree_is_acked_once_at_its_last_message_in_any_order(rules: AckerRules) -> None:
    for seed in seeds(TREES):
        rng, acker = Random(seed), Acker(rules)
        traffic = random_traffic(rng, roots=rng.randint(1, 5))
        messages = shuffled(rng, traffic.messages)
        expected = {root_id: done_at(last_of(messages, root_id), root_id) for root_id in traffic.roots}
        assert deliver(acker, messages) == expected
        assert len(list(acker.pending())) == 0


def victim(rng: Random, traffic: Traffic, kind: type[Message] | tuple[type[Message], ...]) -> Message:
    return rng.choice([message for message in traffic.messages if isinstance(message, kind)])


@both
def test_a_tree_that_loses_a_message_is_never_acked_and_expires(rules: AckerRules) -> None:
    for seed in seeds(TREES):
        rng, acker = Random(seed), Acker(rules)
        traffic = random_traffic(rng, roots=rng.randint(1, 5))
        lost = victim(rng, traffic, (Init, Ack))
        messages = shuffled(rng, [message for message in traffic.messages if message is not lost])
        notices = deliver(acker, messages)
        assert set(notices) == set(traffic.roots) - {lost.root_id}
        acker.tick()
        acker.tick()
        left = len(traffic.of(lost.root_id)) > 1
        assert list(acker.tick()) == ([lost.root_id] if left else [])


@both
def test_a_repeated_ack_never_completes_its_tree(rules: AckerRules) -> None:
    """If the tree was complete before the repetition arrived, the repetition opens an orphan."""
    for seed in seeds(TREES):
        rng, acker = Random(seed), Acker(rules)
        traffic = random_traffic(rng, roots=rng.randint(1, 5))
        twice = victim(rng, traffic, Ack)
        messages = shuffled(rng, [*traffic.messages, twice])
        last = last_of(messages, twice.root_id)
        is_after_the_end = messages[last] is twice
        notices = deliver(acker, messages).get(twice.root_id, [])
        if is_after_the_end:
            before = [number for number, message in enumerate(messages[:last]) if message.root_id == twice.root_id]
            assert notices == done_at(before[-1], twice.root_id)
        else:
            assert notices == []
        assert [root_id for root_id, _ in acker.pending()] == [twice.root_id]


def test_in_strict_a_repeated_init_counts_once() -> None:
    for seed in seeds(TREES):
        rng, acker = Random(seed), Acker(STRICT)
        traffic = random_traffic(rng, roots=rng.randint(1, 5))
        twice = victim(rng, traffic, Init)
        messages = shuffled(rng, [*traffic.messages, twice])
        own = [number for number, message in enumerate(messages) if message.root_id == twice.root_id]
        is_after_the_end = messages[own[-1]] is twice
        assert deliver(acker, messages)[twice.root_id] == done_at(own[-2 if is_after_the_end else -1], twice.root_id)
        assert len(list(acker.pending())) == (1 if is_after_the_end else 0)


def test_in_storm_two_inits_before_any_ack_are_a_false_ack() -> None:
    """S5: both inits arrive before any ack."""
    for seed in seeds(TREES):
        rng, acker = Random(seed), Acker(STORM)
        traffic = random_traffic(rng, roots=1)
        first = traffic.messages[0]
        rest = shuffled(rng, traffic.messages[1:])
        notices = deliver(acker, [first, first, *rest])
        assert notices == {first.root_id: done_at(1, first.root_id)}


@pytest.mark.parametrize("copies", [3, 5])
def test_an_odd_number_of_equal_acks_completes_the_tree_in_storm_only(copies: int) -> None:
    for rng in chances(TREES):
        traffic = random_traffic(rng, roots=1)
        many = victim(rng, traffic, Ack)
        rest = shuffled(rng, [message for message in traffic.messages if message is not many])
        messages = [*rest[:-1], *[many] * copies, rest[-1]]
        assert len(deliver(Acker(STORM), messages)) == 1
        assert deliver(Acker(STRICT), messages) == {}


class LossyTopology:
    """A spout, a bolt that derives two tuples per tuple, a last bolt, an acker, and a network that loses messages."""

    def __init__(self, rng: Random, rules: AckerRules, loss: float) -> None:
        self.rng, self.loss = rng, loss
        self.spout = Spout(task=TASK, ids=EdgeIds(seed=rng.getrandbits(63)))
        self.acker = Acker(rules)
        self.network: list[Message | TrackedTuple] = []
        self.acked: Counter[object] = Counter()
        self.failed: Counter[object] = Counter()
        self.processed: Counter[RootId] = Counter()
        self.message_of: dict[RootId, object] = {}

    def emit(self, message_id: int) -> None:
        sent: Emission = self.spout.emit(None, message_id=message_id)
        assert sent.init is not None
        self.message_of[sent.init.root_id] = message_id
        self.network += [sent.init, *sent.tuples]

    def step(self) -> None:
        parcel = self.network.pop(self.rng.randrange(len(self.network)))
        if self.rng.random() < self.loss:
            return
        if isinstance(parcel, TrackedTuple):
            (root_id,) = parcel.roots
            if not self.processed[root_id]:
                self.network += [anchor([parcel], self.spout.ids) for _ in range(2)]
            self.processed[root_id] += 1
            self.network += acks(parcel)
            return
        notice = self.acker.receive(parcel)
        if notice is not None:
            self.call(self.spout.hear(notice))

    def call(self, call: SpoutCall | None) -> None:
        if call is not None:
            counts = self.acked if call.kind is CallKind.ACK else self.failed
            counts[call.message.message_id] += 1
            if call.kind is CallKind.FAIL:
                assert isinstance(call.message.message_id, int)
                self.emit(call.message.message_id)

    def tick(self) -> None:
        self.acker.tick()
        for call in self.spout.tick():
            self.call(call)


@both
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_with_replays_every_message_is_processed_at_least_once_and_acked_once(rules: AckerRules, loss: float) -> None:
    for rng in chances(12):
        topology = LossyTopology(rng, rules, loss)
        for message_id in range(6):
            topology.emit(message_id)
        while topology.network or topology.spout.pending():
            if not topology.network:
                topology.tick()
            else:
                topology.step()
        assert topology.acked == dict.fromkeys(range(6), 1)
        whole = Counter(topology.message_of[root] for root, count in topology.processed.items() if count == 3)
        assert set(whole) == set(range(6)), "an ACK means that all three tuples of one emission were processed"
        if not loss:
            assert not topology.failed
