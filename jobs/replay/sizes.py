"""How much of a chunk goes which way. No size changes a row, only where and how fast it is made."""

from dataclasses import dataclass

from jobs.reading.stored_rows import CONTENT_ROWS
from jobs.replay.checks import PANDAS_ROWS
from jobs.replay.equations import AUDITED_ROWS
from windowlib.spark.log_order import RECORDS_PER_BLOCK
from windowlib.spark.tagged_rows import ROWS_PER_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The thresholds of a replay. Tests draw them small, so that both sides of each of them run.

    `records_per_block`: the log is sorted in blocks of about so many records.
    `records_per_bucket`, `buckets`: keys are spread over one bucket more per so many records, at most so many buckets.
    `rows_per_batch`: a task hands on its rows in batches of at most so many.
    `driver_rows`: the driver commits tables of a chunk with at most so many rows, Spark the others.
    `writers`: so many tables are written at a time.
    `content_rows`: of at most so many rows of a checkpoint's table, the driver checks the content.
    `audited_rows`: of at most so many committed rows of a table, the audit checks the content.
    `pandas_rows`: Great Expectations reads at most so many rows of a table with pandas, more with Spark.
    """

    records_per_block: int = RECORDS_PER_BLOCK
    records_per_bucket: int = 50_000
    buckets: int = 64
    rows_per_batch: int = ROWS_PER_BATCH
    driver_rows: int = 20_000
    writers: int = 3
    content_rows: int = CONTENT_ROWS
    audited_rows: int = AUDITED_ROWS
    pandas_rows: int = PANDAS_ROWS


SIZES = Sizes()
