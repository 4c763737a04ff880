"""The result of one pass over a chunk, by either way: counts and time on the driver, and rows that can be written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.chunk.tallies import ChunkTallies, Sums
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.tasks import Tasks
from windowlib.records.row_ids import IdSum


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
    slices: tuple[InputSums, ...]
    time: ChunkTime
    counted: Sums
    scanned: Mapping[int, IdSum]
    rows: ComputedRows
