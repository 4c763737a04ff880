"""Repairs, adoptions, erasures, kills and decisions in any order: readers always see what a model computes.

The machine changes a small log, edits the pipeline file and works on the lake through the code of the command line, in
this process. The model (tests.support.repair_model) remembers for each published slice the spec and the records of its
chain, and computes the rows from nothing. A step that is refused or killed changes nothing for readers, or everything.
"""

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, event, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobs.engine import fingerprints
from jobs.engine.fingerprints import spec_fingerprint
from jobs.lake.lake import Lake
from jobs.lake.leftover_files import LakeFiles
from jobs.lake.table_files import Attempt
from jobs.ledger.events import LedgerEvent
from jobs.ledger.ledger import Ledger
from jobs.ledger.publications import Publication
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState, StagedRun
from jobs.orchestration.interval_backfill import plan_backfill_interval
from jobs.orchestration.late_repair import asked_for, repairing
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.repair_range import repair_of
from jobs.orchestration.requests import Staging, run_request
from jobs.orchestration.scheduling import Replay, publish_task, replay
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.pipeline.slices import slice_grid, slices_between
from jobs.planning.lease_keeping import release
from jobs.planning.published_spec import on_published_spec
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.planning.steps import Ask, Reason
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.publishing.cleaning import clean, rows_checker
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.readers import published_table
from jobs.reading.published import published_runs
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.verify import verify
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.replay.sizes import Sizes
from jobs.runs import EMPTY_STATE, RunResult, Slice, WarmUp
from tests.support.fuzzing import cases
from tests.support.no_spark import threads
from tests.support.repair_model import (
    COMPARED,
    DAY_MS,
    FIRST,
    Chain,
    LogRecord,
    Spec,
    day_start_ms,
    day_text,
    expected_rows,
    expected_view,
    pipeline_from,
    rows_of,
    view_rows,
)
from tests.support.replays import NOW_MS
from windowlib.errors import LedgerError, LogError, RequestError

DAYS: Final = 5
WHO: Final = "a test"
SIZES: Final = Sizes(local_records=10**9, full_state_rows=0, checkpoint_parts=3)
SESSION: Final = threads()
SCHEMA: Final = pa.schema([(name, pa.int64()) for name in LogRecord._fields] + [("day", pa.date32())])
WINDOWS: Final = (
    "tumbling: {size: 2h}",
    "tumbling: {size: 30h}",
    "sliding: {size: 4h, slide: 2h}",
    "session: {gap: 1h}",
)
SPECS: Final = st.builds(
    Spec,
    st.sampled_from(WINDOWS),
    st.sampled_from(("0s", "6h")),
    st.sampled_from((0, 1_800_000, 10_800_000)),
    st.just(0),
)
RECORDS: Final = st.lists(
    st.tuples(st.integers(0, 1), st.integers(-36, 47).map(lambda half: half * DAY_MS // 48), st.integers(1, 9)),
    max_size=3,
)
"""Key, event time after the start of the day of arrival, value."""
DAY: Final = st.integers(0, DAYS - 1)
DEATHS: Final = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.sampled_from(("before chunk", "after chunk")), st.integers(1, 2)),
    st.tuples(st.sampled_from(("before commit", "after commit")), st.integers(1, 12)),
)
"""Where the process of a step is killed: at a chunk or a commit of the ledger, before or after it was written."""
FRESH, WARM_UP = "fresh", "warm-up"
BEGINNINGS: Final = st.sampled_from(("", "", WARM_UP, WARM_UP, FRESH))
"""How a range begins: from what is published, with a warm-up, or without earlier records."""
CHECKS: Final = st.sampled_from((None, "an edited suite"))
"""The fingerprint of the suite of a candidate. Its own runs are then checked again, and those of the chain are not."""
RETENTIONS: Final = st.tuples(*(st.sampled_from((None, 1, 1, 2)) for _ in range(3)))
"""The days for which superseded rows, unpublished rows and states are kept. None is for ever."""
CLEANING_DEATHS: Final = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(("before commit", "after commit")), st.just(1)),
    st.tuples(st.sampled_from(("before delete", "before remove")), st.integers(1, 4)),
)
"""Where the process of a clean-up is killed."""


