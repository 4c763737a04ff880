"""The published chain: where it begins, from which checkpoint the first slice of a range starts, and why it cannot.

Each run of the chain starts from the state that the run before it leaves, except where the chain begins. A run that was
staged as the beginning of a chain can continue one later: the slices before it were replayed, and they leave the state
with which it began.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from jobs.engine.fingerprints import relevant_document, spec_fingerprint
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.pipeline.files import pipeline_document, pipeline_from_json
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, previous_slice, slice_grid
from jobs.planning.log_state import LogState
from jobs.runs import EMPTY_STATE, CheckpointRef, RunResult, Slice, WarmUp
from windowlib.errors import RequestError

CODE_CHANGED: Final = "a function or Hindcast itself has changed since, so that spec cannot be computed any more"


def adoption(pipeline: Pipeline, first: str | None = None) -> str:
    """Return the command by which the published chain goes on with a pipeline, from a slice or the head on."""
    command = f"hindcast adopt {pipeline.name}"
    if not pipeline.may_have_restart_point:
        return f"`{command}` with --from the log's first slice"
    return f"`{command} --from {first}`" if first else f"`{command}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainGap:
    """Why a chain cannot begin at `first`: the state before it is missing, or of another spec.

    `nearest` is the latest slice before `first` at which the range may begin instead, and `log_start` is the first
    slice with records. `staged_by` are the open requests that have staged `before`. `specs` are the spec of the state
    and that of the pipeline file; None if there is no state. `is_warm_up`: `before` is not published, because the chain
    began with a warm-up. `adoption`: if the pipelines are equal, and a function or Hindcast has changed, the command by
    which the chain goes on.
    """

    pipeline: str
    source: str
    first: Slice
    before: Slice
    nearest: Slice
    log_start: Slice
    staged_by: tuple[Request, ...] = ()
    specs: tuple[str, str] | None = None
    is_warm_up: bool = False
    adoption: str = ""

    @property
    def why(self) -> str:
        """One sentence without advice."""
        if self.specs is None:
            return (
                f"slice {self.first.slice_id} of pipeline {self.pipeline} starts from the state after "
                f"{self.before.slice_id}, but {self.before.slice_id} has no published run"
            )
        theirs, ours = self.specs
        state = (
            f"slice {self.first.slice_id} of pipeline {self.pipeline} began with a warm-up by spec {theirs[:12]}"
            if self.is_warm_up
            else f"slice {self.before.slice_id} of pipeline {self.pipeline} was published by spec {theirs[:12]}"
        )
        if self.adoption:
            return f"{state}, the same pipeline is spec {ours[:12]} now, and {CODE_CHANGED}"
        return f"{state}, but {self.source} is spec {ours[:12]} now, and the state of one spec does not fit the other"


class ChainError(RequestError):
    """The chain cannot begin at the first slice of a range. The message has the words of the command line."""

    def __init__(self, gap: ChainGap) -> None:
        super().__init__(_in_words_of_the_command_line(gap))
        self.gap = gap


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStart:
    """What the first slice of a range starts from, and a sentence that tells why.

    It starts from the checkpoint `before`; if that is None, without windows: from the time of `warm_up`, or from
    nothing. `begins_chain`: the slice before is not published, so nothing leaves this state to it.
    """

    note: str
    before: CheckpointRef | None = None
    warm_up: WarmUp | None = None
    begins_chain: bool = False

    @property
    def state(self) -> str:
        """The fingerprint of the state before the first slice."""
        if self.before is not None:
            return self.before.fingerprint
        return EMPTY_STATE if self.warm_up is None else self.warm_up.fingerprint


def chain_before(
    pipeline: Pipeline, view: LedgerView, log: LogState, *, first: Slice, is_fresh: bool, request_id: str | None = None
) -> ChainStart:
    """Return what the first slice of a range starts from.

    `first` is the first slice of the range. `is_fresh`: a person asks for a new chain. Of a request that is continued,
    the own run of the slice before is taken.
    Raises ChainError: the slice before has no run, or the state before `first` is of another spec.
    """
    if is_fresh:
        return ChainStart(note=f"the chain begins at {first.slice_id} (--fresh)")
    before, request = previous_slice(slice_grid(pipeline), first), view.requests.get(request_id or "")
    if before is not None and request is not None and before.slice_id in request.runs:
        note = f"continues from {before.slice_id} of the same request"
        return ChainStart(before=view.run(request.runs[before.slice_id]).checkpoint, note=note)
    if (earlier := run_before(view, first)) is not None:
        before = earlier.result.slice  # the file may begin later than it did, or cut the log in another way
    if before is None:
        return ChainStart(note=f"the chain begins at {first.slice_id}, the first slice of the pipeline")
    published, spec = view.published_chain_run(before.slice_id), spec_fingerprint(pipeline)
    if published is not None and published.result.spec_fingerprint == spec:
        return ChainStart(before=published.checkpoint, note=f"continues from {before.slice_id}, as published")
    begun = view.published_chain_run(first.slice_id)
    if published is not None and begun is not None and begun.result.spec_fingerprint == spec:
        return _as_begun(view, begun)
    if published is None and (start := _at_the_beginning(view, log, first=first, spec=spec)) is not None:
        return start
    raise ChainError(_gap(pipeline, view, log, first=first, before=before, published=published))


def _at_the_beginning(view: LedgerView, log: LogState, *, first: Slice, spec: str) -> ChainStart | None:
    """Return the start of a chain without a published slice before it; None if the state before it is not known."""
    if log.beginning is None or first.start_ms <= log.beginning.start_ms:
        what = "record" if log.beginning == log.first_data else "whole slice"
        return ChainStart(note=f"the chain begins at {first.slice_id}: the log holds no {what} before it")
    begun = view.published_chain_run(first.slice_id)
    if begun is None:
        return None
    is_own = begun.is_chain_start and begun.result.spec_fingerprint == spec
    return _as_begun(view, begun) if is_own or begun.result.state_before == EMPTY_STATE else None


def run_before(view: LedgerView, slice_: Slice) -> StagedRun | None:
    """Return the run of the published chain whose slice ends where a slice begins; None if there is none.

    Slices that earlier versions have published can overlap: of several, the one with the most similar length counts.
    """
    wanted_ms = slice_.start_ms - (slice_.end_ms - slice_.start_ms)
    ending = (view.slices[name] for name in view.published if view.slices[name].end_ms == slice_.start_ms)
    before = min(ending, key=lambda shown: abs(shown.start_ms - wanted_ms), default=None)
    return None if before is None else view.published_chain_run(before.slice_id)


def begins_chain(view: LedgerView, run: StagedRun) -> bool:
    """Return whether a run of the published chain begins it: it does not start from the state before it."""
    return run.is_chain_start and not continues_chain(view, run.result)


def continues_chain(view: LedgerView, result: RunResult) -> bool:
    """Return whether a run starts from the state that the published run before it leaves."""
    before = run_before(view, result.slice)
    return before is not None and before.result.state_after == result.state_before


class ChainPart(NamedTuple):
    """Slices of the published chain that are computed together, numbered from 0.

    They have one spec. `beginning` is the slice with which they begin without earlier records (`--fresh`); None: all
    records of the log matter to them.
    """

    number: int
    spec: str = ""
    beginning: Slice | None = None


def chain_parts(view: LedgerView, log: LogState) -> dict[str, ChainPart]:
    """Return published slice -> the part of the chain that it is in.

    A part ends at a hole, at another spec, and where a chain begins without earlier records.

    `log` is the state of the log without `log.slice.first`.
    """
    first_ms = 0 if log.first_data is None else log.first_data.start_ms
    parts, part = dict[str, ChainPart](), ChainPart(0)
    before: RunResult | None = None
    for name, run_id in view.published.items():
        result = view.chain_run(run_id).result
        is_next = before is not None and before.slice.end_ms == result.slice.start_ms
        if before is None or not is_next or before.state_after != result.state_before:
            is_fresh = result.state_before == EMPTY_STATE and result.slice.start_ms > first_ms
            beginning = result.slice if is_fresh else None
            is_new = not is_next or beginning != part.beginning
            part = part._replace(number=part.number + is_new, beginning=beginning)
        if part.spec != result.spec_fingerprint:
            part = part._replace(number=part.number + 1, spec=result.spec_fingerprint)
        parts[name], before = part, result
    return parts


def fresh_beginning(view: LedgerView, log: LogState, slice_: Slice) -> Slice | None:
    """Return the slice with which the chain of a published slice began without earlier records; None without.

    `log` is as for `chain_parts`.
    """
    part = chain_parts(view, log).get(slice_.slice_id)
    return None if part is None else part.beginning


def newly_shown(view: LedgerView, request: Request) -> dict[str, str]:
    """Return slice -> run of what readers see anew if a request is published: also the chain's where a repair ends."""
    runs, seen = request.runs.items(), view.published
    if request.is_repair:
        return {name: run_id for name, run_id in runs if seen.get(name) != run_id}
    shown = {
        name: run_id for name, run_id in runs if seen.get(name) != run_id or shown_for_other_spec(view, request, name)
    }
    return shown | {name: view.chain_run_id(seen[name]) for name in ended_repairs(view, shown) if name not in shown}


