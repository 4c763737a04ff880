"""Flink's recorded cases through Spark: the answers equal those of one process, in one chunk and in two chunks.

One Spark job plays all cases of one kind of function, a task each. Each case is a log of its own: its watermarks and
clock ticks are the steps, and its state between two chunks is rows of the checkpoint tables.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from jobs.replay.tasks import SparkTasks
from tests.conformance.flink_player import spec_of
from tests.conformance.play import play
from tests.support.bucket_feed import BucketResult, FedRecord, run_bucket
from tests.support.recorded_cases import CHECKER, case_files
from tests.support.spark_session import SparkSession
from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIME_MS, MIN_TIMESTAMP_MS, wrap_int64
from windowlib.columnar.plan import BucketPlan, CheckpointRules
from windowlib.columnar.record_values import ValueLayout
from windowlib.columnar.restored import DAMAGED
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps, columns_of
from windowlib.functions.window_functions import Reduce, Whole
from windowlib.records import tables
from windowlib.records.records import LATE_IN_GAP, PAST_CLEANUP
from windowlib.records.tables import Table
from windowlib.watermarks.timeline import Step

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = {"key": "string"}
LAST_SEQUENCE = 1 << 40
SLICE = SliceRange(slice_no=0, start_ms=0, end_ms=0, end_sequence=LAST_SEQUENCE)
Script = Mapping[str, Any]


def can_be_replayed(script: Script) -> bool:
    """Return whether a replay can have this script: clocks only rise, and each event time is in the years 1 to 9999."""
    if script.get("mode", "window") != "window" or script.get("function", "list") == "avg":
        return False
    events = script["events"]
    marks = [event[1] for event in events if event[0] == "w"]
    ticks = [script.get("proc_start", 0), *(event[1] for event in events if event[0] == "p")]
    rises = all(a < b for a, b in pairwise([MIN_TIME_MS, *marks])) and all(a < b for a, b in pairwise(ticks))
    times = [event[3] for event in events if event[0] == "e"]
    timed = all(at_ms is not None and MIN_TIMESTAMP_MS <= at_ms <= MAX_TIMESTAMP_MS for at_ms in times)
    return rises and timed and all(event[0] != "snap" for event in events)


def scripts() -> list[Script]:
    found = []
    for file in case_files("flink"):
        for line in file.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if can_be_replayed(case["script"]) and not any(out[0] == "x" for out in case["expect"]["out"]):
                found.append(case["script"])
    return found


SCRIPTS = scripts()


def kind_of(script: Script) -> tuple[str, bool]:
    """Return what decides the columns: the function, and whether an evictor makes windows keep their records."""
    return script.get("function", "list"), bool(script.get("evictor"))


def schemas(kind: tuple[str, bool]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the columns of a pane's values and those of the state."""
    function, keeps_records = kind
    if function == "list":
        return {"result": "array<bigint>"}, {}
    return {"result": "bigint"}, {} if keeps_records else {"result": {"is_set": "boolean", "value": "bigint"}}


