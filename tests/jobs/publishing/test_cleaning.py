"""`hindcast clean` over a real ledger and real tables: what is removed, what stays, and what the ledger records.

tests/simulation plays it beside other writers.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.lake.leftover_files import LakeFiles
from jobs.ledger.ledger import Ledger
from jobs.orchestration.attempts import AttemptCondemned
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.publishing.cleaning import Leftovers, clean, rows_checker
from jobs.reading.verify import verify
from jobs.replay.orders import ReplayOrder
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales
from windowlib.errors import StoreError

DAY_MS = 86_400_000
SCRATCH = "sales/_scratch"


class Killed(BaseException):
    """The process ends at once."""


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    for day in ("2024-01-01", "2024-01-02"):
        append_day(tmp_path, day, {"a": 10, "b": 1})
    found = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: now_ms() + 30 * DAY_MS)
    return replace(found, is_alive=lambda _holder: False)


def run(work: RequestContext, replayer: FakeReplayer) -> None:
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-03"), who="me", reason="test")
    run_request(work, asked, replayer, staging=Staging())


def leave(order: ReplayOrder) -> None:
    """Leave files as a task of the attempt does that is killed."""
    root = Path(order.lake.root)
    for place in (f"{SCRATCH}/{order.attempt_id}", f"sales/window_outputs/slice_id=x/attempt_id={order.attempt_id}"):
        (root / place).mkdir(parents=True)
        (root / place / "part-1.parquet").write_bytes(b"half")


def leave_and_die(order: ReplayOrder) -> None:
    leave(order)
    raise Killed


def cleaned(work: RequestContext, *, older_than_ms: int = 7 * DAY_MS, dry_run: bool = False) -> Leftovers:
    files = LakeFiles(lake=work.lake, pipeline="sales")
    check = rows_checker(work.lake, "sales")
    return clean(work, files, older_than_ms=older_than_ms, who="ann", check_rows=check, dry_run=dry_run)


def stored(work: RequestContext) -> set[str]:
    root = Path(work.lake.root)
    found = (Path(directory, name) for directory, _, names in os.walk(root / "sales") for name in names)
    return {
        str(path.relative_to(root)) for path in found if "_delta_log" not in str(path) and "/ledger/" not in str(path)
    }


def test_what_a_killed_attempt_left_is_removed_and_the_attempt_is_condemned(work: RequestContext) -> None:
    killed = FakeReplayer(on_order=leave_and_die)
    with pytest.raises(Killed):
        run(work, killed)
    run(work, FakeReplayer())
    before, version = stored(work), work.ledger.view().version
    tried = cleaned(work, dry_run=True)
    assert (len(tried.files), tried.is_removed) == (2, False)
    assert (stored(work), work.ledger.view().version) == (before, version)
    found = cleaned(work)
    [attempt_id] = found.condemned
    assert attempt_id == killed.orders[0].attempt_id
    assert {*found.files} == {*tried.files}
    assert stored(work) == {path for path in before if attempt_id not in path}
    assert work.ledger.view().condemned_attempts == {attempt_id}
    assert verify(work.lake, "sales", work.ledger.view()).findings == ()
    again = cleaned(work)
    assert (again.files, again.condemned) == ((), ())


def test_files_of_tasks_that_were_tried_again_are_removed_and_the_run_stays(work: RequestContext) -> None:
    replayer = FakeReplayer(on_order=leave)
    run(work, replayer)
    seen = work.ledger.view().published
    found = cleaned(work)
    assert (len(found.files), found.condemned) == (2, ())
    assert work.ledger.view().published == seen
    assert verify(work.lake, "sales", work.ledger.view()).findings == ()


def test_what_a_process_works_on_stays_whatever_its_age(work: RequestContext) -> None:
    alive = replace(work, is_alive=lambda _holder: True)

    def inspect(order: ReplayOrder) -> None:
        leave(order)
        before = stored(work)
        found = cleaned(alive, older_than_ms=0)
        assert (found.files, found.held, found.condemned) == ((), (order.attempt_id,), ())
        assert stored(work) == before

    run(alive, FakeReplayer(on_order=inspect))
    assert len(work.ledger.view().published) == 2


def test_nothing_is_removed_where_a_table_has_lost_the_commits_of_a_run(work: RequestContext) -> None:
    """The files of the run are then files that no commit names, and they are needed to repair the table."""
    run(work, FakeReplayer())
    newest = max((Path(work.lake.root) / "sales/window_outputs/_delta_log").glob("*.json"))
    newest.unlink()
    before = stored(work)
    with pytest.raises(StoreError, match=r"no file was removed\. Run `hindcast verify sales`"):
        cleaned(work)
    assert stored(work) == before


def test_young_files_stay(work: RequestContext) -> None:
    with pytest.raises(Killed):
        run(work, FakeReplayer(on_order=leave_and_die))
    found = cleaned(work, older_than_ms=40 * DAY_MS)
    assert (found.files, found.condemned, found.young) == ((), (), 2)


def test_an_attempt_that_is_condemned_while_it_runs_is_not_staged_and_runs_again(work: RequestContext) -> None:
    """The clean-up took the process for dead, for example because it was on another host and its lease had expired."""

    def leave_and_lose(order: ReplayOrder) -> None:
        leave(order)
        assert cleaned(work, older_than_ms=0).condemned == (order.attempt_id,)

    replayer = FakeReplayer(on_order=lambda order: leave_and_lose(order) if len(replayer.orders) == 1 else None)
    run(work, replayer)
    assert len(replayer.orders) == 2
    view = work.ledger.view()
    assert {run.result.attempt_id for run in view.runs.values()} == {replayer.orders[1].attempt_id}
    assert len(view.published) == 2


def test_two_condemned_attempts_in_a_row_end_the_command_with_an_error(work: RequestContext) -> None:
    def lose(order: ReplayOrder) -> None:
        leave(order)
        cleaned(work, older_than_ms=0)

    with pytest.raises(AttemptCondemned, match="Run the same command again"):
        run(work, FakeReplayer(on_order=lose))
    run(work, FakeReplayer())
    assert len(work.ledger.view().published) == 2


def test_files_of_an_attempt_that_the_ledger_does_not_know_are_removed_when_it_is_condemned(
    work: RequestContext,
) -> None:
    """A ledger that was restored from a backup does not know the newest attempts."""
    run(work, FakeReplayer())
    place = Path(work.lake.root) / SCRATCH / "0f"
    place.mkdir(parents=True)
    (place / "fragment.arrow").write_bytes(b"x")
    assert cleaned(work).condemned == ("0f",)
    assert not place.exists()


def test_a_lease_of_another_host_holds_the_files_until_it_expires(work: RequestContext) -> None:
    elsewhere = replace(work, is_alive=lambda _holder: None)
    hour_ms = 3_600_000
    later = replace(elsewhere, ledger=Ledger(work.ledger.uri, now_ms=lambda: work.ledger.now_ms() + hour_ms))

    def inspect(order: ReplayOrder) -> None:
        leave(order)
        assert cleaned(elsewhere, older_than_ms=0).held == (order.attempt_id,)
        if len(killed.orders) == 1:
            assert cleaned(later, older_than_ms=0).condemned == (order.attempt_id,)

    killed = FakeReplayer(on_order=inspect)
    run(elsewhere, killed)
    assert len(killed.orders) == 2
    assert len(work.ledger.view().published) == 2
