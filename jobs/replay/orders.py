"""The order for a replay: one chunk of slices, as one attempt. Does not import Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.ledger.head import Head
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import EMPTY_STATE, CheckpointRef, RunResult, Slice, WarmUp


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """One chunk to replay: contiguous slices, as one attempt.

    The chunk starts from the checkpoint `before`. If it is None, the chunk starts without windows: from the time of
    `warm_up`, or from nothing. `ledger` is the newest event of the ledger when the order was made; commits of the chunk
    store it. `begins_chain`: its first run begins the published chain although it starts from a checkpoint.
    `may_be_divided`: the replayer may replay the first slices only, if that is faster. `log_version` is the version of
    the log to read; None: the newest. All chunks of a plan read one version of the table of another pipeline, because a
    publication there may move records from slice to slice.
    """

    pipeline: Pipeline
    lake: Lake
    slices: tuple[Slice, ...]
    before: CheckpointRef | None
    request_id: str
    attempt_id: str
    known_log: KnownLog = field(default_factory=KnownLog)
    ledger: Head | None = None
    warm_up: WarmUp | None = None
    begins_chain: bool = False
    may_be_divided: bool = False
    log_version: int | None = None

    @property
    def state_before(self) -> str:
        """The fingerprint of the state that the chunk starts from."""
        if self.before is not None:
            return self.before.fingerprint
        return EMPTY_STATE if self.warm_up is None else self.warm_up.fingerprint

    def commit_metadata(self) -> dict[str, str]:
        """Return what the commits of the chunk store besides their files."""
        return {} if self.ledger is None else self.ledger.metadata()


Replayer = Callable[[ReplayOrder], list[RunResult]]
"""Replays a chunk and returns one result per slice, in order; of an order that may be divided, of its first slices.

A replayer does not write the ledger."""
