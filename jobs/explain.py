"""What became of one record, in a sentence that a person understands and as data. No Spark.

Late, unassigned and invalid records are rows with their reason. By the law of conservation (L3) every other record of
a replayed slice is in windows: those that fired are in window_outputs, those still open in window_state.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from jobs.durations import format_duration, human_duration
from jobs.event_log import open_log
from jobs.lake import Lake
from jobs.ledger_view import LedgerView, StagedRun
from jobs.pipeline_models import Pipeline, TimeColumn, Unit
from jobs.published import HIDDEN
from jobs.runs import CheckpointRef, Slice
from jobs.slices import parse_bound, show_instant, slice_at, slice_grid
from jobs.store import dataset_of
from jobs.stored_rows import StoredRuns
from windowlib.errors import RequestError
from windowlib.tables import INVALID_RECORDS, LATE_RECORDS, UNASSIGNED_RECORDS, WINDOW_OUTPUTS, WINDOW_STATE

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WINDOWS = 4
_BOUNDS = ("window_start", "window_end")
_Interval = tuple[datetime, datetime]
_UNITS_PER_MS = {Unit.S: 0.001, Unit.MS: 1, Unit.US: 1_000, Unit.NS: 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A record's fate: `late`, `late for some windows`, `unassigned`, `invalid`, `assigned` or `not replayed`."""

    record_id: str
    fate: str
    sentence: str
    slice_id: str | None
    is_published: bool
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain data; times are ISO texts in UTC."""
        return {
            "record_id": self.record_id,
            "fate": self.fate,
            "slice_id": self.slice_id,
            "published": self.is_published,
            "sentence": self.sentence,
            "details": plain(self.details),
        }


Locator = Callable[[Slice, str, CheckpointRef | None], tuple[int, int | None]]
"""(slice, record id, checkpoint with which the slice began) -> (rank, watermark that the record met)."""


def explain(
    lake: Lake, pipeline: Pipeline, record_id: str, *, view: LedgerView, locate: Locator | None = None
) -> Explanation:
    """Say what became of the record with this id; of published runs, else of those that an open request staged.

    Args:
        lake: where.
        pipeline: the spec that the chain was made with.
        record_id: the value of `log.record_id`, or without such a column the record's hash as in the side tables.
        view: one ledger version.
        locate: finds the place of an assigned record, which no table keeps; without it the place is not said.

    Raises:
        RequestError: the log has no such record.
        LogError: the log cannot be read.
        StoreError: what is stored of a run cannot be read, or is not what was written.
    """
    runs = _runs(view)
    stored = StoredRuns(lake, pipeline.name, view)
    for table, tell in ((LATE_RECORDS, _late), (UNASSIGNED_RECORDS, _unassigned), (INVALID_RECORDS, _invalid)):
        for row in _side_rows(stored.read(table, runs.values()), pipeline, record_id):
            explanation: Explanation = tell(pipeline, record_id, row, is_published=_is_published(view, row))
            return explanation
    return _from_log(lake, pipeline, record_id, view=view, locate=locate)


def _runs(view: LedgerView) -> dict[str, StagedRun]:
    """The run of each slice: the published one, else the newest open request's."""
    chosen = {slice_id: run_id for request in view.open_requests() for slice_id, run_id in request.runs.items()}
    return {slice_id: view.run(run_id) for slice_id, run_id in {**chosen, **view.published}.items()}


def _is_published(view: LedgerView, row: Mapping[str, Any]) -> bool:
    run = view.published_run(row["slice_id"])
    return run is not None and run.result.attempt_id == row["attempt_id"]


def _side_rows(rows: "pa.Table", pipeline: Pipeline, record_id: str) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    if not rows.num_rows:
        return []
    column = "record_id" if pipeline.log.record_id else "record_hash"
    found: list[dict[str, Any]] = rows.filter(pc.equal(pc.cast(rows[column], "string"), record_id)).to_pylist()
    return found


