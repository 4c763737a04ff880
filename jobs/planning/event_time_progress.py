"""How far a request is, in event time: one value, with one wording for commands, logs and pages, and one JSON form.

It is computed from the runs alone, and from the estimates of the plan. So whoever looks at the same time sees the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Self

from expectations.formatting import instant, percent
from jobs.durations import human_duration
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_instant, slices_between
from jobs.plain_text import counted
from jobs.planning.estimate import Estimate
from jobs.runs import RunResult, Slice
from windowlib.errors import RangeError

if TYPE_CHECKING:
    from jobs.planning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeProgress:
    """The slices of a request that have a run, of `total`, and what these runs have read.

    `watermark_ms` is the watermark that they have reached; None before the first one. `seconds` is the time of their
    replays. `left` is the estimate of the plan for the slices without a run; None if it is unknown.
    """

    done: int
    total: int
    records: int
    late: int
    seconds: float
    watermark_ms: int | None
    left: Estimate | None

    @classmethod
    def of(cls, results: Iterable[RunResult], *, total: int, left: Estimate | None) -> Self:
        runs = tuple(results)
        return cls(
            done=len(runs),
            total=total,
            records=sum(run.counts.read for run in runs),
            late=sum(run.counts.late for run in runs),
            seconds=sum(run.seconds for run in runs),
            watermark_ms=max((run.watermark_ms for run in runs if run.watermark_ms is not None), default=None),
            left=left,
        )

    @property
    def records_per_s(self) -> float | None:
        """The records that the replays have read in a second; None without records."""
        return self.records / self.seconds if self.records and self.seconds > 0 else None

    @property
    def late_share(self) -> float | None:
        """The share of late records; None without records."""
        return self.late / self.records if self.records else None

    @property
    def seconds_left(self) -> float | None:
        """The estimate of the plan; None if it is unknown or nothing is left."""
        return None if self.left is None or self.done >= self.total else round(self.left.seconds, 3)

    @property
    def sentence(self) -> str:
        """The progress in words, such as `2 of 4 slices, watermark 2013-02-04 17:46 UTC, 20 records/s, late 2 %`."""
        parts = [f"{self.done:,} of {counted(self.total, 'slice')}"]
        if self.watermark_ms is not None:
            parts.append(f"watermark {instant(self.watermark_ms)}")
        if self.records_per_s is not None:
            parts.append(f"{self.records_per_s:,.0f} records/s")
        if self.late_share is not None:
            parts.append(f"late {percent(self.late_share)}")
        if self.seconds_left is not None:
            parts.append(f"about {human_duration(ceil(self.seconds_left) * 1_000)} left")
        return ", ".join(parts)

    def after(self, seconds: float) -> Self:
        """Return the progress some seconds later, if no further slice has a run."""
        left = self.left
        return self if left is None else replace(self, left=Estimate(*(max(bound - seconds, 0.0) for bound in left)))

    def to_json(self) -> dict[str, Any]:
        return {
            "slices_done": self.done,
            "slices": self.total,
            "watermark": None if self.watermark_ms is None else show_instant(self.watermark_ms),
            "records": self.records,
            "records_per_s": self.records_per_s,
            "late_share": self.late_share,
            "seconds_left": self.seconds_left,
            "sentence": self.sentence,
        }


def progress_of(
    pipeline: Pipeline, view: LedgerView, request: Request, *, planned: "Plan | None" = None
) -> EventTimeProgress:
    """Return the progress of a request in the ledger. `planned` is its plan, if there is one.

    Slices that the request leaves as they are count as done, as in a run.
    """
    slices = request_slices(pipeline, view, request)
    results = [view.runs[run_id].result for run_id in request.runs.values() if run_id in view.runs]
    if request.is_repair and request.is_open:  # it names its runs when it is complete
        own = {slice_.slice_id for slice_ in slices}
        staged = (run.result for run in view.runs.values() if run.request_id == request.request_id)
        results = [result for result in staged if result.slice.slice_id in own]
    results += [run.result for run in left_as_they_are(view, request, slices, planned=planned).values()]
    left = None if planned is None else Estimate.together(step.expected for step in planned.stale)
    return EventTimeProgress.of(results, total=len(slices), left=left)


def left_as_they_are(
    view: LedgerView, request: Request, slices: Iterable[Slice], *, planned: "Plan | None"
) -> dict[str, StagedRun]:
    """Return slice -> the run that readers see, of the slices that a request does not replay, because they are right.

    A complete request has replayed all others. For an incomplete one, `planned` tells which it will not replay.
    """
    stale = None if planned is None else {step.slice.slice_id for step in planned.stale}
    kept = {}
    for slice_ in slices:
        is_right = request.is_complete or (stale is not None and slice_.slice_id not in stale)
        seen = view.published_run(slice_.slice_id)
        if is_right and seen is not None and slice_.slice_id not in request.runs:
            kept[slice_.slice_id] = seen
    return kept


def request_slices(pipeline: Pipeline, view: LedgerView, request: Request) -> tuple[Slice, ...]:
    """Return the slices of the range of a request, in order; without a range, those that it has begun."""
    known = [view.slices[slice_id] for slice_id in request.slice_ids if slice_id in view.slices]
    if request.from_ms is not None and request.to_ms is not None:
        try:
            return slices_between(pipeline, request.from_ms, request.to_ms)
        except RangeError:
            pass  # the pipeline file has slices with other bounds now
    return tuple(sorted(known, key=lambda slice_: slice_.start_ms))
