"""The past runs of a pipeline, and their tables as the checks of a replay read them. Writes nothing; no Spark."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from expectations.suites import LATE_RECORDS, RUN, Suite
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, RequestKind, StagedRun
from jobs.reading.stored_rows import CONTENT_ROWS, StoredRuns, run_attempt
from jobs.reading.stored_tables import spec_of
from jobs.reading.verify import Span
from jobs.replay.groups import groups_of
from windowlib.libraries import pa, pc
from windowlib.records import tables

if TYPE_CHECKING:
    from expectations.arrow_slices import ArrowSlices

ROWS_AT_ONCE = CONTENT_ROWS
"""The rows of a table are in memory for runs with at most this many rows together, or for one larger run."""

WAIVED = "a person has waived a failed check"
FAILED = "the run fails the checks of now, or has an error"
OTHER_SPEC = "another spec, with other columns or another meaning"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """The runs that a suite is made from or tried on, in slice order, one for each slice.

    `left_out` maps a reason to the slices that are not among them.
    """

    pipeline: str
    ledger_version: int
    runs: tuple[StagedRun, ...]
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def slice_ids(self) -> tuple[str, ...]:
        return tuple(run.result.slice.slice_id for run in self.runs)


def good_history(pipeline: str, view: LedgerView, span: Span) -> RunHistory:
    """Return the published runs that no person had to waive and that do not fail, of the spec of the newest one."""
    published = [view.run(run_id) for run_id in view.published.values()]
    return _history(pipeline, view, [run for run in published if span.holds(run.result.slice)], skips_failed=True)


def whole_history(pipeline: str, view: LedgerView, span: Span) -> RunHistory:
    """Return the newest run of every slice, published or held, of the spec of the newest one that is no candidate's."""
    newest = [run for run in view.newest_runs().values() if span.holds(run.result.slice)]
    return _history(pipeline, view, newest, skips_failed=False)


def _history(pipeline: str, view: LedgerView, runs: Sequence[StagedRun], *, skips_failed: bool) -> RunHistory:
    ordered = sorted(runs, key=lambda run: run.result.slice.start_ms)
    spec = _spec_of_chain(view, ordered)
    kept: list[StagedRun] = []
    left_out: dict[str, list[str]] = {}
    for run in ordered:
        reason = OTHER_SPEC if run.result.spec_fingerprint != spec else _failure(run) if skips_failed else None
        if reason is None:
            kept.append(run)
        else:
            left_out.setdefault(reason, []).append(run.result.slice.slice_id)
    return RunHistory(
        pipeline=pipeline,
        ledger_version=view.version,
        runs=tuple(kept),
        left_out={reason: tuple(names) for reason, names in sorted(left_out.items())},
    )


def _failure(run: StagedRun) -> str | None:
    return WAIVED if run.waiver else None if run.is_publishable else FAILED


def _spec_of_chain(view: LedgerView, runs: Sequence[StagedRun]) -> str:
    """Return the spec of the newest run of the chain at the slices of some runs; of the newest run without one."""
    awaited = {
        run_id
        for request in view.awaited_requests()
        if request.kind is not RequestKind.REPAIR
        for run_id in request.runs.values()
    }
    chain = [run for run in runs if run.result.run_id in awaited]
    chain += filter(None, (view.published_chain_run(run.result.slice.slice_id) for run in runs))
    newest = max(chain or runs, key=lambda run: run.seq, default=None)
    return "" if newest is None else newest.result.spec_fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTables:
    """Reads the tables of past runs block by block. The rows are compared with the ledger as by every other reader.

    `rows_at_once` bounds the rows of a block; a run with more rows is a block of its own.
    """

    lake: Lake
    view: LedgerView
    history: RunHistory
    rows_at_once: int = ROWS_AT_ONCE

    def blocks(self) -> Iterator[tuple[StagedRun, ...]]:
        """Yield the runs in slice order, in blocks of consecutive runs."""
        return groups_of(
            self.history.runs, lambda run: run.result.counts.panes + run.result.counts.late, self.rows_at_once
        )

    def tables_of(self, block: Sequence[StagedRun], suites: Iterable[Suite]) -> "dict[str, ArrowSlices]":
        """Return the tables that some suites check, with the columns that they read, for the runs of a block.

        Raises StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        wanted: dict[str, list[Suite]] = {}
        for suite in suites:
            wanted.setdefault(suite.table, []).append(suite)
        return {name: self.table(name, block, _columns(asked)) for name, asked in wanted.items()}

    def table(self, name: str, block: Sequence[StagedRun], columns: Collection[str] | None) -> "ArrowSlices":
        """Return one table for the runs of a block, with these columns (None: all of their spec).

        Slices are numbered in the order of the block.
        """
        from expectations.arrow_slices import ArrowSlices
        from jobs.planning.suites import checked_columns
        from jobs.replay.checked_tables import arrow_schema, run_rows

        if name == RUN:
            results = [run.result for run in block]
            return run_rows(
                [result.slice for result in results], [(result.counts, result.watermark_ms) for result in results]
            )
        if columns is None:  # the stored table also has those of other specs
            columns = checked_columns(spec_of(self.view, block[0]))[name]
        needed = [*dict.fromkeys((*columns, "slice_id"))]
        rows = StoredRuns(self.lake, self.history.pipeline, self.view).read(name, block, needed)
        if not rows.column_names and name == LATE_RECORDS:
            rows = arrow_schema(tables.late_records("string").stored_columns()).empty_table()
        ids = pa.array([run_attempt(run)[0] for run in block], pa.string())
        numbers = pc.index_in(rows["slice_id"].cast(pa.string()).combine_chunks(), ids)
        return ArrowSlices(rows, numbers.to_numpy(zero_copy_only=False).astype("int64"), len(block))


def _columns(suites: Sequence[Suite]) -> frozenset[str] | None:
    """Return the columns that some suites of a table read; None if one of them checks the set of columns."""
    read = [suite.columns for suite in suites]
    return None if None in read else frozenset().union(*(names for names in read if names is not None))
