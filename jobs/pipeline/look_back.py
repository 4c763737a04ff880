"""The slices before a slice in which `log.distinct` looks for earlier records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, next_slice, previous_slice, slice_grid
from jobs.runs import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class LookBack:
    """Some slices, and for each the slices before it that its run reads as well, in order.

    `of` maps a slice to these; it is empty if the pipeline reads no slice before. `outside` are those that are not
    among the slices themselves, in order.
    """

    slices: tuple[Slice, ...]
    of: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    outside: tuple[Slice, ...] = ()

    @property
    def every(self) -> tuple[Slice, ...]:
        """All slices, in order."""
        return tuple(sorted((*self.slices, *self.outside), key=lambda one: one.start_ms))


def look_back(pipeline: Pipeline, slices: Sequence[Slice]) -> LookBack:
    """Return which slices the runs of some slices read besides their own."""
    distinct = pipeline.log.distinct
    if distinct is None:
        return LookBack(slices=(*slices,))
    grid, before = slice_grid(pipeline), dict[str, Slice | None]()

    def earlier(one: Slice) -> Iterator[Slice]:
        found: Slice | None = one
        while found is not None:
            if found.slice_id not in before:
                before[found.slice_id] = previous_slice(grid, found)
            found = before[found.slice_id]
            if found is None or not _reaches(found, one, distinct.within_ms):
                return
            yield found

    of = {one.slice_id: tuple(earlier(one))[::-1] for one in slices}
    outside = {found.slice_id: found for own in of.values() for found in own if found.slice_id not in of}
    return LookBack(slices=(*slices,), of=of, outside=tuple(sorted(outside.values(), key=lambda found: found.start_ms)))


def readers_of(pipeline: Pipeline, grid: SliceGrid, one: Slice) -> Iterator[Slice]:
    """Yield the slices after a slice whose runs read it as well."""
    distinct = pipeline.log.distinct
    found = None if distinct is None else next_slice(grid, one)
    while distinct is not None and found is not None and _reaches(one, found, distinct.within_ms):
        yield found
        found = next_slice(grid, found)


def _reaches(earlier: Slice, later: Slice, within_ms: int) -> bool:
    """Return whether a record of an earlier slice may have arrived within the bound before one of a later slice."""
    return earlier.end_ms > later.start_ms - within_ms