def ended_repairs(view: LedgerView, names: Iterable[str]) -> list[str]:
    """Return the slices of the repairs that end if readers see other runs of the chain at some slices.

    The slices of a repair, and of its warm-up, were computed together. If one of them gets another run of the chain,
    readers see the runs of the chain at all slices of the repair, and at those of repairs whose ranges touch it.
    """
    repaired = {name: view.published[name] for name in view.published if view.repairs and is_of_repair(view, name)}
    end_ms = max((view.slices[name].end_ms for name in repaired), default=0)
    slices = (view.slices[name] for name in names if name in view.slices)
    spans = [(slice_.start_ms + 1, slice_.end_ms - 1) for slice_ in slices if slice_.start_ms < end_ms]
    requests = view.requests.values() if spans else ()  # a view decodes the requests that are asked for
    repairs = [other for other in requests if other.is_repair and repaired.items() & other.runs.items()]
    read_from = [other.from_ms if other.warm_up is None else other.warm_up.first.start_ms for other in repairs]
    ending = [other for other, first_ms in zip(repairs, read_from, strict=True) if _touches(other, spans, first_ms)]
    ended: set[str] = set()
    while ending:
        ended.update(*(other.runs.keys() & repaired.keys() for other in ending))
        repairs = [other for other in repairs if other not in ending]
        spans = [(other.from_ms or 0, other.to_ms or 0) for other in ending]
        ending = [other for other in repairs if _touches(other, spans, other.from_ms)]
    return sorted(ended)


