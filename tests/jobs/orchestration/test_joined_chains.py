"""Two neighbours in the published chain fit, whatever requests, repairs, rollbacks and edits have made them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, RequestKind
from jobs.orchestration.late_repair import asked_for, repair_of, repairing
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import run_request
from jobs.orchestration.scheduling import Replay as Planned, leave_staged, plan_backfill_interval, publish_task, replay
from jobs.pipeline.slices import slices_between
from jobs.planning.request_context import Asked, IfOpen, RequestContext, on_published_spec, open_request_context
from jobs.publishing.decisions import rollback
from jobs.publishing.publishing import publish_request
from jobs.readers import published_table
from jobs.reading.published import published_runs
from jobs.replay.orders import ReplayOrder
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.replay.sizes import Sizes
from jobs.runs import RunResult
from tests.support.no_spark import threads
from tests.support.replays import NOW_MS, pipeline_of
from windowlib.errors import RequestError

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
FIRST_MS: Final = 4 * DAY_MS
SIZES: Final = Sizes(local_records=10**9)
SESSION: Final = threads()
SCHEMA: Final = pa.schema([(name, pa.int64()) for name in ("k", "at", "v", "seq")] + [("day", pa.date32())])
GRACE: Final = "1h"


class Put(NamedTuple):
    """A record: the day of its arrival, the hours of its event time after the start of the first day, its value."""

    day: int
    hours: float
    value: int = 1


class Place:
    """A log of days, and the pipelines over it."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0

    def put(self, *records: Put) -> None:
        for record in records:
            row = {"k": 1, "at": FIRST_MS + int(record.hours * HOUR_MS), "v": record.value, "seq": self.count}
            table = pa.Table.from_pylist([row | {"day": FIRST_MS // DAY_MS + record.day}], SCHEMA)
            write_deltalake(str(self.root / "log"), table, mode="append", partition_by=["day"])
            self.count += 1

    def text(self, *, lateness: str = "0s", slices: str = "{by: day}", size: str = "2h") -> str:
        return (
            "pipeline: late\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
            f"  slice: {slices}\n  order: [seq]\nwatermark: {{kind: bounded, out_of_orderness: 0s}}\n"
            f"windows:\n  tumbling: {{size: {size}}}\n  allowed_lateness: {lateness}\n"
            "aggregates: {n: {count: {}}, total: {sum: v}}\n"
        )

    def work(self, *, lateness: str = "0s", slices: str = "{by: day}", size: str = "2h") -> RequestContext:
        pipeline = pipeline_of(self.text(lateness=lateness, slices=slices, size=size))
        work = open_request_context(pipeline, Lake(root=str(self.root)), now_ms=lambda: NOW_MS)
        return replace(work, is_alive=lambda _holder: False)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def replayed(order: ReplayOrder) -> list[RunResult]:
    return list(replay_chunk(SESSION, order, sizes=SIZES))


def run(
    work: RequestContext, first: int, end: int, *, warms_up: bool = False, publish: bool = True,
    kind: RequestKind = RequestKind.RANGE, if_open: IfOpen = IfOpen.REFUSE,
) -> RequestOutcome:  # fmt: skip
    from_ms, to_ms = FIRST_MS + first * DAY_MS, FIRST_MS + end * DAY_MS
    slices = slices_between(work.pipeline, from_ms, to_ms)
    warm_up = restart_before(SESSION, work, slices) if warms_up else None
    asked = Asked(from_ms=from_ms, to_ms=to_ms, who="ann", reason="", warm_up=warm_up, kind=kind, if_open=if_open)
    return run_request(work, asked, replayed, publish=publish)


def repair(work: RequestContext, *, at_most_ms: int | None = None) -> str:
    """Repair all late records; return the id of the request."""
    wanted = repair_of(work, from_ms=None, to_ms=None, at_most_ms=at_most_ms)
    repaired = repairing(work, wanted)
    warm_up = restart_before(SESSION, repaired, wanted.slices)
    outcome = run_request(repaired, asked_for(wanted, who="ann", warm_up=warm_up), replayed)
    assert outcome.is_published
    return outcome.request_id


def why(outcome: RequestOutcome) -> str:
    assert outcome.publication is not None
    assert not outcome.is_published
    return outcome.publication.why


def roll_back(work: RequestContext, times: int = 1) -> None:
    for _ in range(times):
        rollback(work, publication=work.ledger.view().standing[-1].seq, reason="a test", who="ann")


def totals(work: RequestContext) -> list[int]:
    return sorted(published_table(work.lake.root, "late")["total"].to_pylist())


def gaps(view: LedgerView) -> list[str]:
    """The slices whose run of the chain does not start from the state before it."""
    runs = [chain_run for name in view.published if (chain_run := view.published_chain_run(name)) is not None]
    pairs = pairwise(run.result for run in runs)
    return [after.slice.slice_id for before, after in pairs if after.state_before != before.state_after]


def three_days(place: Place) -> None:
    """The last window of each day is open at its end."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 40), Put(2, 49), Put(2, 71.5), Put(3, 71.8, 5), Put(3, 90))


def test_a_chain_start_that_the_slices_before_it_have_joined_continues_their_chain(place: Place) -> None:
    """Also if it was staged as a beginning: the slice before it is not replayed alone."""
    three_days(place)
    run(place.work(), 0, 4)
    work = place.work(lateness=GRACE)
    run(work, 3, 4, warms_up=True)
    assert run(work, 0, 4).is_published
    seen = totals(work)
    place.put(Put(2, 71.9, 100))
    assert "replay them in the same request" in why(run(work, 2, 3))
    assert totals(work) == seen
    assert run(work, 2, 4, if_open=IfOpen.REPLACE).is_published
    assert (gaps(work.ledger.view()), max(totals(work))) == ([], 106)


def test_runs_of_a_warm_up_begin_no_chain(place: Place) -> None:
    place.put(Put(0, 1), Put(0, 2), Put(1, 25), Put(1, 47), Put(2, 49), Put(3, 73), Put(3, 90.5), Put(4, 97))
    work = place.work()
    run(work, 3, 4, warms_up=True, publish=False)
    starts = [staged.is_chain_start for staged in work.ledger.view().runs.values()]
    assert starts == [False] * (len(starts) - 1) + [True]


def test_a_chain_that_began_with_a_warm_up_is_replayed_without_one(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25), Put(1, 47.5), Put(2, 47.8), Put(2, 71), Put(3, 73), Put(3, 80))
    work = place.work()
    run(work, 2, 4, warms_up=True)
    place.put(Put(2, 71.5, 50))
    assert run(work, 2, 4).is_published
    assert (gaps(work.ledger.view()), max(totals(work))) == ([], 51)


def test_a_pipeline_that_begins_later_continues_what_is_published(place: Place) -> None:
    """`log.slice.first` is no part of the spec, so the state fits. Another spec is refused."""
    place.put(Put(0, 1), Put(1, 25), Put(1, 47.5, 3), Put(2, 47.8), Put(2, 71.5), Put(3, 90))
    run(place.work(), 0, 4)
    place.put(Put(2, 71.6, 70))
    later = "{by: day, first: 1970-01-07}"
    work = place.work(slices=later)
    assert run(work, 2, 4).is_published
    assert (gaps(work.ledger.view()), totals(work)) == ([], [1, 1, 4, 71])
    with pytest.raises(RequestError, match=r"1970-01-06 of pipeline late was published by spec"):
        run(place.work(slices=later, lateness=GRACE), 2, 4)


def test_rollbacks_restore_the_run_in_whose_place_a_repair_is_seen(place: Place) -> None:
    """Two repairs of two chains can have the same run."""
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40), Put(2, 50), Put(2, 60))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    before = work.ledger.view()
    edited = place.work(lateness=GRACE)
    run(edited, 1, 3, warms_up=True)
    repair(edited)
    roll_back(edited, 2)
    view = edited.ledger.view()
    chain = [view.chain_run_id(run_id) for run_id in view.published.values()]
    assert (view.published, chain) == (before.published, [*map(before.chain_run_id, before.published.values())])
    assert gaps(view) == []


@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_the_run_of_a_repair_becomes_one_of_the_chain_if_the_file_has_its_spec(
    place: Place, *, is_rolled_back: bool
) -> None:
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 3, 10), Put(1, 40))
    work = place.work()
    run(work, 0, 2)
    request_id = repair(work)
    request = work.ledger.view().requests[request_id]
    if is_rolled_back:
        roll_back(work)
    edited = place.work(lateness=f"{repair_lateness(work, request.spec_json)}ms")
    assert run(edited, 1, 2, warms_up=True).is_published
    head = edited.ledger.view().head
    assert head is not None
    assert head.result.spec_fingerprint == request.spec_fingerprint
    assert on_published_spec(edited)[1] == ()
    place.put(Put(2, 41), Put(2, 39, 500), Put(2, 60))
    assert run(edited, 2, 3).runs[0].result.counts.late == 0
    assert gaps(edited.ledger.view()) == ["1970-01-06"]


def repair_lateness(work: RequestContext, spec_json: str) -> int:
    from jobs.pipeline.files import pipeline_from_json

    windows = pipeline_from_json(spec_json, source="test", functions_dir=work.pipeline.functions_dir).windows
    assert windows is not None
    return windows.allowed_lateness_ms


def test_a_request_brings_no_older_records_back(place: Place) -> None:
    place.put(Put(0, 1), Put(1, 25), Put(2, 49))
    work = place.work(size="120h")
    run(work, 0, 3)
    place.put(Put(1, 26))
    staged = run(work, 1, 3, publish=False).request_id
    place.put(Put(2, 50, 1000))
    assert run(work, 2, 3, kind=RequestKind.RESTATEMENT).is_published
    attempt = publish_request(work, staged, who="ann")
    assert not attempt.is_published
    assert "readers see newer records of 1970-01-07 than request" in attempt.why


def test_the_shared_request_of_airflows_backfill_brings_no_older_records_back(place: Place) -> None:
    place.put(Put(0, 1), Put(0, 5), Put(1, 25), Put(1, 47.9), Put(2, 50), Put(2, 60))
    work = place.work()
    run(work, 0, 1)

    def dag_run(day: int) -> Planned:
        planned = plan_backfill_interval(
            work.pipeline, work.lake, interval_ms=(FIRST_MS + day * DAY_MS, FIRST_MS + (day + 1) * DAY_MS),
            now_ms=NOW_MS, who="airflow", lease_id=f"day {day}",
        )  # fmt: skip
        assert isinstance(planned, Planned)
        replay(
            work.pipeline, work.lake, opened=planned.opened, slices=planned.slices, replayer=replayed,
            now_ms=lambda: NOW_MS,
        )  # fmt: skip
        return planned

    for day in (1, 2):
        leave_staged(work.pipeline, work.lake, opened=dag_run(day).opened, now_ms=NOW_MS)
    place.put(Put(1, 47.95, 1000))
    assert run(work, 1, 2, kind=RequestKind.RESTATEMENT).is_published
    again = dag_run(2)
    attempt = publish_task(
        work.pipeline, work.lake, opened=again.opened, who="airflow", now_ms=NOW_MS, slices=again.slices
    )
    assert not attempt.is_published
    assert "Clear the DAG runs of these slices" in attempt.why
    assert [staged.result.counts.read for staged in published_runs(work.ledger.view())] == [2, 3]


def test_a_repair_is_not_published_again_over_a_greater_one(place: Place) -> None:
    place.put(Put(0, 1), Put(0, 5), Put(0, 23.99), Put(1, 25), Put(1, 21, 10), Put(1, 47.99))
    work = place.work()
    run(work, 0, 2)
    less = repair(work, at_most_ms=8 * HOUR_MS)
    roll_back(work)
    place.put(Put(2, 60), Put(2, 4, 100))
    run(work, 2, 3)
    repair(work)
    attempt = publish_request(work, less, who="ann")
    assert not attempt.is_published
    assert "by a repair with a greater allowed lateness" in attempt.why


def test_a_replay_of_a_part_of_a_repair_ends_the_repair(place: Place) -> None:
    """A record would be late in one slice, and in a window that the repair shows in the next one."""
    place.put(Put(0, 1), Put(0, 5), Put(0, 3), Put(0, 23.99), Put(1, 25), Put(1, 3.5, 10), Put(1, 47.99))
    place.put(Put(2, 3.7, 100), Put(2, 60))
    work = place.work()
    run(work, 0, 3)
    repair(work)
    assert (late(work), max(totals(work))) == ([0, 0, 0], 111)
    place.put(Put(1, 25.5))
    again = run(work, 1, 2)
    assert again.publication is not None
    assert again.publication.changed == ("1970-01-06", "1970-01-05", "1970-01-07")
    assert (late(work), max(totals(work))) == ([1, 2, 1], 1)
    assert not [*work.ledger.view().repairs.keys() & {*work.ledger.view().published.values()}]
    roll_back(work)
    assert late(work) == [0, 0, 0]


def late(work: RequestContext) -> Sequence[int]:
    view = work.ledger.view()
    return [view.run(run_id).result.counts.late for run_id in view.published.values()]
