"""`plan --explain`: how a replay of a range would run, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_pin import pin_input
from jobs.replay.chunk.bucket_plan import chunk_tables
from jobs.replay.chunk.eligibility import why_not_files, why_not_partials
from jobs.runs import Slice
from windowlib.kernels.coverage import why_not


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a range would run. The rows are the same in every case.

    `why_not_kernels` is None if the columnar executor computes the windows, else the reason why the operator computes
    them record by record. `why_not_files` is None if tasks read the log's files themselves, else the reason why Spark
    reads them. `why_not_partials` is None if tasks combine records before they exchange them, else the reason.
    """

    why_not_kernels: str | None
    why_not_files: str | None
    why_not_partials: str | None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Two or three sentences for a person."""
        windows = "The columnar executor computes the windows."
        if self.why_not_kernels is not None:
            windows = f"The operator computes the windows, record by record: {self.why_not_kernels}."
        reading = "Tasks read the log's files themselves."
        if self.why_not_files is not None:
            reading = f"Spark reads and sorts the log: {self.why_not_files}."
        if self.why_not_kernels is not None or self.why_not_files is not None:
            return windows, reading
        exchange = "They add up many records of one key and window before they exchange them."
        if self.why_not_partials is not None:
            exchange = f"They exchange single records: {self.why_not_partials}."
        return windows, reading, exchange


def execution(pipeline: Pipeline, lake: Lake, slices: Sequence[Slice]) -> Execution:
    """Return how slices would run. Reads the Delta log and the footers of the range's files, and no record.

    Raises:
        LogError, SpecError: the log or the pipeline cannot be used.
    """
    log = pin_input(pipeline, lake, slices)
    written = chunk_tables(pipeline, log)
    engine = written.engine
    return Execution(
        why_not_kernels=why_not(engine.operator, engine.layout),
        why_not_files=why_not_files(pipeline, lake, log, written=written, slices=slices),
        why_not_partials=why_not_partials(engine),
    )
