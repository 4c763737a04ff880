"""Finds the windows of one record: those that fired, those that were superseded, and those still open. No Spark."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.lake.checkpoint_rows import read_checkpoint
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.lake.store import attempts_dataset
from jobs.ledger.view import StagedRun
from jobs.pipeline.models.log import TimeColumn
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.plain_values import instant_at, rows_of, shown_interval
from jobs.runs import CheckpointRef
from windowlib.columnar.undecodable import readable
from windowlib.libraries import pa, pc
from windowlib.records.instants import InstantRead, read_instant
from windowlib.records.tables import WINDOW_OUTPUTS, WINDOW_STATE

Interval = tuple[int, int]
"""Epoch ms. Bounds can be outside of the years of a datetime."""
_PLACE = ("slice_id", "fired_rank", "pane_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWindows:
    """The windows of a record's key that include its time, as texts such as `[2013-02-08 05:00, 06:00)`.

    `superseded` maps a window that was withdrawn to the window that replaced it. The value is None if the tables do not
    show that window: it closed without records, or its bounds have changed since.

    `fired_later` and `superseded_later` map windows to a slice that is not published and changes what readers see of
    them: it fires a window that readers do not see yet, or withdraws one that they see.
    """

    fired: tuple[str, ...]
    superseded: Mapping[str, str | None]
    still_open: tuple[str, ...]
    fired_later: Mapping[str, str] = field(default_factory=dict)
    superseded_later: Mapping[str, str] = field(default_factory=dict)


def record_time(time: TimeColumn, record: Mapping[str, Any]) -> InstantRead:
    """Return the time of a record from a time column, read as in a replay."""
    return read_instant(record[time.column], time.unit.value if time.unit else None)


def windows_of(
    lake: Lake, pipeline: Pipeline, record: Mapping[str, Any], *, runs: Mapping[str, StagedRun],
    unpublished: Collection[str] = (),
) -> RecordWindows:  # fmt: skip
    """Return the windows of a record.

    Windows without bounds in time (global and count windows, Storm's queues) are not included, nor are those of
    processing time: the replay's clock at the record tells them, and no table has it. `record` maps a column to its
    value; its time can be read. `runs` maps a slice to its run, in slice order. The state after the last run has
    the open windows. The panes of `unpublished` slices change what readers will see, and not what they see.
    """
    at_ms = record_time(pipeline.log.event_time, record).ms
    if at_ms is None or (pipeline.windows is not None and pipeline.windows.is_processing_time):
        return RecordWindows(fired=(), superseded={}, still_open=())

    def holds(start_ms: int | None, end_ms: int | None) -> bool:
        if start_ms is None or end_ms is None:
            return False
        return start_ms < at_ms <= end_ms if pipeline.front_end == "storm" else start_ms <= at_ms < end_ms

    pairs = [(slice_id, run.result.attempt_id) for slice_id, run in runs.items()]
    around = [row for row in _panes(lake, pipeline, record, pairs=pairs, at_ms=at_ms) if holds(*_bounds(row))]
    # As in the published view, a row that withdraws another one sorts after it.
    panes = sorted(around, key=lambda row: (*(row[name] for name in _PLACE), row["kind"] != "result"))
    last = {_bounds(row): row for row in panes}
    seen = {_bounds(row): row["kind"] for row in panes if row["slice_id"] not in unpublished}
    shown = {bounds for bounds, kind in seen.items() if kind == "result"}
    later = {bounds for bounds, row in last.items() if row["kind"] == "result"}
    still_open = {
        bounds
        for run in [*runs.values()][-1:]
        for bounds in open_windows(lake, pipeline, record, checkpoint=run.checkpoint, holds=holds)
    }
    present = shown | later | still_open
    heirs = {bounds: _heir(bounds, present) for bounds in sorted(seen) if bounds not in present}
    return RecordWindows(
        fired=tuple(_shown(bounds) for bounds in sorted(shown)),
        superseded={_shown(bounds): _shown(heir) if heir else None for bounds, heir in heirs.items()},
        still_open=tuple(_shown(bounds) for bounds in sorted(still_open - shown - later)),
        fired_later={_shown(bounds): last[bounds]["slice_id"] for bounds in sorted(later - shown)},
        superseded_later={_shown(bounds): last[bounds]["slice_id"] for bounds in sorted(shown - later)},
    )


def _panes(
    lake: Lake, pipeline: Pipeline, record: Mapping[str, Any], *, pairs: Sequence[tuple[str, str]], at_ms: int
) -> list[dict[str, Any]]:
    """Return the panes of the key of a record with bounds that include an instant, or touch it."""
    keys = pipeline.log.key_columns
    columns = [*keys, "window_start", "window_end", "kind", *_PLACE]
    at = pa.scalar(at_ms * 1_000, pa.timestamp("us", "UTC"))
    around_it = (pc.field("window_start") <= at) & (pc.field("window_end") >= at)
    with attempts_dataset(lake.table(pipeline.name, WINDOW_OUTPUTS), pairs) as dataset:
        return [
            row
            for batch in (() if dataset is None else dataset.to_batches(columns=columns, filter=around_it))
            for row in _of_key(_with_ms(pa.Table.from_batches([batch])), keys, record)
        ]


def _with_ms(panes: "pa.Table") -> "pa.Table":
    """Return panes with their bounds as epoch ms."""
    for name in ("window_start", "window_end"):
        at_ms = pc.divide(panes[name].cast(pa.int64()), 1_000)
        panes = panes.set_column(panes.schema.get_field_index(name), name, at_ms)
    return panes


def _bounds(pane: Mapping[str, Any]) -> Interval:
    return pane["window_start"], pane["window_end"]


def open_windows(
    lake: Lake, pipeline: Pipeline, record: Mapping[str, Any], *, checkpoint: CheckpointRef,
    holds: Callable[[int | None, int | None], bool],
) -> set[Interval]:  # fmt: skip
    """Return the bounds of the windows that are open in a checkpoint, have the key of a record, and fulfil `holds`."""
    keys = pipeline.log.key_columns
    columns = [*keys, "window_start_ms", "window_end_ms"]
    rows = read_checkpoint(
        lambda name: lake.table(pipeline.name, name), checkpoint.attempts, WINDOW_STATE, columns=columns
    )
    windows = {(row["window_start_ms"], row["window_end_ms"]) for row in _of_key(rows, keys, record)}
    return {bounds for bounds in windows if holds(*bounds)}


def _of_key(rows: "pa.Table", keys: Sequence[str], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with the key of a record as plain values."""
    from windowlib.columnar.python_values import arrow_value

    if not rows.num_rows:
        return []
    values = {key: pa.repeat(arrow_value(record[key], rows.schema.field(key).type), 1) for key in keys}
    return rows_of(RowFilter(values=values).of(readable(rows)))


def _heir(bounds: Interval, windows: set[Interval]) -> Interval | None:
    """Return the smallest window that contains these bounds; None without one."""
    around = [window for window in windows if window[0] <= bounds[0] and bounds[1] <= window[1]]
    return min(around, key=lambda window: window[1] - window[0], default=None)


def _shown(bounds: Interval) -> str:
    return shown_interval(*map(instant_at, bounds))
