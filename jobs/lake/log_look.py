"""Looks at an event log without reading a record: its newest version, which slices new commits touch, what they have.

A look reads the commits since an earlier look only. It lists the files of the table only for slices that were touched.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jobs.lake.commit_slices import commit_times
from jobs.lake.damage import log_errors
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.file_origins import CLONE, RESTORE, operation_of
from jobs.lake.known_log import KnownLog
from jobs.lake.log_cut import Cut, slice_value
from jobs.lake.log_version import LogPlace, LogTip
from jobs.lake.slice_instants import Span, statistics_span
from jobs.pipeline.look_back import LookBack
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import LogCoordinates

MOST_COMMITS: Final = 200
"""If more commits are new, the look lists the files of the table, which is cheaper then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlices:
    """What the log has for some slices at a version, as far as it is known.

    `names` maps each slice column to its name in the commits. `removed` names the commit that removed records of a
    slice.
    """

    table_id: str
    version: int
    names: Mapping[str, str]
    coordinates: Mapping[str, LogCoordinates]
    removed: Mapping[str, str]


def touched_since(tip: LogTip, version: int, cut: Cut, *, names: Mapping[str, str]) -> Mapping[Span, int] | None:
    """Return span of slices -> the newest commit after `version` that added or removed records in it.

    `names` are those of the slice columns in the commits after `version`, as `LogSlices.names`. None if the spans
    cannot be told from these commits: `names` lacks a column, one commit is gone, changes the table itself, or does not
    tell the slices of a file; or there are more than MOST_COMMITS.
    Raises LogError: a commit cannot be read, or has a value that is no instant.
    """
    new = range(version + 1, tip.version + 1)
    if len(new) > MOST_COMMITS or not tip.files.commits.keys() >= {*new} or not names.keys() >= {*cut.by.columns}:
        return None
    touched: dict[Span, int] = {}
    times = commit_times(tip.files, tip.version) if cut.by.is_by_commits and new else {}
    for commit in new:
        with log_errors(tip.files.uri, f"reading commit {commit}"):
            entries = tip.files.entries(commit)
        for entry in entries:
            if "metaData" in entry or "protocol" in entry:
                return None
            action = entry.get("add") or entry.get("remove")
            if action is None or not action.get("dataChange", True):
                continue
            if cut.by.is_by_commits:
                is_append = "add" in entry and operation_of(entries) not in {CLONE, RESTORE}
                span = Span(times[commit], times[commit]) if is_append else None
            else:
                span = action_span(action, cut, names=names)
            if span is None:
                return None
            touched[span] = commit
    return touched


def action_span(action: Mapping[str, Any], cut: Cut, *, names: Mapping[str, str]) -> Span | None:
    """Return the instants between which the slices of a file begin; None if the action does not tell it.

    `names` are those of the slice columns in the action.
    """
    columns, values = [names[column] for column in cut.by.columns], action.get("partitionValues") or {}
    if not all(name in values for name in columns):
        return statistics_span(action.get("stats"), columns[0], cut.by.zone) if len(columns) == 1 else None
    value = slice_value(values, columns)
    return None if value is None else Span(cut.instant_ms(value), cut.instant_ms(value))


def log_slices(place: LogPlace, *, by: SliceGrammar, back: LookBack, known: KnownLog) -> LogSlices:
    """Return what the newest version of a log has for some slices, which are ascending.

    A commit that removed records of a slice before, in which `log.distinct` looks, counts for the slice as well.
    Raises LogError: as for `pin_log`, but not for slices that lost records or files.
    """
    pinned = pin_log(place, by=by, slices=back, known=known, may_be_changed=True)
    ids = [slice_.slice_id for slice_ in back.slices if slice_.slice_id not in pinned.unknown]
    return LogSlices(
        table_id=pinned.table_id,
        version=pinned.version,
        names={name: pinned.table.physical[name] for name in by.columns},
        coordinates={slice_id: pinned.coordinates(slice_id) for slice_id in ids},
        removed=_removed(pinned.whole, back, known),
    )


def _removed(pinned: PinnedLog, back: LookBack, known: KnownLog) -> dict[str, str]:
    """Return slice -> the commit that removed or changed records of it, or the file that marks some as deleted."""
    accepted = known.accepted_of(pinned.table_id).values()
    why = {
        file.slice_id: f"a deletion vector of {file.path}"
        for file in pinned.files
        if file.deleted is not None and not any(rewrite.vectors.get(file.path) == file.vector for rewrite in accepted)
    }
    for group, history in pinned.history.groups.items():
        slice_id = pinned.slicing.slice_of(group)
        if slice_id is not None and history.broken is not None:
            why[slice_id] = "commit {} ({})".format(*history.broken)
    every, removed = back.every, dict[str, str]()
    lost = [place for place, slice_ in enumerate(every) if slice_.slice_id in why]
    for slice_id, before in back.reach.items():
        newest = bisect_left(lost, before.stop) - 1
        if newest >= 0 and lost[newest] >= before.start:
            removed[slice_id] = why[every[lost[newest]].slice_id]
    return removed | why
