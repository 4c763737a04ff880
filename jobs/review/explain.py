"""What became of one record, in a sentence that a person understands and as data. No Spark.

Late, unassigned and invalid records are rows with their reason. By the law of conservation (L3) every other record of
a replayed slice is in windows: those that fired are in window_outputs, those still open in window_state.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from jobs.durations import format_duration, human_duration
from jobs.lake.delta_log import describe_log
from jobs.lake.lake import Lake
from jobs.lake.log_rows import find_record
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, show_instant, slice_at, slice_grid
from jobs.reading.published import HIDDEN
from jobs.reading.stored_rows import StoredRuns
from jobs.review.explain_windows import RecordWindows, interval, record_time, windows_of
from jobs.runs import CheckpointRef, Slice
from windowlib.errors import RequestError
from windowlib.records.tables import INVALID_RECORDS, LATE_RECORDS, UNASSIGNED_RECORDS

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WINDOWS = 4


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
    windows = [interval(one["window_start"], one["window_end"]) for one in row["missed_windows"] or ()]
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
    happened = record_time(pipeline.log.event_time, record)
    windows = windows_of(lake, pipeline, record, runs=_runs(view))
    key = ", ".join(f"{column} {record[column]}" for column in pipeline.log.key_columns) or "all records"
    when = happened.problem if happened.ms is None else show_instant(happened.ms)
    sentence = (
        f"Record {record_id} is assigned: it happened at {when} and arrived in slice "
        f"{slice_id}, in time for {_windows_word(pipeline)} of {key}; {_told(windows) or _untold(pipeline)}."
    )
    details = {
        "record": record,
        "event_time_ms": happened.ms,
        "fired": list(windows.fired),
        "superseded": dict(windows.superseded),
        "open": list(windows.still_open),
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


def _told(windows: RecordWindows) -> str:
    """What is known of the windows, part by part."""
    told = [f"{len(windows.fired)} that fired: {_some(windows.fired)}"] if windows.fired else []
    if windows.superseded:
        taken = [f"{one} by {heir or 'one that is gone'}" for one, heir in windows.superseded.items()]
        told.append(f"{len(taken)} that fired and were superseded since: {_some(taken)}")
    if windows.still_open:
        told.append(f"{len(windows.still_open)} still open after the last replayed slice: {_some(windows.still_open)}")
    return " and ".join(told)


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
    column = pipeline.log.record_id
    if column is None:
        raise RequestError(
            f"no late, unassigned or invalid record of pipeline {pipeline.name} has the hash {record_id}; without "
            "`log.record_id` in "
            f"{pipeline.source} the log itself cannot be searched: name a column there that identifies a record"
        )
    found = find_record(describe_log(lake.event_log(pipeline)), column, record_id)
    if found is None:
        raise RequestError(
            f"the log {pipeline.log.table} has no record whose {column} is {record_id!r}; `hindcast show "
            f"{pipeline.name}` and late_records "
            "name some that it has"
        )
    return found


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
