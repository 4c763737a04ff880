"""Sums of the ids of stored rows, by attempt: what a run's digest is compared with."""

from typing import TYPE_CHECKING

import numpy as np

from jobs.lake.table_files import Attempt
from windowlib.libraries import pa, pc
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

if TYPE_CHECKING:
    from numpy.typing import NDArray


def id_sums(rows: "pa.Table") -> dict[Attempt, IdSum | None]:
    """Return the sums of the row ids by attempt; None for an attempt with a row without an id."""
    pairs, numbers = _numbered_attempts(rows)
    order = np.argsort(numbers, kind="stable")
    ids = rows[tables.ROW_ID].fill_null(0).to_numpy()[order]
    ends = np.cumsum(np.bincount(numbers, minlength=len(pairs)))
    holes = set(numbers[rows[tables.ROW_ID].is_null().to_numpy()].tolist()) if rows[tables.ROW_ID].null_count else ()
    return {
        pair: None if number in holes else IdSum.of_array(part)
        for number, (pair, part) in enumerate(zip(pairs, np.split(ids, ends[:-1]), strict=True))
    }


def removed_ids(rows: "pa.Table") -> dict[str, IdSum]:
    """Return the sums of the removed ids by table, from rows of `state_removals`."""
    sums = {}
    for name in tables.INCREMENTAL_TABLES:
        own = rows.filter(pc.equal(rows["table_name"], name))
        sums[name] = IdSum.of_array(own["removed_id"].to_numpy())
    return sums


def _numbered_attempts(rows: "pa.Table") -> "tuple[list[Attempt], NDArray[np.int64]]":
    """Return the different attempts of some rows, and for each row the number of its attempt."""
    slices, attempts = (pc.fill_null(rows[name].cast(pa.string()), "") for name in tables.PARTITION_COLUMNS)
    slices, attempts = (column.combine_chunks().dictionary_encode() for column in (slices, attempts))
    codes = slices.indices.to_numpy().astype(np.int64) * len(attempts.dictionary) + attempts.indices.to_numpy()
    different, numbers = np.unique(codes, return_inverse=True)
    first, second = np.divmod(different, len(attempts.dictionary))
    names = slices.dictionary.to_pylist(), attempts.dictionary.to_pylist()
    places = zip(first.tolist(), second.tolist(), strict=True)
    return [(names[0][slice_no], names[1][attempt_no]) for slice_no, attempt_no in places], numbers


def add_sums(sums: "dict[Attempt, IdSum | None]", batch: "pa.RecordBatch") -> None:
    """Add the ids of a batch to the sums by attempt; the sum of an attempt with a row without an id is None."""
    for attempt, ids in id_sums(pa.Table.from_batches([batch])).items():
        known = sums.setdefault(attempt, IdSum())
        if known is None or ids is None:
            sums[attempt] = None
        else:
            known.merge(ids)
