"""The tables that a replay writes, as plain data: name, columns, types, and which columns are content.

A row's id and every digest are computed from the content columns only. Coordinates (the place of a row in the log, its
run and attempt) are never hashed (docs/explanation/laws.md), so two lakes with the same records have the same ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from windowlib.records.column_types import Node, parse_type, spell_type, struct_fields, struct_type

SLICE_COLUMNS: Mapping[str, Node] = {"slice_id": "string", "attempt_id": "string", "run_id": "string"}
PARTITION_COLUMNS = ("slice_id", "attempt_id")
ROW_ID = "row_id"
ROW_CHECK = "row_check"
"""Detects damage that the id of a row does not cover: coordinates, the record (docs/reference/checkpoints.md)."""
WINDOW: Node = struct_type({"window_start": "timestamp", "window_end": "timestamp"})

UNDECODED: Node = parse_type("map<string,binary>")
"""Path of a text in the record -> its bytes, which are not UTF-8 (windowlib.columnar.undecodable)."""

WINDOW_OUTPUTS = "window_outputs"
LATE_RECORDS = "late_records"
UNASSIGNED_RECORDS = "unassigned_records"
INVALID_RECORDS = "invalid_records"
DUPLICATE_RECORDS = "duplicate_records"
WINDOW_STATE = "window_state"
USER_STATE = "user_state"
TIMERS = "timers"
WATERMARKS = "watermarks"
STATE_REMOVALS = "state_removals"
TALLIES = "tallies"
QUALITY_RESULTS = "quality_results"
LEDGER = "ledger"
CHECKPOINT_TABLES = (WINDOW_STATE, USER_STATE, TIMERS, WATERMARKS)
INCREMENTAL_TABLES = (WINDOW_STATE, USER_STATE, TIMERS)
"""The checkpoint tables of which an incremental checkpoint stores only the changed rows."""
STATE_TABLES = (*INCREMENTAL_TABLES, STATE_REMOVALS)
"""The tables that only the next slice reads. Restart points and `explain` also read `watermarks`."""
EDGE_COLUMNS = ("edge_count", "edge_xor", "edge_sum")
"""The columns of an open window that tally its edges."""
RECORD_TABLES = (LATE_RECORDS, UNASSIGNED_RECORDS, INVALID_RECORDS, DUPLICATE_RECORDS)
"""The tables whose rows hold a whole record of the log. Their `row_check` covers the record."""
SIDE_OUTPUTS = "side_outputs_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. `content` and `coordinates` map the name of a column to its type.

    A row's id covers `content` and not `coordinates`. `keys` are the content columns that hold the key. If
    `is_checked`, rows with coordinates have a `row_check`.
    """

    name: str
    content: Mapping[str, Node]
    coordinates: Mapping[str, Node]
    keys: tuple[str, ...] = ()
    is_checked: bool = True

    def columns(self) -> dict[str, Node]:
        """Return the columns of content and coordinates, in this order, without the slice columns and the row id."""
        return {**self.content, **self.coordinates}

    def columns_without_record(self) -> dict[str, Node]:
        """Return `columns` without the record of the log. A key or an output may have the name `record` as well."""
        placed = {name: node for name, node in self.coordinates.items() if name != "record"}
        return {**self.content, **placed}

    def emitted_columns(self) -> dict[str, Node]:
        """Return the columns of a row as a task emits it: `columns`, the id, and the check if the table has one."""
        return {**self.columns(), **dict.fromkeys(self._words(), "long")}

    def stored_columns(self) -> dict[str, Node]:
        """Return the columns of the Delta table: `emitted_columns` and the slice columns."""
        return {**self.emitted_columns(), **SLICE_COLUMNS}

    def slim(self) -> "Table":
        """Return the table as the tasks emit it if Spark attaches the record later: its only coordinate is the rank."""
        return replace(self, coordinates={"rank": "long"}, is_checked=False)

    def _words(self) -> tuple[str, ...]:
        return (ROW_ID, ROW_CHECK) if self.coordinates and self.is_checked else (ROW_ID,)


