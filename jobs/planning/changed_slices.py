"""Which published slices have other records in the log than their runs read. Told from the Delta log alone.

A look starts from the newest look that the ledger has. It reads the commits since, and lists the files of the table
only if one of these commits touches a published slice. `jobs.planning.restating` writes looks into the ledger.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from operator import itemgetter
from threading import Lock
from typing import Final

from cachetools import LRUCache, cached

from jobs.folding import first_lines, fold, spans
from jobs.lake.log_cut import Cut
from jobs.lake.log_look import LogSlices, log_slices, touched_since
from jobs.lake.log_match import Match, match_input, other_log
from jobs.lake.log_version import LogTip, commit_digest
from jobs.lake.slicing import overlapped
from jobs.ledger.acceptances import AcceptedRewrite, told_together
from jobs.ledger.looks import Look, SeenInput
from jobs.ledger.run_projection import briefs_of
from jobs.ledger.run_slots import RunBrief
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.look_back import LookBack, look_back
from jobs.pipeline.models.log import LogGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_grid
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext, not_in_upstream
from jobs.reading.log_places import log_place
from jobs.reading.stored_tables import spec_of
from jobs.runs import LogCoordinates, Slice, told_records
from windowlib.errors import LogError

WRITE_AFTER: Final = 20
"""A look that found nothing new is written into the ledger after so many commits."""
_MOST_KEPT: Final = 64
_TABLE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""The id of a Delta or Iceberg table. What follows it is the name of a history, or tells that only inserts count."""
COMMIT: Final = re.compile(r"commit (\d+)")
"""How a commit that removed records is named."""
_MOST_COMMITS: Final = 3
"""A sentence names at most so many accepted commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSlice:
    """A slice that readers see, and whose input in the log is another one than its run has read.

    `removed` names the commit that removed or changed records of the slice, so that it cannot be replayed; else empty.
    `accepted` are the commits that did so since the run, and that a person has accepted.
    """

    run: StagedRun
    match: Match
    now: LogCoordinates
    removed: str = ""
    accepted: tuple[AcceptedRewrite, ...] = ()

    @property
    def slice(self) -> Slice:
        return self.run.result.slice

    @property
    def other_log(self) -> str:
        """Why the log is another one than those in which the run's records were seen; empty if it is not."""
        return other_log(self.run.sightings, self.now)

    @property
    def records_then(self) -> int:
        return self.run.result.counts.read


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLook:
    """A look at the log. `look` is None if nothing is published. `is_due`: it should be written into the ledger."""

    changed: tuple[ChangedSlice, ...] = ()
    look: Look | None = None
    is_due: bool = False


def changed_slices(work: RequestContext, view: LedgerView) -> tuple[ChangedSlice, ...]:
    """Return the published slices whose input is not the one that their run has read, oldest first.

    Raises LogError: the log is missing, or cannot be read.
    """
    return look_at_log(work, view).changed


def look_at_log(work: RequestContext, view: LedgerView) -> LogLook:
    """Compare what the published runs read with the newest version of the log; raises as `changed_slices` does."""
    return _look_for(work, view, view.published.values())


def changed_runs(work: RequestContext, view: LedgerView, run_ids: Collection[str]) -> tuple[ChangedSlice, ...]:
    """Return the slices of some runs whose input is not the one that the run has read; raises as `changed_slices`."""
    return _look_for(work, view, run_ids).changed


def _look_for(work: RequestContext, view: LedgerView, run_ids: Collection[str]) -> LogLook:
    briefs = briefs_of(view)
    seen = {run_id: briefs[run_id] for run_id in run_ids if run_id in briefs}
    if work.pipeline.log.pipeline is not None:  # runs of other slices or records of it stay as they are
        read = _read_by(work.pipeline)
        seen = {run_id: brief for run_id, brief in seen.items() if _read_by(spec_of(view, view.run(run_id))) == read}
    if not seen:
        return LogLook()
    tip = log_place(work.lake, work.pipeline).tip()
    return LogLook() if tip is None else _looked(work, view, tip, seen=seen)


def _read_by(pipeline: Pipeline) -> tuple[object, ...]:
    """Return which records of another pipeline a spec reads, and how it cuts them."""
    log = pipeline.log
    return log.slice.cut, log.pipeline, log.table, log.panes


def _all_that_counts(work: RequestContext, view: LedgerView, tip: LogTip, *, seen: Mapping[str, RunBrief]) -> object:
    """Return what a look follows from."""
    seq = None if view.look is None else view.look.seq
    sightings = sum(
        len(_as_seen(view, run_id).sightings) if run_id in view.repairs else len(brief.sightings)
        for run_id, brief in seen.items()
    )
    log = work.pipeline.log
    place = repr(log_place(work.lake, work.pipeline)), log.slice, repr(log.distinct)
    return place, tip.version, tip.commit, seq, tuple(seen), sightings, len(view.accepted)


