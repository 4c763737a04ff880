"""The runs whose slices are explained: what readers see, or with the runs of a request in their place."""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.fingerprints import spec_fingerprint
from jobs.planning.request_context import stored_pipeline
from jobs.runs import SHOWN_DIGITS, CheckpointRef


def checkpoint_before(view: LedgerView, run: StagedRun) -> CheckpointRef | None:
    """Return the checkpoint with which a run began; None at the beginning of a chain."""
    before = [one for one in view.runs.values() if one.result.state_after == run.result.state_before]
    earlier = [one for one in before if one.result.slice.end_ms == run.result.slice.start_ms]
    return earlier[-1].checkpoint if earlier else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`runs` maps slices to runs, in slice order. Those of `request` are staged and not published, if it is given."""

    pipeline: Pipeline
    view: LedgerView
    request: Request | None

    @property
    def published(self) -> Mapping[str, StagedRun]:
        """Slice -> the run that readers see."""
        return {slice_id: self.view.run(run_id) for slice_id, run_id in self.view.published.items()}

    @property
    def runs(self) -> Mapping[str, StagedRun]:
        """Slice -> the run that is explained."""
        staged = {} if self.request is None else self.request.runs
        chosen = {**self.published} | {slice_id: self.view.run(run_id) for slice_id, run_id in staged.items()}
        return dict(sorted(chosen.items(), key=lambda one: one[1].result.slice.start_ms))

    @property
    def all_runs(self) -> Mapping[str, StagedRun]:
        """Run id -> each run whose rows are told: those that readers see, and those of the request."""
        return {run.result.run_id: run for run in (*self.published.values(), *self.runs.values())}

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
