"""Storm's acker: one ledger entry of fixed size per tuple tree shows whether the whole tree was processed.

The acker enters an edge when a tuple is anchored and again when it is acked. When the anchored and the acked edges
cancel out, every tuple of the tree was processed. If a message is lost or arrives twice, the entry stays open. The
acker drops an open entry at the third tick after its last renewal. A spout of Storm has a shorter
time-out and sends the root again.

Storm compares only the XOR of the ids, so it does not detect an even number of equal messages. The strict rules also
compare the count and the wrapping sum. Source: Storm 2.8.4, org.apache.storm.daemon.Acker.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, assert_never

from windowlib.errors import SpecError
from windowlib.records.tallies import NO_EDGES, Edges, difference, signed, together
from windowlib.storm.acker.messages import (
    ACKER_BUCKETS,
    NO_TASK,
    Ack,
    Fail,
    Init,
    Message,
    Notice,
    NoticeKind,
    ResetTimeout,
    RootId,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """Buckets of entries, the newest first. An entry survives `buckets - 1` rotations after it was last put.

    >>> ages = RotatingMap[str, int](2)
    >>> ages.put("a", 1)
    >>> ages.rotate(), ages.rotate()
    ({}, {'a': 1})
    """

    __slots__ = ("_buckets",)

    def __init__(self, buckets: int) -> None:
        if buckets < 2:  # noqa: PLR2004 - with one bucket, the next rotation drops an entry that was just put
            raise SpecError(f"a rotating map needs at least 2 buckets, got {buckets}")
        self._buckets: list[dict[K, V]] = [{} for _ in range(buckets)]

    def get(self, key: K) -> V | None:
        """Return the entry of `key`, or None. This does not renew the entry."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        return None

    def put(self, key: K, value: V) -> None:
        """Set the entry of `key` and renew it: its age becomes 0."""
        self.remove(key)
        self._buckets[0][key] = value

    def remove(self, key: K) -> V | None:
        for bucket in self._buckets:
            if key in bucket:
                return bucket.pop(key)
        return None

    def rotate(self) -> dict[K, V]:
        """Increase the age of every entry by 1; remove and return the expired ones in the order of `put`."""
        dead = self._buckets.pop()
        self._buckets.insert(0, {})
        return dead

    def items(self) -> Iterator[tuple[int, K, V]]:
        """Yield `(age, key, value)`: the youngest bucket (age 0) first, and each bucket in the order of `put`."""
        for age, bucket in enumerate(self._buckets):
            for key, value in bucket.items():
                yield age, key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class AckerRules:
    """The points in which the profiles differ. The defaults are the profile strict."""

    compares_count_and_sum: bool = True
    """A tree is complete when count, XOR and sum are zero. Storm compares only the XOR and accepts a tripled ack."""
    keeps_first_init: bool = True
    """An init that repeats the first is ignored; an init that contradicts the first fails the tree. In Storm, two equal
    inits cancel each other out, which gives a false ACK (S5)."""
    failure_is_final: bool = True
    """A tree that a bolt has failed is reported as failed. Storm reports an ACK if all other tuples are acked."""


STRICT: Final = AckerRules()
"""The default: a tree is reported as complete only if it is complete."""
STORM: Final = AckerRules(compares_count_and_sum=False, keeps_first_init=False, failure_is_final=False)
"""Bit-exact with Apache Storm 2.8.4, its defects included."""


@dataclass(slots=True, kw_only=True)
class LedgerEntry:
    """The acker's entry of one tree. `balance` is the anchored edges minus the acked edges, in 64-bit words.

    `initial` is the edges of the tree's `Init`, and `task` is the spout that sent it. Before the `Init` arrives they
    are None and `NO_TASK`.
    """

    started_ms: int
    balance: Edges = NO_EDGES
    initial: Edges | None = None
    task: int = NO_TASK
    has_failed: bool = False


class Acker:
    """The ledger of all open trees. It reads no clock: the caller calls `tick` once per message time-out.

    >>> acker = Acker()
    >>> acker.receive(Init(root_id=7, anchored=(1, 4, 4), task=0))
    >>> acker.receive(Ack(root_id=7, acked=(1, 4, 4))).kind
    <NoticeKind.ACK: 'ACK'>
    """

    __slots__ = ("_pending", "_rules")

    def __init__(self, rules: AckerRules = STRICT) -> None:
        self._rules = rules
        self._pending = RotatingMap[RootId, LedgerEntry](ACKER_BUCKETS)

    def receive(self, message: Message, *, at_ms: int = 0) -> Notice | None:
        """Enter one message and return the notice for the spout, or None. Messages may arrive in any order.

        Only the first message of a root, a failure and a reset renew an entry. Acks do not renew it, so a tree can
        expire while its tuples are being acked. A message that arrives after the end of its tree opens an entry without
        a spout (an orphan). An orphan causes no notice, and it expires. `at_ms` is the time of the caller's clock, for
        `Notice.elapsed_ms`.
        """
        entry = self._pending.get(message.root_id)
        is_new = entry is None
        if entry is None:
            entry = LedgerEntry(started_ms=at_ms)
        self._enter(entry, message)
        if is_new or isinstance(message, Fail | ResetTimeout):
            self._pending.put(message.root_id, entry)
        kind = self._verdict(entry, is_reset=isinstance(message, ResetTimeout))
        if kind is None:
            return None
        if kind is not NoticeKind.RESET_TIMEOUT:
            self._pending.remove(message.root_id)
        return Notice(kind=kind, root_id=message.root_id, task=entry.task, elapsed_ms=at_ms - entry.started_ms)

    def tick(self) -> dict[RootId, LedgerEntry]:
        """Advance by one message time-out and return the expired entries. The acker sends no notice for them."""
        return self._pending.rotate()

    def pending(self) -> Iterator[tuple[RootId, LedgerEntry]]:
        """Yield the open trees, including orphans, with the youngest bucket first."""
        return ((root_id, entry) for _, root_id, entry in self._pending.items())

    def _enter(self, entry: LedgerEntry, message: Message) -> None:
        match message:
            case Init():
                self._init(entry, message)
            case Ack():
                entry.balance = signed(together(difference(entry.balance, message.acked), message.anchored))
            case Fail():
                entry.has_failed = True
            case ResetTimeout():
                pass  # `receive` renews the entry; the balance does not change
            case _:
                assert_never(message)

    def _init(self, entry: LedgerEntry, message: Init) -> None:
        if self._rules.keeps_first_init and entry.initial is not None:
            is_repeated = (entry.initial, entry.task) == (message.anchored, message.task)
            entry.has_failed = entry.has_failed or not is_repeated
            return
        entry.balance = signed(together(entry.balance, message.anchored))
        entry.initial, entry.task = message.anchored, message.task

    def _verdict(self, entry: LedgerEntry, *, is_reset: bool) -> NoticeKind | None:
        if entry.task < 0:
            return None
        rules = self._rules
        if entry.has_failed and rules.failure_is_final:
            return NoticeKind.FAIL
        if entry.balance == NO_EDGES or (not rules.compares_count_and_sum and entry.balance[1] == 0):
            return NoticeKind.ACK
        if entry.has_failed:
            return NoticeKind.FAIL
        return NoticeKind.RESET_TIMEOUT if is_reset else None
