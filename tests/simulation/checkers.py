"""One checker per invariant. Each is called after every commit of the ledger, every removal of a file or every read.

A checker gets the commit, the view before and after it, and what the `Observer` has folded by rules of its own. It
raises an AssertionError; the schedule then fails with the name of the checker.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ParamSpec

from jobs.lake.plain_table import Shows
from jobs.ledger.chain import Row
from jobs.ledger.events import EventKind, coordinates_of
from jobs.ledger.looks import Look
from jobs.ledger.view import LedgerView, RequestKind
from jobs.planning.request_context import covers
from jobs.reading.published import published_runs
from jobs.reading.stored_rows import run_attempt
from jobs.runs import EMPTY_STATE, Verdict
from tests.simulation.actors import Actor
from tests.simulation.command_checkers import (
    a_current_table_shows_a_published_state,
    a_mend_keeps_every_run,
    a_program_leaves_the_current_table_at_its_publication,
    follow_leaves_what_a_person_decides,
    follow_runs_no_slice_twice,
)
from tests.simulation.observer import Commit, Observer, Seen, filled
from tests.simulation.replays import judged_by_hash
from tests.simulation.restatement_checkers import (
    a_look_tells_what_the_log_had,
    a_proposal_is_new_and_alone,
    a_repair_ends_as_a_whole,
    a_repair_leaves_the_chain,
    a_restatement_keeps_the_spec_of_the_chain,
    a_run_is_seen_in_a_log_with_its_records,
    a_stored_look_tells_what_the_log_had,
    no_older_records_come_back,
    readers_see_rows_of_the_log,
    settled_rows_change_only_with_a_decision,
)
from tests.simulation.storage_checkers import (
    a_condemned_attempt_has_no_holder_and_no_run,
    no_file_of_a_run_is_gone,
    no_needed_row_is_deleted,
)
from tests.simulation.world import CURRENT, SETTLED_RULE, SLICES, World

P = ParamSpec("P")


class Violation(AssertionError):  # noqa: N818
    """An invariant does not hold. `checker` is the name of its checker."""

    def __init__(self, checker: str, error: object) -> None:
        self.checker = checker
        super().__init__(f"{checker}: {error}")


# --- after every commit -----------------------------------------------------------------------------------------------


def the_history_is_linear_and_chained(observer: Observer, rows: Sequence[Row], version: int) -> None:
    """The commit continues the one before. Its rows have the hashes that their content has."""
    assert {row["seq"] for row in rows} == {version}, "a commit's number is the ledger's version"
    assert rows[0]["commit_id"] not in observer.commits, "a commit is there twice"
    assert rows[0]["previous"] == observer.tip, "a commit does not continue the one before"
    observer.commits.add(rows[0]["commit_id"])
    observer.tip = observer.world.table.history(version, uri="memory").tip


def no_run_is_staged_twice(commit: Commit) -> None:
    for event in commit.of(EventKind.STAGED):
        run = (str(event.attempt_id), str(event.slice_id))
        assert run not in commit.observer.staged, "an attempt is staged twice"
        commit.observer.staged.add(run)


def no_run_is_stolen(commit: Commit) -> None:
    """The process that started an attempt stages it, and no other process."""
    started_by = commit.observer.started_by
    for event in commit.of(EventKind.STARTED):
        started_by[str(event.attempt_id)] = commit.actor.pid
    for event in commit.of(EventKind.STAGED) if not commit.of(EventKind.MENDED) else ():
        assert started_by[str(event.attempt_id)] == commit.actor.pid, "another process staged the attempt"


def no_publication_is_lost_or_merged(commit: Commit) -> None:
    observer = commit.observer
    published, reverted = commit.of(EventKind.PUBLISHED), commit.of(EventKind.ROLLED_BACK)
    assert not (published and reverted), "a commit publishes or rolls back"
    assert len({event.request_id for event in published}) <= 1, "a commit publishes one request"
    changes: Seen = {str(event.slice_id): event.run_id for event in (*published, *reverted)}
    if changes:
        observer.published_by[commit.actor.pid] = commit.version
    if published:
        observer.standing.append((commit.version, dict(observer.seen)))
    observer.seen.update(changes)
    shown = filled(observer.seen) if changes else observer.published_at[-1]
    if reverted:
        seq, earlier = observer.standing.pop()
        assert reverted[0].details["undoes"] == seq, "a rollback reverts the newest publication"
        assert shown == filled(earlier), "readers see what they saw before the publication"
    observer.published_at.append(shown)
    assert commit.view.published == shown, "readers see another state than was published"


def readers_see_a_chain(commit: Commit) -> None:
    """A run that was first a part of a warm-up may begin the chain with nothing."""
    if commit.shows_the_same:
        return
    state_after: dict[str, str] = {}
    for index, slice_ in enumerate(SLICES):
        run = commit.view.published_chain_run(slice_.slice_id)
        if run is None:
            continue
        state_after[slice_.slice_id] = run.result.state_after
        if not run.is_chain_start:
            before = state_after.get(SLICES[index - 1].slice_id, EMPTY_STATE)
            assert run.result.state_before == before, "a run follows its predecessor"


def only_passed_or_waived_runs_are_published(commit: Commit) -> None:
    waived, before = commit.observer.waived, commit.before
    waived.update(str(event.run_id) for event in commit.of(EventKind.WAIVED))
    for event in commit.of(EventKind.CLOSED):
        if event.details.get("decision"):
            runs = set(before.requests[str(event.request_id)].runs.values())
            waived.difference_update(runs - set(before.published.values()))
    for event in commit.of(EventKind.ROLLED_BACK):
        waived.discard(before.published[str(event.slice_id)])
        waived.update(filter(None, [event.run_id]))  # readers see it again, by an earlier publication
    for event in commit.of(EventKind.PUBLISHED):
        run = commit.view.run(str(event.run_id))
        assert run.is_publishable, "a failed run is not published"
        assert run.verdict is not Verdict.FAIL or run.result.run_id in waived, "its waiver has ended"


def a_published_run_was_judged(commit: Commit) -> None:
    if SETTLED_RULE not in commit.world.rule:
        return
    for event in commit.of(EventKind.PUBLISHED):
        judgement = commit.view.run(str(event.run_id)).judgement
        expected = judged_by_hash(commit.before, commit.before.requests[str(event.request_id)])[str(event.run_id)]
        assert judgement is not None, "a run was published without a judgement"
        assert judgement.checks == expected, "it was judged against what readers saw"


def no_live_request_is_ended(commit: Commit) -> None:
    world, actor = commit.world, commit.actor
    for request, now in commit.changed:
        if not request.is_open or now.is_open:
            continue
        holders = {lease.holder.pid for lease in request.leases if lease.holder is not None}
        if request.is_repair and actor.pid in holders and not commit.of(EventKind.PUBLISHED):
            continue  # the repair is refused, and each of its holders would be refused
        for lease in request.leases:
            is_own = lease.holder is not None and lease.holder.pid == actor.pid
            if is_own or actor.pid in world.dag_leases.get(lease.lease_id, ()):
                continue
            assert not commit.looks_held(lease), (
                f"{actor.name} ended request {request.request_id}, on which {lease} works"
            )


def a_rollback_holds_the_schedule(commit: Commit) -> None:
    before, published = commit.before, commit.of(EventKind.PUBLISHED)
    if before.hold is None or not published or commit.world.kinds.get(commit.actor.pid) == "person":
        return
    request = before.requests[str(published[0].request_id)]
    assert request.kind is RequestKind.RANGE, "the schedule published in a hold"
    assert request.opened_seq > before.hold.seq, "a request from before the rollback was published"


def an_ended_request_does_not_change(commit: Commit) -> None:
    for request, now in commit.changed:
        assert request.is_open or now.runs == request.runs, "no run is added to it"


def a_request_is_published_whole(commit: Commit) -> None:
    published = commit.of(EventKind.PUBLISHED)
    if not published:
        return
    request = commit.before.requests[str(published[0].request_id)]
    if request.is_repair:  # of the other slices, it has the rows that readers see
        assert request.runs.items() <= commit.view.published.items(), "every run of the repair is published"
        return
    wanted = (
        set(request.runs)
        if request.from_ms is None
        else {slice_.slice_id for slice_ in SLICES if covers(request, slice_)}
    )
    for slice_id in wanted:
        run = commit.view.published_chain_run(slice_id)
        assert run is not None, "every slice of the range is published"
        assert run.result.spec_fingerprint == request.spec_fingerprint, "every slice has the spec of the request"


def a_publication_closes_only_settled_requests(commit: Commit) -> None:
    """Of each slice of it, readers see a run of a later request, or one with the same spec and rows."""
    published = commit.of(EventKind.PUBLISHED)
    if not published:
        return
    view = commit.view
    request = view.requests[str(published[0].request_id)]
    for event in commit.of(EventKind.CLOSED):
        other, head = view.requests[str(event.request_id)], view.head
        was_proposed = commit.before.requests[other.request_id].is_proposed
        if was_proposed and head is not None and other.spec_fingerprint != head.result.spec_fingerprint:
            continue  # nothing has begun to restate slices with the spec of before
        is_older = other.opened_seq < request.opened_seq
        makers = ((past, view.requests.get(past.request_id or "")) for past in view.standing)
        later = {
            name for past, maker in makers if maker and maker.opened_seq > other.opened_seq for name in past.changes
        }
        for slice_ in (slice_ for slice_ in SLICES if covers(other, slice_) and slice_.slice_id not in later):
            if is_older and (covers(request, slice_) or slice_.slice_id in request.runs):
                continue
            shown, own = view.published_run(slice_.slice_id), other.runs.get(slice_.slice_id)
            assert shown is not None, "readers do not see a slice of a request that was closed as settled"
            if own is not None and view.run(own).result.digests == shown.result.digests:
                assert shown.result.spec_fingerprint == other.spec_fingerprint, "the other spec was not adopted"
                continue
            publisher = next(past for past in reversed(view.standing) if slice_.slice_id in past.changes)
            opened_seq = view.requests[str(publisher.request_id)].opened_seq
            assert opened_seq > other.opened_seq, "only an older request is superseded"


def an_erasure_is_accepted_once_and_before_it_is_replayed(commit: Commit) -> None:
    log, entries = commit.world.log, commit.view.accepted
    commits = [(entry.table_id, entry.rewrite.version, entry.rewrite.actions) for entry in entries]
    assert len(commits) == len({*commits}), "a commit is accepted twice"
    accepted = {(entry.table_id, entry.rewrite.version) for entry in commit.before.accepted}
    for event in commit.of(EventKind.STAGED):
        read = coordinates_of(event.details["log"])
        number = log.opened_at.get((read.table_id, read.version, read.digest))
        if read.table_id != log.table_id or number not in log.versions:
            continue
        known = {version: slice_ for version, slice_ in log.rewrites_at(read.version).items() if version >= log.expired}
        digests = log.commits[number].digests.items()
        own = (event.slice_id, read.digest)
        reading = next(reading for (slice_, reading), digest in digests if (slice_.slice_id, digest) == own)
        reads = [(version, reader) for version, slice_ in known.items() for reader in log.readers(slice_, reading)]
        lost = {(read.table_id, version) for version, reader in reads if reader.slice_id == event.slice_id}
        is_accepted = lost <= accepted
        assert is_accepted, "a run has read what is left of a commit that nobody has accepted"


def a_candidate_stays_beside_the_chain(commit: Commit) -> None:
    """Only a person publishes it, in place of what it was compared with. It checks no run that readers see."""
    before, kinds = commit.before, {event.kind for event in commit.events}
    for event in commit.events:
        request = before.requests.get(event.request_id or "")
        if request is None or not request.is_candidate:
            continue
        if event.kind is EventKind.CHECKED:
            assert not before.is_in_chain(str(event.run_id)), "a candidate has checked a run of the chain"
        if event.kind is EventKind.CLOSED:
            assert EventKind.PUBLISHED not in kinds, "a publication has closed a candidate"
        if event.kind is EventKind.PUBLISHED:
            assert commit.world.kinds.get(commit.actor.pid) == "person", "only a person publishes a candidate"
            for slice_id, then in request.compared_with.items():
                seen = before.published.get(slice_id)
                assert seen in {then, request.runs.get(slice_id)}, "it replaces what it was not compared with"
            head = commit.view.head
            assert head is not None, "a promotion publishes slices"
            assert head.result.spec_fingerprint == request.spec_fingerprint, "the chain ends with another spec"


AFTER_COMMITS: Mapping[Callable[[Commit], None], Collection[EventKind]] = {
    a_mend_keeps_every_run: {EventKind.MENDED},
    no_run_is_staged_twice: {EventKind.STAGED},
    no_run_is_stolen: {EventKind.STARTED, EventKind.STAGED},
    no_publication_is_lost_or_merged: (),
    readers_see_a_chain: (),
    only_passed_or_waived_runs_are_published: {
        EventKind.WAIVED,
        EventKind.CLOSED,
        EventKind.ROLLED_BACK,
        EventKind.PUBLISHED,
    },
    a_published_run_was_judged: {EventKind.PUBLISHED},
    no_live_request_is_ended: (),
    a_rollback_holds_the_schedule: {EventKind.PUBLISHED},
    an_ended_request_does_not_change: (),
    a_request_is_published_whole: {EventKind.PUBLISHED},
    a_publication_closes_only_settled_requests: {EventKind.PUBLISHED},
    a_condemned_attempt_has_no_holder_and_no_run: {EventKind.STAGED, EventKind.CONDEMNED},
    an_erasure_is_accepted_once_and_before_it_is_replayed: {EventKind.ACCEPTED, EventKind.STAGED},
    a_candidate_stays_beside_the_chain: {EventKind.CHECKED, EventKind.CLOSED, EventKind.PUBLISHED},
    follow_leaves_what_a_person_decides: {EventKind.REQUESTED, EventKind.PUBLISHED},
    follow_runs_no_slice_twice: {EventKind.STAGED},
    a_stored_look_tells_what_the_log_had: {EventKind.LOOKED},
    a_run_is_seen_in_a_log_with_its_records: {EventKind.VERIFIED},
    a_proposal_is_new_and_alone: {EventKind.REQUESTED, EventKind.CLOSED},
    no_older_records_come_back: {EventKind.PUBLISHED},
    a_restatement_keeps_the_spec_of_the_chain: {EventKind.PUBLISHED},
    settled_rows_change_only_with_a_decision: {EventKind.WAIVED, EventKind.PUBLISHED},
    a_repair_leaves_the_chain: {EventKind.PUBLISHED},
    a_repair_ends_as_a_whole: {EventKind.PUBLISHED},
    readers_see_rows_of_the_log: {EventKind.PUBLISHED, EventKind.ROLLED_BACK},
}
"""Checker -> the kinds of the events that it looks at. Without any, it is called after every commit."""


@cache
def checkers_of(kinds: tuple[EventKind, ...]) -> tuple[Callable[[Commit], None], ...]:
    """Return the checkers of a commit with events of these kinds, in their order."""
    return tuple(checker for checker, own in AFTER_COMMITS.items() if not own or not {*own}.isdisjoint(kinds))


# --- after every read -------------------------------------------------------------------------------------------------


def a_reader_sees_a_published_state(observer: Observer, view: LedgerView, *, at: int | None) -> None:
    """A clean-up may have removed the rows of an earlier version. A reader of it then gets an error that names it."""
    assert at is None or view.version == at, "the reader asked for another version"
    assert dict(view.published) == published_at(observer, view.version), "readers see a state that nobody published"
    if at is not None and any(run_id in view.removed_runs for run_id in view.published.values()):
        return
    for slice_id, attempt_id in map(run_attempt, published_runs(view)):
        assert (attempt_id, slice_id) in observer.staged, "readers see an attempt that was not staged"


def a_reader_never_goes_back(world: World, view: LedgerView, *, newest: int) -> None:
    """It may not see a compaction, which has no events, and must see every later commit that it has seen before."""
    lacking = [seq for seq in range(view.version + 1, newest + 1) if world.table.commits[seq - 1]]
    assert not lacking, f"a reader saw version {newest}, and then version {view.version}"


def published_at(observer: Observer, version: int) -> dict[str, str]:
    """Return what readers see at a version; compactions at the end of the ledger change nothing."""
    return observer.published_at[min(version, len(observer.published_at) - 1)]


@dataclass
class Checkers:
    """Calls the checkers, and keeps the first violation: code of the product may catch the exception."""

    observer: Observer
    violation: Violation | None = None

    def committed(self, actor: Actor, rows: Sequence[Row]) -> None:
        observer, version = self.observer, len(self.observer.world.table.commits)
        while len(observer.published_at) < version:
            observer.published_at.append(observer.published_at[-1])  # compactions
        self._run(the_history_is_linear_and_chained, observer, rows, version)
        history, before = observer.world.table.history(version, uri="memory"), observer.view
        events = history.events[-len(rows) :]
        observer.written.update({event.kind.value for event in events})
        observer.view = history.project.view(version)
        commit = Commit(
            actor=actor, rows=rows, events=events, before=before, view=observer.view, version=version, observer=observer
        )
        for checker in checkers_of(commit.kinds):
            self._run(checker, commit)
        self._run(no_file_of_a_run_is_gone, observer.world, observer.view)
        if not commit.has_the_same_runs:
            self._run(no_needed_row_is_deleted, observer, None)

    def removed(self, paths: Collection[str]) -> None:
        """Check after the rows of files were deleted, or a file was removed."""
        world = self.observer.world
        self._run(no_file_of_a_run_is_gone, world, self.observer.view)
        self._run(no_needed_row_is_deleted, self.observer, {*map(world.rows_of, paths)})

    def looked(self, view: LedgerView, look: Look, run_ids: Collection[str]) -> None:
        """Check what a process finds out about some runs by a look at the log."""
        self._run(a_look_tells_what_the_log_had, self.observer.world.log, view, look, run_ids)

    def moved(self, shows: Shows, rows: Mapping[str, str]) -> None:
        """Check after a move of the current table."""
        self._run(a_current_table_shows_a_published_state, self.observer, shows, rows)

    def ended(self, actor: Actor) -> None:
        """Check after a process has ended without an error. A DAG run may have hidden one, which its next run mends."""
        world = self.observer.world
        is_killed = actor.is_dead or actor.error is not None
        if CURRENT in world.rule and not is_killed and world.kinds.get(actor.pid) != "dag":
            self._run(a_program_leaves_the_current_table_at_its_publication, self.observer, actor.pid)

    def read(self, view: LedgerView, *, newest: int, at: int | None) -> None:
        """Check what a reader sees; `newest` is the newest version that the same reader has seen."""
        observer = self.observer
        self._run(a_reader_sees_a_published_state, observer, view, at=at)
        if at is None:
            self._run(a_reader_never_goes_back, observer.world, view, newest=newest)

    def _run(self, checker: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        try:
            checker(*arguments, **named)
        except Exception as error:  # a broken ledger may also break the product's views
            self.violation = self.violation or Violation(checker.__name__, str(error) or repr(error))
            raise self.violation from error