def _late(pipeline: Pipeline, record_id: str, row: Mapping[str, Any], *, is_published: bool) -> Explanation:
    windows = [_interval(one["window_start"], one["window_end"]) for one in row["missed_windows"] or ()]
    which = "its only window" if len(windows) == 1 else f"all its {len(windows)} windows"
    if not row["missed_all"]:
        which = f"{len(windows)} of its windows"
    missed = f"for {which}: {_some(windows)}" if windows else "for any window"
    sentence = (
        f"Record {record_id} is late: it happened at {show_instant(row['event_time_ms'])}, but when it arrived "
        f"(slice {row['slice_id']}, "
        f"place {row['rank'] + 1:,}) the watermark stood at {show_instant(row['watermark_ms'])}, "
        f"{human_duration(row['late_by_ms'])} too late "
        f"{missed}. {_tolerance(pipeline)} It is kept, with every column, in late_records."
    )
    fate = "late" if row["missed_all"] else "late for some windows"
    return _explanation(record_id, fate, sentence, row=row, is_published=is_published)


def _tolerance(pipeline: Pipeline) -> str:
    """How late a record may be here, and which keys of the file say so."""
    watermark, windows = pipeline.watermark, pipeline.windows
    if pipeline.front_end is not None or watermark is None or windows is None:
        return f"How late a record may be is said under windows.{pipeline.front_end}."
    if watermark.out_of_orderness_ms is not None or watermark.kind == "ascending":
        bound = format_duration(watermark.out_of_orderness_ms or 0)
        first = f"Records may be {bound} out of order here (watermark.out_of_orderness)"
    else:
        first = f"The watermark here is of kind {watermark.kind} (watermark.kind)"
    lateness = format_duration(windows.allowed_lateness_ms)
    return f"{first}, and windows accept them {lateness} longer (windows.allowed_lateness)."


def _unassigned(pipeline: Pipeline, record_id: str, row: Mapping[str, Any], *, is_published: bool) -> Explanation:
    sliding = None if pipeline.windows is None else pipeline.windows.sliding
    gaps = (
        f" (windows of {format_duration(sliding.size_ms)} every {format_duration(sliding.slide_ms)} leave gaps)"
        if sliding
        else ""
    )
    sentence = (
        f"Record {record_id} is unassigned: it happened at {show_instant(row['event_time_ms'])}, between two "
        f"windows{gaps}. It arrived in slice "
        f"{row['slice_id']} (place {row['rank'] + 1:,}) and is kept, with every column, in unassigned_records."
    )
    return _explanation(record_id, "unassigned", sentence, row=row, is_published=is_published)


def _invalid(_pipeline: Pipeline, record_id: str, row: Mapping[str, Any], *, is_published: bool) -> Explanation:
    detail = f" ({row['detail']})" if row.get("detail") else ""
    sentence = (
        f"Record {record_id} is invalid: {row['reason']}{detail}. It arrived in slice {row['slice_id']} (place "
        f"{row['rank'] + 1:,}), moved no "
        "watermark, and is kept, with every column, in invalid_records."
    )
    return _explanation(record_id, "invalid", sentence, row=row, is_published=is_published)


def _explanation(
    record_id: str, fate: str, sentence: str, *, row: Mapping[str, Any], is_published: bool
) -> Explanation:
    if not is_published:
        sentence += " Readers do not see this yet: the run is staged, not published."
    return Explanation(
        record_id=record_id,
        fate=fate,
        sentence=sentence,
        slice_id=row["slice_id"],
        is_published=is_published,
        details={name: value for name, value in row.items() if name not in HIDDEN},
    )


