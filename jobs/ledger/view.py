"""What a ledger says at one version, as values: runs, requests, publications. `jobs.ledger.fold` makes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from jobs.ledger.leases import IsAlive, Lease, is_held
from jobs.runs import CheckpointRef, RunResult, Sighting, Slice, Verdict
from windowlib.errors import LedgerError


class RequestState(Enum):
    """What became of a request."""

    OPEN = "open"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled back"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's word that a failed run may pass. `failed` are the checks that had failed by then."""

    slice_id: str
    run_id: str
    who: str
    reason: str
    at_ms: int
    failed: frozenset[tuple[str, str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """A run and the one attempt that stands for it. `checks_attempt_id` is where its rows in quality_results are.

    `sightings` are the coordinates of the log at which an attempt at the run, or `plan --verify`, read its input.
    """

    result: RunResult
    request_id: str
    seq: int
    at_ms: int
    is_chain_start: bool
    checks_attempt_id: str
    checks_fingerprint: str | None = None
    is_contradicted: bool = False
    waiver: Waiver | None = None
    sightings: tuple[Sighting, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of the checks; error where two attempts differ, for then something is not deterministic."""
        return Verdict.ERROR if self.is_contradicted else self.result.verdict

    @property
    def is_publishable(self) -> bool:
        """Whether readers may see it: passed or warned, or failed and waived; never after an error."""
        return self.verdict in {Verdict.PASS, Verdict.WARN} or (
            self.verdict is Verdict.FAIL and self.waiver is not None
        )

    @property
    def checkpoint(self) -> CheckpointRef:
        """The state after it, where the next slice goes on."""
        one = self.result
        return CheckpointRef(
            slice_id=one.slice.slice_id,
            run_id=one.run_id,
            attempt_id=one.attempt_id,
            fingerprint=one.state_after,
            digests=one.digests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An execution that was started. It is garbage if nobody works on its request and the ledger has no run of it."""

    attempt_id: str
    slice_ids: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, and how far it got. `runs` maps each slice that it has to its run.

    `from_ms` and `to_ms` are None for the request that the DAG runs of an Airflow backfill share. `is_complete` tells
    that no slice of the range is still to be replayed.
    """

    request_id: str
    kind: str
    from_ms: int | None
    to_ms: int | None
    who: str
    reason: str
    spec_json: str
    spec_fingerprint: str
    is_fresh: bool
    opened_at_ms: int
    opened_seq: int
    runs: Mapping[str, str] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    leases: tuple[Lease, ...] = ()
    is_complete: bool = False
    failure: str | None = None
    state: RequestState = RequestState.OPEN

    @property
    def is_open(self) -> bool:
        """Whether it may still stage and publish."""
        return self.state is RequestState.OPEN

    @property
    def slice_ids(self) -> frozenset[str]:
        """The slices that it has runs or attempts of."""
        return frozenset(self.runs).union(*(attempt.slice_ids for attempt in self.attempts))

    def holders(self, *, now_ms: int, is_alive: IsAlive) -> tuple[Lease, ...]:
        """The leases of those who work on it at this moment; none where it is over or waits for a person."""
        if not self.is_open:
            return ()
        return tuple(lease for lease in self.leases if is_held(lease, now_ms=now_ms, is_alive=is_alive))


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One flip of what readers see: slice -> run, or None where a slice is not published any more.

    `seq` names the publication. `undoes` is the publication that a rollback takes back.
    """

    seq: int
    at_ms: int
    request_id: str | None
    who: str
    undoes: int | None
    changes: Mapping[str, str | None]

    @property
    def is_rollback(self) -> bool:
        """Whether it shows readers what they saw before another publication."""
        return self.undoes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A rollback stops the chain: nothing is published by itself until a person publishes or resumes."""

    seq: int
    undoes: int
    who: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """The ledger at one version. All maps by slice are in slice order; `runs_by_slice` has the runs in ledger order."""

    version: int
    requests: Mapping[str, Request] = field(default_factory=dict)
    runs: Mapping[str, StagedRun] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    publications: tuple[Publication, ...] = ()
    slices: Mapping[str, Slice] = field(default_factory=dict)
    condemned: frozenset[str] = frozenset()
    hold: Hold | None = None
    runs_by_slice: Mapping[str, tuple[StagedRun, ...]] = field(default_factory=dict)

    def run(self, run_id: str) -> StagedRun:
        """The run with this id.

        Raises:
            LedgerError: no attempt stands for it (any more).
        """
        found = self.runs.get(run_id)
        if found is None:
            raise LedgerError(
                f"run {run_id} has no attempt in the ledger; it was condemned or never staged; replay its slice"
            )
        return found

    def published_run(self, slice_id: str) -> StagedRun | None:
        """What readers see of a slice."""
        return self.run(self.published[slice_id]) if slice_id in self.published else None

    def published_pairs(self) -> tuple[tuple[str, str], ...]:
        """The (slice_id, attempt_id) pairs that readers see, in slice order."""
        return tuple((slice_id, self.run(run_id).result.attempt_id) for slice_id, run_id in self.published.items())

    @property
    def head(self) -> StagedRun | None:
        """The last published run, where the daily chain goes on."""
        return self.run(list(self.published.values())[-1]) if self.published else None

    def published_at(self, seq: int) -> dict[str, str]:
        """What readers saw at a ledger version, slice -> run."""
        seen: dict[str, str | None] = {}
        for publication in self.publications:
            if publication.seq <= seq:
                seen.update(publication.changes)
        return {slice_id: run_id for slice_id, run_id in seen.items() if run_id is not None}

    def open_requests(self, kind: str | None = None) -> tuple[Request, ...]:
        """Open requests, oldest first."""
        return tuple(one for one in self.requests.values() if one.is_open and (kind is None or one.kind == kind))

    def newest_run(self, slice_id: str) -> StagedRun | None:
        """The run that was staged last for a slice, published or not."""
        return max(self.runs_by_slice.get(slice_id, ()), key=lambda run: run.seq, default=None)

    @property
    def standing(self) -> tuple[Publication, ...]:
        """The publications that no rollback has undone, oldest first."""
        undone = {publication.undoes for publication in self.publications}
        return tuple(one for one in self.publications if not one.is_rollback and one.seq not in undone)
