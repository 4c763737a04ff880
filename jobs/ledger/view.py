"""The content of a ledger at one version, as values: runs, requests, publications (see `projection`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import assert_never

from jobs.ledger.acceptances import AcceptedRewrite
from jobs.ledger.leases import IsAlive, Lease, is_held
from jobs.ledger.looks import Look
from jobs.ledger.provenance import Comment, DagRunOrigin, Decided
from jobs.ledger.publications import Hold, Publication, standing
from jobs.ledger.removals import Removal, StoredAttempt
from jobs.runs import (
    VERDICTS,
    CheckpointRef,
    CheckResult,
    LogCoordinates,
    RunResult,
    Sighting,
    Slice,
    Verdict,
    WarmUp,
)  # fmt: skip
from windowlib.errors import LedgerError


class RequestKind(Enum):
    """The origin of a request. The ledger stores the values."""

    RANGE = "range"  # a person asked for a range
    SCHEDULED = "scheduled"  # a scheduled DAG run
    AIRFLOW_BACKFILL = "airflow-backfill"  # shared by the DAG runs of Airflow's own backfill
    RESTATEMENT = "restatement"  # the schedule has found published slices whose records have changed
    REPAIR = "repair"  # late records of published slices are put into their windows, by another allowed lateness
    CANDIDATE = "candidate"  # runs of an edited pipeline file, which only a person publishes, by the id of the request

    @property
    def is_by_person(self) -> bool:
        """Whether a person asks, so that it needs a free range, and a hold of the schedule does not stop it."""
        return self in {RequestKind.RANGE, RequestKind.REPAIR}


class RequestState(Enum):
    """How far a request has come. Only an open request accepts runs."""

    OPEN = "open"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled back"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's decision that a failed run may be published.

    `failed` holds (table, check, column, arguments) of the checks that had failed at that time, or None for any
    arguments. The check of settled windows has what was found in place of the column: no other finding is covered.
    `request_id` is the request that the person has decided on.
    """

    slice_id: str
    run_id: str
    who: str
    reason: str
    at_ms: int
    failed: frozenset[tuple[str | None, ...]]
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How much the publication of a run by a request would change settled windows. `basis` names what was compared."""

    basis: str
    checks: tuple[CheckResult, ...]
    request_id: str = field(default="", compare=False)

    @property
    def failed(self) -> frozenset[tuple[str | None, ...]]:
        """The failed checks, with what was found in place of the column: a waiver is for that finding only."""
        stopping = {Verdict.FAIL, Verdict.ERROR}
        failed = (check for check in self.checks if check.verdict in stopping)
        return frozenset((check.table, check.check, check.observed, None) for check in failed)

    def added_to(self, result: RunResult) -> RunResult:
        """Return the result of a run with these checks, and with the worst of all verdicts."""
        verdicts = [result.verdict, *(check.verdict for check in self.checks)]
        return replace(result, checks=(*result.checks, *self.checks), verdict=max(verdicts, key=VERDICTS.index))


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """A run and the one attempt that counts for it.

    `checks_attempt_id` is the attempt that owns the run's rows in `quality_results`. `sightings` are the coordinates
    of the log at which an attempt at the run, or `plan --verify`, read the run's input. `result` has the checks of the
    newest `judgement`, too, and its verdict. `checkpoint_removal` is the clean-up that removed the state after the run.
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
    judgement: Judgement | None = None
    checkpoint_removal: Removal | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the checks. ERROR if two attempts differ: the replay is then not deterministic."""
        return Verdict.ERROR if self.is_contradicted else self.result.verdict

    @property
    def is_publishable(self) -> bool:
        """Whether the run may be published: it passed, warned, or failed and is waived. ERROR never may."""
        match self.verdict:
            case Verdict.PASS | Verdict.WARN:
                return True
            case Verdict.FAIL:
                return self.waiver is not None
            case Verdict.ERROR:
                return False
            case _:
                assert_never(self.verdict)

    @property
    def checkpoint(self) -> CheckpointRef:
        """The state after the run. The next slice starts from it. Raises RequestError: a clean-up has removed it."""
        result = self.result
        if self.checkpoint_removal is not None:
            raise self.checkpoint_removal.state_error(result.slice.slice_id)
        return result.stored_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A started execution. If no holder works on its request and the ledger has no run of it, its rows are garbage.

    It has read the log after its begin at version `seq` of the ledger.
    """

    attempt_id: str
    slice_ids: tuple[str, ...]
    at_ms: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request and its progress. `runs` maps slice ids to run ids. `dag_runs` are those that work on it.

    `from_ms` and `to_ms` are None for the request that the DAG runs of an Airflow backfill share. If `is_complete`, no
    slice of the range is left to replay. `failure` is the reason of the newest failed attempt, or of the closing.
    `comments` are the thread of persons on the request, oldest first.
    `ended_by` is the request that has replaced this one, or whose publication has settled it.
    `changes` maps the changed slices of a restatement to the input with which they are to be replayed.
    `unarrived` maps slices that have not arrived, and that a person is to decide on, to what is known of them.
    `lease_runs` maps a lease, also one that has ended, to its DAG run: a retry of a task takes the lease again.
    `stopped_by` is the person who has stopped the newest holder; None if nobody has, or if there is a newer holder.
    `warm_up` is set if the chain begins in the middle of the log (`jobs.replay.restart`). Runs of its slices are not
    among `runs`. When a repair is complete, `runs` has the runs with other rows than those of the chain. When a
    candidate is complete, `compared_with` maps each slice of its range to the run that readers saw when it was planned.
    """

    request_id: str
    kind: RequestKind
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
    dag_runs: Mapping[tuple[str, str], DagRunOrigin] = field(default_factory=dict)
    lease_runs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    is_complete: bool = False
    failure: str | None = None
    unarrived: Mapping[str, str] = field(default_factory=dict)
    state: RequestState = RequestState.OPEN
    comments: tuple[Comment, ...] = ()
    ended_by: str | None = None
    changes: Mapping[str, LogCoordinates] = field(default_factory=dict)
    stopped_by: str | None = None
    warm_up: WarmUp | None = None
    compared_with: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def origins(self) -> tuple[DagRunOrigin, ...]:
        """The DAG runs that work on the request, in the order in which they have joined it."""
        return tuple(self.dag_runs.values())

    @property
    def assignee(self) -> str:
        """The person who looks after the request; empty: nobody."""
        return next((comment.assignee for comment in reversed(self.comments) if comment.assignee is not None), "")

    @property
    def is_open(self) -> bool:
        """Whether runs may still be staged in the request."""
        return self.state is RequestState.OPEN

    @property
    def is_proposed(self) -> bool:
        """Whether it is a restatement, or a late repair, that waits to be started."""
        is_begun = bool(self.attempts or self.runs or self.is_complete)
        return self.kind in {RequestKind.RESTATEMENT, RequestKind.REPAIR} and self.is_open and not is_begun

    @property
    def is_repair(self) -> bool:
        """Whether its runs stand beside those of the chain."""
        return self.kind is RequestKind.REPAIR

    @property
    def is_candidate(self) -> bool:
        """Whether its runs are tried beside the published chain, until a person publishes the request by its id."""
        return self.kind is RequestKind.CANDIDATE

    @property
    def slice_ids(self) -> frozenset[str]:
        return frozenset(self.runs).union(*(attempt.slice_ids for attempt in self.attempts))

    def holders(self, *, now_ms: int, is_alive: IsAlive) -> tuple[Lease, ...]:
        """Return the leases that are held now. A request that is not open has none."""
        if not self.is_open:
            return ()
        return tuple(lease for lease in self.leases if is_held(lease, now_ms=now_ms, is_alive=is_alive))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """The ledger at one version.

    `runs` are in ledger order, `published` and `slices` in slice order. `condemned` holds texts "run_id/attempt_id".
    `open_ids` are the open requests, oldest first. `decisions` maps decision ids to the decisions of persons, in ledger
    order. `look` is the newest look at the log.
    `staged_attempts` are the ids of all attempts of which a run was staged. `condemned_attempts` are the ids of the
    attempts that were condemned as a whole: no run of them counts, and none is staged any more. `accepted` are the
    commits of the log that persons have accepted although they removed or changed records. `repairs` maps the runs of
    repairs to the runs of the chain in whose place readers see them. `removed` and `removed_checkpoints` are the rows
    that clean-ups have removed, all of an attempt at a slice or only those of its state. `removed_runs` are the runs
    that have no rows any more. They are not among `runs`.
    """

    version: int
    requests: Mapping[str, Request] = field(default_factory=dict)
    open_ids: tuple[str, ...] = ()
    runs: Mapping[str, StagedRun] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    publications: Sequence[Publication] = ()
    slices: Mapping[str, Slice] = field(default_factory=dict)
    condemned: frozenset[str] = frozenset()
    staged_attempts: frozenset[str] = frozenset()
    condemned_attempts: frozenset[str] = frozenset()
    hold: Hold | None = None
    decisions: Mapping[str, Decided] = field(default_factory=dict)
    look: Look | None = None
    accepted: tuple[AcceptedRewrite, ...] = ()
    repairs: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[StoredAttempt, Removal] = field(default_factory=dict)
    removed_checkpoints: Mapping[StoredAttempt, Removal] = field(default_factory=dict)
    removed_runs: Mapping[str, StagedRun] = field(default_factory=dict)

    def run(self, run_id: str) -> StagedRun:
        """Return the run with this id.

        Raises LedgerError: the ledger has no attempt at the run that counts, or a clean-up has removed its rows.
        """
        if (run := self.runs.get(run_id)) is not None:
            return run
        if (removed := self.removed_runs.get(run_id)) is not None:
            slice_id = removed.result.slice.slice_id
            raise self.removed[slice_id, removed.result.attempt_id].run_error(run_id, slice_id)
        raise LedgerError(
            f"run {run_id} has no attempt in the ledger: its attempts were condemned, or none was staged. Replay "
            "its slice"
        )

    def known_run(self, run_id: str) -> StagedRun | None:
        """Return the run with this id, also one whose rows a clean-up has removed; None if no attempt at it counts."""
        return self.runs.get(run_id) or self.removed_runs.get(run_id)

    def past_run(self, run_id: str) -> StagedRun:
        """Return the run with this id, also one whose rows a clean-up has removed.

        Raises LedgerError: the ledger has no attempt at the run that counts.
        """
        return self.removed_runs.get(run_id) or self.run(run_id)

    def published_run(self, slice_id: str) -> StagedRun | None:
        return self.run(self.published[slice_id]) if slice_id in self.published else None

    def chain_run(self, run_id: str) -> StagedRun:
        """Return the run whose state the next slice starts from: the run itself, or that in whose place it is seen.

        Raises LedgerError: as for `run`.
        """
        return self.run(self.chain_run_id(run_id))

    def chain_run_id(self, run_id: str) -> str:
        """Return the id of the run of the chain, for a run that readers see."""
        return self.repairs.get(run_id, run_id)

    def published_chain_run(self, slice_id: str) -> StagedRun | None:
        """Return the run of the published chain at a slice; None if the slice is not published."""
        return self.chain_run(self.published[slice_id]) if slice_id in self.published else None

    @property
    def head(self) -> StagedRun | None:
        """The run of the published chain at the last slice. The schedule continues after it."""
        return self.chain_run(list(self.published.values())[-1]) if self.published else None

    def published_at(self, seq: int) -> dict[str, str]:
        """Return what readers saw at ledger version `seq`: slice id -> run id."""
        seen: dict[str, str | None] = {}
        for publication in self.publications:
            if publication.seq <= seq:
                seen.update(publication.changes)
        return {slice_id: run_id for slice_id, run_id in seen.items() if run_id is not None}

    def newest_runs(self) -> dict[str, StagedRun]:
        """Return slice -> the run that was staged last, published or not.

        Runs that no request uses do not count: those of warm-ups, and those that a complete repair has left out. A run
        that only candidates or closed requests use, and that readers do not see, counts if there is no other.
        """
        requests = self.requests.values()
        aside = {each.request_id for each in requests if each.is_candidate or each.state is RequestState.CLOSED}
        uses = {run_id: False for each in requests if each.request_id in aside for run_id in each.runs.values()}
        uses |= {run_id: True for each in requests if each.request_id not in aside for run_id in each.runs.values()}
        uses |= dict.fromkeys(self.published.values(), True)
        used = [(is_first, self.runs[run_id]) for run_id, is_first in uses.items() if run_id in self.runs]
        ordered = sorted(used, key=lambda use: (use[0], use[1].seq))
        return {run.result.slice.slice_id: run for _, run in ordered}

    def rewrites_since(self, run: StagedRun) -> tuple[AcceptedRewrite, ...]:
        """Return the accepted commits that removed or changed records of a slice after a run had read it, in order."""
        seen, slice_id = run.result.log, run.result.slice.slice_id
        equal = (sighting.log for sighting in run.sightings if sighting.is_equal)
        own = [log.version for log in equal if log.table_id == seen.table_id]
        newer = (
            accepted
            for accepted in self.accepted
            if accepted.table_id == seen.table_id
            and slice_id in accepted.rewrite.slices
            and accepted.rewrite.version > max([seen.version, *own])
        )
        return tuple(sorted(newer, key=lambda accepted: accepted.rewrite.version))

    def open_requests(self, kind: RequestKind | None = None) -> tuple[Request, ...]:
        """Return the open requests of one kind (None: of every kind), oldest first."""
        requests = map(self.requests.__getitem__, self.open_ids)
        return tuple(request for request in requests if kind is None or request.kind is kind)

    def awaited_requests(self) -> tuple[Request, ...]:
        """Return the open requests that are to be published, oldest first: all but the candidates.

        A candidate is in the way of no other request, and no schedule uses or decides it.
        """
        return tuple(request for request in self.open_requests() if not request.is_candidate)

    def is_awaited(self, run_id: str) -> bool:
        """Return whether a run is to be published by an open request."""
        return any(run_id in request.runs.values() for request in self.awaited_requests())

    def is_in_chain(self, run_id: str) -> bool:
        """Return whether readers see a run, or the published chain has it in place of the run that they see."""
        run = self.runs.get(run_id)
        shown = None if run is None else self.published.get(run.result.slice.slice_id)
        return shown is not None and run_id in {shown, self.chain_run_id(shown)}

    def settling(self, request: Request) -> Publication | None:
        """Return the publication that a request led to: its own, or that of a request that replaced or settled it.

        None if the request is open or was cancelled, or if that publication was rolled back.
        """
        ended, seen = request, {request.request_id}
        while ended.state is RequestState.CLOSED and ended.ended_by not in {None, *seen}:
            seen.add(ended.ended_by or "")
            ended = self.requests.get(ended.ended_by or "", request)
        if ended.state is not RequestState.PUBLISHED:
            return None
        return next((past for past in reversed(self.publications) if past.request_id == ended.request_id), None)

    @property
    def standing(self) -> tuple[Publication, ...]:
        """The publications that no rollback has reverted, oldest first."""
        return tuple(reversed([*standing(self.publications)]))
