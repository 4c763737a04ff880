"""What has changed in published slices, as sentences for people: commands, logs, notes and pages show the same ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.folding import first_lines
from jobs.lake.log_match import Match
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.planning.assessing import WARM_UP, Assessed, Restating, restate_rule
from jobs.planning.chains import begins_chain
from jobs.planning.changed_slices import in_words, named_spans, stretches_of
from jobs.planning.published_spec import chain_ends, on_published_spec
from jobs.planning.request_context import SHOWN_ID, RequestContext, not_in_upstream
from jobs.planning.restating import restating
from jobs.runs import EMPTY_STATE, Slice
from windowlib.errors import LedgerError, LogError, SpecError, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldChanges:
    """The changed slices of a pipeline as people see them.

    `slices` are the ids of the changed slices, oldest first; None if the log could not be compared. `sentences` tell
    what becomes of them, or why it could not be compared. A person should look at `waits` of them: 0 with `restate:
    {mode: off}`. `request_id` is the proposal, if there is one.
    """

    slices: tuple[str, ...] | None
    sentences: tuple[str, ...]
    waits: int = 0
    request_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        slices = None if self.slices is None else list(self.slices)
        return {"slices": slices, "proposal": self.request_id, "sentences": list(self.sentences)}


def told_changes(work: RequestContext, view: LedgerView) -> ToldChanges:
    """Return the changed slices of a pipeline. An unreadable log is told; it raises nothing, and writes nothing."""
    work, edits = on_published_spec(work, view)
    return told(work, lambda: restating(work, view), is_edited=bool(edits))


def told(work: RequestContext, find: Callable[[], Restating], *, is_edited: bool) -> ToldChanges:
    """Return what `find` finds, as people see it. If the log cannot be compared, the result tells why.

    `is_edited`: the pipeline file or the code has another spec than the published chain, so `hindcast run` is refused.
    """
    try:
        restating, earlier = find(), earlier_in_upstream(work, work.ledger.view())
    except (LogError, SpecError, LedgerError, StoreError) as error:  # the log may be the table of another pipeline
        return ToldChanges(slices=None, sentences=(f"the published slices were not compared with the log: {error}",))
    is_off = restate_rule(work).mode == "off"
    return ToldChanges(
        slices=tuple(change.slice.slice_id for change in restating.changed),
        sentences=(*sentences(work, restating, is_edited=is_edited), *earlier),
        waits=0 if is_off else sum(not assessed.is_settled for assessed in restating.assessed),
        request_id=None if restating.proposal is None else restating.proposal.request_id,
    )


def earlier_in_upstream(work: RequestContext, view: LedgerView) -> tuple[str, ...]:
    """Return a sentence if a chain began with the first records of another pipeline, which publishes earlier ones now.

    A chain that a person began with `--fresh` or `--warm-up` has none.
    Raises LogError, StoreError, LedgerError: the log cannot be read.
    """
    upstream, name, grid = work.pipeline.log.pipeline, work.pipeline.name, slice_grid(work.pipeline)
    first = view.published_chain_run(next(iter(view.published), ""))
    if upstream is None or first is None or first.result.state_before != EMPTY_STATE:
        return ()
    from jobs.reading.upstream_place import UpstreamPlace  # few pipelines need it

    request, begin = view.requests.get(first.request_id), first.result.slice
    theirs = Ledger(work.lake.ledger(upstream), now_ms=work.ledger.now_ms).view()
    earlier = [
        slice_
        for slice_ in UpstreamPlace(lake=work.lake, pipeline=work.pipeline).slices(theirs)
        if slice_.end_ms <= begin.start_ms and (grid.first_ms is None or slice_.start_ms >= grid.first_ms)
    ]
    if not earlier or earlier[-1].end_ms != begin.start_ms or (request is not None and request.is_fresh):
        return ()
    first_data = work.log_state(view, ()).first_data
    if first_data is None or first_data.start_ms >= begin.start_ms:
        return ()
    before = stretches_of(earlier)[-1]
    to = show_ms(grid, chain_ends(view)[begin.slice_id].end_ms)
    sentence = (
        f"pipeline {upstream} publishes {named_spans(before)} now, before {begin.slice_id}, with which the chain of "
        f"pipeline {name} began. So its first windows may lack records. To replay them: hindcast run {name} "
        f"--from {before[0].slice_id} --to {to}"
    )
    return (sentence,)


def sentences(work: RequestContext, restating: Restating, *, is_edited: bool = False) -> tuple[str, ...]:
    """Return what has changed in one sentence, and one for each group of slices: its request, or why there is none.

    Slices with the same request or reason share a sentence, so that a thousand changed slices have few sentences.
    """
    if not restating.assessed:
        return ()
    groups: dict[tuple[str, str, str, bool], list[Assessed]] = {}
    for assessed in restating.assessed:
        request_id = "" if assessed.request is None else assessed.request.request_id
        fate = request_id, assessed.why_not, assessed.until.slice_id, assessed.is_replayable
        groups.setdefault(fate, []).append(assessed)
    fates = [_fate(work, group, is_edited=is_edited) for group in groups.values()]
    return in_words(work, restating.changed), *first_lines(fates)


def _fate(work: RequestContext, group: Sequence[Assessed], *, is_edited: bool) -> str:
    first = group[0]
    which = named_spans([assessed.change.slice for assessed in group])
    if first.request is not None:
        what = "proposed as" if first.request.is_proposed else "replayed by"
        return f"{which}: {what} request {first.request.request_id[:SHOWN_ID]}"
    is_scheduled = work.pipeline.schedule is not None
    if not first.why_not and is_scheduled:
        return f"{which}: the next scheduled run proposes to restate {'it' if len(group) == 1 else 'them'}"
    why = f"{which}: not proposed, because {first.why_not or 'the pipeline has no schedule'}"
    if not first.is_replayable:
        return why
    if is_edited:
        return f"{why}. `hindcast run` uses the pipeline file, which has another spec: adopt it first, or restore it"
    return _by_a_person(work, group, why)


def _by_a_person(work: RequestContext, group: Sequence[Assessed], why: str) -> str:
    """Return why slices are not proposed, and the command by which a person replays them."""
    first, name = group[0], work.pipeline.name
    to = show_ms(slice_grid(work.pipeline), first.until.end_ms)
    of_range = f"{name} --from {first.change.slice.slice_id} --to {to}{first.option}"
    verify = f"`hindcast plan {of_range} --verify` compares the records"
    if first.change.match is Match.UNKNOWN:
        return f"{why}: {verify}"
    if first.change.other_log and not first.is_declined:
        why = f"{why}: {verify}"
    if first.option == WARM_UP and not work.pipeline.may_have_restart_point:
        return f"{why}. Only a new chain from the log's first slice replays it: hindcast run {name} --from … --fresh"
    how = f"{why}. To restate {'it' if len(group) == 1 else 'them'}: hindcast run {of_range}"
    if awaited := _awaited(work, first.until):
        how += f"; if the state after {first.until.slice_id} changes, pipeline {work.pipeline.log.pipeline} has to "
        how += f"publish {awaited} first"
    return how


def _awaited(work: RequestContext, until: Slice) -> str:
    """Return the slice that continues the chain after another one, and that the upstream does not publish; or empty."""
    view = work.ledger.view()
    after = next((name for name in not_in_upstream(work, view) if view.slices[name].start_ms == until.end_ms), "")
    run = view.published_chain_run(after)
    return "" if run is None or begins_chain(view, run) else after
