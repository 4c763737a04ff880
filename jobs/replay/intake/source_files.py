"""The files of a log as tasks of the intake read them: with the columns that order the records."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import ROW, LogColumns
from jobs.replay.intake.order_keys import comparable
from windowlib.columnar.log_reading import TimeColumn

APPEND_ORDER: Final = ("commit", "row id")
"""What orders the records, for messages, if no columns of the log do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderReading:
    """How tasks read the files of a log and the order of their records.

    `columns` are the columns of the log that order the records; None for the order of appending, which compacted files
    have in the hidden columns `hidden`: the commit, and the id of the row. `time` is the column of event times, if
    bounds of them are asked.
    """

    log: LogColumns
    columns: tuple[str, ...] | None
    hidden: tuple[str, ...] = ()
    time: TimeColumn | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """What orders the records, for messages."""
        return APPEND_ORDER if self.columns is None else self.columns

    def batches(self, file: Block, *, whole: bool) -> Iterator[tuple[pa.RecordBatch, list[pa.Array]]]:
        """Yield the records of a file, and their order columns in the form of `comparable`.

        With `whole`, the records have all columns of the log, else those that order them, and `time`.
        Raises LogError: the file cannot be read.
        """
        some = () if self.time is None else (self.time.name,)
        asked = None if whole else (*dict.fromkeys([*(self.columns or ()), *some]),)
        if self.columns is not None:
            for rows in self.log.batches(file, asked):
                yield rows, [comparable(rows.column(name)) for name in self.columns]
            return
        hidden = (*self.hidden, ROW)
        for rows in self.log.batches(file, asked, hidden=hidden):
            commit, number, row = rows.columns[-len(hidden) :]
            if number.null_count:
                number = pc.coalesce(number, pc.add(row, file.base_row_id))
            order = [pc.fill_null(commit, file.commit), number]
            yield rows.select(range(rows.num_columns - len(hidden))), order

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns that order the records of a file: columns of the log, or hidden ones."""
        return self.hidden if self.columns is None else self.columns

    def reorder_columns(self, file: Block) -> tuple[str, ...]:
        """Return the columns by which the reader of a file can order its records; empty if the file lacks some places.

        Raises LogError: the file cannot be read.
        """
        has_places = self.columns is not None or self.log.has_all(file, self.hidden)
        return self.order_columns if has_places else ()
