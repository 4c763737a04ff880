"""DuckDB as a contestant: the windows in its SQL, on columns in memory or from the log's files to a Parquet file."""

import shutil
from pathlib import Path
from typing import Any, assert_never

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench.checksums import COLUMNS, checksum
from bench.contestant import Contestant, Job
from bench.samples import Checksum
from bench.workloads import Workload, make_events

AGGREGATES = "sum({n})::bigint as records, sum({t})::bigint as total, min({low}) as low, max({high}) as high"
PLAIN = AGGREGATES.format(n="1", t="value", low="value", high="value")


def sql_of(workload: Workload) -> str:
    """Return the query of a workload over the relation `events (seq, key, at_ms, value)`."""
    match workload.kind:
        case "tumbling":
            source = _in_time(workload) if workload.late_one_in else "events"
            start = f"at_ms // {workload.size} * {workload.size}"
            return (
                f"select key, {start} as start_ms, {start} + {workload.size} as end_ms, {PLAIN} "
                f"from {source} group by key, start_ms, end_ms"
            )
        case "sliding":
            return _sliding(workload)
        case "session":
            return _session(workload)
        case "count":
            return _count(workload)
        case _:
            assert_never(workload.kind)


def _in_time(workload: Workload) -> str:
    """The records that are in time: the watermark before each of them, by the order of the log."""
    last_ms = f"at_ms // {workload.size} * {workload.size} + {workload.size} - 1 + {workload.lateness_ms}"
    before = (
        f"max(at_ms) over (order by seq rows between unbounded preceding and 1 preceding) - {workload.bound_ms} - 1"
    )
    return f"(from events select *, {before} as watermark_ms qualify coalesce({last_ms} > watermark_ms, true))"


def _sliding(workload: Workload) -> str:
    """One partial aggregate for each key and slide, added to each window that contains it."""
    merged = AGGREGATES.format(n="records", t="total", low="low", high="high")
    return (
        f"with slices as (select key, at_ms // {workload.slide} * {workload.slide} as slice_ms, {PLAIN} "
        "from events group by key, slice_ms), "
        f"placed as (select *, unnest(range(slice_ms - {workload.size - workload.slide}, slice_ms + 1, "
        f"{workload.slide})) as start_ms from slices) "
        f"select key, start_ms, start_ms + {workload.size} as end_ms, {merged} from placed group by key, start_ms"
    )


def _session(workload: Workload) -> str:
    """A new session is numbered by `range`: records of one instant have no order, and only one of them is marked."""
    return (
        "with marked as (select key, at_ms, value, "
        f"coalesce(at_ms - lag(at_ms) over (partition by key order by at_ms) > {workload.gap_ms}, true)::int as is_new "
        "from events), numbered as (select *, sum(is_new) over "
        "(partition by key order by at_ms range unbounded preceding) as session from marked) "
        f"select key, min(at_ms) as start_ms, max(at_ms) + {workload.gap_ms} as end_ms, {PLAIN} "
        "from numbered group by key, session"
    )


def _count(workload: Workload) -> str:
    if workload.slide:
        raise NotImplementedError("count windows that slide have no query here")
    return (
        "with numbered as (select key, value, (row_number() over (partition by key order by seq) - 1) "
        f"// {workload.size} as nth from events) select key, 0 as start_ms, 0 as end_ms, {PLAIN} "
        f"from numbered group by key, nth having count(*) = {workload.size}"
    )


class InMemory(Contestant):
    """From Arrow columns to an Arrow table, in one thread."""

    def prepare(self, job: Job) -> None:
        events = make_events(job.workload, job.records, seed=job.seed)
        columns = {"key": events.key, "at_ms": events.at_ms, "value": events.value}
        self._connection = duckdb.connect(config={"threads": job.cores})
        self._connection.register("events", pa.table({"seq": np.arange(len(events)), **columns}))
        self._sql = sql_of(job.workload)
        self._found: Any = None

    def run(self) -> None:
        self._found = self._connection.sql(self._sql).to_arrow_table()

    def check(self) -> Checksum:
        found, self._found = self._found, None
        return checksum([found.select(list(COLUMNS))])


class Files(Contestant):
    """From the Parquet files of the log's newest version to one Parquet file, with all cores."""

    def prepare(self, job: Job) -> None:
        files = [f"'{file}'" for file in sorted(DeltaTable(job.log).file_uris())]
        source = f"read_parquet([{', '.join(files)}], hive_partitioning=false)"
        self._connection = duckdb.connect(config={"threads": job.cores})
        self._connection.execute(f"create view events as select 0 as seq, key, at_ms, value from {source}")
        if job.workload.kind == "count" or job.workload.late_one_in:
            raise NotImplementedError("the order of the log is not in the files' columns")
        self._place = Path(job.scratch) / "duckdb.parquet"
        self._sql = f"copy ({sql_of(job.workload)}) to '{self._place}' (format parquet)"

    def run(self) -> None:
        self._connection.execute(self._sql)

    def check(self) -> Checksum:
        found = checksum(ds.dataset(self._place).to_batches(columns=list(COLUMNS)))
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.unlink(missing_ok=True)
        return found
