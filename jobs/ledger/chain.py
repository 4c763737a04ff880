"""The hash chain of the ledger, by which a reader detects every event that was changed, added, moved or lost.

An event stores its own hash (`hash`) and the hash of the event before it (`previous`; of the first event: `GENESIS`).
The hash is the lower-case hex of the SHA-256 of the event's row as canonical JSON: all columns that are not null except
`hash`, with sorted keys, without spaces, in UTF-8. Each event also stores the number of events of its commit, so a
reader detects a commit that lost its last events. The head of the ledger (jobs.ledger.head) protects the last commit.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from windowlib.errors import LedgerError

GENESIS = "0" * 64

CANONICAL_JSON: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Encodes values as canonical JSON."""

Row = Mapping[str, Any]
"""An event as the ledger's table stores it: column -> plain value."""

CONTENT_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""The errors of reading an event that has other names or types of values than its kind."""

REQUIRED: Mapping[str, type] = {
    "seq": int, "ordinal": int, "at_ms": int, "commit_events": int,
    "event": str, "commit_id": str, "previous": str, "hash": str, "details": str,
}  # fmt: skip
"""The columns that no event leaves null, and the type of their values."""


def event_hash(row: Row) -> str:
    """Return the hash of an event. Its own column `hash` is not part of it.

    Raises ValueError, TypeError: the row holds a value that is not JSON, so no event wrote it.
    """
    filled = {name: value for name, value in row.items() if value is not None and name != "hash"}
    return hashlib.sha256(CANONICAL_JSON.encode(filled).encode("utf-8")).hexdigest()


def linked(rows: Sequence[Row], previous: str) -> list[dict[str, Any]]:
    """Return the rows of one commit with their hashes; `previous` is the hash of the event before the first row."""
    chained: list[dict[str, Any]] = []
    for row in rows:
        event = {**row, "previous": previous}
        event["hash"] = previous = event_hash(event)
        chained.append(event)
    return chained


def check_chain(
    rows: Sequence[Row], before: str = GENESIS, *, uri: str, file_of: Callable[[int], str | None] = lambda _seq: None
) -> str:
    """Check the chain of rows and return the hash of the last row (`before` if there are no rows).

    `rows` are sorted by (seq, ordinal). `before` is the hash of the event before them. For messages, `file_of` returns
    the data file of the events of a version.
    Raises LedgerError: an event was changed, added, moved, or lost.
    """
    check = _Check(uri, file_of)
    left, tip = 0, before
    for index, row in enumerate(rows):
        digest = check.digest(row)
        is_first = index == 0 or rows[index - 1]["seq"] != row["seq"]
        if is_first and left:
            raise check.damaged(rows[index - 1], f"{left} later events of the same commit are missing")
        expected = 0 if is_first else rows[index - 1]["ordinal"] + 1
        if row["ordinal"] != expected:
            raise check.damaged(row, f"it is event {row['ordinal']} of its commit, expected was event {expected}")
        if row["previous"] != tip:
            raise check.damaged(
                row, f"it names the hash {row['previous'][:12]}, but the event before it has hash {tip[:12]}"
            )
        if row["hash"] != digest:
            raise check.damaged(row, f"it stores the hash {row['hash'][:12]}, but its content has hash {digest[:12]}")
        tip = digest
        left = row["commit_events"] - row["ordinal"] - 1
    if left:
        raise check.damaged(rows[-1], f"{left} later events of the same commit are missing")
    return tip


@dataclass(frozen=True, slots=True)
class _Check:
    uri: str
    file_of: Callable[[int], str | None]

    def digest(self, row: Row) -> str:
        """Return the hash of a row whose required columns have values of their types."""
        for name, kind in REQUIRED.items():
            value = row.get(name)
            if type(value) is not kind:
                old = ", as in ledgers that were begun before 23 November 2026, which this version does not read"
                note = old if name == "hash" and value is None else ""
                raise self.damaged(row, f"its column {name} has the value {value!r}{note}")
        try:
            return event_hash(row)
        except (TypeError, ValueError) as error:
            raise self.damaged(row, f"it holds a value that is not JSON ({error})") from error

    def damaged(self, row: Row, what: str) -> LedgerError:
        seq = row.get("seq")
        file = self.file_of(seq) if isinstance(seq, int) else None
        place = "" if file is None else f" in file {file}"
        return LedgerError(
            f"ledger {self.uri} is damaged at event {row.get('ordinal')} of version {seq} ({row.get('event')}){place}: "
            f"{what}. This event, or one before it, was changed or lost. If a commit file alone is lost, "
            "`hindcast recover PIPELINE --reason …` writes it again. Otherwise, restore the ledger's directory from a "
            "backup"
        )
