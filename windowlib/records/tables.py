"""Every table that a replay writes, as plain data: its name, its columns, their types, and which of them are content.

Content columns make up a row's id and every digest. Coordinates (where a row stands, who wrote it) never do
(DESIGN, section 2), so two lakes that were loaded with the same records agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from windowlib.records.column_types import Node, parse_type, spell_type, struct_type

SLICE_COLUMNS: Mapping[str, Node] = {"slice_id": "string", "attempt_id": "string", "run_id": "string"}
PARTITION_COLUMNS = ("slice_id", "attempt_id")
ROW_ID = "row_id"
ROW_CHECK = "row_check"
"""Guards what the id of a row does not see: its coordinates, and the record that it holds (docs/CHECKPOINTS.md)."""
WINDOW: Node = struct_type({"window_start": "timestamp", "window_end": "timestamp"})

WINDOW_OUTPUTS = "window_outputs"
LATE_RECORDS = "late_records"
UNASSIGNED_RECORDS = "unassigned_records"
INVALID_RECORDS = "invalid_records"
WINDOW_STATE = "window_state"
USER_STATE = "user_state"
TIMERS = "timers"
WATERMARKS = "watermarks"
TALLIES = "tallies"
QUALITY_RESULTS = "quality_results"
LEDGER = "ledger"
CHECKPOINT_TABLES = (WINDOW_STATE, USER_STATE, TIMERS, WATERMARKS)
RECORD_TABLES = (LATE_RECORDS, UNASSIGNED_RECORDS, INVALID_RECORDS)
"""Tables whose rows hold a whole record of the log; Spark attaches the record and computes `row_check`."""
SIDE_OUTPUTS = "side_outputs_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: `content` makes a row's id, `coordinates` do not; both map a column's name to its type.

    `keys` are the columns of the content that hold the key. `is_checked`: rows with coordinates carry a `row_check`.
    """

    name: str
    content: Mapping[str, Node]
    coordinates: Mapping[str, Node]
    keys: tuple[str, ...] = ()
    is_checked: bool = True

    def columns(self) -> dict[str, Node]:
        """Return what a row consists of, content first, without the slice columns and the row id."""
        return {**self.content, **self.coordinates}

    def emitted_columns(self) -> dict[str, Node]:
        """Return the columns of a row as a task emits it: with its id, and with its check where it has one."""
        return {**self.columns(), **dict.fromkeys(self._words(), "long")}

    def stored_columns(self) -> dict[str, Node]:
        """Return the columns as they stand in the Delta table."""
        return {**self.emitted_columns(), **SLICE_COLUMNS}

    def slim(self) -> "Table":
        """Return the table as the tasks emit it where Spark attaches the record later: with the rank alone."""
        return replace(self, coordinates={"rank": "long"}, is_checked=False)

    def _words(self) -> tuple[str, ...]:
        return (ROW_ID, ROW_CHECK) if self.coordinates and self.is_checked else (ROW_ID,)


def window_outputs(keys: Mapping[str, str], outputs: Mapping[str, str]) -> Table:
    """One row is one pane, or one value of a function without windows.

    `keys` and `outputs` map a column to its type in Spark's spelling.
    """
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
            **_nodes(outputs),
            "nonspeculative_index": "integer",
            "pane_time_ms": "long",
            "watermark_ms": "long",
        },
        coordinates={"fired_rank": "long"},
        keys=tuple(keys),
    )


def side_outputs_name(tag: str) -> str:
    """Return the name of the table of a side output."""
    return f"{SIDE_OUTPUTS}{tag}"


def side_outputs(tag: str, keys: Mapping[str, str], columns: Mapping[str, str]) -> Table:
    """One row is one value that a user's function sent to the side output `tag`."""
    return Table(
        name=side_outputs_name(tag),
        content={**_nodes(keys), **_nodes(columns), "event_time_ms": "long", "watermark_ms": "long"},
        coordinates={"fired_rank": "long"},
        keys=tuple(keys),
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


def window_state(
    keys: Mapping[str, str], accumulators: Mapping[str, Mapping[str, str]], last: Mapping[str, str] | None = None
) -> Table:
    """One row is one open window of one key (windowlib.keyed.snapshots.WindowStateRow).

    `accumulators` maps an aggregate to the columns of its state; `last` are the columns of a pane, where a retraction
    may take one back. Positions inside are coordinates; a row's id knows them as a mere order
    (windowlib.spark.state_rows).
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
            "nonspeculative_count": "integer",
            **({"last_emitted": struct_type(_nodes(last))} if last else {}),
            "last_count": "long",
            **dict.fromkeys(("is_complete", "is_cleanup_silent", "is_orphan"), "boolean"),
        },
        coordinates={"key_group": "integer"},
        keys=tuple(keys),
    )


def user_state(keys: Mapping[str, str]) -> Table:
    """One row is one piece of a user function's state; its `scope` is `key`, or the `window` of these bounds.

    `content` is JSON (windowlib.records.plain_json): a value, a list, or a map as a list of pairs.
    """
    return Table(
        name=USER_STATE,
        content={
            **_nodes(keys),
            "window_start_ms": "long",
            "window_end_ms": "long",
            "scope": "string",
            "name": "string",
            "kind": "string",
            "content": "string",
        },
        coordinates={"key_group": "integer"},
        keys=tuple(keys),
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
        keys=tuple(keys),
    )


def watermarks() -> Table:
    """One row is one source (windowlib.watermarks.timeline.SourceRow); the source `*` is the combined output of all.

    `details` is JSON: what else the pipeline's driver of time remembers.
    """
    return Table(
        name=WATERMARKS,
        content={
            "source": "string",
            "watermark_ms": "long",
            "max_event_time_ms": "long",
            "is_idle": "boolean",
            "is_aligned": "boolean",
            "last_activity_ms": "long",
            "details": "string",
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
