"""A small log of days and its pipelines, for tests of what becomes of the published chain."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, RequestKind
from jobs.orchestration.interval_backfill import plan_backfill_interval
from jobs.orchestration.late_repair import asked_for, repairing
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.repair_range import repair_of
from jobs.orchestration.requests import run_request
from jobs.orchestration.scheduling import Replay as Planned, publish_task, replay
from jobs.pipeline.slices import slices_between
from jobs.planning.request_context import Asked, IfOpen, RequestContext, open_request_context
from jobs.publishing.accepting import accept_rewrites, chosen_rewrites, rewrites_of
from jobs.publishing.decisions import rollback
from jobs.publishing.rules import PublicationAttempt
from jobs.readers import published_table
from jobs.replay.orders import ReplayOrder
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.replay.sizes import Sizes
from jobs.runs import RunResult
from tests.support.no_spark import threads
from tests.support.replays import NOW_MS, pipeline_of

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
        self.root, self.count, self.now_ms = root, 0, NOW_MS

    def put(self, *records: Put) -> None:
        for record in records:
            row = {"k": 1, "at": FIRST_MS + int(record.hours * HOUR_MS), "v": record.value, "seq": self.count}
            table = pa.Table.from_pylist([row | {"day": FIRST_MS // DAY_MS + record.day}], SCHEMA)
            write_deltalake(str(self.root / "log"), table, mode="append", partition_by=["day"])
            self.count += 1

    def erase(self, value: int) -> None:
        """Delete the records with a value, and accept that."""
        DeltaTable(str(self.root / "log")).delete(f"v = {value}")
        work = self.work()
        view = work.ledger.view()
        rewrites = rewrites_of(work, view)
        chosen = chosen_rewrites(work, view, rewrites, versions=())
        accept_rewrites(work, rewrites, chosen, reason="a test", who="ann")

    def text(self, *, lateness: str = "0s", slices: str = "{by: day}", size: str = "2h", more: str = "") -> str:
        return (
            "pipeline: late\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
            f"  slice: {slices}\n  order: [seq]\nwatermark: {{kind: bounded, out_of_orderness: 0s}}\n"
            f"windows:\n  tumbling: {{size: {size}}}\n  allowed_lateness: {lateness}\n"
            f"aggregates: {{n: {{count: {{}}}}, total: {{sum: v}}}}\n{more}"
        )

    def work(
        self, *, lateness: str = "0s", slices: str = "{by: day}", size: str = "2h", more: str = ""
    ) -> RequestContext:
        pipeline = pipeline_of(self.text(lateness=lateness, slices=slices, size=size, more=more))
        work = open_request_context(pipeline, Lake(root=str(self.root)), now_ms=lambda: self.now_ms)
        return replace(work, is_alive=lambda _holder: False)


def replayed(order: ReplayOrder) -> list[RunResult]:
    return list(replay_chunk(SESSION, order, sizes=SIZES))


def run(
    work: RequestContext, first: int, end: int, *, warms_up: bool = False, publish: bool = True,
    kind: RequestKind = RequestKind.RANGE, if_open: IfOpen = IfOpen.REFUSE, is_fresh: bool = False,
) -> RequestOutcome:  # fmt: skip
    from_ms, to_ms = FIRST_MS + first * DAY_MS, FIRST_MS + end * DAY_MS
    slices = slices_between(work.pipeline, from_ms, to_ms)
    warm_up = restart_before(SESSION, work, slices) if warms_up else None
    asked = Asked(
        from_ms=from_ms,
        to_ms=to_ms,
        who="ann",
        reason="",
        warm_up=warm_up,
        kind=kind,
        if_open=if_open,
        is_fresh=is_fresh,
    )
    return run_request(work, asked, replayed, publish=publish)


def repair(
    work: RequestContext, first: int | None = None, end: int | None = None, *, at_most_ms: int | None = None
) -> str:
    """Repair the late records of some days, or all; return the id of the request."""
    bounds = [None if day is None else FIRST_MS + day * DAY_MS for day in (first, end)]
    wanted = repair_of(work, from_ms=bounds[0], to_ms=bounds[1], at_most_ms=at_most_ms)
    repaired = repairing(work, wanted)
    warm_up = restart_before(SESSION, repaired, wanted.slices, beginning=wanted.beginning)
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


def late(work: RequestContext) -> Sequence[int]:
    view = work.ledger.view()
    return [view.run(run_id).result.counts.late for run_id in view.published.values()]


def of_airflow(work: RequestContext, day: int) -> Planned:
    """Plan and replay one day as a DAG run of Airflow's own backfill."""
    planned = plan_backfill_interval(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS),
        interval_ms=(FIRST_MS + day * DAY_MS, FIRST_MS + (day + 1) * DAY_MS),
        who="airflow",
        lease_id=f"day {day}",
    )
    assert isinstance(planned, Planned)
    replay(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS),
        opened=planned.opened,
        slices=planned.slices,
        replayer=replayed,
    )
    return planned


def published_by_airflow(work: RequestContext, day: int) -> PublicationAttempt:
    """Return what one DAG run of Airflow's own backfill publishes."""
    planned = of_airflow(work, day)
    return publish_task(
        open_request_context(work.pipeline, work.lake, now_ms=lambda: NOW_MS),
        opened=planned.opened,
        who="airflow",
        slices=planned.slices,
    )
