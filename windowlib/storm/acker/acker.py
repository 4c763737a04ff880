"""Storm's acker: one small ledger entry per tuple tree tells whether the whole tree has been processed.

An edge is entered when a tuple is anchored and again when it is acked. When what was anchored and what was acked cancel
out, every tuple of the tree was processed, however large the tree. A message that is lost, or comes twice, leaves the
entry open; it is forgotten at the third tick after its last renewal, and its spout, which waits less long
(windowlib.storm.acker.spout), sends the root again.

Storm compares the XOR of the ids alone. It cannot see an even number of equal messages; the strict rules compare count
and wrapping sum as well. Source: Storm 2.8.4, Acker; SEMANTICS.md section 2.5.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from windowlib.errors import CheckpointError
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
from windowlib.storm.acker.rotating_map import RotatingMap


@dataclass(frozen=True, slots=True, kw_only=True)
class AckerRules:
    """The points in which the profiles differ. The defaults are the strict reading."""

    compares_count_and_sum: bool = True
    """A tree is complete when count, XOR and sum are zero. Storm looks at the XOR: a tripled ack goes unseen."""
    keeps_first_init: bool = True
    """An init that repeats the first is ignored, one that contradicts it fails the tree. In Storm the two cancel each
    other out: a false ACK (S5)."""
    failure_is_final: bool = True
    """A tree that a bolt has failed is reported as failed. In Storm an ACK comes first, if all else was acked."""


STRICT: Final = AckerRules()
"""The default: no tree is reported as complete that is not."""
STORM: Final = AckerRules(compares_count_and_sum=False, keeps_first_init=False, failure_is_final=False)
"""Bit-exact with Apache Storm 2.8.4, its defects included."""


@dataclass(slots=True, kw_only=True)
class LedgerEntry:
    """What the acker knows of one tree: `balance` is what was anchored less what was acked, in 64-bit words.

    `initial` is what its `Init` anchored and `task` the spout that sent it; None and `NO_TASK` before it comes.
    """

    started_ms: int
    balance: Edges = NO_EDGES
    initial: Edges | None = None
    task: int = NO_TASK
    has_failed: bool = False


class AckerRow(NamedTuple):
    """One entry in a checkpoint; `age` counts ticks since it was renewed. JSON-able, and stands for no object."""

    age: int
    root_id: RootId
    started_ms: int
    balance: Edges
    initial: Edges | None
    task: int
    has_failed: bool


class Acker:
    """The ledger of all trees under way. It reads no clock: rotation comes from `tick`, once per message time-out.

    >>> acker = Acker()
    >>> acker.receive(Init(root_id=7, anchored=(1, 4, 4), task=0))
    >>> acker.receive(Ack(root_id=7, acked=(1, 4, 4))).kind
    <NoticeKind.ACK: 'ACK'>
    """

    __slots__ = ("_pending", "_rules")

    def __init__(self, rules: AckerRules = STRICT) -> None:
        """Start with no trees."""
        self._rules = rules
        self._pending = RotatingMap[RootId, LedgerEntry](ACKER_BUCKETS)

    def __len__(self) -> int:
        return len(self._pending)

    def receive(self, message: Message, *, at_ms: int = 0) -> Notice | None:
        """Enter one message, in whatever order they come; return what a spout has to hear of it, if anything.

        Only the first message of a root, a failure and a reset renew an entry: a tree whose tuples are still being
        acked expires all the same. A message that comes after the end of its tree opens an entry without a spout: an
        orphan, of which nobody hears, and which expires.

        Args:
            message: from a spout or a bolt.
            at_ms: what the caller's clock says, for `Notice.elapsed_ms`.
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
        """Let one message time-out pass; return the entries that it expired. No spout hears of them from here."""
        return self._pending.rotate()

    def pending(self) -> Iterator[tuple[RootId, LedgerEntry]]:
        """Yield the trees that are open, orphans among them, the youngest bucket first."""
        return ((root_id, entry) for _, root_id, entry in self._pending.items())

    def snapshot(self) -> list[AckerRow]:
        """Return all state as plain rows."""
        return [
            AckerRow(age, root_id, one.started_ms, one.balance, one.initial, one.task, one.has_failed)
            for age, root_id, one in self._pending.items()
        ]

    def restore(self, rows: Sequence[AckerRow]) -> None:
        """Take over the rows of a snapshot, as they are or as they come out of JSON; into a fresh acker only.

        Raises:
            CheckpointError: this acker has trees, or the rows do not fit.
        """
        wrong = next((row for row in rows if len(row) != len(AckerRow._fields)), None)
        if wrong is not None:
            raise CheckpointError(
                f"a row of an acker's checkpoint has {len(wrong)} fields instead of {len(AckerRow._fields)} "
                f"({', '.join(AckerRow._fields)}): {wrong!r}; it is damaged, or of another version"
            )
        self._pending.restore([(row[0], row[1], _entry(AckerRow(*row))) for row in rows])

    def _enter(self, entry: LedgerEntry, message: Message) -> None:
        match message:
            case Init():
                self._init(entry, message)
            case Ack():
                entry.balance = signed(together(difference(entry.balance, message.acked), message.anchored))
            case Fail():
                entry.has_failed = True
            case ResetTimeout():
                pass  # it renews the entry, and that is all
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


def _entry(row: AckerRow) -> LedgerEntry:
    return LedgerEntry(
        started_ms=row.started_ms,
        balance=_edges(row.balance),
        initial=None if row.initial is None else _edges(row.initial),
        task=row.task,
        has_failed=row.has_failed,
    )


def _edges(parts: Sequence[int]) -> Edges:
    """JSON has lists where a snapshot has tuples, and a tuple must stay equal to a tuple."""
    count, xor, total = parts
    return count, xor, total
