"""The bounds of a column in the footers of Parquet files, for logs without statistics of their own. No row is read."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from jobs.lake.damage import log_errors, refuse_outage
from jobs.lake.log_files import place_of
from jobs.lake.log_version import DataFile, LogVersion, no_bounds
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import LogError
from windowlib.libraries import pa
from windowlib.records.column_types import Node

READERS: Final = 4


def known_bounds(log: LogVersion, column: str) -> "pa.Table":
    """Return the bounds of the files as `LogVersion.bounds` does; of a log without commits, those of their footers.

    Raises LogError: the log is damaged, or a file is damaged or missing.
    """
    return log.bounds(column) if log.has_commits else footer_bounds(log, column)


def footer_bounds(log: LogVersion, column: str, *, only: Callable[[str], bool] | None = None) -> "pa.Table":
    """Return `path`, `low`, `high` and `nulls` of the files whose footers have all three, as `LogVersion.bounds`.

    `only` chooses files by their paths. It leaves out files that are damaged or missing.

    Raises:
        LogError: a file is damaged or missing, and no files are chosen.
        StoreError: the object store of the log does not answer.
    """
    if column in log.partition_columns:
        return no_bounds()
    system, root = file_system(log.uri)

    def read(file: DataFile) -> tuple[Any, Any, int] | None:
        doing = f"reading the footer of {file.path}"
        try:
            with log_errors(log.uri, doing), system.open_input_file(place_of(root, file.path)) as data:
                return _of_footer(open_parquet(data).metadata, log.physical[column])
        except LogError as error:
            if only is None:
                raise
            refuse_outage(log.uri, error)
            return None

    files = [file for file in log.files() if only is None or only(file.path)]
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        rows = [(file.path, *own) for file, own in zip(files, pool.map(read, files), strict=True) if own is not None]
    return bounds_table(rows, log.nodes[column])


def bounds_table(rows: Sequence[tuple[Any, ...]], node: Node) -> "pa.Table":
    """Return (path, low, high, nulls) of files as a table; `node` is the type of the column."""
    if not rows:
        return no_bounds()
    kind = arrow_type(node)
    kinds = {"path": pa.string(), "low": kind, "high": kind, "nulls": pa.int64()}
    columns = zip(zip(*rows, strict=True), kinds.values(), strict=True)
    return pa.table([pa.array(values, of) for values, of in columns], [*kinds])


def _of_footer(footer: Any, column: str) -> tuple[Any, Any, int] | None:  # noqa: ANN401 - pyarrow has no types
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    statistics = [
        own.statistics
        for group in groups
        for own in (group.column(number) for number in range(group.num_columns))
        if own.path_in_schema == column
    ]
    full = [stats for stats in statistics if stats is not None and stats.has_min_max and stats.has_null_count]
    if not full or len(full) < len(groups):
        return None
    try:
        low, high = min(stats.min for stats in full), max(stats.max for stats in full)
    except OverflowError:  # a year that Python does not have
        return None
    return low, high, sum(stats.null_count for stats in full)