def _from_log(
    lake: Lake, pipeline: Pipeline, record_id: str, *, view: LedgerView, locate: Locator | None
) -> Explanation:
    """A record of no side table: in windows, or not replayed yet, or not there."""
    record = _record(lake, pipeline, record_id)
    one = slice_at(slice_grid(pipeline), parse_bound(pipeline, str(record[pipeline.log.slice.by])))
    slice_id = one.slice_id
    run = _runs(view).get(slice_id)
    if run is None:
        sentence = f"Record {record_id} is in the log, in slice {slice_id}, which has not been replayed yet."
        return Explanation(
            record_id=record_id,
            fate="not replayed",
            sentence=sentence,
            slice_id=slice_id,
            is_published=False,
            details={"record": record},
        )
    event_time_ms = time_ms(pipeline.log.event_time, record[pipeline.log.event_time.column])
    fired, still_open = _windows_of(lake, pipeline, record, view=view)
    key = ", ".join(f"{column} {record[column]}" for column in pipeline.log.key_columns) or "all records"
    told = [f"{len(fired)} that fired: {_some(fired)}"] if fired else []
    told += [f"{len(still_open)} still open after the last replayed slice: {_some(still_open)}"] if still_open else []
    sentence = (
        f"Record {record_id} is assigned: it happened at {show_instant(event_time_ms)} and arrived in slice "
        f"{slice_id}, in time for {_windows_word(pipeline)} of {key}; {' and '.join(told) or _untold(pipeline)}."
    )
    details = {
        "record": record,
        "event_time_ms": event_time_ms,
        "fired": fired,
        "open": still_open,
        "run_id": run.result.run_id,
    }
    if locate is not None:
        rank, met_ms = locate(one, record_id, _state_before(view, run))
        details |= {"rank": rank, "watermark_ms": met_ms}
        met = "there was no watermark yet" if met_ms is None else f"the watermark stood at {show_instant(met_ms)}"
        sentence += f" It stands at place {rank + 1:,} of its slice; when it came, {met}."
    is_published = view.published.get(slice_id) == run.result.run_id
    if not is_published:
        sentence += " Readers do not see this yet: the run is staged, not published."
    return Explanation(
        record_id=record_id,
        fate="assigned",
        sentence=sentence,
        slice_id=slice_id,
        is_published=is_published,
        details=details,
    )


def _windows_word(pipeline: Pipeline) -> str:
    return "the function" if pipeline.windows is None else "its windows"


def _untold(pipeline: Pipeline) -> str:
    """Why no window can be named."""
    if pipeline.windows is None:
        return "there are no windows, each of its records is processed by itself"
    if pipeline.windows.is_unbounded:
        return "they have no bounds in time, so the panes of that key in window_outputs tell no more"
    return "they were merged into others or have closed empty"


def _state_before(view: LedgerView, run: StagedRun) -> CheckpointRef | None:
    """The checkpoint that the run's predecessor left; None where the chain begins."""
    before = [one for one in view.runs.values() if one.result.state_after == run.result.state_before]
    earlier = [one for one in before if one.result.slice.end_ms == run.result.slice.start_ms]
    return earlier[-1].checkpoint if earlier else None


def _record(lake: Lake, pipeline: Pipeline, record_id: str) -> dict[str, Any]:
    import pyarrow.dataset as ds

    column = pipeline.log.record_id
    if column is None:
        raise RequestError(
            f"no late, unassigned or invalid record of pipeline {pipeline.name} has the hash {record_id}; without "
            "`log.record_id` in "
            f"{pipeline.source} the log itself cannot be searched: name a column there that identifies a record"
        )
    dataset = dataset_of(open_log(lake.event_log(pipeline)))
    kind = dataset.schema.field(column).type
    wanted = (
        ds.field(column) == record_id
        if str(kind) in {"string", "large_string", "string_view"}
        else ds.field(column).cast("string") == record_id
    )
    found: list[dict[str, Any]] = dataset.to_table(filter=wanted).to_pylist()
    if not found:
        raise RequestError(
            f"the log {pipeline.log.table} has no record whose {column} is {record_id!r}; `hindcast show "
            f"{pipeline.name}` and late_records "
            "name some that it has"
        )
    return found[0]


