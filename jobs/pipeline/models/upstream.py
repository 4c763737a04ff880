"""A log that is a table of another pipeline: `log.pipeline`, `log.table` and `log.panes` of a pipeline file.

These keys stand for others, which they fill in: `log.table`, `log.slice.by` and `log.order`. The slices are those of
the other pipeline. Its published rows are in the order of content, so that a corrected row moves no other row.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from windowlib.records.tables import RECORD_TABLES, SIDE_OUTPUTS, WINDOW_OUTPUTS

Panes = Literal["final", "all"]
"""`final`: each window is one record, with its last pane, when no record can change it any more; panes that add up
(`discarding`) are a record each. `all`: every pane."""

SLICE_COLUMN: Final = "slice_id"
WINDOW_TIME: Final = "window_time"
"""The last millisecond of a window, as in Flink's SQL: the event time of its result."""
_ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "final": ("window_end", "window_start", "row_id"),
    "all": ("fired_rank", "pane_index", "row_id"),
    "side_outputs": ("fired_rank", "row_id"),
    "records": ("rank",),
}
TABLES: Final = f"{WINDOW_OUTPUTS}, {', '.join(RECORD_TABLES)} and {SIDE_OUTPUTS}NAME"


def with_upstream_keys(log: object) -> object:
    """Return the `log` part of a file with the keys for which `pipeline` stands. Another value is returned as it is."""
    if not isinstance(log, Mapping) or log.get("pipeline") is None:
        return log
    filled: dict[str, Any] = {"table": WINDOW_OUTPUTS, "slice": {}} | {**log}
    if filled["table"] == WINDOW_OUTPUTS:
        filled = {"panes": "final"} | filled
    filled = {"order": [*order_of(filled["table"], filled.get("panes"))]} | filled
    if isinstance(filled["slice"], Mapping):
        filled["slice"] = {"by": SLICE_COLUMN} | {**filled["slice"]}
    return filled


def order_of(table: object, panes: object) -> tuple[str, ...]:
    """Return the columns that order the records of a slice."""
    if table == WINDOW_OUTPUTS:
        return _ORDERS["all" if panes == "all" else "final"]
    return _ORDERS["records" if table in RECORD_TABLES else "side_outputs"]


def is_log_table(table: str) -> bool:
    """Return whether a table of a pipeline can be a log."""
    return table in {WINDOW_OUTPUTS, *RECORD_TABLES} or table.startswith(SIDE_OUTPUTS)
