"""The slices before a slice in which `log.distinct` looks for earlier records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import previous_slice, slice_grid
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
        return tuple(sorted((*self.slices, *self.outside), key=lambda slice_: slice_.start_ms))


def look_back(pipeline: Pipeline, slices: Sequence[Slice]) -> LookBack:
    """Return which slices the runs of some slices read besides their own."""
    distinct = pipeline.log.distinct
    if distinct is None:
        return LookBack(slices=(*slices,))
    grid, before = slice_grid(pipeline), dict[str, Slice | None]()

    def earlier(slice_: Slice) -> Iterator[Slice]:
        before_it: Slice | None = slice_
        while before_it is not None:
            if before_it.slice_id not in before:
                before[before_it.slice_id] = previous_slice(grid, before_it)
            before_it = before[before_it.slice_id]
            if before_it is None or not _reaches(before_it, slice_, distinct.within_ms):
                return
            yield before_it

    of = {slice_.slice_id: tuple(earlier(slice_))[::-1] for slice_ in slices}
    outside = {past.slice_id: past for own in of.values() for past in own if past.slice_id not in of}
    return LookBack(slices=(*slices,), of=of, outside=tuple(sorted(outside.values(), key=lambda past: past.start_ms)))


def _reaches(earlier: Slice, later: Slice, within_ms: int) -> bool:
    """Return whether a record of an earlier slice may have arrived within the bound before one of a later slice."""
    return earlier.end_ms > later.start_ms - within_ms
