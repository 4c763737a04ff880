"""What a driver runs: an operator, whichever engine's semantics it has, and the spec that builds it.

Window operator, keyed process function, Storm's window manager and Atlas's stages are driven alike: the clock, then a
record, then the watermark that the record caused. A driver may leave out steps that no operator waits for.
"""

from typing import Protocol

from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import START, Fate, Output, Position, Record, Tally


class Operator(Protocol):
    """Many keys, driven from outside; reads no clock and does no I/O. All its memory is in its snapshot."""

    def begin(self, first_arrival_ms: int) -> None:
        """The clock stood at `first_arrival_ms` when the log's first record came, of whatever key.

        Called before the first record, and again after each restore; most operators do not care.
        """

    def process(self, record: Record) -> Fate:
        """Take in one record, judged against the watermark before it, and return its fate."""

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Let event time reach `watermark_ms`, because of what stands at `position`."""

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        """Let the clock reach `processing_time_ms`; without `inclusive`, what is due at that instant waits."""

    def next_event_timer_ms(self) -> int | None:
        """Return the lowest watermark that would do anything, None if none would.

        An operator that must see every watermark returns the one after the current.
        """

    def next_processing_timer_ms(self) -> int | None:
        """Return the earliest instant at which the clock would do anything, None if at none."""

    def drain(self) -> list[Output]:
        """Return the outputs since the last call, in the order in which they were emitted."""

    def take_tallies(self) -> dict[str, Tally]:
        """Return the edges since the last call: 'new', and 'closed:<reason>' for each reason."""

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows, in a fixed order; the operator goes on undisturbed."""

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the state of a snapshot; into a fresh operator only."""


class OperatorSpec(Protocol):
    """Builds operators; a frozen value that checked itself when it was made."""

    def build(self, groups: KeyGroupRange | None = None) -> Operator:
        """Return a fresh operator that owns `groups`, by default all of them."""
