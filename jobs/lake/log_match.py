"""Whether a slice of the log still holds what a run has read, by what the Delta log says; no record is read.

A slice is compared with its sightings: coordinates at which its content was compared with what the run read, by a
replay or by `plan --verify`.
"""

from collections.abc import Sequence
from enum import Enum

from jobs.runs import LogCoordinates, Sighting


class Match(Enum):
    """How a slice's input compares with what a run read."""

    SAME = "same"
    CHANGED = "changed"  # the Delta log says so
    DIFFERENT = "different"  # the Delta log says nothing of it, and the records are others
    UNKNOWN = "unknown"  # other files, and nothing says whether they hold the same records


def match_input(sightings: Sequence[Sighting], now: LogCoordinates) -> Match:
    """Compare with all sightings of a run; of those that show the present content the newest decides."""
    found = {compare_coordinates(one.log, now): one for one in sightings}  # the newest of each answer
    if Match.SAME in found:
        return Match.SAME if found[Match.SAME].is_equal else Match.DIFFERENT
    return Match.UNKNOWN if Match.UNKNOWN in found else Match.CHANGED


def compare_coordinates(then: LogCoordinates, now: LogCoordinates) -> Match:
    """Compare what the log said of a slice at two versions of a table.

    The very same files hold the same records. Other files do so if each commit in between was looked at and none
    changed data (OPTIMIZE). Without these commits the number of records proves nothing: one may have been deleted and
    another inserted.
    """
    if then.table_id != now.table_id:
        return Match.CHANGED
    if then.digest and then.digest == now.digest:
        return Match.SAME
    if then.records != now.records or any(commit > then.version for commit in now.commits):
        return Match.CHANGED
    return Match.SAME if now.since <= then.version + 1 else Match.UNKNOWN
