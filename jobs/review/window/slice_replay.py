"""Replays one key along the slices of a chain: each slice from the checkpoint before it, or from the slice before."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from jobs.lake.event_log import PinnedLog
from jobs.lake.lake import Lake
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import StagedRun
from jobs.pipeline.look_back import look_back
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_pin import pin_input
from jobs.planning.state_columns import StateGate
from jobs.planning.stored_spec import at_read_log
from jobs.reading.stored_tables import spec_of
from jobs.replay.chunk.bucket_plan import plan_buckets
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.chunk.time_steps import combined, time_before
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.sizes import SIZES
from jobs.replay.stages.counted import CountedLog, chunk_time, counted_log, slice_inputs
from jobs.replay.stages.state import DividePlan, state_where
from jobs.replay.tasks import Tasks
from jobs.review.explain_windows import open_windows
from jobs.review.window.chain import Chain
from jobs.review.window.key_records import records_of_key
from jobs.review.window.operator_walk import Bounds, OperatorWalk, WindowRecord
from jobs.review.window.wanted import WantedWindow
from jobs.runs import CheckpointRef, Slice
from windowlib.columnar.executor import StateColumns
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.restored import RestoredState
from windowlib.errors import CheckpointError, LogError, RequestError, SpecError
from windowlib.watermarks.timeline import SourceRow

Reading: TypeAlias = Callable[[ChunkLog], Tasks]
"""Returns the tasks that read a slice. It raises a RequestError if the caller does not want to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """The state of the key after a slice, the time after it, and the fingerprint of the whole state there."""

    state: StateColumns
    sources: tuple[SourceRow, ...]
    fingerprint: str


