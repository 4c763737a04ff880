"""The chain of the ledger: every event names the hash of the one before, so a lost or changed event is found.

The hash of an event is the lower-case hex of the SHA-256 of its row as canonical JSON: all columns that are not null,
`previous` included, with sorted keys, no spaces, in UTF-8. The first event names `GENESIS`. Each event carries the
number of events of its commit, so the last ones of a commit cannot get lost unseen.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from windowlib.errors import LedgerError

GENESIS = "0" * 64

Row = Mapping[str, Any]
"""An event as the ledger's table stores it: column -> plain value."""


def event_hash(row: Row) -> str:
    """The hash of a stored event.

    Raises:
        ValueError, TypeError: the row holds what no event holds.
    """
    filled = {name: value for name, value in row.items() if value is not None}
    text = json.dumps(filled, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def linked(rows: Sequence[Row], previous: str) -> list[dict[str, Any]]:
    """The rows of one commit, each with the hash of the row before it."""
    chained: list[dict[str, Any]] = []
    for row in rows:
        chained.append({**row, "previous": previous})
        previous = event_hash(chained[-1])
    return chained


def check_chain(rows: Sequence[Row], previous: str, *, uri: str) -> str:
    """Follow the chain through rows in ledger order; return the hash of the last one.

    Args:
        rows: stored events, sorted by (seq, ordinal).
        previous: the hash of the event before them, or `GENESIS`.
        uri: of the ledger, for the message.

    Raises:
        LedgerError: an event is not the one that was written there, or one is missing.
    """
    left = 0
    for index, row in enumerate(rows):
        is_first = index == 0 or rows[index - 1]["seq"] != row["seq"]
        if is_first and left:
            raise damaged(uri, rows[index - 1], f"{left} later events of the same commit are missing")
        expected = 0 if is_first else rows[index - 1]["ordinal"] + 1
        if row["ordinal"] != expected:
            raise damaged(uri, row, f"it is event {row['ordinal']} of its commit, and event {expected} is missing")
        if row["previous"] != previous:
            raise damaged(
                uri, row, f"it follows the event with hash {_short(row['previous'])}, found was {_short(previous)}"
            )
        previous = _hash(row, uri)
        left = row["commit_events"] - row["ordinal"] - 1
    if left:
        raise damaged(uri, rows[-1], f"{left} later events of the same commit are missing")
    return previous


def damaged(uri: str, row: Row, what: str) -> LedgerError:
    """The error that an event is not what was written."""
    return LedgerError(
        f"ledger {uri} is damaged at event {row['ordinal']} of version {row['seq']} ({row['event']}): {what}. An event "
        "before it, or this one, was changed or lost. Restore the ledger's directory from a backup"
    )


def _hash(row: Row, uri: str) -> str:
    try:
        return event_hash(row)
    except (TypeError, ValueError) as error:
        raise damaged(uri, row, f"it holds what no event holds ({error})") from error


def _short(value: object) -> str:
    return str(value)[:12]
