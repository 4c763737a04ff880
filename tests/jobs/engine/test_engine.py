"""Compiled Engines, run over a few flights in one process: which part reads which column, and what is emitted."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from jobs.engine.engine import Engine, ValueLayout
from jobs.engine.window_spec import changed_states, engine
from tests.support.grammar import COLUMNS, OURS, document, every_form, pipeline
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.columnar.executor import arrow_columns
from windowlib.columnar.output_rows import OutputRows
from windowlib.errors import SpecError
from windowlib.records import tables
from windowlib.records.column_types import struct_type
from windowlib.records.records import Emitted, Output, Pane, Record, SideOutput
from windowlib.watermarks.timeline import Arrival, SourceRow

HOUR_MS = 3_600_000
NAMES = ("flight_id", "carrier", "distance", "dep_delay", "departed_at")
FLIGHTS: list[dict[str, Any]] = [
    dict(zip(NAMES, values, strict=True))
    for values in (
        ("f0", "AA", 300.0, 1.0, 0),
        ("f1", "UA", 700.0, None, HOUR_MS // 6),
        ("f2", "AA", 1200.0, 5.0, HOUR_MS // 6 * 5),
        ("f3", "UA", None, -2.0, HOUR_MS // 6 * 7),
        ("f4", "DL", 450.0, 0.0, 4 * HOUR_MS),
    )
]


def value_of(layout: ValueLayout, row: dict[str, Any]) -> Any:  # noqa: ANN401 - plain data
    values = [None if name is None else row.get(name) for name in layout.columns]
    if layout.kind == "mapping":
        return dict(zip(layout.columns, values, strict=True))
    return (*values, *([{name: row.get(name) for name in layout.shown}] if layout.shown else []))


def run(
    built: Engine, rows: Sequence[dict[str, Any]] = FLIGHTS, *, is_clocked: bool = False, cut: int | None = None
) -> list[Output]:
    """Run an Engine with one key and one source; after the last record follow a silent day and the end of time.

    At record `cut`, a new operator and a new driver are restored from the snapshots and continue.
    """
    operator, driver = built.operator.build(), built.time.driver()
    operator.begin(0)
    watermark_ms, clock_ms = MIN_TIME_MS, 0
    before: list[Output] = []
    for rank, row in enumerate(rows):
        if rank == cut:
            before, snapshot, sources = operator.drain(), operator.snapshot(), driver.snapshot()
            operator, driver = built.operator.build(), built.time.driver()
            operator.restore(snapshot)
            operator.begin(0)
            driver.restore([SourceRow(*row) for row in json.loads(json.dumps(sources))])
        at_ms = row["departed_at"]
        clock_ms = row["reported_at"] if is_clocked else at_ms
        operator.advance_processing_time(clock_ms, (0, rank), inclusive=False)
        operator.process(Record(("JFK",), at_ms, value_of(built.layout, row), (0, rank), rank + 1))
        arrival = Arrival(rank, at_ms, clock_ms, "", {name: row.get(name) for name in built.time.columns}, rank)
        driver.before_record(arrival)
        driver.on_record(arrival)
        if driver.watermark_ms > watermark_ms:
            watermark_ms = driver.watermark_ms
            operator.advance_watermark(watermark_ms, (0, rank))
    operator.advance_processing_time(clock_ms + 24 * HOUR_MS, (0, len(rows)))
    operator.advance_watermark(MAX_TIME_MS, (0, len(rows)))
    return [*before, *operator.drain()]


def panes(outputs: Sequence[Output]) -> list[tuple[Any, ...]]:
    """Start hour and end hour of each pane, and its values."""
    shown = []
    for output in outputs:
        if isinstance(output, Pane):
            start_ms, end_ms = output.window
            hours = (None, None) if start_ms is None or end_ms is None else (start_ms / HOUR_MS, end_ms / HOUR_MS)
            shown.append((*hours, output.values))
    return shown


def built(**changes: Any) -> Engine:  # noqa: ANN401 - parts of a file
    return engine(pipeline(**changes), COLUMNS)


def test_aggregates_of_tumbling_hours() -> None:
    assert panes(run(built())) == [(0, 1, (3, 6.0)), (1, 2, (1, -2.0)), (4, 5, (1, 0.0))]


def test_a_function_computes_the_gap_from_a_column() -> None:
    gap = {"session": {"gap": {"function": {"name": f"{OURS}:gap_of_distance", "columns": ["distance"]}}}}
    one = built(windows=gap)
    assert (one.layout.columns, one.layout.shown) == ((None, "dep_delay"), ("distance",))
    assert panes(run(one)) == [(0, 50 / 60 + 3, (4, 4.0)), (4, 5, (1, 0.0))]


def test_a_column_holds_the_gap() -> None:
    rows = [row | {"rest_s": 1200 if row["carrier"] == "AA" else 60} for row in FLIGHTS]
    one = built(windows={"session": {"gap": {"column": "rest_s", "unit": "s"}}})
    assert [values for *_, values in panes(run(one, rows))] == [(2, 1.0), (2, 3.0), (1, 0.0)]


def test_a_missing_gap_stops_the_run() -> None:
    with pytest.raises(SpecError, match="has gap None"):
        run(built(windows={"session": {"gap": {"column": "rest_s"}}}))


def test_a_users_trigger_gets_the_columns_that_the_file_lists() -> None:
    trigger = {"function": {"name": f"{OURS}:FireOnCarrier", "columns": ["carrier"]}}
    windows = {"tumbling": {"size": "1d"}, "trigger": trigger, "leftovers": "report"}
    assert panes(run(built(windows=windows))) == [(0, 24, (2, 1.0)), (0, 24, (4, 4.0))]


def test_a_delta_shares_the_column_of_an_aggregate_and_skips_nulls() -> None:
    windows = {"global": {}, "trigger": {"delta": {"column": "dep_delay", "threshold": 3}}}
    one = built(windows=windows, watermark=None)
    assert one.layout.columns == (None, "dep_delay")
    assert panes(run(one)) == [(None, None, (3, 6.0))]


def test_a_users_evictor_drops_records_before_the_aggregates() -> None:
    evictor = {"function": {"name": f"{OURS}:KeepLongFlights", "columns": ["distance"]}}
    one = built(windows={"tumbling": {"size": "1d"}, "evictor": evictor})
    assert one.accumulators == {}, "the windows store whole records"
    assert panes(run(one)) == [(0, 24, (2, 5.0))]


def test_a_window_function_gets_mappings() -> None:
    process = {"function": f"{OURS}:longest", "output": {"flight": "string", "miles": "double"}}
    one = built(windows={"tumbling": {"size": "1d"}}, aggregates=None, process=process)
    assert one.layout.kind == "mapping"
    assert panes(run(one)) == [(0, 24, {"flight": "f2", "miles": 1200.0})]


def test_a_users_reduce_aggregate_and_fold() -> None:
    day = {"tumbling": {"size": "1d"}}
    reduce = {"function": {"name": f"{OURS}:longest_so_far", "columns": ["flight_id", "distance"]}}
    one = built(
        windows=day, aggregates=None, process=reduce | {"output": {"flight_id": "string", "distance": "double"}}
    )
    assert dict(one.accumulators) == {"flight_id": {"state": "string"}}
    assert panes(run(one)) == [(0, 24, {"flight_id": "f2", "distance": 1200.0})]
    mean = {"function": f"{OURS}:mean_distance", "output": {"miles": "double"}}
    assert panes(run(built(windows=day, aggregates=None, process=mean))) == [(0, 24, 530.0)]
    sessions = built(windows={"session": {"gap": "1h"}}, aggregates=None, process=mean)
    assert [values for *_, values in panes(run(sessions))] == [550.0, 450.0]
    folded = {"function": f"{OURS}:carriers_in_order", "output": {"carriers": "string"}}
    assert panes(run(built(windows=day, aggregates=None, process=folded))) == [(0, 24, "AAUAAAUADL")]


def test_a_process_function_after_aggregates_gets_their_results_by_name() -> None:
    one = built(
        process={
            "function": f"{OURS}:Share",
            "output": {"mean": "double", "windows": "bigint"},
            "state": {"windows": {"type": "bigint"}},
            "side_outputs": {"without_delay": {"key_text": "string"}},
        }
    )
    assert one.keeps_user_state
    assert dict(one.outputs) == {"mean": "double", "windows": "bigint"}
    rows = [*FLIGHTS, FLIGHTS[0] | {"departed_at": 9 * HOUR_MS, "dep_delay": None}]
    found = run(one, rows)
    assert panes(found) == [(0, 1, (2.0, 1)), (1, 2, (-2.0, 2)), (4, 5, (0.0, 3))]
    assert [(one.tag, one.value) for one in found if isinstance(one, SideOutput)] == [
        ("without_delay", {"key_text": "('JFK',)"})
    ]


@pytest.mark.parametrize(
    ("aggregate", "former", "now", "is_changed"),
    [
        ("sum", "decimal(10,2)", "decimal(12,4)", True),
        ("sum", "decimal(10,2)", "decimal(12,2)", False),
        ("avg", "int", "double", True),
        ("avg", "int", "bigint", False),
        ("variance", "int", "double", False),
        ("last", "float", "double", True),
    ],
)
def test_a_wider_column_changes_some_running_states(aggregate: str, former: str, now: str, *, is_changed: bool) -> None:
    """Defect: a function after aggregates got a hundredth of the sum of decimals that were open as the scale grew."""
    built = pipeline(aggregates={"x": {aggregate: "distance"}, "n": {"count": {}}})
    columns = [{**COLUMNS, "distance": kind} for kind in (former, now)]
    assert changed_states(built, columns[1], columns[0]) == ["x"] * is_changed


def test_a_keyed_process_function_without_windows() -> None:
    process = {
        "function": f"{OURS}:Silence",
        "output": {"silent_since_ms": "bigint"},
        "state": {"waiting": {"type": "bigint"}},
    }
    one = built(windows=None, aggregates=None, process=process, watermark={"kind": "ascending"})
    assert [out.values for out in run(one) if isinstance(out, Emitted)] == [{"silent_since_ms": 4 * HOUR_MS}]


def test_watermarks_from_columns_and_functions() -> None:
    marks = [None, 5, None, 90_000_000, 7]
    rows = [row | {"reported_at": mark} for row, mark in zip(FLIGHTS, marks, strict=True)]
    # The fourth record carries a watermark after all windows, so the fifth is late.
    assert panes(run(built(watermark={"kind": "column", "column": "reported_at"}), rows)) == [
        (0, 1, (3, 6.0)),
        (1, 2, (1, -2.0)),
    ]
    seconds = [row | {"rest_s": None if row["reported_at"] is None else row["reported_at"] // 1_000} for row in rows]
    assert len(panes(run(built(watermark={"kind": "column", "column": "rest_s", "unit": "s"}), seconds))) == 2
    instants = [row | {"marked_at": None if row["reported_at"] is None else row["reported_at"] * 1_000} for row in rows]
    assert len(panes(run(built(watermark={"kind": "column", "column": "marked_at"}), instants))) == 2
    functions = {"kind": "punctuated", "function": {"name": f"{OURS}:watermark_of_marker", "columns": ["carrier"]}}
    assert len(panes(run(built(watermark=functions)))) == 3


def test_a_watermark_that_is_not_a_whole_number_stops_the_run() -> None:
    functions = {"kind": "punctuated", "function": f"{OURS}:half_of_it"}
    with pytest.raises(SpecError, match=r"half_of_it returned 0\.0; a watermark is a whole number of epoch ms"):
        run(built(watermark=functions))


def test_retracting_windows_store_the_last_emitted_values() -> None:
    one = built(windows={"tumbling": {"size": "1h"}, "accumulation": "retracting", "allowed_lateness": "1d"})
    assert one.keeps_last
    assert not built().keeps_last


def test_the_clock_is_needed_if_something_may_wait_for_it() -> None:
    assert not built().needs_clock
    assert built(windows={"tumbling": {"size": "1h"}, "time": "processing"}).needs_clock
    users = {
        "windows": {"tumbling": {"size": "1h"}, "trigger": {"function": f"{OURS}:FireOnCarrier"}, "leftovers": "fire"}
    }
    assert built(**users).needs_clock, "a user's trigger may set timers on the clock"
    log = {key: part for key, part in document()["log"].items() if key != "arrival_time"}
    assert not built(**users, log=log).needs_clock


def test_a_function_that_needs_a_clock_or_a_watermark_is_refused_without_it() -> None:
    log = {key: part for key, part in document()["log"].items() if key != "arrival_time"}
    process = {"function": f"{OURS}:SetsTimers", "output": {"amount": "bigint"}}
    waits = {"windows": None, "aggregates": None, "watermark": {"kind": "ascending"}, "process": process}
    assert run(built(**waits))
    with pytest.raises(SpecError, match=r"uses ctx\.register_processing_timer, which needs log\.arrival_time"):
        run(built(**waits, log=log))
    with pytest.raises(SpecError, match=r"uses ctx\.register_event_timer, which needs watermark in the pipeline file"):
        run(built(**waits | {"watermark": None}))
    trigger = {"trigger": {"function": f"{OURS}:FireOnClock"}, "leftovers": "report"}
    clock = {"windows": {"tumbling": {"size": "1h"}, **trigger}}
    assert panes(run(built(**clock)))
    with pytest.raises(SpecError, match=r"uses ctx\.processing_time_ms, which needs log\.arrival_time"):
        run(built(**clock, log=log))


def test_other_engines_windows() -> None:
    storm = built(
        watermark=None, windows={"storm": {"length": {"count": 2}, "slide": {"count": 2}, "time": "processing"}}
    )
    assert [values for *_, values in panes(run(storm))] == [(2, 1.0), (2, 3.0)]
    group = {"$group": {"_id": None, "flights": {"$sum": 1}}}
    stage = {"interval": {"size": 1, "unit": "hour"}, "pipeline": [group, {"$project": {"_id": 0, "flights": 1}}]}
    atlas = {"$tumblingWindow": stage}
    one = built(watermark=None, aggregates=None, windows={"atlas": atlas})
    assert one.layout.kind == "mapping"
    assert [json.loads(document)["flights"] for *_, (document,) in panes(run(one))] == [3, 1, 1]


FORMS = every_form()


def many_flights(seed: int) -> list[dict[str, Any]]:
    """Rows of a few hours with every column, out of order, some values null."""
    random, rows = Random(seed), list[dict[str, Any]]()
    for place in range(150):
        arrived_ms = place * 120_000
        at_ms = arrived_ms - random.randrange(HOUR_MS)
        carrier = random.choice(["UA", "DL", "AA"])
        rows.append(
            dict.fromkeys(COLUMNS)
            | {"flight_id": f"f{place}", "carrier": carrier, "origin": "JFK", "departed_at": at_ms, "rest_s": 60}
            | {"reported_at": arrived_ms, "distance": random.choice([None, 100.0, 700.0, 2_000.0])}
            | {"dep_delay": random.choice([None, 1.5, -3.0]), "marked_at": random.choice([None, at_ms * 1_000])}
        )
    return rows


@pytest.mark.parametrize("name", FORMS)
def test_every_form_runs_and_its_rows_fit_the_tables(name: str) -> None:
    one = built(**FORMS[name])
    keys = {"origin": "string"}
    written = (
        tables.window_outputs(keys, one.outputs),
        tables.late_records(struct_type({})).slim(),
        tables.unassigned_records(struct_type({})).slim(),
        *(tables.side_outputs(tag, keys, columns) for tag, columns in one.side_outputs.items()),
    )
    side_outputs = {tag: tuple(columns) for tag, columns in one.side_outputs.items()}
    rows = OutputRows(written, tuple(one.outputs), side_outputs)
    columns_of = {table.name: arrow_columns(table) for table in written}
    outputs = run(one, many_flights(3), is_clocked=True)
    emitted = rows.emission(outputs, 0)
    assert sum(found.num_rows for found in emitted.values()) == len(outputs)
    for table, found in emitted.items():
        assert tuple(found.column_names) == columns_of[table]
    # The windows of these two end before their triggers fire. The audit counts their records (leftovers: report).
    assert (tables.WINDOW_OUTPUTS not in emitted) == (name in {"trigger-never", "trigger-end"})


@pytest.mark.parametrize("name", FORMS)
def test_every_form_continues_from_a_snapshot_with_the_same_output(name: str) -> None:
    one, rows = built(**FORMS[name]), many_flights(4)
    whole = run(one, rows, is_clocked=True)
    for cut in (1, 40, 110):
        assert run(one, rows, is_clocked=True, cut=cut) == whole, f"cut {cut}"


def test_atlas_documents_are_rows() -> None:
    one = built(**FORMS["atlas-tumbling"])
    assert {len(values) for *_, values in panes(run(one))} == {1}
