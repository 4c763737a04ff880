"""The expected rows of each table, computed from the outputs of the reference, and their comparison with stored rows.

The rows are spelled here once more, from outputs and snapshots, so that an error in jobs' own spelling is seen.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.matrix.log import HOURS
from tests.matrix.one_process import Answer, Hour
from tests.matrix.pipelines import Case
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.records import tables
from windowlib.records.plain_json import from_json, to_json
from windowlib.records.records import Emitted, Late, Output, Pane, SideOutput, Unassigned
from windowlib.watermarks.timeline import FIRST_ARRIVAL

Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]
"""Table -> its rows, each with the number of its slice under `slice_no`."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
STATE_COLUMNS: Final = (
    "window_start_ms", "window_end_ms", "state_window_start_ms", "state_window_end_ms", "record_count", "edge_count",
    "edge_xor", "edge_sum", "fired_count", "fired_xor", "fired_sum", "pane_index", "nonspeculative_count", "last_count",
    "is_complete", "is_cleanup_silent", "is_orphan",
)  # fmt: skip


def expected_rows(case: Case, answer: Answer) -> dict[str, list[Row]]:
    """Return the rows that a replay must commit, by table. A table without rows has an empty list."""
    found: dict[str, list[Row]] = {name: [] for name in table_names(case)}
    for entry in answer.entries:
        if entry.problem is not None:
            about = {"slice_no": entry.place[0], "rank": entry.place[1], "reason": entry.problem}
            found[tables.INVALID_RECORDS].append({**about, "record": entry.reading._asdict()})
    readings = {entry.place: entry.reading for entry in answer.entries}
    for number, hour in enumerate(answer.hours):
        for output in hour.outputs:
            name, row = _row(case, output)
            if name in (tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS):
                row["record"] = readings[number, row["rank"]]._asdict()
            found[name].append({"slice_no": number, **row})
        for name, kept in _state(case, hour):
            found[name].append({"slice_no": number, **kept})
    return found


def table_names(case: Case) -> tuple[str, ...]:
    """Return the tables that are compared: all except tallies, which the laws check."""
    run = case.engine
    sides = (tables.side_outputs_name(tag) for tag in run.side_outputs)
    users = (tables.USER_STATE,) if run.keeps_user_state else ()
    return (
        tables.WINDOW_OUTPUTS, tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS,
        tables.WINDOW_STATE, tables.TIMERS, tables.WATERMARKS, *users, *sides,
    )  # fmt: skip


def pane_row(case: Case, output: Pane | Emitted) -> dict[str, Any]:
    """Return the row of one pane, or of one value of a function without windows."""
    keys = _named(case.pipeline.log.key_columns, output.key)
    is_said = isinstance(output, Emitted) or output.kind != "superseded"
    values = _values(case.engine.outputs, output.values) if is_said else dict.fromkeys(case.engine.outputs)
    if isinstance(output, Emitted):
        about = {"pane_index": 0, "timing": "ON_TIME", "is_first": True, "is_last": True, "mode": "discarding"}
        about |= {"kind": "result", "record_count": 1, "nonspeculative_index": 0, "pane_time_ms": output.timestamp_ms}
        return {
            **keys,
            "window_start": None,
            "window_end": None,
            **about,
            "watermark_ms": output.watermark_ms,
            **values,
        }
    start_ms, end_ms = output.window
    same = ("pane_index", "timing", "is_first", "is_last", "mode", "kind", "record_count", "nonspeculative_index")
    about = {name: getattr(output, name) for name in same}
    about |= {"pane_time_ms": None if output.timestamp_ms == MAX_TIME_MS else output.timestamp_ms}
    return {
        **keys,
        "window_start": start_ms,
        "window_end": end_ms,
        **about,
        "watermark_ms": output.watermark_ms,
        **values,
    }


def _row(case: Case, output: Output) -> tuple[str, dict[str, Any]]:
    match output:
        case Pane() | Emitted():
            return tables.WINDOW_OUTPUTS, pane_row(case, output)
        case Late():
            missed = [{"window_start": window[0], "window_end": window[1]} for window in output.missed]
            about = {"missed_windows": missed, "missed_all": output.missed_all, "reason": output.reason}
            about |= {"late_by_ms": output.late_by_ms, "watermark_ms": output.watermark_ms}
            return tables.LATE_RECORDS, {**_of_record(output.record), **about}
        case Unassigned():
            return tables.UNASSIGNED_RECORDS, {**_of_record(output.record), "watermark_ms": output.watermark_ms}
        case SideOutput():
            values = _values(case.engine.side_outputs[output.tag], output.value)
            keys = _named(case.pipeline.log.key_columns, output.key)
            at_ms = None if output.timestamp_ms == MAX_TIME_MS else output.timestamp_ms
            about = {"event_time_ms": at_ms, "watermark_ms": output.watermark_ms}
            return tables.side_outputs_name(output.tag), {**keys, **values, **about}
    raise AssertionError(output)


