"""`hindcast mend` where several chains, requests or time zones have runs of one slice."""

from pathlib import Path
from random import Random

import pytest

from jobs.ledger.view import StagedRun
from jobs.orchestration.mending import mend
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.request_context import Asked, RequestContext
from jobs.publishing.cleaning import clean_lake
from jobs.reading.verify import verify
from tests.support.day_chains import Place, Put, replayed, run
from tests.support.repair_model import DAY_MS, Spec, day_text
from tests.support.small_lake import SmallLake, replay

WHO = "ann"
LONG = Spec("tumbling: {size: 70h}", "6h", 0)


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


def days_of(root: Path, rng: Random, *, days: int = 6, spec: Spec = LONG) -> SmallLake:
    """Return a lake whose days were published one by one."""
    lake = SmallLake(root, spec=spec)
    for day in range(days):
        lake.append(rng)
        lake.run(day, day)
        lake.now_ms += DAY_MS
    return lake


def clean(lake: SmallLake, *, superseded: str = "400d", unpublished: str = "30d", after_days: int = 40) -> None:
    """Remove what nothing needs any more after some days."""
    lake.now_ms += after_days * DAY_MS
    rules = {"superseded": superseded, "unpublished": unpublished, "checkpoints": "30d"}
    lake.retention = RetentionGrammar.model_validate(rules)
    clean_lake(lake.work(), older_than_ms=0, who=WHO, dry_run=False)


def published(lake: SmallLake, day: int) -> StagedRun:
    run = lake.view().published_run(day_text(day))
    assert run is not None
    return run


@pytest.mark.slow
def test_a_state_that_a_warm_up_stores_again_is_used_although_the_run_was_mended_before(tmp_path: Path) -> None:
    """A clean-up removes the state of the mended attempt. That of the warm-up has the parts of the warm-up."""
    rng = Random(1)
    lake = days_of(tmp_path, rng)
    lose(lake.work(), published(lake, 0))
    assert mend(lake.work(), lake.slices(0, 0)[0], replay, who=WHO).left == ()
    clean(lake)
    lake.append(rng, 3)
    assert lake.run(3, 5, warms_up=True).is_published
    assert verify(lake.work().lake, "late", lake.view()).findings == ()
