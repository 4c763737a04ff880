"""Checks the content of the rows of table `watermarks`, as windowlib.columnar.state_content does for other tables."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from windowlib.columnar.state_content import check_types
from windowlib.errors import CheckpointError
from windowlib.keyed.state_rules import COUNT, FLAG, INSTANT, fits
from windowlib.records import tables
from windowlib.records.plain_json import PLAIN_ERRORS, from_json
from windowlib.watermarks.timeline import ALL_SOURCES, FIRST_ARRIVAL, SourceRow

_DETAILS: Final[Mapping[str, tuple[str, bool]]] = {
    FIRST_ARRIVAL: (INSTANT, False), "commit": (INSTANT, False), "due_ms": (INSTANT, True), "tick_ms": (INSTANT, True),
    "inactive_since_ms": (INSTANT, True), "has_activity": (FLAG, False), "records_since_emission": (COUNT, False),
}  # fmt: skip
"""Name -> what its value is, and whether it can be null."""
_ENDS: Final = "open_window_ends_ms"


def checked_sources(rows: pa.Table) -> list[SourceRow]:
    """Return rows of `watermarks` as the values that a driver of time restores.

    Raises CheckpointError: a row has content that no run stores. The message names table, column and source.
    """
    check_types(tables.watermarks(), {name: rows[name] for name in rows.column_names})
    sources: dict[str, SourceRow] = {}
    for row in rows.select(SourceRow._fields).to_pylist():
        name = row["source"]
        for column in ("source", "is_idle", "is_aligned", "details"):
            if row[column] is None:
                raise _wrong(name, column, row, allowed="a value")
        if name in sources:
            raise _wrong(name, "source", row, allowed="one row for each source")
        at_ms = row["max_event_time_ms"]
        if at_ms is not None and not MIN_TIMESTAMP_MS <= at_ms <= MAX_TIMESTAMP_MS:
            allowed = f"an instant from {MIN_TIMESTAMP_MS} to {MAX_TIMESTAMP_MS}, the years 1 to 9999"
            raise _wrong(name, "max_event_time_ms", row, allowed=allowed)
        if name == ALL_SOURCES and at_ms is None and row["watermark_ms"] is not None:
            raise _wrong(name, "watermark_ms", row, allowed="null, because there is no max_event_time_ms")
        sources[name] = SourceRow(**{**row, "details": _details(row)})
    return [*sources.values()]


def _details(row: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        details = from_json(row["details"])
    except PLAIN_ERRORS:
        details = None
    if not isinstance(details, dict):
        raise _wrong(row["source"], "details", row, allowed="JSON of an object")
    for name, (allowed, is_nullable) in _DETAILS.items():
        value = details.get(name)
        is_absent = name not in details or (value is None and is_nullable)
        if not is_absent and not fits(value, allowed):
            raise _wrong(row["source"], "details", row, allowed=f"{allowed} for {name}")
    ends = details.get(_ENDS, [])
    if not isinstance(ends, list) or not all(fits(end, INSTANT) for end in ends):
        raise _wrong(row["source"], "details", row, allowed=f"a list of integers for {_ENDS}")
    return details


def _wrong(source: object, column: str, row: Mapping[str, Any], *, allowed: str) -> CheckpointError:
    return CheckpointError(
        f"table {tables.WATERMARKS}, column {column} of source {source!r:.100} has {row[column]!r:.200}; allowed is "
        f"{allowed}"
    )
