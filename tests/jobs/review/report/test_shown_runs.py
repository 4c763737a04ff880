"""Which run of a slice the report, the pages and `hindcast suite try` show."""

from pathlib import Path

import pytest

from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext
from jobs.reading.verify import Span
from jobs.review.report.collect import Part, collect_view
from jobs.review.report.model import build_model
from jobs.review.suites.history import whole_history
from tests.support.day_chains import Place, Put, repair, run
from tests.support.report_rows import collect

DAYS = tuple(f"1970-01-{day:02}" for day in range(5, 11))


def filled(tmp_path: Path) -> Place:
    """Return a log of six days."""
    place = Place(tmp_path)
    for day in range(6):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 20, 3))
    return place


def shown(work: RequestContext) -> dict[str, str]:
    return {slice_id: staged.result.run_id for slice_id, staged in work.ledger.view().newest_runs().items()}


def tried(view: LedgerView) -> list[str]:
    return [staged.result.run_id for staged in whole_history("late", view, Span()).runs]


@pytest.mark.slow
def test_runs_of_a_repair_that_readers_do_not_see_are_not_shown_in_place_of_published_ones(tmp_path: Path) -> None:
    """They are those of its warm-up, and those with the rows of the chain."""
    place = filled(tmp_path)
    work = place.work()
    run(work, 0, 5)
    place.put(Put(5, 24 * 3 + 3, 50))
    run(work, 5, 6)
    repair(work)
    view = work.ledger.view()
    assert len(view.runs) > len(DAYS) + 1, "the repair has staged more runs than readers see"
    assert shown(work) == view.published
    assert tried(view) == [*view.published.values()][:-1], "the last run is of another spec"
    assert build_model(collect(work.lake, work.pipeline)).headline == "All 6 slices published"


def test_slices_that_only_a_warm_up_has_replayed_are_not_shown(tmp_path: Path) -> None:
    work = filled(tmp_path).work(size="1d")
    run(work, 3, 6, warms_up=True)
    view = work.ledger.view()
    assert [*view.slices] == [*DAYS[2:]], "the warm-up has replayed the day before"
    assert shown(work) == view.published
    model = build_model(collect(work.lake, work.pipeline))
    assert (model.headline, [line.slice_id for line in model.lines]) == ("All 3 slices published", [*DAYS[3:]])
    [of_warm_up] = collect_view(work.lake, work.pipeline, view, part=Part(count=1, last=DAYS[2])).slices
    assert of_warm_up.slice_id == DAYS[2], "the page of this slice"
