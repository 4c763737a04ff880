"""A small lake with late records, for tests of the pages' content."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.runs import RunResult
from tests.support.fake_replay import FakeReplayer, append_day, day_ms, sales

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
Made = Callable[[Random], tuple[RequestContext, dict[str, list[dict[str, object]]]]]


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a function: random numbers -> three published days, and the late records of each."""

    def make(rng: Random) -> tuple[RequestContext, dict[str, list[dict[str, object]]]]:
        root = tmp_path_factory.mktemp("lake")
        for day in DAYS:
            append_day(root, day, {"a": rng.randrange(9), "b": rng.randrange(9)})
        rows = {day: _late_rows(rng, day) for day in DAYS}

        def counted(result: RunResult) -> RunResult:
            late = len(rows[result.slice.slice_id])
            return replace(result, counts=replace(result.counts, read=late + 2, late=late))

        beside = {day: {"late_records": own} for day, own in rows.items() if own}
        work = open_request_context(sales(), Lake(root=str(root)), now_ms=lambda: day_ms("2024-02-01"))
        asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-04"), who="ines", reason="r")
        run_request(work, asked, FakeReplayer(beside=beside, change=counted))
        return work, rows

    return make


def _late_rows(rng: Random, day: str) -> list[dict[str, object]]:
    return [
        {
            "slice_id": day,
            "rank": rank,
            "late_by_ms": rng.randrange(20) * 1_000,
            "missed_all": True,
            "record_id": rng.choice(["a", "B", "c%", "_d", "e'; --", "ünïcode", None]),
            "reason": "past_cleanup",
        }
        for rank in range(rng.randrange(40))
    ]
