"""The slices before a slice in which `log.distinct` looks for earlier records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, previous_slice, slice_grid
from jobs.runs import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class LookBack:
    """Some slices, and for each the slices before it that its run reads as well, in order.

    `outside` are those that are not among the slices themselves, in order. `reach` maps a slice to the places in
    `every` of the slices that its run reads besides it; it is empty if the pipeline reads no slice before.
    """

    slices: tuple[Slice, ...]
    outside: tuple[Slice, ...] = ()
    reach: Mapping[str, range] = field(default_factory=dict)

    @property
    def every(self) -> tuple[Slice, ...]:
        """All slices, in order."""
        return tuple(sorted((*self.slices, *self.outside), key=lambda slice_: slice_.start_ms))

    def before(self, slice_id: str) -> range:
        """Return the places in `every` of the slices before that the run of a slice reads as well."""
        return self.reach.get(slice_id, range(0))


def look_back(pipeline: Pipeline, slices: Sequence[Slice]) -> LookBack:
    """Return which slices the runs of some slices read besides their own."""
    distinct = pipeline.log.distinct
    if distinct is None:
        return LookBack(slices=(*slices,))
    ordered = _with_earlier(slice_grid(pipeline), slices, distinct.within_ms)
    first, reach = 0, dict[str, range]()
    for place, (slice_, past) in enumerate(ordered):
        if past is None or past.slice_id != ordered[place - 1][0].slice_id:
            first = place
        while first < place and not _reaches(ordered[first][0], slice_, distinct.within_ms):
            first += 1
        reach[slice_.slice_id] = range(first, place)
    own = {slice_.slice_id: reach[slice_.slice_id] for slice_ in slices}
    outside = tuple(slice_ for slice_, _ in ordered if slice_.slice_id not in own)
    return LookBack(slices=(*slices,), outside=outside, reach=own)


def _with_earlier(grid: SliceGrid, slices: Iterable[Slice], within_ms: int) -> list[tuple[Slice, Slice | None]]:
    """Return some slices and those that their runs read, in order, each with the slice before it."""
    in_order = sorted(slices, key=lambda slice_: slice_.start_ms)
    linked = {slice_.slice_id: (slice_, previous_slice(grid, slice_)) for slice_ in in_order}
    for slice_, before_it in [*linked.values()]:
        past = before_it
        # A slice that is there already, or a reader of it, reaches further back than this slice.
        while past is not None and past.slice_id not in linked and _reaches(past, slice_, within_ms):
            linked[past.slice_id] = past, previous_slice(grid, past)
            past = linked[past.slice_id][1]
    return sorted(linked.values(), key=lambda pair: pair[0].start_ms)


def _reaches(earlier: Slice, later: Slice, within_ms: int) -> bool:
    """Return whether a record of an earlier slice may have arrived within the bound before one of a later slice."""
    return earlier.end_ms > later.start_ms - within_ms
