"""A lake with a log of a few days that tests write themselves, and the explanation of a window of it. No Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import IfOpen, RequestContext
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.sizes import Sizes
from jobs.replay.tasks import LocalTasks
from jobs.review.window.explanation import AskedWindow, explain_window, key_columns_of
from jobs.review.window.told_window import WindowExplanation
from jobs.review.window.wanted import key_of_text
from tests.support.replays import context_in, pipeline_of, run_range

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
  order: appended
  where: "amount is null or amount <> 13"
watermark: WATERMARK
windows: WINDOWS
aggregates: {n: {count: {}}, total: {sum: amount}, all: {collect_list: amount}}
"""
Row = dict[str, Any]


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
        return context_in(self.root, self.pipeline)

    def append(self, day: int, rows: Sequence[Row], **options: Any) -> None:  # noqa: ANN401
        full = [dict.fromkeys(SCHEMA.names) | {"day": FIRST + timedelta(days=day)} | row for row in rows]
        table = pa.Table.from_pylist(full, SCHEMA)
        write_deltalake(str(self.root / "log"), table, mode="append", partition_by=["day"], **options)

    def run(
        self, first: int = 0, end: int = DAYS, *, publish: bool = True, chunk: int | None = None, warms_up: bool = False
    ) -> RequestOutcome:
        days = str(FIRST + timedelta(days=first)), str(FIRST + timedelta(days=end))
        return run_range(
            None, self.root, self.pipeline, days, chunk=chunk, sizes=Sizes(local_records=10**9), publish=publish,
            warms_up=warms_up, if_open=IfOpen.REPLACE,
        )  # fmt: skip

    def explain(self, user: str, start_ms: int, **options: Any) -> WindowExplanation:  # noqa: ANN401
        key = key_of_text(self.pipeline, user, key_columns_of(self.lake, self.pipeline))
        asked = AskedWindow(key=key, start_ms=start_ms, **options)
        return explain_window(self.lake, self.pipeline, asked, view=self.work.ledger.view(), reading=reading)


def shop_of(root: Path, windows: str, watermark: str = "{kind: bounded, out_of_orderness: 1h}") -> Shop:
    root.mkdir(exist_ok=True)
    return Shop(root, pipeline_of(SPEC.replace("WINDOWS", windows).replace("WATERMARK", watermark)))


def row(number: int, *, at: float, amount: int = 1, arrived: float | None = None, **others: Any) -> Row:  # noqa: ANN401
    """Return a record of user x; times are hours since the first day."""
    hours = {"at": at, "arrived": at if arrived is None else arrived}
    times = {name: FIRST_MS + round(value * 3_600_000) for name, value in hours.items()}
    return {"id": f"r{number}", "user": "x", "amount": amount} | times | others
