"""Anchoring: what a derived tuple hangs on, and what its bolt says when it is done (Storm's integration tests)."""

from collections.abc import Sequence
from random import Random

import pytest

from tests.support.fuzzing import first_seed
from windowlib.storm.acker.acker import STORM, STRICT, Acker, AckerRules
from windowlib.storm.acker.anchors import EdgeIds, TrackedTuple, acks, anchor, fails, resets
from windowlib.storm.acker.messages import Fail, Init, Message, ResetTimeout, RootId
from windowlib.storm.acker.spout import Spout

both = pytest.mark.parametrize("rules", [pytest.param(STORM, id="storm"), pytest.param(STRICT, id="strict")])


class Bench:
    """A spout, an acker and ids."""

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
def test_a_chain(rules: AckerRules) -> None:
    bench = Bench(rules)
    _, (first,) = bench.send(1)
    second = anchor([first], bench.ids)
    assert bench.tell(acks(first)) == []
    assert bench.tell(acks(second)) == ["ACK"]


@both
def test_branches_that_meet_again(rules: AckerRules) -> None:
    """A spout to two bolts, whose tuples a third one joins: the join hangs on the root by two edges."""
    bench = Bench(rules)
    root_id, (left, right) = bench.send(1, targets=2)
    left_child, right_child = anchor([left], bench.ids), anchor([right], bench.ids)
    joined = anchor([left_child, right_child], bench.ids)
    assert joined.roots[root_id][0] == 2
    for done in (right, left_child, left, right_child):
        assert bench.tell(acks(done)) == []
    assert bench.tell(acks(joined)) == ["ACK"]


@both
def test_a_tuple_anchored_twice_on_the_same_one(rules: AckerRules) -> None:
    bench = Bench(rules)
    root_id, (first,) = bench.send(1)
    second = anchor([first, first], bench.ids)
    assert second.roots[root_id][0] == 2
    assert bench.tell(acks(second)) == [], "in whatever order"
    assert bench.tell(acks(first)) == ["ACK"]


@both
def test_a_tuple_of_two_messages_holds_both(rules: AckerRules) -> None:
    bench = Bench(rules)
    one, (first,) = bench.send(1)
    two, (second,) = bench.send(2)
    joined = anchor([first, second], bench.ids)
    assert set(joined.roots) == {one, two}
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
    one, (first,) = bench.send(1)
    two, (second,) = bench.send(2)
    joined = anchor([first, second], bench.ids)
    assert fails(joined) == [Fail(root_id=one), Fail(root_id=two)]
    assert resets(joined) == [ResetTimeout(root_id=one), ResetTimeout(root_id=two)]


def test_ids_are_64_bit_words_that_do_not_repeat() -> None:
    seed = Random(first_seed()).getrandbits(64)
    ids = EdgeIds(seed=seed)
    drawn = [ids.draw() for _ in range(5_000)]
    assert len(set(drawn)) == len(drawn)
    assert 0 not in drawn
    assert all(-(2**63) <= one < 2**63 for one in drawn)
    assert 0.4 < sum(one < 0 for one in drawn) / len(drawn) < 0.6, "the sign bit is one of the random bits"
    assert ids == EdgeIds(seed=seed, drawn=5_000), "no other state than the seed and how many were drawn"


def test_an_id_of_zero_is_skipped() -> None:
    """No XOR can see it; splitmix64 gives it once in its period: here at the first draw."""
    seed = -0x9E37_79B9_7F4A_7C15
    ids = EdgeIds(seed=seed)
    assert ids.draw() != 0
    assert ids.drawn == 2
