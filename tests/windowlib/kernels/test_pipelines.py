"""Whole pipeline files with either executor: the same rows, ids, tallies and state, and the audit closes."""

from pathlib import Path
from random import Random
from typing import Any, Final

from jobs.pipeline.files import build_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from tests.support.bucket_replay import LogSlice, replay_in_process
from tests.support.fuzzing import seeds

DAY_MS: Final = 86_400_000
COLUMNS: Final = {"key": "string", "at_ms": "bigint", "amount": "bigint", "price": "double", "gap_ms": "bigint"}
AGGREGATES: Final = {
    "records": {"count": {}},
    "total": {"sum": "amount"},
    "mean": {"avg": "price"},
    "least": {"min": "price"},
    "last_one": {"last": "amount"},
    "all": {"collect_list": "amount"},
}


def pipeline_of(windows: dict[str, Any], aggregates: dict[str, Any]) -> Pipeline:
    document = {
        "pipeline": "small",
        "log": {
            "table": "event_logs/small",
            "key": ["key"],
            "event_time": {"column": "at_ms", "unit": "ms"},
            "slice": {"by": "day"},
        },
        "watermark": {"kind": "bounded", "out_of_orderness": "20ms"},
        "windows": windows,
        "aggregates": aggregates,
    }
    return build_pipeline(document, source="small.yaml")


def random_windows(random: Random) -> dict[str, Any]:
    size, slide = f"{random.randint(1, 60)}ms", f"{random.randint(1, 60)}ms"
    kinds: list[dict[str, Any]] = [
        {"tumbling": {"size": size}},
        {"sliding": {"size": size, "slide": slide}},
        {"session": {"gap": size}},
        {"dynamic_session": {"gap": {"column": "gap_ms"}}},
        {"count": {"size": random.randint(1, 4)}},
    ]
    windows = random.choice(kinds)
    if "count" not in windows:
        windows["allowed_lateness"] = random.choice(["0s", "15ms", "200ms"])
        windows["accumulation"] = random.choice(["accumulating", "discarding"])
    return windows


def random_log(random: Random) -> list[LogSlice]:
    log, latest_ms = [], 0
    for number in range(random.randint(1, 4)):
        records = []
        for _ in range(random.randint(0, 40)):
            latest_ms += random.choice([0, 1, 5])
            back_ms = random.choice([0, 5, 20, 60])
            price = random.choice([0.1, -2.5, 1e300, None])
            values = {"amount": random.randint(-5, 5), "price": price, "gap_ms": random.randint(1, 12)}
            records.append({"key": random.choice("ab"), "at_ms": latest_ms - random.randint(0, back_ms), **values})
        log.append(LogSlice(start_ms=number * DAY_MS, end_ms=(number + 1) * DAY_MS, records=records))
    return log


def test_a_pipeline_has_the_same_rows_with_either_executor(tmp_path: Path) -> None:
    for seed in seeds(10):
        random = Random(seed)
        names = random.sample(list(AGGREGATES), k=random.randint(1, 4))
        found = pipeline_of(random_windows(random), {name: AGGREGATES[name] for name in names})
        log = random_log(random)
        changed = {"executor": "kernel", "records_per_block": random.choice([1, 7, 1 << 18])}
        chunks = [1] * len(log) if random.random() < 0.5 else None
        kernel = replay_in_process(found, COLUMNS, log, chunks=chunks, changed=changed)
        operator = replay_in_process(found, COLUMNS, log, changed={"executor": "operator"})
        for table in operator.rows:
            assert kernel.sorted(table) == operator.sorted(table), table
        kernel.audited(tmp_path / str(seed), log)
