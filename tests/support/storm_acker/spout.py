"""A spout's side of the acker: the pending messages of a spout task, each kept for one to two message time-outs.

The acker sends no notice when an entry expires. The spout's own map of pending messages calls `fail` after the
time-out. For users: the audit has no spout.

Source: Storm 2.8.4, SpoutExecutor and SpoutOutputCollectorImpl.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, assert_never

from tests.support.storm_acker.anchors import EdgeIds, TrackedTuple, edge
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records.records import Value
from windowlib.records.tallies import NO_EDGES, signed, together
from windowlib.storm.acker.acker import RotatingMap
from windowlib.storm.acker.messages import NO_TASK, SPOUT_BUCKETS, Init, Notice, NoticeKind, RootId

MessageId = int | str
"""The user's id of a message. A message that is sent again after a failure keeps its id and gets a new root."""


class CallKind(Enum):
    """The method of the user's spout to call."""

    ACK = "ack"
    FAIL = "fail"


class Pending(NamedTuple):
    """A message that was sent and is neither acked nor failed: the user's id and values."""

    message_id: MessageId
    values: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutCall:
    """The end of a message: acked, failed by a bolt, or failed by time-out. After a failure the user sends it again."""

    kind: CallKind
    message: Pending
    is_timeout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """The result of one emit: a tuple per target, and either the message to the acker or, without acker, the call."""

    tuples: tuple[TrackedTuple, ...]
    init: Init | None = None
    call: SpoutCall | None = None


@dataclass(slots=True, kw_only=True)
class Spout:
    """One spout task. The caller calls `tick` once per message time-out, so a message fails after one to two time-outs.

    Args:
        task: the number of the task, to which the acker sends notices; not negative.
        ids: the generator of its root ids and edge ids.
        has_acker: if false, a message counts as processed when it is sent.
    """

    task: int
    ids: EdgeIds
    has_acker: bool = True
    _pending: RotatingMap[RootId, Pending] = field(default_factory=lambda: RotatingMap(SPOUT_BUCKETS), init=False)

    def __post_init__(self) -> None:
        if self.task < 0:
            raise SpecError(f"task must not be negative, got {self.task}; {NO_TASK} means to the acker: no spout yet")

    def emit(self, values: Value, *, message_id: MessageId | None, targets: int = 1) -> Emission:
        """Send a message to `targets` tasks. Without a message id, the message is not tracked."""
        if message_id is None or not self.has_acker:
            plain = tuple(TrackedTuple() for _ in range(targets))
            if message_id is None:
                return Emission(tuples=plain)
            return Emission(tuples=plain, call=SpoutCall(kind=CallKind.ACK, message=Pending(message_id, values)))
        root_id = self.ids.draw()
        edges = [edge(self.ids.draw()) for _ in range(targets)]
        anchored = NO_EDGES
        for one in edges:
            anchored = signed(together(anchored, one))
        self._pending.put(root_id, Pending(message_id, values))
        return Emission(
            tuples=tuple(TrackedTuple(roots={root_id: one}) for one in edges),
            init=Init(root_id=root_id, anchored=anchored, task=self.task),
        )

    def hear(self, notice: Notice) -> SpoutCall | None:
        """Process a notice of the acker; return the call to make, or None for a reset or an unknown message.

        Raises:
            InvariantBroken: the notice is for another spout task.
        """
        if notice.task != self.task:
            raise InvariantBroken(
                f"spout task {self.task} got the acker's {notice.kind.value} for task {notice.task}, root "
                f"{notice.root_id}; a notice must go to the task of the Init"
            )
        match notice.kind:
            case NoticeKind.ACK:
                return self._end(notice.root_id, CallKind.ACK)
            case NoticeKind.FAIL:
                return self._end(notice.root_id, CallKind.FAIL)
            case NoticeKind.RESET_TIMEOUT:
                message = self._pending.get(notice.root_id)
                if message is not None:
                    self._pending.put(notice.root_id, message)
                return None
            case _:
                assert_never(notice.kind)

    def tick(self) -> list[SpoutCall]:
        """Advance by one message time-out; return the failures of the expired messages, the oldest first."""
        dead = self._pending.rotate().values()
        return [SpoutCall(kind=CallKind.FAIL, message=message, is_timeout=True) for message in dead]

    def pending(self) -> list[Pending]:
        """Return the messages that are neither acked nor failed, the youngest bucket first."""
        return [message for _, _, message in self._pending.items()]

    def _end(self, root_id: RootId, kind: CallKind) -> SpoutCall | None:
        message = self._pending.remove(root_id)
        return None if message is None else SpoutCall(kind=kind, message=message)
