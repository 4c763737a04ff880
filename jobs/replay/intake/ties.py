"""Records that share a place in the order of the log: equal ones do no harm, different ones are refused."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from jobs.replay.intake.order_keys import Indexes, key_at, signs
from windowlib.columnar.record_hashes import record_hashes
from windowlib.errors import LogError

MOST_TIES: Final = 5
"""An error about records with equal places names at most so many places."""


def refuse_ties(
    places: Sequence[pa.Array],
    rows_at: Callable[[Indexes], pa.RecordBatch],
    *,
    uri: str,
    columns: Sequence[str] | None,
    widened: Mapping[str, str],
) -> None:
    """Compare the records that share a place with the record before them.

    `places` has the places of records in log order, and `rows_at` returns the records of the log at some numbers in
    that order. `columns` give the places; None if row ids give them. `widened` is as for `record_hashes`.
    Raises LogError: different records share a place; it names up to five places.
    """
    shared = np.flatnonzero(signs(places) == 0)
    if not len(shared):
        return
    first, second = (record_hashes(rows_at(shared + step), widened) for step in (0, 1))
    differ = shared[first != second]
    if not len(differ):
        return
    if columns is None:
        place = [part[1] for part in key_at(places, int(differ[0]))]
        raise LogError(
            f"two records of event log {uri} have the same commit and row id {place}: the table is damaged. Restore it "
            "from a backup"
        )
    shown: list[str] = []
    rows = rows_at(differ)
    for number in range(len(differ)):
        named = ", ".join(f"{name} = {_shown(rows.column(name)[number])}" for name in columns)
        if named not in shown:
            shown.append(named)
        if len(shown) == MOST_TIES:
            break
    raise LogError(
        f"log.order {list(columns)} is not a total order of event log {uri}: different records share "
        f"a place, for example {'; '.join(shown)}. Add a column that differs between them, or use "
        "`order: commits` on a log with row tracking"
    )


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_string(value.type) and value.is_valid:
        return repr(value.as_buffer().to_pybytes().decode(errors="backslashreplace"))
    return str(value.as_py())
