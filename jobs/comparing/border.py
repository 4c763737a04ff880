"""What a publication changes for readers over the border between the former spec and the new one.

Slices before the border keep the panes of the former spec, and readers do not see the panes that the new spec fires
there, in the warm-up or before it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.border_rows import PANE_COLUMNS, STATE_COLUMNS, BorderCount, BorderRows, border_count, may_hide
from jobs.lake.checkpoint_rows import read_checkpoint
from jobs.lake.lake import Lake
from jobs.lake.row_filter import RowFilter
from jobs.lake.store import read_attempts
from jobs.ledger.view import LedgerView, StagedRun
from jobs.planning.chains import RunsByState
from jobs.reading.published import BOUNDS, read_published
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.stored_tables import spec_of
from jobs.runs import EMPTY_STATE
from windowlib.records.tables import WATERMARKS, WINDOW_OUTPUTS, WINDOW_STATE

_NOTHING: Final = BorderCount(lost=0, repeated=0)


def border_change(lake: Lake, view: LedgerView, request_id: str, *, before: StagedRun) -> BorderCount | str:
    """Return what the publication of a request changes over its border, or why that is not known.

    `before` is the run of the former spec in the published chain, after which the first run of the request begins.
    Raises StoreError: rows cannot be read, or differ from those that were written.
    """
    runs = [view.run(run_id) for run_id in view.requests[request_id].runs.values()]
    first = min(runs, key=lambda run: run.result.slice.start_ms)
    specs = [spec_of(view, run) for run in (before, first)]
    former, new = (spec.windows for spec in specs)
    if first.result.state_before == before.result.state_after:
        return _NOTHING
    if former is None or new is None:
        return "one of the specs has no windows"
    by_state = RunsByState.of(view)
    replayed = [*_before(by_state, first)]
    if not replayed and first.result.state_before != EMPTY_STATE and by_state.warm_up_before(first) is None:
        return f"the runs before {first.result.slice.slice_id} were removed"
    for run in (before, *replayed[:1]):
        if run.checkpoint_removal is not None:
            return f"the state after {run.result.slice.slice_id} was removed by {run.checkpoint_removal}"
    keys = [name for name in specs[1].log.key_columns if name in specs[0].log.key_columns]
    stored = _Stored(lake, view, specs[1].name, keys)
    states = stored.state(before), stored.state(*replayed[:1])
    starts = [pc.min(rows["window_start_ms"]).as_py() for rows in states]
    if not any(rows.num_rows for rows in states):
        return _NOTHING
    has_same_clock = former.is_processing_time == new.is_processing_time
    times = [(spec.log.event_time, spec.log.columns) for spec in specs]  # if equal, both have one time line
    from_ms = min((at_ms for at_ms in starts if at_ms is not None), default=0) if has_same_clock else None
    has_fired = bool(pc.any(pc.greater(states[1]["fired_count"], 0)).as_py())
    return border_count(
        BorderRows(
            specs=(former, new),
            keys=keys,
            has_same_keys={*specs[0].log.key_columns} == {*specs[1].log.key_columns},
            has_same_clock=has_same_clock,
            former=states[0],
            new=states[1],
            shown=stored.shown(before, from_ms=from_ms),
            hidden=stored.results(replayed if may_hide((former, new), has_same_clock=has_same_clock) else []),
            has_all_hidden=[first, *replayed][-1].result.state_before == EMPTY_STATE,
            later=stored.results(runs if has_fired else []),
            watermark_ms=stored.watermark_ms(*replayed[:1]) if has_same_clock and times[0] == times[1] else None,
        )
    )


def _before(by_state: RunsByState, first: StagedRun) -> Iterator[StagedRun]:
    """Yield the runs of the new chain before the border, from the last one back to the first of the warm-up."""
    run = by_state.before(first)
    while run is not None:
        yield run
        run = None if by_state.warm_up_before(run) is not None else by_state.before(run)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Reads the rows of the pipeline `name` with the key columns `keys`."""

    lake: Lake
    view: LedgerView
    name: str
    keys: Sequence[str]

    def state(self, run: StagedRun | None = None) -> pa.Table:
        """Return the windows that are open after a run; none at the beginning of a warm-up."""
        attempts = () if run is None else run.checkpoint.attempts
        columns = (*self.keys, *STATE_COLUMNS)
        if not attempts:
            return self._with(columns)
        rows = read_checkpoint(lambda table: self.lake.table(self.name, table), attempts, WINDOW_STATE, columns=columns)
        return self._with(columns, rows)

    def watermark_ms(self, run: StagedRun | None = None) -> int | None:
        """Return the greatest watermark after a run; None at the beginning of a warm-up."""
        if run is None:
            return None
        attempt = run.result.slice.slice_id, run.result.attempt_id
        rows = read_attempts(self.lake.table(self.name, WATERMARKS), [attempt], ["watermark_ms"])
        return pc.max(rows["watermark_ms"]).as_py() if rows.num_rows else None

    def shown(self, before: StagedRun, *, from_ms: int | None) -> pa.Table:
        """Return the panes that readers see in slices up to that of a run, of windows that end after `from_ms`."""
        slices, end_ms = self.view.slices, before.result.slice.end_ms
        seen = {name: run for name, run in self.view.published.items() if slices[name].end_ms <= end_ms}
        from_ = None if from_ms is None else pa.scalar(from_ms * 1_000, pa.timestamp("us", "UTC"))
        columns = (*self.keys, *PANE_COLUMNS)
        chosen, view = RowFilter(time=BOUNDS[1], from_=from_, or_null=True), replace(self.view, published=seen)
        return self._with(columns, read_published(self.lake, self.name, view, chosen=chosen, columns=columns))

    def results(self, runs: Sequence[StagedRun]) -> pa.Table:
        """Return the results of runs, without rows that withdraw one."""
        columns = (*self.keys, *BOUNDS, "kind")
        rows = self._with(columns, StoredRuns(self.lake, self.name, self.view).read(WINDOW_OUTPUTS, runs, columns))
        return rows.filter(pc.equal(rows["kind"], "result"))

    def _with(self, columns: Sequence[str], rows: pa.Table | None = None) -> pa.Table:
        """Return rows with at least these columns. A table without a row may have none."""
        if rows is not None and rows.num_rows:
            return rows
        texts, flags = {*self.keys, "slice_id", "kind"}, {"is_complete", "is_orphan"}
        types = {name: pa.string() if name in texts else pa.int64() for name in columns}
        types |= dict.fromkeys(flags & {*columns}, pa.bool_())
        types |= dict.fromkeys({*BOUNDS} & {*columns}, pa.timestamp("us", "UTC"))
        return pa.schema(types.items()).empty_table()
