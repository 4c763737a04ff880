"""Records that scan tasks combine before the exchange change no run. No Spark."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.verify import verify
from jobs.replay.intake.intake import take_in
from jobs.replay.pinned import pin
from jobs.replay.sizes import Sizes
from jobs.replay.stages import run_chunk
from jobs.replay.stages.partial_aggregation import with_time_bounds
from jobs.replay.stages.scan import NEVER_MS
from jobs.replay.tasks import LocalTasks
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import chances, seeds
from tests.support.replays import NOW_MS, order_of, pipeline_of, run_range, what_was_run
from windowlib.columnar.log_reading import TimeColumn
from windowlib.columnar.watermark_steps import latest_before

DAY_MS: Final = 86_400_000
FIRST: Final = date(2024, 3, 1)
FIRST_MS: Final = (FIRST - date(1970, 1, 1)).days * DAY_MS
DAYS: Final = 3
HOUR_MS: Final = 3_600_000
WINDOWS: Final = (
    "tumbling: {size: 1h}",
    "tumbling: {size: 5h, offset: 20m}\n  allowed_lateness: 90m",
    "tumbling: {size: 30h}\n  accumulation: discarding\n  allowed_lateness: 6h",
    "sliding: {size: 3h, slide: 40m}",
    "sliding: {size: 50m, slide: 90m}\n  allowed_lateness: 1h",
)
AGGREGATES: Final = (
    "{n: {count: {}}, low: {min: v}, high: {max: v}, total: {sum: v}}",
    "{n: {count: {}}, mean: {avg: x}, spread: {variance: x}, sum_x: {sum: x}, text: {max: k}}",
)
TIMES: Final[dict[str, Callable[[int], Any]]] = {
    "ms": lambda ms: ms,
    "s": lambda ms: ms // 1_000,
    "us": lambda ms: ms * 1_000,
    "timestamp": lambda ms: datetime.fromtimestamp(ms / 1_000, UTC),
    "date": lambda ms: date.fromtimestamp(ms // 1_000),  # noqa: DTZ012 - a log's dates have no zone
    "double": lambda ms: ms / 1_000,
}
"""The forms of event times. Statistics of doubles are not used."""
KINDS: Final = {"timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(), "double": pa.float64()}


def make_log(place: Path, random: Random, form: str) -> None:
    """Write a log with several files for each day, whose records are out of order and partly late or invalid."""
    kind = KINDS.get(form, pa.int64())
    keys = random.choice((["a", "b", "ü"], [f"k{number}" for number in range(40)]))
    late_ms = random.choice((HOUR_MS // 2, 6 * HOUR_MS))
    for day in range(DAYS):
        for part in range(random.randint(1, 3)):
            first_ms = FIRST_MS + day * DAY_MS + part * 7 * HOUR_MS
            rows = []
            for number in range(random.randint(0, 120)):
                at_ms = (
                    first_ms + number * 7 * HOUR_MS // 120 - random.choice((0, 0, 60_000, random.randrange(late_ms)))
                )
                rows.append(
                    {
                        "k": random.choice(keys) if random.random() < 0.98 else None,
                        "at": TIMES[form](at_ms) if random.random() < 0.98 else None,
                        "v": random.choice((0, 1, -5, 2**54, random.randrange(10**6))),
                        "x": random.choice((0.1, -2.5, 1e300, 5e-324, random.random(), None)),
                    }
                )
            kinds = {"k": pa.string(), "at": kind, "v": pa.int64(), "x": pa.float64()}
            table = pa.Table.from_pylist(rows, pa.schema(kinds.items()))
            days = pa.array([FIRST + timedelta(days=day)] * len(rows), pa.date32())
            # Small row groups, so that a file is read in several blocks.
            properties = WriterProperties(max_row_group_size=random.choice((16, 1_000)))
            write_deltalake(
                str(place),
                table.append_column("day", days),
                mode="append",
                partition_by=["day"],
                writer_properties=properties,
            )
    track_rows(place)


def random_pipeline(random: Random, form: str) -> Pipeline:
    unit = f", unit: {form}" if form in {"ms", "s", "us"} else ", unit: s" if form == "double" else ""
    return pipeline_of(
        f"pipeline: combined\nlog:\n  table: log\n  key: [k]\n"
        f"  event_time: {{column: at{unit}}}\n  slice: {{by: day}}\n"
        f"watermark: {{kind: bounded, out_of_orderness: {random.choice(('0s', '10m', '4h'))}}}\n"
        f"windows:\n  {random.choice(WINDOWS)}\naggregates: {random.choice(AGGREGATES)}\n"
    )


def replay(lake: Path, pipeline: Pipeline, *, sizes: Sizes, chunk: int | None) -> RequestOutcome:
    return run_range(None, lake, pipeline, (str(FIRST), str(FIRST + timedelta(days=DAYS))), chunk=chunk, sizes=sizes)


def lake_with(place: Path, log: Path) -> Path:
    place.mkdir(parents=True)
    (place / "log").symlink_to(log)
    return place


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the rows that scan tasks pass on."""
    found: Counter[str] = Counter()
    scanned = run_chunk._scanned

    def counting(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on unchanged
        result = scanned(*arguments, **named)
        for one in result[0]:
            found["partials"] += sum(entry.rows for entry in one.partials_of_buckets)
            found["records"] += sum(entry.rows for entry in one.records_of_buckets)
        found["scans"] += 1
        return result

    monkeypatch.setattr(run_chunk, "_scanned", counting)
    return found


SINGLE: Final = Sizes(local_records=10**9, combined_records=10**12, full_state_rows=0)


def random_sizes(random: Random, *, run_steps: int = 3) -> Sizes:
    return Sizes(
        local_records=10**9,
        run_steps=run_steps,
        constant_rows=random.choice((1, 10**6)),
        run_records=random.choice((1, 4)),
        combined_records=0,
        combined_cells=random.choice((0.25, 2, 10**9, 10**9)),
        rows_per_read=random.choice((7, 50, 10**6)),
        records_per_task=random.choice((20, 10**6)),
        least_records=random.choice((1, 10**6)),
        records_per_columnar_bucket=random.choice((50, 10**6)),
        full_state_rows=0,
        staying_rows=random.choice((0, 10**6)),
        staying_share=0,
    )


@pytest.mark.slow
def test_combining_records_changes_no_run(tmp_path: Path, exchanged: Counter[str]) -> None:
    """Run ids, digests, fingerprints, counts and tallies are equal, with either way, for any cut into chunks."""
    for seed in seeds(12):
        random, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        form = random.choice(list(TIMES))
        make_log(root / "log", random, form)
        pipeline = random_pipeline(random, form)
        expected = replay(lake_with(root / "single", root / "log"), pipeline, sizes=SINGLE, chunk=None)
        chunk = random.choice((1, 2, None))
        combined = replay(lake_with(root / "combined", root / "log"), pipeline, sizes=random_sizes(random), chunk=chunk)
        assert what_was_run(combined) == what_was_run(expected), f"seed {seed}"
        lake = Lake(root=str(root / "combined"))
        view = Ledger(lake.ledger(pipeline.name), now_ms=lambda: NOW_MS).view()
        assert not verify(lake, pipeline.name, view).findings, f"seed {seed}"
    assert exchanged["partials"] > 0


ALL: Final = Sizes(local_records=10**9, combined_records=0, combined_cells=10**9)
COUNTS: Final = (
    "pipeline: counts\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
    "watermark: {kind: bounded, out_of_orderness: 1h}\nwindows:\n  tumbling: {size: 1h}\n"
    "aggregates: {n: {count: {}}}\n"
)


def test_records_in_order_are_all_combined(tmp_path: Path, exchanged: Counter[str]) -> None:
    write_hours(tmp_path / "log")
    assert replay(tmp_path, pipeline_of(COUNTS), sizes=ALL, chunk=None).is_published
    assert (exchanged["records"], exchanged["partials"]) == (0, 2 * DAYS * 12)


def write_hours(place: Path) -> None:
    """Write a record every half an hour, in two files for each day."""
    for day in range(DAYS):
        for half in range(2):
            first_ms = FIRST_MS + day * DAY_MS + half * DAY_MS // 2
            at_ms = pa.array([first_ms + number * HOUR_MS // 2 for number in range(24)])
            days = pa.array([FIRST + timedelta(days=day)] * 24, pa.date32())
            keys = pa.array(["k"] * 24)
            table = pa.table({"k": keys, "at": at_ms, "day": days})
            write_deltalake(str(place), table, mode="append", partition_by=["day"])
    track_rows(place)


def change_statistics(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the statistics in the commits of a log, and remove its checkpoints."""
    for commit in (place / "_delta_log").glob("*.json"):
        lines = []
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                statistics = json.loads(action["add"]["stats"])
                change(statistics)
                action["add"]["stats"] = json.dumps(statistics)
            lines.append(json.dumps(action))
        commit.write_text("\n".join(lines), encoding="utf-8")


def test_statistics_that_are_too_low_cost_a_second_scan_and_change_no_run(
    tmp_path: Path, exchanged: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_hours(tmp_path / "right" / "log")
    expected = replay(tmp_path / "right", pipeline_of(COUNTS), sizes=ALL, chunk=None)
    write_hours(tmp_path / "wrong" / "log")
    change_statistics(tmp_path / "wrong" / "log", lambda found: found["maxValues"].update(at=FIRST_MS - DAY_MS))
    exchanged.clear()
    found = replay(tmp_path / "wrong", pipeline_of(COUNTS), sizes=ALL, chunk=None)
    assert [run.result.digests for run in found.runs] == [run.result.digests for run in expected.runs]
    assert exchanged["partials"] == 0
    assert "statistics of event log" in caplog.text


def test_without_statistics_only_the_first_block_is_combined(tmp_path: Path, exchanged: Counter[str]) -> None:
    write_hours(tmp_path / "log")
    change_statistics(tmp_path / "log", lambda found: found.pop("maxValues"))
    assert replay(tmp_path, pipeline_of(COUNTS), sizes=ALL, chunk=None).is_published
    assert exchanged["partials"] == 12
    assert exchanged["records"] == 24 * (2 * DAYS - 1)


def test_bounds_of_blocks_are_the_greatest_event_times_of_their_files_or_row_groups(tmp_path: Path) -> None:
    """The bounds equal those of the records, and a bound before a block covers all blocks before it."""
    for seed in seeds(5):
        random, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        form = random.choice([name for name in TIMES if name != "double"])
        make_log(root / "log", random, form)
        pipeline = random_pipeline(random, form)
        pinned = pin(order_of(root, pipeline, (str(FIRST), str(FIRST + timedelta(days=DAYS)))))
        unit = form if form in {"ms", "s", "us"} else None
        size = random.choice((16, 10**6))
        layout = take_in(LocalTasks(), pinned.chunk_log, directory=str(root), records_per_block=size).layout
        latest = NEVER_MS
        for block in with_time_bounds(layout.blocks, pinned, TimeColumn(name="at", unit=unit)):
            assert block.latest_before_ms == latest, f"seed {seed}"
            groups = pq.ParquetFile(block.path)
            rows = groups.read() if block.row_groups is None else groups.read_row_groups(list(block.row_groups))
            found = [to_ms(value, form) for value in rows["at"].to_pylist() if value is not None]
            assert block.latest_ms == max(found), f"seed {seed}"
            latest = max(latest, *found)


def to_ms(value: Any, form: str) -> int:  # noqa: ANN401 - an event time of any form
    match form:
        case "timestamp":
            return int(value.timestamp() * 1_000)
        case "date":
            return int((value - date(1970, 1, 1)).days) * DAY_MS
        case _:
            return int(value) * 1_000 if form == "s" else int(value) // (1_000 if form == "us" else 1)


def test_the_greatest_time_before_each_record_is_that_of_a_loop() -> None:
    for random in chances(200):
        times = [random.randrange(-20, 20) for _ in range(random.randrange(12))]
        latest = random.choice((NEVER_MS, 0))
        expected = []
        for time in times:
            expected.append(latest)
            latest = max(latest, time)
        assert latest_before(np.array(times, dtype=np.int64), expected[0] if times else 0).tolist() == expected
