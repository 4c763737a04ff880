"""The search for records by a part of their id, over all slices with records, in a bounded time for each page."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobs.lake.lake import Lake
from jobs.lake.log_rows import values_with
from jobs.lake.slicing_choice import is_partitioned
from jobs.ledger.view import LedgerView
from jobs.pipeline.log_schema import derivation
from jobs.pipeline.models.pipeline import Pipeline
from jobs.review.log_search import log_search, slice_finder
from windowlib.errors import RequestError

MOST_FOUND = 20
MOST_SLICES = 512
"""So many slices are read at once at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record whose id has the text in it, and the slice in which it arrived."""

    record_id: str
    slice_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How far a search came: `searched` of `total` slices with records, newest first, from `last` back to `first`.

    `before` slices are newer than `last`, so other pages search them. `older` is the next slice; None at the end.
    `is_cut`: the searched slices have more such records than `records`, which are the newest.
    """

    records: tuple[FoundRecord, ...]
    is_cut: bool
    searched: int
    before: int
    total: int
    last: str | None
    first: str | None
    older: str | None

    def only(self, record_id: str) -> FoundRecord | None:
        """Return the record with exactly this id, or the only one that was found in all slices."""
        exact = [record for record in self.records if record.record_id == record_id]
        is_only = len(self.records) == 1 and not self.is_cut and self.older is None and not self.before
        return exact[0] if exact else self.records[0] if is_only else None


def search_records(
    lake: Lake,
    pipeline: Pipeline,
    view: LedgerView,
    *,
    part: str,
    last: str | None = None,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Searched:
    """Search the log for records whose id has a text in it, in the slices of the ledger that have records.

    `pipeline` is the spec of the chain, and has `log.record_id`. Upper and lower case of `part` are equal. `last` is
    the newest slice to search; None: the newest of all. No further slices are read after `seconds`, but at least one
    is.

    Raises:
        RequestError: the ledger has no slice `last`, or the slices are no partitions of the log.
        LogError: the log cannot be read.
    """
    assert pipeline.log.record_id is not None, "the caller has checked it"
    if last is not None and last not in view.slices:
        raise RequestError(f"the ledger has no slice {last!r}")
    newest_first = list(reversed(filled_slices(view)))
    last_ms = None if last is None else view.slices[last].start_ms
    waiting = [name for name in newest_first if last_ms is None or view.slices[name].start_ms <= last_ms]
    hits: list[FoundRecord] = []
    searched = 0
    chosen: set[str] = set()
    log, search = log_search(lake, pipeline, view, only=chosen)
    if not is_partitioned(log, pipeline.log.slice):
        raise RequestError(
            "records can be searched by a part of their id only if the slices are partitions of the log (log.slice.by)"
        )
    slice_of, derived = slice_finder(pipeline, view), derivation(pipeline, log.columns)
    for batch in _batches(waiting, seconds, clock):
        chosen.clear()
        chosen.update(batch)
        values = values_with(log, pipeline.log.record_id, part, search=search, most=MOST_FOUND + 1, derivation=derived)
        hits += [FoundRecord(record_id=value, slice_id=slice_of(partition).slice_id) for value, partition in values]
        searched += len(batch)
        if len(hits) >= MOST_FOUND or any(hit.record_id == part for hit in hits):
            break
    records = sorted(set(hits), key=lambda hit: (hit.record_id == part, hit.slice_id, hit.record_id), reverse=True)
    return Searched(
        records=tuple(records[:MOST_FOUND]),
        is_cut=len(records) > MOST_FOUND,
        searched=searched,
        before=len(newest_first) - len(waiting),
        total=len(newest_first),
        last=waiting[0] if searched else None,
        first=waiting[searched - 1] if searched else None,
        older=waiting[searched] if searched < len(waiting) else None,
    )


def filled_slices(view: LedgerView) -> tuple[str, ...]:
    """Return the slices with records in at least one of their runs, in slice order."""
    filled = {run.result.slice.slice_id for run in view.runs.values() if run.result.counts.read}
    return tuple(slice_id for slice_id in view.slices if slice_id in filled)


def _batches(waiting: Sequence[str], seconds: float, clock: Callable[[], float]) -> Iterator[Sequence[str]]:
    """Yield slices in growing batches, while the time lasts for one more at the speed of those before."""
    start, done, size = clock(), 0, 1
    while done < len(waiting):
        yield waiting[done : done + size]
        done = min(done + size, len(waiting))
        spent = clock() - start
        affordable = int((seconds - spent) / (spent / done)) if spent > 0 else MOST_SLICES
        if affordable < 1:
            return
        size = min(2 * size, affordable, MOST_SLICES)
