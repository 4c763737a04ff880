"""The runs whose slices are explained: what readers see, or with the runs of a request in their place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.chains import RunsByState
from jobs.planning.stored_spec import stored_pipeline
from jobs.reading.stored_tables import spec_of
from jobs.replay.chunk.time_steps import time_before
from jobs.runs import SHOWN_DIGITS, Slice
from windowlib.errors import RequestError
from windowlib.watermarks.timeline import SourceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Runs by slice, in slice order: `published` are those that readers see, `runs` those that are explained.

    `runs` are the published ones, with those of a request in their place, and those of a warm-up before them.
    """

    pipeline: Pipeline
    view: LedgerView
    by_state: RunsByState
    published: Mapping[str, StagedRun]
    runs: Mapping[str, StagedRun]

    @classmethod
    def of(cls, pipeline: Pipeline, view: LedgerView, request_id: str | None) -> Self:
        """Return what readers see, with the staged runs of a request in place of the published ones of their slices.

        Raises RequestError: there is no such request, or no run.
        """
        if request_id is not None and request_id not in view.requests:
            raise RequestError(f"pipeline {pipeline.name} has no request {request_id}")
        staged = {} if request_id is None else view.requests[request_id].runs
        by_state = RunsByState.of(view)
        published = {slice_id: view.run(run_id) for slice_id, run_id in view.published.items()}
        chosen = published | {slice_id: view.run(run_id) for slice_id, run_id in staged.items()}
        if not chosen:
            raise RequestError(
                f"pipeline {pipeline.name} has published nothing; name a request with staged slices (--request), which "
                f"`hindcast status {pipeline.name}` lists"
            )
        for run in [*chosen.values()]:
            before = by_state.before(run)
            while before is not None and before.result.slice.slice_id not in chosen:  # a warm-up is not published
                chosen[before.result.slice.slice_id] = before
                before = by_state.before(before)
        runs = dict(sorted(chosen.items(), key=lambda entry: entry[1].result.slice.start_ms))
        return cls(pipeline=pipeline, view=view, by_state=by_state, published=published, runs=runs)

    def with_keys(self, names: Collection[str]) -> Self:
        """Return the chain without the runs whose windows have other key columns.

        Raises RequestError: no run is left.
        """

        def of_keys(runs: Mapping[str, StagedRun]) -> dict[str, StagedRun]:
            wanted = {*names}
            return {name: run for name, run in runs.items() if {*spec_of(self.view, run).log.key_columns} == wanted}

        chain = replace(self, published=of_keys(self.published), runs=of_keys(self.runs))
        if not chain.runs:
            raise RequestError(f"no run of pipeline {self.pipeline.name} has windows with the key {', '.join(names)}")
        return chain

    @property
    def outputs(self) -> tuple[str, ...]:
        """The columns of the result, first those that readers see."""
        newest = (*[*self.published.values()][-1:], *[*self.runs.values()][-1:])
        return tuple(dict.fromkeys(name for run in newest for name in spec_of(self.view, run).output_columns))

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(run.result.slice for run in self.runs.values())

    @property
    def every(self) -> tuple[StagedRun, ...]:
        """The runs that readers see and those that are explained."""
        every = {run.result.run_id: run for run in (*self.published.values(), *self.runs.values())}
        return tuple(every.values())

    def between(self, first_ms: int, last_ms: int) -> tuple[StagedRun, ...]:
        """Return the runs that readers see and those that are explained, of slices that start in these bounds."""
        return tuple(run for run in self.every if first_ms <= run.result.slice.start_ms <= last_ms)

    def time_before(self, lake: Lake, run: StagedRun) -> Sequence[SourceRow]:
        """Return the clock and watermarks with which a run began.

        Raises CheckpointError: the checkpoint before it is damaged or was removed.
        """
        before, warm_up = self.by_state.checkpoint_before(run), self.by_state.warm_up_before(run)
        return time_before(lake, self.pipeline, before, warm_up=warm_up)

    def spec(self, run: StagedRun) -> Pipeline:
        """Return the spec of a run; users' functions are found beside the pipeline file."""
        if run.result.spec_fingerprint == spec_fingerprint(self.pipeline):
            return self.pipeline
        return stored_pipeline(self.pipeline, self.view.requests[run.request_id])

    def why_other_spec(self, run: StagedRun) -> str | None:
        """Return in one sentence that the spec of a run cannot be run any more; None if it can."""
        now, then = spec_fingerprint(self.spec(run)), run.result.spec_fingerprint
        if now == then:
            return None
        return (
            f"Slice {run.result.slice.slice_id} was replayed with spec {then[:SHOWN_DIGITS]}, and the same pipeline "
            f"has spec {now[:SHOWN_DIGITS]} now: one of your functions, or Hindcast, has changed since."
        )
