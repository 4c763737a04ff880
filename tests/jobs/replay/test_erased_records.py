"""Replays of logs from which records were erased by a commit that a person has accepted. Without Spark.

After the replay, the runs of all slices are those of a log that never had the erased records: ids of runs cover the
records in log order, and the audit has compared the rows. Both kinds of DELETE are played: files that are written anew,
and deletion vectors.
"""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from jobs.lake.delta_log import describe_log
from jobs.lake.log_rows import find_records
from jobs.planning.request_context import RequestContext
from jobs.publishing.accepting import accept_rewrites, rewrites_of
from jobs.reading.verified_log import verify_log
from jobs.reading.verify import Span, verify
from jobs.replay.sizes import Sizes
from tests.support.delta_logs import commits_of, mark_deleted, track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import context_in, pipeline_of, run_range
from windowlib.errors import LogError

DAY_MS: Final = 86_400_000
FIRST: Final = date(1970, 1, 5)
FIRST_MS: Final = (FIRST - date(1970, 1, 1)).days * DAY_MS
DAYS: Final = 3
COMMITS: Final = 2 * DAYS
LOCAL: Final = Sizes(local_records=10**9)
ALL: Final = Span(from_ms=None, to_ms=None)
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("at", pa.int64()),
        ("v", pa.int64()),
        ("arrived", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)
PIPELINE: Final = """
pipeline: erased
log:
  table: log
  key: [k]
  event_time: {column: at, unit: ms}
  record_id: id
  slice: {by: SLICE}
  order: ORDER
watermark: {kind: bounded, out_of_orderness: 6h}
windows: {tumbling: {size: 12h}}
aggregates: {n: {count: {}}, total: {sum: v}, first: {first: v}}
"""


class Form(NamedTuple):
    """How a log is cut and ordered, and how its records are deleted: by deletion vectors, or in new files."""

    by: str
    order: str
    has_vectors: bool


FORMS: Final = (
    Form("day", "[at, id]", has_vectors=False),
    Form("day", "[at, id]", has_vectors=True),
    Form("day", "appended", has_vectors=True),
    Form("day", "commits", has_vectors=True),
    Form("arrived", "[at, id]", has_vectors=False),
    Form("arrived", "[at, id]", has_vectors=True),
)


class Record(NamedTuple):
    """A record of the log: its commit, and its row in the file of the commit."""

    commit: int
    row: int
    values: tuple[Any, ...]