@dataclass(slots=True, kw_only=True)
class SliceReplay:
    """Replays the key of a window. `panes` has the rows that the operator gives, by slice.

    `known` collects the bounds of windows of the key that have existed, and `differences` sentences on slices whose
    input or spec is not that of the run. `unread` maps slices that the log refuses to replay to the refusal.
    """

    lake: Lake
    chain: Chain
    window: WantedWindow
    reading: Reading
    panes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    known: set[Bounds] = field(default_factory=set)
    differences: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    _carried: _Carried | None = None

    @property
    def span(self) -> tuple[int, int]:
        """The starts of the first and of the last slice that was replayed or refused; an empty span without one."""
        starts = [self.chain.runs[slice_id].result.slice.start_ms for slice_id in (*self.panes, *self.unread)]
        return min(starts, default=0), max(starts, default=-1)

    def tell(self, run: StagedRun, add: Callable[[WindowRecord], None]) -> bool:
        """Replay the slice of a run, and pass its records of the window to `add`. Return whether the window is open.

        Of a slice that the log refuses to replay (VACUUM has removed a file), the stored state after it is taken.

        Raises:
            LogError: the log is damaged.
            CheckpointError: the checkpoint before the slice is damaged.
            RequestError: this version of Hindcast refuses the spec of the run, or the log does not fit it any more.
        """
        try:
            return self._tell(run, add)
        except SpecError as error:
            raise RequestError(
                f"the windows of slice {run.result.slice.slice_id} cannot be computed again, because this version of "
                f"Hindcast refuses the spec of its run: {error}"
            ) from error

    def _tell(self, run: StagedRun, add: Callable[[WindowRecord], None]) -> bool:
        chain, slice_ = self.chain, run.result.slice
        pipeline = at_read_log(chain.spec(run), self.lake, run, stored=spec_of(chain.view, run))
        if (why := chain.why_other_spec(run)) is not None:
            self.differences.append(why)
        try:
            pinned = self._pinned(pipeline, slice_)
        except LogError as refusal:
            self.unread[slice_.slice_id] = str(refusal)
            self._carried = None
            return self._is_open_after(pipeline, run)
        chunk = ChunkLog.of(pipeline, pinned, [slice_])
        chunk = replace(chunk, sizes=replace(chunk.sizes, run_steps=0))  # `records_of_key` reads blocks in log order
        tasks = self.reading(chunk)
        check_log_bytes(tasks, pinned)
        with counted_log(tasks, chunk, self.lake) as counted:
            if slice_inputs(counted.scanned, 1)[0].fingerprint != run.result.input_fingerprint:
                self.differences.append(f"The records of slice {slice_.slice_id} are not those that its run has read.")
            walk, after = self._walk(pipeline, chunk, counted, run=run)
            for rows in records_of_key(tasks, counted, self.window.key):
                for record in walk.take(rows):
                    add(record)
            still_open = walk.end()
        self.panes[slice_.slice_id] = walk.panes
        self.known |= walk.known
        self._carried = _Carried(state=walk.executor.state(), sources=after, fingerprint=run.result.state_after)
        if pipeline.front_end is None:
            return any(self.window.overlaps(*bounds) for bounds in still_open)
        return self._is_before_end(pipeline, slice_, after)

    def _is_open_after(self, pipeline: Pipeline, run: StagedRun) -> bool:
        """Return whether the stored state after a run has the window."""
        lake, key, checkpoint = self.lake, self.window.key.plain(), run.checkpoint
        if pipeline.front_end is not None:
            return self._is_before_end(pipeline, run.result.slice, time_before(lake, pipeline, checkpoint))
        return bool(open_windows(lake, pipeline, key, checkpoint=checkpoint, holds=self.window.overlaps))

    def _is_before_end(self, pipeline: Pipeline, slice_: Slice, after: Sequence[SourceRow]) -> bool:
        """Return whether the time after a slice has not passed the window.

        The states of Storm and Atlas do not show which windows come, so the time tells it.
        """
        is_clock = pipeline.windows is not None and pipeline.windows.is_processing_time
        reached_ms = slice_.end_ms if is_clock else combined(after).watermark_ms
        return reached_ms is None or reached_ms <= self.window.end_ms

    def _pinned(self, pipeline: Pipeline, slice_: Slice) -> PinnedLog:
        known = known_log(self.chain.view, look_back(pipeline, [slice_]).every)
        with _as_changed_log(slice_):
            return pin_input(pipeline, self.lake, [slice_], known=known)

    def _walk(
        self, pipeline: Pipeline, chunk: ChunkLog, counted: CountedLog, *, run: StagedRun
    ) -> tuple[OperatorWalk, tuple[SourceRow, ...]]:
        """Return the walk along a slice, with the state before it, and the time after it."""
        chain, carried = self.chain, self._carried
        before = chain.by_state.checkpoint_before(run)
        is_next = carried is not None and before is not None and carried.fingerprint == before.fingerprint
        sources = carried.sources if carried is not None and is_next else chain.time_before(self.lake, run)
        time = chunk_time(chunk, counted.layout, counted.scanned, before=sources)
        dates = frozenset[str]()
        if before is not None and not is_next:
            with _as_changed_log(run.result.slice):
                dates = StateGate.of(pipeline, self.lake, chunk.log).were_dates(before)
        plan = plan_buckets(pipeline, chunk.tables, counted.layout.ranges, buckets=1, time=time, were_dates=dates)
        executor = OperatorExecutor(plan)
        if carried is not None and is_next:
            executor.restore(carried.state)
        elif before is not None:
            self._restore(executor, plan, before, why=chain.why_other_spec(run))
        else:
            executor.restore({})
        windows = pipeline.windows
        assert windows is not None, "the caller has checked it"
        walk = OperatorWalk(
            plan=plan,
            executor=executor,
            window=self.window,
            slice_id=run.result.slice.slice_id,
            is_clock=windows.is_processing_time,
            is_merging=windows.session is not None or windows.dynamic_session is not None,
            lateness_ms=windows.allowed_lateness_ms,
        )
        return walk, time.after[-1]

    def _restore(self, executor: OperatorExecutor, plan: BucketPlan, before: CheckpointRef, *, why: str | None) -> None:
        """Restore the rows of the key, after a check of their content. A spec that is another one now may not fit."""
        divided = DividePlan.of(
            before,
            plan.tables,
            uri_of=lambda name: self.lake.table(self.chain.pipeline.name, name),
            buckets=1,
            directory="",
            sizes=SIZES,
        )
        restored = RestoredState(plan)
        for name, rows in state_where(divided, self.window.key.rows_of).items():
            restored.add(name, rows)
        damage = restored.restore(executor)
        if damage is not None and why is not None:
            raise RequestError(
                f"the windows cannot be computed again from the checkpoint of slice {before.slice_id}: {damage}. {why} "
                f"`hindcast verify {self.chain.pipeline.name}` tells whether the checkpoint is damaged"
            )
        if damage is not None:
            raise CheckpointError(
                f"the checkpoint of slice {before.slice_id} (attempt {before.attempt_id}) is damaged: {damage}. Run "
                "that slice again; what readers see has not changed"
            )


@contextmanager
def _as_changed_log(slice_: Slice) -> Iterator[None]:
    """Tell a SpecError as a change of the log since the run of a slice: as a RequestError."""
    try:
        yield
    except SpecError as error:
        raise RequestError(
            f"the windows of slice {slice_.slice_id} cannot be computed again, because the log has changed since "
            f"its run, and does not fit the spec of the run any more: {error}"
        ) from error
