"""Replays one chunk of slices: pin, compute, write, audit, check. Each step takes the value of the step before it.

`ReplayOrder` -> `Pinned` -> `Computed` -> `Written` -> `Audited` -> one `RunResult` per slice. A replay does not write
the ledger: its caller does.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expectations.suites import RUN, TABLES
from jobs.engine.user_errors import explained
from jobs.lake.store import opening_tables_once
from jobs.replay.audited import audit, check
from jobs.replay.checked_tables import RUN_SCHEMA, arrow_schema
from jobs.replay.checks import prepare_checks
from jobs.replay.chunk.stages import stage
from jobs.replay.computed import compute
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.replay.pinned import Pinned, pin
from jobs.replay.sizes import SIZES, Sizes
from jobs.replay.written import write
from jobs.runs import RunResult
from jobs.spark.object_storage import object_storage
from jobs.spark.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@contextmanager
def spark_replayer(master: str | None = None, *, sizes: Sizes = SIZES) -> Iterator[Replayer]:
    """Give a replayer that runs on one Spark session. The first order starts the session; it ends with the context."""
    sessions = _Sessions(master)
    try:
        yield lambda order: _replay(sessions.start, order, sizes=sizes)
    finally:
        sessions.stop()


def replay_chunk(spark: "SparkSession", order: ReplayOrder, *, sizes: Sizes = SIZES) -> list[RunResult]:
    """Replay the slices of an order in one chunk.

    Returns:
        One result per slice, in order, with the verdict of its checks. Its rows are committed. Readers do not see them
        before the ledger names the attempt.

    Raises:
        LogError, SpecError, CheckpointError: before anything is written.
        AuditError: an equation does not close; the attempt is void.
    """
    return _replay(lambda _pinned: spark, order, sizes=sizes)


def _replay(session: "Callable[[Pinned], SparkSession]", order: ReplayOrder, *, sizes: Sizes) -> list[RunResult]:
    """Replay a chunk. `session` returns the session for it."""
    started = time.monotonic()
    with explained(order.pipeline):
        with stage("pin"), opening_tables_once():
            pinned = pin(order, sizes=sizes)
        with _preparing(pinned):
            with stage("session"):
                spark = session(pinned)
            with stage("compute"):
                computed = compute(spark, pinned)
    try:
        with stage("write"):
            written = write(computed)
        with stage("audit"), opening_tables_once():
            audited = audit(written)
    finally:
        computed.run.rows.close()
    with stage("check"):
        return check(spark, audited, seconds=time.monotonic() - started)


@dataclass(slots=True)
class _Sessions:
    """The session of a replayer, which is started when it is needed."""

    master: str | None
    _spark: "SparkSession | None" = None

    def start(self, pinned: Pinned) -> "SparkSession":
        """Return the session. The JVM processes records, and reads tables, only for a chunk through DataFrames."""
        places = (pinned.order.lake.root, pinned.log.uri)
        uses_frames = pinned.why_not_files is not None
        if uses_frames:
            object_storage(places)  # refuses missing jars, also if a session of an earlier chunk runs
        if self._spark is None:
            records = pinned.log.records if uses_frames else 0
            self._spark = spark_session("hindcast replay", self.master, records=records, may_read=places)
        return self._spark

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()


@contextmanager
def _preparing(pinned: Pinned) -> Iterator[None]:
    """Build the suites in a thread during the context, because Great Expectations takes 5 s to import if it is needed.

    Raises:
        SpecError: Great Expectations refuses a suite. The context ends before anything is written.
    """
    executor = ThreadPoolExecutor(max_workers=1)
    try:
        prepared = executor.submit(prepare_checks, pinned.suites, _schemas(pinned))
        yield
        prepared.result()
    finally:
        executor.shutdown(wait=False)


def _schemas(pinned: Pinned) -> "dict[str, pa.Schema]":
    """Return the columns of the tables that can be checked."""
    stored = {table.name: table.stored_columns() for table in pinned.tables.stored if table.name in TABLES}
    return {RUN: RUN_SCHEMA} | {name: arrow_schema(columns) for name, columns in stored.items()}
