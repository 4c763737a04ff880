"""Replays of logs from which records were erased by a commit that a person has accepted. Without Spark.

After the replay, the runs of all slices are those of a log that never had the erased records: ids of runs cover the
records in log order, and the audit has compared the rows. Both kinds of DELETE are played: files that are written anew,
and deletion vectors.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.plan import plan_range
from jobs.planning.workspace import Asked, Workspace, open_workspace
from jobs.publishing.accepting import accept_rewrites, rewrites_of
from jobs.reading.verified_log import verify_log
from jobs.reading.verify import Span, verify
from jobs.replay.replayer import replay_in
from jobs.replay.sizes import Sizes
from jobs.spark.lazy_session import LazySession
from tests.support.delta_logs import commits_of, mark_deleted, track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import NOW_MS, pipeline_of
from windowlib.errors import LogError, RequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS: Final = 86_400_000
FIRST: Final = date(1970, 1, 5)
DAYS: Final = 4
LOCAL: Final = Sizes(local_records=10**9)
SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("at", pa.int64()), ("v", pa.int64()), ("day", pa.date32())]
)
PIPELINE: Final = """
pipeline: erased
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  record_id: id
  slice: {by: day}
  order: ORDER
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 12h}}
aggregates: {n: {count: {}}, total: {sum: v}, first: {first: v}}
"""


@dataclass(frozen=True)
class Record:
    """A record of the log: its commit, and its row in the file of the commit."""

    commit: int
    row: int
    values: tuple[Any, ...]


def random_commits(chance: Random) -> list[list[Record]]:
    """Return the records of two commits for each day, in their order."""
    commits = []
    for number in range(2 * DAYS):
        day = FIRST + timedelta(days=number // 2)
        start_ms = (day - date(1970, 1, 1)).days * DAY_MS
        times = sorted(start_ms + chance.randrange(-DAY_MS // 2, DAY_MS) for _ in range(chance.randint(3, 12)))
        chance.shuffle(times)
        commits.append(
            [
                Record(number, row, (1_000 * number + row, chance.choice("abc"), at_ms, chance.randrange(9), day))
                for row, at_ms in enumerate(times)
            ]
        )
    return commits


def write_log(place: Path, commits: Sequence[Sequence[Record]], *, is_tracked: bool) -> None:
    """Append each commit as one file of small row groups. A commit without records makes the ids of rows differ."""
    names = SCHEMA.names
    for records in commits:
        rows = pa.Table.from_pylist([dict(zip(names, one.values, strict=True)) for one in records], SCHEMA)
        properties = WriterProperties(max_row_group_size=4)
        write_deltalake(str(place), rows, mode="append", partition_by=["day"], writer_properties=properties)
    if is_tracked:
        track_rows(place)


def no_session(_records: int, _places: Sequence[str]) -> "SparkSession":
    raise AssertionError("a small chunk started a session")


def run(work: Workspace) -> list[str]:
    """Replay and publish all days; return the slices that were replayed."""
    first_ms = (FIRST - date(1970, 1, 1)).days * DAY_MS
    asked = Asked(from_ms=first_ms, to_ms=first_ms + DAYS * DAY_MS, who="a test", reason="")
    session = LazySession(no_session, is_local=True)
    outcome = run_request(work, asked, lambda order: replay_in(session, order, sizes=LOCAL))
    assert outcome.is_published
    return [one.slice_id for one in outcome.replayed] if hasattr(outcome.replayed, "__iter__") else []


def opened(lake: Path, order: str) -> Workspace:
    return open_workspace(pipeline_of(PIPELINE.replace("ORDER", order)), Lake(root=str(lake)), now_ms=lambda: NOW_MS)


def accept(work: Workspace) -> None:
    found = rewrites_of(work, work.ledger.view())
    accept_rewrites(work, found, found.rewrites, reason="erasure request 88", who="ines")


def erase(log: Path, erased: Sequence[Record], *, by_vectors: bool, chance: Random) -> None:
    """Delete records, in one commit or in two."""
    parts = [erased] if chance.random() < 0.5 else [erased[::2], erased]
    for part in parts:
        if by_vectors:
            files = {
                version: json.loads(line)["add"]["path"]
                for version, commit in enumerate(commits_of(log)[: 2 * DAYS])
                for line in commit.read_text("utf-8").splitlines()
                if "add" in json.loads(line)
            }
            rows = {number: {one.row for one in part if one.commit == number} for number in range(2 * DAYS)}
            mark_deleted(log, {files[number]: own for number, own in rows.items() if own})
        else:
            named = ", ".join(str(one.values[0]) for one in part)
            DeltaTable(str(log)).delete(f"id IN ({named})" if part else "false")


@pytest.mark.parametrize(
    ("order", "by_vectors"), [("[at, id]", False), ("[at, id]", True), ("appended", True), ("commits", True)]
)
def test_the_runs_are_those_of_a_log_that_never_had_the_records(
    order: str, by_vectors: bool, tmp_path: Path  # noqa: FBT001 - a parameter of the test
) -> None:
    for seed in seeds(2):
        chance, place = Random(seed), tmp_path / str(seed)
        commits = random_commits(chance)
        write_log(place / "a" / "log", commits, is_tracked=order == "commits")
        work = opened(place / "a", order)
        run(work)
        # One record of each commit stays, so that the clean log has as many commits.
        erased = [one for records in commits for one in records[1:] if chance.random() < 0.3]
        erase(place / "a" / "log", erased, by_vectors=by_vectors, chance=chance)
        with pytest.raises(LogError, match="hindcast accept-rewrite"):
            run(work)
        accept(work)
        run(work)
        write_log(
            place / "b" / "log", [[one for one in records if one not in erased] for records in commits],
            is_tracked=order == "commits",
        )
        clean = opened(place / "b", order)
        run(clean)
        views = [one.ledger.view() for one in (work, clean)]
        assert views[0].published == views[1].published
        digests = [[view.run(name).result.digests for name in view.published.values()] for view in views]
        assert digests[0] == digests[1]
        assert not verify(work.lake, "erased", views[0], span=Span(from_ms=None, to_ms=None)).findings
