"""The rows of a checkpoint that is stored in parts: a full one, and the changes after it (docs/CHECKPOINTS.md)."""

import numpy as np

from windowlib.columnar.steps import Bools, Int64s


def live_rows(row_id: Int64s, part: Int64s, *, removed_id: Int64s, removed_in: Int64s) -> Bools:
    """Return which rows are in the state after the last part. A removal removes the rows of earlier parts only.

    Args:
        row_id: the ids of the rows of one table in all parts.
        part: the number of each row's part, ascending with time.
        removed_id: the ids of removed rows of the table.
        removed_in: the number of the part of each removal.
    """
    if not len(removed_id) or not len(row_id):
        return np.ones(len(row_id), dtype=np.bool_)
    order = np.lexsort((removed_in, removed_id))
    ids, last_in = removed_id[order], removed_in[order]
    is_last = np.append(ids[1:] != ids[:-1], True)
    ids, last_in = ids[is_last], last_in[is_last]
    place = np.minimum(np.searchsorted(ids, row_id), len(ids) - 1)
    alive: Bools = (ids[place] != row_id) | (last_in[place] <= part)
    return alive
