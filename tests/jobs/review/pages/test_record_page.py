"""The scope of a search, and what it finds."""

from pathlib import Path
from random import Random

import pytest

from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext
from jobs.readers import published_table
from jobs.review.pages.record_page import SearchLimits, find, search_scope, windows_of_key
from tests.jobs.review.pages.conftest import DAYS, Made
from tests.support.day_chains import Place, Put, run
from tests.support.fuzzing import seeds
from windowlib.errors import RequestError


def test_searches_in_one_scope_after_the_other_cover_all_slices_once(made: Made) -> None:
    for seed in seeds(2):
        rng = Random(seed)
        work, _ = made(rng)
        view = work.ledger.view()
        limits = SearchLimits(
            slices=rng.randrange(1, 5), read=rng.randrange(60), beside=rng.randrange(40), panes=rng.randrange(5)
        )
        seen: list[str] = []
        scope = search_scope(view, limits=limits)
        while scope is not None:
            assert list(scope.view.published) == sorted(scope.slices)
            seen = [*sorted(scope.slices), *seen]
            scope = search_scope(view, scope.older, limits=limits) if scope.older else None
        assert seen == list(view.slices), f"seed {seed}"


def test_a_record_is_found_in_its_scope_only(made: Made) -> None:
    work, _ = made(Random(5))
    view = work.ledger.view()
    one = SearchLimits(slices=1)
    record_id = next(f"{DAYS[0]}/a/{amount}" for amount in range(9) if _has(work, view, f"{DAYS[0]}/a/{amount}"))
    newest, oldest = search_scope(view, limits=one), search_scope(view, DAYS[0], limits=one)
    assert newest is not None
    assert oldest is not None
    assert find(work.lake, work.pipeline, record_id, scope=newest).explanation is None
    found = find(work.lake, work.pipeline, record_id, scope=oldest).explanation
    assert found is not None
    assert (found.fate, found.slice_id) == ("assigned", DAYS[0])


def _has(work: RequestContext, view: LedgerView, record_id: str) -> bool:
    scope = search_scope(view)
    return scope is not None and find(work.lake, work.pipeline, record_id, scope=scope).explanation is not None


def test_the_windows_of_a_key_are_the_newest_first(made: Made) -> None:
    work, _ = made(Random(7))
    scope = search_scope(work.ledger.view())
    assert scope is not None
    rows, count = windows_of_key(work.lake, work.pipeline, {"key": "a"}, scope=scope, most=2)
    assert (rows.num_rows, count) == (2, 3)
    assert rows["slice_id"].to_pylist() == [DAYS[2], DAYS[1]]
    _, none = windows_of_key(work.lake, work.pipeline, {"key": "' OR 1=1 --"}, scope=scope, most=2)
    assert none == 0


def test_a_slice_that_the_ledger_does_not_have_is_refused(made: Made) -> None:
    work, _ = made(Random(9))
    with pytest.raises(RequestError, match="no slice"):
        search_scope(work.ledger.view(), "1999-01-01")


@pytest.mark.slow
def test_a_window_that_a_slice_after_the_scope_replaced_is_not_shown(tmp_path: Path) -> None:
    """A record of the third day fires a window of the first day again."""
    place = Place(tmp_path)
    place.put(Put(0, 1), Put(0, 5, 5), Put(1, 25), Put(2, 49), Put(2, 5.5, 100), Put(3, 73))
    work = place.work(lateness="3d")
    run(work, 0, 4)
    view = work.ledger.view()
    newest = {row["window_start"]: row["total"] for row in published_table(str(tmp_path), "late").to_pylist()}
    seen: list[tuple[str, int]] = []
    for last in view.slices:
        scope = search_scope(view, last, limits=SearchLimits(slices=1))
        assert scope is not None
        rows, count = windows_of_key(work.lake, work.pipeline, {"k": "1"}, scope=scope, most=50)
        assert count == rows.num_rows
        assert set(rows["slice_id"].to_pylist()) <= scope.slices
        seen += [(row["window_start"].isoformat(), row["total"]) for row in rows.to_pylist()]
    assert sorted(seen) == sorted((start.isoformat(), total) for start, total in newest.items())
    whole = search_scope(view, "1970-01-06")
    assert whole is not None
    older, _ = windows_of_key(work.lake, work.pipeline, {"k": "1.0"}, scope=whole, most=50)
    assert older["total"].to_pylist() == [1], "readers see the window [04:00, 06:00) in the third slice"
