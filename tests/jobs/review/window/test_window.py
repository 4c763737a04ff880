"""The explanation of a window: its records, the watermark that each met, its panes, and which of them readers see."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.reading.published import read_published
from jobs.reading.plain_values import plain
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.replayer import replay_chunk
from jobs.replay.sizes import Sizes
from jobs.replay.tasks import LocalTasks
from jobs.review.window.explanation import AskedWindow, explain_window, key_columns_of
from jobs.review.window.told_window import WindowExplanation
from jobs.review.window.wanted import key_of_text
from jobs.spark.lazy_session import LazySession
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import seeds
from tests.support.random_windows import random_windows
from tests.support.replays import NOW_MS, pipeline_of
from windowlib.errors import HindcastError, RequestError, SpecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST: Final = date(2026, 3, 1)
FIRST_MS: Final = 1_772_323_200_000
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
DAYS: Final = 4
SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()), ("user", pa.string()), ("at", pa.int64()), ("arrived", pa.int64()),
        ("amount", pa.int64()), ("gap_ms", pa.int64()), ("day", pa.date32()),
    ]
)  # fmt: skip
SPEC: Final = """
pipeline: clicks
log:
  table: log
  key: [user]
  event_time: {column: at, unit: ms}
  arrival_time: {column: arrived, unit: ms}
  record_id: id
  slice: {by: day}
  where: "amount is null or amount <> 13"
watermark: WATERMARK
windows: WINDOWS
aggregates: {n: {count: {}}, total: {sum: amount}, all: {collect_list: amount}}
"""
Row = dict[str, Any]


def no_session(_records: int, _places: Sequence[str]) -> "SparkSession":
    raise AssertionError("a small slice started a session")


def reading(_chunk: ChunkLog) -> LocalTasks:
    return LocalTasks()


@dataclass(frozen=True, slots=True)
class Shop:
    """A lake with a log of some days."""

    root: Path
    pipeline: Pipeline

    @property
    def lake(self) -> Lake:
        return Lake(root=str(self.root))

    @property
    def work(self) -> RequestContext:
        return open_request_context(self.pipeline, self.lake, now_ms=lambda: NOW_MS)

    def append(self, day: int, rows: Sequence[Row]) -> None:
        full = [dict.fromkeys(SCHEMA.names) | {"day": FIRST + timedelta(days=day)} | row for row in rows]
        write_deltalake(
            str(self.root / "log"), pa.Table.from_pylist(full, SCHEMA), mode="append", partition_by=["day"]
        )

    def run(self, first: int = 0, end: int = DAYS, *, publish: bool = True, chunk: int | None = None) -> RequestOutcome:
        days = (str(FIRST + timedelta(days=day)) for day in (first, end))
        start_ms, end_ms = (parse_bound(self.pipeline, day) for day in days)
        session = LazySession(no_session, is_local=True)
        return run_request(
            self.work,
            Asked(from_ms=start_ms, to_ms=end_ms, who="ann", reason="test", if_open=IfOpen.REPLACE),
            lambda order: replay_chunk(session, order, sizes=Sizes(local_records=10**9)),
            staging=Staging(chunk=chunk),
            publish=publish,
        )

    def explain(self, user: str, start_ms: int, **options: Any) -> WindowExplanation:
        key = key_of_text(self.pipeline, user, key_columns_of(self.lake, self.pipeline))
        asked = AskedWindow(key=key, start_ms=start_ms, **options)
        return explain_window(self.lake, self.pipeline, asked, view=self.work.ledger.view(), reading=reading)


def shop_of(root: Path, windows: str, watermark: str = "{kind: bounded, out_of_orderness: 1h}") -> Shop:
    root.mkdir(exist_ok=True)
    return Shop(root, pipeline_of(SPEC.replace("WINDOWS", windows).replace("WATERMARK", watermark)))


def random_log(random: Random, shop: Shop) -> list[Row]:
    """Append records of three keys: most at about their arrival, some days late, some without a time."""
    written = []
    for day in range(DAYS):
        rows = []
        for number in range(random.randrange(25)):
            arrived_ms = FIRST_MS + day * DAY_MS + random.randrange(0, 180) * MINUTE_MS
            late_ms = random.choice((0, 10, 10, 70, 300, 1_440, 2_900)) * MINUTE_MS
            at_ms = arrived_ms - random.randrange(late_ms + 1)
            rows.append(
                {
                    "id": f"{day}-{number}",
                    "user": random.choice(("x", "y", "z", None)),
                    "at": random.choice((at_ms, at_ms, at_ms, at_ms, None)),
                    "arrived": arrived_ms,
                    "amount": random.randrange(15),
                    "gap_ms": random.randrange(1, 90) * MINUTE_MS,
                }
            )
        for part in range(0, len(rows), 10):
            shop.append(day, rows[part : part + 10])
        written += rows
    track_rows(shop.root / "log")
    return written


def random_shop(random: Random, root: Path) -> Shop | None:
    """Return a lake with random windows of minutes; None if the grammar refuses them."""
    minutes = re.sub(r"(\d+)ms", r"\1m", json.dumps(random_windows(random)))
    watermark = random.choice(
        ("{kind: bounded, out_of_orderness: 1h}", "{kind: bounded, out_of_orderness: 0s, emit: {records: 3}}")
    )
    try:
        shop = shop_of(root, minutes, watermark)
    except HindcastError:
        return None
    windows = shop.pipeline.windows
    assert windows is not None
    # Only Spark's workers run the functions of users in a replay.
    return None if windows.is_unbounded or shop.pipeline.functions() else shop


def test_the_panes_told_are_the_published_rows(tmp_path: Path) -> None:
    """Of each window of a run: the operator gives the stored rows, and readers see those of the default reading."""
    told = Counter[str]()
    for seed in seeds(8):
        random = Random(seed)
        shop = random_shop(random, tmp_path / str(seed))
        if shop is None:
            continue
        log = random_log(random, shop)
        try:
            shop.run(chunk=random.choice((None, 1, 2)))
        except SpecError:
            continue
        view = shop.work.ledger.view()
        every = read_published(shop.lake, "clicks", view, all_panes=True).to_pylist()
        seen = read_published(shop.lake, "clicks", view).to_pylist()
        windows = sorted({(row["user"], row["window_start"], row["window_end"]) for row in every})
        for user, start, end in random.sample(windows, min(len(windows), 12)):
            start_ms, end_ms = (round(at.timestamp() * 1_000) for at in (start, end))
            found = shop.explain(user, start_ms, end_ms=end_ms)
            where = (seed, user, start, end, shop.pipeline.windows)
            assert not found.differences, (where, found.differences)
            own = [row for row in every if (row["user"], row["window_start"], row["window_end"]) == (user, start, end)]
            assert counted_rows(pane.row for pane in found.panes) == counted_rows(own), where
            assert all(pane.is_stored and pane.is_computed for pane in found.panes), where
            of_readers = [row for row in seen if (row["user"], row["window_start"], row["window_end"]) == (user, start, end)]
            assert counted_rows(pane.row for pane in found.seen) == counted_rows(of_readers), where
            if not shop.pipeline.windows.is_processing_time:
                expected = {row["id"] for row in log if row["user"] == user and row["at"] is not None and start_ms <= row["at"] < end_ms}
                assert {record.record_id for record in found.records} == expected, where
            told.update(found.counts)
            told["windows"] += 1
    assert told["windows"] > 5


def counted_rows(rows: Any) -> Counter[str]:
    return Counter(json.dumps({name: value for name, value in plain(row).items() if name != "fired_rank"}, sort_keys=True) for row in rows)
