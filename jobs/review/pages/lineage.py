"""What a run has read, what continues from it, and the DAG runs of Airflow that worked on its slice."""

from dataclasses import dataclass

from jobs.lake.event_log import files_of_slices
from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import without_credentials
from jobs.planning.chains import RunsByState
from jobs.reading.log_places import log_place
from jobs.reading.upstream_records import upstream_slices
from jobs.runs import LogCoordinates, RunResult, Slice
from jobs.wall_clock import now_ms
from windowlib.errors import HindcastError, LogError

MAX_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The input of a run and the runs around it in the chain.

    `table` is without credentials, and `log` tells how much of it the run has read. The run continued the state of
    `before`, and those of `after` continued its own. If the log is a table of another pipeline, `upstream` are the runs
    whose rows it has read.
    """

    table: str
    log: LogCoordinates
    before: RunResult | None
    after: tuple[RunResult, ...]
    upstream: tuple[RunResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFiles:
    """The data files of a slice in one version of the log, as (path, records, bytes). At most 200 of `count`."""

    version: int
    files: tuple[tuple[str, int | None, int], ...]
    count: int


def lineage_of(lake: Lake, pipeline: Pipeline, view: LedgerView, *, run: StagedRun) -> Lineage:
    """Return what a run has read, and the runs before and after it in the chain."""
    own = run.result
    before = RunsByState.of(view).before(run)
    if before is not None and run.is_chain_start and not view.is_in_chain(before.result.run_id):
        before = None  # a slice of a warm-up
    after = [
        other.result
        for other in view.runs.values()
        if other.result.slice.start_ms == own.slice.end_ms and other.result.state_before == own.state_after
    ]
    return Lineage(
        table=without_credentials(lake.event_log(pipeline)),
        log=own.log,
        before=None if before is None else before.result,
        after=tuple(after),
        upstream=tuple(part.result for part in _upstream_runs(lake, pipeline, run)),
    )


def _upstream_runs(lake: Lake, pipeline: Pipeline, run: StagedRun) -> tuple[StagedRun, ...]:
    """Return the runs of the other pipeline whose rows a run has read, in slice order; none if that cannot be told."""
    name, slice_ = pipeline.log.pipeline, run.result.slice
    if name is None:
        return ()
    try:
        view = Ledger(lake.ledger(name), now_ms=now_ms).view(run.result.log.version)
        slices = upstream_slices(lake, view, pipeline.log)
    except HindcastError:  # the page still tells what this pipeline's ledger has
        return ()
    inside = (own.parts for own in slices if slice_.start_ms <= own.run.result.slice.start_ms < slice_.end_ms)
    read = {part.result.run_id: part for parts in inside for part in parts}  # a slice may be made of shorter ones
    return tuple(sorted(read.values(), key=lambda part: part.result.slice.start_ms))


def slice_files(lake: Lake, pipeline: Pipeline, slice_: Slice, *, read: LogCoordinates) -> ShownFiles:
    """Return the data files of a slice in the version of the log that a run has read. Only the Delta log is read.

    Raises LogError: that version cannot be read, for example because a VACUUM has removed it, or is of another table.
    """
    log = log_place(lake, pipeline).open(read.version)
    if log.table_id != read.table_id:
        raise LogError(
            f"the run has read version {read.version} of another table or history than event log {log.uri} has now: "
            "nothing tells its files (docs/reference/logs.md)"
        )
    files = [
        (file.path, file.records, file.bytes) for file in files_of_slices(log, by=pipeline.log.slice, slices=[slice_])
    ]
    return ShownFiles(version=read.version, files=tuple(sorted(files)[:MAX_FILES]), count=len(files))


def dag_runs_of(view: LedgerView, slice_id: str) -> tuple[DagRunOrigin, ...]:
    """Return the DAG runs of Airflow that opened or joined a request to replay a slice, newest request first."""
    return tuple(
        origin
        for request in reversed(list(view.requests.values()))
        for origin in reversed(request.origins)
        if slice_id in origin.slice_ids
    )