@cached(LRUCache(_MOST_KEPT), key=_all_that_counts, lock=Lock())
def _looked(work: RequestContext, view: LedgerView, tip: LogTip, *, seen: Mapping[str, RunBrief]) -> LogLook:
    """Return a look at the log for runs that are not of condemned attempts (run id -> brief): published or staged."""
    runs = {brief.slice_id: run_id for run_id, brief in seen.items()}
    base = view.look if view.look is not None and _is_of(view.look, tip) else None
    newly = frozenset() if base is None else _published_after(view, base.seq)
    newly |= {slice_id for slice_id, run_id in runs.items() if view.published.get(slice_id) != run_id}
    touched = None if base is None else _touched(work, tip, base, view=view, published=runs)
    fresh = [view.runs[run_id] for slice_id, run_id in runs.items() if slice_id in newly]
    if base is None or touched is None or _is_restored(tip, base, runs=fresh):
        return _with(work, view, tip, runs=runs, suspects=[*map(view.slices.__getitem__, runs)], kept={})
    is_moved = _is_moved(work, base)
    moved = _with_other_reach(work, view, {name: run for name, run in runs.items() if is_moved or name in newly})
    moved |= base.changed.keys() if is_moved else set()
    suspects: list[Slice] = []
    kept: dict[str, SeenInput] = {}
    for slice_id, run_id in runs.items():
        if slice_id in newly:
            equal = (sighting.log for sighting in view.runs[run_id].sightings if sighting.is_equal)
            own = (log.version for log in equal if log.table_id == base.table_id)
            # Without commits, nothing tells what happened between the run and the look.
            is_suspect = (
                not tip.files.commits
                or not base.version <= (read := max(own, default=-1))
                or touched.get(slice_id, -1) > read
            )
        else:
            is_suspect = slice_id in touched or _is_forgotten(tip, base.changed.get(slice_id))
        if is_suspect or slice_id in moved:
            suspects.append(view.slices[slice_id])
        elif slice_id in base.changed and slice_id not in newly:
            kept[slice_id] = base.changed[slice_id]
    return _with(work, view, tip, runs=runs, suspects=suspects, kept=kept, base=base)


def _is_forgotten(tip: LogTip, seen: SeenInput | None) -> bool:
    """Return whether log retention has removed a commit that removed records of a slice: nobody can accept it now."""
    commit = None if seen is None else COMMIT.match(seen.removed)
    return commit is not None and int(commit[1]) not in tip.files.commits


def _is_moved(work: RequestContext, base: Look) -> bool:
    """Return whether `log.slice.first` may have been edited since a look, and `log.distinct` depends on it."""
    return work.pipeline.log.distinct is not None and base.first != (work.pipeline.log.slice.first or "")


def _with_other_reach(work: RequestContext, view: LedgerView, runs: Mapping[str, str]) -> frozenset[str]:
    """Return the slices whose runs have read other slices before for `log.distinct`: `log.slice.first` was edited."""
    log, first_ms = work.pipeline.log, slice_grid(work.pipeline).first_ms
    if log.distinct is None:
        return frozenset()
    moved = []
    for slice_ in map(view.slices.__getitem__, runs):
        spec = spec_of(view, view.runs[runs[slice_.slice_id]])
        is_left_out = first_ms is not None and slice_.start_ms < first_ms
        if spec.log.slice.first != log.slice.first and not is_left_out:
            then, now = (look_back(pipeline, [slice_]) for pipeline in (spec, work.pipeline))
            moved += [slice_.slice_id] if then.outside != now.outside else []
    return frozenset(moved)


def _is_of(look: Look, tip: LogTip) -> bool:
    """Return whether a look is of the same log: its history has that name, and its last commit is still there."""
    table = _TABLE_ID.match(look.table_id)
    if tip.history != look.table_id[table.end() :] if table else not look.table_id.endswith(tip.history):
        return False
    if look.version == tip.version:
        return look.commit == tip.commit
    return look.version < tip.version and look.commit == commit_digest(tip.files, look.version)


def _is_restored(tip: LogTip, base: Look, *, runs: Sequence[StagedRun]) -> bool:
    """Return whether the newest commit that runs since a look have read is gone, or was written after the run."""
    own = [(seen.log, run.at_ms) for run in runs for seen in run.sightings if seen.is_equal]
    reads = [(log.version, -at_ms) for log, at_ms in own if log.table_id == base.table_id and not log.is_listed]
    if not reads:
        return False
    version, before_ms = max(reads)
    path = tip.files.commits.get(version)
    written_ns = None if path is None else tip.files.system.get_file_info(path).mtime_ns
    return version > tip.version or (written_ns is not None and written_ns > -before_ms * 1_000_000)