def _state(case: Case, hour: Hour) -> Iterator[tuple[str, Row]]:
    names = case.pipeline.log.key_columns
    for row in hour.snapshot.windows:
        plain = {name: getattr(row, name) for name in STATE_COLUMNS}
        plain |= {"trigger_state": from_json(to_json(row.trigger_state)), **_named(names, row.key)}
        for (name, columns), state in zip(case.engine.accumulators.items(), row.accumulators, strict=True):
            plain[f"acc_{name}"] = dict(zip(columns, state, strict=True))
        plain["contents"] = [
            {"slice_start_ms": one.position[0], "rank": one.position[1], "event_time_ms": one.timestamp_ms,
             "edge_id": one.edge_id, "value": to_json(one.value)} for one in row.contents
        ]  # fmt: skip
        if case.engine.keeps_last:
            last = row.last_values
            plain["last_emitted"] = None if last is None else _named(tuple(case.engine.outputs), last)
        yield tables.WINDOW_STATE, plain
    for timer in hour.snapshot.timers:
        bounds: Any = timer.namespace or (None, None)
        about = {"domain": timer.domain, "at_ms": timer.at_ms, "window_start_ms": bounds[0], "window_end_ms": bounds[1]}
        yield tables.TIMERS, {**_named(names, timer.key), **about}
    for user in hour.snapshot.user_state:
        bounds = user.namespace or (None, None)
        about = {"name": user.name, "kind": user.kind, "content": to_json(user.content)}
        about |= {"window_start_ms": bounds[0], "window_end_ms": bounds[1]}
        yield tables.USER_STATE, {**_named(names, user.key), **about}
    for source in hour.sources:
        yield tables.WATERMARKS, {**source._asdict(), "details": dict(source.details)}


def _of_record(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a Record
    return {"record_hash": record.record_hash, "event_time_ms": record.timestamp_ms, "rank": record.position[1]}


def _named(names: Sequence[str], values: Any) -> dict[str, Any]:  # noqa: ANN401 - a tuple of column values
    return dict(zip(names, values, strict=True))


def _values(columns: Mapping[str, str], values: Any) -> dict[str, Any]:  # noqa: ANN401 - what a function returned
    if isinstance(values, Mapping):
        return {name: values.get(name) for name in columns}
    return _named(tuple(columns), values if isinstance(values, tuple) and len(values) == len(columns) else (values,))


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """Return a value that compares and hashes by its content: instants as ms, floats by their text."""
    match value:
        case datetime():
            return (value.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)
        case float():
            return repr(value)
        case Mapping():
            return tuple((name, plain(one)) for name, one in sorted(value.items()))
        case list() | tuple():
            return tuple(plain(one) for one in value)
        case _:
            return value


def first_difference(wanted: Rows, found: Rows) -> str | None:
    """Compare by table, slice and content; the columns that the reference does not know are coordinates.

    Returns:
        What differs first, in words; None where nothing does.
    """
    for table, rows in wanted.items():
        there = found.get(table, ())
        names = set().union(*rows) if rows else set()
        left = Counter(_content(row, names) for row in rows)
        right = Counter(_content(row, names) for row in there)
        if left == right:
            continue
        missing, more = sorted((left - right).elements(), key=repr), sorted((right - left).elements(), key=repr)
        return (
            f"table {table}: {len(rows)} wanted, {len(there)} there; missing {len(missing)}, too many {len(more)}\n"
            f"  first missing:  {_shown(missing)}\n  first too many: {_shown(more)}"
        )
    return None


def _content(row: Row, names: Iterable[str]) -> Any:  # noqa: ANN401 - a hashable
    read: dict[str, Any] = {name: row.get(name) for name in names}
    for name in {"trigger_state", "details"} & read.keys():
        read[name] = from_json(read[name]) if isinstance(read[name], str) else read[name]
    if "details" in read and read["details"].get(FIRST_ARRIVAL) == MIN_TIME_MS:
        # Without a clock there is no first arrival, and only the sequential pass over time notes that.
        read["details"] = {name: value for name, value in read["details"].items() if name != FIRST_ARRIVAL}
    return plain(read)


def _shown(rows: Sequence[Any]) -> str:
    return str(dict(rows[0])) if rows else "-"


def slice_no(slice_id: str) -> int:
    """Return the number of a slice from its id."""
    return HOURS.index(slice_id[: len(HOURS[0])])