@dataclass
class Process:
    """A process that is killed at one place. After that, it writes nothing."""

    place: str = ""
    number: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    is_dead: bool = False

    def reach(self, place: str) -> None:
        """Die here if this is the place."""
        self.counts[place] = self.counts.get(place, 0) + 1
        if self.is_dead or (place == self.place and self.counts[place] == self.number):
            self.is_dead = True
            raise KeyboardInterrupt

    def replayer(self) -> Replayer:
        """Return a replayer that dies with the process."""

        def replay(order: ReplayOrder) -> list[RunResult]:
            self.reach("before chunk")
            results = list(replay_chunk(SESSION, order, sizes=SIZES))
            self.reach("after chunk")
            return results

        return replay


class MortalLedger(Ledger):
    """The ledger of a process that may die."""

    process: Process

    def _append(self, events: Sequence[LedgerEvent], *, version: int) -> bool:
        self.process.reach("before commit")
        is_written = super()._append(events, version=version)
        self.process.reach("after commit")
        return is_written


class MortalFiles(LakeFiles):
    """The files of a lake, for a process that may die between two of its commits and removals."""

    process: ClassVar[Process] = Process()

    def delete_rows(self, table: str, attempts: Collection[Attempt], *, metadata: Mapping[str, str]) -> None:
        self.process.reach("before delete")
        super().delete_rows(table, attempts, metadata=metadata)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.process.reach("before remove")
            super().remove([path])


class Shown(NamedTuple):
    """What readers see of a day: the run of the chain, or the one of a repair (a request) in its place."""

    chain: Chain
    repair: Chain | None = None
    request_id: str = ""

    @property
    def visible(self) -> Chain:
        """The chain whose rows readers see."""
        return self.repair or self.chain