def random_commits(chance: Random) -> list[list[Record]]:
    """Return the records of two commits for each day, in their order. Some have arrived on the day before or after."""
    commits = []
    for number in range(COMMITS):
        day = number // 2
        records = []
        for row in range(chance.randint(3, 12)):
            at_ms = FIRST_MS + day * DAY_MS + chance.randrange(-DAY_MS // 2, DAY_MS)
            arrived_ms = min(max(at_ms + chance.randrange(DAY_MS), FIRST_MS), FIRST_MS + DAYS * DAY_MS - 1)
            arrived = datetime.fromtimestamp(arrived_ms / 1000, UTC)
            values = (1_000 * number + row, chance.choice("abc"), at_ms, chance.randrange(9), arrived)
            records.append(Record(number, row, (*values, FIRST + timedelta(days=day))))
        commits.append(records)
    return commits


def write_log(place: Path, commits: Sequence[Sequence[Record]], form: Form) -> None:
    """Append each commit as one file of small row groups."""
    for records in commits:
        rows = [dict(zip(SCHEMA.names, one.values, strict=True)) for one in records]
        write_deltalake(
            str(place),
            pa.Table.from_pylist(rows, SCHEMA),
            mode="append",
            partition_by=["day"] if form.by == "day" else ["k"],
            writer_properties=WriterProperties(max_row_group_size=4),
        )
    if form.order == "commits":
        track_rows(place)


def run(work: RequestContext) -> None:
    """Replay and publish all days."""
    bounds = str(FIRST), str(FIRST + timedelta(days=DAYS))
    assert run_range(None, work.lake.root, work.pipeline, bounds, sizes=LOCAL).is_published


def opened(lake: Path, form: Form) -> RequestContext:
    text = PIPELINE.replace("SLICE", form.by).replace("ORDER", form.order)
    return context_in(lake, pipeline_of(text))


def accept(work: RequestContext) -> None:
    found = rewrites_of(work, work.ledger.view())
    accept_rewrites(work, found, found.rewrites, reason="erasure request 88", who="ines")


def erase(log: Path, erased: Sequence[Record], form: Form, chance: Random) -> None:
    """Delete records, in one commit or in two."""
    for part in [erased] if chance.random() < 0.5 else [erased[::2], erased]:
        ids = {one.values[0] for one in part}
        if form.has_vectors:
            mark_deleted(log, rows_with(log, ids))
        elif ids:
            DeltaTable(str(log)).delete(f"id IN ({', '.join(map(str, ids))})")


def rows_with(log: Path, ids: set[int]) -> dict[str, set[int]]:
    """Return path -> the rows of a file with some ids, for the files that were appended."""
    adds = [
        entry["add"]
        for commit in commits_of(log)[:COMMITS]
        for entry in map(json.loads, commit.read_text("utf-8").splitlines())
        if "add" in entry
    ]
    found = {}
    for add in adds:
        stored = pq.read_table(log / add["path"], columns=["id"])["id"].to_pylist()
        found[add["path"]] = {row for row, name in enumerate(stored) if name in ids}
    return {path: rows for path, rows in found.items() if rows}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(map(str, form)))
def test_the_runs_are_those_of_a_log_that_never_had_the_records(form: Form, tmp_path: Path) -> None:
    for seed in seeds(1):
        chance, place = Random(seed), tmp_path / str(seed)
        commits = random_commits(chance)
        # A record of each commit stays, so that the clean log has as many commits.
        erased = [one for records in commits for one in records[1:] if chance.random() < 0.3]
        write_log(place / "a" / "log", commits, form)
        work, clean = opened(place / "a", form), opened(place / "b", form)
        run(work)
        erase(place / "a" / "log", erased, form, chance)
        with pytest.raises(LogError, match="hindcast accept-rewrite"):
            run(work)
        accept(work)
        run(work)
        gone = {one.values[0] for one in erased}
        kept = [[one for one in records if one.values[0] not in gone] for records in commits]
        write_log(place / "b" / "log", kept, form)
        run(clean)
        views = [one.ledger.view() for one in (work, clean)]
        assert views[0].published == views[1].published
        digests = [[view.run(name).result.digests for name in view.published.values()] for view in views]
        assert digests[0] == digests[1]
        assert not verify(work.lake, "erased", views[0], span=ALL).findings
        log = describe_log(str(place / "a" / "log"))
        assert all(next(find_records(log, "id", str(name)), None) is None for name in gone)
        assert next(find_records(log, "id", str(kept[0][0].values[0])), None) is not None


def test_a_file_that_was_changed_in_place_stays_an_error(tmp_path: Path) -> None:
    """The runs have stored its digest. An acceptance is for files that a commit has replaced."""
    form = FORMS[0]
    commits = random_commits(Random(1))
    write_log(tmp_path / "log", commits, form)
    work = opened(tmp_path, form)
    run(work)
    erase(tmp_path / "log", commits[0][:1], form, Random(0))
    accept(work)
    run(work)
    assert not verify_log(work.lake, work.pipeline, work.ledger.view(), span=ALL).findings
    changed = next((tmp_path / "log" / f"day={FIRST + timedelta(days=1)}").glob("*.parquet"))
    raw = bytearray(changed.read_bytes())
    raw[len(raw) // 2] ^= 1
    changed.write_bytes(bytes(raw))
    [finding] = verify_log(work.lake, work.pipeline, work.ledger.view(), span=ALL).findings
    assert changed.name in str(finding)
