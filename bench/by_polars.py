"""Polars as a contestant: the windows as lazy frames, on columns in memory or from the log's files to Parquet."""

from pathlib import Path
from typing import assert_never

import polars as pl
import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench.checksums import COLUMNS, checksum
from bench.contestant import Contestant, Job
from bench.samples import Checksum
from bench.workloads import Workload, make_events

PLAIN = (
    pl.len().cast(pl.Int64).alias("records"),
    pl.col("value").sum().alias("total"),
    pl.col("value").min().alias("low"),
    pl.col("value").max().alias("high"),
)


def frame_of(workload: Workload, events: pl.LazyFrame) -> pl.LazyFrame:
    """Return the result of a workload over `key, at_ms, value` in log order."""
    match workload.kind:
        case "tumbling":
            found = _tumbling(workload, _in_time(workload, events) if workload.late_one_in else events)
        case "sliding":
            found = _sliding(workload, events)
        case "session":
            found = _session(workload, events)
        case "count":
            found = _count(workload, events)
        case _:
            assert_never(workload.kind)
    return found.select(COLUMNS)


def _start(size: int) -> pl.Expr:
    return pl.col("at_ms") // size * size


def _tumbling(workload: Workload, events: pl.LazyFrame) -> pl.LazyFrame:
    grouped = events.group_by("key", _start(workload.size).alias("start_ms")).agg(*PLAIN)
    return grouped.with_columns((pl.col("start_ms") + workload.size).alias("end_ms"))


def _in_time(workload: Workload, events: pl.LazyFrame) -> pl.LazyFrame:
    watermark_ms = pl.col("at_ms").cum_max().shift(1) - workload.bound_ms - 1
    last_ms = _start(workload.size) + workload.size - 1 + workload.lateness_ms
    return events.filter((last_ms > watermark_ms).fill_null(value=True))


def _sliding(workload: Workload, events: pl.LazyFrame) -> pl.LazyFrame:
    """One partial aggregate for each key and slide, added to each window that contains it."""
    slices = events.group_by("key", _start(workload.slide).alias("slice_ms")).agg(*PLAIN)
    first = pl.col("slice_ms") - (workload.size - workload.slide)
    starts = pl.int_ranges(first, pl.col("slice_ms") + 1, workload.slide).alias("start_ms")
    placed = slices.with_columns(starts).explode("start_ms").group_by("key", "start_ms")
    merged = placed.agg(pl.col("records").sum(), pl.col("total").sum(), pl.col("low").min(), pl.col("high").max())
    return merged.with_columns((pl.col("start_ms") + workload.size).alias("end_ms"))


def _session(workload: Workload, events: pl.LazyFrame) -> pl.LazyFrame:
    ordered = events.sort("key", "at_ms")
    is_new = (pl.col("key") != pl.col("key").shift(1)) | (pl.col("at_ms").diff() > workload.gap_ms)
    numbered = ordered.with_columns(is_new.fill_null(value=True).cum_sum().alias("session"))
    bounds = (pl.col("key").first(), pl.col("at_ms").min().alias("start_ms"), pl.col("at_ms").max().alias("last_ms"))
    grouped = numbered.group_by("session").agg(*bounds, *PLAIN)
    return grouped.with_columns((pl.col("last_ms") + workload.gap_ms).alias("end_ms"))


def _count(workload: Workload, events: pl.LazyFrame) -> pl.LazyFrame:
    if workload.slide:
        raise NotImplementedError("count windows that slide have no query here")
    nth = (pl.int_range(pl.len()).over("key") // workload.size).alias("nth")
    grouped = events.with_columns(nth).group_by("key", "nth").agg(*PLAIN).filter(pl.col("records") == workload.size)
    nothing = pl.lit(0, pl.Int64)
    return grouped.with_columns(nothing.alias("start_ms"), nothing.alias("end_ms"))


class InMemory(Contestant):
    """From columns to columns; the seat's environment gives the number of threads."""

    def prepare(self, job: Job) -> None:
        events = make_events(job.workload, job.records, seed=job.seed)
        frame = pl.DataFrame({"key": events.key, "at_ms": events.at_ms, "value": events.value})
        self._query = frame_of(job.workload, frame.lazy())
        self._found: pl.DataFrame | None = None

    def run(self) -> None:
        self._found = self._query.collect()

    def check(self) -> Checksum:
        found, self._found = self._found, None
        assert found is not None, "check follows run"
        return checksum([found.to_arrow()])


class Files(Contestant):
    """From the Parquet files of the log's newest version to one Parquet file, with all cores."""

    def prepare(self, job: Job) -> None:
        if job.workload.kind == "count" or job.workload.late_one_in:
            raise NotImplementedError("the order of the log is not in the files' columns")
        files = sorted(DeltaTable(job.log).file_uris())
        events = pl.scan_parquet(files, hive_partitioning=False).select("key", "at_ms", "value")
        self._query = frame_of(job.workload, events)
        self._place = Path(job.scratch) / "polars.parquet"

    def run(self) -> None:
        self._query.collect(engine="streaming").write_parquet(self._place)

    def check(self) -> Checksum:
        found = checksum(ds.dataset(self._place).to_batches(columns=list(COLUMNS)))
        self._place.unlink()
        return found
