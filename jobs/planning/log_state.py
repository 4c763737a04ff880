"""The state of the event log for a range of slices, from the Delta log and the ledger. No record is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.lake.delta_tables import is_newest
from jobs.lake.event_log import KnownLog, pin_log
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, slice_at, slice_grid
from jobs.runs import LogCoordinates, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The coordinates of each slice of a range, and the first and last slice with records (None: no record).

    Records outside the pipeline's `first..last` are ignored. `known` saves the next `pin_log` from reading the same
    commits again.
    """

    version: int
    coordinates: Mapping[str, LogCoordinates]
    first_data: Slice | None
    last_data: Slice | None = None
    known: KnownLog = field(default_factory=KnownLog)


def read_log_state(
    pipeline: Pipeline,
    lake: Lake,
    slices: Sequence[Slice],
    *,
    view: LedgerView | None = None,
    before: LogState | None = None,
) -> LogState:
    """Read the Delta log for a range of slices. Commits that a run in `view` has seen are not read again.

    `before` is the state of the same slices that was read a moment ago. It is returned if the log has no newer commit.

    Raises:
        LogError, SpecError: as for `plan`.
    """
    if before is not None and is_newest(lake.event_log(pipeline), before.version):
        return before
    grammar = pipeline.log.slice
    known = None if view is None else known_log(view, slices)
    pinned = pin_log(lake.event_log(pipeline), slice_column=grammar.by, zone=grammar.zone, slices=slices, known=known)
    validate_against_schema(pipeline, pinned.columns)
    grid = slice_grid(pipeline)
    filled = _inside(grid, pinned.data_ms)
    return LogState(
        version=pinned.version,
        coordinates={one.slice_id: pinned.coordinates(one.slice_id) for one in slices},
        first_data=slice_at(grid, filled[0]) if filled else None,
        last_data=slice_at(grid, filled[-1]) if filled else None,
        known=pinned.known(),
    )


def known_log(view: LedgerView, slices: Sequence[Slice]) -> KnownLog:
    """Return what the runs of a ledger have seen of the log: sound versions, and coordinates of the given slices."""
    sound: dict[str, int] = {}
    seen: dict[str, list[LogCoordinates]] = {one.slice_id: [] for one in slices}
    for run in view.runs.values():
        own = seen.get(run.result.slice.slice_id)
        for sighting in run.sightings:
            sound[sighting.log.table_id] = max(sighting.log.sound, sound.get(sighting.log.table_id, -1))
            if own is not None:
                own.append(sighting.log)
    return KnownLog(sound=sound, seen=seen)


def _inside(grid: SliceGrid, instants_ms: Sequence[int]) -> list[int]:
    """Return the instants from the first slice of a grid up to the end of its last one."""
    end_ms = None if grid.last_ms is None else slice_at(grid, grid.last_ms).end_ms
    return [
        at_ms
        for at_ms in instants_ms
        if (grid.first_ms is None or at_ms >= grid.first_ms) and (end_ms is None or at_ms < end_ms)
    ]
