"""Decides from the Delta log whether a slice still has the records that a run has read. No record is read.

A slice is compared with its sightings: coordinates at which a replay or `plan --verify` compared the slice's records
with those that the run read.
"""

from collections.abc import Sequence
from enum import Enum

from jobs.lake.log_version import NO_COMMITS
from jobs.runs import LogCoordinates, Sighting


class Match(Enum):
    """How a slice's present input compares with the records that a run read."""

    SAME = "same"
    CHANGED = "changed"  # the Delta log shows a change: another table or column, or a commit that added records
    DIFFERENT = "different"  # the Delta log shows no change, but a comparison found other records
    UNKNOWN = "unknown"  # other files, and the commits that could show whether the records changed are gone


def match_input(sightings: Sequence[Sighting], now: LogCoordinates) -> Match:
    """Compare a slice with all sightings of a run. Of the sightings of the present content, the newest decides.

    The sightings are the oldest first. If the run was seen in the present table, those in other tables tell nothing.
    """
    own = [sighting for sighting in sightings if sighting.log.table_id == now.table_id] or sightings
    if len(own) == 1:
        match = compare_coordinates(own[0].log, now)
        return Match.DIFFERENT if match is Match.SAME and not own[0].is_equal else match
    newest = {compare_coordinates(sighting.log, now): sighting for sighting in own}  # of each result
    if Match.SAME in newest:
        return Match.SAME if newest[Match.SAME].is_equal else Match.DIFFERENT
    if Match.CHANGED in newest and newest[Match.CHANGED].is_equal:
        return Match.CHANGED
    return Match.UNKNOWN if Match.UNKNOWN in newest else Match.CHANGED


def other_log(sightings: Sequence[Sighting], now: LogCoordinates) -> str:
    """Return why the log is another one than those in which a run's records were seen; empty if it is not."""
    logs = [sighting.log for sighting in sightings if sighting.is_equal and sighting.log.table_id == now.table_id]
    if not logs:
        return "the log is another table than the one that its run has read"
    renamed = "a column of the log was renamed, or dropped and added again, since its run has read it"
    return renamed if all(log.has_other_column(now) for log in logs) else ""


def compare_coordinates(then: LogCoordinates, now: LogCoordinates) -> Match:
    """Compare the coordinates of a slice at two versions of a table.

    The same files have the same records, unless a name is that of another column now. If every commit between the
    versions is known, none of them removed a record, and the number of records tells whether one added some. If commits
    are gone, nothing is proven: a DELETE may have removed a record, and an append have added another one. A log without
    commits has changed if its files have. Files without statistics have no number of records. A table that was restored
    from a backup has an older version: it has lost what later commits had added.
    """
    if then.table_id != now.table_id or then.has_other_column(now):
        return Match.CHANGED
    if then.digest and then.digest == now.digest:
        return Match.SAME
    if now.since == NO_COMMITS:
        return Match.CHANGED
    if now.since > then.version + 1:
        return Match.UNKNOWN
    is_counted = not (then.has_unknown_records or now.has_unknown_records)
    has_other_earlier = then.earlier_records != now.earlier_records
    has_other_counts = is_counted and (then.records != now.records or has_other_earlier)
    has_new = has_other_counts or any(commit > then.version for commit in now.commits)
    has_lost = any(commit > now.version for commit in then.commits)
    return Match.CHANGED if has_new or has_lost else Match.SAME
