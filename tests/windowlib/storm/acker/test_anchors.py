"""Anchoring: the roots of derived tuples, and the messages of their bolts (after Storm's integration tests)."""

from collections.abc import Sequence
from random import Random

import pytest

from tests.support.fuzzing import first_seed
from tests.support.storm_acker.anchors import EdgeIds, TrackedTuple, acks, anchor, fails, resets
from tests.support.storm_acker.spout import Spout
from windowlib.storm.acker.acker import STORM, STRICT, Acker, AckerRules
from windowlib.storm.acker.messages import Fail, Init, Message, ResetTimeout, RootId

both = pytest.mark.parametrize("rules", [pytest.param(STORM, id="storm"), pytest.param(STRICT, id="strict")])


class Bench:
    """A spout, an acker and an id generator."""

    def __init__(self, rules: AckerRules) -> None:
        self.ids = EdgeIds(seed=11)
        self.spout = Spout(task=1, ids=self.ids)
        self.acker = Acker(rules)

    def send(self, message_id: int, *, targets: int = 1) -> tuple[RootId, tuple[TrackedTuple, ...]]:
        sent = self.spout.emit(None, message_id=message_id, targets=targets)
        assert isinstance(sent.init, Init)
        assert self.tell([sent.init]) == []
        return sent.init.root_id, sent.tuples

    def tell(self, messages: Sequence[Message]) -> list[str]:
        notices = [self.acker.receive(message) for message in messages]
        return [notice.kind.value for notice in notices if notice is not None]


@both
def test_a_chain_of_tuples_is_acked_at_its_end(rules: AckerRules) -> None:
    bench = Bench(rules)
    _, (first,) = bench.send(1)
    second = anchor([first], bench.ids)
    assert bench.tell(acks(first)) == []
    assert bench.tell(acks(second)) == ["ACK"]


@both
def test_a_join_has_one_edge_per_branch(rules: AckerRules) -> None:
    """A spout sends to two bolts, and a third bolt joins their tuples: the join has two edges to the root."""
    bench = Bench(rules)
    root_id, (left, right) = bench.send(1, targets=2)
    left_child, right_child = anchor([left], bench.ids), anchor([right], bench.ids)
    joined = anchor([left_child, right_child], bench.ids)
    assert joined.roots[root_id][0] == 2
    for done in (right, left_child, left, right_child):
        assert bench.tell(acks(done)) == []
    assert bench.tell(acks(joined)) == ["ACK"]


@both
def test_a_tuple_can_be_anchored_twice_on_the_same_tuple(rules: AckerRules) -> None:
    bench = Bench(rules)
    root_id, (first,) = bench.send(1)
    second = anchor([first, first], bench.ids)
    assert second.roots[root_id][0] == 2
    assert bench.tell(acks(second)) == [], "the order of the acks does not matter"
    assert bench.tell(acks(first)) == ["ACK"]


@both
def test_a_tuple_with_two_roots_fails_both_messages(rules: AckerRules) -> None:
    bench = Bench(rules)
    root_1, (first,) = bench.send(1)
    root_2, (second,) = bench.send(2)
    joined = anchor([first, second], bench.ids)
    assert set(joined.roots) == {root_1, root_2}
    assert bench.tell([*acks(first), *acks(second)]) == []
    assert bench.tell(fails(joined)) == ["FAIL", "FAIL"]


@both
def test_an_unanchored_tuple_is_not_waited_for(rules: AckerRules) -> None:
    bench = Bench(rules)
    _, (first,) = bench.send(1)
    loose = anchor([], bench.ids)
    assert bench.tell(acks(first)) == ["ACK"]
    assert (acks(loose), fails(loose), resets(loose)) == ([], [], [])


def test_failure_and_reset_go_to_every_root() -> None:
    bench = Bench(STRICT)
    root_1, (first,) = bench.send(1)
    root_2, (second,) = bench.send(2)
    joined = anchor([first, second], bench.ids)
    assert fails(joined) == [Fail(root_id=root_1), Fail(root_id=root_2)]
    assert resets(joined) == [ResetTimeout(root_id=root_1), ResetTimeout(root_id=root_2)]


def test_ids_are_64_bit_words_that_do_not_repeat() -> None:
    assert EdgeIds(seed=0).draw() == -2152535657050944081, "the first output of splitmix64 from seed 0"
    seed = Random(first_seed()).getrandbits(64)
    ids = EdgeIds(seed=seed)
    drawn = [ids.draw() for _ in range(5_000)]
    assert len(set(drawn)) == len(drawn)
    assert 0 not in drawn
    assert all(-(2**63) <= edge_id < 2**63 for edge_id in drawn)
    assert 0.4 < sum(edge_id < 0 for edge_id in drawn) / len(drawn) < 0.6, "the sign bit is one of the random bits"
    assert ids == EdgeIds(seed=seed, drawn=5_000), "the seed and the number of drawn ids are the whole state"


def test_an_id_of_zero_is_skipped() -> None:
    """An XOR cannot detect the id zero. splitmix64 returns it once in its period, with this seed at the first draw."""
    seed = -0x9E37_79B9_7F4A_7C15
    ids = EdgeIds(seed=seed)
    assert ids.draw() != 0
    assert ids.drawn == 2