def _touched(
    work: RequestContext, tip: LogTip, base: Look, *, view: LedgerView, published: Mapping[str, str]
) -> Mapping[str, int] | None:
    """Return published slice -> the newest commit since a look that touched what its run reads; None: all may be.

    `published` maps a slice to its run. Commits that were accepted since count as well: the look may name them.
    """
    uri, by = tip.files.uri, work.pipeline.log.slice
    touched = touched_since(tip, base.version, Cut(uri=uri, by=by, slices=()), names=base.names)
    if touched is None:
        return None
    new = (entry.rewrite for entry in view.accepted if entry.seq > base.seq)
    accepted = sorted(new, key=lambda rewrite: rewrite.version)
    if not touched and not accepted:
        return {}
    newest = dict[str, int]()
    for back in _look_backs(work, view, [view.runs[run_id] for run_id in published.values()]):
        cut = Cut(uri=uri, by=by, slices=back.every)
        commits: dict[str, int] = {name: rewrite.version for rewrite in accepted for name in rewrite.slices}
        for span, commit in touched.items():
            for slice_ in overlapped(cut, span):
                commits[slice_.slice_id] = max(commit, commits.get(slice_.slice_id, -1))
        every = [commits.get(slice_.slice_id, -1) for slice_ in back.every]
        before = {slice_.slice_id: back.before(slice_.slice_id) for slice_ in back.slices}
        newest |= {name: max([*every[read.start : read.stop], commits.get(name, -1)]) for name, read in before.items()}
    return {name: commit for name, commit in newest.items() if commit >= 0}


def _look_backs(work: RequestContext, view: LedgerView, runs: Sequence[StagedRun]) -> list[LookBack]:
    """Return the slices of runs, by spec: those of a former one may have read other slices before."""
    of_spec: dict[str, list[StagedRun]] = {}
    for run in runs:
        of_spec.setdefault(run.result.spec_fingerprint, []).append(run)
    return [
        look_back(
            work.pipeline.model_copy(update={"log": _as_spec_reads(work, spec_of(view, own[0]))}),
            [view.slices[run.result.slice.slice_id] for run in own],
        )
        for own in of_spec.values()
    ]


def _published_after(view: LedgerView, seq: int) -> frozenset[str]:
    """Return the slices of publications after a version of the ledger."""
    newer = takewhile(lambda past: past.seq > seq, reversed(view.publications))
    return frozenset(slice_id for past in newer for slice_id in past.changes)


def _with(
    work: RequestContext,
    view: LedgerView,
    tip: LogTip,
    *,
    runs: Mapping[str, str],
    suspects: Sequence[Slice],
    kept: Mapping[str, SeenInput],
    base: Look | None = None,
) -> LogLook:
    """Return the look with the suspects as the log has them now, and the other changed slices as they were found."""
    seen, version, table_id = dict(kept), tip.version, "" if base is None else base.table_id
    commit, names = tip.commit, {} if base is None else base.names
    if suspects:
        log_now = _read_now(work, view, suspects)
        version, table_id, names = log_now.version, log_now.table_id, log_now.names
        commit = tip.commit if version == tip.version and _is_unreplaced(tip) else ""
        seen |= _seen(log_now)
        differing = [view.runs[runs[name]] for name in log_now.coordinates if _changed(view, runs[name], seen[name])]
        seen |= _as_read(work, view, differing)
    changed = [_changed(view, run_id, seen[slice_id]) for slice_id, run_id in runs.items() if slice_id in seen]
    found_changed = tuple(change for change in changed if change is not None)
    look = Look(
        table_id=table_id,
        version=version,
        commit=commit,
        first=work.pipeline.log.slice.first or "",
        names=names,
        changed={change.slice.slice_id: SeenInput(log=change.now, removed=change.removed) for change in found_changed},
    )
    is_new = base is None or bool(suspects) or version - base.version >= WRITE_AFTER or _is_moved(work, base)
    return LogLook(changed=found_changed, look=look, is_due=is_new and bool(commit))


def _is_unreplaced(tip: LogTip) -> bool:
    """Return whether the newest commit is still the one that was seen. The table may have been created again since."""
    return not tip.files.commits or commit_digest(tip.files, tip.version) == tip.commit


def _read_now(work: RequestContext, view: LedgerView, slices: Sequence[Slice]) -> LogSlices:
    back, by = look_back(work.pipeline, slices), work.pipeline.log.slice
    return log_slices(log_place(work.lake, work.pipeline), by=by, back=back, known=known_log(view, back.every))


