"""Step 1 of a replay, pin: fix the input of a chunk and all that follows from it. Nothing is written."""

from dataclasses import dataclass, replace
from typing import Final

from expectations.suites import SuiteFile
from jobs.engine.fingerprints import checks_fingerprint, spec_fingerprint
from jobs.lake.checkpoint_rows import checkpoint_files
from jobs.lake.direct_reading import DirectReading, direct_reading
from jobs.lake.event_log import PinnedLog
from jobs.lake.store import check_columns
from jobs.planning.log_pin import pin_input
from jobs.planning.state_columns import StateGate
from jobs.planning.suites import load_checks
from jobs.replay.checkpoint_check import CheckpointCheck, StoredState
from jobs.replay.chunk.bucket_plan import ChunkTables, chunk_tables
from jobs.replay.chunk.record_columns import stored_records
from jobs.replay.chunk.time_steps import time_before
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.orders import ReplayOrder
from jobs.replay.sizes import SIZES, Sizes
from windowlib.columnar.plan import CheckpointRules
from windowlib.errors import LogError
from windowlib.records.tables import INCREMENTAL_TABLES
from windowlib.watermarks.timeline import SourceRow

RECORDS_PER_STATE_ROW: Final = 3
"""A task restores and checks a row of the state in about the time of so many records."""
RECORDS_PER_SLICE: Final = 50_000
"""The rows of a slice become files of about eight tables, in the time of so many records."""
RECORDS_PER_OPERATOR_RECORD: Final = 15
"""Spark pays for a chunk of an operator with so many times fewer records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A chunk whose input is fixed: one version of the log, the tables and checks, the checkpoint before it.

    `checkpoint` is None at the beginning of a chain, and `state_before` is then empty.
    `direct` is what the footers of the log's files say. `were_dates` are the columns that have days in the records of
    the state before.
    """

    order: ReplayOrder
    sizes: Sizes
    log: PinnedLog
    tables: ChunkTables
    spec_fingerprint: str
    suites: SuiteFile | None
    checks_fingerprint: str
    checkpoint: CheckpointCheck | None
    state_before: StoredState
    time_before: tuple[SourceRow, ...]
    direct: DirectReading
    were_dates: frozenset[str] = frozenset()

    def uri(self, table: str) -> str:
        return self.order.lake.table(self.order.pipeline.name, table)

    @property
    def chunk_log(self) -> ChunkLog:
        """The part of the log that the chunk reads."""
        return ChunkLog(
            pipeline=self.order.pipeline,
            log=self.log,
            tables=self.tables,
            slices=self.order.slices,
            sizes=self.sizes,
            direct=self.direct,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """The places that the replay reads: the lake and the log."""
        return self.order.lake.root, self.log.uri

    def buckets(self, records: int, *, cores: int) -> int:
        """Return the number of buckets for so many records and the state before them, in tasks on `cores` cores.

        Raises StoreError: a table of the state cannot be read; the message names the damaged file.
        """
        rows = stored = 0
        if self.order.before is not None and not self.lets_rows_stay():
            rows = max((ids.count for ids in self.state_before.ids.values()), default=0)
            ids_of = self.state_before.ids
            states = (self.uri(name) for name in INCREMENTAL_TABLES if name in ids_of and ids_of[name].count)
            listed = (checkpoint_files(uri, self.order.before.attempts).files for uri in states)
            stored = sum(file.bytes or 0 for files in listed for file in files)
        return self.sizes.buckets_for(
            records + RECORDS_PER_STATE_ROW * rows,
            cores=cores,
            has_keys=bool(self.tables.keys),
            is_columnar=self.tables.is_columnar,
            state_bytes=stored,
        )

    def threads(self, *, cores: int) -> int:
        """Return how many threads of this process run the tasks of the chunk; 0 if Spark runs them.

        Users' functions run in Spark's workers only, and some logs are read by Spark only. An operator has one thread,
        because Python runs its records one after the other.
        """
        if self._needs_spark() or not self._is_small(self.log.whole.records, slices=len(self.order.slices)):
            return 0
        return min(cores, self.sizes.threads) if self.tables.is_columnar else 1

    def slices_at_once(self, *, cores: int) -> int:
        """Return how many slices of the order, from the first on, are one chunk on a machine with so many cores.

        Threads of this process replay records with less time and memory than Spark's processes, if there is a thread
        for each core (docs/decisions/031-cold-start.md). If the order may be divided, the chunk has what they replay.
        """
        every = len(self.order.slices)
        is_better_here = self.tables.is_columnar and cores <= self.sizes.threads and not self._needs_spark()
        if not self.order.may_be_divided or not is_better_here:
            return every
        records, of_slice = self.log.before.records, self.log.slice_records()
        for number, slice_ in enumerate(self.order.slices, start=1):
            records += of_slice.get(slice_.slice_id, 0)
            if not self._is_small(records, slices=number):
                return number - 1 or every
        return every

    def _needs_spark(self) -> bool:
        return bool(self.order.pipeline.functions()) or self.direct.why_spark is not None

    def _is_small(self, records: int, *, slices: int) -> bool:
        rows = sum(ids.count for ids in self.state_before.ids.values())
        per_record = 1 if self.tables.is_columnar else RECORDS_PER_OPERATOR_RECORD
        state = rows // self.sizes.staying_per_record if self.lets_rows_stay() else rows
        return per_record * (records + state) + RECORDS_PER_SLICE * slices <= self.sizes.local_records

    def lets_rows_stay(self) -> bool:
        """Return whether rows of keys that the chunk does not change stay stored as they are.

        The chunk must not be due to store a full checkpoint. Only the columnar executor is known to change no key
        without a record or a timer.
        """
        rules, rows = self.checkpoint_rules(), sum(ids.count for ids in self.state_before.ids.values())
        return (
            bool(self.tables.keys)
            and self.tables.is_columnar
            and rows >= max(self.sizes.staying_rows, self.sizes.staying_share * self.log.records, rules.full_rows + 1)
            and not rules.full_slices
            and rules.changes_before <= rules.changes_max * rows
        )

    def checkpoint_rules(self) -> CheckpointRules:
        """Return when the buckets emit their whole state: often enough that no checkpoint has too many parts."""
        before, most = self.order.before, self.sizes.checkpoint_parts
        parts = 0 if before is None else len(before.parts)
        full = (number for number in range(len(self.order.slices)) if (parts + number) % most == 0)
        return CheckpointRules(
            full_rows=self.sizes.full_state_rows, full_slices=frozenset(full), changes_before=self.state_before.changes
        )


def pin(order: ReplayOrder, *, sizes: Sizes = SIZES, cores: int = 0) -> Pinned:
    """Pin the log, derive tables, suites and fingerprints, and check the checkpoint before the chunk.

    If the order may be divided, the chunk has perhaps its first slices only. `cores` are those for threads of this
    process; 0: other machines do the work, and nothing is divided.

    Raises:
        LogError, SpecError: the log, the pipeline or a suite cannot be used, the log does not have a slice yet, or a
            stored table or the state before does not take the columns of the log.
        CheckpointError: rows of the checkpoint were lost, doubled or changed.
    """
    pipeline, lake, before = order.pipeline, order.lake, order.before

    def uri(table: str) -> str:
        return lake.table(pipeline.name, table)

    log = pin_input(pipeline, lake, order.slices, version=order.log_version, known=order.known_log)
    for slice_id, why in (log.table.missing(order.slices) or {}).items():
        raise LogError(f"slice {slice_id} of log {pipeline.log.shown} cannot be read: {why}")
    tables = chunk_tables(
        pipeline, log, stored_records=stored_records(uri, is_distinct=pipeline.log.distinct is not None)
    )
    were_dates = frozenset() if before is None else StateGate.of(pipeline, lake, log).were_dates(before)
    suites = load_checks(pipeline)
    # A state of other types would look damaged, and a table must not get columns of a spec that is refused.
    for table in tables.stored:
        check_columns(uri(table.name), table)
    checkpoint = None if before is None else CheckpointCheck(before, uri, tables.stored, sizes.content_rows)
    pinned = Pinned(
        order=order,
        sizes=sizes,
        log=log,
        tables=tables,
        spec_fingerprint=spec_fingerprint(pipeline),
        suites=suites,
        checks_fingerprint=checks_fingerprint(pipeline, suites.document if suites else None),
        checkpoint=checkpoint,
        state_before=StoredState() if checkpoint is None else checkpoint.check(),
        time_before=tuple(time_before(lake, pipeline, before, warm_up=order.warm_up)),
        direct=DirectReading(why_spark=None),
        were_dates=were_dates,
    )
    count = pinned.slices_at_once(cores=cores) if cores else len(order.slices)
    if count < len(order.slices):
        order = replace(order, slices=order.slices[:count])
        log = pin_input(pipeline, lake, order.slices, version=order.log_version, known=order.known_log)
        pinned = replace(pinned, order=order, log=log)
    return replace(pinned, direct=direct_reading(log.whole))  # of the chunk alone: an order may have many files
