"""The protocol of operators, and of the specs that build them, for all engines.

A driver runs the window operator, keyed process functions, Storm's window manager and Atlas's stages in the same way:
it advances the clock, passes a record, and then advances the watermark that the record caused. It may skip steps for
which no operator waits.
"""

from typing import Protocol

from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import START, Fate, Output, Position, Record, Tally


class Operator(Protocol):
    """Processes the records of many keys. It reads no clock and does no I/O. Its snapshot contains all its state."""

    def begin(self, first_arrival_ms: int) -> None:
        """Take the arrival time of the log's first record of any key.

        Called before the first record and again after each restore. Most operators ignore it.
        """

    def process(self, record: Record) -> Fate:
        """Process one record and return its fate, which depends on the current watermark."""

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Advance event time to `watermark_ms`. The record at `position` caused it."""

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
        """Load the state of a snapshot. Allowed only in a fresh operator."""


class OperatorSpec(Protocol):
    """Builds operators. A spec is a frozen value, which is checked on construction."""

    def build(self, groups: KeyGroupRange | None = None) -> Operator:
        """Return a fresh operator that owns the key groups of `groups`, by default all."""
