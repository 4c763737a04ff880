"""The event by which a person accepts commits of the log that removed or changed records, and its words for people."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from jobs.lake.rewrites import Rewrite, RewrittenSlice
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.plain_text import counted, shortened

_MAX_REASON = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRewrite:
    """A commit of the log that a person has accepted. `table_id` is Delta's id of the table, `seq` the ledger version.

    A pipeline accepts for itself: the ledger of another pipeline on the same log does not have the event.
    """

    table_id: str
    rewrite: Rewrite
    who: str
    reason: str
    at_ms: int
    seq: int

    def words(self, slice_ids: Collection[str]) -> str:
        """Return what the commit did to some of its slices, as a sentence without a full stop."""
        own = [loss for name, loss in self.rewrite.slices.items() if name in slice_ids]
        known = [loss.before - loss.after for loss in own if loss.before is not None and loss.after is not None]
        removed = sum(known)
        commit = f"by the accepted commit {self.rewrite.version} ({shortened(self.reason, _MAX_REASON)})"
        if len(known) < len(own):
            return f"records were removed or changed {commit}"
        if removed <= 0:
            return f"records were changed {commit}"
        return f"{counted(removed, 'record')} {'was' if removed == 1 else 'were'} removed {commit}"

    @classmethod
    def of(cls, event: LedgerEvent) -> tuple[Self, ...]:
        """Return the commits that an `accepted` event records."""
        table_id = str(event.details["table_id"])
        rewrites = [_rewrite(commit) for commit in event.details["commits"]]
        who, reason = event.who or "", event.reason or ""
        return tuple(
            cls(table_id=table_id, rewrite=rewrite, who=who, reason=reason, at_ms=event.at_ms, seq=event.seq)
            for rewrite in rewrites
        )


def accepted_event(table_id: str, rewrites: Sequence[Rewrite], *, who: str, reason: str) -> LedgerEvent:
    """Return the `accepted` event of commits of a table.

    A ledger is never shortened, and the condition of a DELETE can name a person. So the event has no condition.
    """
    commits = [asdict(replace(rewrite, predicate="")) for rewrite in rewrites]
    details = {"table_id": table_id, "commits": commits}
    return LedgerEvent(kind=EventKind.ACCEPTED, who=who, reason=reason, details=details)


def told_together(slices: Iterable[tuple[str, Sequence[AcceptedRewrite]]]) -> list[str]:
    """Return what accepted commits did to slices, one sentence for each commit. Each slice has its own commits."""
    touched: dict[tuple[str, int], list[str]] = {}
    accepted: dict[tuple[str, int], AcceptedRewrite] = {}
    for slice_id, own in slices:
        for entry in own:
            key = entry.table_id, entry.rewrite.version
            accepted[key] = entry
            touched.setdefault(key, []).append(slice_id)
    return [accepted[key].words(names) for key, names in touched.items()]


def by_table(accepted: Sequence[AcceptedRewrite]) -> dict[str, dict[int, Rewrite]]:
    """Return table id -> version -> accepted commit."""
    commits: dict[str, dict[int, Rewrite]] = {}
    for entry in accepted:
        commits.setdefault(entry.table_id, {})[entry.rewrite.version] = entry.rewrite
    return commits


def _rewrite(stored: Mapping[str, Any]) -> Rewrite:
    slices = {
        name: RewrittenSlice(
            before=numbers["before"],
            after=numbers["after"],
            removed_files=tuple(numbers["removed_files"]),
            added_files=tuple(numbers["added_files"]),
        )
        for name, numbers in stored["slices"].items()
    }
    return Rewrite(**{**stored, "slices": slices, "vectors": dict(stored["vectors"])})
