"""`plan --explain`: how a replay of a range would run, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import counted
from jobs.planning.log_pin import pin_input
from jobs.replay.intake.chunk_log import ChunkLog, why_not_partials
from jobs.runs import Slice
from windowlib.kernels.coverage import why_not

_LEAST_MB_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a range would run. The rows are the same in every case.

    `why_not_kernels` is None if the columnar executor computes the windows, else the reason why the operator computes
    them record by record. `why_spark` is None if tasks read the log's files themselves, else the reason why Spark
    reads and sorts them. `why_doubtful` is None if the Delta log tells that the files are in log order, else the reason
    why tasks look at their order. `scratch_bytes` is the size of the files that may be read and written anew.
    `why_not_partials` is None if tasks combine records before they exchange them, else the reason. `earlier_records`
    are read in the slices before the range, to find duplicates.
    """

    why_not_kernels: str | None
    why_spark: str | None
    why_doubtful: str | None
    scratch_bytes: int
    why_not_partials: str | None
    earlier_records: int = 0

    @property
    def sentences(self) -> tuple[str, ...]:
        """Two or three sentences for a person."""
        windows = "The columnar executor computes the windows."
        if self.why_not_kernels is not None:
            windows = f"The operator computes the windows, record by record: {self.why_not_kernels}."
        reading = "Tasks read the log's files in the order in which they were appended."
        space = f"new files take up to about {_size(self.scratch_bytes)} on the disk while the chunk runs"
        if self.why_doubtful is not None:
            reading = (
                "Tasks look at the order of the records. They order a file that is not in order in memory, and divide "
                f"files that overlap or are large into new ones: {self.why_doubtful}; {space}."
            )
        if self.why_spark is not None:
            reading = f"Spark reads and sorts the log: {self.why_spark}; {space}."
        if self.earlier_records:
            ids = f"the ids of {counted(self.earlier_records, 'record')} of the slices before the range"
            reading += f" To find duplicates, they also read {ids}."
        if self.why_not_kernels is not None:
            return windows, reading
        exchange = "They add up many records of one key and window before they exchange them."
        if self.why_not_partials is not None:
            exchange = f"They exchange single records: {self.why_not_partials}."
        return windows, reading, exchange


def _size(size: int) -> str:
    """Return a number of bytes as `5.0 MB`, or as `3.2 kB` if it is less than 0.1 MB."""
    return f"{size / 1e6:,.1f} MB" if size >= _LEAST_MB_BYTES else f"{size / 1e3:,.1f} kB"


def execution(pipeline: Pipeline, lake: Lake, slices: Sequence[Slice], *, known: KnownLog | None = None) -> Execution:
    """Return how slices would run. Reads the Delta log and the footers of the range's files, and no record.

    `known` are the results of earlier reads of the log.
    Raises LogError, SpecError: the log or the pipeline cannot be used.
    """
    log = pin_input(pipeline, lake, slices, known=known)
    chunk = ChunkLog.of(pipeline, log, slices)
    engine = chunk.tables.engine
    return Execution(
        why_not_kernels=why_not(engine.operator, engine.layout),
        why_spark=chunk.direct.why_spark,
        why_doubtful=chunk.why_doubtful(),
        scratch_bytes=sum(file.bytes for file in log.whole.files),
        why_not_partials=why_not_partials(engine),
        earlier_records=log.before.records,
    )
