"""The order for a replay: one chunk of slices, as one attempt. Does not import Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.ledger.head import Head
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import CheckpointRef, RunResult, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """One chunk to replay: contiguous slices, as one attempt.

    The chunk starts from the checkpoint `before`, or without state if it is None. `ledger` is the newest event of the
    ledger when the order was made; commits of the chunk store it.
    """

    pipeline: Pipeline
    lake: Lake
    slices: tuple[Slice, ...]
    before: CheckpointRef | None
    request_id: str
    attempt_id: str
    known_log: KnownLog = field(default_factory=KnownLog)
    ledger: Head | None = None

    def commit_metadata(self) -> dict[str, str]:
        """Return what the commits of the chunk store besides their files."""
        return {} if self.ledger is None else self.ledger.metadata()


Replayer = Callable[[ReplayOrder], list[RunResult]]
"""Replays a chunk and returns one result per slice, in order. A replayer does not write the ledger."""