def window_outputs(keys: Mapping[str, str], outputs: Mapping[str, str]) -> Table:
    """Return the table of results. One row is one pane, or one value of a function without windows.

    `keys` and `outputs` map a column to its type in Spark's spelling.
    """
    return Table(
        name=WINDOW_OUTPUTS,
        content={
            **_nodes(keys),
            **_columns(
                "window_start:timestamp, window_end:timestamp, pane_index:int, timing:string, is_first:boolean, "
                "is_last:boolean, mode:string, kind:string, record_count:bigint"
            ),
            **_nodes(outputs),
            **_columns("nonspeculative_index:int, pane_time_ms:bigint, watermark_ms:bigint"),
        },
        coordinates={"fired_rank": "long"},
        keys=tuple(keys),
    )


def side_outputs_name(tag: str) -> str:
    """Return the name of the table of the side output `tag`."""
    return f"{SIDE_OUTPUTS}{tag}"


def side_outputs(tag: str, keys: Mapping[str, str], columns: Mapping[str, str]) -> Table:
    """Return the table of a side output. One row is one value that a user's function sent to the output `tag`."""
    return Table(
        name=side_outputs_name(tag),
        content={**_nodes(keys), **_nodes(columns), "event_time_ms": "long", "watermark_ms": "long"},
        coordinates={"fired_rank": "long"},
        keys=tuple(keys),
    )


def late_records(record: Node) -> Table:
    """Return the table of late records. One row is a record that missed windows.

    If `missed_all`, the record missed all its windows and its fate is late. Else it missed some of them.
    """
    return Table(
        name=LATE_RECORDS,
        content=_columns(
            f"record_hash:bigint, event_time_ms:bigint, missed_windows:array<{spell_type(WINDOW)}>, "
            "missed_all:boolean, watermark_ms:bigint, late_by_ms:bigint, reason:string"
        ),
        coordinates=_place(record),
    )


def unassigned_records(record: Node) -> Table:
    """Return the table of unassigned records. One row is a valid record that fell into a gap between windows."""
    return Table(
        name=UNASSIGNED_RECORDS,
        content={"record_hash": "long", "event_time_ms": "long", "watermark_ms": "long"},
        coordinates=_place(record),
    )


def invalid_records(record: Node) -> Table:
    """Return the table of invalid records. One row is a record that cannot be used, and the reason.

    In `record`, a text that is not UTF-8 is null. `undecoded` has the bytes of such texts.
    """
    return Table(
        name=INVALID_RECORDS,
        content={"record_hash": "long", "reason": "string"},
        coordinates={**_place(record), "detail": "string", "undecoded": UNDECODED},
    )


def duplicate_records(record: Node) -> Table:
    """Return the table of duplicates. One row is a record that repeats an earlier one, and the place of that one.

    The place of the earlier record is a coordinate: `earlier_slice_id`, and its rank there.
    """
    return Table(
        name=DUPLICATE_RECORDS,
        content={"record_hash": "long"},
        coordinates={**_place(record), "earlier_slice_id": "string", "earlier_rank": "long"},
    )


def _place(record: Node) -> dict[str, Node]:
    """Return the coordinates of a record in the log, and the record itself."""
    return {"record": record, "record_id": "string", "rank": "long"}


