"""The checkers of restatements and late repairs: looks at the log, proposals, and the rows that readers see then."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from jobs.ledger.events import EventKind, coordinates_of
from jobs.ledger.leases import is_held
from jobs.ledger.looks import Look
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.publishing.chain_rules import lateness_ms
from jobs.reading.stored_tables import spec_of
from jobs.runs import EMPTY_STATE, SETTLED, Verdict
from tests.simulation.event_log import EventLog
from tests.simulation.replays import CARRIED, LATER, NOTHING, Carried, Counted, judged_by_hash, windows_of
from tests.simulation.world import SETTLED_RULE, SLICES

if TYPE_CHECKING:
    from tests.simulation.observer import Commit


def a_look_tells_what_the_log_had(log: EventLog, view: LedgerView, look: Look, run_ids: Collection[str]) -> None:
    """At the version of a look, exactly the slices that it names had other files than their runs have read.

    If the log has got a commit during the look, its version is that of a part of the slices. It is not stored then. A
    look may name more slices if log retention has removed commits since their runs, or those that have changed them.
    """
    if not look.commit or look.table_id != log.table_id or not log.has_commit(look.version, look.commit):
        return
    number = log.numbers[look.commit]
    accepted = {entry.rewrite.version for entry in view.accepted if entry.table_id == look.table_id}
    rewrites = log.rewrites_at(look.version)
    changed, unknown = set(), set()
    for run in map(view.run, run_ids):
        slice_, chain = run.result.slice, view.chain_run(run.result.run_id)
        reading = log.reading_of(spec_of(view, run), look.first)
        removals = [version for version, lost in rewrites.items() if slice_ in log.readers(lost, reading)]
        is_lost = any(version not in accepted and version >= log.expired for version in removals)
        read = records_read(log, run)
        if chain.result.input_fingerprint == run.result.input_fingerprint:  # else it is not a repair of this run
            read |= records_read(log, chain)
        is_left_out = log.slices.index(slice_) < reading.first  # its run has read slices that no run reads now
        if not is_left_out and (is_lost or log.records_at(slice_, reading, number) not in read):
            changed.add(slice_.slice_id)
        seen = [own.log.version for own in (*run.sightings, *chain.sightings) if own.log.table_id == look.table_id]
        if is_left_out or not seen or max(seen) + 1 < log.expired or any(version < log.expired for version in removals):
            unknown.add(slice_.slice_id)
    wrong = look.changed.keys() ^ changed
    assert not wrong - (unknown - changed), f"it names {sorted(look.changed)}, and {sorted(changed)} have changed"


def a_stored_look_tells_what_the_log_had(commit: "Commit") -> None:
    before, look = commit.before, commit.view.look
    assert look is not None, "a look was written"
    a_look_tells_what_the_log_had(commit.world.log, before, look, before.published.values())


def records_read(log: EventLog, run: StagedRun) -> set[str]:
    """Return the digests of the records of a run."""
    name = run.result.slice.slice_id
    return {log.records[name, seen.log.digest] for seen in run.sightings if seen.is_equal}


def a_run_is_seen_in_a_log_with_its_records(commit: "Commit") -> None:
    """The ledger records of a run that a log has its records only if no record was added or removed since."""
    for event in commit.of(EventKind.VERIFIED):
        log, run = commit.world.log, commit.before.run(str(event.run_id))
        if event.details["equal"]:
            now = log.records[str(event.slice_id), coordinates_of(event.details["log"]).digest]
            assert now in records_read(log, run), "the log has other records"


def a_proposal_is_new_and_alone(commit: "Commit") -> None:
    """A proposed restatement is of changed records that no person has declined. No other proposal is free to start.

    A late repair is proposed only if no repair is open.
    """
    before, observer, records = commit.before, commit.observer, commit.world.log.records
    for event in commit.of(EventKind.CLOSED):
        request = before.requests[str(event.request_id)]
        if event.details.get("decision"):
            observer.declined.update((name, records[name, log.digest]) for name, log in request.changes.items())
    closed = {event.request_id for event in commit.of(EventKind.CLOSED)}
    for event in commit.of(EventKind.REQUESTED):
        request = commit.view.requests[str(event.request_id)]
        others = [other for other in before.open_requests(request.kind) if other.request_id != request.request_id]
        if request.kind is RequestKind.RESTATEMENT:
            assert request.changes, "it restates nothing"
            for name, log in request.changes.items():
                assert (name, records[name, log.digest]) not in observer.declined, (
                    f"a person has declined the records of {name}"
                )
                run = before.published_run(name)
                assert run is not None, f"{name} is not published"
                assert records[name, log.digest] not in records_read(commit.world.log, run), f"{name} has not changed"
            left = [other for other in others if other.request_id not in closed]
            free = [other for other in left if other.is_proposed and not _may_look_held(commit, other)]
            assert not free, "two proposals"
        if request.kind is RequestKind.REPAIR and not commit.of(EventKind.LEASED):
            assert {other.request_id for other in others} <= closed, "two proposed repairs"


def _may_look_held(commit: "Commit", request: Request) -> bool:
    """Return whether the actor could see at its last read, or at its write, that somebody works on a request."""
    world, actor = commit.world, commit.actor
    ahead_ms = world.ahead_ms.get(actor.pid, 0)
    return any(
        is_held(lease, now_ms=now_ms + ahead_ms, is_alive=lambda holder: world.is_alive(actor, holder))
        for lease in request.leases
        for now_ms in (world.last_read_ms.get(actor.pid, world.now_ms), world.now_ms)
    )


def no_older_records_come_back(commit: "Commit") -> None:
    """A publication shows no records that were no longer in the log when the run was made that readers saw before."""
    before, log = commit.before, commit.world.log
    for event in commit.of(EventKind.PUBLISHED):
        name, run_id = str(event.slice_id), str(event.run_id)
        shown, new = before.published_run(name), commit.view.run(run_id)
        if shown is not None and shown.result.input_fingerprint != new.result.input_fingerprint:
            then = max(log.number_of(seen.log) for seen in shown.sightings if seen.is_equal)
            last = max(log.last_seen(digest) for digest in records_read(log, new))
            assert last >= then, f"{name} has records that commit {last} had last, and readers saw those of {then}"


def a_restatement_keeps_the_spec_of_the_chain(commit: "Commit") -> None:
    before = commit.before
    for event in commit.of(EventKind.PUBLISHED):
        request, head = before.requests[str(event.request_id)], before.head
        run = before.published_chain_run(str(event.slice_id))
        if request.kind is RequestKind.RESTATEMENT and run is not None and head is not None:
            specs = {run.result.spec_fingerprint, head.result.spec_fingerprint}
            assert request.spec_fingerprint in specs, "a restatement has undone an adoption"


def settled_rows_change_only_with_a_decision(commit: "Commit") -> None:
    """If the rule on settled windows is broken, a person has waived this very change, and no other one."""
    if SETTLED_RULE not in commit.world.rule:
        return
    before, decided = commit.before, commit.observer.decided
    for event in commit.of(EventKind.WAIVED):
        checks = before.run(str(event.run_id)).result.checks
        decided.update((str(event.run_id), check.observed) for check in checks if check.table == SETTLED)
    for event in commit.of(EventKind.PUBLISHED):
        run_id = str(event.run_id)
        for check in judged_by_hash(before, before.requests[str(event.request_id)])[run_id]:
            is_allowed = check.verdict is Verdict.PASS or (run_id, check.observed) in decided
            assert is_allowed, f"settled windows of {event.slice_id} have changed, and no person has decided that"


def a_repair_leaves_the_chain(commit: "Commit") -> None:
    """The publication of a repair changes no run of the chain."""
    before, published = commit.before, commit.of(EventKind.PUBLISHED)
    if published and before.requests[str(published[0].request_id)].is_repair:
        assert _chain(commit.view) == _chain(before), "a repair has changed the chain"


def _chain(view: LedgerView) -> dict[str, str]:
    return {name: view.chain_run_id(run_id) for name, run_id in view.published.items()}


def a_repair_ends_as_a_whole(commit: "Commit") -> None:
    """Readers see no run of a repair that has read a slice, perhaps for its warm-up, and the chain has another run."""
    before, view = commit.before, commit.view
    published = commit.of(EventKind.PUBLISHED)
    if not view.repairs or not published or before.requests[str(published[0].request_id)].is_repair:
        return
    now, then = _chain(view), _chain(before)
    changed = [slice_ for slice_ in SLICES if now.get(slice_.slice_id) != then.get(slice_.slice_id)]
    repaired = [name for name, run_id in view.published.items() if now[name] != run_id]
    for name in repaired:
        publisher = next(past.request_id for past in reversed(view.standing) if name in past.changes)
        repair = view.requests[str(publisher)]
        first_ms = repair.from_ms if repair.warm_up is None else repair.warm_up.first.start_ms
        read = [slice_ for slice_ in changed if (first_ms or 0) <= slice_.start_ms < (repair.to_ms or 0)]
        assert not read, f"{name} is that of a repair, and {read[0].slice_id}, which it has read, is another one now"


def readers_see_rows_of_the_log(commit: "Commit") -> None:
    """The rows of each slice are those of an undisturbed run over what its published chain has read.

    A repair has read the same records as the chain, also of the slice before. A late record that readers have seen in a
    window is in the newer pane of that window, too: it is not lost.
    """
    if commit.shows_the_same:
        return
    view, log = commit.view, commit.world.log
    before: StagedRun | None = None
    for slice_ in SLICES:
        shown, chain = view.published_run(slice_.slice_id), view.published_chain_run(slice_.slice_id)
        if shown is None or chain is None:
            before = None
            continue
        assert shown.result.input_fingerprint == chain.result.input_fingerprint, "a repair has read other records"
        _check_rows(view, log, shown, chain=chain, before=before)
        before = shown


def _check_rows(
    view: LedgerView, log: EventLog, shown: StagedRun, *, chain: StagedRun, before: StagedRun | None
) -> None:
    name, spec = shown.result.slice.slice_id, spec_of(view, shown)
    counted, state = _counted(view, log, shown), chain.result.state_before
    carried = CARRIED.get(state, NOTHING)
    goes_on = before is not None and view.chain_run(before.result.run_id).result.state_after == state
    if shown is not chain and LATER in counted.late:
        if before is None or not goes_on:
            if state != EMPTY_STATE:
                return  # the chain begins with a warm-up, of which the checker does not know the records
        else:
            allowed_ms = lateness_ms(spec)
            carried = Carried(carried.windows, _counted(view, log, before, allowed_ms=allowed_ms).carried.late)
    rows = counted.digests(windows_of(spec), carried)
    assert dict(shown.result.digests) == rows, f"readers see other rows of {name} than its records have"
    counts = shown.result.counts
    fates = counts.assigned + counts.late + counts.duplicate
    assert fates == counts.read, f"a record of {name} is counted twice, or not at all"


def _counted(view: LedgerView, log: EventLog, run: StagedRun, *, allowed_ms: int | None = None) -> Counted:
    result = run.result
    amounts = log.contents[result.slice.slice_id, result.input_fingerprint]
    return Counted.of(amounts, lateness_ms(spec_of(view, run)) if allowed_ms is None else allowed_ms)
