"""Lakes that an earlier version of Hindcast has written: nothing of them is damaged, and damage of them has an end."""

from pathlib import Path
from random import Random

import pytest

from jobs.engine import fingerprints
from jobs.orchestration.mending import mend
from jobs.pipeline.models.retention import RetentionGrammar
from jobs.publishing.cleaning import clean_lake
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.reading import verify as verifying
from jobs.reading.stored_rows import Finding, run_attempt
from jobs.reading.verify import verify
from tests.support.repair_model import DAY_MS, day_text
from tests.support.small_lake import WHO, SmallLake, replay
from windowlib.errors import RequestError
from windowlib.keyed.snapshots import STATE_VERSION

DAYS = 4


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Some published days."""
    rng, lake = Random(1), SmallLake(tmp_path)
    for day in range(DAYS):
        lake.append(rng)
        lake.run(day, day)
    return lake


def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fingerprints, verifying):
        monkeypatch.setattr(module, "STATE_VERSION", STATE_VERSION + 1)


def findings(lake: SmallLake) -> tuple[Finding, ...]:
    return verify(lake.work().lake, "late", lake.view()).findings


def lose_tallies(lake: SmallLake, run_id: str) -> None:
    slice_id, attempt_id = run_attempt(lake.view().run(run_id))
    [path] = (lake.root / "late" / "tallies").glob(f"slice_id={slice_id}/attempt_id={attempt_id}/*.parquet")
    path.unlink()


def refusal(lake: SmallLake, day: int) -> str:
    [slice_] = lake.slices(day, day)
    with pytest.raises(RequestError) as refused:
        mend(lake.work(), slice_, replay, who=WHO)
    return str(refused.value)


def clean(lake: SmallLake) -> None:
    lake.retention = RetentionGrammar().model_copy(update={"superseded_ms": DAY_MS, "unpublished_ms": DAY_MS})
    lake.now_ms += 2 * DAY_MS
    clean_lake(lake.work(), older_than_ms=0, who=WHO, dry_run=False)


def test_a_state_of_an_earlier_version_is_not_damaged(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: each run of a lake from before 22 November was a finding, which `hindcast mend` could not end."""
    upgrade(monkeypatch)
    assert findings(lake) == ()


@pytest.mark.slow
def test_a_damaged_run_of_an_earlier_version_names_what_ends_the_finding(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: the message named the cancellation of a request that was published."""
    lose_tallies(lake, lake.view().published[day_text(2)])
    upgrade(monkeypatch)
    assert f"or go on with the pipeline file: `hindcast adopt late --from {day_text(2)}`" in refusal(lake, 2)
    assert lake.run(2, DAYS - 1, warms_up=True).is_published, "as `adopt` does"
    assert "or remove these rows, which readers do not see" in refusal(lake, 2)
    clean(lake)
    assert findings(lake) == ()


@pytest.mark.slow
def test_a_damaged_run_that_a_request_of_an_earlier_version_has_staged_ends_with_the_request(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(Random(2))
    staged = lake.run(DAYS, DAYS, publish=False)
    lose_tallies(lake, staged.runs[0].result.run_id)
    upgrade(monkeypatch)
    assert f"or cancel the request: hindcast cancel late --request {staged.request_id[:12]}" in refusal(lake, DAYS)
    cancel(lake.work(), staged.request_id, by=By(who=WHO, decision_id="d"), reason="other code")
    assert "or remove these rows, which readers do not see" in refusal(lake, DAYS)
    clean(lake)
    assert findings(lake) == ()
