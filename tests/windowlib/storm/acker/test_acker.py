"""Storm's acker as measured on Storm 2.8.4 (org.apache.storm.daemon.Acker), and the points where strict differs."""

from collections.abc import Sequence

import pytest

from tests.support.storm_acker.anchors import edge
from windowlib.records.tallies import NO_EDGES
from windowlib.storm.acker.acker import STORM, STRICT, Acker, AckerRules
from windowlib.storm.acker.messages import NO_TASK, Ack, Fail, Init, Message, ResetTimeout, RootId

both = pytest.mark.parametrize("rules", [pytest.param(STORM, id="storm"), pytest.param(STRICT, id="strict")])
A, B = 0x5EED_0000_0000_0001, -0x7000_0000_0000_0003


def init(root_id: RootId, *edges: int, task: int = 2) -> Init:
    count, xor, total = len(edges), 0, sum(edges)
    for edge_id in edges:
        xor ^= edge_id
    return Init(root_id=root_id, anchored=(count, xor, total), task=task)


def ack(root_id: RootId, edge_id: int) -> Ack:
    return Ack(root_id=root_id, acked=edge(edge_id))


def notices_of(acker: Acker, *messages: Message) -> list[str]:
    """Return the acker's notice for each message, "-" if there is none."""
    notices = [acker.receive(message) for message in messages]
    return ["-" if notice is None else f"{notice.kind.value} {notice.root_id}" for notice in notices]


