"""The checkers of stored rows: clean-ups condemn no attempt that is worked on, and remove nothing that is needed."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from jobs.ledger.events import EventKind
from jobs.ledger.view import LedgerView
from tests.simulation.world import Rows, World

if TYPE_CHECKING:
    from tests.simulation.observer import Commit, Observer


def a_condemned_attempt_has_no_holder_and_no_run(commit: "Commit") -> None:
    before = commit.before
    for event in commit.of(EventKind.STAGED):
        assert event.attempt_id not in before.condemned_attempts, "no run of a condemned attempt is staged"
    for event in commit.of(EventKind.CONDEMNED):
        assert event.attempt_id not in before.staged_attempts, "an attempt with a run is not condemned"
        owners = [
            request
            for request in before.open_requests()
            if event.attempt_id in {attempt.attempt_id for attempt in request.attempts}
        ]
        held = any(commit.looks_held(lease) for owner in owners for lease in owner.leases)
        assert not held, "an attempt on which somebody works is not condemned"


def no_file_of_a_run_is_gone(world: World, view: LedgerView) -> None:
    for path in world.gone:
        assert world.places[path][1] not in view.staged_attempts, f"{path} is a file of a run"


def no_needed_row_is_deleted(observer: "Observer", rows: Collection[Rows] | None) -> None:
    """Readers have the rows of what they see, open requests those of their runs, and the next slice its state.

    Only a commit of the ledger changes what is needed, and only a removal takes `rows` away. None: after a commit.
    """
    if rows is None:
        rows = observer.needed = needed_rows(observer.view)
    for place in rows:
        assert place not in observer.needed or observer.world.has_rows(*place), observer.needed[place]


def needed_rows(view: LedgerView) -> dict[Rows, str]:
    """Return the rows that a view needs, and what is wrong without them."""
    needed = {}
    shown = {*view.published.values(), *map(view.chain_run_id, view.published.values())}
    for run_id in shown.union(*(request.runs.values() for request in view.open_requests())):
        run = view.runs.get(run_id)
        assert run is not None, f"a clean-up has removed run {run_id}"
        result = run.result
        needed["panes", (result.slice.slice_id, result.attempt_id)] = f"the rows of {run_id} are deleted"
    head = view.head
    if head is not None:
        assert head.checkpoint_removal is None, "the state of the head is removed"
        result = head.result
        needed["timers", (result.slice.slice_id, result.attempt_id)] = "the state of the head is deleted"
    return needed
