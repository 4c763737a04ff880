"""`hindcast mend` where several chains, requests or time zones have runs of one slice."""

from pathlib import Path

from jobs.ledger.view import StagedRun
from jobs.orchestration.mending import mend
from jobs.orchestration.requests import run_request
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.request_context import Asked, RequestContext
from jobs.reading.verify import verify
from tests.support.day_chains import Place, Put, replayed, run

WHO = "ann"


def lose(work: RequestContext, run: StagedRun, table: str = "tallies") -> None:
    """Remove the file of a run in a table."""
    place = Path(work.lake.table("late", table)) / f"slice_id={run.result.slice.slice_id}"
    [file] = (place / f"attempt_id={run.result.attempt_id}").glob("*.parquet")
    file.unlink()


def test_a_run_of_another_time_zone_is_mended(tmp_path: Path) -> None:
    """Readers see slices of New York; a run of a UTC day of the same name is damaged."""
    place = Place(tmp_path)
    place.put(*(Put(day, 24 * day + 1) for day in range(3)))
    run(place.work(), 0, 3)
    work = place.work(slices="{by: day, timezone: America/New_York}")
    from_ms, to_ms = (parse_bound(work.pipeline, day) for day in ("1970-01-05", "1970-01-08"))
    asked = Asked(from_ms=from_ms, to_ms=to_ms, who=WHO, reason="", is_fresh=True)
    assert run_request(work, asked, replayed, publish=True).is_published
    view = work.ledger.view()
    old, *_ = (each for each in view.runs.values() if each.result.run_id not in view.published.values())
    lose(work, old)
    assert verify(work.lake, "late", view).mendable == (old.result.slice.slice_id,)
    done = mend(work, slices_between(work.pipeline, from_ms, to_ms)[0], replayed, who=WHO)
    assert ([*done.attempts], done.left) == ([old.result.run_id], ())
    assert verify(work.lake, "late", work.ledger.view()).findings == ()
