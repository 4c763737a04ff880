"""The thresholds of a replay. They change where and how fast rows are made, never the rows."""

from dataclasses import dataclass

from jobs.reading.stored_rows import CONTENT_ROWS
from jobs.replay.equations import AUDITED_ROWS
from windowlib.columnar.plan import FULL_STATE_ROWS
from windowlib.kernels.partials import CELLS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The thresholds of a replay. Tests draw small values, so that both sides of each threshold run.

    Attributes:
        local_records: the tasks of a chunk with the work of at most this many records run in threads of this process,
            and not in Spark (`Pinned.threads`, docs/decisions/031-cold-start.md).
        threads: at most so many, and not more than the cores. Python runs a sixth of a task, and one thread at a time.
        ordered_bytes: a task that reads a file whose records are not in order orders them, if they take at most about
            this many bytes in memory. The records of larger files, and of files that overlap, are divided before.
        run_records: records that were rewritten are read in the order of their file, if they have runs with so many
            records on average (jobs/replay/intake/runs.py).
        run_steps: the records of a run are at most so many records of the file apart. 0: no task looks for runs.
        sorted_rows: a file of sorted records has row groups of at most this many.
        records_per_bucket: the number of buckets grows by one for this many records, if an operator runs the windows.
        records_per_columnar_bucket: the same, if the columnar executor runs them.
        state_bytes_per_bucket: the same for this many stored bytes of the state before, which are more in memory.
        records_per_task: a task that reads the log's files reads about this many records.
        least_records: if cores would be idle, tasks and buckets get fewer records, but about this many at least.
        combined_records: tasks combine the records of a chunk with at least this many before they exchange them, if the
            pipeline allows it (windowlib.kernels.partials).
        combined_cells: they do so as long as a batch has at most this many cells for each record (`Combining`).
        rows_per_read: the number of rows that such a task decodes at once.
        rows_per_file: the largest number of rows in a file that such a task writes.
        rows_from: if the run of a slice is known, a bucket that emits at least this many rows of a table writes files.
        rows_per_encoding: a task that writes files takes slices until they have this many rows.
        buckets: the largest number of buckets, or that of the cores if there are more cores.
        content_rows: the driver checks the content of a checkpoint's table with at most this many rows.
        audited_rows: the audit checks the content of a committed table with at most this many rows.
        full_state_rows: a checkpoint with about this many rows or less is stored whole.
        checkpoint_parts: a checkpoint is stored in at most this many parts: a full one, and the changes of slices.
        staying_rows: if the state before a chunk has at least this many rows, those of keys that the chunk does not
            change stay stored, and no task restores them (`Pinned.lets_rows_stay`).
        staying_share: this is so if the state has at least this many rows for each record of the chunk.
        staying_per_record: so many rows of the state that may stay count as one of `local_records`. The threads of this
            process read and check them as fast as Spark's tasks on this machine.
        distinct_records: duplicates are searched among about this many records at once.
        distinct_bits: the hashes that find them have so many bits. Values decide; fewer bits cost time only.
            Compiled checks use neither.
    """

    local_records: int = 30_000_000
    threads: int = 8
    ordered_bytes: int = 120_000_000
    run_records: int = 8_192
    run_steps: int = 16
    sorted_rows: int = 500_000
    records_per_bucket: int = 50_000
    records_per_columnar_bucket: int = 3_500_000
    state_bytes_per_bucket: int = 256_000_000
    records_per_task: int = 2_500_000
    least_records: int = 250_000
    combined_records: int = 500_000
    combined_cells: float = CELLS_MAX
    rows_per_read: int = 131_072
    rows_per_file: int = 2_000_000
    rows_from: int = 250_000
    rows_per_encoding: int = 1_000_000
    buckets: int = 64
    content_rows: int = CONTENT_ROWS
    audited_rows: int = AUDITED_ROWS
    full_state_rows: int = FULL_STATE_ROWS
    checkpoint_parts: int = 16
    staying_rows: int = 50_000
    staying_share: int = 4
    staying_per_record: int = 20
    distinct_records: int = 2_000_000
    distinct_bits: int = 64

    def buckets_for(self, records: int, *, cores: int, has_keys: bool, is_columnar: bool, state_bytes: int = 0) -> int:
        """Return the number of buckets of a chunk. It changes the speed only."""
        size = self.records_per_columnar_bucket if is_columnar else self.records_per_bucket
        of_state = -(-state_bytes // self.state_bytes_per_bucket)
        count = max(-(-records // size), of_state, min(cores, records // self.least_records), 1)
        even = count + count % 2 if count > 1 else 1  # two cores end together
        return min(max(self.buckets, cores), even) if has_keys else 1

    def task_records(self, records: int, *, cores: int) -> int:
        """Return about how many records of a chunk a task reads. It changes the speed only."""
        return min(self.records_per_task, max(-(-records // cores), self.least_records))


SIZES = Sizes()
