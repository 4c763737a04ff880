"""The protocol of operators, and of the specs that build them, for all engines.

A driver runs the window operator, keyed process functions, Storm's window manager and Atlas's stages in the same way:
it advances the clock, passes a record, and then advances the watermark that the record caused. It may skip steps for
which no operator waits.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.state_rules import StateRules
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.record_columns import RecordColumns
from windowlib.records.records import START, Fate, OnlyPanes, Output, Position, Record, Tally


class Operator(Protocol):
    """Processes the records of many keys. It reads no clock and does no I/O. Its snapshot contains all its state."""

    def begin(self, first_arrival_ms: int) -> None:
        """Take the arrival time of the log's first record of any key.

        Called before the first record and again after each restore. Most operators ignore it.
        """

    def process(self, record: Record) -> Fate:
        """Process one record and return its fate, which depends on the current watermark."""

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Advance event time to `watermark_ms`. The record at `position` caused it.

        Raises InvariantBroken: the watermark is less than the current one, and the profile does not allow that.
        """

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        """Advance the clock to `processing_time_ms`. Without `inclusive`, timers at that instant do not fire yet."""

    def next_event_timer_ms(self) -> int | None:
        """Return the lowest watermark that has an effect, None if there is none.

        An operator that needs every watermark returns the current watermark + 1.
        """

    def next_processing_timer_ms(self) -> int | None:
        """Return the earliest instant at which the clock has an effect, None if there is none."""

    def drain(self) -> list[Output]:
        """Return the outputs since the last call, in the order of their emission."""

    def take_tallies(self) -> dict[str, Tally]:
        """Return the edges since the last call: 'new', and 'closed:<reason>' for each reason."""

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows, in a fixed order. The operator is not changed."""

    def restore(self, snapshot: Snapshot) -> None:
        """Load the state of a snapshot. Allowed only in a fresh operator.

        Raises CheckpointError: the snapshot has another version or other key groups, or a row is damaged.
        """


@runtime_checkable
class BulkOperator(Operator, Protocol):
    """An operator that can process many records in one call, for a fraction of the cost of one call each."""

    def quiet_until_ms(self) -> int | None:
        """Return an instant: until the watermark reaches it, `process_together` may replace `process`.

        Until then no timer is due, whatever records come. None: records have to be processed one by one.
        """

    def process_together(self, records: RecordColumns, chosen: range) -> tuple[int, Sequence[int]]:
        """Process the chosen records, or the first of them. `quiet_until_ms` is above all watermarks that they meet.

        Returns:
            The place after the last record, and the places of the records before it that the caller has to pass to
            `process` afterwards, each at its own watermark. All others are processed and assigned.
        """

    def drain_together(self) -> list[Output | OnlyPanes]:
        """Return the outputs as `drain`, but panes that were computed together as one element."""


class OperatorSpec(Protocol):
    """Builds operators. A spec is a frozen value, which is checked on construction."""

    def build(self, groups: KeyGroupRange | None = None) -> Operator:
        """Return a fresh operator that owns the key groups of `groups`, by default all."""


class RestorableSpec(OperatorSpec, Protocol):
    """A spec whose state a checkpoint can hold."""

    def state_rules(self) -> StateRules:
        """Return what the rows of the operator's state can contain."""
