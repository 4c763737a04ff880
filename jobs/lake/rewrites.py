"""Commits of an event log that removed or changed records of slices: what a person sees, and what a ledger accepts.

An append-only log has none. If a person has accepted one (`hindcast accept-rewrite`), readers of the log take it as a
change of the slices that it names, and no longer refuse these slices.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from jobs.lake.log_files import Entry, commit_info
from windowlib.errors import LogError

ACCEPT: Final = "`hindcast accept-rewrite PIPELINE --reason …`"
"""The command that accepts commits, in messages of code that does not know the pipeline."""
NEW_TABLE: Final = "append the records that are left to a new table, and name it in `log.table`"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSlice:
    """What a commit did to a slice: the number of records before it and after it (None: not known), and the files."""

    before: int | None
    after: int | None
    removed_files: tuple[str, ...] = ()
    added_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A commit that removed or changed records.

    `operation` and `predicate` are those that the writer has recorded; `predicate` may be empty. `at_ms` is the time of
    the commit, None if it records none. `actions` is `actions_digest`, by which another commit of the same version is
    told apart. `slices` maps a slice to what the commit did to it. `vectors` maps a file to the digest of the deletion
    vector that it has since the commit.
    """

    version: int
    operation: str
    predicate: str
    at_ms: int | None
    actions: str
    slices: Mapping[str, RewrittenSlice]
    vectors: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> str:
        return f"commit {self.version} ({self.operation})"


def actions_digest(entries: Sequence[Entry]) -> str:
    """Return a digest of the files that a commit adds and removes, with their deletion vectors."""
    lines = sorted(
        json.dumps([kind, entry[kind]["path"], entry[kind].get("deletionVector")], sort_keys=True)
        for entry in entries
        for kind in ("add", "remove")
        if kind in entry
    )
    return hashlib.blake2b("\n".join(lines).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def predicate_of(entries: Sequence[Entry]) -> str:
    """Return the condition of a DELETE, UPDATE or MERGE as its writer has recorded it; empty if there is none."""
    predicate = (commit_info(entries).get("operationParameters") or {}).get("predicate") or ""
    try:
        parsed = json.loads(predicate)  # Spark records a list of conditions as JSON
    except (TypeError, ValueError):
        return str(predicate)
    return " AND ".join(map(str, parsed)) if isinstance(parsed, list) else str(predicate)


def removed_records(uri: str, slice_id: str, removal: tuple[int, str], *, why_not_accepted: str) -> LogError:
    """Return the error for a slice whose records a commit (version, operation) removed or changed."""
    version, operation = removal
    what = f"commit {version} ({operation}) removed or changed records of slice {slice_id} in event log {uri}"
    if why_not_accepted:
        return LogError(
            f"{what}. Ranges without this slice can be replayed, and what readers see has not changed. The commit "
            f"cannot be accepted: {why_not_accepted} (docs/reference/logs.md)"
        )
    return LogError(
        f"{what}. Hindcast replays an append-only log: inside the range, a person has to accept each DELETE, UPDATE, "
        "MERGE or overwrite. "
        "Ranges without this slice can be replayed, and what readers see has not changed. If the records are to stay "
        f"removed, run {ACCEPT}, which shows the commit before it accepts it; its slices can then be replayed. To get "
        f"the records back, restore the table to version {version - 1}. What was appended since, to any slice, "
        f"is lost then: append it again, and accept the RESTORE. A third way is to {NEW_TABLE} "
        "(docs/reference/logs.md)"
    )


def deleted_records(uri: str, slice_id: str, path: str) -> LogError:
    """Return the error for a file with a deletion vector that no accepted commit has made."""
    return LogError(
        f"records of slice {slice_id} in event log {uri} were deleted (file {path} has a deletion vector). Hindcast "
        "replays an append-only log. Ranges without this slice can be replayed, and what readers see has not changed. "
        f"If the records are to stay removed, accept the commit of the deletion ({ACCEPT}); if log retention has "
        f"removed that commit, run `REORG TABLE … APPLY (PURGE)`, or {NEW_TABLE}. To get the records back, restore the "
        "table to a version before the deletion (docs/reference/logs.md)"
    )
