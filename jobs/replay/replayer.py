"""Replays one chunk of slices: pin, compute, write, audit, check. Each step takes the value of the step before it.

`ReplayOrder` -> `Pinned` -> `Computed` -> `Written` -> `Audited` -> one `RunResult` per slice. A replay does not write
the ledger: its caller does.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from expectations.suites import RUN, TABLES
from jobs.engine.user_errors import explained
from jobs.lake.delta_tables import expect_commits, opening_tables_once
from jobs.replay.audited import audit, check, foresee_failures
from jobs.replay.checked_tables import RUN_SCHEMA, arrow_schema
from jobs.replay.checks import check_types, prepare_checks
from jobs.replay.computed import compute
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.replay.pinned import Pinned, pin
from jobs.replay.process_memory import giving_memory_back
from jobs.replay.sizes import SIZES, Sizes
from jobs.replay.stage_times import stage
from jobs.replay.written import write
from jobs.runs import RunResult
from jobs.spark.lazy_session import LazySession
from jobs.storage import is_remote
from windowlib.errors import RequestError
from windowlib.libraries import pa


@contextmanager
def spark_replayer(master: str | None = None) -> Iterator[Replayer]:
    """Give a replayer with one Spark session. The first order that needs it starts it; it ends with the context."""
    with closing(LazySession.named("hindcast replay", master)) as session:
        yield lambda order: replay_chunk(session, order)


def replay_chunk(session: LazySession, order: ReplayOrder, *, sizes: Sizes = SIZES) -> list[RunResult]:
    """Replay the slices of an order in one chunk. The session starts if the chunk needs it.

    Returns:
        One result per slice, in order, with the verdict of its checks. Its rows are committed. Readers do not see them
        before the ledger names the attempt. Of an order that may be divided, the results of its first slices.

    Raises:
        LogError, SpecError, CheckpointError: before anything is written.
        RequestError: a cluster is to replay a lake or a log with a relative path.
        AuditError: an equation does not close, or a shuffle file is damaged; the attempt is void.
    """
    with opening_tables_once(), giving_memory_back():
        return _steps(session, order, sizes=sizes)


def _steps(session: LazySession, order: ReplayOrder, *, sizes: Sizes) -> list[RunResult]:
    started = time.monotonic()
    _check_places(session, order)
    with explained(order.pipeline):
        with stage("pin"):
            pinned = pin(order, sizes=sizes, cores=session.cores if session.is_local else 0)
        with _preparing(pinned) as prepared, stage("compute"):
            computed = compute(session, pinned)
    with ThreadPoolExecutor(max_workers=1) as beside:
        try:
            prepared.result()
            with stage("write"):
                foresee_failures(computed)
                expect_commits()  # the windows may have run for an hour
                written = write(computed)
        finally:
            # Deleting what the tasks of 20 M records left takes 0.1 s. The audit does not need it.
            closed = beside.submit(computed.run.rows.close)
        with stage("audit"):
            expect_commits()  # it reads what is committed
            audited = audit(written)
        with stage("check"):
            checked = check(audited, seconds=time.monotonic() - started)
        closed.result()
    return checked


def _check_places(session: LazySession, order: ReplayOrder) -> None:
    """Raise if other machines would look for the lake or the log below their own directory."""
    for place in () if session.is_local else (order.lake.root, order.lake.event_log(order.pipeline)):
        if not is_remote(place) and not Path(place).is_absolute():
            raise RequestError(
                f"{place} is a relative path, and workers of a Spark cluster have directories of their own: name the "
                "absolute path, which has to be the same on all machines, or a URI"
            )


@contextmanager
def _preparing(pinned: Pinned) -> Iterator["Future[None]"]:
    """Build the suites in a thread from here on, because Great Expectations takes seconds to import if it is needed.

    Await the result before anything is written: it raises a SpecError if Great Expectations refuses a suite. A suite
    whose checks do not fit the types of their columns is refused here, before anything is computed.
    """
    executor, schemas = ThreadPoolExecutor(max_workers=1), _schemas(pinned)
    if pinned.suites is not None:
        check_types(pinned.suites, schemas)
    try:
        quality = pinned.order.pipeline.quality
        confirm = quality.confirm if quality is not None else "none"
        yield executor.submit(prepare_checks, pinned.suites, schemas, confirm=confirm)
    finally:
        executor.shutdown(wait=False)


def _schemas(pinned: Pinned) -> "dict[str, pa.Schema]":
    stored = {table.name: table.stored_columns() for table in pinned.tables.stored if table.name in TABLES}
    return {RUN: RUN_SCHEMA} | {name: arrow_schema(columns) for name, columns in stored.items()}
