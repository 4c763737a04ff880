"""The recorded answers of Apache Flink, played through kernels in the strict semantics.

Every case whose windows, trigger and function the kernels cover is played. The panes are those of the operator, and
those of Flink except where a defect of Flink changes them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any, Final

from tests.conformance.flink_player import spec_of
from tests.support.bucket_feed import placed_steps
from tests.support.recorded_cases import case_files
from tests.windowlib.kernels.random_chains import Chunk, Fed, base_plan, batch_of, play
from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIME_MS, MIN_TIMESTAMP_MS
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import SliceRange
from windowlib.execution.bucket import executor_for
from windowlib.kernels.coverage import why_not
from windowlib.profiles import STRICT
from windowlib.records import tables
from windowlib.watermarks.timeline import Step

IDENTICAL_SESSIONS: Final = 2
"""The covered cases in which Flink loses the contents of a session (F1)."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
AGGREGATES: Final = {"list": "collect_list", "reduce": "sum", "avg": "avg"}
Case = tuple[BucketPlan, Chunk, list[tuple[Any, ...]]]


def steps_and_records(script: Mapping[str, Any]) -> tuple[list[Step], list[Fed]]:
    """Return the watermarks of a script as steps, and its records. The place of an event is its sequence number."""
    steps, records, clock_ms = list[Step](), list[Fed](), 0
    for place, event in enumerate(script["events"], 1):
        match event:
            case ["w", at_ms]:
                if not steps or at_ms > steps[-1].watermark_ms:
                    steps.append(Step(place, clock_ms, clock_ms, at_ms))
            case ["e", key, value, at_ms, *gap]:
                values = (value, gap[0] if gap else 1)
                records.append(Fed(place, place, at_ms, place * 0x9E37_79B9, (str(key),), values))
            case _:
                continue
    return steps, records


def is_replayable(script: Mapping[str, Any]) -> bool:
    """Return whether the watermark of a script never falls or is lost, and its event times are those of pipelines."""
    if script.get("mode", "window") != "window":
        return False
    events = script["events"]
    marks = [event[1] for event in events if event[0] == "w"]
    times = [event[3] for event in events if event[0] == "e"]
    keeps_time = all(event[0] != "snap" for event in events)  # after a snapshot, Flink has lost its watermark (F2)
    return (
        keeps_time
        and all(a <= b for a, b in pairwise([MIN_TIME_MS, *marks]))
        and all(at_ms is not None and MIN_TIMESTAMP_MS <= at_ms <= MAX_TIMESTAMP_MS for at_ms in times)
    )


def cases() -> Iterator[Case]:
    for file in case_files("flink"):
        for line in file.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            script, answer = case["script"], case["expect"]["out"]
            fails = any(out[0] == "x" for out in answer)
            if not fails and is_replayable(script) and (found := chunk_of(script)) is not None:
                panes = [(key, *rest[:3]) for kind, key, *rest in answer if kind == "o"]
                yield found.plan, found, panes


def chunk_of(script: Mapping[str, Any]) -> Chunk | None:
    """Return a script as one slice; None if the kernels do not cover it."""
    flink = spec_of(script)
    if flink.evictor is not None:
        return None
    spec = replace(flink, profile=STRICT, function=(), leftovers="report")
    plan = base_plan(Random(0), spec, [(AGGREGATES[script.get("function", "list")], "bigint")], gap="gap")
    if why_not(plan.spec, plan.layout) is not None:
        return None
    steps, records = steps_and_records(script)
    ranges = (SliceRange(slice_no=0, start_ms=0, end_ms=1, end_sequence=1 << 40),)
    plan = replace(plan, **plan_of_strings(plan), steps=placed_steps(steps, ranges, [len(steps)]), slices=ranges)
    return Chunk(plan=plan, records=[records])


def plan_of_strings(plan: BucketPlan) -> dict[str, Any]:
    """Return the fields of a plan whose key is one string column."""
    keys, outputs = {"key": "string"}, {"a0": plan.spec.function.aggregates[0].output_type}  # type: ignore[attr-defined]
    written = (
        tables.window_outputs(keys, outputs),
        tables.late_records("string").slim(),
        tables.unassigned_records("string").slim(),
        tables.window_state(keys, plan.accumulators),
        tables.timers(keys),
        tables.tallies(),
    )
    return {"keys": keys, "tables": written}


def panes_of(chunk: Chunk) -> list[tuple[Any, ...]]:
    """Return key, bounds and value of each pane."""
    executor = executor_for(chunk.plan)
    executor.restore({})
    parts = [executor.process(batch_of(chunk.plan, records)) for records in chunk.records] + [executor.end_slice()]
    panes = [part[tables.WINDOW_OUTPUTS] for part in parts if tables.WINDOW_OUTPUTS in part]
    rows = [row for part in panes for row in part.to_pylist() if row["kind"] == "result"]
    return [(row["key"], in_ms(row["window_start"]), in_ms(row["window_end"]), row["a0"]) for row in rows]


def in_ms(bound: datetime | None) -> int | None:
    return None if bound is None else (bound - EPOCH) // timedelta(milliseconds=1)


def normal(panes: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return panes in a fixed order; the values of a list are sorted, because Flink does not order merged windows."""
    return sorted(repr((*bounds, sorted(value) if isinstance(value, list) else value)) for *bounds, value in panes)


def test_recorded_cases_have_the_panes_of_the_operator_and_of_flink() -> None:
    played = equal = 0
    for plan, chunk, recorded in cases():
        found, _ = play(Random(played), replace(chunk, plan=replace(plan, executor="kernel")), {})
        expected, _ = play(Random(played), replace(chunk, plan=replace(plan, executor="operator")), {})
        assert found == expected
        played += 1
        equal += normal(panes_of(chunk)) == normal(recorded)
    assert played > 100
    assert equal == played - IDENTICAL_SESSIONS, f"{equal} of {played} cases have Flink's panes"
