"""Decides for each slice of a chunk whether its checkpoint is stored whole or as changes.

docs/reference/checkpoints.md#full-and-incremental-checkpoints describes both forms.

The tasks always emit the changes of a slice. A task also emits the rows that did not change if they are few, or if
there is reason for a full checkpoint (windowlib.execution.state_changes). If the tasks of all buckets did, the full
checkpoint is stored.
"""

from jobs.replay.chunk.tallies import ROWS, Sums
from windowlib.execution.state_changes import CHANGED, KEPT, PARTIAL
from windowlib.records import tables
from windowlib.records.row_ids import IdSum


def full_checkpoints(counted: Sums, slices: int) -> tuple[bool, ...]:
    """Return for each slice whether the tasks of all buckets emitted their whole state."""
    return tuple((number, PARTIAL, KEPT) not in counted for number in range(slices))


def stored_sums(counted: Sums, is_full: tuple[bool, ...]) -> Sums:
    """Return what the tasks counted, with the rows of checkpoint tables as they will be stored."""
    sums: Sums = {}
    for (number, equation, term), ids in counted.items():
        stored = {
            CHANGED: term != tables.STATE_REMOVALS or not is_full[number],
            KEPT: is_full[number],
            PARTIAL: False,
        }
        if stored.get(equation, True):
            place = number, ROWS if equation in stored else equation, term
            sums.setdefault(place, IdSum()).merge(ids)
    return sums
