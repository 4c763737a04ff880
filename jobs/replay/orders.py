"""What a replayer is asked for: one chunk of slices, as one attempt. No Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.lake.event_log import KnownLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import CheckpointRef, RunResult, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """One chunk for the replayer: contiguous slices, from the state `before` (None: from nothing), as one attempt."""

    pipeline: Pipeline
    lake: Lake
    slices: tuple[Slice, ...]
    before: CheckpointRef | None
    request_id: str
    attempt_id: str
    known_log: KnownLog = field(default_factory=KnownLog)


Replayer = Callable[[ReplayOrder], list[RunResult]]
"""Replays a chunk: writes, audits, checks; returns one result per slice, in order. Never writes the ledger."""