FAILED = Fail(root_id=1)
SCRIPTS: dict[str, tuple[Sequence[Message], str, str]] = {
    "an init, then its ack": ((init(1, A), ack(1, A)), "- ACK1", "- ACK1"),
    "an ack may come before its init": ((ack(1, A), init(1, A)), "- ACK1", "- ACK1"),
    "an init without edges is acked at once: no bolt subscribes to the spout": ((init(1),), "ACK1", "ACK1"),
    "a failure goes to the spout": ((init(1, A, B), FAILED), "- FAIL1", "- FAIL1"),
    "a failure before the init is reported at the init": ((FAILED, init(1, A)), "- FAIL1", "- FAIL1"),
    "a failed tree whose tuples are all acked: Storm tests the value first, in strict the failure is final": (
        (FAILED, ack(1, A), init(1, A)), "- - ACK1", "- - FAIL1",
    ),
    "S5, a repeated init: a false ACK before anything was acked; in strict a repetition of the first": (
        (init(1, A), init(1, A), ack(1, A)), "- ACK1 -", "- - ACK1",
    ),
    "three equal acks: two of them cancel each other out; count and sum detect them": (
        (init(1, A, B), ack(1, A), ack(1, A), ack(1, A), ack(1, B)), "- - - - ACK1", "- - - - -",
    ),
    "two edges with one id, neither acked: the reason for the count and the sum beside the XOR": (
        (init(1, A, A),), "ACK1", "-",
    ),
}  # fmt: skip
"""What happens: the messages, and the notices of Storm's acker and of the strict one."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_notices_of_both_ackers(name: str) -> None:
    messages, *expected = SCRIPTS[name]
    for rules, notices in zip((STORM, STRICT), expected, strict=True):
        acker = Acker(rules)
        assert [notice.replace(" ", "") for notice in notices_of(acker, *messages)] == notices.split()
        assert len(list(acker.pending())) == (notices[-1] == "-"), "a tree that has ended is forgotten"


@pytest.mark.parametrize("other", [init(1, B), init(1, A, task=9)], ids=["other edges", "another task"])
def test_s5_in_strict_an_init_that_contradicts_the_first_fails_the_tree(other: Init) -> None:
    """The acker cannot separate two trees with one root: the first spout replays now, the other after its time-out."""
    acker = Acker(STRICT)
    assert notices_of(acker, init(1, A), other) == ["-", "FAIL 1"]
    assert len(list(acker.pending())) == 0


@both
def test_a_reset_is_passed_on_to_the_spout(rules: AckerRules) -> None:
    acker = Acker(rules)
    assert notices_of(acker, init(1, A), ResetTimeout(root_id=1), ack(1, A)) == ["-", "RESET_TIMEOUT 1", "ACK 1"]
    assert notices_of(acker, ResetTimeout(root_id=2), init(2, A)) == ["-", "-"], "before the init there is no spout"


@both
def test_an_entry_survives_two_ticks_and_is_dropped_at_the_third(rules: AckerRules) -> None:
    acker = Acker(rules)
    notices_of(acker, init(1, A))
    assert (acker.tick(), acker.tick()) == ({}, {})
    assert list(acker.tick()) == [1]
    assert len(list(acker.pending())) == 0


@both
def test_only_first_contact_failure_and_reset_renew_an_entry(rules: AckerRules) -> None:
    acker = Acker(rules)
    notices_of(acker, init(1, A, B), init(2, A), Fail(root_id=3))
    acker.tick()
    acker.tick()
    notices_of(acker, ack(1, A), ResetTimeout(root_id=2), Fail(root_id=3))
    assert list(acker.tick()) == [1], "its ack did not renew it"
    assert list(acker.tick()) == []
    assert list(acker.tick()) == [2, 3]


@both
def test_an_init_does_not_renew_an_entry_that_an_ack_opened(rules: AckerRules) -> None:
    acker = Acker(rules)
    notices_of(acker, ack(1, A))
    acker.tick()
    acker.tick()
    notices_of(acker, init(1, A, B))
    assert list(acker.tick()) == [1]


@both
def test_a_late_ack_opens_an_orphan_without_a_notice(rules: AckerRules) -> None:
    """The original task (seed, item 10) states that a late ack fails the tree. Storm does not do that."""
    acker = Acker(rules)
    notices_of(acker, init(1, A))
    for _ in range(3):
        acker.tick()
    assert notices_of(acker, ack(1, A)) == ["-"]
    assert [(root_id, entry.task) for root_id, entry in acker.pending()] == [(1, NO_TASK)]
    assert notices_of(acker, Fail(root_id=1), ResetTimeout(root_id=1)) == ["-", "-"]
    assert [list(acker.tick()) for _ in range(3)] == [[], [], [1]]


@both
def test_the_elapsed_time_counts_from_first_contact(rules: AckerRules) -> None:
    acker = Acker(rules)
    acker.receive(ack(1, A), at_ms=1_000)
    acker.receive(init(1, A, B), at_ms=1_200)
    reset = acker.receive(ResetTimeout(root_id=1), at_ms=1_300)
    done = acker.receive(ack(1, B), at_ms=1_450)
    assert reset is not None
    assert done is not None
    assert (reset.elapsed_ms, done.elapsed_ms) == (300, 450)


@both
def test_roots_are_independent(rules: AckerRules) -> None:
    acker = Acker(rules)
    assert notices_of(acker, init(1, A, task=4), init("one", B), ack("one", B)) == ["-", "-", "ACK one"]
    assert [root_id for root_id, _ in acker.pending()] == [1]


@both
def test_sums_wrap_at_64_bits(rules: AckerRules) -> None:
    """The sum keeps no carry, like a sum of 64-bit integers in a database."""
    top = 2**63 - 1
    acker = Acker(rules)
    notices_of(acker, init(1, top, top - 1))
    assert dict(acker.pending())[1].balance == (2, 1, -3)
    assert notices_of(acker, ack(1, top), ack(1, top - 1)) == ["-", "ACK 1"]


def test_an_entry_before_its_init_is_empty() -> None:
    acker = Acker()
    notices_of(acker, ResetTimeout(root_id=1))
    ((_, entry),) = acker.pending()
    assert (entry.balance, entry.initial, entry.task) == (NO_EDGES, None, NO_TASK)