def _windows_of(
    lake: Lake, pipeline: Pipeline, record: Mapping[str, Any], *, view: LedgerView
) -> tuple[list[str], list[str]]:
    """The windows of the record's key that hold its time: those that fired, and those still open at the head.

    Windows without bounds (global and count windows, Storm's queues) hold no time and are not among them.
    """
    import pyarrow.compute as pc

    runs, stored = list(_runs(view).values()), StoredRuns(lake, pipeline.name, view)
    keys = pipeline.log.key_columns
    at, is_right_closed = _windowed_at(pipeline, record), pipeline.front_end == "storm"

    def around(row: Mapping[str, Any], start: datetime | None, end: datetime | None) -> set[_Interval]:
        """The bounds, where they hold the time."""
        if start is None or end is None or any(row[key] != record[key] for key in keys):
            return set()
        return {(start, end)} if (start < at <= end if is_right_closed else start <= at < end) else set()

    panes = stored.read(WINDOW_OUTPUTS, runs, [*keys, *_BOUNDS, "kind"])
    if panes.num_rows:  # the bounds of most are elsewhere, and Arrow sees that faster than we
        panes = panes.filter((pc.field("window_start") <= at) & (pc.field("window_end") >= at))
    results = [row for row in panes.to_pylist() if row["kind"] == "result"]
    fired = set[_Interval]().union(*(around(row, row["window_start"], row["window_end"]) for row in results))
    state = stored.read(WINDOW_STATE, runs[-1:]).to_pylist()
    still_open = set[_Interval]().union(
        *(
            around(row, _instant_or_none(row["window_start_ms"]), _instant_or_none(row["window_end_ms"]))
            for row in state
        )
    )
    return [_interval(*one) for one in sorted(fired)], [_interval(*one) for one in sorted(still_open - fired)]


def _windowed_at(pipeline: Pipeline, record: Mapping[str, Any]) -> datetime:
    """The time by which the record's windows are chosen: its event time, or on processing time its arrival."""
    log, windows = pipeline.log, pipeline.windows
    by_arrival = windows is not None and windows.is_processing_time and log.arrival_time is not None
    time = log.arrival_time if by_arrival and log.arrival_time is not None else log.event_time
    return _instant(time_ms(time, record[time.column]))


def time_ms(time: TimeColumn, value: object) -> int:
    """Epoch ms of a value of a time column, floored."""
    if isinstance(value, datetime):
        return _instant_ms(value)
    per_ms = _UNITS_PER_MS[time.unit or Unit.MS]
    number = int(str(value)) if isinstance(value, int) else float(str(value))
    return int(number * 1_000) if per_ms < 1 else int(number // per_ms)


def _instant(at_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def _instant_or_none(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else _instant(at_ms)


def _instant_ms(at: datetime) -> int:
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _interval(start: datetime, end: datetime) -> str:
    """`[2013-02-08 05:00, 06:00)`; the day is not said twice."""
    same_day = start.date() == end.date()
    return f"[{start:%Y-%m-%d %H:%M}, {end:%H:%M})" if same_day else f"[{start:%Y-%m-%d %H:%M}, {end:%Y-%m-%d %H:%M})"


def _some(windows: Sequence[str]) -> str:
    more = len(windows) - MAX_WINDOWS
    return ", ".join(windows[:MAX_WINDOWS]) + (f" and {more} more" if more > 0 else "")


def plain(value: object) -> Any:  # noqa: ANN401  (JSON)
    """A value as JSON takes it: times as ISO text in UTC, bytes as hex, NaN as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return _plain_scalar(value)


def _plain_scalar(value: object) -> str | float | bool | None:
    match value:
        case datetime():
            at = value if value.tzinfo else value.replace(tzinfo=UTC)
            return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case float() if not math.isfinite(value):
            return str(value)
        case None | str() | int() | float():
            return value
        case _:
            return str(value)