def judged_runs(view: LedgerView, request: Request) -> dict[str, str]:
    """Return slice -> run whose checks decide on the publication of a request: its own runs, and what it shows anew."""
    return {**request.runs, **newly_shown(view, request)}


def _touches(repair: Request, spans: Iterable[tuple[int, int]], first_ms: int | None) -> bool:
    return any((first_ms or 0) <= end_ms and start_ms <= (repair.to_ms or 0) for start_ms, end_ms in spans)


def is_of_repair(view: LedgerView, slice_id: str) -> bool:
    """Return whether readers see the run of a repair in place of the chain's run."""
    run_id = view.published.get(slice_id)
    return run_id is not None and view.chain_run_id(run_id) != run_id


def shown_for_other_spec(view: LedgerView, request: Request, slice_id: str) -> bool:
    """Return whether readers see the run of a repair, and the request wants it as the run of the chain."""
    chain_run = view.published_chain_run(slice_id) if is_of_repair(view, slice_id) else None
    return chain_run is not None and chain_run.result.spec_fingerprint != request.spec_fingerprint


def warmed_up(warm_up: WarmUp, *, at: Slice) -> ChainStart:
    """Return the start of a chain that begins in the middle of the log, at the first slice of a warm-up."""
    note = f"the chain begins at {at.slice_id} with a state like that of the whole chain"
    if warm_up.first == at:
        note += ": no record before it matters any more"
    else:
        note += f": the slices from {warm_up.first.slice_id} on are replayed and not published"
    return ChainStart(warm_up=warm_up, note=note)


def _as_begun(view: LedgerView, begun: StagedRun) -> ChainStart:
    """Return the start of a published chain again: nothing, or the state that its warm-up left."""
    state = begun.result.state_before
    note = f"the chain begins at {begun.result.slice.slice_id}, as it did when published"
    if state == EMPTY_STATE:
        return ChainStart(note=note)
    by_state = RunsByState.of(view)
    warm_up, before = by_state.warm_up_before(begun), by_state.before(begun)
    if warm_up is not None:
        return ChainStart(warm_up=warm_up, note=note)
    if before is None:
        raise RequestError(
            f"slice {begun.result.slice.slice_id} was published from the state {state[:12]}, which no run "
            f"in the ledger has left. Begin the chain anew, with --warm-up or --fresh"
        )
    return ChainStart(before=before.checkpoint, note=note, begins_chain=True)


def _gap(
    pipeline: Pipeline, view: LedgerView, log: LogState, *, first: Slice, before: Slice, published: StagedRun | None
) -> ChainGap:
    spec, log_start = spec_fingerprint(pipeline), log.beginning or before
    begun = view.published_chain_run(first.slice_id) if published is None else None
    is_warm_up = begun is not None and begun.is_chain_start
    of_other_spec = begun if is_warm_up else published
    is_other_spec = of_other_spec is not None
    nearest, staged = log_start, tuple[Request, ...]()
    if not is_other_spec:
        nearest = _nearest(slice_grid(pipeline), view, before=before, log_start=log_start, spec=spec)
        awaited = (request for request in view.awaited_requests() if not request.is_repair)  # a repair leaves no state
        staged = tuple(request for request in awaited if before.slice_id in request.runs)
    return ChainGap(
        pipeline=pipeline.name,
        source=pipeline.source,
        first=first,
        before=before,
        nearest=nearest,
        log_start=log_start,
        staged_by=staged,
        specs=None if of_other_spec is None else (of_other_spec.result.spec_fingerprint, spec),
        is_warm_up=is_warm_up,
        adoption=adoption(pipeline)
        if of_other_spec is not None and _is_same_document(pipeline, view, of_other_spec)
        else "",
    )


