"""Flink's recorded cases through Spark: the answers equal those of one process, in one chunk and in two chunks.

One Spark job plays all cases of one kind of function. Each case is a log of its own: its records are the feed, its
watermarks and clock ticks are the steps, and its state between two chunks is rows of the checkpoint tables.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.recorded_cases import CHECKER, case_files
from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIME_MS, MIN_TIMESTAMP_MS, wrap_int64
from windowlib.columnar.plan import BucketPlan, CheckpointRules, SliceRange
from windowlib.columnar.record_values import ValueLayout
from windowlib.columnar.restored import DAMAGED
from windowlib.columnar.tagged_rows import KEPT_TAG
from windowlib.columnar.watermark_steps import Beginning, Steps, columns_of
from windowlib.execution.bucket import FEED_KINDS, replay_bucket
from windowlib.functions.window_functions import Reduce, Whole
from windowlib.records import tables
from windowlib.records.column_types import Node
from windowlib.records.records import LATE_IN_GAP, PAST_CLEANUP
from windowlib.records.tables import Table
from windowlib.testkit.conformance import play
from windowlib.testkit.flink_conformance import spec_of
from windowlib.watermarks.timeline import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEYS = {"key": "string"}
LAST_SEQUENCE = 1 << 40
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
        zeros = np.zeros(len(steps), dtype=np.int64)
        return Steps(
            sequence=sequence,
            slice_start_ms=zeros,
            rank=sequence,
            due_ms=due,
            clock_ms=clock,
            watermark_ms=watermark,
            slice_ends=(len(steps),),
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
            slices=(SliceRange(slice_no=0, start_ms=0, end_ms=0, end_sequence=LAST_SEQUENCE),),
            steps=self.steps(),
            beginning=self.beginning,
            max_parallelism=128,
            tables=emitted(kind),
            buckets=1,
            tasks=1,
            checkpoints=CheckpointRules(full_slices=frozenset([0])),
        )

    def records(self, case: int) -> Iterator[tuple[Any, ...]]:
        for place in self.events:
            event = self.script["events"][place]
            if event[0] == "e":
                gap_ms = event[4] if len(event) > 4 else None
                yield (case, FEED_KINDS["record"], place, 0, place, event[3], place, str(event[1]), event[2], gap_ms)


RECORD_SCHEMA = (
    "case int, kind int, sequence long, slice_no int, rank long, event_time_ms long, record_hash long, k0 string, "
    "v0 long, v1 long"
)


def spark_struct(columns: Mapping[str, Node]) -> "StructType":
    """Return the Spark struct type with these columns as fields."""
    from pyspark.sql import types as T  # noqa: N812

    fields = [{"name": name, "type": node, "nullable": True, "metadata": {}} for name, node in columns.items()]
    return T.StructType.fromJson({"type": "struct", "fields": fields})


def start_of(script: Script) -> Beginning:
    return Beginning(clock_ms=script.get("proc_start", 0))


def run(spark: "SparkSession", parts: Sequence[Part], before: "DataFrame | None") -> "DataFrame":
    """Play all parts in one Spark job, one group each; return the tagged result with the number of its case."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    kind = kind_of(parts[0].script)
    plans = {case: part.plan() for case, part in enumerate(parts)}
    fed = spark.createDataFrame([row for case, part in enumerate(parts) for row in part.records(case)], RECORD_SCHEMA)
    empty = spark.createDataFrame([(case,) for case in plans], "case int").withColumn("kind", F.lit(-1))
    fed = fed.unionByName(empty, allowMissingColumns=True)
    for name, column in ((tables.WINDOW_STATE, "window"), (tables.TIMERS, "timer")):
        table = next(table for table in emitted(kind) if table.name == name)
        columns = [field for field in table.emitted_columns() if field not in KEYS]
        state = spark_struct({field: table.emitted_columns()[field] for field in columns})
        if before is None:
            fed = fed.withColumn(column, F.lit(None).cast(state))
            continue
        rows = before.where(F.col("tag").isin(name, KEPT_TAG + name))
        key = F.col(name).getField("key").alias("k0")
        struct = F.struct(*(F.col(name).getField(field).alias(field) for field in columns)).alias(column)
        kept = rows.select("case", F.lit(FEED_KINDS[column]).alias("kind"), F.lit(0).alias("sequence"), key, struct)
        fed = fed.unionByName(kept, allowMissingColumns=True)
    if "user" not in fed.columns:
        fed = fed.withColumn("user", F.lit(None).cast("string"))

    def play_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = pa.Table.from_batches(batches).sort_by([("kind", "ascending"), ("sequence", "ascending")])
        case = whole["case"][0].as_py()
        real = whole.filter(pa.compute.greater_equal(whole["kind"], 0)).combine_chunks().to_batches()
        for batch in replay_bucket(iter(real), plans[case]):
            yield batch.append_column("case", pa.array([case] * batch.num_rows, pa.int32()))

    schema = T.StructType([T.StructField("tag", T.StringType()), T.StructField("slice_no", T.IntegerType())])
    for table in emitted(kind):
        schema = schema.add(table.name, spark_struct(table.emitted_columns()))
    schema = schema.add("case", T.IntegerType())
    return fed.groupBy("case").applyInArrow(play_groups, schema).localCheckpoint()


