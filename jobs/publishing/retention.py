"""Which stored rows nothing needs any more: neither readers, nor an open request, nor the next slice. Pure.

An attempt at a slice is needed if its run is one of these:

- a run that readers see, and the run of the chain in whose place they see a repair;
- a run that readers have seen, for the time `retention.superseded` after another one took its place;
- a run that was never published, for the time `retention.unpublished` after it was staged;
- a run of a slice of an open request;
- the run whose state a published chain begins with.

The state after a run is needed if the run is needed. Of a run that readers see, it is needed only for the time
`retention.checkpoints` after the publication of the next slice, because that slice can then be replayed alone. So the
newest state of each chain and the one before the newest publication are always needed. After several rollbacks in a
row, the state of the new head may be removed: the next slice then begins with a warm-up. A state may be
stored in parts, and all of them are needed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from jobs.ledger.removals import StoredAttempt, Why
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.planning.chains import RunsByState
from jobs.runs import EMPTY_STATE, Slice


@dataclass(frozen=True, kw_only=True)
class Need:
    """What is needed of a view of the ledger at a time."""

    view: LedgerView
    retention: RetentionGrammar
    now_ms: int

    def unneeded(self, stored: Mapping[StoredAttempt, int], *, busy: Iterable[str] = ()) -> dict[StoredAttempt, Why]:
        """Return the stored attempts at slices that nothing needs, all rows of them or only the state, and why.

        `stored` are the attempts at slices that the tables have, with the time at which their newest file was written,
        and `busy` the attempts of requests that somebody holds.
        """
        busy, removed = {*busy}, {}
        for place, written_ms in stored.items():
            run = self._runs_by_place.get(place)
            why = None
            if place in self._places_of_states:
                continue
            if run is None:
                if place[1] not in busy and self._is_over(self.retention.unpublished_ms, written_ms):
                    why = Why.UNPUBLISHED
            elif run.result.run_id not in self._runs:
                why = Why.SUPERSEDED if run.result.run_id in self._ever_seen else Why.UNPUBLISHED
            elif run.result.run_id not in self._states and place == _place(run):
                why = Why.CHECKPOINTS
            if why is not None:
                removed[place] = why
        return removed

    @cached_property
    def _open(self) -> tuple["_OpenRequest", ...]:
        return tuple(_OpenRequest.of(request) for request in self.view.open_requests())

    @cached_property
    def _runs_by_place(self) -> dict[StoredAttempt, StagedRun]:
        """The runs by the places of their rows and of the results of their checks."""
        checks = {(run.result.slice.slice_id, run.checks_attempt_id): run for run in self.view.runs.values()}
        return checks | {_place(run): run for run in self.view.runs.values()}

    @cached_property
    def _ever_seen(self) -> dict[str, int | None]:
        """Each run that readers have seen, and since when they do not see it any more; None: they see it.

        A run of the chain counts as seen while readers see a repair in its place.
        """
        now: dict[str, str | None] = {}
        since: dict[str, int | None] = {}
        for publication in self.view.publications:
            since |= dict.fromkeys(publication.chain_before.values(), publication.at_ms)
            for slice_id, run_id in publication.changes.items():
                before = now.get(slice_id)
                if before is not None:
                    since[before] = publication.at_ms
                now[slice_id] = run_id
                if run_id is not None:
                    since[run_id] = None
        return since

    @cached_property
    def _runs(self) -> frozenset[str]:
        kept = {run_id for run_id, run in self.view.runs.items() if self._is_needed(run)}
        kept |= {self.view.chain_run_id(run_id) for run_id in kept}
        by_state = RunsByState.of(self.view)
        for chain_run in self._chain.values():
            if chain_run.is_chain_start and chain_run.result.state_before != EMPTY_STATE:
                before = by_state.before(chain_run)
                kept |= set() if before is None else {before.result.run_id}
        return frozenset(kept)

    def _is_needed(self, run: StagedRun) -> bool:
        run_id = run.result.run_id
        if any(request.covers(run.result.slice) for request in self._open):
            return True
        if run_id not in self._ever_seen:
            return not self._is_over(self.retention.unpublished_ms, run.at_ms)
        since_ms = self._ever_seen[run_id]
        return since_ms is None or not self._is_over(self.retention.superseded_ms, since_ms)

    def _is_over(self, kept_ms: int | None, since_ms: int) -> bool:
        return kept_ms is not None and self.now_ms - since_ms >= kept_ms

    @cached_property
    def _chain(self) -> dict[str, StagedRun]:
        """The published chain: slice -> run, in slice order."""
        return {slice_id: self.view.chain_run(run_id) for slice_id, run_id in self.view.published.items()}

    @cached_property
    def _states(self) -> frozenset[str]:
        """The runs that are needed with the state after them."""
        old = {run_id for slice_id in self._old_states() for run_id in self._runs_at(slice_id)}
        return self._runs - old

    def _runs_at(self, slice_id: str) -> Iterator[str]:
        seen = self.view.published[slice_id]
        yield from {seen, self.view.chain_run_id(seen)}

    def _old_states(self) -> Iterator[str]:
        """Yield the published slices whose state no replay starts from any more."""
        published_ms = {
            slice_id: publication.at_ms for publication in self.view.publications for slice_id in publication.changes
        }
        newest = self.view.standing[-1].changes if self.view.standing else {}
        chain = list(self._chain.values())
        for run, following in pairwise(chain):
            after = following.result.slice
            is_continued = after.start_ms == run.result.slice.end_ms and not following.is_chain_start
            is_old = self._is_over(self.retention.checkpoints_ms, published_ms[after.slice_id])
            is_free = not any(request.starts_from(run.result.slice) for request in self._open)
            if is_continued and is_old and is_free and after.slice_id not in newest:
                yield run.result.slice.slice_id

    @cached_property
    def _places_of_states(self) -> frozenset[StoredAttempt]:
        """All parts of the states that are needed."""
        runs = (self.view.runs[run_id] for run_id in self._states)
        return frozenset(place for run in runs if run.checkpoint_removal is None for place in run.checkpoint.attempts)


def _place(run: StagedRun) -> StoredAttempt:
    return run.result.slice.slice_id, run.result.attempt_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRequest:
    """The slices of an open request: its runs and attempts, and its range from the warm-up on (None: it has none)."""

    slice_ids: frozenset[str]
    span: tuple[int, int] | None

    @classmethod
    def of(cls, request: Request) -> "_OpenRequest":
        span = None
        if request.from_ms is not None and request.to_ms is not None:
            start_ms = request.from_ms if request.warm_up is None else request.warm_up.first.start_ms
            span = start_ms, request.to_ms
        return cls(slice_ids=request.slice_ids, span=span)

    def covers(self, slice_: Slice) -> bool:
        is_inside = self.span is not None and self.span[0] <= slice_.start_ms < self.span[1]
        return is_inside or slice_.slice_id in self.slice_ids

    def starts_from(self, slice_: Slice) -> bool:
        """Return whether a replay of a part of the request may start from the state after a slice."""
        return self.span is None or (self.span[0] <= slice_.end_ms and slice_.start_ms < self.span[1])