def _is_same_document(pipeline: Pipeline, view: LedgerView, run: StagedRun) -> bool:
    """Return whether a run has the spec of a pipeline but for the code of functions and of Hindcast."""
    request, head = view.requests.get(run.request_id), view.head
    is_head = head is not None and head.result.spec_fingerprint == run.result.spec_fingerprint
    if request is None or not request.spec_json or not is_head:  # the chain has been adopted since
        return False
    stored = pipeline_from_json(request.spec_json, source=pipeline.source, functions_dir=pipeline.functions_dir)
    return relevant_document(pipeline_document(stored)) == relevant_document(pipeline_document(pipeline))


def _nearest(grid: SliceGrid, view: LedgerView, *, before: Slice, log_start: Slice, spec: str) -> Slice:
    """Return the slice after the newest published run before a gap; the start of the log if its spec is another one."""
    nearest = before
    while nearest.start_ms > log_start.start_ms:
        earlier = previous_slice(grid, nearest)
        run = None if earlier is None else view.published_chain_run(earlier.slice_id)
        if earlier is None or run is not None:
            return nearest if run is None or run.result.spec_fingerprint == spec else log_start
        nearest = earlier
    return nearest


def _in_words_of_the_command_line(gap: ChainGap) -> str:
    first, start = gap.first.slice_id, gap.log_start.slice_id
    if gap.adoption:
        return (
            f"{gap.why}. Restore that version, or go on with the new one: {gap.adoption}, or a replay of the chain "
            f"from its first slice, or a new chain at {first} with --fresh"
        )
    if gap.is_warm_up:
        return f"{gap.why}. Begin the chain anew at {first} with --warm-up, or replay it from {start} with the new spec"
    if gap.specs is not None:
        again = (
            "Replay the chain from its first slice with the new spec, or begin" if gap.nearest != gap.first else "Begin"
        )
        return f"{gap.why}. {again} a new chain at {first} with --fresh, or with --warm-up if a restart point exists"
    staged = [
        f"Request {request.request_id} of {request.who} has {gap.before.slice_id} staged: publish it first "
        f"(hindcast publish {gap.pipeline} --request {request.request_id}). Otherwise replay"
        for request in gap.staged_by
    ]
    nearest = gap.nearest.slice_id
    where = f"the log begins at {start}" if gap.nearest == gap.log_start else f"slices before {nearest} are published"
    return (
        f"{gap.why}; {where}. {staged[-1] if staged else 'Replay'} from {nearest} (--from {nearest}), or begin a new "
        f"chain at {first} with --fresh: windows of that chain do not contain earlier records. If earlier records must "
        "never be replayed, set log.slice.first in the pipeline file"
    )


@dataclass(frozen=True, slots=True)
class RunsByState:
    """The runs of a ledger by the state that they left: (end of the slice, fingerprint) -> the newest such run.

    A run whose state is still stored comes before one whose state was removed.
    """

    runs: Mapping[tuple[int, str], StagedRun]
    view: LedgerView

    @classmethod
    def of(cls, view: LedgerView) -> "RunsByState":
        runs = sorted(view.runs.values(), key=lambda run: run.checkpoint_removal is None)
        return cls({(run.result.slice.end_ms, run.result.state_after): run for run in runs}, view)

    def before(self, run: StagedRun) -> StagedRun | None:
        """Return the run that left the state with which a run began; None at the beginning of a chain."""
        return self.runs.get((run.result.slice.start_ms, run.result.state_before))

    def warm_up_before(self, run: StagedRun) -> WarmUp | None:
        """Return the warm-up of a run's request if the run began with its time and without windows."""
        warm_up = self.view.requests[run.request_id].warm_up
        return warm_up if warm_up is not None and warm_up.fingerprint == run.result.state_before else None

    def checkpoint_before(self, run: StagedRun) -> CheckpointRef | None:
        """Return the checkpoint with which a run began; None at the beginning of a chain."""
        before = self.before(run)
        return None if before is None else before.checkpoint
