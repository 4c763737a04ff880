"""The order for a replay: one chunk of slices, as one attempt. Does not import Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.lake.event_log import KnownLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import CheckpointRef, RunResult, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """One chunk to replay: contiguous slices, as one attempt.

    The chunk starts from the checkpoint `before`, or without state if it is None.
    """

    pipeline: Pipeline
    lake: Lake
    slices: tuple[Slice, ...]
    before: CheckpointRef | None
    request_id: str
    attempt_id: str
    known_log: KnownLog = field(default_factory=KnownLog)


Replayer = Callable[[ReplayOrder], list[RunResult]]
"""Replays a chunk and returns one result per slice, in order. A replayer does not write the ledger."""
