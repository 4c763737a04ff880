"""What readers must see of a log that is replayed, repaired and edited, computed from nothing.

A chain is a spec and the records of its slices. Its rows are those of one chunk over all of them, which starts without
a state. Nothing is taken from a lake.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.arrow_sql import query
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.published import PublishedView, published_sql, quote_duckdb
from tests.support.bucket_replay import LogSlice, Replayed, replay_in_process
from tests.support.replays import pipeline_of
from windowlib.records import tables

DAY_MS: Final = 86_400_000
FIRST: Final = date(1970, 1, 5)
FIRST_MS: Final = (FIRST - date(1970, 1, 1)).days * DAY_MS
COLUMNS: Final = {"k": "long", "at": "long", "v": "long", "seq": "long"}
OUTPUT_COLUMNS: Final = (
    *("k", "window_start", "window_end", "pane_index", "timing", "is_first", "is_last", "mode", "kind"),
    *("record_count", "n", "total", "watermark_ms"),
)
LATE_COLUMNS: Final = ("event_time_ms", "watermark_ms", "missed_windows")
SHOWN_COLUMNS: Final = ("k", "window_start", "window_end", "pane_index", "record_count", "n", "total")
COMPARED: Final = {tables.WINDOW_OUTPUTS: OUTPUT_COLUMNS, tables.LATE_RECORDS: LATE_COLUMNS}
"""The compared columns of each compared table."""

Rows = dict[str, list[tuple[Any, ...]]]


class LogRecord(NamedTuple):
    """One record of the log. `seq` orders the records of a day."""

    k: int
    at: int
    v: int
    seq: int


class Spec(NamedTuple):
    """The part of a pipeline file that the tests edit, and the version of the code that computes it."""

    windows: str
    bound: str
    lateness_ms: int
    code: int = 0

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of a file with this spec."""
        return pipeline_from(self, 0)


class Chain(NamedTuple):
    """The slices of consecutive days, computed with one spec. The first one starts without a state."""

    spec: Spec
    first: int
    days: tuple[tuple[LogRecord, ...], ...] = ()

    def then(self, records: Sequence[LogRecord]) -> "Chain":
        """Return the chain with one more day."""
        return self._replace(days=(*self.days, tuple(records)))


def day_start_ms(day: int) -> int:
    return FIRST_MS + day * DAY_MS


def day_text(day: int) -> str:
    return str(FIRST + timedelta(days=day))


@lru_cache(maxsize=1_000)
def pipeline_from(spec: Spec, first: int) -> Pipeline:
    """Return the pipeline of a file with a spec and the day of `log.slice.first`. That is no part of the spec."""
    return pipeline_of(
        "pipeline: late\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: "
        f"{{by: day{f', first: {day_text(first)}' if first else ''}}}\n"
        f"  order: [seq]\nwatermark: {{kind: bounded, out_of_orderness: {spec.bound}}}\nwindows:\n  {spec.windows}\n"
        f"  allowed_lateness: {spec.lateness_ms}ms\naggregates: {{n: {{count: {{}}}}, total: {{sum: v}}}}\n"
    )


@lru_cache(maxsize=20_000)
def last_day(chain: Chain) -> dict[str, pa.Table]:
    """Return the rows of the last day of a chain, by table."""
    log = [
        LogSlice(
            start_ms=day_start_ms(day), end_ms=day_start_ms(day + 1), records=[record._asdict() for record in records]
        )
        for day, records in enumerate(chain.days, start=chain.first)
    ]
    replayed = replay_in_process(chain.spec.pipeline, COLUMNS, log)
    return {name: _of_slice(replayed, name, log[-1].slice_id) for name in COMPARED}


def _of_slice(replayed: Replayed, name: str, slice_id: str) -> pa.Table:
    rows = pa.concat_tables(replayed.arrow[name])
    return rows.filter(pc.equal(rows["slice_id"], slice_id))


def rows_of(stored: dict[str, pa.Table]) -> Rows:
    """Return the compared columns of rows, by table, in a fixed order."""
    return {
        name: sorted((tuple(row.values()) for row in stored[name].select(list(columns)).to_pylist()), key=repr)
        for name, columns in COMPARED.items()
    }


@lru_cache(maxsize=20_000)
def expected_rows(chain: Chain) -> Rows:
    """Return the compared rows of the last day of a chain."""
    return rows_of(last_day(chain))


def expected_view(chains: Sequence[Chain]) -> list[tuple[Any, ...]]:
    """Return what the published view shows if the runs of the last days of some chains are published."""
    panes = pa.concat_tables([last_day(chain)[tables.WINDOW_OUTPUTS] for chain in chains])
    view = PublishedView(keys=["k"], columns=[*SHOWN_COLUMNS, "slice_id"], all_panes=False)
    found = query({"panes": panes}, published_sql(view, relation="panes", quote=quote_duckdb))
    return view_rows(found)


def view_rows(shown: pa.Table) -> list[tuple[Any, ...]]:
    """Return the compared columns of a published view in a fixed order."""
    return sorted((tuple(row.values()) for row in shown.select(list(SHOWN_COLUMNS)).to_pylist()), key=repr)
