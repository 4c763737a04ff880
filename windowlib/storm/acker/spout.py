"""A spout's side of the acker: what it has sent and not heard of, for one to two message time-outs.

The acker forgets in silence; it is this map that calls `fail`. Source: Storm 2.8.4, SpoutExecutor and
SpoutOutputCollectorImpl; SEMANTICS.md section 2.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, assert_never

from windowlib.errors import CheckpointError, InvariantBroken, SpecError
from windowlib.records.records import Value
from windowlib.records.tallies import NO_EDGES, signed, together
from windowlib.storm.acker.anchors import EdgeIds, TrackedTuple, edge
from windowlib.storm.acker.messages import SPOUT_BUCKETS, Init, Notice, NoticeKind, RootId
from windowlib.storm.acker.rotating_map import RotatingMap

MessageId = int | str
"""The user's name of a message; sent again after a failure, it keeps the name and gets a new root."""


class CallKind(Enum):
    """Which method of the user's spout is called."""

    ACK = "ack"
    FAIL = "fail"


class Pending(NamedTuple):
    """A message that was sent and not heard of: the user's id and values, JSON-able."""

    message_id: MessageId
    values: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutCall:
    """The end of a message for its spout: acked, or failed, by a bolt or by time; after a failure, send it again."""

    kind: CallKind
    message: Pending
    is_timeout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What one emit leads to: a tuple per target, word to the acker, or without an acker the call at once."""

    tuples: tuple[TrackedTuple, ...]
    init: Init | None = None
    call: SpoutCall | None = None


class SpoutRow(NamedTuple):
    """One message in a checkpoint; `age` counts ticks since it was sent or reset. JSON-able."""

    age: int
    root_id: RootId
    message_id: MessageId
    values: Value


class SpoutSnapshot(NamedTuple):
    """All state of a spout task; JSON-able."""

    seed: int
    drawn: int
    rows: Sequence[SpoutRow]


@dataclass(slots=True, kw_only=True)
class Spout:
    """One spout task. `tick` comes once per message time-out, so a message fails after one to two of them.

    Args:
        task: its number, by which the acker finds it; not negative.
        ids: where its roots and edges come from.
        has_acker: without one, a message counts as processed as soon as it is sent.
    """

    task: int
    ids: EdgeIds
    has_acker: bool = True
    _pending: RotatingMap[RootId, Pending] = field(default_factory=lambda: RotatingMap(SPOUT_BUCKETS), init=False)

    def __post_init__(self) -> None:
        if self.task < 0:
            raise SpecError(f"task must not be negative, got {self.task}: the acker takes that for no spout at all")

    def emit(self, values: Value, *, message_id: MessageId | None, targets: int = 1) -> Emission:
        """Send a message to `targets` tasks; without a message id it is not tracked, and never heard of again."""
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
        """Take in what the acker says; None where nothing is to be done, or the message is over already.

        Raises:
            InvariantBroken: the notice is for another spout task.
        """
        if notice.task != self.task:
            raise InvariantBroken(
                f"spout task {self.task} got the acker's {notice.kind.value} for task {notice.task}, root "
                f"{notice.root_id}; notices go to the task of the Init"
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
        """Let one message time-out pass; return the failures of those that have waited too long, the oldest first."""
        dead = self._pending.rotate().values()
        return [SpoutCall(kind=CallKind.FAIL, message=message, is_timeout=True) for message in dead]

    def pending(self) -> list[Pending]:
        """Return the messages that were sent and not heard of, the youngest bucket first."""
        return [message for _, _, message in self._pending.items()]

    def snapshot(self) -> SpoutSnapshot:
        """Return all state as plain rows."""
        rows = [SpoutRow(age, root_id, *message) for age, root_id, message in self._pending.items()]
        return SpoutSnapshot(self.ids.seed, self.ids.drawn, rows)

    def restore(self, snapshot: SpoutSnapshot) -> None:
        """Take over a snapshot, as it is or as it comes out of JSON; into a fresh spout only.

        Raises:
            CheckpointError: this spout has sent something already, or the rows do not fit.
        """
        seed, drawn, rows = snapshot
        if self.ids.drawn:
            raise CheckpointError(
                f"spout task {self.task} has drawn {self.ids.drawn} ids of seed {self.ids.seed} and cannot take over "
                f"those of seed {seed}; restore into a fresh spout"
            )
        self._pending.restore([(row[0], row[1], Pending(row[2], row[3])) for row in rows])
        self.ids = EdgeIds(seed=seed, drawn=drawn)

    def _end(self, root_id: RootId, kind: CallKind) -> SpoutCall | None:
        message = self._pending.remove(root_id)
        return None if message is None else SpoutCall(kind=kind, message=message)
