"""Reads the rows of a report from a pipeline's ledger and its late records. Writes nothing; no Spark."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING

from jobs.comparing.views import changes_something
from jobs.lake.arrow_sql import plain_rows, query
from jobs.ledger.ledger import Ledger
from jobs.ledger.run_projection import failing_in_sight
from jobs.pipeline.slices import previous_slice, slice_grid
from jobs.plain_text import with_capital
from jobs.planning.request_context import RequestContext
from jobs.publishing.rules import describe_hold, publication_effect
from jobs.publishing.stop_reasons import held_runs
from jobs.reading.stored_rows import StoredRuns
from jobs.review.report.rows import LATE_EDGES_MS, LateRow, ReportRows
from windowlib.errors import HindcastError
from windowlib.records import tables

if TYPE_CHECKING:
    from jobs.lake.lake import Lake
    from jobs.ledger.view import LedgerView, StagedRun
    from jobs.pipeline.models.pipeline import Pipeline
    from jobs.runs import Slice


MAX_PUBLISHED = 3
"""For so many open requests, the page has the command that publishes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a pipeline's slices that a page shows: `count` slices, the last of which is `last`, or the newest.

    Lateness is read for at most `late_slices` slices and `late_rows` late records, the newest slices first. `known` has
    the lateness that was read before, by attempt and slice; the rows of an attempt never change.
    """

    count: int
    last: str | None = None
    late_rows: int = 100_000
    late_slices: int = 100
    known: MutableMapping[tuple[str, str], LateRow] = field(default_factory=dict)


def collect_view(
    lake: "Lake", pipeline: "Pipeline", view: "LedgerView", *, part: Part | None = None,
    work: RequestContext | None = None,
) -> ReportRows:  # fmt: skip
    """Return the rows of the report for a view of the ledger: of all slices, or of a part of them.

    `work` is the context of a live page, which tells who works on a request now. `pipeline` has the published spec.
    Raises StoreError: the late records cannot be read, or differ from those that were written.
    """
    newest = view.newest_runs()
    wanted = shown_slices(view, newest) | ({part.last} if part is not None and part.last else set())
    known = tuple(slice_ for slice_id, slice_ in view.slices.items() if slice_id in wanted)
    shown = known if part is None else _shown(known, part)
    slices = (*islice(_newest_first(pipeline, shown), None if part is None else part.count),)[::-1]
    listed = {slice_.slice_id for slice_ in slices}
    newest = {slice_id: run for slice_id, run in newest.items() if slice_id in listed}
    late, left_out = _late_of(StoredRuns(lake, pipeline.name, view), list(newest.values()), part)
    return ReportRows(
        pipeline=pipeline.name,
        lake=lake.root,
        zone=str(pipeline.log.slice.zone),
        every_ms=pipeline.log.slice.every_ms,
        ledger_version=view.version,
        as_of_ms=_as_of_ms(view),
        fail_on=pipeline.quality.fail_on if pipeline.quality else None,
        slices=slices,
        runs=newest,
        published=view.published,
        description=pipeline.description or "",
        owner=pipeline.owner or "",
        requests=tuple(view.requests.values()),
        publications=view.publications,
        late=late,
        late_left_out=left_out,
        held=tuple(run for slice_id, (run, _) in held_runs(view).items() if slice_id in listed),
        failing=tuple(run for run in failing_in_sight(view) if run.result.slice.slice_id in listed),
        hold="" if view.hold is None else describe_hold(view.hold),
        effects=_effects(work or without_clock(lake, pipeline), view),
    )


def without_clock(lake: "Lake", pipeline: "Pipeline") -> RequestContext:
    """Return a context without a clock, in which nobody works, so that the report depends on stored data only."""
    ledger = Ledger(lake.ledger(pipeline.name), now_ms=lambda: 0)
    return RequestContext(pipeline=pipeline, lake=lake, ledger=ledger, is_alive=lambda _holder: False)


def _effects(work: RequestContext, view: "LedgerView") -> dict[str, str]:
    """Return what the publication of each open request does that changes something; the newest ones."""
    effects = dict[str, str]()
    changing = (request for request in reversed(view.open_requests()) if changes_something(view, request))
    for request in islice(changing, MAX_PUBLISHED):
        try:
            is_ready, told = publication_effect(work, view, request)
        except HindcastError as error:  # such as the damaged ledger of the pipeline whose table is the log
            is_ready, told = False, str(error)
        effects[request.request_id] = f"{with_capital(told) if is_ready else f'Not possible now: {told}'}."
    return effects


def shown_slices(view: "LedgerView", newest: "Mapping[str, StagedRun]") -> set[str]:
    """Return the slices of the ledger without those that only warm-ups have replayed. `newest` is of `newest_runs`."""
    replayed = {run.result.slice.slice_id for run in view.runs.values()}
    return view.slices.keys() - (replayed - newest.keys())


def _shown(slices: "tuple[Slice, ...]", part: Part) -> "tuple[Slice, ...]":
    end = next((number + 1 for number, slice_ in enumerate(slices) if slice_.slice_id == part.last), len(slices))
    return slices[max(0, end - part.count) : end]


def _late_of(stored: StoredRuns, runs: "Sequence[StagedRun]", part: Part | None) -> tuple[Mapping[str, LateRow], int]:
    """Return slice -> lateness, and the number of slices with late records whose lateness is not read."""
    if part is None:
        return _late_rows(stored, runs), 0
    wanted: list[StagedRun] = []
    rows = left_out = 0
    for run in sorted(runs, key=lambda run: -run.result.slice.start_ms):
        if not run.result.counts.late or _place(run) in part.known:
            continue
        rows += run.result.counts.late
        if rows <= part.late_rows and len(wanted) < part.late_slices:
            wanted.append(run)
        else:
            left_out += 1
    late_rows = _late_rows(stored, wanted)
    for run in wanted:
        if run.result.slice.slice_id in late_rows:
            part.known[_place(run)] = late_rows[run.result.slice.slice_id]
    known = {run.result.slice.slice_id: part.known.get(_place(run)) for run in runs}
    return {slice_id: late for slice_id, late in known.items() if late is not None}, left_out


def _place(run: "StagedRun") -> tuple[str, str]:
    """Return the attempt and the slice of a run. One attempt can replay several slices."""
    return run.result.attempt_id, run.result.slice.slice_id


def _newest_first(pipeline: "Pipeline", known: "Sequence[Slice]") -> "Iterator[Slice]":
    """Yield slices of the ledger, which are in order, and those between them that it does not have, newest first.

    A slice that overlaps one of the ledger is not missing: the latter may be cut by an earlier pipeline file.
    """
    grid, ends_ms = slice_grid(pipeline), [*accumulate((slice_.end_ms for slice_ in known), max)]
    for place, slice_ in reversed([*enumerate(known)]):
        yield slice_
        missing = previous_slice(grid, slice_) if place and ends_ms[place - 1] < slice_.start_ms else None
        while missing is not None and ends_ms[place - 1] <= missing.start_ms:
            if missing.end_ms <= slice_.start_ms:
                yield missing
            missing = previous_slice(grid, missing)


def _as_of_ms(view: "LedgerView") -> int | None:
    """Return the time of the newest ledger event that the page shows; None without one."""
    moments = [run.at_ms for run in view.runs.values()]
    moments += [run.waiver.at_ms for run in view.runs.values() if run.waiver]
    moments += [publication.at_ms for publication in view.publications]
    moments += [request.opened_at_ms for request in view.requests.values()]
    return max(moments, default=None)


def _late_rows(stored: StoredRuns, runs: "Iterable[StagedRun]") -> Mapping[str, LateRow]:
    """Return slice -> lateness of the run's late records. Only records that missed all their windows count."""
    rows = stored.read(
        tables.LATE_RECORDS, [run for run in runs if run.result.counts.late], ("slice_id", "late_by_ms", "missed_all")
    )
    if not rows.num_rows:
        return {}
    edges = (-(2**63), *LATE_EDGES_MS, 2**63)
    classes = ", ".join(
        f"count(*) FILTER (late_by_ms >= {low} AND late_by_ms < {high})" for low, high in pairwise(edges)
    )
    sql = (
        f"SELECT slice_id, count(*), median(late_by_ms), max(late_by_ms), {classes} "  # noqa: S608 -- our own numbers
        "FROM late WHERE missed_all GROUP BY slice_id"
    )
    return {
        slice_id: LateRow(count=count, median_ms=round(median), max_ms=most, classes=tuple(class_counts))
        for slice_id, count, median, most, *class_counts in plain_rows(query({"late": rows}, sql))
    }
