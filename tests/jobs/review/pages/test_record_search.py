"""The search by a part of an id: page after page, it finds what is in the log, and tells how far it came."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.review.pages.record_page import find, scope_after
from jobs.review.pages.record_search import MOST_FOUND, FoundRecord, Searched, filled_slices, search_records
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales
from tests.support.fuzzing import seeds
from windowlib.errors import RequestError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 7)]
KEYS = ("Ann", "bob", "50%", "a_b", "ünï", "x.y")


def made(root_of: Callable[[str], object], rng: Random) -> tuple[RequestContext, set[FoundRecord]]:
    """Return a lake, some days of which have no record, and all records of the log."""
    root = root_of("lake")
    records: set[FoundRecord] = set()
    for number, day in enumerate(DAYS):
        if number and rng.random() < 0.4:
            continue
        amounts = {key: rng.randrange(30) for key in rng.sample(KEYS, 3)}
        append_day(root, day, amounts)  # type: ignore[arg-type]
        records |= {FoundRecord(record_id=f"{day}/{key}/{one}", slice_id=day) for key, one in amounts.items()}
    work = open_request_context(sales(), Lake(root=str(root)), now_ms=lambda: day_ms("2024-02-01"))
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-07"), who="ines", reason="r")
    run_request(work, asked, FakeReplayer())
    return work, records


def pages(work: RequestContext, part: str, *, ticks: int) -> list[Searched]:
    """Search until the end. The clock goes on by a second with each look; a page has `ticks` seconds."""
    found: list[Searched] = []
    last: str | None = None
    while not found or found[-1].older is not None:
        clock = count().__next__
        found.append(
            search_records(
                work.lake, work.pipeline, work.ledger.view(), part=part, last=last, seconds=ticks, clock=clock
            )
        )
        last = found[-1].older
    return found


@pytest.mark.slow
def test_all_pages_together_find_every_record_once_and_search_every_slice_with_records(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for seed in seeds(3):
        rng = Random(seed)
        work, records = made(tmp_path_factory.mktemp, rng)
        filled = sorted({one.slice_id for one in records})
        assert list(filled_slices(work.ledger.view())) == filled
        for part in ("ANN", "%", "_", ".", "ü", "2024-01-0", "/1", "nothing", "' OR 1=1 --"):
            found = pages(work, part, ticks=rng.choice((0, 1, 3)))
            wanted = {one for one in records if part.lower() in one.record_id.lower()}
            assert {one for page in found for one in page.records} == wanted, f"seed {seed}, {part}"
            assert sum(len(page.records) for page in found) == len(wanted)
            assert sum(page.searched for page in found) == len(filled) == found[-1].total
            assert found[0].last == filled[-1]
            assert found[-1].first == filled[0]
            done = 0
            for page in found:
                assert page.before == done
                done += page.searched


def test_without_time_a_page_searches_one_slice(tmp_path_factory: pytest.TempPathFactory) -> None:
    work, records = made(tmp_path_factory.mktemp, Random(4))
    found = pages(work, "/", ticks=0)
    assert {page.searched for page in found} == {1}
    assert len(found) == len({one.slice_id for one in records})


def test_an_exact_id_ends_the_search_and_is_explained_in_its_slice(tmp_path_factory: pytest.TempPathFactory) -> None:
    work, records = made(tmp_path_factory.mktemp, Random(5))
    view = work.ledger.view()
    for one in records:
        searched = search_records(work.lake, work.pipeline, view, part=one.record_id, seconds=60)
        assert searched.only(one.record_id) == one
        explained = find(work.lake, work.pipeline, one.record_id, scope=scope_after(view, one.slice_id)).explanation
        assert explained is not None
        assert (explained.slice_id, explained.fate) == (one.slice_id, "assigned")
    with pytest.raises(RequestError, match="no slice"):
        search_records(work.lake, work.pipeline, view, part="x", last="1999-01-01", seconds=60)
    with pytest.raises(RequestError, match="no slice"):
        scope_after(view, "1999-01-01")


def test_more_records_than_a_page_lists_are_told_and_the_exact_one_is_never_cut(tmp_path: Path) -> None:
    for day, more in ((DAYS[0], 0), (DAYS[1], 1), (DAYS[2], 0)):
        append_day(tmp_path, day, {f"k{number}": 1 for number in range(MOST_FOUND + more)})
    exact = f"{DAYS[0]}/k1/1"
    append_day(tmp_path, DAYS[0], {f"k1/1{number}": 2 for number in range(2 * MOST_FOUND)})
    append_day(tmp_path, DAYS[0], {f"{number}{DAYS[0]}/k1": 1 for number in range(2 * MOST_FOUND)})
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-02-01"))
    run_request(work, Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[3]), who="i", reason="r"), FakeReplayer())
    view = work.ledger.view()
    whole = search_records(work.lake, work.pipeline, view, part="k", seconds=60)
    assert (len(whole.records), whole.is_cut, whole.older) == (MOST_FOUND, False, DAYS[1]), (
        "the next page has the others"
    )
    found = search_records(work.lake, work.pipeline, view, part="k", last=DAYS[1], seconds=60)
    assert (len(found.records), found.is_cut, found.only("k")) == (MOST_FOUND, True, None)
    assert {one.slice_id for one in found.records} == {DAYS[1]}, "the newest"
    assert search_records(work.lake, work.pipeline, view, part=exact, seconds=60).only(exact) == FoundRecord(
        record_id=exact, slice_id=DAYS[0]
    )
