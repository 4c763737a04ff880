"""Steps 4 and 5 of a replay: audit what was committed, then run the checks, and return one result per slice."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.lake.store import ensure_table, read_attempts
from jobs.reading.stored_rows import TALLIES_DIGEST
from jobs.replay.checks import CheckedTable, conservation, quality_rows, run_checks, run_row, verdict
from jobs.replay.chunk.driver_rows import append_driver_rows, identified
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.computed import Computed
from jobs.replay.equations import Audit
from jobs.replay.written import Written
from jobs.runs import CheckResult, RunResult, warnings_of
from windowlib.records import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Audited:
    """A chunk whose equations close over what was committed; `laws` has one passed check per slice and equation."""

    computed: Computed
    laws: tuple[CheckResult, ...]


def audit(written: Written) -> Audited:
    """Read the committed rows back, and check that the equations of every slice close.

    Raises:
        AuditError: an equation does not close; the attempt is void.
    """
    pinned = written.computed.pinned
    equations = Audit(
        table_uri=pinned.uri,
        slice_ids=tuple(one.slice_id for one in pinned.order.slices),
        attempt_id=pinned.order.attempt_id,
        before=pinned.order.before,
        row_tables=pinned.tables.digested(),
        contents={table.name: table for table in pinned.tables.stored},
        content_rows=pinned.sizes.audited_rows,
    )
    return Audited(computed=written.computed, laws=equations.close())


def check(spark: "SparkSession", audited: Audited, *, seconds: float) -> list[RunResult]:
    """Run the checks on the committed rows, store their results, and return what each run left behind.

    Args:
        spark: reads tables that are too large for pandas.
        audited: the chunk.
        seconds: how long the replay has taken so far; each slice gets an equal share.
    """
    computed = audited.computed
    pinned = computed.pinned
    checked = [(one, _check(spark, audited, one)) for one in computed.runs]
    rows = [row for one, results in checked for row in _quality_rows(one, results, pinned.checks_fingerprint)]
    ensure_table(pinned.uri(tables.QUALITY_RESULTS), tables.quality_results())
    append_driver_rows(pinned.uri(tables.QUALITY_RESULTS), tables.quality_results(), rows)
    share = seconds / len(computed.runs)
    return [_result(computed, one, results, seconds=share) for one, results in checked]


def _check(spark: "SparkSession", audited: Audited, one: SliceRun) -> tuple[CheckResult, ...]:
    """The laws of a run and, if the pipeline has suites, the results of Great Expectations."""
    computed = audited.computed
    pinned, slice_id = computed.pinned, one.slice.slice_id
    counts = computed.tallies.counts(one.slice_no)
    laws = (*(law for law in audited.laws if law.slice_id == slice_id), conservation(slice_id, counts))
    if pinned.suites is None:
        return laws
    checked: dict[str, CheckedTable] = {"run": run_row(slice_id, counts, computed.run.time.watermark_ms(one.slice_no))}
    for name in (tables.WINDOW_OUTPUTS, tables.LATE_RECORDS):
        checked[name] = _own_rows(spark, computed, one, table=name)
    return (*laws, *run_checks(pinned.order.pipeline.quality, slice_id, checked, suites=pinned.suites))


def _own_rows(spark: "SparkSession", computed: Computed, one: SliceRun, *, table: str) -> CheckedTable:
    """The committed rows of a run in a table: as an Arrow table, or as a Spark DataFrame if they are many."""
    slice_id, uri = one.slice.slice_id, computed.pinned.uri(table)
    if computed.tallies.emitted(one.slice_no, table).count <= computed.pinned.sizes.pandas_rows:
        return read_attempts(uri, [(slice_id, one.attempt_id)])
    committed = spark.read.format("delta").load(uri)
    return committed.where((F.col("slice_id") == slice_id) & (F.col("attempt_id") == one.attempt_id))


def _quality_rows(one: SliceRun, results: Sequence[CheckResult], checks_fingerprint: str) -> list[dict[str, object]]:
    rows = quality_rows(results, attempt_id=one.attempt_id, run_id=one.run_id, checks_fingerprint=checks_fingerprint)
    return [identified(tables.quality_results(), row) for row in rows]


def _result(computed: Computed, one: SliceRun, checks: tuple[CheckResult, ...], *, seconds: float) -> RunResult:
    pinned, tallies, number = computed.pinned, computed.tallies, one.slice_no
    pipeline = pinned.order.pipeline
    quality, arrival = pipeline.quality, pipeline.log.arrival_time
    counts, clamped = tallies.counts(number), computed.run.time.clamped[number]
    log.info(
        "replayed slice=%s run=%s records=%d panes=%d late=%d unassigned=%d invalid=%d",
        one.slice.slice_id, one.run_id, counts.read, counts.panes, counts.late, counts.unassigned, counts.invalid,
    )  # fmt: skip
    return RunResult(
        slice=one.slice,
        run_id=one.run_id,
        attempt_id=one.attempt_id,
        spec_fingerprint=pinned.spec_fingerprint,
        input_fingerprint=one.input_fingerprint,
        state_before=one.state_before,
        state_after=one.state_after,
        digests={table: tallies.emitted(number, table).digest() for table in pinned.tables.digested()},
        counts=counts,
        watermark_ms=computed.run.time.watermark_ms(number),
        log=pinned.log.coordinates(one.slice.slice_id),
        seconds=seconds,
        verdict=verdict(checks, quality.fail_on if quality else "critical"),
        checks=checks,
        warnings=warnings_of(one.slice, clamped=clamped, clock=arrival.column if arrival else None),
        clamped=clamped,
        extras={"checks_fingerprint": pinned.checks_fingerprint, TALLIES_DIGEST: tallies.digest(number)},
    )
