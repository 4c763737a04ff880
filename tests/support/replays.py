"""Replaying a pipeline over a real log in the session of the tests, and reading what was committed."""

import itertools
from functools import cache, partial
from pathlib import Path
from typing import Any

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.files import parse_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound, slices_between
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.replay.audited import audit, check
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.computed import compute
from jobs.replay.orders import ReplayOrder
from jobs.replay.pinned import pin
from jobs.replay.replayer import replay_chunk
from jobs.replay.restart import restart_before
from jobs.replay.sizes import SIZES, Sizes
from jobs.replay.tasks import LocalTasks
from jobs.replay.written import Written, write
from jobs.runs import RunResult
from jobs.spark.lazy_session import LazySession
from tests.support.no_spark import threads
from tests.support.spark_session import SparkSession

NOW_MS = 1_800_000_000_000
_attempts = itertools.count()


@cache
def pipeline_of(text: str) -> Pipeline:
    return parse_pipeline(text, source="test.yaml")


def context_in(lake: Path | str, pipeline: Pipeline) -> RequestContext:
    return open_request_context(pipeline, Lake(root=str(lake)), now_ms=lambda: NOW_MS)


def run_range(
    spark: "SparkSession | None",
    lake: Path | str,
    pipeline: Pipeline,
    bounds: tuple[str, str],
    *,
    chunk: int | None = None,
    sizes: Sizes = SIZES,
    publish: bool = True,
    warms_up: bool = False,
    **asked: Any,  # noqa: ANN401
) -> RequestOutcome:
    """Run `[from, to)` as `hindcast run` does, in the session of the tests; None: in this process, without Spark.

    `asked` are further fields of `Asked`.
    """
    work, session = context_in(lake, pipeline), threads() if spark is None else LazySession.of(spark)
    from_ms, to_ms = (parse_bound(pipeline, text) for text in bounds)
    warm_up = restart_before(session, work, slices_between(pipeline, from_ms, to_ms)) if warms_up else None
    asked = {"who": "a test", "reason": "to see what happens"} | asked
    request = Asked(from_ms=from_ms, to_ms=to_ms, warm_up=warm_up, **asked)
    replayer = partial(replay_chunk, session, sizes=sizes)
    return run_request(work, request, replayer, staging=Staging(chunk=chunk), publish=publish)


def what_was_run(outcome: RequestOutcome) -> list[dict[str, object]]:
    """The content of the runs: all that has to be equal between lakes, chunks and machines."""
    return list(outcome.to_json()["runs"])


def order_of(lake: Path | str, pipeline: Pipeline, bounds: tuple[str, str]) -> ReplayOrder:
    """One chunk from nothing."""
    slices = slices_between(pipeline, *(parse_bound(pipeline, text) for text in bounds))
    attempt = f"{next(_attempts):032x}"
    return ReplayOrder(
        pipeline=pipeline,
        lake=Lake(root=str(lake)),
        slices=tuple(slices),
        before=None,
        request_id="0" * 32,
        attempt_id=attempt,
    )


def computed_of(session: LazySession, order: ReplayOrder) -> object:
    """What a replay of an order computes. Of a log that only Spark reads: what the check of its bytes returns."""
    pinned = pin(order, sizes=Sizes(local_records=10**9))
    if pinned.direct.why_spark is not None:
        return pinned.direct.why_spark, check_log_bytes(LocalTasks(), pinned.log)
    computed = compute(session, pinned)
    computed.run.rows.close()
    runs = [(run.run_id, run.input_fingerprint, run.state_after) for run in computed.runs]
    return runs, sorted((repr(key), ids.as_row()) for key, ids in computed.run.counted.items())


def committed_chunk(spark: SparkSession, order: ReplayOrder) -> Written:
    """A chunk whose rows are committed and not audited yet."""
    return write(compute(LazySession.of(spark), pin(order)))


def finish(chunk: Written) -> list[RunResult]:
    return check(audit(chunk), seconds=1.0)
