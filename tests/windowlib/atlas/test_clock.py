"""Atlas stages that read the replay's clock, and the time of dead letters with and without a clock."""

import json
from typing import Any

import pytest

from jobs.pipeline.files import build_pipeline
from tests.support.bucket_replay import LogSlice, replay_in_process
from tests.windowlib.atlas.playing import ms, stage
from windowlib.atlas.clock_use import reads_clock
from windowlib.errors import SpecError

DAY_MS = 86_400_000
COLUMNS = {"key": "string", "at_ms": "bigint", "seen_ms": "bigint", "n": "bigint"}
READS: dict[str, list[dict[str, Any]]] = {
    "a field": [{"$addFields": {"now": "$$NOW"}}],
    "deep inside": [{"$project": {"x": {"$cond": [True, {"$let": {"vars": {"a": "$$NOW"}, "in": "$$a"}}, 1]}}}],
    "an accumulator": [{"$group": {"_id": None, "now": {"$max": "$$NOW"}}}],
    "a query": [{"$match": {"$expr": {"$lt": ["$_ts", "$$NOW"]}}}],
    "an array": [{"$addFields": {"x": [1, ["$$NOW"]]}}],
    "a redaction": [{"$redact": {"$cond": [{"$gt": ["$$NOW", "$_ts"]}, "$$KEEP", "$$PRUNE"]}}],
    "the second stage": [{"$match": {"n": 1}}, {"$sort": {"n": 1}}, {"$replaceRoot": {"newRoot": {"at": "$$NOW"}}}],
}
READS_NOT: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "a literal": [{"$addFields": {"now": {"$literal": "$$NOW"}}}],
    "another variable": [{"$addFields": {"x": "$$ROOT"}}],
    "a text": [{"$match": {"n": "$$NOW"}}],
    "a stage of an earlier version": [{"$project": {"b": {"$sortArray": {"input": "$a", "sortBy": {"$literal": 1}}}}}],
}


@pytest.mark.parametrize("name", READS)
def test_a_pipeline_that_reads_now_reads_the_clock(name: str) -> None:
    assert reads_clock(stage("$tumblingWindow", interval=ms(10), pipeline=READS[name]))


@pytest.mark.parametrize("name", READS_NOT)
def test_a_pipeline_without_now_does_not_read_the_clock(name: str) -> None:
    assert not reads_clock(stage("$tumblingWindow", interval=ms(10), pipeline=READS_NOT[name]))


def test_a_partition_that_reads_now_reads_the_clock() -> None:
    by_now = stage("$sessionWindow", gap=ms(10), pipeline=[], partitionBy={"$dateToString": {"date": "$$NOW"}})
    assert reads_clock(by_now)
    assert not reads_clock(stage("$sessionWindow", gap=ms(10), pipeline=[], partitionBy="$n"))


def document(atlas: dict[str, Any], *, has_arrival: bool) -> dict[str, Any]:
    log: dict[str, Any] = {
        "table": "event_logs/small",
        "key": ["key"],
        "event_time": {"column": "at_ms", "unit": "ms"},
        "slice": {"by": "day"},
    }
    if has_arrival:
        log["arrival_time"] = {"column": "seen_ms", "unit": "ms"}
    return {"pipeline": "small", "log": log, "windows": {"atlas": atlas}, "semantics": "mongodb"}


@pytest.mark.parametrize("name", READS)
def test_a_stage_that_reads_the_clock_needs_an_arrival_time(name: str) -> None:
    atlas = stage("$tumblingWindow", interval=ms(10), pipeline=READS[name])
    with pytest.raises(SpecError, match=r"log\.arrival_time is missing; .*\$\$NOW"):
        build_pipeline(document(atlas, has_arrival=False), source="small.yaml")
    assert build_pipeline(document(atlas, has_arrival=True), source="small.yaml").needs_clock


def slices(*days: list[tuple[int, int]]) -> list[LogSlice]:
    return [
        LogSlice(
            start_ms=number * DAY_MS,
            end_ms=(number + 1) * DAY_MS,
            records=[{"key": "a", "at_ms": at, "seen_ms": number * DAY_MS + at, "n": n} for at, n in drawn],
        )
        for number, drawn in enumerate(days)
    ]


FAILS = [{"$addFields": {"half": {"$divide": [1, "$n"]}}}]


@pytest.mark.parametrize("chunks", [[3], [1, 1, 1]])
def test_a_dead_letter_without_a_clock_has_the_start_of_its_slice(chunks: list[int]) -> None:
    """A late document counts in its own slice. A document that fails counts in the slice that closes its window."""
    atlas = stage("$tumblingWindow", interval=ms(10), allowedLateness=ms(0), pipeline=FAILS)
    log = slices([(5, 0), (7, 1)], [(30, 1), (8, 1)], [(45, 0), (60, 1)])
    found = build_pipeline(document(atlas, has_arrival=False), source="small.yaml")
    replayed = replay_in_process(found, COLUMNS, log, chunks=chunks)
    letters = [json.loads(row["document"]) for row in replayed.rows["side_outputs_dead_letters"]]
    assert [(letter["errInfo"]["reason"], letter["dlqTime"]) for letter in letters] == [
        ("$divide by zero", {"$date": "1970-01-02T00:00:00Z"}),
        ("Input document arrived late.", {"$date": "1970-01-02T00:00:00Z"}),
        ("$divide by zero", {"$date": "1970-01-03T00:00:00Z"}),
    ]


def test_a_dead_letter_has_the_time_of_the_clock() -> None:
    atlas = stage("$tumblingWindow", interval=ms(10), allowedLateness=ms(0), idleTimeout=ms(50), pipeline=FAILS)
    found = build_pipeline(document(atlas, has_arrival=True), source="small.yaml")
    replayed = replay_in_process(found, COLUMNS, slices([(5, 0), (7, 1)], [(8, 1)]))
    letters = [json.loads(row["document"]) for row in replayed.rows["side_outputs_dead_letters"]]
    times = [letter["dlqTime"]["$date"] for letter in letters]
    assert times == ["1970-01-01T00:00:00.060Z", "1970-01-02T00:00:00.008Z"]
