"""Pipelines of the matrix as a user runs them: request, Spark, Delta tables, audit, ledger, publication, readers."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.lake.lake import Lake
from jobs.lake.store import read_attempts
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_pin import pin_input
from jobs.planning.request_context import open_request_context
from jobs.readers import published
from jobs.reading.published import read_published
from tests.matrix.checks import view_differs
from tests.matrix.log import BOUNDS, PARTITION, SCHEMA, TABLE, Commit
from tests.matrix.one_process import Answer, Hashes, answer
from tests.matrix.pipelines import Case
from tests.matrix.rows import Row, Rows, expected_rows, first_difference, slice_no, table_names
from tests.support.logs import make_log
from tests.support.read_logs import read_log
from tests.support.replays import NOW_MS, order_of, run_range, what_was_run
from tests.support.spark_session import SparkSession
from windowlib.errors import HindcastError
from windowlib.profiles import EngineFault

if TYPE_CHECKING:
    from jobs.orchestration.outcomes import RequestOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLog:
    """The second log as a Delta table of a lake, with the ids of its records."""

    spark: SparkSession
    lake: Path
    commits: Sequence[Commit]
    hashes: Hashes


def write_log(spark: SparkSession, lake: Path, commits: Sequence[Commit], pipeline: Pipeline) -> SparkLog:
    """Write the log, and read the ids of its records by means of any pipeline over it."""
    make_log(spark, str(lake / TABLE), commits, schema=SCHEMA, partition_by=PARTITION)
    order = order_of(lake, pipeline, BOUNDS)
    pinned = pin_input(pipeline, order.lake, order.slices)
    read = read_log(spark, pipeline, pinned, order.slices)
    hashes = {(one.slice_no, one.rank): one.record_hash for one in read.records}
    return SparkLog(spark=spark, lake=lake, commits=commits, hashes=hashes)


def disagreement(case: Case, log: SparkLog, *, name: str, chunks: Sequence[int | None]) -> str | None:
    """Run one pipeline for each number of slices per chunk (None: all in one); return what differs first, or None."""
    case = case.named(name)
    pipeline = case.pipeline
    try:
        said = answer(case, log.commits, log.hashes)
    except EngineFault:
        return None
    runs: list[Any] = []
    for slices in chunks:
        try:
            outcome = run_range(log.spark, log.lake, pipeline, BOUNDS, chunk=slices)
        except HindcastError as error:
            return f"{_way(slices)}: {type(error).__name__}: {error}"
        found = next(_what_differs(case, said, log=log, outcome=outcome), None)
        if found is not None:
            return f"{_way(slices)}: {found}"
        runs.append(what_was_run(outcome))
        shutil.rmtree(log.lake / name)
    return None if all(one == runs[0] for one in runs) else f"chunks of {chunks} slices: other runs: {runs}"


def _way(slices: int | None) -> str:
    return "in one chunk" if slices is None else f"in chunks of {slices} slices"


def _what_differs(case: Case, said: Answer, *, log: SparkLog, outcome: "RequestOutcome") -> Iterator[str]:
    place, pipeline = Lake(root=str(log.lake)), case.pipeline
    committed = _committed(case, place, outcome)
    if (found := first_difference(expected_rows(case, said), committed)) is not None:
        yield f"committed: {found}"
    if not outcome.is_published:
        yield f"it was not published: {outcome.publication}"
    view = open_request_context(pipeline, place, now_ms=lambda: NOW_MS).ledger.view()
    plain = read_published(place, pipeline.name, view)
    yield from (
        f"to a reader without Spark, {found}" for found in view_differs(case, said, _numbered(plain.to_pylist()))
    )
    spark = published(log.spark, str(log.lake), pipeline.name).toArrow()
    yield from (f"to a reader with Spark, {found}" for found in view_differs(case, said, _numbered(spark.to_pylist())))


def _committed(case: Case, place: Lake, outcome: "RequestOutcome") -> Rows:
    attempts = [(run.result.slice.slice_id, run.result.attempt_id) for run in outcome.runs]
    read = {name: read_attempts(place.table(case.pipeline.name, name), attempts) for name in table_names(case)}
    return {name: _numbered(rows.to_pylist()) for name, rows in read.items()}


def _numbered(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "slice_no": slice_no(row["slice_id"])} for row in rows]
