"""A range begins with a warm-up where `retention.checkpoints` has removed the state before it."""

from pathlib import Path

import pytest

from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.slices import slices_between
from jobs.planning.change_sentences import told_changes
from jobs.planning.request_context import Asked
from jobs.publishing.cleaning import clean_lake
from jobs.reading.verify import verify
from jobs.replay.restart import restart_before
from tests.support.day_chains import DAY_MS, FIRST_MS, SESSION, Place, Put, gaps, replayed, run, totals
from windowlib.errors import RequestError

RETENTION = "retention: {checkpoints: 30d, superseded: 30d, unpublished: 30d}\n"
MONTHS_MS = 60 * DAY_MS


@pytest.mark.slow
def test_a_warm_up_replays_slices_whose_states_were_removed(tmp_path: Path) -> None:
    """Its second slice continues the published chain, whose state is gone. What it stores, the next slice starts from.

    Readers see the rows of the new attempts, because the next clean-up removes those of the old ones.
    """
    place = Place(tmp_path)
    place.put(*(Put(day, 24 * day + hour) for day in range(9) for hour in (1, 20)))
    work = place.work(size="3d", more=RETENTION)
    for day in range(9):
        run(work, day, day + 1)
    place.now_ms += MONTHS_MS
    clean_lake(work, older_than_ms=0, who="ann", dry_run=False)
    place.put(Put(7, 24 * 7 + 21, 100))
    with pytest.raises(RequestError, match=r"1970-01-11 was removed .* with --warm-up"):
        run(work, 7, 9)
    told = told_changes(work, work.ledger.view()).sentences[-1]
    assert told.endswith("To restate it: hindcast run late --from 1970-01-12 --to 1970-01-14 --warm-up")
    assert run(work, 7, 9, warms_up=True).is_published
    seen = totals(work)
    assert (max(seen), gaps(work.ledger.view())) == (106, [])
    place.now_ms += MONTHS_MS
    assert clean_lake(work, older_than_ms=0, who="ann", dry_run=False).rows
    assert totals(work) == seen
    assert verify(work.lake, "late", work.ledger.view()).findings == ()
    place.put(Put(7, 24 * 7 + 22, 1_000))
    slices = slices_between(work.pipeline, FIRST_MS + 7 * DAY_MS, FIRST_MS + 9 * DAY_MS)
    asked = Asked(
        from_ms=slices[0].start_ms,
        to_ms=slices[-1].end_ms,
        who="ann",
        reason="",
        warm_up=restart_before(SESSION, work, slices),
    )
    assert run_request(work, asked, replayed, staging=Staging(chunk=1)).is_published
    assert max(totals(work)) == 1_106
