"""What clean-ups have removed: the `removed` events of a ledger.

The event is written before the rows are deleted. So a reader that misses rows can tell a clean-up from damage, and the
next clean-up finishes one that was killed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from jobs.ledger.events import EventKind, LedgerEvent
from jobs.runs import SHOWN_DIGITS
from windowlib.errors import LedgerError, RequestError

StoredAttempt = tuple[str, str]
"""(slice_id, attempt_id): the rows that one attempt stored for one slice."""


class Why(Enum):
    """Why rows were removed. The ledger stores the values. The first three are keys of `retention` in a file."""

    SUPERSEDED = "superseded"  # readers have seen the run, and see another one now
    UNPUBLISHED = "unpublished"  # no reader has seen the attempt
    CHECKPOINTS = "checkpoints"  # only the rows of the state; readers see the other rows
    MENDED = "mended"  # they were damaged, and another attempt at the run counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The clean-up that removed rows: the ledger version and the time of its event, the person, and why."""

    seq: int
    at_ms: int
    who: str
    why: Why

    def __str__(self) -> str:
        day = datetime.fromtimestamp(self.at_ms / 1000, tz=UTC).date()
        return f"a clean-up of {self.who} on {day} ({self.why.value} rows; ledger version {self.seq})"

    def run_error(self, run_id: str, slice_id: str) -> LedgerError:
        """Return the error for a reader of a run whose rows were removed."""
        return LedgerError(
            f"the rows of run {run_id[:SHOWN_DIGITS]} of slice {slice_id} were removed by {self}. What readers see now "
            "has other runs"
        )

    def state_error(self, slice_id: str) -> RequestError:
        return RequestError(
            f"the state after slice {slice_id} was removed by {self}, so no replay can start from it. Begin the range "
            "at the slice after it, with --warm-up"
        )


def removed_event(removed: Mapping[StoredAttempt, Why], *, who: str, reason: str) -> LedgerEvent:
    """Return the event that records what a clean-up is going to delete."""
    details: dict[str, dict[str, list[str]]] = {}
    for (slice_id, attempt_id), why in sorted(removed.items()):
        details.setdefault(why.value, {}).setdefault(attempt_id, []).append(slice_id)
    return LedgerEvent(kind=EventKind.REMOVED, who=who, reason=reason, details=details)


def removals_of(event: LedgerEvent) -> Iterator[tuple[StoredAttempt, Removal]]:
    """Yield what a `removed` event records."""
    for why, attempts in event.details.items():
        removal = Removal(seq=event.seq, at_ms=event.at_ms, who=event.who or "", why=Why(why))
        for attempt_id, slice_ids in attempts.items():
            yield from (((slice_id, attempt_id), removal) for slice_id in slice_ids)
