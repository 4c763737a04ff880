"""A warm-up reads the records that the published chain has read, or the request with it is refused."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.ledger.view import RequestKind
from jobs.orchestration.late_repair import check_current, repairing
from jobs.orchestration.repair_proposals import propose, propose_repairs
from jobs.orchestration.repair_range import LateRepair, repair_of
from jobs.orchestration.restatements import plan_request
from jobs.orchestration.scheduling import Replay
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.runs import WarmUp
from tests.jobs.orchestration.test_late_repair import SESSION, SIZES, pipeline_text, repair, run_days, shown, start_ms
from tests.jobs.replay.test_without_spark import FIRST
from tests.support.fake_replay import spark_task
from tests.support.replays import NOW_MS, context_in, pipeline_of
from windowlib.errors import RequestError

HOUR_MS: Final = 3_600_000
TEXT: Final = pipeline_text(windows="tumbling: {size: 4h}", bound="1h", lateness="0s").replace(
    "  slice: {by: day}\n", "  slice: {by: day}\n  order: [v]\n"
)
RULE: Final = f"{TEXT}repair: {{at_most_age: 36500d}}\n"


def append(lake: Path, day: int, *records: tuple[float, int]) -> None:
    """Append records to the slice of a day: their hours from the first day on, and their values, which order them."""
    hours, values = zip(*records, strict=True)
    rows = {
        "k": [1] * len(hours),
        "at": [start_ms(0) + int(hour * HOUR_MS) for hour in hours],
        "v": [*values],
        "day": pa.array([FIRST + timedelta(days=day)] * len(hours), pa.date32()),
    }
    write_deltalake(str(lake / "log"), pa.table(rows), mode="append", partition_by=["day"])


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """Four published days. A record of the third is late for a window that is open at the end of the second."""
    append(tmp_path, 0, (1, 1))
    append(tmp_path, 1, (25, 2), (44.2, 3), (47.9, 4))
    append(tmp_path, 2, (54, 5), (46, 1_000), (64, 1_001))
    append(tmp_path, 3, (74, 1_002))
    made = context_in(tmp_path, pipeline_of(TEXT))
    assert run_days(made, 0, 4).is_published
    return made


def late(work: RequestContext) -> tuple[LateRepair, WarmUp | None]:
    """Return the repair of the third day, and its warm-up."""
    found = repair_of(work, from_ms=start_ms(2), to_ms=None, at_most_ms=None)
    assert [slice_.start_ms for slice_ in found.slices] == [start_ms(2)]
    warm_up = restart_before(SESSION, repairing(work, found), found.slices)
    assert warm_up is not None
    assert warm_up.first.start_ms == start_ms(1)
    return found, warm_up


def test_a_repair_with_a_changed_warm_up_is_refused_before_it_is_replayed(work: RequestContext) -> None:
    found, warm_up = late(work)
    check_current(work, found, warm_up)
    append(Path(work.lake.root), 1, (45, 77))
    begin, end = FIRST + timedelta(days=1), FIRST + timedelta(days=3)
    with pytest.raises(RequestError, match=rf"1 published day changed: .* --from {begin} --to {end}$"):
        check_current(work, found, warm_up)
    with pytest.raises(RequestError, match="1 published day changed"):
        propose(work, found, warm_up=warm_up, who="a test")


@pytest.mark.slow
def test_a_repair_that_has_read_a_changed_warm_up_is_refused(work: RequestContext) -> None:
    before = shown(work)
    found, _ = late(work)
    append(Path(work.lake.root), 1, (45, 77))
    with pytest.raises(RequestError, match=f"slice {FIRST + timedelta(days=1)} has other records in the log"):
        repair(work, found)
    assert shown(work) == before
    assert not work.ledger.view().open_requests()
    assert run_days(work, 0, 4).is_published
    assert repair(work, late(work)[0]).is_published
    assert [value for key, value in shown(work).items() if value[0] == 4] == [(4, 3 + 4 + 77 + 1_000)]


@pytest.mark.slow
def test_a_request_of_airflow_with_a_changed_warm_up_is_refused(work: RequestContext) -> None:
    found, warm_up = late(work)
    request = propose(work, found, warm_up=warm_up, who="a test")
    append(Path(work.lake.root), 0, (90, 1))
    asked = Asked(from_ms=None, to_ms=None, who="a test", reason="", request_id=request.request_id, lease_id="1")
    decision = plan_request(open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS), asked=asked)
    assert isinstance(decision, Replay)
    with pytest.raises(RequestError, match=rf"the log before slice {FIRST + timedelta(days=2)}, .*\. Repair again$"):
        spark_task(work, decision, partial(replay_chunk, SESSION, sizes=SIZES))
    assert not work.ledger.view().open_requests()


@pytest.mark.slow
def test_a_proposal_ends_when_its_warm_up_is_published_again(work: RequestContext) -> None:
    found, warm_up = late(work)
    opened = propose(work, found, warm_up=warm_up, who="a test")
    append(Path(work.lake.root), 1, (26, 78))  # late: the state after the day is the same
    assert run_days(work, 1, 2).is_published
    propose_repairs(open_request_context(pipeline_of(RULE), work.lake, now_ms=lambda: NOW_MS), who="the schedule")
    closed = work.ledger.view().requests[opened.request_id]
    assert closed.failure == f"slices were published again after it was opened, first {FIRST + timedelta(days=1)}"
    [proposed] = work.ledger.view().open_requests(RequestKind.REPAIR)
    assert proposed.from_ms == start_ms(1)