def answers(parts: Sequence[Part], chunks: "Sequence[DataFrame]") -> list[dict[str, Any]]:
    """Return the answer of each case, in the recorded form, from the rows that its chunks emitted."""
    found: list[dict[str, Any]] = [{"out": [], "dropped": 0, "event_timers": [], "proc_timers": []} for _ in parts]
    rows: list[list[tuple[int, int, list[Any]]]] = [[] for _ in parts]
    for chunk in chunks:
        for row in chunk.collect():
            case = row["case"]
            match row["tag"].removeprefix(KEPT_TAG):
                case tables.WINDOW_OUTPUTS if row[tables.WINDOW_OUTPUTS]["kind"] == "result":
                    rows[case].append(pane_of(row[tables.WINDOW_OUTPUTS]))
                case tables.LATE_RECORDS:
                    late = late_of(parts[case].script, row[tables.LATE_RECORDS])
                    rows[case] += late
                    found[case]["dropped"] += row[tables.LATE_RECORDS]["missed_all"] and not late
                case tables.TALLIES:
                    assert row[tables.TALLIES]["equation"] != DAMAGED, row[tables.TALLIES]["term"]
                case tables.TIMERS if chunk is chunks[-1]:
                    timer = row[tables.TIMERS]
                    name = "event_timers" if timer["domain"] == "event" else "proc_timers"
                    found[case][name].append([timer["window_start_ms"], timer["window_end_ms"], timer["at_ms"]])
    for case, part in enumerate(parts):
        # A pane that a watermark fires comes before the watermark's own entry; both have the place of its event.
        marks = [(place, 1, event) for place, event in enumerate(part.script["events"]) if event[0] == "w"]
        found[case]["out"] = [out for _, _, out in sorted([*rows[case], *marks], key=lambda entry: entry[:2])]
    return found


def late_of(script: Script, late: Any) -> list[tuple[int, int, list[Any]]]:  # noqa: ANN401 - a Row
    """Return a late record as Flink's side output has it, or nothing if Flink only counts the record."""
    assert late["reason"] in {PAST_CLEANUP, LATE_IN_GAP}, "wrapped windows are outside the years 1 to 9999"
    if not late["missed_all"] or not script.get("late_output"):
        return []
    _, key, value, at_ms, *_ = script["events"][late["rank"]]
    return [(late["rank"], 0, ["late", str(key), value, at_ms])]


def pane_of(pane: Any) -> tuple[int, int, list[Any]]:  # noqa: ANN401 - a Row
    start, end = pane["window_start"], pane["window_end"]
    bounds = [None if at is None else round(at.timestamp() * 1000) for at in (start, end)]
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
def test_spark_gives_the_answer_of_one_process(spark: "SparkSession", kind: tuple[str, bool]) -> None:
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
