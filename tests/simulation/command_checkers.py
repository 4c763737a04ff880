"""The checkers of single commands: current tables, `hindcast follow` and `hindcast mend`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from jobs.lake.plain_table import Shows
from jobs.ledger.events import EventKind
from jobs.ledger.view import LedgerView

if TYPE_CHECKING:
    from tests.simulation.observer import Commit, Observer

FOLLOW: Final = "follow"
FOLLOWED: Final = "follows the publications of None"
"""The reason of the requests of a `follow` that publishes. The log of the simulated pipeline is a plain table."""
STAGED_ONLY: Final = f"{FOLLOWED}, staged with --no-publish"


def a_current_table_shows_a_published_state(observer: "Observer", shows: Shows, rows: Mapping[str, str]) -> None:
    """It has exactly what readers saw at the publication that it names, and never goes back to an earlier one."""
    seq, _at_ms = shows
    assert seq >= observer.current_seq, f"the table went from publication {observer.current_seq} back to {seq}"
    assert rows == observer.published_at[seq], f"the table does not have the runs of publication {seq}"
    observer.current_seq = seq


def a_program_leaves_the_current_table_at_its_publication(observer: "Observer", pid: int) -> None:
    """A process that ends without an error has moved the table, or another one has moved it further."""
    own = observer.published_by.get(pid, 0)
    assert observer.current_seq >= own, f"the table shows {observer.current_seq}, and the process published {own}"


def follow_leaves_what_a_person_decides(commit: "Commit") -> None:
    """It neither publishes nor replaces a request that waits for a person: one of another command, or a waived one.

    A request that was staged with --no-publish waits, too; it is replaced by another such one only.
    """
    before = commit.before
    if commit.world.kinds.get(commit.actor.pid) != FOLLOW:
        return
    for event in commit.of(EventKind.PUBLISHED):
        is_own = before.requests[str(event.request_id)].reason == FOLLOWED
        assert is_own, "it publishes the request of another command"
    for opened in commit.of(EventKind.REQUESTED):
        for event in commit.of(EventKind.CLOSED):
            closed = before.requests[str(event.request_id)]
            assert closed.reason in {FOLLOWED, opened.reason}, "it replaces the request of a person"
            runs = [run for run in map(before.runs.get, closed.runs.values()) if run is not None]
            assert not any(run.waiver is not None for run in runs), "it replaces a request that a person has waived"


def follow_runs_no_slice_twice(commit: "Commit") -> None:
    pid, followed = commit.actor.pid, commit.observer.followed
    if commit.world.kinds.get(pid) != FOLLOW:
        return
    for event in commit.of(EventKind.STAGED):
        assert (pid, str(event.slice_id)) not in followed, "one command has replayed a slice twice"
        followed.add((pid, str(event.slice_id)))


def a_mend_keeps_every_run(commit: "Commit") -> None:
    """Another attempt counts for the run. What the run has computed, and what readers see, stay as they are."""
    before, view = commit.before, commit.view
    for event in commit.of(EventKind.MENDED):
        run_id, attempt = str(event.run_id), (str(event.attempt_id), str(event.slice_id))
        assert attempt not in commit.observer.staged, "an attempt is staged twice"
        assert event.attempt_id not in before.condemned_attempts, "a condemned attempt counts for a run"
        commit.observer.staged.add(attempt)
        assert _computed(view, run_id) == _computed(before, run_id), "a mended run has other rows"
        assert view.run(run_id).result.attempt_id == event.attempt_id, "the mended rows do not count"
        assert view.published == before.published, "a mend changes what readers see"
        assert [*before.runs] == [name for name in view.runs if name in before.runs], "a mend loses a run"
        assert before.requests.keys() == view.requests.keys(), "a mend opens a request"


def _computed(view: LedgerView, run_id: str) -> tuple[object, ...]:
    run = view.run(run_id)
    result = run.result
    digests = {**result.digests}
    return digests, result.state_before, result.state_after, result.spec_fingerprint, run.is_publishable, run.waiver
