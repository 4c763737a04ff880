"""Finds the commits of an event log that removed or changed records, and that nobody has accepted. Reads no record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.lake.commit_slices import commit_time_ms, commit_times
from jobs.lake.event_log import files_of_slices, pin_log
from jobs.lake.file_origins import operation_of
from jobs.lake.known_log import KnownLog
from jobs.lake.log_files import Entry, LogFiles
from jobs.lake.log_version import LogPlace
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.rewrites import Rewrite, RewrittenSlice, actions_digest, predicate_of
from jobs.lake.slice_instants import Span
from jobs.lake.slicing import EVER
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


def spans_of_removals(place: LogPlace, *, by: SliceGrammar, known: KnownLog) -> list[Span]:
    """Return the instants between which each file had its records that a commit removed or changed.

    A span that nothing tells is that of all records that are known.
    Raises LogError: as for `pin_log` without slices.
    """
    pinned = pin_log(place, by=by, slices=(), known=known, may_be_changed=True)
    files = pinned.log_files
    spans = [
        pinned.slicing.span(str(action["path"]), action, version=version)
        for version in range(pinned.history.since, pinned.version + 1)
        for action in map(_taken, files.entries(version))
        if action
    ]
    times = commit_times(files, pinned.version).values() if by.is_by_commits else ()
    told_ms = {*pinned.data_ms, *times, *(at_ms for span in spans for at_ms in span or ())} - {*EVER}
    first_ms, last_ms = min(told_ms, default=0), max(told_ms, default=-1)
    return [Span(max(span.first_ms, first_ms), min(span.last_ms, last_ms)) for span in spans if span is not None]


def _taken(entry: Entry) -> Mapping[str, Any]:
    """Return the action on a file of which records are removed; an empty one if it removes none."""
    action = entry.get("remove") or entry.get("add") or {}
    is_removal = "remove" in entry or action.get("deletionVector") is not None
    return action if is_removal and action.get("dataChange", True) else {}


def find_rewrites(place: LogPlace, *, by: SliceGrammar, slices: Sequence[Slice], known: KnownLog) -> FoundRewrites:
    """Return the commits that removed or changed records of some slices, which are ascending.

    Raises LogError: as for `pin_log`, but not for slices that lost records or files.
    """
    pinned = pin_log(place, by=by, slices=slices, known=known, may_be_changed=True)
    touched: dict[int, set[str]] = {}
    for group, history in pinned.history.groups.items():
        slice_id = pinned.slicing.slice_of(group)
        for version, _operation in history.removals if slice_id is not None else ():
            touched.setdefault(version, set()).add(slice_id or "")
    files = pinned.log_files
    by_id = {slice_.slice_id: slice_ for slice_ in slices}
    rewrites = [
        _rewrite(place, by, files, version=version, slices=[by_id[name] for name in sorted(names)])
        for version, names in sorted(touched.items())
    ]
    return FoundRewrites(uri=place.uri, table_id=pinned.table_id, version=pinned.version, rewrites=tuple(rewrites))


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
