"""The pipelines that read what a pipeline has published, and which of their slices they have to bring up to it."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from jobs.durations import format_duration
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.pipeline.log_schema import read_columns
from jobs.pipeline.models.log import SliceGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.upstream import WINDOW_TIME
from jobs.pipeline.slices import slice_grid
from jobs.planning.chains import continues_chain, is_of_repair, run_before
from jobs.planning.change_sentences import earlier_in_upstream
from jobs.planning.changed_slices import ChangedSlice, changed_slices, in_words, named_spans, stretches_of
from jobs.planning.published_spec import on_published_spec, refuse_lost
from jobs.planning.request_context import RequestContext
from jobs.planning.suites import with_checks
from jobs.publishing.rules import describe_hold
from jobs.reading.published import published_runs
from jobs.reading.stored_tables import own_columns, spec_of
from jobs.reading.upstream_place import UpstreamPlace, reads_slices_of
from jobs.runs import Slice
from windowlib.errors import RequestError, SpecError
from windowlib.records.column_types import spell_type


def readers_of(pipelines: Sequence[Pipeline], name: str) -> tuple[Pipeline, ...]:
    """Return the pipelines that read a pipeline, directly or not; each comes after the one that it reads.

    Raises SpecError: pipelines read each other.
    """
    ordered: list[Pipeline] = []
    reached = [name]
    while reached:
        nearest = [pipeline for pipeline in pipelines if pipeline.log.pipeline in reached]
        again = next((reader for reader in nearest if reader in ordered or reader.name == name), None)
        if again is not None:
            raise SpecError(f"{again.source}: log.pipeline: {again.name} reads {again.log.pipeline}, which reads it")
        ordered += nearest
        reached = [pipeline.name for pipeline in nearest]
    return tuple(ordered)


def stopped_readers(readers: Sequence[Pipeline], lake: Lake, *, before: Pipeline, after: Pipeline) -> Iterator[str]:
    """Yield a sentence for each reader that cannot read the slices of a spec of its log.

    It names a key or an output that the spec does not have any more, or the spec cuts other slices.
    """
    for reader in readers:
        table, by = reader.log.table, after.log.slice
        if reader.log.pipeline == before.name and not reads_slices_of(reader, by):
            yield f"pipeline {reader.name} {_with_cut_of(reader, by)}"
        if reader.log.pipeline != before.name or not (lost := own_columns(before, table) - own_columns(after, table)):
            continue
        stored = {name: spell_type(node) for name, node in table_columns(lake.table(before.name, table)).items()}
        if named := sorted(read_columns(reader, {**stored, WINDOW_TIME: "timestamp"}) & lost):
            yield (
                f"pipeline {reader.name} names {', '.join(named)} of {before.name}, which {after.source} does not "
                f"have: it cannot read the slices of this adoption. Edit {reader.source} as well, and adopt it"
            )


def _with_cut_of(reader: Pipeline, by: SliceGrammar) -> str:
    """Return that a reader cannot read slices of another cut, and what a person can do."""
    own, theirs = (f"{format_duration(cut.every_ms)} ({cut.timezone})" for cut in (reader.log.slice, by))
    return (
        f"reads slices of {own}, and cannot read those of {theirs}. Set `log.slice` in its file, and run "
        f"`hindcast adopt {reader.name}`: its chain goes on with the first of them. A check holds it if windows are "
        "lost"
    )


def following(work: RequestContext) -> tuple[RequestContext, tuple[str, ...]]:
    """Return the context in which a pipeline follows the one that it reads, and warnings.

    It has the spec of the published chain. An edit of the pipeline file waits for `hindcast adopt`, as in the schedule.
    Raises RequestError: the published chain cannot be computed any more, or reads another log than the pipeline file;
    or it is held after a rollback.
    """
    view, upstream = work.ledger.view(), work.pipeline.log.pipeline
    if view.hold is not None:
        raise RequestError(describe_hold(view.hold))
    work, warnings = on_published_spec(work, view)
    refuse_lost(work, view)
    if work.pipeline.log.pipeline != upstream:
        raise RequestError(
            f"the published chain of pipeline {work.pipeline.name} does not read {upstream}: {warnings[0]}"
        )
    return with_checks(work), warnings


def slices_to_follow(work: RequestContext) -> tuple[tuple[Slice, ...], tuple[str, ...]]:
    """Return the published slices of the pipeline that `work.pipeline` reads, and warnings.

    They tell which slices are left out, that fewer windows are final because of a late repair, and that the chain began
    with a slice that is not the first one any more.

    They have no hole, and begin where the own chain goes on with its newest spec: slices of a former spec stay as they
    are. Their plan tells which are replayed. If the other pipeline has holes in what it publishes, they are between two
    of them: those with the newest own slice.

    Raises:
        LogError, SpecError: as for `UpstreamPlace.check`.
        RequestError: the other pipeline has published nothing there, or nothing after slices whose state was removed.
    """
    pipeline, upstream = work.pipeline, work.pipeline.log.pipeline
    assert upstream is not None, "the log is a table of a pipeline"
    own, grid = work.ledger.view(), slice_grid(pipeline)
    view = Ledger(work.lake.ledger(upstream), now_ms=work.ledger.now_ms).view()
    place = UpstreamPlace(lake=work.lake, pipeline=pipeline)
    place.check(view)
    theirs = place.slices(view)
    runs = [run for run in published_runs(own) if spec_of(own, run).log.slice.cut == pipeline.log.slice.cut]
    own_ms, changed = _starts_of_newest_spec(own), changed_slices(work, own)
    first_ms = max([start for start in (*own_ms[:1], grid.first_ms) if start is not None], default=None)
    inside = [change for change in changed if first_ms is None or change.slice.start_ms >= first_ms]
    if (after_ms := _end_of_removed_states(own, inside)) is not None:
        first_ms = after_ms
    chosen = [
        slice_
        for slice_ in theirs
        if (first_ms is None or slice_.start_ms >= first_ms)
        and (grid.last_ms is None or slice_.start_ms <= grid.last_ms)
    ]
    if not chosen and after_ms is not None:
        raise RequestError(_of_changes_outside(work, inside))
    if not chosen:
        raise RequestError(f"pipeline {upstream} has published no slice that pipeline {pipeline.name} could read")
    parts = stretches_of(chosen)
    newest_ms = own_ms[-1] if own_ms else chosen[0].start_ms
    followed = next((part for part in reversed(parts) if part[0].start_ms <= newest_ms), parts[0])
    left_out = [slice_ for part in parts if part is not followed for slice_ in part]
    warnings = (*_of_other_cut(pipeline, view), *_of_a_longer_wait(pipeline, view), *earlier_in_upstream(work, own))
    readable = {*theirs}
    if gone := [run.result.slice for run in runs if run.result.slice not in readable]:
        rolled_back = (
            f"pipeline {upstream} does not publish {named_spans(gone)} now. Readers of pipeline {pipeline.name} see "
            f"its rows of then: publish there first, or roll back the publication of pipeline {pipeline.name}"
        )
        warnings = (*warnings, rolled_back)
    beyond = readable.difference(followed)
    if outside := [change for change in changed if change.slice in beyond]:
        warnings = (*warnings, _of_changes_outside(work, outside))
    if not left_out:
        return tuple(followed), warnings
    warning = (
        f"pipeline {upstream} has a hole in what it publishes. Pipeline {pipeline.name} follows "
        f"{named_spans(followed)}, and not {named_spans(left_out)}: `hindcast run {pipeline.name} --from …` replays "
        "these; a chain after a hole begins with --fresh or --warm-up"
    )
    return tuple(followed), (*warnings, warning)


def _starts_of_newest_spec(view: LedgerView) -> list[int]:
    """Return when the newest published slices begin, back to the first one with the spec of the newest."""
    chain = [view.past_run(view.chain_run_id(run_id)).result for run_id in [*view.published.values()][::-1]]
    newest = takewhile(lambda result: result.spec_fingerprint == chain[0].spec_fingerprint, chain)
    return [result.slice.start_ms for result in newest][::-1]


def _end_of_removed_states(view: LedgerView, changed: Sequence[ChangedSlice]) -> int | None:
    """Return when the first slice begins whose state before is stored, after the first changed ones without that.

    A clean-up has removed it (`retention.checkpoints`). None if the first changed slice can be replayed.
    """

    def is_removed(change: ChangedSlice) -> bool:
        before, run = run_before(view, change.slice), view.chain_run(change.run.result.run_id)
        return before is not None and before.checkpoint_removal is not None and continues_chain(view, run.result)

    removed_ms = [change.slice.end_ms for change in takewhile(is_removed, changed)]
    chain = (view.past_run(view.chain_run_id(run_id)) for run_id in (view.published.values() if removed_ms else ()))
    stored_ms = (run.result.slice.end_ms for run in chain if run.checkpoint_removal is None)
    return min((end_ms for end_ms in stored_ms if end_ms >= removed_ms[-1]), default=None)


def _of_changes_outside(work: RequestContext, changed: Sequence[ChangedSlice]) -> str:
    """Return that published slices have changed, and that `follow` does not replay them."""
    return (
        f"{in_words(work, changed)}. They are of a former spec, behind a hole, or a clean-up has removed the state "
        "before them. So they are not followed: "
        f"`hindcast status {work.pipeline.name}` tells what becomes of them"
    )


def _of_other_cut(pipeline: Pipeline, view: LedgerView) -> tuple[str, ...]:
    """Return a warning if the other pipeline goes on with slices of another cut."""
    by = None if view.head is None else spec_of(view, view.head).log.slice
    if by is None or reads_slices_of(pipeline, by):
        return ()
    return (f"pipeline {pipeline.name} {_with_cut_of(pipeline, by)}",)


def _of_a_longer_wait(pipeline: Pipeline, view: LedgerView) -> tuple[str, ...]:
    """Return a warning if windows of the newest slice of the log become final later: its run waits longer for records.

    It is that of a late repair, or the first one of a spec with a greater allowed lateness.
    """
    if pipeline.log.panes != "final" or view.head is None:
        return ()
    newest = view.head.result.slice.slice_id
    waits_ms = [
        0 if (windows := spec_of(view, run).windows) is None else windows.allowed_lateness_ms
        for run in published_runs(view)[-2:]
    ]
    if is_of_repair(view, newest):
        why = "a late repair"
    elif waits_ms[-1] > waits_ms[0]:
        why = "a spec"
    else:
        return ()
    warning = (
        f"readers see {newest}, the newest slice of pipeline {pipeline.log.pipeline}, by {why} with a greater "
        "allowed lateness. Its last windows are not final yet, so readers of "
        f"{pipeline.name} do not see them until the next slice is published and followed"
    )
    return (warning,)