def window_state(
    keys: Mapping[str, str], accumulators: Mapping[str, Mapping[str, str]], last: Mapping[str, str] | None = None
) -> Table:
    """Return the table of open windows. One row is a windowlib.keyed.snapshots.WindowStateRow.

    `accumulators` maps an aggregate to the columns of its state. `last` has the columns of a pane if retractions can
    withdraw one. Positions inside the state are coordinates: a row's id covers only their order
    (windowlib.columnar.state_rows).
    """
    contents = "array<struct<slice_start_ms:bigint,rank:bigint,event_time_ms:bigint,edge_id:bigint,value:string>>"
    return Table(
        name=WINDOW_STATE,
        content={
            **_nodes(keys),
            **_columns(
                "window_start_ms:bigint, window_end_ms:bigint, state_window_start_ms:bigint, state_window_end_ms:bigint"
            ),
            **{f"acc_{name}": struct_type(_nodes(columns)) for name, columns in accumulators.items()},
            "contents": parse_type(contents),
            **_columns(
                "trigger_state:string, record_count:bigint, edge_count:bigint, edge_xor:bigint, edge_sum:bigint, "
                "fired_count:bigint, fired_xor:bigint, fired_sum:bigint, pane_index:int, nonspeculative_count:int"
            ),
            **({"last_emitted": struct_type(_nodes(last))} if last else {}),
            **_columns("last_count:bigint, is_complete:boolean, is_cleanup_silent:boolean, is_orphan:boolean"),
        },
        coordinates={"key_group": "integer"},
        keys=tuple(keys),
    )


def user_state(keys: Mapping[str, str]) -> Table:
    """Return the table of users' state. One row is one piece of state of a user's function.

    Its `scope` is `key`, or `window` for the window with the row's bounds. `content` is JSON
    (windowlib.records.plain_json): a value, a list, or a map as a list of pairs.
    """
    return Table(
        name=USER_STATE,
        content={
            **_nodes(keys),
            **_columns(
                "window_start_ms:bigint, window_end_ms:bigint, scope:string, name:string, kind:string, content:string"
            ),
        },
        coordinates={"key_group": "integer"},
        keys=tuple(keys),
    )


def timers(keys: Mapping[str, str]) -> Table:
    """Return the table of timers. One row is one timer of one key; the window columns are its namespace."""
    return Table(
        name=TIMERS,
        content={
            **_nodes(keys),
            **_columns("window_start_ms:bigint, window_end_ms:bigint, domain:string, at_ms:bigint"),
        },
        coordinates={"key_group": "integer"},
        keys=tuple(keys),
    )


def state_removals() -> Table:
    """Return the table of removals. One row is one row of the checkpoint before that is not in an incremental one.

    `table_name` and `removed_id` are the table and the id of the removed row. For a row of `window_state`, the edge
    columns are its edges; an orphan has none.
    """
    return Table(
        name=STATE_REMOVALS,
        content={"table_name": "string", "removed_id": "long", **dict.fromkeys(EDGE_COLUMNS, "long")},
        coordinates={},
    )


def watermarks() -> Table:
    """Return the table of watermarks. One row is one source (windowlib.watermarks.timeline.SourceRow).

    The source `*` is the combined output of all sources. `details` is JSON with the remaining state of the pipeline's
    time driver.
    """
    return Table(
        name=WATERMARKS,
        content=_columns(
            "source:string, watermark_ms:bigint, max_event_time_ms:bigint, is_idle:boolean, is_aligned:boolean, "
            "last_activity_ms:bigint, details:string"
        ),
        coordinates={},
    )


def tallies() -> Table:
    """Return the table of tallies. One row is one term of one equation of the audit (docs/explanation/acker.md).

    It covers all key groups.
    """
    return Table(
        name=TALLIES,
        content={"equation": "string", "term": "string", "record_count": "long", "id_xor": "long", "id_sum": "long"},
        coordinates={},
    )


def quality_results() -> Table:
    """Return the table of quality results. One row is one check of one run."""
    names = "table_name check column_name severity verdict observed arguments message checks_fingerprint"
    return Table(name=QUALITY_RESULTS, content=dict.fromkeys(names.split(), "string"), coordinates={})


def spelled(columns: Mapping[str, Node]) -> dict[str, str]:
    """Return the columns with their types in Spark's spelling."""
    return {name: spell_type(node) for name, node in columns.items()}


def _nodes(columns: Mapping[str, str]) -> dict[str, Node]:
    return {name: parse_type(text) for name, text in columns.items()}


@cache
def _columns(columns: str) -> Mapping[str, Node]:
    """Return columns from their names and types in Spark's spelling, such as `a:int, b:string`."""
    return struct_fields(parse_type(f"struct<{columns}>"))
