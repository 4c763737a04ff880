"""The rows of events in the ledger's table: the columns and their types, and the values that the table returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, Final

from jobs.ledger.events import LedgerEvent, encode_details

if TYPE_CHECKING:
    import pyarrow as pa

LATER_COLUMNS = frozenset({"hash"})
"""Columns that the ledgers of earlier versions do not have. The next write adds them."""

_FIRST = ("seq", "ordinal", "at_ms", "event", "commit_id", "commit_events", "previous")
_OTHERS = (column.name for column in fields(LedgerEvent) if column.name not in {*_FIRST, "kind"})
_COLUMNS: Final = (*_FIRST, *_OTHERS, *LATER_COLUMNS)
_WHOLE: Final = (
    "seq", "ordinal", "at_ms", "commit_events", "slice_start_ms", "slice_end_ms", "watermark_ms",
    "records_read", "assigned", "late", "unassigned", "invalid", "panes",
)  # fmt: skip
_NUMBERS: Final[Mapping[str, Callable[[Any], object]]] = {**dict.fromkeys(_WHOLE, index), "seconds": float}
"""What makes the value of a column of numbers the one that the table returns. All other columns are texts."""


@cache
def ledger_schema() -> "pa.Schema":
    """Return the schema of the table: the columns of an event, of its commit, and of the hash chain."""
    import pyarrow as pa

    kinds = {**dict.fromkeys(_WHOLE, pa.int64()), "ordinal": pa.int32(), "commit_events": pa.int32()}
    kinds["seconds"] = pa.float64()
    return pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in _COLUMNS])


def event_rows(events: Sequence[LedgerEvent], *, commit_id: str) -> list[dict[str, Any]]:
    """Return the events of one commit as rows, with values as the table returns them, without the hash chain.

    Raises:
        TypeError: a number is of another type than its column.
    """
    rows = []
    for event in events:
        row = {name: getattr(event, name, None) for name in _COLUMNS}
        row |= {"event": event.kind.value, "details": encode_details(event.details)}
        row |= {"commit_id": commit_id, "commit_events": len(events)}
        rows.append(row | {name: turn(row[name]) for name, turn in _NUMBERS.items() if row[name] is not None})
    return rows
