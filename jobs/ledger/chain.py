"""The hash chain of the ledger: every event stores the hash of the event before it, so a reader detects damage.

The hash of an event is the lower-case hex of the SHA-256 of its row as canonical JSON: all columns that are not null,
`previous` included, with sorted keys, without spaces, in UTF-8. The first event stores `GENESIS` as `previous`. Each
event also stores the number of events of its commit, so a reader detects a commit that lost its last events.
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
    """Return the hash of a stored event.

    Raises:
        ValueError, TypeError: the row holds a value that is not JSON, so no event wrote it.
    """
    filled = {name: value for name, value in row.items() if value is not None}
    text = json.dumps(filled, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def linked(rows: Sequence[Row], previous: str) -> list[dict[str, Any]]:
    """Return the rows of one commit, each with the hash of the row before it; `previous` is that of the first."""
    chained: list[dict[str, Any]] = []
    for row in rows:
        chained.append({**row, "previous": previous})
        previous = event_hash(chained[-1])
    return chained


def check_chain(rows: Sequence[Row], previous: str, *, uri: str) -> str:
    """Check the chain of rows and return the hash of the last row (`previous` if there are no rows).

    Args:
        rows: stored events, sorted by (seq, ordinal).
        previous: the hash of the event before the rows, or `GENESIS`.
        uri: the ledger, for the message.

    Raises:
        LedgerError: an event was changed, added, moved, or lost.
    """
    left = 0
    for index, row in enumerate(rows):
        is_first = index == 0 or rows[index - 1]["seq"] != row["seq"]
        if is_first and left:
            raise damaged(uri, rows[index - 1], f"{left} later events of the same commit are missing")
        expected = 0 if is_first else rows[index - 1]["ordinal"] + 1
        if row["ordinal"] != expected:
            raise damaged(uri, row, f"it is event {row['ordinal']} of its commit, expected was event {expected}")
        if row["previous"] != previous:
            raise damaged(
                uri,
                row,
                f"it names the hash {_short(row['previous'])}, but the event before it has hash {_short(previous)}",
            )
        previous = _hash(row, uri)
        left = row["commit_events"] - row["ordinal"] - 1
    if left:
        raise damaged(uri, rows[-1], f"{left} later events of the same commit are missing")
    return previous


def damaged(uri: str, row: Row, what: str) -> LedgerError:
    """Return the error for a damaged event; `what` describes the damage."""
    return LedgerError(
        f"ledger {uri} is damaged at event {row['ordinal']} of version {row['seq']} ({row['event']}): {what}. This "
        "event, or one before it, was changed or lost. Restore the ledger's directory from a backup"
    )


def _hash(row: Row, uri: str) -> str:
    try:
        return event_hash(row)
    except (TypeError, ValueError) as error:
        raise damaged(uri, row, f"it holds a value that is not JSON ({error})") from error


def _short(value: object) -> str:
    return str(value)[:12]
