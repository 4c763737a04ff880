"""The files of some attempts that may have chosen rows, by the statistics in Delta's log."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.lake.damage import reading
from jobs.lake.delta_tables import open_table
from jobs.lake.row_filter import RowFilter
from jobs.lake.store import files_dataset, table_schema
from jobs.lake.table_files import Attempt, StatisticsDigests
from windowlib.libraries import pa, pads


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredFiles:
    """The files of the attempts that may have chosen rows.

    `read` are these attempts, and those without any file. `dataset` is None if there is no table.
    `records` is how many rows the files have, chosen or not, by Delta's log.
    """

    dataset: "pads.FileSystemDataset | None"
    read: frozenset[Attempt]
    records: int = 0


@contextmanager
def filtered_files(uri: str, digests: StatisticsDigests, chosen: RowFilter) -> Iterator[FilteredFiles]:
    """Give the files of some attempts, without the attempts that have no chosen row by the statistics of their files.

    Statistics that do not have the digest of the ledger hide no file.
    Raises StoreError: the table cannot be read, inside the context as well; the message names the damaged file.
    """
    pairs = frozenset(digests)
    with reading(uri, pairs):
        table = open_table(uri) if pairs else None
        if table is None:
            yield FilteredFiles(dataset=None, read=pairs)
            return
        listing = table.listing()
        files, skipped, usable = listing.of(pairs), listing.skipped(chosen), listing.with_statistics(digests)
        chosen_attempts = {file.attempt for file in files if file.path not in skipped or file.attempt not in usable}
        kept = [file for file in files if file.attempt in chosen_attempts]
        left = {file.attempt for file in files} - chosen_attempts
        dataset = files_dataset(uri, kept, table_schema(table))
        records = sum(file.records or 0 for file in kept)
        yield FilteredFiles(dataset=dataset, read=pairs - left, records=records)


def records_of(uri: str, attempts: Iterable[Attempt]) -> int:
    """Return how many rows some attempts have, by Delta's log. A file without statistics adds none.

    Raises StoreError: the table cannot be read.
    """
    pairs = frozenset(attempts)
    with reading(uri, pairs):
        table = open_table(uri)
        return 0 if table is None else sum(file.records or 0 for file in table.listing().of(pairs))


def statistics_digest(uri: str, attempt: Attempt) -> str:
    """Return the digest of the statistics of an attempt's files; an empty text if it has none.

    Raises StoreError: the table cannot be read.
    """
    with reading(uri):
        table = open_table(uri)
        return "" if table is None else table.listing().statistics_digests().get(attempt, "")


def time_cuts(uri: str, attempts: Iterable[Attempt], column: str, *, rows: int) -> "list[pa.Scalar]":
    """Return ascending times that cut the rows of attempts into ranges of about `rows` rows, by the files' statistics.

    A range has more rows if a file has. No time is returned if there are few rows, or no statistics of the column.
    Raises StoreError: the table cannot be read.
    """
    pairs = frozenset(attempts)
    with reading(uri, pairs):
        table = open_table(uri) if pairs else None
        return [] if table is None else table.listing().cuts(pairs, column, rows=rows)
