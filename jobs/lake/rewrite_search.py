"""Finds the commits of an event log that removed or changed records, and that nobody has accepted. Reads no record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.lake.commit_slices import commit_time_ms, commit_times
from jobs.lake.event_log import files_of_slices, pin_log
from jobs.lake.file_origins import operation_of
from jobs.lake.known_log import KnownLog
from jobs.lake.log_cut import Cut
from jobs.lake.log_files import Entry, LogFiles
from jobs.lake.log_look import action_span
from jobs.lake.log_version import LogPlace
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.rewrites import Rewrite, RewrittenSlice, actions_digest, predicate_of
from jobs.lake.slice_instants import Span
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from windowlib.errors import LogError


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRewrites:
    """The commits of a table up to `version` that removed or changed records of slices, oldest first.

    A commit that a RESTORE has undone is not among them, and neither is one that a person has accepted.
    """

    uri: str
    table_id: str
    version: int
    rewrites: tuple[Rewrite, ...]


def spans_with_records(place: LogPlace, *, by: SliceGrammar, known: KnownLog) -> list[Span]:
    """Return spans of instants that have every slice of which the log has records, or had some that a commit removed.

    Raises:
        LogError: as for `pin_log` without slices.
    """
    pinned = pin_log(place, by=by, slices=(), known=known, may_be_changed=True)
    spans = [Span(at_ms, at_ms) for at_ms in pinned.data_ms]
    files = pinned.log_files
    if by.is_by_commits:
        return [*spans, *(Span(at_ms, at_ms) for at_ms in commit_times(files, pinned.version).values())]
    cut = Cut(uri=place.uri, by=by, slices=())
    for version in range(pinned.history.since, pinned.version + 1):
        for entry in files.entries(version):
            span = _removed_span(entry, cut, names=pinned.slice_names)
            spans += [] if span is None else [span]
    return spans


def _removed_span(entry: Entry, cut: Cut, *, names: Mapping[str, str]) -> Span | None:
    """Return the instants of the records that an action removes; None if it removes none, or does not tell it."""
    remove = entry.get("remove") or {}
    try:
        return action_span(remove, cut, names=names) if remove.get("dataChange", bool(remove)) else None
    except LogError:  # the value of its partition is no instant, so it was in no slice
        return None


def find_rewrites(place: LogPlace, *, by: SliceGrammar, slices: Sequence[Slice], known: KnownLog) -> FoundRewrites:
    """Return the commits that removed or changed records of some slices, which are ascending.

    Raises:
        LogError: as for `pin_log`, but not for slices that lost records or files.
    """
    pinned = pin_log(place, by=by, slices=slices, known=known, may_be_changed=True)
    touched: dict[int, set[str]] = {}
    for group, history in pinned.history.groups.items():
        slice_id = pinned.slice_of(group)
        for version, _operation in history.removals if slice_id is not None else ():
            touched.setdefault(version, set()).add(slice_id or "")
    files = pinned.log_files
    by_id = {slice_.slice_id: slice_ for slice_ in slices}
    rewrites = [
        _rewrite(place, by, files, version=version, slices=[by_id[name] for name in sorted(names)])
        for version, names in sorted(touched.items())
    ]
    return FoundRewrites(
        uri=place.uri,
        table_id=pinned.table_id,
        version=pinned.version,
        rewrites=tuple(rewrites),
    )


def _rewrite(place: LogPlace, by: SliceGrammar, files: LogFiles, *, version: int, slices: Sequence[Slice]) -> Rewrite:
    entries = files.entries(version)
    before, after = (_files_at(place, number, by=by, slices=slices) for number in (version - 1, version))
    earlier = {(file.path, file.vector) for file in before or ()}
    new = [file for file in after or () if (file.path, file.vector) not in earlier]
    return Rewrite(
        version=version,
        operation=operation_of(entries),
        predicate=predicate_of(entries),
        at_ms=commit_time_ms(entries),
        actions=actions_digest(entries),
        slices={slice_.slice_id: _rewritten(slice_.slice_id, before, after) for slice_ in slices},
        vectors={file.path: file.vector for file in new if file.deleted is not None},
    )


def _files_at(
    place: LogPlace, version: int, *, by: SliceGrammar, slices: Sequence[Slice]
) -> tuple[PinnedFile, ...] | None:
    """Return the files of slices at a version; None if log retention has removed that version, or a file."""
    try:
        return files_of_slices(place.open(version), by=by, slices=slices)
    except LogError:
        return None


def _rewritten(
    slice_id: str, before: Sequence[PinnedFile] | None, after: Sequence[PinnedFile] | None
) -> RewrittenSlice:
    """Return what a commit did to a slice, from the files of both versions. A changed deletion vector is a new file."""
    then, now = ([file for file in files or () if file.slice_id == slice_id] for files in (before, after))
    old, new = ({(file.path, file.vector) for file in files} for files in (then, now))
    is_known = before is not None and after is not None
    return RewrittenSlice(
        before=None if before is None else sum(file.records or 0 for file in then),
        after=None if after is None else sum(file.records or 0 for file in now),
        removed_files=tuple(sorted(path for path, _ in old - new)) if is_known else (),
        added_files=tuple(sorted(path for path, _ in new - old)) if is_known else (),
    )
