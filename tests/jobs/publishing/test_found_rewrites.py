"""Finds the slices of a DELETE in a log without partitions that no run has read. No Spark."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.pipeline.slices import slices_between
from jobs.planning.request_context import open_request_context
from jobs.planning.steps import Ask
from jobs.publishing.accepting import accept_rewrites, rewrites_of
from tests.support.delta_logs import mark_deleted
from tests.support.fake_replay import append_bulk, day_ms, sales
from windowlib.errors import LogError

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
BULK = {day: {"a": 1, "b": 2} for day in DAYS}


@pytest.mark.parametrize(
    ("files", "deleted", "touched"),
    [([BULK, {DAYS[1]: {"bad": 3}}], "bad", [DAYS[1]]), ([BULK], "b", [*DAYS])],
    ids=["a file of one day", "records of a file of all days"],
)
def test_a_delete_that_no_run_has_read_can_be_accepted(
    tmp_path: Path, files: list[dict[str, dict[str, int]]], deleted: str, touched: list[str]
) -> None:
    """The `remove` has no statistics, so the `add` tells the slices of the removed records."""
    for days in files:
        append_bulk(tmp_path, days)
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-06"))
    log = DeltaTable(work.lake.event_log(work.pipeline))
    log.delete(f"key = '{deleted}' AND id LIKE '2024-01-02%'")
    ask = Ask(slices=slices_between(work.pipeline, day_ms(DAYS[0]), day_ms("2024-01-04")))
    with pytest.raises(LogError, match="hindcast accept-rewrite"):
        work.plan(work.ledger.view(), ask)
    rewrites = rewrites_of(work, work.ledger.view())
    assert [(rewrite.version, sorted(rewrite.slices)) for rewrite in rewrites.rewrites] == [(log.version(), touched)]
    accept_rewrites(work, rewrites, rewrites.rewrites, reason="a bad append", who="ines")
    assert [step.reason.value for step in work.plan(work.ledger.view(), ask).steps] == ["missing"] * 3


@pytest.mark.parametrize("day", DAYS)
def test_a_deletion_vector_touches_the_days_that_the_file_had_before(tmp_path: Path, day: str) -> None:
    """An emptied first or last day was taken for a day without records. The other days were told in its place."""
    append_bulk(tmp_path, BULK)
    work = open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: day_ms("2024-01-06"))
    log = DeltaTable(work.lake.event_log(work.pipeline))
    days = [str(row["day"]) for row in log.to_pyarrow_table().to_pylist()]
    [path] = log.get_add_actions()["path"].to_pylist()
    mark_deleted(
        Path(work.lake.event_log(work.pipeline)), {path: [place for place, own in enumerate(days) if own == day]}
    )
    ask = Ask(slices=slices_between(work.pipeline, day_ms(DAYS[0]), day_ms("2024-01-04")))
    with pytest.raises(LogError, match="hindcast accept-rewrite"):
        work.plan(work.ledger.view(), ask)
    [rewrite] = rewrites_of(work, work.ledger.view()).rewrites
    assert sorted(rewrite.slices) == [*DAYS]
