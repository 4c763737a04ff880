"""Replaying a chunk: pin, order, windows by key group, write, audit, check. The ledger is written by who ordered it."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.engine.user_errors import explained
from jobs.lake.record_columns import rename_records, stored_records
from jobs.lake.store import ensure_table, read_attempts
from jobs.planning.fingerprints import checks_fingerprint, run_id, spec_fingerprint
from jobs.reading.stored_rows import TALLIES_DIGEST, quality_id
from jobs.replay.audit import Audit
from jobs.replay.checkpoint_check import CheckpointCheck
from jobs.replay.checks import (
    CheckedTable,
    conservation,
    load_checks,
    prepare_checks,
    quality_rows,
    run_checks,
    run_row,
    verdict,
)
from jobs.replay.chunk_input import ChunkInput, log_reading, pin_chunk, read_chunk, scan_log
from jobs.replay.chunk_plan import ChunkTables, chunk_tables, plan_buckets
from jobs.replay.chunk_tables import (
    Rows,
    Tallies,
    Written,
    append_driver_rows,
    collect_tallies,
    state_fingerprint,
    table_rows,
    watermark_row,
    write_tables,
)
from jobs.replay.chunk_time import chunk_time, time_before
from jobs.replay.sizes import SIZES, Sizes
from jobs.runs import EMPTY_STATE, CheckResult, Counts, RunResult, warnings_of
from jobs.spark.session import spark_session
from windowlib.records import tables
from windowlib.records.named_rows import content_id, tally_content
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.feed import CheckpointRows, replay_windows
from windowlib.spark.restored import BEFORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.replay.orders import Replayer, ReplayOrder

log = logging.getLogger(__name__)


@contextmanager
def spark_replayer(master: str | None = None, *, sizes: Sizes = SIZES) -> "Iterator[Replayer]":
    """Give a replayer that runs on one Spark session; the session ends with the context."""
    spark = spark_session("hindcast replay", master)
    try:
        yield lambda order: replay_chunk(spark, order, sizes=sizes)
    finally:
        spark.stop()


def replay_chunk(spark: "SparkSession", order: "ReplayOrder", *, sizes: Sizes = SIZES) -> list[RunResult]:
    """Replay the slices of an order in one Spark job, all that a run does but the ledger.

    Returns:
        One result per slice, in order, with the verdict of its checks. Its rows are committed, and nobody sees them
        before the ledger says so.

    Raises:
        LogError, SpecError, CheckpointError: before anything is written.
        AuditError: an equation does not close; the attempt is void.
    """
    with explained(order.pipeline):
        chunk = ChunkReplay(spark, order, sizes=sizes)
        chunk.compute()
    chunk.write()
    audited = chunk.audit()
    return chunk.results(audited)


class ChunkReplay:
    """One attempt at one chunk, as steps that a test can take apart: compute, write, audit, results."""

    def __init__(self, spark: "SparkSession", order: "ReplayOrder", *, sizes: Sizes = SIZES) -> None:
        """Pin the input and check the checkpoint before; nothing is written."""
        self._sizes = sizes
        self._spark = spark
        self._order = order
        self._started = time.monotonic()
        self._pinned = pin_chunk(order.pipeline, order.lake, order.slices, known=order.known_log)
        self._spec = spec_fingerprint(order.pipeline)
        self._tables: ChunkTables = chunk_tables(order.pipeline, self._pinned, stored_records=stored_records(self._uri))
        self._suites = load_checks(order.pipeline)
        # Importing Great Expectations takes this process 5 s, in which Spark's JVM can read and order the log.
        self._prepared = ThreadPoolExecutor(max_workers=1).submit(prepare_checks, self._suites)
        self._checks_fingerprint = checks_fingerprint(order.pipeline, self._suites.document if self._suites else None)
        self._checkpoint = self._checkpoint_check()
        self._stored_state = self._checkpoint.check() if self._checkpoint else {}
        self._time_before = time_before(order.lake, order.pipeline, order.before)

    def compute(self) -> None:
        """Read, order, and run the windows; one Spark job computes every table of every slice."""
        order = self._order
        run = self._tables.engine
        self._tables.functions.ship()
        reading = log_reading(order.pipeline, self._pinned, order.slices, needs_clock=run.needs_clock)
        self._input: ChunkInput = read_chunk(
            self._spark,
            self._pinned,
            reading,
            slices=order.slices,
            needs_commits=run.time.needs_commits,
            records_per_block=self._sizes.records_per_block,
        )
        self._time = chunk_time(run, self._input, self._time_before)
        plan = plan_buckets(order.pipeline, self._tables, self._input, time=self._time, sizes=self._sizes)
        valid = self._input.ordered.where("problem is null")
        # Not persist(): appending to a checkpoint table that the plan has read would make Spark compute it all again.
        with self._checkpoint.restoring() if self._checkpoint else nullcontext():
            self._tagged: DataFrame = replay_windows(valid, self._checkpoint_rows(), plan).localCheckpoint()
        tallied = collect_tallies(self._tagged)
        if self._checkpoint:
            self._checkpoint.check_restored(tallied, self._stored_state)
        self._scan = scan_log(self._spark, self._input, self._pinned)
        self._tallies: Tallies = self._complete({key: ids for key, ids in tallied.items() if key[0] != BEFORE})
        self._tally_rows = [
            (number, _tally_row(equation, term, ids)) for (number, equation, term), ids in self._tallies.items()
        ]
        self._written = self._number_runs()
        self._prepared.result()  # a suite that cannot be built is refused before anything is written

    def write(self) -> None:
        """Commit the rows of all tables under the attempt; nobody reads an attempt that the ledger does not name."""
        for table in self._tables.stored:
            ensure_table(self._uri(table.name), table)
        write_tables(self._rows(), self._written, sizes=self._sizes)
        marks = [(number, row) for number, rows in enumerate(self._watermark_rows) for row in rows]
        self._append(tables.watermarks(), marks)
        self._append(tables.tallies(), self._tally_rows)

    def _rows(self) -> Iterator[Rows]:
        """The rows that the tasks emitted, and those of the ordered log that are invalid, table by table."""
        records = rename_records(self._input.ordered, self._tables.record_names)
        for table in self._tables.stored:
            count = sum(self._emitted(one.slice_no, table.name).count for one in self._written)
            if count and table.name not in {tables.WATERMARKS, tables.TALLIES}:
                frame = table_rows(table.name, self._tagged, records)
                yield Rows(table=table, uri=self._uri(table.name), frame=frame, count=count)

    def audit(self) -> tuple[CheckResult, ...]:
        """Check that the equations close over what was committed.

        Raises:
            AuditError: they do not.
        """
        order = self._order
        audit = Audit(
            table_uri=self._uri,
            slice_ids=tuple(one.slice_id for one in order.slices),
            attempt_id=order.attempt_id,
            before=order.before,
            row_tables=self._tables.digested(),
            contents={table.name: table for table in self._tables.stored},
            content_rows=self._sizes.audited_rows,
        )
        return audit.close()

    def results(self, audited: Sequence[CheckResult]) -> list[RunResult]:
        """Run the checks on what was committed, keep their results, and say what each run left behind."""
        seconds = (time.monotonic() - self._started) / len(self._order.slices)
        checked = [self._check(one, audited) for one in self._written]
        rows = [
            row for one, checks in zip(self._written, checked, strict=True) for row in self._quality_rows(one, checks)
        ]
        ensure_table(self._uri(tables.QUALITY_RESULTS), tables.quality_results())
        append_driver_rows(self._uri(tables.QUALITY_RESULTS), tables.quality_results(), rows)
        return [self._result(one, checks, seconds) for one, checks in zip(self._written, checked, strict=True)]

    def _checkpoint_check(self) -> CheckpointCheck | None:
        before = self._order.before
        return (
            None
            if before is None
            else CheckpointCheck(before, self._uri, self._tables.stored, self._sizes.content_rows)
        )

    def _checkpoint_rows(self) -> CheckpointRows | None:
        before = self._order.before
        if before is None:
            return None
        names = {table.name for table in self._tables.stored} & {*tables.CHECKPOINT_TABLES}
        frames = {
            name: self._spark.read.format("delta")
            .load(self._uri(name))
            .where((F.col("slice_id") == before.slice_id) & (F.col("attempt_id") == before.attempt_id))
            for name in names - {tables.WATERMARKS}
        }
        return CheckpointRows(
            window_state=frames[tables.WINDOW_STATE],
            timers=frames[tables.TIMERS],
            user_state=frames.get(tables.USER_STATE),
        )

    def _complete(self, tallies: Tallies) -> dict[tuple[int, str, str], IdSum]:
        """Add to what the tasks tallied what the driver makes: the log's own count, invalid records, watermarks."""
        found = dict(tallies)
        self._watermark_rows = [[watermark_row(source) for source in after] for after in self._time.after]
        for number, (one, rows) in enumerate(zip(self._input.slices, self._watermark_rows, strict=True)):
            found[number, "fates", "read"] = self._scan.get(number, IdSum())
            found[number, "fates", "invalid"] = one.invalid
            found[number, "rows", tables.INVALID_RECORDS] = one.invalid_rows
            marked = found[number, "rows", tables.WATERMARKS] = IdSum()
            for row in rows:
                marked.add(row[tables.ROW_ID])
            if self._time.clamped[number]:
                found[number, "clock", "clamped"] = IdSum(count=self._time.clamped[number])
        return found

    def _number_runs(self) -> list[Written]:
        """Give each slice its run id; each starts from the state that the one before left."""
        order = self._order
        state = order.before.fingerprint if order.before else EMPTY_STATE
        written = []
        for number, (one, read) in enumerate(zip(order.slices, self._input.slices, strict=True)):
            name = run_id(
                pipeline=order.pipeline.name, one=one, spec=self._spec, input=read.fingerprint, state_before=state
            )
            after = state_fingerprint({table: self._emitted(number, table) for table in tables.CHECKPOINT_TABLES})
            written.append(
                Written(
                    slice_no=number,
                    slice=one,
                    run_id=name,
                    attempt_id=order.attempt_id,
                    state_before=state,
                    state_after=after,
                )
            )
            state = after
        return written

    def _emitted(self, number: int, table: str) -> IdSum:
        return self._tallies.get((number, "rows", table), IdSum())

    def _check(self, one: Written, audited: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
        pipeline, slice_id = self._order.pipeline, one.slice.slice_id
        counts = self._counts(one.slice_no)
        laws = (*(check for check in audited if check.slice_id == slice_id), conservation(slice_id, counts))
        if self._suites is None:
            return laws
        watermark_ms = self._time.watermark_ms(one.slice_no)
        checked: dict[str, CheckedTable] = {"run": run_row(slice_id, counts, watermark_ms)}
        for name in (tables.WINDOW_OUTPUTS, tables.LATE_RECORDS):
            checked[name] = self._own_rows(name, one)
        return (*laws, *run_checks(pipeline.quality, slice_id, checked, suites=self._suites))

    def _own_rows(self, table: str, one: Written) -> "CheckedTable":
        """The run's rows of a table, as they were committed: from Arrow, or from Spark where they are many."""
        slice_id = one.slice.slice_id
        if self._emitted(one.slice_no, table).count <= self._sizes.pandas_rows:
            return read_attempts(self._uri(table), [(slice_id, one.attempt_id)])
        committed = self._spark.read.format("delta").load(self._uri(table))
        return committed.where((F.col("slice_id") == slice_id) & (F.col("attempt_id") == one.attempt_id))

    def _counts(self, number: int) -> Counts:
        fates = {
            term: self._tallies.get((number, "fates", term), IdSum()).count
            for term in ("read", "assigned", "late", "unassigned", "invalid")
        }
        return Counts(**fates, panes=self._emitted(number, tables.WINDOW_OUTPUTS).count)

    def _result(self, one: Written, checks: tuple[CheckResult, ...], seconds: float) -> RunResult:
        quality = self._order.pipeline.quality
        digests = {table: self._emitted(one.slice_no, table).digest() for table in self._tables.digested()}
        counts, clamped = self._counts(one.slice_no), self._time.clamped[one.slice_no]
        arrival = self._order.pipeline.log.arrival_time
        clock = arrival.column if arrival else None
        log.info(
            "replayed slice=%s run=%s records=%d panes=%d late=%d unassigned=%d invalid=%d",
            one.slice.slice_id, one.run_id, counts.read, counts.panes, counts.late, counts.unassigned, counts.invalid,
        )  # fmt: skip
        return RunResult(
            slice=one.slice,
            run_id=one.run_id,
            attempt_id=one.attempt_id,
            spec_fingerprint=self._spec,
            input_fingerprint=self._input.slices[one.slice_no].fingerprint,
            state_before=one.state_before,
            state_after=one.state_after,
            digests=digests,
            counts=counts,
            watermark_ms=self._time.watermark_ms(one.slice_no),
            log=self._pinned.coordinates(one.slice.slice_id),
            seconds=seconds,
            verdict=verdict(checks, quality.fail_on if quality else "critical"),
            checks=checks,
            warnings=warnings_of(one.slice, clamped=clamped, clock=clock),
            clamped=clamped,
            extras={"checks_fingerprint": self._checks_fingerprint, TALLIES_DIGEST: self._tallies_digest(one.slice_no)},
        )

    def _tallies_digest(self, number: int) -> str:
        return IdSum.of(int(str(row[tables.ROW_ID])) for of, row in self._tally_rows if of == number).digest()

    def _quality_rows(self, one: Written, checks: Sequence[CheckResult]) -> list[dict[str, object]]:
        rows = quality_rows(
            checks, attempt_id=one.attempt_id, run_id=one.run_id, checks_fingerprint=self._checks_fingerprint
        )
        ids = [quality_id(check, self._checks_fingerprint) for check in checks]
        return [row | {tables.ROW_ID: identity} for row, identity in zip(rows, ids, strict=True)]

    def _append(self, table: Table, rows: Sequence[tuple[int, Mapping[str, object]]]) -> None:
        placed = [{**row, **self._written[number].columns()} for number, row in rows]
        append_driver_rows(self._uri(table.name), table, placed)

    def _uri(self, table: str) -> str:
        return self._order.lake.table(self._order.pipeline.name, table)


def _tally_row(equation: str, term: str, ids: IdSum) -> dict[str, object]:
    content = tally_content(equation, term, ids)
    return {**content, tables.ROW_ID: content_id(tables.tallies(), content)}
