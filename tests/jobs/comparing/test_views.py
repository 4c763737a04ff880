"""What readers would see after the publication of a request, as the comparison of two requests takes it."""

from pathlib import Path

from jobs.comparing.views import request_sides, two_requests_sides
from tests.support.day_chains import Place, Put, repair, run


def test_two_requests_are_compared_with_the_runs_that_their_publications_show_anew(tmp_path: Path) -> None:
    """A repair is seen at the last two days. With another run of the last one, readers see the chain at both."""
    place = Place(tmp_path)
    for day in range(6):
        place.put(Put(day, 24 * day + 1), Put(day, 24 * day + 20, 3))
    place.put(Put(4, 24 * 2 + 3, 50), Put(5, 24 * 3 + 3, 60))
    work = place.work()
    run(work, 0, 6)
    repair(work)
    place.put(Put(5, 24 * 5 + 21))
    request_id = run(work, 5, 6, publish=False).request_id
    view = work.ledger.view()
    shown = request_sides(view, request_id).after.runs
    assert shown["1970-01-09"] == view.published_chain_run("1970-01-09") != view.published_run("1970-01-09")
    sides = two_requests_sides(view, request_id, request_id)
    assert (sides.before.runs, sides.after.runs) == (shown, shown)