def emitted(kind: tuple[str, bool]) -> tuple[Table, ...]:
    outputs, accumulators = schemas(kind)
    record_tables = tables.late_records("string"), tables.unassigned_records("string")
    slim = [table.slim() for table in record_tables]
    state = tables.window_state(KEYS, accumulators)
    return (
        tables.window_outputs(KEYS, outputs),
        *slim,
        state,
        tables.timers(KEYS),
        tables.state_removals(),
        tables.tallies(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The events of one chunk of a script, as places in the script, and the clock and watermark before them."""

    script: Script
    events: range
    beginning: Beginning

    def steps(self) -> Steps:
        due_ms = clock_ms = self.beginning.clock_ms
        watermark_ms, steps = self.beginning.watermark_ms, list[Step]()
        for place in self.events:
            match self.script["events"][place]:
                case ["w", at_ms]:
                    watermark_ms = at_ms
                case ["p", at_ms]:
                    due_ms, clock_ms = at_ms + 1, at_ms
                case _:
                    continue
            steps.append(Step(place, due_ms, clock_ms, watermark_ms))
        sequence, due, clock, watermark = columns_of(steps)
        return Steps(
            sequence=sequence,
            due_ms=due,
            clock_ms=clock,
            watermark_ms=watermark,
            slice_ends=(len(steps),),
            ranges=(SLICE,),
        )

    def end(self) -> Beginning:
        steps = self.steps()
        if not len(steps.sequence):
            return self.beginning
        return Beginning(watermark_ms=int(steps.watermark_ms[-1]), clock_ms=int(steps.clock_ms[-1]))

    def plan(self) -> BucketPlan:
        kind = kind_of(self.script)
        spec = spec_of(self.script)
        if kind[0] == "reduce":
            total = Reduce(function=lambda left, right: wrap_int64(left + right), output_type="bigint")
            spec = replace(spec, function=Whole(total))
        outputs, accumulators = schemas(kind)
        return BucketPlan(
            spec=spec,
            layout=ValueLayout(kind="single", columns=("value",), gap="gap"),
            keys=KEYS,
            inputs={"value": "bigint", "gap": "bigint"},
            outputs=tuple(outputs),
            side_outputs={},
            accumulators=accumulators,
            last=(),
            slices=(SLICE,),
            steps=self.steps(),
            beginning=self.beginning,
            max_parallelism=128,
            tables=emitted(kind),
            buckets=1,
            tasks=1,
            checkpoints=CheckpointRules(full_slices=frozenset([0])),
        )

    def records(self) -> list[FedRecord]:
        fed = []
        for place in self.events:
            event = self.script["events"][place]
            if event[0] == "e":
                values = {"key": str(event[1]), "value": event[2], "gap": event[4] if len(event) > 4 else None}
                fed.append(FedRecord(place, 0, place, event[3], place, values))
        return fed


def start_of(script: Script) -> Beginning:
    return Beginning(clock_ms=script.get("proc_start", 0))


def run(spark: SparkSession, parts: Sequence[Part], before: Sequence[BucketResult] | None) -> list[BucketResult]:
    """Play all parts in one Spark job, one bucket each; `before` is the end of the chunk before."""
    states = [{}] * len(parts) if before is None else [state_of(one) for one in before]
    played = zip(parts, states, strict=True)
    return SparkTasks(spark.sparkContext).run(
        lambda one: run_bucket(one[0].plan(), one[1], one[0].records()), [*played]
    )


def state_of(result: BucketResult) -> dict[str, list[dict[str, Any]]]:
    names = (tables.WINDOW_STATE, tables.TIMERS)
    return {name: result.rows[0, name].to_pylist() for name in names if (0, name) in result.rows}


def answers(parts: Sequence[Part], chunks: Sequence[Sequence[BucketResult]]) -> list[dict[str, Any]]:
    """Return the answer of each case, in the recorded form, from what its chunks emitted."""
    return [answer(part, [chunk[case] for chunk in chunks]) for case, part in enumerate(parts)]


def answer(part: Part, chunks: Sequence[BucketResult]) -> dict[str, Any]:
    dropped, out = 0, list[tuple[int, int, list[Any]]]()
    for chunk in chunks:
        assert not [term for _, equation, term in chunk.tallies if equation == DAMAGED]
        out += [pane_of(row) for row in rows_of(chunk, tables.WINDOW_OUTPUTS) if row["kind"] == "result"]
        for row in rows_of(chunk, tables.LATE_RECORDS):
            late = late_of(part.script, row)
            out += late
            dropped += row["missed_all"] and not late
    timers: dict[str, list[Any]] = {"event": [], "processing": []}
    for row in rows_of(chunks[-1], tables.TIMERS):
        timers[row["domain"]].append([row["window_start_ms"], row["window_end_ms"], row["at_ms"]])
    # A pane that a watermark fires comes before the watermark's own entry; both have the place of its event.
    marks = [(place, 1, event) for place, event in enumerate(part.script["events"]) if event[0] == "w"]
    entries = [entry for _, _, entry in sorted([*out, *marks], key=lambda entry: entry[:2])]
    return {"out": entries, "dropped": dropped, "event_timers": timers["event"], "proc_timers": timers["processing"]}


def rows_of(chunk: BucketResult, table: str) -> list[dict[str, Any]]:
    return chunk.rows[0, table].to_pylist() if (0, table) in chunk.rows else []


def late_of(script: Script, late: Mapping[str, Any]) -> list[tuple[int, int, list[Any]]]:
    """Return a late record as Flink's side output has it, or nothing if Flink only counts the record."""
    assert late["reason"] in {PAST_CLEANUP, LATE_IN_GAP}, "wrapped windows are outside the years 1 to 9999"
    if not late["missed_all"] or not script.get("late_output"):
        return []
    _, key, value, at_ms, *_ = script["events"][late["rank"]]
    return [(late["rank"], 0, ["late", str(key), value, at_ms])]


def pane_of(pane: Mapping[str, Any]) -> tuple[int, int, list[Any]]:
    start, end = pane["window_start"], pane["window_end"]
    bounds = [None if at is None else (at - EPOCH) // timedelta(milliseconds=1) for at in (start, end)]
    at_ms = pane["pane_time_ms"]
    result = pane["result"]
    payload = list(result) if isinstance(result, list) else result
    return pane["fired_rank"], 0, ["o", pane["key"], *bounds, payload, (1 << 63) - 1 if at_ms is None else at_ms]


def recorded(script: Script) -> dict[str, Any]:
    """Return the answer of one process, with keys as texts."""
    answer = json.loads(json.dumps(play(script)))
    answer["out"] = [[out[0], str(out[1]), *out[2:]] if out[0] in {"o", "late"} else out for out in answer["out"]]
    return dict(answer)


def test_enough_cases_are_played() -> None:
    assert len(SCRIPTS) >= 200


@pytest.mark.spark
@pytest.mark.parametrize("kind", sorted({kind_of(script) for script in SCRIPTS}), ids=str)
def test_spark_gives_the_answer_of_one_process(spark: SparkSession, kind: tuple[str, bool]) -> None:
    chosen = [script for script in SCRIPTS if kind_of(script) == kind]
    whole = [Part(script=case, events=range(len(case["events"])), beginning=start_of(case)) for case in chosen]
    uncut = run(spark, whole, None)
    halves = [len(case["events"]) // 2 for case in chosen]
    first = [replace(part, events=range(half)) for part, half in zip(whole, halves, strict=True)]
    earlier = run(spark, first, None)
    second = [
        Part(script=part.script, events=range(part.events.stop, len(part.script["events"])), beginning=part.end())
        for part in first
    ]
    later = run(spark, second, earlier)
    for chunks in ([uncut], [earlier, later]):
        for script, got in zip(chosen, answers(whole, chunks), strict=True):
            assert CHECKER.normal(script, got) == CHECKER.normal(script, recorded(script)), script
