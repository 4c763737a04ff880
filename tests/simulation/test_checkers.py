"""The checkers can fail: with each of these defects in the protocol, a schedule violates an invariant.

Each defect is a change of product code, or of the store on which it relies. The test plays schedules until one fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from jobs.cli import follow, run as run_command
from jobs.lake import event_log
from jobs.lake.commit_history import GroupHistory
from jobs.lake.log_match import Match
from jobs.ledger import view
from jobs.ledger.chain import Row
from jobs.ledger.events import LedgerEvent
from jobs.ledger.ledger import Ledger
from jobs.ledger.projection import Projection
from jobs.ledger.table import ConflictError
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.orchestration import attempts, late_repair, mending, repair_proposals, requests
from jobs.pipeline.look_back import LookBack
from jobs.planning import assessing, chains, changed_slices, request_context, restating
from jobs.publishing import cleaning, judging, publishing, rules
from jobs.publishing.retention import Need
from tests.simulation.command_checkers import FOLLOWED
from tests.simulation.current_table import CurrentTable
from tests.simulation.memory_store import MemoryStore
from tests.simulation.schedules import FailedSchedule, play

MOST_SCHEDULES = 1_500
Patch = Callable[[pytest.MonkeyPatch], None]


def nothing(*_positional: object, **_named: object) -> None:
    return None


def without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """The store accepts a second commit of a version: it overwrites the first."""

    def append(store: MemoryStore, rows: Sequence[Row]) -> None:
        actor = store.access.actor()
        actor.stop_here("put commit")
        del store.table.commits[store._versions[actor] :]
        store.table.commits.append([dict(row) for row in rows])
        store.access.committed(rows)

    patch.setattr(MemoryStore, "append", append)


def lost_race_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    """A writer that has lost a race behaves as if its commit was written."""
    append = MemoryStore.append

    def quiet(store: MemoryStore, rows: Sequence[Row]) -> None:
        try:
            append(store, rows)
        except ConflictError:
            return

    patch.setattr(MemoryStore, "append", quiet)


def unknown_outcome_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    """A commit that failed is written again, although it may have been written."""
    real = Ledger._append

    def forgetful(self: Ledger, events: Sequence[LedgerEvent], *, version: int) -> bool:
        taken_in = self._take_in_new_events

        def without_ids() -> int:
            newest = taken_in()
            self._history = replace(self._history, commits={})  # other processes keep the ids
            return newest

        self._take_in_new_events = without_ids  # type: ignore[method-assign]
        try:
            return real(self, events, version=version)
        finally:
            del self._take_in_new_events

    patch.setattr(Ledger, "_append", forgetful)


def decided_once(patch: pytest.MonkeyPatch) -> None:
    """A write does not decide again after a lost race."""
    write = Ledger.write

    def once(self: Ledger, decide: Callable[[LedgerView], Sequence[LedgerEvent]]) -> LedgerView:
        decided: list[Sequence[LedgerEvent]] = []

        def decision(now: LedgerView) -> Sequence[LedgerEvent]:
            if not decided:
                decided.append(decide(now))
            return decided[0]

        return write(self, decision)

    patch.setattr(Ledger, "write", once)


def leases_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(view, "is_held", lambda *_positional, **_named: False)


def merged_publications(patch: pytest.MonkeyPatch) -> None:
    """The projection keeps the first publication of a slice."""
    publish = Projection._publish

    def merge(self: Projection, event: LedgerEvent) -> None:
        shown = [past.changes.get(str(event.slice_id)) for past in self._publications.values()]
        publish(self, event if not any(shown) else replace(event, run_id=next(run for run in shown if run)))

    patch.setattr(Projection, "_publish", merge)


def rollback_without_effect(patch: pytest.MonkeyPatch) -> None:
    change = Projection._change_what_readers_see

    def only_publish(self: Projection, event: LedgerEvent, *, undoes: int | None) -> None:
        if undoes is None:
            change(self, event, undoes=undoes)

    patch.setattr(Projection, "_change_what_readers_see", only_publish)


def condemned_attempt_staged(patch: pytest.MonkeyPatch) -> None:
    staged = attempts._staged

    def without_check(now: LedgerView, *rest: Any) -> list[LedgerEvent]:  # noqa: ANN401 - those of the function
        return staged(replace(now, condemned_attempts=frozenset()), *rest)

    patch.setattr(attempts, "_staged", without_check)


def named_files_removed(patch: pytest.MonkeyPatch) -> None:
    """A clean-up reads which files the tables name before it reads the ledger."""
    clean = cleaning.clean

    def early(work: Any, files: Any, **options: Any) -> object:  # noqa: ANN401 - those of the function
        named = files.named(("panes", "late", "timers"))
        patch.setattr(type(files), "named", lambda _self, _tables: named)
        return clean(work, files, **options)

    patch.setattr("tests.simulation.programs.clean", early)


def settled_by_any(patch: pytest.MonkeyPatch) -> None:
    """A publication closes all other waiting requests."""
    real = publishing._settles

    def settles(work: Any, now: LedgerView, request: Any, *, other: Any) -> bool:  # noqa: ANN401
        real(work, now, request, other=other)
        return other.request_id != request.request_id and not request_context.is_live(work, other)

    patch.setattr(publishing, "_settles", settles)


def stale_head_ignored(patch: pytest.MonkeyPatch) -> None:
    """A reader does not compare the version with the one that it has seen."""

    def take_in(self: Ledger) -> int:
        version = self._store.refresh()
        if version > self._history.known:
            self._read(after=self._history.known)
        if version < self._history.known:
            self._forget()
            self._read(after=0)
        return version

    patch.setattr(Ledger, "_take_in_new_events", take_in)
    patch.setattr(Ledger, "_is_unknown", lambda _self, _head: False)


def unjudged(patch: pytest.MonkeyPatch) -> None:
    """Nobody judges how much a publication changes settled windows, and the publication does not ask for it."""
    patch.setattr(judging, "is_due", lambda *_positional: False)
    patch.setattr(rules, "_unjudged", nothing)


def no_open_requests(patch: pytest.MonkeyPatch) -> None:
    """A clean-up does not keep the rows of runs that wait for a publication."""
    patch.setattr(Need, "_open", ())


def a_table_moved_from_any_version(patch: pytest.MonkeyPatch) -> None:
    """A move of a current table replaces what another process has written since it was read."""
    move = CurrentTable.replace

    def late(table: CurrentTable, plain: Any, actions: Any, new: Any) -> bool:  # noqa: ANN401
        while not move(table, plain, actions, new):
            plain = replace(plain, version=len(table.versions))
        return True

    patch.setattr(CurrentTable, "replace", late)


def followed_twice(patch: pytest.MonkeyPatch) -> None:
    """`follow` replays what it has replayed already."""

    def twice(_work: Any, asked: Any, run: Any, *, publishes: bool, ways: str) -> None:  # noqa: ANN401
        del ways
        for _ in range(2):
            run(replace(asked, is_fresh=True), publish=publishes)

    patch.setattr(run_command, "_in_its_turn", twice)


def a_repair_of_other_records(patch: pytest.MonkeyPatch) -> None:
    """Nobody compares the records of a repair with those that the chain has read."""
    for module in (late_repair, repair_proposals):
        patch.setattr(module, "check_current", nothing)
    patch.setattr("tests.simulation.programs.check_current", nothing)
    patch.setattr(late_repair, "_check_input", nothing)


def one_more_repair(patch: pytest.MonkeyPatch) -> None:
    """A late repair is proposed although one is open."""

    def proposed(work: Any, repair: Any, *, warm_up: Any, who: str, reason: str = "") -> Request:  # noqa: ANN401
        asked, request_id = late_repair.asked_for(repair, who=who, warm_up=warm_up, reason=reason), work.new_id()
        event = request_context.requested_event(late_repair.repairing(work, repair), asked, request_id=request_id)
        opened: Request = work.ledger.write(lambda _view: [event]).requests[request_id]
        return opened

    patch.setattr(repair_proposals, "propose", proposed)
    patch.setattr("tests.simulation.programs.propose", proposed)


def published_again(patch: pytest.MonkeyPatch) -> None:
    """A request is published over later publications of its slices, which have not closed it."""
    for name in ("_replaced", "outdated", "of_undone_spec"):
        patch.setattr(rules, name, nothing)
    patch.setattr(publishing, "_settles", lambda *_positional, **_named: False)


def mended_with_other_records(patch: pytest.MonkeyPatch) -> None:
    """A mend replays what the log has now, and does not compare the rows with those of the run."""
    patch.setattr(mending, "match_input", lambda *_positional: Match.SAME)
    patch.setattr(mending, "_compare", nothing)


def restored_at_a_loss(patch: pytest.MonkeyPatch) -> None:
    """A RESTORE brings records back, and what it has lost of those that were appended since does not matter."""
    mend = GroupHistory._mend

    def careless(history: GroupHistory, version: int) -> None:
        del history.removals[1:]
        mend(history, version)

    patch.setattr(GroupHistory, "_mend", careless)


def without_look_back(patch: pytest.MonkeyPatch) -> None:
    """A look forgets that a commit concerns the slices after its own, which read it for `log.distinct`."""

    def own(_work: object, view: LedgerView, runs: Sequence[StagedRun]) -> list[LookBack]:
        return [LookBack(slices=tuple(view.slices[run.result.slice.slice_id] for run in runs))]

    patch.setattr(changed_slices, "_look_backs", own)


@dataclass(frozen=True)
class Defect:
    """A change of the protocol. `checker` has to find it, or any if it is empty. The search begins with seed `first`.

    The seeds are those at which a search from 0 ended once, so that the test is fast.
    """

    change: Patch
    checker: str = ""
    first: int = 0


def dropped(place: object, name: str) -> Patch:
    """Return the change that a function answers None: a rule of publication is not checked."""
    return lambda patch: patch.setattr(place, name, nothing)


def always(place: object, name: str, *, value: object) -> Patch:
    return lambda patch: patch.setattr(place, name, lambda *_positional, **_named: value)


DEFECTS = {
    "no compare-and-set": Defect(without_compare_and_set, "the_history_is_linear_and_chained"),
    "a lost race is taken for a commit": Defect(lost_race_taken_for_written),
    "an unknown outcome is taken for a lost race": Defect(unknown_outcome_taken_for_lost, first=50),
    "one decision for all tries": Defect(decided_once, first=23),
    "leases are ignored": Defect(leases_ignored, first=15),
    "publish without the chain": Defect(dropped(rules, "_broken_chain"), "readers_see_a_chain", first=74),
    "publish without the checks": Defect(dropped(rules, "_held"), "only_passed_or_waived_runs_are_published"),
    "a waiver outlives the decision against it": Defect(
        dropped(Projection, "_end_waivers"), "only_passed_or_waived_runs_are_published", first=89
    ),
    "publish while another works": Defect(dropped(rules, "_worked_on"), "no_live_request_is_ended", first=850),
    "publish a part": Defect(dropped(rules, "_incomplete"), "a_request_is_published_whole", first=2138),
    "publish in a hold": Defect(dropped(rules, "_rolled_back"), "a_rollback_holds_the_schedule", first=126),
    "publish without a judgement": Defect(unjudged, "a_published_run_was_judged"),
    "a projection that merges": Defect(merged_publications, "no_publication_is_lost_or_merged"),
    "a rollback without effect": Defect(rollback_without_effect, "no_publication_is_lost_or_merged", first=3),
    "a run of an ended request": Defect(always(attempts, "may_stage", value=True), first=197),
    "a run of a condemned attempt": Defect(condemned_attempt_staged, first=42),
    "held attempts are condemned": Defect(
        always(cleaning, "_busy", value=set()), "a_condemned_attempt_has_no_holder_and_no_run", first=29
    ),
    "files are removed by an old list of names": Defect(named_files_removed, "no_file_of_a_run_is_gone"),
    "rows of open requests are deleted": Defect(no_open_requests, "no_needed_row_is_deleted", first=12),
    "a publication closes everything": Defect(settled_by_any, "a_publication_closes_only_settled_requests"),
    "a reader goes back": Defect(stale_head_ignored, first=65),
    "a publication leaves the current table": Defect(
        dropped(publishing, "move_current_tables"), "a_program_leaves_the_current_table_at_its_publication"
    ),
    "two moves of a current table": Defect(
        a_table_moved_from_any_version, "a_current_table_shows_a_published_state", first=58
    ),
    "follow takes every request for its own": Defect(
        always(follow, "_purpose", value=FOLLOWED), "follow_leaves_what_a_person_decides", first=1075
    ),
    "follow replays again": Defect(followed_twice, "follow_runs_no_slice_twice", first=5),
    "a mend of a condemned attempt": Defect(dropped(mending, "_refuse_lost_rows"), "a_mend_keeps_every_run", first=655),
    "mended rows do not count": Defect(dropped(Projection, "_mend"), "a_mend_keeps_every_run", first=3),
    "a mend with other records": Defect(mended_with_other_records, "a_mend_keeps_every_run", first=102),
    "records that were removed are read": Defect(
        lambda patch: patch.setattr(GroupHistory, "broken", None),
        "an_erasure_is_accepted_once_and_before_it_is_replayed",
        first=20,
    ),
    "a RESTORE brings nothing back": Defect(dropped(GroupHistory, "_mend"), "a_look_tells_what_the_log_had", first=105),
    "a RESTORE loses nothing": Defect(
        restored_at_a_loss, "an_erasure_is_accepted_once_and_before_it_is_replayed", first=140
    ),
    "commits that are gone are known": Defect(
        always(event_log, "known_since", value=0), "a_look_tells_what_the_log_had", first=86
    ),
    "a look reads no commit": Defect(
        always(changed_slices, "_touched", value={}), "a_look_tells_what_the_log_had", first=8
    ),
    "a look does not look back": Defect(without_look_back, "a_look_tells_what_the_log_had", first=20),
    "a declined restatement is proposed again": Defect(
        always(assessing, "_declined", value={}), "a_proposal_is_new_and_alone", first=31
    ),
    "a run is seen in any log": Defect(
        always(requests, "match_input", value=Match.SAME), "a_run_is_seen_in_a_log_with_its_records", first=1326
    ),
    "a proposal that was left stays": Defect(
        always(restating, "is_free", value=False), "a_proposal_is_new_and_alone", first=4184
    ),
    "each run proposes a repair": Defect(one_more_repair, "a_proposal_is_new_and_alone"),
    "older records come back": Defect(published_again, "no_older_records_come_back", first=2639),
    "a repair becomes the chain": Defect(dropped(Projection, "_chain_of"), "a_repair_leaves_the_chain", first=24),
    "a repair of other records": Defect(a_repair_of_other_records, "readers_see_rows_of_the_log", first=27),
    "a repair ends in part": Defect(always(chains, "ended_repairs", value=[]), "a_repair_ends_as_a_whole"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_simulation_finds_a_defect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defect = DEFECTS[name]
    defect.change(monkeypatch)
    failure = next(filter(None, map(failure_of, range(defect.first, defect.first + MOST_SCHEDULES))), None)
    assert failure is not None, f"{MOST_SCHEDULES} schedules did not find: {name}"
    assert defect.checker in {"", failure.checker}, failure


def failure_of(seed: int) -> FailedSchedule | None:
    try:
        play(seed)
    except FailedSchedule as failure:
        return failure
    return None
