"""Publications, rollbacks, and the hold of the chain after a rollback."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from windowlib.bounds import MIN_TIME_MS


class PublicationId(NamedTuple):
    """Distinguishes a publication from one that was lost: its ledger version and its time in epoch ms; zeros for none.

    A ledger that has lost commits uses their versions again (`hindcast recover`), at another time.
    """

    seq: int = 0
    at_ms: int = 0

    def __str__(self) -> str:
        return f"publication {self.seq}" if self.seq else "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One change of what readers see. `changes` maps a slice id to its run id, or to None if the slice is hidden again.

    `seq` is the ledger version of the commit and names the publication. `undoes` is set for a rollback: it is the `seq`
    of the publication that the rollback reverts. `decision_id` names the decision or the DAG run that has published.
    `told_by` names the task that sends the asset events; None if no task does, because a command has published. It is
    empty in the ledgers of earlier versions. `chain_before` maps each slice of which a repair was seen before to the
    run of the chain at that time. A rollback restores it.
    """

    seq: int
    at_ms: int
    request_id: str | None
    who: str
    undoes: int | None
    decision_id: str | None = None
    told_by: str | None = ""
    changes: Mapping[str, str | None] = field(default_factory=dict)
    chain_before: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> PublicationId:
        """What a current table stores of the publication that it shows."""
        return PublicationId(self.seq, self.at_ms)

    @property
    def is_rollback(self) -> bool:
        return self.undoes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A rollback holds the chain: the schedule publishes nothing until a person publishes or resumes.

    `seq` is the ledger version of the rollback, `undoes` the publication that it reverted.
    """

    seq: int
    undoes: int
    who: str
    reason: str
    at_ms: int


def published_since(
    publications: Sequence[Publication], since_ms: int, *, newest: PublicationId | None = None
) -> Sequence[Publication]:
    """Return the publications after one that was the newest; if that is not known, those since an instant.

    The times are those of clocks that may be wrong. If a clock was ahead, the next publication tells that its
    publication is older. The time of a clock that went back is before that of an earlier one, and tells nothing.
    """
    ids = [PublicationId(), *(past.id for past in publications)]
    if newest is not None and newest in ids:
        return publications[ids.index(newest) :]
    last, last_ms = -1, MIN_TIME_MS
    for place, past in enumerate(publications):
        if last_ms <= past.at_ms <= since_ms:
            last, last_ms = place, past.at_ms
    return publications[last + 1 :]


def newest_id(publications: Sequence[Publication]) -> PublicationId:
    """Return the id of the newest publication or rollback."""
    return publications[-1].id if publications else PublicationId()


def standing(publications: Sequence[Publication]) -> Iterator[Publication]:
    """Yield the publications that no rollback has reverted, newest first. Only the newest can be rolled back."""
    undone: set[int | None] = set()
    for past in reversed(publications):  # a rollback is newer than what it reverts
        if past.is_rollback:
            undone.add(past.undoes)
        elif past.seq not in undone:
            yield past