def _seen(log_now: LogSlices) -> dict[str, SeenInput]:
    coordinates = log_now.coordinates.items()
    return {name: SeenInput(log=log, removed=log_now.removed.get(name, "")) for name, log in coordinates}


def _as_read(work: RequestContext, view: LedgerView, runs: Sequence[StagedRun]) -> dict[str, SeenInput]:
    """Return what the log has for the slices of runs of a former spec that has other slices or `log.distinct`.

    The published chain goes on with the spec of `work`. So the files that decide about such a slice are others.
    """
    log, seen = work.pipeline.log, dict[str, SeenInput]()
    logs = [_as_spec_reads(work, spec_of(view, run)) for run in runs]
    for reading, group in groupby(zip(logs, runs, strict=True), key=itemgetter(0)):
        if reading != log:
            own_work = replace(work, pipeline=work.pipeline.model_copy(update={"log": reading}))
            with suppress(LogError):  # a log that cannot be cut so any more, such as another table: it has changed
                seen |= _seen(_read_now(own_work, view, [run.result.slice for _, run in group]))
    return seen


def _as_spec_reads(work: RequestContext, spec: Pipeline) -> LogGrammar:
    """Return the log with the slices and `log.distinct` of a former spec, and the bounds of `work`."""
    log = work.pipeline.log
    bounds = {"first": log.slice.first, "last": log.slice.last}
    own = {"slice": spec.log.slice.model_copy(update=bounds), "distinct": spec.log.distinct}
    return log.model_copy(update=own)


def _changed(view: LedgerView, run_id: str, seen: SeenInput) -> ChangedSlice | None:
    run = _as_seen(view, run_id)
    match = match_input(run.sightings, seen.log)
    if match is Match.SAME and not seen.removed:
        return None
    accepted = () if seen.removed else view.rewrites_since(run)
    return ChangedSlice(run=run, match=match, now=seen.log, removed=seen.removed, accepted=accepted)


def _as_seen(view: LedgerView, run_id: str) -> StagedRun:
    """Return a run with all its sightings. A repair also has those of the run in whose place readers see it.

    Both have read the same records, and only the run of the chain is replayed, and seen, again.
    """
    run, chain = view.runs[run_id], view.runs.get(view.chain_run_id(run_id))
    if chain is None or chain is run or chain.result.input_fingerprint != run.result.input_fingerprint:
        return run
    return replace(run, sightings=tuple(sorted((*run.sightings, *chain.sightings), key=lambda seen: seen.seq)))


def stretches_of(slices: Sequence[Slice]) -> list[Sequence[Slice]]:
    """Return the stretches of neighbouring slices, without a hole in any of them."""
    stretches = fold(slices, lambda _: None, at_least=1, follows=lambda a, b: a.end_ms == b.start_ms)
    return [stretch.items for stretch in stretches]


def named_spans(slices: Sequence[Slice]) -> str:
    """Return the ends of each stretch of neighbouring slices: `2026-11-11 … 2026-11-12, 2026-11-14`."""
    return spans([[slice_.slice_id for slice_ in stretch] for stretch in stretches_of(slices)])


def in_words(work: RequestContext, changed: Sequence[ChangedSlice], *, which: str = "published") -> str:
    """Return how many slices have changed, which, and their records: `2 published days changed: 2026-11-11 … `.

    The slices that a replay would publish without a record are named as well, and so are those that the pipeline whose
    table is the log does not publish now, and the first accepted commits that removed or changed records.
    """
    noun = "day" if slice_grid(work.pipeline).is_daily else "slice"
    named = named_spans([change.slice for change in changed])
    then, now = sum(change.records_then for change in changed), told_records([change.now for change in changed])
    words = f"{counted(len(changed), f'{which} {noun}')} changed: {named}, {counted(then, 'record')} then, {now} now"
    empty = [
        change.slice
        for change in changed
        if change.records_then and not (change.now.records or change.removed or change.now.has_unknown_records)
    ]
    names = [slice_.slice_id for slice_ in empty]
    absent = not_in_upstream(work, work.ledger.view(), staged=names) if empty else frozenset()
    if emptied := [slice_ for slice_ in empty if slice_.slice_id not in absent]:
        words += f"; a replay publishes {counted(len(emptied), noun)} without a record: {named_spans(emptied)}"
    if unpublished := [slice_ for slice_ in empty if slice_.slice_id in absent]:
        which = f"{counted(len(unpublished), noun)} now: {named_spans(unpublished)}"
        words += f"; pipeline {work.pipeline.log.pipeline} does not publish {which}"
    accepted = told_together((change.slice.slice_id, change.accepted) for change in changed)
    return "; ".join([words, *first_lines(accepted, _MOST_COMMITS)])
