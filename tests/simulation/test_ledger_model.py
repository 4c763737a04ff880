"""The ledger's protocol under random interleavings of writers, with kills, commits of unknown outcome, moved clocks.

Up to four writers on two hosts open, stage, publish, waive, roll back and resume, and accept commits that removed
records from the log, through the code of the command line and of Airflow's tasks.
Only Delta and Spark are replaced. The test checks these laws after every commit:

- One linear history: every commit follows the one before, its hash chain is intact, and no commit is there twice.
- No publication is lost: readers see the result of all publications and rollbacks in order.
- Readers see a chain: each run starts from the state after the slice before, and it passed or was waived.
- No writer ends a request that another writer works on.
- A request is published whole, and a request that is not open does not change any more.
- After a rollback, the schedule publishes nothing until a person publishes or resumes.
- A clean-up removes no file of a run that the ledger has, and condemns no attempt on which somebody works. No run of an
  attempt that was condemned is staged.
- With a rule for settled windows, each published run was judged against what readers saw directly before.
- A candidate is published only by a person, and only in place of what it was compared with. It changes no check of a
  run that readers see, and no publication closes it. Afterwards, the chain ends with its spec.
- A commit that removed records is accepted by one event, and no run of what it left is staged before.

At the end, one more run of all slices publishes the same rows as an undisturbed run over the same log, and one more
clean-up leaves no file that no commit names.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from jobs.engine.fingerprints import fingerprint, run_id, spec_fingerprint
from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import SCRATCH, CommittedFile, LeftoverFile
from jobs.lake.rewrites import Rewrite, RewrittenSlice
from jobs.lake.table_files import Attempt
from jobs.ledger.chain import Link, Row, check_chain
from jobs.ledger.events import EventKind
from jobs.ledger.head import Head
from jobs.ledger.history import event_of
from jobs.ledger.leases import Holder, Lease, is_held
from jobs.ledger.ledger import Ledger, LedgerLimits
from jobs.ledger.projection import Projection
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.orchestration import gating, scheduling
from jobs.orchestration.requests import Staging, run_request
from jobs.orchestration.scheduling import Decision, Replay
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.lease_keeping import renew
from jobs.planning.log_state import LogState
from jobs.planning.request_context import Asked, IfOpen, Opened, RequestContext, covers, open_request_context
from jobs.publishing.accepting import acceptance_events
from jobs.publishing.cleaning import clean
from jobs.publishing.decisions import resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.publishing.waivers import waive
from jobs.replay.orders import ReplayOrder
from jobs.runs import EMPTY_STATE, SETTLED, CheckResult, Counts, LogCoordinates, RunResult, Slice, Verdict
from tests.support.fake_replay import PIPELINE, day_ms, sales
from tests.support.fuzzing import seeds
from tests.support.simulated_ledger import Faults, MemoryStore, MemoryTable, Writer
from windowlib.errors import HindcastError, LogError, StoreError

DAYS = 4
FIRST_MS = day_ms("2024-01-01")
DAY_MS = 86_400_000
LEASE_MS = 600_000
YEAR_MS = 365 * DAY_MS
LAKE = Lake(root="/nowhere")
SPECS = (PIPELINE, PIPELINE.replace("size: 1d", "size: 2d"))
PIPELINES = {text: sales(text) for text in SPECS}
RULE = "publish: {settled: {after: 1d, change_at_most: {share: 0.1}}}\n"
RULED = {text: sales(text + RULE) for text in SPECS}
PLAIN = PIPELINES[PIPELINE]
SLICES = slices_between(PLAIN, FIRST_MS, FIRST_MS + DAYS * DAY_MS)
FIRST_ERASURE = 1_000
HUMAN, RUN, DAG = "person", "run", "dag"


@dataclass
class World:
    """The log, the clock, the processes, and their common ledger."""

    rng: Random
    table: MemoryTable = field(default_factory=MemoryTable)
    log: list[list[int]] = field(default_factory=list)  # slice -> amounts, one per commit
    erased: dict[int, Slice] = field(default_factory=dict)  # commit that removed an amount -> its slice
    now_ms: int = FIRST_MS + 10 * DAY_MS
    alive: set[int] = field(default_factory=set)
    writers: list[Writer] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)  # pid -> the kind of process
    dag_runs: list[tuple[str, str, int]] = field(default_factory=list)  # kind, id and end of every DAG run
    dag_leases: dict[str, set[int]] = field(default_factory=dict)  # lease -> pids of the processes of the DAG run
    last_read_ms: dict[int, int] = field(default_factory=dict)  # pid -> the clock at its last read of the ledger
    ahead_ms: dict[int, int] = field(default_factory=dict)  # pid -> how far the clock of its host is ahead
    files: dict[str, LeftoverFile] = field(default_factory=dict)  # path -> a file in the lake
    named: set[str] = field(default_factory=set)  # the paths that a commit of a table names
    next_pid: int = 100
    ids: int = 0
    is_ruled: bool = False  # whether the pipeline files have a rule for settled windows

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def read_log(
        self,
        pipeline: Pipeline,
        lake: Lake,
        slices: Sequence[Slice],
        *,
        view: LedgerView | None,
        before: LogState | None = None,  # noqa: ARG002 - this log may change at any time
    ) -> LogState:
        del pipeline, lake
        known = known_log(LedgerView(version=0) if view is None else view, ())
        self.refuse_erased(slices, known)
        return LogState(
            known=known,
            version=sum(map(len, self.log)),
            coordinates={one.slice_id: self.coordinates(one) for one in slices},
            first_data=SLICES[0],
            last_data=SLICES[-1],
        )

    def refuse_erased(self, slices: Sequence[Slice], known: KnownLog) -> None:
        """Refuse slices from which a commit removed an amount that nobody has accepted, as `pin_log` does."""
        accepted = known.accepted_of("log")
        if any(one in slices and version not in accepted for version, one in self.erased.items()):
            raise LogError("a commit removed records")

    def coordinates(self, one: Slice) -> LogCoordinates:
        amounts = self.log[SLICES.index(one)]
        erased = [version for version, own in self.erased.items() if own == one]
        commits = (*range(len(amounts)), *erased)
        return LogCoordinates(
            table_id="log", version=0, commits=commits, files=len(amounts), records=len(amounts), bytes=1
        )

    def request_context(self, writer: Writer, text: str) -> RequestContext:
        """The context of one process."""
        pipeline = (RULED if self.is_ruled else PIPELINES)[text]
        place = {"host": writer.host, "boot_id": "b", "pid_namespace": "n"}

        def is_alive(holder: Holder) -> bool | None:
            return holder.pid in self.alive if holder.host == writer.host else None

        def seen() -> None:
            self.last_read_ms[writer.pid] = self.now_ms

        def now_ms() -> int:
            return self.now_ms + self.ahead_ms.get(writer.pid, 0)

        faults = Faults(self.rng)
        store = MemoryStore(self.table, writer, faults, seen)
        limits = LedgerLimits(attempts=50, compact_every=self.rng.choice([1, 2, 5, 100]))
        ledger = Ledger("memory", now_ms=now_ms, sleep=lambda _s: None, limits=limits, store=store)
        return replace(
            open_request_context(pipeline, LAKE, now_ms=lambda: self.now_ms),
            ledger=ledger,
            new_id=self.new_id,
            holder=Holder(**place, pid=writer.pid, start_ticks=1),
            is_alive=is_alive,
            lease_ms=LEASE_MS,
            read_log=self.read_log,
        )

    def replayer(self, writer: Writer) -> "Replayer":
        return Replayer(self, writer)

    def write_file(self, table: str, attempt_id: str) -> str:
        path = f"{table}/attempt_id={attempt_id}/{len(self.files)}-{self.new_id()}"
        self.files[path] = LeftoverFile(path=path, table=table, attempt_id=attempt_id, bytes=1, modified_ms=self.now_ms)
        return path


@dataclass
class Replayer:
    """Replays without Spark: the result depends on log, spec and state before only, as law L1 requires."""

    world: World
    writer: Writer

    def __call__(self, order: ReplayOrder) -> list[RunResult]:
        self.writer.stop_here()
        self._write(order.attempt_id)
        self.world.refuse_erased(order.slices, order.known_log)
        results, state = [], order.before.fingerprint if order.before else EMPTY_STATE
        for one in order.slices:
            amounts = list(self.world.log[SLICES.index(one)])
            log = self.world.coordinates(one)
            results.append(result_of(order.pipeline, one, amounts, state=state, attempt_id=order.attempt_id, log=log))
            state = results[-1].state_after
        self.writer.stop_here()
        return results

    def _write(self, attempt_id: str) -> None:
        """Write shuffle files, a file of a task that is tried again, and files that are committed, table by table."""
        world = self.world
        scratch, _tried = world.write_file(SCRATCH, attempt_id), world.write_file("panes", attempt_id)
        written = [world.write_file(table, attempt_id) for table in ("panes", "late", "timers")]
        for path in written:
            self.writer.stop_here()
            if path not in world.files:
                raise StoreError(f"the new file {path} cannot be read")
            world.named.add(path)
        self.writer.stop_here()
        world.files.pop(scratch, None)


@dataclass(frozen=True)
class MemoryFiles:
    """The files of the world, as one writer sees them. The writer stops at every access."""

    world: World
    writer: Writer

    def listed(self) -> list[LeftoverFile]:
        self.writer.stop_here()
        return list(self.world.files.values())

    def named(self, tables: Iterable[str]) -> frozenset[str]:
        self.writer.stop_here()
        return frozenset(path for path in self.world.named if path.partition("/")[0] in {*tables})

    def committed(self, tables: Iterable[str]) -> list[CommittedFile]:  # noqa: ARG002 - this world has no retention
        return []

    def delete_rows(self, table: str, attempts: Collection[Attempt], *, metadata: Mapping[str, str]) -> None:
        raise AssertionError((table, attempts, metadata))

    def expired(self, tables: Iterable[str], *, older_than_ms: int) -> frozenset[str]:
        raise AssertionError((tables, older_than_ms))

    def remove(self, paths: Iterable[str]) -> None:
        for path in self.world.rng.sample(wanted := list(paths), len(wanted)):
            self.writer.stop_here()
            self.world.files.pop(path, None)


def judged_by_hash(view: LedgerView, request: Request) -> dict[str, tuple[CheckResult, ...]]:
    """Judge without rows: the result depends on what readers see and on the runs of the request only."""
    found: dict[str, tuple[CheckResult, ...]] = {}
    for slice_id, own in request.runs.items():
        word = fingerprint([dict(view.published), own])
        is_change = slice_id in view.published and view.published[slice_id] != own
        verdict = Verdict.FAIL if word < "8" else Verdict.PASS
        check = CheckResult(
            slice_id=slice_id, table=SETTLED, check="settled", severity="critical", verdict=verdict, observed=word
        )
        if view.published.get(slice_id) != own:
            found[own] = (check,) if is_change else ()
    return found


def result_of(
    pipeline: Pipeline, one: Slice, amounts: Sequence[int], *, state: str, attempt_id: str, log: LogCoordinates
) -> RunResult:
    total, spec, read = sum(amounts), spec_fingerprint(pipeline), fingerprint(list(amounts))
    verdict = Verdict.FAIL if total % 7 == 0 else Verdict.PASS
    check = CheckResult(slice_id=one.slice_id, table="t", check="total", severity="critical", verdict=verdict)
    return RunResult(
        slice=one,
        run_id=run_id(pipeline=pipeline.name, slice_=one, spec=spec, input=read, state_before=state),
        attempt_id=attempt_id,
        spec_fingerprint=spec,
        input_fingerprint=read,
        state_before=state,
        state_after=fingerprint([spec, total % 2]),  # few states: a rerun often leaves the same one (early cut-off)
        digests={"window_outputs": fingerprint([state, total])},
        counts=Counts(read=len(amounts), assigned=len(amounts), late=0, unassigned=0, invalid=0, panes=1),
        watermark_ms=one.start_ms,
        log=log,
        seconds=0.1,
        verdict=verdict,
        checks=(check,),
    )


# --- the actions of writers -------------------------------------------------------------------------------------------


def run_by_hand(world: World, writer: Writer, rng: Random) -> None:
    """Play `hindcast run`, with or without publication."""
    world.kinds[writer.pid] = RUN
    text = SPECS[0] if rng.random() < 0.85 else SPECS[1]
    work = world.request_context(writer, text)
    start = rng.choice([0, 0, 0, rng.randrange(DAYS)])
    end = rng.randrange(start, DAYS) + 1
    asked = Asked(
        from_ms=FIRST_MS + start * DAY_MS, to_ms=FIRST_MS + end * DAY_MS, who=writer.name, reason="run",
        is_fresh=rng.random() < 0.1, if_open=rng.choice([IfOpen.REPLACE, IfOpen.REPLACE, IfOpen.REFUSE]),
    )  # fmt: skip
    staging = Staging(chunk=rng.choice([None, 1, 2]))
    run_request(work, asked, world.replayer(writer), staging=staging, publish=rng.random() < 0.8)


def try_candidate(world: World, writer: Writer, rng: Random) -> None:
    """Play a person who runs a candidate, mostly up to the head, looks at it, and publishes it."""
    world.kinds[writer.pid] = HUMAN
    work = world.request_context(writer, rng.choice(SPECS))
    published = [one for one in SLICES if one.slice_id in work.ledger.view().published]
    end_ms = published[-1].end_ms if published and rng.random() < 0.8 else rng.choice(SLICES).end_ms
    asked = Asked(
        from_ms=FIRST_MS, to_ms=end_ms, who=writer.name, reason="candidate", is_fresh=rng.random() < 0.2,
        kind=RequestKind.CANDIDATE,
    )  # fmt: skip
    outcome = run_request(work, asked, world.replayer(writer), staging=Staging(chunk=rng.choice([None, 1, 2])))
    writer.stop_here()
    if outcome.request_id and rng.random() < 0.7:
        publish(work, who=writer.name, request_id=outcome.request_id)


def run_as_dag(world: World, writer: Writer, rng: Random) -> None:
    """Play the four tasks of a DAG run. Airflow may start a killed run again."""
    world.kinds[writer.pid] = DAG
    if world.dag_runs and rng.random() < 0.4:
        kind, name, end = rng.choice(world.dag_runs)  # Airflow retries a run that may still be working
    else:
        kind, name, end = rng.choice(["scheduled", "backfill", "by hand"]), world.new_id(), rng.randrange(DAYS) + 1
        world.dag_runs.append((kind, name, end))
    for _try in range(rng.choice([1, 2])):
        decision = _planned(world, kind, name, end=end)
        writer.stop_here()
        if not isinstance(decision, Replay):
            return
        opened = decision.opened
        world.dag_leases.setdefault(opened.lease_id, set()).add(writer.pid)
        with suppress(HindcastError):
            scheduling.replay(
                PLAIN, LAKE, opened=opened, slices=decision.slices, replayer=world.replayer(writer),
                now_ms=lambda: world.now_ms, staging=Staging(chunk=rng.choice([1, 31])),
            )  # fmt: skip
            writer.stop_here()
            if gating.gate(PLAIN, LAKE, opened=opened, now_ms=world.now_ms, slices=decision.slices).is_passed:
                writer.stop_here()
                scheduling.publish_task(
                    PLAIN, LAKE, opened=opened, who=writer.name, now_ms=world.now_ms, slices=decision.slices
                )
            return


def _planned(world: World, kind: str, name: str, *, end: int) -> Decision:
    """Return the decision of a plan task. `name` is the id of the DAG run, the same in every retry."""
    end_ms, now_ms = FIRST_MS + end * DAY_MS, world.now_ms
    if kind == "scheduled":
        return scheduling.plan_scheduled(
            PLAIN, LAKE, interval_end_ms=end_ms, now_ms=now_ms, who="airflow", request_id=name
        )
    if kind == "backfill":
        return scheduling.plan_backfill_interval(
            PLAIN, LAKE, start_ms=end_ms - DAY_MS, end_ms=end_ms, now_ms=now_ms, who="airflow", lease_id=name
        )
    asked = Asked(
        from_ms=FIRST_MS, to_ms=end_ms, who="ann", reason="by hand", request_id=name, lease_id=name,
        if_open=IfOpen.REPLACE if int(name, 16) % 3 else IfOpen.WAIT,
    )  # fmt: skip
    return scheduling.plan_by_hand(PLAIN, LAKE, asked=asked, now_ms=now_ms)


def decide(world: World, writer: Writer, rng: Random) -> None:
    """Play a person who publishes, waives, rolls back, resumes or accepts commits that removed records."""
    world.kinds[writer.pid] = HUMAN
    work = world.request_context(writer, SPECS[0])
    view = work.ledger.view()
    match rng.choice(["publish", "publish one", "waive", "rollback", "rollback", "resume", "accept", "accept"]):
        case "accept":
            accept_erased(world, work, writer, rng.choice([*world.erased, None]))
        case "publish":
            publish(work, who=writer.name)
        case "publish one" if view.requests:
            candidates = [request.request_id for request in view.requests.values() if request.is_candidate]
            chosen = candidates if candidates and rng.random() < 0.5 else list(view.requests)
            publish(work, who=writer.name, request_id=rng.choice(chosen))
        case "waive":
            failed = [run for run in view.runs.values() if run.verdict is Verdict.FAIL and run.waiver is None]
            if failed:
                run = rng.choice(failed).result
                by = By(who=writer.name, decision_id=work.new_id())
                waived = waive(work, run.slice.slice_id, run_id=run.run_id, reason="real", by=by)
                assert waived.result.run_id == run.run_id, "the waiver is for the run that it names"
        case "rollback" if view.standing:
            rollback(work, rng.choice(view.standing[-2:]).seq, reason="too early", who=writer.name)
        case _:
            resume(work, reason="continue", who=writer.name)


def accept_erased(world: World, work: RequestContext, writer: Writer, only: int | None) -> None:
    """Accept the commits that removed amounts up to now, or one of them."""
    chosen = [
        Rewrite(
            version=version, operation="DELETE", predicate="", at_ms=None, actions="",
            slices={one.slice_id: RewrittenSlice(before=1, after=0)},
        )
        for version, one in world.erased.items()
        if only in {None, version}
    ]  # fmt: skip
    writer.stop_here()
    work.ledger.write(partial(acceptance_events, table_id="log", chosen=chosen, reason="by law", who=writer.name))


def _unchecked(_view: LedgerView, _runs: Sequence[StagedRun]) -> None:
    """This world has no rows."""


def tidy(world: World, writer: Writer, rng: Random) -> None:
    """Play `hindcast clean`, sometimes on a host whose clock is wrong, so that all leases seem to have expired."""
    world.kinds[writer.pid] = HUMAN
    if rng.random() < 0.5:
        writer.host, world.ahead_ms[writer.pid] = "h3", YEAR_MS
    work, files = world.request_context(writer, SPECS[0]), MemoryFiles(world, writer)
    for _ in range(rng.choice([1, 3])):
        older_than_ms = rng.choice([0, 0, 5_000, LEASE_MS])
        clean(
            work, files, older_than_ms=older_than_ms, who=writer.name, check_rows=_unchecked, dry_run=rng.random() < 0.1
        )


# --- the laws ---------------------------------------------------------------------------------------------------------


@dataclass
class Laws:
    """Checks the laws after each commit of the ledger."""

    world: World
    project: Projection = field(default_factory=Projection)
    link: Link = field(default_factory=Link)
    view: LedgerView = field(default_factory=lambda: LedgerView(version=0))
    seen: dict[str, str | None] = field(default_factory=dict)
    history: list[tuple[int, dict[str, str | None]]] = field(
        default_factory=list
    )  # not rolled back: (seq, seen before it)
    commits: set[str] = field(default_factory=set)
    staged: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, writer: Writer, rows: Sequence[Row]) -> None:
        before, version = self.view, len(self.world.table.commits)
        assert {row["seq"] for row in rows} == {version}, "a commit's number is the ledger's version"
        assert rows[0]["commit_id"] not in self.commits, "a commit is there twice"
        self.commits.add(rows[0]["commit_id"])
        self.link = check_chain(rows, self.link, uri="memory")
        for row in rows:
            self.project.add(event_of(row))
        self.view = self.project.view(version)
        self._no_publication_is_lost(rows)
        self._readers_see_a_chain(rows)
        self._a_published_run_was_judged(before, rows)
        self._no_writer_ends_the_work_of_another(writer, before)
        self._a_rollback_holds(writer, before, rows)
        self._an_ended_request_does_not_change(before)
        self._a_request_is_published_whole(before, rows)
        self._a_condemned_attempt_has_no_holder_and_no_run(writer, before, rows)
        self._no_file_of_a_run_is_gone()
        self._an_erasure_is_accepted_once_and_before_it_is_replayed(before, rows)
        self._a_candidate_stays_beside_the_chain_until_a_person_publishes_it(writer, before, rows)

    def _a_candidate_stays_beside_the_chain_until_a_person_publishes_it(
        self, writer: Writer, before: LedgerView, rows: Sequence[Row]
    ) -> None:
        kinds = {row["event"] for row in rows}
        for row in rows:
            request = before.requests.get(row["request_id"] or "")
            if request is None or not request.is_candidate:
                continue
            if row["event"] == EventKind.CHECKED.value:
                assert not before.is_in_chain(row["run_id"]), "a candidate has checked a run of the chain"
            if row["event"] == EventKind.CLOSED.value:
                assert EventKind.PUBLISHED.value not in kinds, "a publication has closed a candidate"
            if row["event"] == EventKind.PUBLISHED.value:
                assert self.world.kinds[writer.pid] == HUMAN, "only a person publishes a candidate"
                for slice_id, then in request.compared_with.items():
                    seen = before.published.get(slice_id)
                    assert seen in {then, request.runs.get(slice_id)}, "it replaces what it was not compared with"
                head = self.view.head
                assert head is not None
                assert head.result.spec_fingerprint == request.spec_fingerprint

    def _an_erasure_is_accepted_once_and_before_it_is_replayed(self, before: LedgerView, rows: Sequence[Row]) -> None:
        versions = [one.rewrite.version for one in self.view.accepted]
        assert len(versions) == len({*versions}), "a commit is accepted twice"
        accepted = {one.rewrite.version for one in before.accepted}
        for event in map(event_of, rows):
            if event.kind is EventKind.STAGED:
                read = {*event.details["log"]["commits"]} & self.world.erased.keys()
                assert read <= accepted, "a run has read what is left of a commit that nobody has accepted"

    def _no_publication_is_lost(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row["event"] == EventKind.STAGED.value:
                assert (row["attempt_id"], row["slice_id"]) not in self.staged, "an attempt is staged twice"
                self.staged.add((row["attempt_id"], row["slice_id"]))
        kinds = {row["event"] for row in rows}
        flips = {EventKind.PUBLISHED.value, EventKind.ROLLED_BACK.value}
        changes = {row["slice_id"]: row["run_id"] for row in rows if row["event"] in flips}
        if EventKind.PUBLISHED.value in kinds:
            self.history.append((rows[0]["seq"], dict(self.seen)))
            self.seen.update(changes)
        if EventKind.ROLLED_BACK.value in kinds:
            seq, earlier = self.history.pop()
            assert event_of(rows[0]).details["undoes"] == seq, "a rollback reverts the newest publication"
            self.seen.update(changes)
            assert _filled(self.seen) == _filled(earlier), "readers see what they saw before the publication"
        assert dict(self.view.published) == _filled(self.seen)

    def _readers_see_a_chain(self, rows: Sequence[Row]) -> None:
        state_after: dict[str, str] = {}
        slices = [one.slice_id for one in SLICES]
        for index, slice_id in enumerate(slices):
            run = self.view.published_run(slice_id)
            if run is None:
                continue
            state_after[slice_id] = run.result.state_after
            if not run.is_chain_start:
                assert run.result.state_before == state_after.get(slices[index - 1]), "a run follows its predecessor"
        for row in rows:
            if row["event"] == EventKind.PUBLISHED.value:
                assert self.view.run(row["run_id"]).is_publishable, "a failed run is not published"

    def _a_published_run_was_judged(self, before: LedgerView, rows: Sequence[Row]) -> None:
        for row in rows:
            if self.world.is_ruled and row["event"] == EventKind.PUBLISHED.value:
                judgement = self.view.run(row["run_id"]).judgement
                expected = judged_by_hash(before, before.requests[row["request_id"]])[row["run_id"]]
                assert judgement is not None
                assert judgement.checks == expected, "it was judged against what readers saw"

    def _no_writer_ends_the_work_of_another(self, writer: Writer, before: LedgerView) -> None:
        for request in before.requests.values():
            if not request.is_open or self.view.requests[request.request_id].is_open:
                continue
            for lease in request.leases:
                is_own = lease.holder is not None and lease.holder.pid == writer.pid
                if is_own or writer.pid in self.world.dag_leases.get(lease.lease_id, ()):
                    continue
                assert not self._is_held(lease, writer), (
                    f"{writer.name} ended request {request.request_id}, on which {lease} works"
                )

    def _is_held(self, lease: Lease, writer: Writer) -> bool:
        """Return whether the writer could see that the lease is held, at its last read and at its write."""

        def is_alive(holder: Holder) -> bool | None:
            return holder.pid in self.world.alive if holder.host == writer.host else None

        moments = (self.world.last_read_ms.get(writer.pid, self.world.now_ms), self.world.now_ms)
        ahead_ms = self.world.ahead_ms.get(writer.pid, 0)
        return all(is_held(lease, now_ms=now_ms + ahead_ms, is_alive=is_alive) for now_ms in moments)

    def _a_rollback_holds(self, writer: Writer, before: LedgerView, rows: Sequence[Row]) -> None:
        published = {row["request_id"] for row in rows if row["event"] == EventKind.PUBLISHED.value}
        if before.hold is None or not published or self.world.kinds[writer.pid] == HUMAN:
            return
        request = before.requests[published.pop()]
        assert request.kind is RequestKind.RANGE
        assert request.opened_seq > before.hold.seq

    def _an_ended_request_does_not_change(self, before: LedgerView) -> None:
        for request in before.requests.values():
            if not request.is_open:
                assert self.view.requests[request.request_id].runs == request.runs, "no run is added to it"

    def _a_request_is_published_whole(self, before: LedgerView, rows: Sequence[Row]) -> None:
        published = {row["request_id"] for row in rows if row["event"] == EventKind.PUBLISHED.value}
        if not published:
            return
        request = before.requests[published.pop()]
        wanted = (
            set(request.runs) if request.from_ms is None else {one.slice_id for one in SLICES if covers(request, one)}
        )
        for slice_id in wanted:
            run = self.view.published_run(slice_id)
            assert run is not None, "every slice of the range is published"
            assert run.result.spec_fingerprint == request.spec_fingerprint
        for row in rows:
            if row["event"] == EventKind.CLOSED.value:
                other = before.requests[row["request_id"]]
                theirs = {one.slice_id for one in SLICES if covers(other, one)}
                if not self._has_rows_that_readers_see(other, theirs):
                    assert other.opened_seq < request.opened_seq, "only an older request is superseded"
                    assert theirs <= wanted, "it is superseded only by one that covers it"

    def _has_rows_that_readers_see(self, request: Request, slice_ids: Collection[str]) -> bool:
        """Return whether the publication of a request would change no row. A candidate may settle a newer one so."""
        shown = {slice_id: self.view.published_run(slice_id) for slice_id in slice_ids}
        return all(
            run is not None
            and slice_id in request.runs
            and self.view.run(request.runs[slice_id]).result.digests == run.result.digests
            for slice_id, run in shown.items()
        )

    def _a_condemned_attempt_has_no_holder_and_no_run(
        self, writer: Writer, before: LedgerView, rows: Sequence[Row]
    ) -> None:
        for row in rows:
            if row["event"] == EventKind.STAGED.value:
                assert row["attempt_id"] not in before.condemned_attempts, "no run of a condemned attempt is staged"
            if row["event"] == EventKind.CONDEMNED.value:
                assert row["attempt_id"] not in before.staged_attempts, "an attempt with a run is not condemned"
                owners = [
                    request
                    for request in before.open_requests()
                    if row["attempt_id"] in {attempt.attempt_id for attempt in request.attempts}
                ]
                assert not any(self._is_held(lease, writer) for owner in owners for lease in owner.leases)

    def _no_file_of_a_run_is_gone(self) -> None:
        for path in self.world.named - self.world.files.keys():
            attempt_id = path.partition("=")[2].partition("/")[0]
            assert attempt_id not in self.view.staged_attempts, f"{path} is a file of a run"


def _filled(seen: dict[str, str | None]) -> dict[str, str]:
    return {slice_id: run_id for slice_id, run_id in sorted(seen.items()) if run_id is not None}


# --- playing ----------------------------------------------------------------------------------------------------------


def play(seed: int, monkeypatch: pytest.MonkeyPatch) -> World:
    rng = Random(seed)
    world = World(rng)
    world.log = [[rng.randrange(1, 9)] for _ in range(DAYS)]
    laws = Laws(world)
    world.table.on_commit = laws
    world.is_ruled = rng.random() < 0.5
    current: list[Writer] = []

    def judged(_work: RequestContext, view: LedgerView, request: Request) -> dict[str, tuple[CheckResult, ...]]:
        if current:
            current[-1].stop_here()
        return judged_by_hash(view, request)

    monkeypatch.setattr("jobs.publishing.judging.judged_checks_of", judged)
    monkeypatch.setattr(
        scheduling,
        "open_request_context",
        lambda pipeline, _lake, **_kw: world.request_context(current[-1], _text(pipeline)),
    )
    budget = rng.randrange(3, 13)
    while budget or world.writers:
        if budget and len(world.writers) < 4 and (not world.writers or rng.random() < 0.2):
            budget -= 1
            world.writers.append(_writer(world, rng))
        _disturb(world, rng)
        writer = rng.choice(world.writers)
        current[:] = [writer]
        writer.step()
        if writer.done:
            world.writers.remove(writer)
            world.alive.discard(writer.pid)
            assert writer.error is None or isinstance(writer.error, HindcastError), repr(writer.error)
    current.clear()
    _settle(world, rng)
    return world


def _text(pipeline: Pipeline) -> str:
    return SPECS[0] if pipeline == PLAIN else SPECS[1]


def _writer(world: World, rng: Random) -> Writer:
    world.next_pid += 1
    act, own = rng.choice([run_by_hand, run_as_dag, try_candidate, decide, tidy]), Random(rng.random())

    def work(writer: Writer) -> None:
        act(world, writer, own)

    writer = Writer(
        name=f"{act.__name__} {world.next_pid}", host=rng.choice(["h1", "h2"]), pid=world.next_pid, work=work
    )
    world.alive.add(writer.pid)
    return writer


def _disturb(world: World, rng: Random) -> None:
    """Advance time, move the clock, kill a writer, append to the log, or renew leases, by chance."""
    world.now_ms += rng.randrange(2_000)
    chance = rng.random()
    if chance < 0.01:
        world.now_ms += rng.choice([-YEAR_MS, -LEASE_MS, LEASE_MS // 2, LEASE_MS, 2 * LEASE_MS, YEAR_MS])
    elif chance < 0.02 and world.writers:
        victim = rng.choice(world.writers)
        victim.is_dead = True
        world.alive.discard(victim.pid)
    elif chance < 0.04:
        rng.choice(world.log).append(rng.randrange(1, 9))
    elif chance < 0.06:
        _renew(world)
    elif chance < 0.08:
        _erase(world, rng)


def _erase(world: World, rng: Random) -> None:
    """Remove an amount from the log by a commit."""
    number = rng.randrange(DAYS)
    if len(world.log[number]) > 1:
        world.log[number].pop(rng.randrange(len(world.log[number])))
        world.erased[FIRST_ERASURE + len(world.erased)] = SLICES[number]


def _renew(world: World) -> None:
    """Renew the leases of all processes that are alive, as their threads do."""
    view = Ledger("memory", now_ms=lambda: 0, store=_Reader(world.table)).view()
    for request in view.open_requests():
        for lease in request.leases:
            if lease.holder is None or lease.holder.pid not in world.alive:
                continue
            keeper = Writer(name="keeper", host=lease.holder.host, pid=lease.holder.pid, work=lambda _writer: None)
            store = _Unstopped(world.table, keeper, Faults(Random(0), ambiguous=0, failed=0))
            ledger = Ledger("memory", now_ms=lambda: world.now_ms, store=store)
            work = replace(world.request_context(keeper, SPECS[0]), ledger=ledger, holder=lease.holder)
            renew(work, Opened(request_id=request.request_id, lease_id=lease.lease_id))


class _Unstopped(MemoryStore):
    """A store that never stops its writer."""

    def refresh(self) -> int:
        self._version = len(self.table.commits)
        return self._version

    def append(self, rows: Sequence[Row]) -> None:
        self.table.commits.append([dict(row) for row in rows])
        self.table.on_commit(self.writer, rows)

    def compact(self) -> None: ...

    def head(self) -> Head | None:
        return self.table.head

    def head_elsewhere(self) -> Head | None:
        return None

    def put_head(self, head: Head, *, instead_of: Head | None = None) -> None:
        self.table.put_head(head, instead_of=instead_of)


def _settle(world: World, rng: Random) -> None:
    """After all writers have ended, one person runs all slices; readers then see the rows of an undisturbed run."""
    world.next_pid += 1
    done: list[bool] = []

    def work(writer: Writer) -> None:
        world.kinds[writer.pid] = HUMAN
        place = world.request_context(writer, SPECS[0])
        accept_erased(world, place, writer, None)
        asked = Asked(
            from_ms=FIRST_MS, to_ms=FIRST_MS + DAYS * DAY_MS, who="last", reason="settle", if_open=IfOpen.REPLACE
        )
        outcome = run_request(place, asked, world.replayer(writer), staging=Staging(chunk=1))
        for run in outcome.runs:
            if run.verdict is Verdict.FAIL and not run.is_publishable:
                by = By(who="last", decision_id=place.new_id())
                waive(place, run.result.slice.slice_id, run_id=run.result.run_id, reason="real", by=by)
        if not outcome.is_published:
            assert publish(place, who="last", request_id=outcome.request_id).is_published
        done.append(True)

    writer = Writer(name="last", host="h1", pid=world.next_pid, work=work)
    world.alive = {writer.pid}
    world.now_ms += 10 * YEAR_MS  # every lease has expired, also one that a clock ahead by some years has written
    while not writer.done:
        writer.step()
    if isinstance(writer.error, HindcastError) and "cannot be written" in str(writer.error):
        return _settle(world, rng)  # a commit failed and was not written: the person runs again
    assert writer.error is None, repr(writer.error)
    assert done
    _is_as_undisturbed(world)
    _is_clean_after(world)
    return None


def _is_clean_after(world: World) -> None:
    """One clean-up leaves the committed files, and all of them."""
    sweeper = Writer(name="sweeper", host="h1", pid=0, work=lambda _writer: None)
    store = _Unstopped(world.table, sweeper, Faults(Random(0), ambiguous=0, failed=0))
    work = replace(
        world.request_context(sweeper, SPECS[0]), ledger=Ledger("memory", now_ms=lambda: world.now_ms, store=store)
    )
    world.alive.clear()
    world.now_ms += YEAR_MS
    named = world.named & world.files.keys()
    clean(work, _FilesAtOnce(world, sweeper), older_than_ms=0, who="last", check_rows=_unchecked, dry_run=False)
    assert world.files.keys() == named


def _is_as_undisturbed(world: World) -> None:
    view = Ledger("memory", now_ms=lambda: 0, store=_Reader(world.table)).view()
    assert view.published.keys() == {one.slice_id for one in SLICES}
    state = EMPTY_STATE
    for one in SLICES:
        found = view.run(view.published[one.slice_id])
        start = EMPTY_STATE if found.is_chain_start else state
        wanted = result_of(PLAIN, one, world.log[SLICES.index(one)], state=start, attempt_id="", log=found.result.log)
        assert (found.result.run_id, dict(found.result.digests)) == (wanted.run_id, dict(wanted.digests)), one.slice_id
        state = found.result.state_after


class _FilesAtOnce(MemoryFiles):
    """Files that never stop their writer."""

    def listed(self) -> list[LeftoverFile]:
        return list(self.world.files.values())

    def named(self, tables: Iterable[str]) -> frozenset[str]:
        return frozenset(path for path in self.world.named if path.partition("/")[0] in {*tables})

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.world.files.pop(path, None)


@dataclass
class _Reader:
    """A store that only reads."""

    table: MemoryTable

    def refresh(self) -> int:
        return len(self.table.commits)

    def read(self, *, after: int) -> list[dict[str, Any]]:
        return [dict(row) for rows in self.table.commits[after:] for row in rows]

    def create(self) -> None: ...

    def append(self, rows: Sequence[Row]) -> None:
        raise AssertionError(f"this store only reads, and got {len(rows)} rows")

    def head(self) -> Head | None:
        return self.table.head

    def head_elsewhere(self) -> Head | None:
        return None

    def put_head(self, head: Head, *, instead_of: Head | None = None) -> None:
        raise AssertionError(f"this store only reads, and got {head} instead of {instead_of}")

    def compact(self) -> None: ...


def test_random_interleavings_keep_the_laws_of_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds(50):
        play(seed, monkeypatch)
