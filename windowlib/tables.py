"""Every table that a replay writes, as plain data: its name, its columns, their types, and which of them are content.

Content columns make up a row's id and every digest. Coordinates (where a row stands, who wrote it) never do
(DESIGN, section 2), so two lakes that were loaded with the same records agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windowlib.column_types import Node, parse_type, spell_type, struct_type

SLICE_COLUMNS: Mapping[str, Node] = {"slice_id": "string", "attempt_id": "string", "run_id": "string"}
PARTITION_COLUMNS = ("slice_id", "attempt_id")
ROW_ID = "row_id"
WINDOW: Node = struct_type({"window_start": "timestamp", "window_end": "timestamp"})

WINDOW_OUTPUTS = "window_outputs"
LATE_RECORDS = "late_records"
UNASSIGNED_RECORDS = "unassigned_records"
INVALID_RECORDS = "invalid_records"
WINDOW_STATE = "window_state"
TIMERS = "timers"
WATERMARKS = "watermarks"
TALLIES = "tallies"
QUALITY_RESULTS = "quality_results"
LEDGER = "ledger"
CHECKPOINT_TABLES = (WINDOW_STATE, TIMERS, WATERMARKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: `content` makes a row's id, `coordinates` do not; both map a column's name to its type."""

    name: str
    content: Mapping[str, Node]
    coordinates: Mapping[str, Node]

    def columns(self) -> dict[str, Node]:
        """Return what a row consists of, content first, without the slice columns and the row id."""
        return {**self.content, **self.coordinates}

    def stored_columns(self) -> dict[str, Node]:
        """Return the columns as they stand in the Delta table."""
        return {**self.columns(), ROW_ID: "long", **SLICE_COLUMNS}


def window_outputs(keys: Mapping[str, str], aggregates: Mapping[str, str]) -> Table:
    """One row is one pane. `keys` and `aggregates` map a column to its type in Spark's spelling."""
    return Table(
        name=WINDOW_OUTPUTS,
        content={
            **_nodes(keys),
            "window_start": "timestamp",
            "window_end": "timestamp",
            "pane_index": "integer",
            "timing": "string",
            "is_first": "boolean",
            "is_last": "boolean",
            "mode": "string",
            "kind": "string",
            "record_count": "long",
            **_nodes(aggregates),
            "watermark_ms": "long",
        },
        coordinates={"fired_rank": "long"},
    )


def late_records(record: Node) -> Table:
    """One row is a record that missed all its windows (its fate), or some of them (`missed_all` false)."""
    return Table(
        name=LATE_RECORDS,
        content={
            "record_hash": "long",
            "event_time_ms": "long",
            "missed_windows": {"type": "array", "elementType": WINDOW, "containsNull": True},
            "missed_all": "boolean",
            "watermark_ms": "long",
            "late_by_ms": "long",
            "reason": "string",
        },
        coordinates={"record": record, "record_id": "string", "rank": "long"},
    )


def unassigned_records(record: Node) -> Table:
    """One row is a valid record that no window takes: it fell into a gap."""
    return Table(
        name=UNASSIGNED_RECORDS,
        content={"record_hash": "long", "event_time_ms": "long", "watermark_ms": "long"},
        coordinates={"record": record, "record_id": "string", "rank": "long"},
    )


def invalid_records(record: Node) -> Table:
    """One row is a record without a key or a time that can be used, and the reason."""
    return Table(
        name=INVALID_RECORDS,
        content={"record_hash": "long", "reason": "string"},
        coordinates={"record": record, "record_id": "string", "rank": "long", "detail": "string"},
    )


def window_state(keys: Mapping[str, str], accumulators: Mapping[str, Mapping[str, str]]) -> Table:
    """One row is one open window of one key (windowlib.snapshots.WindowStateRow).

    `accumulators` maps an aggregate to the columns of its state. Positions inside are coordinates; a row's id knows
    them as a mere order (windowlib.spark.state_rows).
    """
    contents = "array<struct<slice_start_ms:bigint,rank:bigint,event_time_ms:bigint,edge_id:bigint,value:string>>"
    return Table(
        name=WINDOW_STATE,
        content={
            **_nodes(keys),
            "window_start_ms": "long",
            "window_end_ms": "long",
            "state_window_start_ms": "long",
            "state_window_end_ms": "long",
            **{f"acc_{name}": struct_type(_nodes(columns)) for name, columns in accumulators.items()},
            "contents": parse_type(contents),
            "trigger_state": "string",
            "record_count": "long",
            **dict.fromkeys(
                (f"{edges}_{part}" for edges in ("edge", "fired") for part in ("count", "xor", "sum")), "long"
            ),
            "pane_index": "integer",
            **dict.fromkeys(("is_complete", "is_cleanup_silent", "is_orphan"), "boolean"),
        },
        coordinates={"key_group": "integer"},
    )


def timers(keys: Mapping[str, str]) -> Table:
    """One row is one timer of one key; the window columns are its namespace."""
    return Table(
        name=TIMERS,
        content={
            **_nodes(keys),
            "window_start_ms": "long",
            "window_end_ms": "long",
            "domain": "string",
            "at_ms": "long",
        },
        coordinates={"key_group": "integer"},
    )


def watermarks() -> Table:
    """One row is one source; the source `*` is the combined output of all."""
    return Table(
        name=WATERMARKS,
        content={
            "source": "string",
            "watermark_ms": "long",
            "max_event_time_ms": "long",
            "is_idle": "boolean",
            "is_aligned": "boolean",
        },
        coordinates={},
    )


def tallies() -> Table:
    """One row is one term of one of the audit's equations (DESIGN, section 7), over all key groups."""
    return Table(
        name=TALLIES,
        content={"equation": "string", "term": "string", "record_count": "long", "id_xor": "long", "id_sum": "long"},
        coordinates={},
    )


def quality_results() -> Table:
    """One row is one check of one run."""
    names: Sequence[str] = (
        "table_name",
        "check",
        "column_name",
        "severity",
        "verdict",
        "observed",
        "arguments",
        "message",
        "checks_fingerprint",
    )
    return Table(name=QUALITY_RESULTS, content=dict.fromkeys(names, "string"), coordinates={})


def spelled(columns: Mapping[str, Node]) -> dict[str, str]:
    """Return the columns with their types in Spark's spelling."""
    return {name: spell_type(node) for name, node in columns.items()}


def _nodes(columns: Mapping[str, str]) -> dict[str, Node]:
    return {name: parse_type(text) for name, text in columns.items()}
