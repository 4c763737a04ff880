"""The result of one pass over a chunk, by either way: counts and time on the driver, and rows that can be written."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.chunk.tallies import ChunkTallies, Sums
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.tasks import Tasks
from windowlib.records.row_ids import IdSum


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInput:
    """The input of one slice: its fingerprint, and sums of ids.

    `records` are all records of the slice, `invalid` the invalid ones. `invalid_rows` are their rows in
    `invalid_records`. `filtered` are the records that `log.where` does not keep. They have no row in any table.
    `duplicate` are the duplicates, and `duplicate_rows` their rows in `duplicate_records`.
    """

    fingerprint: str
    records: IdSum
    invalid: IdSum
    invalid_rows: IdSum
    filtered: IdSum = field(default_factory=IdSum)
    duplicate: IdSum = field(default_factory=IdSum)
    duplicate_rows: IdSum = field(default_factory=IdSum)


class ComputedRows(Protocol):
    """The rows that the tasks of a chunk made, where they left them. Their tables exist."""

    @property
    def tasks(self) -> Tasks:
        """Runs further tasks where the rows were made."""
        ...

    def write(self, runs: Sequence[SliceRun], tallies: ChunkTallies) -> None:
        """Append the rows to their tables: one commit per table for all slices, at most once."""

    def close(self) -> None:
        """Delete what the tasks left. Called when the chunk is written, or has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRun:
    """A chunk whose windows ran.

    `slices` has the input of each slice, `counted` what the tasks counted, `scanned` the ids of the records that the
    audit's own scan of the log found, by slice number. `file_digests` has what the ledger stores of the bytes of the
    log's files, by slice (`LogCoordinates`).
    """

    file_digests: Mapping[str, str]
    slices: tuple[SliceInput, ...]
    time: ChunkTime
    counted: Sums
    scanned: Mapping[int, IdSum]
    rows: ComputedRows


def input_fingerprint(content: IdSum, duplicates: IdSum) -> str:
    """Return the fingerprint of a slice's input from the ids of (rank, record) of all records, and of the duplicates.

    Which records are duplicates depends on slices before, whose records are no part of the fingerprint.
    """
    count, xor, total = content.as_row()
    text = f"input:{count}:{xor}:{total}"
    if duplicates.count:
        text += ":duplicates:{}:{}:{}".format(*duplicates.as_row())
    return hashlib.sha256(text.encode("ascii")).hexdigest()
