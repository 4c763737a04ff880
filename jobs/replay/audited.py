"""Steps 4 and 5 of a replay: audit what was committed, then run the checks, and return one result per slice."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from expectations.arrow_slices import ArrowSlices
from expectations.slices import SlicedTable, SuiteChecks
from expectations.suites import RUN
from jobs.lake.filtered_files import statistics_digest
from jobs.lake.store import ensure_table
from jobs.planning.state_columns import has_rows, state_columns
from jobs.reading.quality_ids import quality_content
from jobs.reading.stored_rows import STATISTICS_DIGEST, TALLIES_DIGEST
from jobs.replay.checked_tables import CommittedSlices, run_rows
from jobs.replay.checks import conservation, run_checks, verdict
from jobs.replay.chunk.driver_rows import append_driver_rows, identified
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.chunk.tallies import ChunkTallies
from jobs.replay.computed import Computed
from jobs.replay.equations import Audit
from jobs.replay.pinned import Pinned
from jobs.replay.written import Written
from jobs.runs import CheckpointForm, CheckResult, RunResult, warnings_of
from windowlib.records import tables

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
        LogError: a file of a log without commits was replaced while it was read.
    """
    pinned = written.computed.pinned
    pinned.log.refuse_replaced()
    equations = Audit(
        table_uri=pinned.uri,
        slice_ids=tuple(slice_.slice_id for slice_ in pinned.order.slices),
        attempt_id=pinned.order.attempt_id,
        before=pinned.order.before,
        state_before=pinned.state_before.ids,
        changes=frozenset(run.slice.slice_id for run in written.computed.runs if not run.stores_whole_state),
        row_tables=(*pinned.tables.digested(), tables.STATE_REMOVALS),
        contents={table.name: table for table in pinned.tables.stored},
        content_rows=pinned.sizes.audited_rows,
        tasks=written.computed.run.rows.tasks,
        rows_per_task=pinned.sizes.records_per_task,
    )
    return Audited(computed=written.computed, laws=equations.close())


def check(audited: Audited, *, seconds: float) -> list[RunResult]:
    """Run the checks on the committed rows, store their results, and return what each run left behind.

    `seconds` is how long the replay has taken so far; each slice gets an equal share.
    """
    computed = audited.computed
    pinned = computed.pinned
    checked = list(zip(computed.runs, _check(audited), strict=True))
    rows = [row for run, results in checked for row in _quality_rows(run, results, pinned.checks_fingerprint)]
    ensure_table(pinned.uri(tables.QUALITY_RESULTS), tables.quality_results())
    append_driver_rows(
        pinned.uri(tables.QUALITY_RESULTS), tables.quality_results(), rows, metadata=pinned.order.commit_metadata()
    )
    share = seconds / len(computed.runs)
    return [_result(computed, run, results, seconds=share) for run, results in checked]


def foresee_failures(computed: Computed) -> None:
    """Begin to import Great Expectations if it will be asked about the table `run`, which is known before the write.

    The import takes seconds. In a thread, it overlaps with the write and the audit.
    """
    suites, quality = computed.pinned.suites, computed.pinned.order.pipeline.quality
    if suites is not None and quality is not None and RUN in suites.suites:
        SuiteChecks(suites.suites[RUN], _run_rows(computed), confirm=quality.confirm)


def _check(audited: Audited) -> list[tuple[CheckResult, ...]]:
    """Return, for each run, its laws and, if the pipeline has suites, the results of its checks."""
    computed = audited.computed
    laws: dict[str, list[CheckResult]] = {run.slice.slice_id: [] for run in computed.runs}
    for law in audited.laws:
        laws[law.slice_id].append(law)
    for run in computed.runs:
        slice_id = run.slice.slice_id
        laws[slice_id].append(conservation(slice_id, computed.tallies.counts(run.slice_no)))
    quality = computed.pinned.order.pipeline.quality
    if computed.pinned.suites is None or quality is None:
        return [(*own,) for own in laws.values()]
    checked: dict[str, SlicedTable] = {
        name: _committed(computed, name) for name in (tables.WINDOW_OUTPUTS, tables.LATE_RECORDS)
    }
    checked[RUN] = _run_rows(computed)
    results = run_checks(computed.pinned.suites, [*laws], checked, fail_on=quality.fail_on, confirm=quality.confirm)
    return [(*own, *checked) for own, checked in zip(laws.values(), results, strict=True)]