class RepairMachine(RuleBasedStateMachine):
    """A log, its pipeline file and its lake, and the model of what readers see."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.root = Path(self._directory.name)
        self.log: list[list[LogRecord]] = []
        self.sequence = 0
        self.shown: dict[int, Shown] = {}
        self.before: dict[int, dict[int, Shown]] = {}  # publication -> what readers saw before it
        self.pending: dict[tuple[str, int], Chain] = {}  # request and day -> the chain of the run that was staged
        self.seen = LedgerView(version=0)
        self.joined: set[str] = set()  # the runs that start from the state before them
        self.now_ms = NOW_MS
        self.kept_ms = 100 * DAY_MS  # the shortest retention of superseded rows that a clean-up has had
        self.semantics_version = fingerprints.SEMANTICS_VERSION
        self.first = 0  # the day of log.slice.first

    def teardown(self) -> None:
        fingerprints.SEMANTICS_VERSION = self.semantics_version
        self._directory.cleanup()

    # The log and the pipeline file

    @initialize(spec=SPECS, first=RECORDS.filter(bool))
    def begin(self, spec: Spec, first: list[tuple[int, int, int]]) -> None:
        self.spec = spec
        self.append_day(first)

    @precondition(lambda self: len(self.log) < DAYS)
    @rule(records=RECORDS)
    def append_day(self, records: list[tuple[int, int, int]]) -> None:
        self.log.append([])
        self._append(len(self.log) - 1, records)

    @rule(day=DAY, records=RECORDS.filter(bool))
    def append_late(self, day: int, records: list[tuple[int, int, int]]) -> None:
        self._append(day % len(self.log), records)

    def _append(self, day: int, records: list[tuple[int, int, int]]) -> None:
        added = [
            LogRecord(key, day_start_ms(day) + offset, value, self.sequence + number)
            for number, (key, offset, value) in enumerate(records)
        ]
        self.sequence += len(added)
        self.log[day] += added
        if added:
            rows = [one._asdict() | {"day": FIRST.fromisoformat(day_text(day))} for one in added]
            table = pa.Table.from_pylist(rows, SCHEMA)
            write_deltalake(str(self.root / "log"), table, mode="append", partition_by=["day"])

    @rule(day=DAY)
    def compact(self, day: int) -> None:
        DeltaTable(str(self.root / "log")).optimize.compact(partition_filters=[("day", "=", day_text(day))])

    @rule(day=DAY, number=st.integers(0, 5))
    def erase(self, day: int, number: int) -> None:
        """Delete a record for ever, and accept the commit."""
        records = self.log[day % len(self.log)]
        if not records:
            return
        erased = records.pop(number % len(records))
        DeltaTable(str(self.root / "log")).delete(f"seq = {erased.seq}")
        work = self._work()
        view = work.ledger.view()
        found = rewrites_of(work, view)
        accept_rewrites(work, found, chosen_rewrites(work, view, found, versions=()), reason=WHO, who=WHO)
        self._take_in({}, may_publish=False)

    @rule(spec=SPECS)
    def edit(self, spec: Spec) -> None:
        self.spec = spec._replace(code=self.spec.code)

    @rule(is_left_out=st.integers(0, 3))
    def upgrade(self, is_left_out: int) -> None:
        """Install a version of Hindcast that may compute other rows. Specs of before cannot be computed any more."""
        if is_left_out == 0:
            self.spec = self.spec._replace(code=self.spec.code + 1)
            fingerprints.SEMANTICS_VERSION = self.semantics_version + self.spec.code

    @precondition(lambda self: self.first + 1 < len(self.log))
    @rule(is_left_out=st.integers(0, 3))
    def leave_out(self, is_left_out: int) -> None:
        """Let `log.slice.first` leave out one more day."""
        if is_left_out == 0:
            self.first += 1

    @property
    def pipeline(self) -> Pipeline:
        """The present pipeline file."""
        return pipeline_from(self.spec, self.first)

    @property
    def is_lost(self) -> bool:
        """Whether the published chain is of code that has changed since."""
        return bool(self.shown) and self.shown[max(self.shown)].chain.spec.code != self.spec.code

    # What persons do

    @rule(days=st.tuples(DAY, DAY), publishes=st.booleans(), chunk=st.integers(1, 3), death=DEATHS, begins=BEGINNINGS)
    def run(
        self, *, days: tuple[int, int], publishes: bool, chunk: int, death: tuple[str, int] | None, begins: str
    ) -> None:
        first, last = sorted(day % len(self.log) for day in days)
        self._run_range(self._work(death), range(first, last + 1), publishes=publishes, chunk=chunk, begins=begins)

    @rule(day=DAY, publishes=st.booleans())
    def airflow_interval(self, day: int, *, publishes: bool) -> None:
        """One DAG run of Airflow's own backfill. All of them share a request, and each publishes what is whole."""
        day %= len(self.log)
        work, _ = on_published_spec(self._work())
        interval_ms = day_start_ms(day), day_start_ms(day + 1)
        try:
            planned = plan_backfill_interval(
                open_request_context(self.pipeline, work.lake, now_ms=lambda: self.now_ms),
                interval_ms=interval_ms,
                who=WHO,
                lease_id=f"{day}",
            )
        except RequestError as error:
            self._note_refusal(error)
            return
        if not isinstance(planned, Replay):
            return
        assert not self.is_lost, "new code continues the chain of the old one"
        opened, replayer = planned.opened, Process().replayer()
        spec = self.shown[max(self.shown)].chain.spec if self.shown else self.spec
        own = self.pending.get((opened.request_id, day - 1))
        is_own = day_text(day - 1) in work.ledger.view().requests[opened.request_id].runs
        start = own if is_own else self._start(day, spec, _first_day(work))
        fresh = None if start is None else self._after(start, range(day, day + 1))
        replay(
            open_request_context(self.pipeline, work.lake, now_ms=lambda: self.now_ms),
            opened=opened,
            slices=planned.slices,
            replayer=replayer,
        )
        assert fresh is not None, "a request without a start was not refused"
        self._take_in(fresh, may_publish=False)
        if publishes:
            publish_task(
                open_request_context(self.pipeline, work.lake, now_ms=lambda: self.now_ms),
                opened=opened,
                who=WHO,
                slices=planned.slices,
            )
        else:
            release(open_request_context(self.pipeline, work.lake, now_ms=lambda: self.now_ms), opened)
        self._take_in({}, may_publish=publishes)

    @rule(publishes=st.booleans(), death=DEATHS)
    def run_all(self, *, publishes: bool, death: tuple[str, int] | None) -> None:
        self._run_range(self._work(death), range(len(self.log)), publishes=publishes, replaces=True)

    @precondition(lambda self: self.shown)
    @rule(day=DAY, publishes=st.booleans(), death=DEATHS)
    def adopt(self, *, day: int, publishes: bool, death: tuple[str, int] | None) -> None:
        head = max(self.shown)
        self._run_range(self._work(death), range(min(day, head), head + 1), publishes=publishes, begins=WARM_UP)

    @rule(
        days=st.tuples(DAY, DAY), to_head=st.booleans(), begins=BEGINNINGS, checks=CHECKS, death=DEATHS,
        edited=st.one_of(st.none(), SPECS), promotes=st.booleans(),
    )  # fmt: skip
    def candidate(
        self, *, days: tuple[int, int], to_head: bool, begins: str, checks: str | None,
        death: tuple[str, int] | None, edited: Spec | None, promotes: bool,
    ) -> None:  # fmt: skip
        """Run a candidate. Neither readers, nor the runs of the chain, nor what the schedule does next change."""
        self.edit(edited or self.spec)
        first, last = sorted(day % len(self.log) for day in days)
        if to_head and self.shown:
            first, last = min(first, max(self.shown)), max(self.shown)
        before = self._of_the_chain(self.seen)
        work = replace(self._work(death), checks=checks)
        self._run_range(work, range(first, last + 1), publishes=False, begins=begins, kind=RequestKind.CANDIDATE)
        assert self._of_the_chain(self.seen) == before
        if promotes and death is None and self._candidates():
            self.promote(number=0, death=None)

    def _of_the_chain(self, view: LedgerView) -> list[tuple[object, ...]]:
        """Return what a candidate must leave as it is of the runs that readers see, and of those of the chain."""
        runs = [view.run(run_id) for shown in view.published.values() for run_id in (shown, view.chain_run_id(shown))]
        return [
            (
                *(run.result.run_id, run.result.attempt_id, run.verdict, run.waiver, run.judgement),
                *(run.checks_attempt_id, run.checks_fingerprint, run.is_chain_start),
            )
            for run in runs
        ]

    @precondition(lambda self: self._candidates())
    @rule(number=st.integers(0, 3), death=DEATHS)
    def promote(self, *, number: int, death: tuple[str, int] | None) -> None:
        """Publish a candidate. If it is done, the chain goes on with its spec from its last state."""
        candidates = self._candidates()
        request = candidates[-1 - number % len(candidates)]
        head = max(self.shown, default=-1)
        self._decide(lambda work: publish(work, who=WHO, request_id=request.request_id), death)
        newest = self.seen.publications[-1:]
        is_new = bool(newest) and newest[0].request_id == request.request_id and newest[0].seq > request.opened_seq
        if not is_new or self.seen.requests[request.request_id].state is not RequestState.PUBLISHED:
            event("promotion: refused, killed or not needed")
            return
        event("promotion: done")
        assert self._head().result.spec_fingerprint == request.spec_fingerprint
        assert max(self.shown) >= head
        assert self._head().result.slice.end_ms >= (request.to_ms or 0)
        work, _ = on_published_spec(self._work())
        assert spec_fingerprint(work.pipeline) == request.spec_fingerprint

    def _candidates(self) -> list[Request]:
        """Return the candidates that may be published: the open ones, and those that were rolled back."""
        states = {RequestState.OPEN, RequestState.ROLLED_BACK}
        return [request for request in self.seen.requests.values() if request.is_candidate and request.state in states]

    def _run_range(
        self, work: RequestContext, days: range, *, publishes: bool, chunk: int = 2, begins: str = "",
        replaces: bool = False, kind: RequestKind = RequestKind.RANGE,
    ) -> None:  # fmt: skip
        days = range(max(days[0], self.first), days[-1] + 1)
        if not days:
            return
        slices = slices_between(work.pipeline, day_start_ms(days[0]), day_start_ms(days[-1] + 1))
        warm_up: WarmUp | None = None
        if begins == WARM_UP:
            with suppress(RequestError):
                warm_up = restart_before(SESSION, work, slices)
        start = self._start(days[0], self.spec, self.first)
        if warm_up is not None:
            start = self._whole(self.spec, days[0], self.first)
        if begins == FRESH:
            start = Chain(self.spec, days[0])
        asked = self._asked(slices, warm_up=warm_up, if_open=IfOpen.REPLACE if replaces else IfOpen.REFUSE)
        asked = replace(asked, kind=kind, is_fresh=begins == FRESH)
        fresh = None if start is None else self._after(start, days)
        outcome = self._request(work, asked, fresh, publishes=publishes, chunk=chunk)
        if outcome is not None and outcome.is_published and fresh is not None:
            for day, chain in fresh.items():
                assert expected_rows(self.shown[day].chain) == expected_rows(chain), day
            if begins == FRESH:
                return
            ask = Ask.of_range(slices, pipeline=work.pipeline, warm_up=warm_up)
            planned = replace(work, checks=None).plan(work.ledger.view(), ask)
            assert {step.reason for step in planned.range} == {Reason.CURRENT}
            assert all(step.is_published for step in planned.range)

    def _start(self, day: int, spec: Spec, first: int) -> Chain | None:
        """Return the chain that a run from a day on continues with a spec; None if there is none.

        The pipeline file leaves out the days before `first`.
        """
        before = self.shown.get(day - 1)
        if before is not None:
            return before.chain if before.chain.spec == spec else None
        if not any(self.log[first:day]):
            return Chain(spec, day)
        begun = self.shown.get(day)
        if begun is None:
            return None
        if begun.chain.spec != spec and any(begun.chain.days[:-1]):
            return None  # the state before is of another spec
        return begun.chain._replace(spec=spec, days=begun.chain.days[:-1])

    def _whole(self, spec: Spec, day: int, first: int) -> Chain:
        """Return the chain over all days before a day, from a first one on."""
        return self._after(Chain(spec, first), range(first, day))[day - 1] if day > first else Chain(spec, first)

    def _beginning(self, day: int) -> int:
        """Return the day from which on records matter to the published chain of a day."""
        results = {
            _day_of(self.seen, name): self.seen.chain_run(id_).result for name, id_ in self.seen.published.items()
        }
        while day - 1 in results and results[day - 1].state_after == results[day].state_before:
            day -= 1
        first = self.shown[day].chain.first
        return first if any(self.log[:first]) else 0

    def _after(self, start: Chain, days: range) -> dict[int, Chain]:
        """Return day -> the chain up to it, which continues a chain with the records that the log has now."""
        chains = dict[int, Chain]()
        for day in days:
            start = chains[day] = start.then(self.log[day])
        return chains

    @precondition(lambda self: self.shown)
    @rule(
        publishes=st.booleans(),
        death=DEATHS,
        hours=st.one_of(st.none(), st.integers(1, 40)),
        bounds=st.tuples(DAY, DAY),
    )
    def repair(
        self, *, publishes: bool, death: tuple[str, int] | None, hours: int | None, bounds: tuple[int, int]
    ) -> None:
        work, _ = on_published_spec(self._work(death))
        first, last = sorted(bounds)
        from_ms, to_ms = (day_start_ms(first), day_start_ms(last + 1)) if first < last else (None, None)
        try:
            found = repair_of(
                work,
                from_ms=from_ms,
                to_ms=to_ms,
                at_most_ms=None if hours is None else hours * 3_600_000,
            )
            if not found.late:
                return
            repaired = repairing(work, found)
            warm_up = restart_before(SESSION, repaired, found.slices, beginning=found.beginning)
        except RequestError as error:
            self._note_refusal(error)
            return
        assert not self.is_lost, "new code repairs the chain of the old one"
        head = self.shown[max(self.shown)].chain.spec
        spec = head._replace(lateness_ms=found.lateness_ms)
        first = (found.slices[0].start_ms - day_start_ms(0)) // DAY_MS
        days = range(first, first + len(found.slices))
        [beginning] = {self._beginning(day) for day in days}
        fresh = self._after(self._whole(spec, first, beginning), days)
        assert spec.lateness_ms >= max(self.shown[day].visible.spec.lateness_ms for day in fresh), "a repair is undone"
        outcome = self._request(repaired, asked_for(found, who=WHO, warm_up=warm_up), fresh, publishes=publishes)
        event("repair: " + ("refused or killed" if outcome is None else "done"))
        if outcome is not None and outcome.is_published:
            for day, chain in fresh.items():
                assert expected_rows(self.shown[day].visible) == expected_rows(chain), day

    @rule(death=DEATHS)
    def publish(self, *, death: tuple[str, int] | None) -> None:
        seen = len(self.seen.publications)
        self._decide(lambda work: publish(work, who=WHO), death)
        for publication in self.seen.publications[seen:]:
            assert not self.seen.requests[publication.request_id or ""].is_candidate

    @precondition(lambda self: self.seen.standing)
    @rule(death=DEATHS)
    def roll_back(self, *, death: tuple[str, int] | None) -> None:
        newest = self.seen.standing[-1]
        self._decide(
            lambda work: rollback(work, publication=newest.seq, reason=WHO, who=WHO),
            death,
            must_be_stored=self.now_ms - newest.at_ms < self.kept_ms,
        )

    @precondition(lambda self: self.seen.open_requests())
    @rule(number=st.integers(0, 3))
    def cancel(self, number: int) -> None:
        requests = self.seen.open_requests()
        request_id = requests[number % len(requests)].request_id
        self._decide(
            lambda work: cancel(work, request_id, reason=WHO, by=By(who=WHO, decision_id=work.new_id())),
            None,
            changes_readers=False,
        )

    @rule()
    def verify_all(self) -> None:
        work = self._work()
        assert not verify(work.lake, "late", work.ledger.view()).findings

    @rule(days=st.integers(1, 3))
    def wait(self, days: int) -> None:
        self.now_ms += days * DAY_MS

    @rule(retention=RETENTIONS, death=CLEANING_DEATHS)
    def clean_up(self, retention: tuple[int | None, int | None, int | None], death: tuple[str, int] | None) -> None:
        """Remove what killed processes left, and rows past a retention. All that readers and next slices need stays."""
        work = self._work(death)
        superseded, unpublished, checkpoints = [None if days is None else days * DAY_MS for days in retention]
        self.kept_ms = min(self.kept_ms, self.kept_ms if superseded is None else superseded)
        grammar = RetentionGrammar().model_copy(
            update={"superseded_ms": superseded, "unpublished_ms": unpublished, "checkpoints_ms": checkpoints}
        )
        assert isinstance(work.ledger, MortalLedger)
        MortalFiles.process = work.ledger.process
        work = replace(work, pipeline=work.pipeline.model_copy(update={"retention": grammar}))
        files = MortalFiles(lake=work.lake, pipeline="late")
        check = rows_checker(work.lake, "late")
        try:
            done = clean(work, files, older_than_ms=0, who=WHO, check_rows=check, dry_run=False)
        except KeyboardInterrupt:
            event("a clean-up was killed")
        else:
            for rows in done.rows:
                event(f"rows removed: {rows.why.value}")
            again = clean(work, files, older_than_ms=0, who=WHO, check_rows=check, dry_run=True)
            assert (again.rows, again.files, again.condemned) == ((), (), ())
        self._take_in({}, may_publish=False)
        self.verify_all()

    @precondition(lambda self: self.shown and max(self.shown) + 1 < len(self.log) and not self.is_lost)
    @rule()
    def run_next(self) -> None:
        """The schedule's next slice finds its state, whatever was cleaned up."""
        day = max(self.shown) + 1
        work, _ = on_published_spec(self._work())
        if day < _first_day(work):
            return
        slices = slices_between(work.pipeline, day_start_ms(day), day_start_ms(day + 1))
        assert work.plan(work.ledger.view(), Ask(slices=slices)).start.before == self._head().checkpoint
        fresh = {day: self.shown[day - 1].chain.then(self.log[day])}
        self._request(work, self._asked(slices), fresh, publishes=True, is_refused_without_state=False)

    def _head(self) -> StagedRun:
        head = self.seen.head
        assert head is not None
        return head

    def _asked(
        self, slices: Sequence[Slice], *, warm_up: WarmUp | None = None, if_open: IfOpen = IfOpen.REFUSE
    ) -> Asked:
        bounds = slices[0].start_ms, slices[-1].end_ms
        return Asked(from_ms=bounds[0], to_ms=bounds[1], who=WHO, reason="", warm_up=warm_up, if_open=if_open)

    def _decide(
        self,
        decision: Callable[[RequestContext], object],
        death: tuple[str, int] | None,
        *,
        changes_readers: bool = True,
        must_be_stored: bool = False,
    ) -> None:
        try:
            decision(self._work(death))
        except RequestError as error:
            self._note_refusal(error)
            changes_readers = False
        except LedgerError as error:
            self._note_removal(error, is_allowed=not must_be_stored)
            changes_readers = False
        except KeyboardInterrupt:
            pass
        self._take_in({}, may_publish=changes_readers)

    def _note_removal(self, error: Exception, *, is_allowed: bool) -> None:
        """Check that a step was refused because a clean-up has removed what it needs, and that it may be gone."""
        assert is_allowed, error
        assert "removed by a clean-up" in str(error), error
        event(f"refused after a clean-up: {type(error).__name__}")

    # The steps

    def _work(self, death: tuple[str, int] | None = None) -> RequestContext:
        """Return the context of a new process. All processes before it are dead."""
        process = Process(*(death or ("", 0)))
        work = open_request_context(self.pipeline, Lake(root=str(self.root)), now_ms=lambda: self.now_ms)
        ledger = MortalLedger(work.ledger.uri, now_ms=lambda: self.now_ms)
        ledger.process = process
        return replace(work, ledger=ledger, is_alive=lambda _holder: False)

    def _request(
        self,
        work: RequestContext,
        asked: Asked,
        fresh: dict[int, Chain] | None,
        *,
        publishes: bool,
        chunk: int = 2,
        is_refused_without_state: bool = True,
    ) -> RequestOutcome | None:
        """Run a request; return None if it is refused or killed."""
        assert isinstance(work.ledger, MortalLedger)
        outcome: RequestOutcome | None = None
        may_publish = publishes
        try:
            outcome = run_request(
                work, asked, work.ledger.process.replayer(), staging=Staging(chunk=chunk), publish=publishes
            )
            may_publish = outcome.is_published
        except (RequestError, LogError) as error:
            self._note_refusal(error)
            if "removed by a clean-up" in str(error):
                self._note_removal(error, is_allowed=is_refused_without_state)
            may_publish = False
        except KeyboardInterrupt:
            event("a request was killed")
        assert fresh is not None or outcome is None, "a request without a start was not refused"
        self._take_in(fresh or {}, may_publish=may_publish)
        return outcome

    def _note_refusal(self, error: Exception) -> None:
        """Record the first words of a refusal."""
        event(f"refused: {type(error).__name__}")

    def _take_in(self, fresh: Mapping[int, Chain], *, may_publish: bool) -> None:
        """Take the newest events of the ledger into the model: what was staged, published and rolled back."""
        view = self._ledger().view()
        for request in view.requests.values():
            earlier = self.seen.requests.get(request.request_id)
            for slice_id, run_id in request.runs.items():
                if earlier is None or earlier.runs.get(slice_id) != run_id:
                    self.pending[request.request_id, _day_of(view, slice_id)] = fresh[_day_of(view, slice_id)]
        new = view.publications[len(self.seen.publications) :]
        assert len(new) <= (1 if may_publish else 0), "readers see something else after a refusal"
        for publication in new:
            event("a publication" if publication.undoes is None else "a rollback")
            self._take_in_publication(view, publication)
        self.seen = view

    def _take_in_publication(self, view: LedgerView, publication: Publication) -> None:
        self.before[publication.seq] = dict(self.shown)
        if publication.undoes is not None:
            self.shown = dict(self.before[publication.undoes])
            return
        request: Request = view.requests[publication.request_id or ""]
        days = [_day_of(view, slice_id) for slice_id in publication.changes]
        staged = {day: chain for day in days if (chain := self.pending.get((request.request_id, day))) is not None}
        if request.is_repair:
            self.shown |= {day: Shown(self.shown[day].chain, staged[day], request.request_id) for day in days}
            return
        together = self._ended_repairs(view, staged) - staged.keys()
        assert {*days} == {*staged, *together}, "a part of a repair is left"
        self.shown |= {day: Shown(self.shown[day].chain) for day in together}
        self.shown |= {day: Shown(chain) for day, chain in staged.items()}

    def _ended_repairs(self, view: LedgerView, days: Iterable[int]) -> set[int]:
        """Return the days of the repairs that have read some days, and of those that touch them."""
        repairs = {shown.request_id for shown in self.shown.values() if shown.repair is not None}
        ranges, read = dict[str, tuple[int, int]](), dict[str, int]()
        for id_ in repairs:
            request = view.requests[id_]
            from_ms, to_ms = request.from_ms or 0, request.to_ms or 0
            ranges[id_] = _day_at(from_ms), _day_at(to_ms)
            read[id_] = _day_at(from_ms if request.warm_up is None else request.warm_up.first.start_ms)
        ended = {id_ for id_, (_, end) in ranges.items() if any(read[id_] <= day < end for day in days)}
        while (
            new := {
                id_ for id_, (a, b) in ranges.items() if any(a <= ranges[it][1] and ranges[it][0] <= b for it in ended)
            }
            - ended
        ):
            ended |= new
        return {day for day, shown in self.shown.items() if shown.request_id in ended}

    def _ledger(self) -> Ledger:
        return open_request_context(self.pipeline, Lake(root=str(self.root)), now_ms=lambda: self.now_ms).ledger

    # The laws

    @invariant()
    def readers_see_what_the_model_computes(self) -> None:
        view = self._ledger().view()
        assert len(view.publications) == len(self.seen.publications)
        assert {_day_of(view, slice_id) for slice_id in view.published} == set(self.shown)
        if not self.shown:
            return
        lake = Lake(root=str(self.root))
        stored = StoredRuns(lake, "late", view)
        for run in published_runs(view):
            found = rows_of({name: stored.read(name, [run]) for name in COMPARED})
            day = _day_of(view, run.result.slice.slice_id)
            assert found == expected_rows(self.shown[day].visible), day
        chains = [self.shown[day].visible for day in sorted(self.shown)]
        assert view_rows(published_table(lake.root, "late")) == expected_view(chains)

    @invariant()
    def the_published_chain_is_unbroken(self) -> None:
        """A run that has continued the chain continues it, unless a rollback shows what readers saw before."""
        before: StagedRun | None = None
        is_undone = bool(self.seen.publications) and self.seen.publications[-1].undoes is not None
        joined = set[str]()
        for slice_id in self.seen.published:
            run = self.seen.published_chain_run(slice_id)
            assert run is not None
            is_next = before is not None and before.result.slice.end_ms == run.result.slice.start_ms
            if before is not None and is_next and run.result.state_before == before.result.state_after:
                joined.add(run.result.run_id)
            else:
                assert run.is_chain_start or run.result.state_before == EMPTY_STATE, slice_id
                assert is_undone or run.result.run_id not in self.joined, slice_id
            before = run
        self.joined = joined


def _first_day(work: RequestContext) -> int:
    """Return the day of `log.slice.first`. While an edit is not adopted, that is the one of the published chain."""
    first_ms = slice_grid(work.pipeline).first_ms
    return 0 if first_ms is None else (first_ms - day_start_ms(0)) // DAY_MS


def _day_of(view: LedgerView, slice_id: str) -> int:
    return _day_at(view.slices[slice_id].start_ms)


def _day_at(at_ms: int) -> int:
    return (at_ms - day_start_ms(0)) // DAY_MS


MOST: Final = 60
"""A machine takes about 1.5 s, and a state machine has no limit of time in `make fuzz`."""
TestRepairMachine = RepairMachine.TestCase
TestRepairMachine.settings = settings(
    max_examples=min(cases(1), MOST),
    stateful_step_count=40,
    suppress_health_check=[*HealthCheck],
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
