"""Step 3 of a replay, write: commit the rows of every table under the attempt.

Readers do not see them, because the ledger does not name the attempt yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.lake.store import ensure_table
from jobs.replay.chunk.driver_rows import append_driver_rows
from jobs.replay.chunk.record_columns import rename_records
from jobs.replay.chunk.table_writes import Rows, table_rows, write_tables
from jobs.replay.computed import Computed
from windowlib.records import tables
from windowlib.records.tables import Table


@dataclass(frozen=True, slots=True)
class Written:
    """A chunk whose rows are committed, and not audited yet."""

    computed: Computed


def write(computed: Computed) -> Written:
    """Create the tables that are missing, and append the rows: one commit per table for all slices of the chunk.

    Raises:
        SpecError: a table holds columns that the pipeline's rows do not fit.
    """
    pinned, tallies = computed.pinned, computed.tallies
    for table in pinned.tables.stored:
        ensure_table(pinned.uri(table.name), table)
    write_tables(_rows(computed), computed.runs, sizes=pinned.sizes)
    _append(computed, tables.watermarks(), dict(enumerate(computed.watermarks)))
    _append(computed, tables.tallies(), {one.slice_no: tallies.rows(one.slice_no) for one in computed.runs})
    return Written(computed)


def _rows(computed: Computed) -> Iterator[Rows]:
    """The rows of the tasks, and the invalid records of the ordered log, table by table."""
    pinned = computed.pinned
    records = rename_records(computed.input.ordered, pinned.tables.record_names)
    for table in pinned.tables.stored:
        count = sum(computed.tallies.emitted(one.slice_no, table.name).count for one in computed.runs)
        if count and table.name not in {tables.WATERMARKS, tables.TALLIES}:
            frame = table_rows(table.name, computed.tagged, records)
            yield Rows(table=table, uri=pinned.uri(table.name), frame=frame, count=count)


def _append(computed: Computed, table: Table, rows: Mapping[int, Sequence[Mapping[str, object]]]) -> None:
    """Append rows of the driver, given by slice number."""
    placed = [{**row, **one.columns()} for one in computed.runs for row in rows[one.slice_no]]
    append_driver_rows(computed.pinned.uri(table.name), table, placed)