def _run_rows(computed: Computed) -> ArrowSlices:
    """The table `run` of the chunk."""
    runs = [
        (computed.tallies.counts(run.slice_no), computed.run.time.watermark_ms(run.slice_no)) for run in computed.runs
    ]
    return run_rows([run.slice for run in computed.runs], runs)


def _committed(computed: Computed, table: str) -> CommittedSlices:
    pinned = computed.pinned
    return CommittedSlices(
        uri=pinned.uri(table),
        attempt_id=pinned.order.attempt_id,
        columns=next(stored.stored_columns() for stored in pinned.tables.stored if stored.name == table),
        counts={run.slice.slice_id: computed.tallies.emitted(run.slice_no, table).count for run in computed.runs},
    )


def _quality_rows(run: SliceRun, results: Sequence[CheckResult], checks_fingerprint: str) -> list[dict[str, object]]:
    table, place = tables.quality_results(), run.columns()
    return [identified(table, place | quality_content(result, checks_fingerprint)) for result in results]


def _result(computed: Computed, run: SliceRun, checks: tuple[CheckResult, ...], *, seconds: float) -> RunResult:
    pinned, tallies, number = computed.pinned, computed.tallies, run.slice_no
    pipeline = pinned.order.pipeline
    quality, arrival = pipeline.quality, pipeline.log.arrival_time
    counts, clamped = tallies.counts(number), computed.run.time.clamped[number]
    digests = {table: tallies.state(number, table).digest() for table in pinned.tables.digested()}
    log.info(
        "replayed slice=%s run=%s records=%d panes=%d late=%d unassigned=%d invalid=%d filtered=%d duplicate=%d",
        run.slice.slice_id, run.run_id, counts.read, counts.panes, counts.late, counts.unassigned, counts.invalid,
        counts.filtered, counts.duplicate,
    )  # fmt: skip
    return RunResult(
        slice=run.slice,
        run_id=run.run_id,
        attempt_id=run.attempt_id,
        spec_fingerprint=pinned.spec_fingerprint,
        input_fingerprint=run.input_fingerprint,
        state_before=run.state_before,
        state_after=run.state_after,
        digests=digests,
        counts=counts,
        watermark_ms=computed.run.time.watermark_ms(number),
        log=replace(
            pinned.log.coordinates(run.slice.slice_id),
            file_digests=computed.run.file_digests.get(run.slice.slice_id, ""),
        ),
        seconds=seconds,
        verdict=verdict(checks, quality.fail_on if quality else "critical"),
        checks=checks,
        warnings=warnings_of(run.slice, clamped=clamped, clock=arrival.column if arrival else None),
        clamped=clamped,
        checkpoint=_checkpoint_form(pinned, tallies, run),
        state_columns=state_columns(pipeline, pinned.log) if has_rows(digests) else None,
        extras={
            "checks_fingerprint": pinned.checks_fingerprint,
            TALLIES_DIGEST: tallies.digest(number),
            STATISTICS_DIGEST: statistics_digest(
                pinned.uri(tables.WINDOW_OUTPUTS), (run.slice.slice_id, run.attempt_id)
            ),
        },
    )


def _checkpoint_form(pinned: Pinned, tallies: ChunkTallies, run: SliceRun) -> CheckpointForm:
    if run.stores_whole_state:
        return CheckpointForm()
    names = {table.name for table in pinned.tables.stored} & {*tables.INCREMENTAL_TABLES, tables.STATE_REMOVALS}
    stored = {name: tallies.emitted(run.slice_no, name).digest() for name in sorted(names)}
    return CheckpointForm(earlier=run.earlier, stored_digests=stored)
