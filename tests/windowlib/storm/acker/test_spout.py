"""The spout's side of the acker: messages without an id or an acker, time-outs, replay (Storm 2.8.4, SpoutExecutor)."""

import pytest

from tests.support.storm_acker.anchors import EdgeIds, TrackedTuple, acks, anchor, fails, resets
from tests.support.storm_acker.spout import CallKind, Emission, Pending, Spout, SpoutCall
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records.tallies import NO_EDGES
from windowlib.storm.acker.acker import STORM, STRICT, Acker, AckerRules
from windowlib.storm.acker.messages import Init, Notice, NoticeKind

both = pytest.mark.parametrize("rules", [pytest.param(STORM, id="storm"), pytest.param(STRICT, id="strict")])


def spout(*, has_acker: bool = True) -> Spout:
    return Spout(task=4, ids=EdgeIds(seed=7), has_acker=has_acker)


def init_of(sent: Emission) -> Init:
    assert sent.init is not None
    return sent.init


def hear(task: Spout, acker: Acker, sent: Emission) -> SpoutCall | None:
    """Ack all tuples of an emission, and return the spout's call after the last ack."""
    acker.receive(init_of(sent))
    notices = [acker.receive(message) for each in sent.tuples for message in acks(each)]
    assert notices[:-1] == [None] * (len(notices) - 1)
    assert notices[-1] is not None
    return task.hear(notices[-1])


@both
def test_a_message_is_acked_when_all_its_tuples_are(rules: AckerRules) -> None:
    task = spout()
    sent = task.emit({"n": 1}, message_id="m", targets=3)
    assert task.pending() == [Pending("m", {"n": 1})]
    assert hear(task, Acker(rules), sent) == SpoutCall(kind=CallKind.ACK, message=Pending("m", {"n": 1}))
    assert task.pending() == []


def test_a_message_has_one_edge_to_its_root_per_target() -> None:
    sent = spout().emit("x", message_id=1, targets=2)
    first, second = (part.roots[init_of(sent).root_id] for part in sent.tuples)
    assert first[0] == second[0] == 1
    assert init_of(sent).anchored[1] == first[1] ^ second[1], "Storm's value: the XOR of the ids"


def test_a_message_without_id_is_not_tracked() -> None:
    task = spout()
    sent = task.emit("x", message_id=None, targets=2)
    assert (sent.init, sent.call, task.pending()) == (None, None, [])
    assert [acks(each) for each in sent.tuples] == [[], []]
    child = anchor(sent.tuples, task.ids)
    assert child == TrackedTuple(), "what is derived from it is not tracked either"
    assert task.ids.drawn == 0


def test_without_an_acker_a_message_counts_as_processed_when_it_is_sent() -> None:
    task = spout(has_acker=False)
    sent = task.emit("x", message_id=9)
    assert sent.init is None
    assert sent.call == SpoutCall(kind=CallKind.ACK, message=Pending(9, "x"))
    assert task.pending() == []
    assert task.emit("x", message_id=None).call is None


@both
def test_a_message_without_targets_is_acked_by_the_acker(rules: AckerRules) -> None:
    task = spout()
    sent = task.emit("x", message_id=1, targets=0)
    assert init_of(sent).anchored == NO_EDGES
    notice = Acker(rules).receive(init_of(sent))
    assert notice is not None
    assert task.hear(notice) == SpoutCall(kind=CallKind.ACK, message=Pending(1, "x"))


def test_a_message_fails_after_one_to_two_time_outs() -> None:
    task = spout()
    task.emit("just after a tick", message_id=1)
    assert task.tick() == []
    task.emit("just before a tick", message_id=2)
    assert task.tick() == [SpoutCall(kind=CallKind.FAIL, message=Pending(1, "just after a tick"), is_timeout=True)]
    assert task.tick() == [SpoutCall(kind=CallKind.FAIL, message=Pending(2, "just before a tick"), is_timeout=True)]
    assert task.tick() == []


@both
def test_the_spout_fails_a_lost_tree_before_the_acker_forgets_it(rules: AckerRules) -> None:
    task, acker = spout(), Acker(rules)
    acker.receive(init_of(task.emit("x", message_id=1)))
    failed_at = next(tick for tick in range(1, 9) if (task.tick(), acker.tick())[0])
    assert failed_at == 2
    assert len(list(acker.pending())) == 1
    assert list(acker.tick()) != []


@both
def test_a_failed_message_is_replayed_under_a_new_root_and_the_old_root_is_ignored(rules: AckerRules) -> None:
    task, acker = spout(), Acker(rules)
    first = task.emit("x", message_id="m")
    acker.receive(init_of(first))
    task.tick()
    (failed,) = task.tick()
    again = task.emit(failed.message.values, message_id=failed.message.message_id)
    assert init_of(again).root_id != init_of(first).root_id
    assert hear(task, acker, again) == SpoutCall(kind=CallKind.ACK, message=Pending("m", "x"))
    late = [acker.receive(message) for message in acks(first.tuples[0])]
    assert late[0] is not None, "the acker still had the old entry"
    assert task.hear(late[0]) is None, "the spout no longer has the old message"


@both
def test_a_bolt_that_fails_a_tuple_fails_its_message_once(rules: AckerRules) -> None:
    task, acker = spout(), Acker(rules)
    sent = task.emit("x", message_id=1, targets=2)
    acker.receive(init_of(sent))
    (notice,) = [acker.receive(message) for message in fails(sent.tuples[0])]
    assert notice is not None
    assert task.hear(notice) == SpoutCall(kind=CallKind.FAIL, message=Pending(1, "x"), is_timeout=False)
    assert [acker.receive(message) for message in fails(sent.tuples[1])] == [None], "an orphan has no spout"
    assert task.hear(notice) is None


@both
def test_a_reset_restarts_the_time_outs_of_spout_and_acker(rules: AckerRules) -> None:
    task, acker = spout(), Acker(rules)
    sent = task.emit("x", message_id=1)
    acker.receive(init_of(sent))
    for _ in range(5):
        assert task.tick() == []
        assert acker.tick() == {}
        (notice,) = [acker.receive(message) for message in resets(sent.tuples[0])]
        assert notice is not None
        assert notice.kind is NoticeKind.RESET_TIMEOUT
        assert task.hear(notice) is None
    assert task.tick() == []
    assert len(task.tick()) == 1
    stale = Notice(kind=NoticeKind.RESET_TIMEOUT, root_id=init_of(sent).root_id, task=4, elapsed_ms=0)
    assert task.hear(stale) is None
    assert task.pending() == [], "a reset does not renew a message that has ended"


def test_a_notice_for_another_task_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="spout task 4 got the acker's ACK for task 5, root 1"):
        spout().hear(Notice(kind=NoticeKind.ACK, root_id=1, task=5, elapsed_ms=0))
    with pytest.raises(SpecError, match="task must not be negative, got -1"):
        Spout(task=-1, ids=EdgeIds(seed=1))
    assert Spout(task=0, ids=EdgeIds(seed=1)).pending() == []
