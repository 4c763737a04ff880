"""The part of a log that a chunk reads, and how it is read. Plans, replays and explanations read it in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.engine.engine import Engine
from jobs.lake.direct_reading import DirectReading, direct_reading
from jobs.lake.event_log import PinnedLog
from jobs.pipeline.look_back import look_back
from jobs.pipeline.models.log import TimeColumn as TimeGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.bucket_plan import ChunkTables, chunk_tables
from jobs.replay.chunk.time_steps import needs_pass
from jobs.replay.intake.log_blocks import LogColumns
from jobs.replay.sizes import SIZES, Sizes
from jobs.runs import Slice
from windowlib.columnar.log_reading import LogReading, TimeColumn
from windowlib.kernels.coverage import why_not_combined


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLog:
    """The log of a chunk: pinned, with the slices of the chunk in order, and what the pipeline reads of it."""

    pipeline: Pipeline
    log: PinnedLog
    tables: ChunkTables
    slices: tuple[Slice, ...]
    sizes: Sizes
    direct: DirectReading

    @classmethod
    def of(cls, pipeline: Pipeline, log: PinnedLog, slices: Sequence[Slice]) -> "ChunkLog":
        """Read the footers of the files.

        Raises:
            LogError: a file of the log is damaged.
            SpecError: as for `chunk_tables`.
        """
        return cls(
            pipeline=pipeline,
            log=log,
            tables=chunk_tables(pipeline, log),
            slices=(*slices,),
            sizes=SIZES,
            direct=direct_reading(log.whole),
        )

    @property
    def reading(self) -> LogReading:
        """The roles of the log's columns. The slices have the numbers 0, 1, ... in the chunk.

        If a part of the pipeline needs the arrival time, a record without one is invalid.
        """
        numbers = {slice_.slice_id: number for number, slice_ in enumerate(self.slices)}
        log = self.pipeline.log
        needs_arrival = self.tables.engine.needs_clock or log.distinct is not None
        return LogReading(
            version=self.log.version,
            slice_columns=log.slice.columns,
            slices={value: numbers[slice_id] for value, slice_id in self.log.partitions().items()},
            key=log.key_columns,
            event_time=_time_column(log.event_time),
            arrival_time=_time_column(log.arrival_time) if needs_arrival and log.arrival_time else None,
            gap=_gap_column(self.pipeline),
            record_id=log.record_id,
            widened=self.log.widened,
            moved=self.log.moved(),
        )

    @property
    def before(self) -> "ChunkLog":
        """The slices before, in which `log.distinct` looks for earlier records. There may be none."""
        return replace(self, log=self.log.before, slices=look_back(self.pipeline, self.slices).outside)

    @property
    def columns(self) -> LogColumns:
        """How tasks read the log's files."""
        return LogColumns(
            uri=self.log.uri,
            version=self.log.version,
            fields=self.log.fields,
            rows_per_batch=self.sizes.rows_per_read,
            widened=dict(self.log.widened),
            slice_column=next(iter(self.pipeline.log.slice.columns), None),
            zone=self.pipeline.log.slice.zone,
        )

    @property
    def order(self) -> tuple[str, ...] | None:
        """The columns of the log that order the records of a slice; None for the order of appending."""
        return self.pipeline.log.order_columns

    def why_doubtful(self) -> str | None:
        """Return why the Delta log does not tell the order of the records, in one sentence; None if it does."""
        if self.order is not None:
            return f"the pipeline orders records by columns ({', '.join(self.order)})"
        if self.direct.compacted:
            return f"the file {min(self.direct.compacted)} was rewritten (such as by OPTIMIZE)"
        return None

    @property
    def needs_commits(self) -> bool:
        """Whether the commit of a record changes the result."""
        return self.tables.engine.time.needs_commits

    @property
    def combines(self) -> bool:
        """Whether scan tasks combine records, because the pipeline allows it and there are enough."""
        if self.log.records < self.sizes.combined_records or self.reading.event_time.name not in self.log.nodes:
            return False  # no statistics bound an event time that is derived
        return why_not_partials(self.tables.engine) is None


def why_not_partials(engine: Engine) -> str | None:
    """Return why tasks exchange single records, as one sentence; None if they combine them first."""
    if needs_pass(engine):
        return "the watermark depends on more than the greatest event time so far"
    return why_not_combined(engine.operator, engine.layout)


def _gap_column(pipeline: Pipeline) -> TimeColumn | None:
    """The column that holds the session gap of each record, if the pipeline has one."""
    windows = pipeline.windows
    session = None if windows is None else (windows.session or windows.dynamic_session)
    if session is None or session.gap.column is None:
        return None
    return TimeColumn(name=session.gap.column, unit="ms" if session.gap.unit is None else session.gap.unit.value)


def _time_column(grammar: TimeGrammar) -> TimeColumn:
    return TimeColumn(name=grammar.column, unit=grammar.unit.value if grammar.unit else None)
